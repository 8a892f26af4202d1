//! The dependency graph of jobs: neighbors, stages and cycles.
//!
//! All functions are linear in jobs and dependencies, and accept graphs with cycles.

#[cfg(test)]
mod tests;

use crate::expanded::{Expanded, ExpandedJob};

/// Number of jobs of a cycle that a message names; the others are only counted.
const MAX_NAMED_CYCLE_JOBS: usize = 100;

/// A list of numbers for each number, in two flat arrays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Adjacency {
    /// The start of each number's list in `targets`, and the length of `targets` as the last entry.
    pub offsets: Vec<u32>,
    /// All lists, one after the other.
    pub targets: Vec<u32>,
}

impl Adjacency {
    /// Inverts lists: returns for each of `count` numbers the indices of the lists that contain it, in order. Numbers
    /// from `count` on are left out.
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

    /// Returns the list of a number; empty for numbers that do not exist.
    pub fn of(&self, number: u32) -> &[u32] {
        let number = number as usize;
        match (self.offsets.get(number), self.offsets.get(number + 1)) {
            (Some(from), Some(to)) => self.targets.get(*from as usize..*to as usize).unwrap_or_default(),
            _ => &[],
        }
    }
}

/// Returns for each job its dependents.
pub fn children(jobs: &[ExpandedJob]) -> Adjacency {
    Adjacency::inverted(jobs.len(), jobs.iter().map(|job| &job.depends_on[..]))
}

/// Returns the jobs by the length of the longest chain before them. All jobs of a stage can run at once when the
/// stage before it is done. Jobs in a cycle, and those that wait for one, are in no stage.
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

/// Jobs that all wait for each other, directly or through others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cycle {
    /// A shortest ring through the first job of the cycle in document order, starting with that job. Each job depends
    /// on the one before it, and the first on the last.
    pub ring: Vec<u32>,
    /// The other jobs of the cycle, in the order of the document.
    pub others: Vec<u32>,
}

/// Returns all dependency cycles, in the order of the document.
pub fn find_cycles(expanded: &Expanded) -> Vec<Cycle> {
    let components = components(expanded);
    let mut sizes = vec![0u32; components.len()];
    for component in &components {
        if let Some(size) = sizes.get_mut(*component as usize) {
            *size += 1;
        }
    }
    let mut seen = vec![false; components.len()];
    let mut cycles: Vec<Cycle> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for (job, component) in (0u32..).zip(&components) {
        let waits_for_itself = || parents(expanded, job).contains(&job);
        if sizes.get(*component as usize).is_none_or(|size| *size < 2) && !waits_for_itself() {
            continue;
        }
        let place = *places.entry(*component).or_insert_with(|| {
            cycles.push(Cycle { ring: ring_through(expanded, job, &components), others: Vec::new() });
            cycles.len() - 1
        });
        let Some(cycle) = cycles.get_mut(place) else { continue };
        if cycle.ring.first() == Some(&job) {
            for member in &cycle.ring {
                if let Some(flag) = seen.get_mut(*member as usize) {
                    *flag = true;
                }
            }
        } else if seen.get(job as usize) == Some(&false) {
            cycle.others.push(job);
        }
    }
    cycles
}

fn parents(expanded: &Expanded, job: u32) -> &[u32] {
    expanded.jobs.get(job as usize).map_or(&[], |job| &job.depends_on[..])
}

/// Returns a shortest cycle through a job, in the direction of execution.
fn ring_through(expanded: &Expanded, first: u32, components: &[u32]) -> Vec<u32> {
    let component = |job: u32| components.get(job as usize);
    let mut from = std::collections::HashMap::new();
    let mut queue = std::collections::VecDeque::from([first]);
    while let Some(job) = queue.pop_front() {
        for parent in parents(expanded, job) {
            if *parent == first {
                let mut ring = vec![first];
                let mut step = job;
                while step != first {
                    ring.push(step);
                    step = from.get(&step).copied().unwrap_or(first);
                }
                return ring;
            }
            if component(*parent) == component(first) && !from.contains_key(parent) {
                from.insert(*parent, job);
                queue.push_back(*parent);
            }
        }
    }
    Vec::new()
}

/// Returns for each job the number of its strongly connected component (Tarjan, without recursion because chains may
/// be long).
fn components(expanded: &Expanded) -> Vec<u32> {
    const NONE: u32 = u32::MAX;
    let count = expanded.jobs.len();
    let mut component = vec![NONE; count];
    let mut index = vec![NONE; count];
    let mut low = vec![NONE; count];
    let (mut next_index, mut next_component) = (0u32, 0u32);
    let mut open: Vec<u32> = Vec::new();
    let at = |list: &[u32], job: u32| list.get(job as usize).copied().unwrap_or(NONE);
    let set = |list: &mut [u32], job: u32, value: u32| {
        if let Some(place) = list.get_mut(job as usize) {
            *place = value;
        }
    };
    for root in (0u32..).take(count) {
        if at(&index, root) != NONE {
            continue;
        }
        // The search path: each job with the next edge to examine; none before the job is entered.
        let mut way: Vec<(u32, Option<usize>)> = vec![(root, None)];
        while let Some((job, edge)) = way.pop() {
            if edge.is_none() {
                set(&mut index, job, next_index);
                set(&mut low, job, next_index);
                next_index += 1;
                open.push(job);
            }
            let mut edges = parents(expanded, job).iter().enumerate().skip(edge.unwrap_or(0));
            let unseen = edges.find_map(|(edge, parent)| {
                if (*parent as usize) >= count {
                    return None;
                }
                if at(&index, *parent) == NONE {
                    return Some((edge, *parent));
                }
                if at(&component, *parent) == NONE {
                    let lowest = at(&low, job).min(at(&low, *parent));
                    set(&mut low, job, lowest);
                }
                None
            });
            if let Some((edge, parent)) = unseen {
                // Examined again when the parent is done, to take over its low link.
                way.extend([(job, Some(edge)), (parent, None)]);
                continue;
            }
            if at(&low, job) == at(&index, job) {
                while let Some(member) = open.pop() {
                    set(&mut component, member, next_component);
                    if member == job {
                        break;
                    }
                }
                next_component += 1;
            }
        }
    }
    component
}

/// Describes a cycle: the ring, then the other jobs that wait for it.
pub fn describe_cycle(expanded: &Expanded, cycle: &Cycle) -> String {
    let mut text = describe_ring(expanded, &cycle.ring);
    if !cycle.others.is_empty() {
        let names: Vec<&str> = cycle.others.iter().take(MAX_NAMED_CYCLE_JOBS).map(|job| name(expanded, *job)).collect();
        text.push_str(&format!("; in the same cycle: {}", names.join(", ")));
        if cycle.others.len() > MAX_NAMED_CYCLE_JOBS {
            text.push_str(&format!(" and {} more", cycle.others.len() - MAX_NAMED_CYCLE_JOBS));
        }
    }
    text
}

fn name(expanded: &Expanded, job: u32) -> &str {
    expanded.jobs.get(job as usize).map_or("?", |job| job.name.as_str())
}

/// Describes a ring: each job, the file or data that links it to the next, back to the first.
fn describe_ring(expanded: &Expanded, cycle: &[u32]) -> String {
    let name = |job: u32| name(expanded, job);
    let Some(first) = cycle.first() else { return String::new() };
    let mut text = name(*first).to_owned();
    let following = cycle.iter().skip(1).chain([first]);
    for (at, (job, next)) in cycle.iter().zip(following).enumerate() {
        if at == MAX_NAMED_CYCLE_JOBS && cycle.len() > MAX_NAMED_CYCLE_JOBS {
            text.push_str(&format!(" -> ({} more jobs)", cycle.len() - MAX_NAMED_CYCLE_JOBS));
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

/// Returns the file or data that the first job writes and the second reads.
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
