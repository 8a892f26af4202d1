//! The stages of a plan as text, with one line for jobs that differ only in numbers.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use torc_core::expanded::Expanded;
use torc_core::graph;

use crate::output::human;

/// Number of groups that are listed in one stage.
const MAX_LISTED_GROUPS: usize = 12;

/// Jobs whose names differ only in their numbers.
#[derive(Debug)]
struct JobGroup {
    pattern: String,
    first: String,
    count: i64,
    needs: String,
    after: BTreeSet<String>,
}

/// Draws the stages of one workflow.
pub fn draw(name: &str, expanded: &Expanded) -> String {
    let stages = graph::stages(expanded);
    let jobs = human::count(i64::try_from(expanded.jobs.len()).unwrap_or(i64::MAX), "job");
    let mut text =
        format!("{name}: {jobs} in {}\n", human::count(i64::try_from(stages.len()).unwrap_or(i64::MAX), "stage"));
    for (number, stage) in stages.iter().enumerate() {
        let groups = fold(stage, expanded);
        let _ = writeln!(
            text,
            "stage {} ({})",
            number + 1,
            human::count(i64::try_from(stage.len()).unwrap_or(i64::MAX), "job")
        );
        let shown = groups.len().min(MAX_LISTED_GROUPS);
        for (index, group) in groups.iter().take(MAX_LISTED_GROUPS).enumerate() {
            let branch = if index + 1 == shown && groups.len() <= MAX_LISTED_GROUPS { "└─" } else { "├─" };
            let _ = writeln!(text, "{branch} {}", describe(group));
        }
        if groups.len() > MAX_LISTED_GROUPS {
            let _ = writeln!(text, "└─ and {} more", groups.len() - MAX_LISTED_GROUPS);
        }
    }
    text
}

fn describe(group: &JobGroup) -> String {
    const MAX_SHOWN_PARENTS: usize = 4;
    let mut text = if group.count == 1 { group.first.clone() } else { format!("{} × {}", group.count, group.pattern) };
    let _ = write!(text, "  [{}]", group.needs);
    if !group.after.is_empty() {
        let mut names: Vec<&str> = group.after.iter().take(MAX_SHOWN_PARENTS).map(String::as_str).collect();
        if group.after.len() > MAX_SHOWN_PARENTS {
            names.push("…");
        }
        let _ = write!(text, "  after {}", names.join(", "));
    }
    text
}

fn fold(stage: &[u32], expanded: &Expanded) -> Vec<JobGroup> {
    let mut groups: Vec<JobGroup> = Vec::new();
    let mut indexes: std::collections::HashMap<(String, u32), usize> = std::collections::HashMap::new();
    for index in stage {
        let Some(job) = usize::try_from(*index).ok().and_then(|index| expanded.jobs.get(index)) else { continue };
        let pattern = pattern(&job.name);
        let index_of_group = *indexes.entry((pattern.clone(), job.requirements)).or_insert_with(|| {
            groups.push(JobGroup {
                pattern: pattern.clone(),
                first: job.name.clone(),
                count: 0,
                needs: needs(expanded, job.requirements),
                after: BTreeSet::new(),
            });
            groups.len() - 1
        });
        if let Some(group) = groups.get_mut(index_of_group) {
            group.count += 1;
            let parents = job.depends_on.iter().filter_map(|parent| expanded.jobs.get(usize::try_from(*parent).ok()?));
            group.after.extend(parents.map(|parent| self::pattern(&parent.name)));
        }
    }
    groups
}

/// Returns the name with `#` for each number.
fn pattern(name: &str) -> String {
    let mut pattern = String::with_capacity(name.len());
    let mut in_number = false;
    for character in name.chars() {
        if character.is_ascii_digit() {
            if !in_number {
                pattern.push('#');
            }
            in_number = true;
        } else {
            in_number = false;
            pattern.push(character);
        }
    }
    pattern
}

fn needs(expanded: &Expanded, index: u32) -> String {
    let needs =
        usize::try_from(index).ok().and_then(|index| expanded.requirements.get(index)).cloned().unwrap_or_default();
    let mut text = format!("{} CPU, {}", needs.num_cpus, human::bytes(needs.memory_bytes));
    if needs.num_gpus > 0 {
        let _ = write!(text, ", {} GPU", needs.num_gpus);
    }
    if needs.num_nodes > 1 {
        let _ = write!(text, ", {} nodes", needs.num_nodes);
    }
    let _ = write!(text, ", {}", human::duration(needs.runtime_seconds));
    text
}

#[cfg(test)]
mod tests {
    use torc_core::expanded::{ExpandedJob, Requirements};

    use super::*;

    #[test]
    fn groups_are_folded() {
        let job = |name: &str, depends_on: Vec<u32>| ExpandedJob {
            name: name.to_owned(),
            depends_on,
            ..ExpandedJob::default()
        };
        let expanded = Expanded {
            jobs: vec![job("prepare", vec![]), job("work_1", vec![0]), job("work_02", vec![0]), job("end", vec![1, 2])],
            requirements: vec![Requirements::default()],
            ..Expanded::default()
        };
        assert_eq!(
            draw("w", &expanded),
            "w: 4 jobs in 3 stages\nstage 1 (1 job)\n└─ prepare  [1 CPU, 1Mi, 1m]\nstage 2 (2 jobs)\n└─ 2 × work_#  \
             [1 CPU, 1Mi, 1m]  after prepare\nstage 3 (1 job)\n└─ end  [1 CPU, 1Mi, 1m]  after work_#\n"
        );
    }

    #[test]
    fn numbers_become_one_sign() {
        assert_eq!(pattern("a12_b3.0"), "a#_b#.#");
    }

    #[test]
    fn twelve_groups_and_four_parents_are_listed() {
        let job = |name: String, depends_on: Vec<u32>| ExpandedJob { name, depends_on, ..ExpandedJob::default() };
        let letters =
            |count: u8| (0..count).map(|n| job(format!("{}x", char::from(b'a' + n)), vec![])).collect::<Vec<_>>();
        let drawn = |jobs: Vec<ExpandedJob>| {
            draw("w", &Expanded { jobs, requirements: vec![Requirements::default()], ..Expanded::default() })
        };
        let twelve = drawn(letters(12));
        assert!(twelve.contains("└─ lx") && !twelve.contains("more"), "{twelve}");
        let thirteen = drawn(letters(13));
        assert!(thirteen.contains("├─ lx") && thirteen.ends_with("└─ and 1 more\n"), "{thirteen}");
        let parents = |count: u8| {
            let mut jobs = letters(count);
            jobs.push(job("last".to_owned(), (0..u32::from(count)).collect()));
            drawn(jobs)
        };
        assert!(parents(4).ends_with("after ax, bx, cx, dx\n"));
        assert!(parents(5).ends_with("after ax, bx, cx, dx, …\n"));
    }

    #[test]
    fn needs_are_told_where_they_are_unusual() {
        let told =
            |needs: Requirements| super::needs(&Expanded { requirements: vec![needs], ..Expanded::default() }, 0);
        let base =
            || Requirements { num_cpus: 2, memory_bytes: 3 << 20, runtime_seconds: 60, ..Requirements::default() };
        assert_eq!(told(Requirements { num_gpus: 4, num_nodes: 5, ..base() }), "2 CPU, 3Mi, 4 GPU, 5 nodes, 1m");
        assert_eq!(told(base()), "2 CPU, 3Mi, 1m");
    }
}
