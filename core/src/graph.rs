//! Jobs and what they wait for, as a graph: neighbours, stages and cycles.
//!
//! Everything here is linear in jobs and dependencies, and works on graphs with cycles too.

#[cfg(test)]
mod tests;

use crate::expanded::{Expanded, ExpandedJob};

/// So many jobs of a cycle are named before the rest is counted.
const MOST_NAMED: usize = 100;

/// Lists of numbers by number, in two flat arrays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Adjacency {
    /// Where the list of each number starts in `targets`; one more entry than there are numbers.
    pub offsets: Vec<u32>,
    /// All lists, one after the other.
    pub targets: Vec<u32>,
}

impl Adjacency {
    /// Turns lists around: for each of `count` numbers the lists it occurs in, in order. Numbers that are too large are left out.
    pub fn inverted<'a>(count: usize, lists: impl Iterator<Item = &'a [u32]> + Clone) -> Self {
        let mut offsets = vec![0u32; count + 1];
        for number in lists.clone().flatten() {
            if let Some(length) = offsets.get_mut(*number as usize + 1) {
                *length += 1;
            }
        }
        let mut total = 0;
        for offset in &mut offsets {
            total += *offset;
            *offset = total;
        }
        let mut next = offsets.clone();
        let mut targets = vec![0u32; total as usize];
        for (list, numbers) in (0u32..).zip(lists) {
            for number in numbers {
                let Some(place) = next.get_mut(*number as usize) else { continue };
                if let Some(target) = targets.get_mut(*place as usize) {
                    *target = list;
                    *place += 1;
                }
            }
        }
        Self { offsets, targets }
    }

    /// The list of a number; empty for numbers that do not exist.
    pub fn of(&self, number: u32) -> &[u32] {
        let number = number as usize;
        match (self.offsets.get(number), self.offsets.get(number + 1)) {
            (Some(from), Some(to)) => self.targets.get(*from as usize..*to as usize).unwrap_or_default(),
            _ => &[],
        }
    }
}

/// For each job the jobs that wait for it.
pub fn children(jobs: &[ExpandedJob]) -> Adjacency {
    Adjacency::inverted(jobs.len(), jobs.iter().map(|job| &job.depends_on[..]))
}

/// Jobs by the length of the longest chain before them: those of a stage can all run at once when the stage before it is
/// done. Jobs in a cycle, and those that wait for one, are in no stage.
pub fn stages(expanded: &Expanded) -> Vec<Vec<u32>> {
    let children = children(&expanded.jobs);
    let mut waiting = waiting(&expanded.jobs);
    let mut stages = Vec::new();
    let mut stage: Vec<u32> = (0u32..).zip(&waiting).filter(|(_, count)| **count == 0).map(|(job, _)| job).collect();
    while !stage.is_empty() {
        let mut next = Vec::new();
        for job in &stage {
            for child in children.of(*job) {
                if let Some(count) = waiting.get_mut(*child as usize) {
                    *count -= 1;
                    if *count == 0 {
                        next.push(*child);
                    }
                }
            }
        }
        next.sort_unstable();
        stages.push(std::mem::replace(&mut stage, next));
    }
    stages
}

/// Jobs that wait for each other in a ring, each for the one before it and the first for the last; `None` when there is no
/// such ring. The ring starts with the job that comes first in the document.
pub fn find_cycle(expanded: &Expanded) -> Option<Vec<u32>> {
    let mut stuck = vec![true; expanded.jobs.len()];
    for job in stages(expanded).into_iter().flatten() {
        if let Some(flag) = stuck.get_mut(job as usize) {
            *flag = false;
        }
    }
    // A stuck job waits for another stuck job, so following these must come back to where it has been.
    let is_stuck = |job: u32| stuck.get(job as usize) == Some(&true);
    let mut job = (0u32..).take(stuck.len()).find(|job| is_stuck(*job))?;
    let mut place = vec![None; stuck.len()];
    let mut path = Vec::new();
    loop {
        match place.get_mut(job as usize)? {
            Some(from) => {
                let from: usize = *from;
                let mut cycle: Vec<u32> = path.drain(from..).rev().collect();
                let first = cycle.iter().enumerate().min_by_key(|(_, job)| **job).map_or(0, |(at, _)| at);
                cycle.rotate_left(first);
                return Some(cycle);
            }
            unseen => *unseen = Some(path.len()),
        }
        path.push(job);
        job = *expanded.jobs.get(job as usize)?.depends_on.iter().find(|job| is_stuck(**job))?;
    }
}

/// A cycle in words: each job, what it passes on, the next job, back to the first.
pub fn describe_cycle(expanded: &Expanded, cycle: &[u32]) -> String {
    let name = |job: u32| expanded.jobs.get(job as usize).map_or("?", |job| job.name.as_str());
    let Some(first) = cycle.first() else { return String::new() };
    let mut text = name(*first).to_owned();
    let following = cycle.iter().skip(1).chain([first]);
    for (at, (job, next)) in cycle.iter().zip(following).enumerate() {
        if at == MOST_NAMED && cycle.len() > MOST_NAMED {
            text.push_str(&format!(" -> ({} more jobs)", cycle.len() - MOST_NAMED));
            text.push_str(&format!(" -> {}", name(*first)));
            break;
        }
        text.push_str(" -> ");
        text.push_str(name(*next));
        if let Some(link) = link(expanded, *job, *next) {
            text.push_str(&format!(" (through {link})"));
        }
    }
    text
}

/// What the first job writes and the second reads.
fn link(expanded: &Expanded, writer: u32, reader: u32) -> Option<String> {
    let (writer, reader) = (expanded.jobs.get(writer as usize)?, expanded.jobs.get(reader as usize)?);
    let common = |written: &[u32], read: &[u32]| written.iter().find(|number| read.contains(number)).copied();
    if let Some(file) = common(&writer.output_files, &reader.input_files) {
        return Some(format!("file `{}`", expanded.files.get(file as usize)?.name));
    }
    let data = common(&writer.output_user_data, &reader.input_user_data)?;
    Some(format!("user data `{}`", expanded.user_data.get(data as usize)?.name))
}

fn waiting(jobs: &[ExpandedJob]) -> Vec<u32> {
    let count = jobs.len();
    let exists = |job: &&u32| (**job as usize) < count;
    jobs.iter().map(|job| u32::try_from(job.depends_on.iter().filter(exists).count()).unwrap_or(u32::MAX)).collect()
}
