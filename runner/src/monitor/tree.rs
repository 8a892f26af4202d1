//! Assignment of processes to jobs: a job's first process, its group, its descendants, and orphaned processes.

use std::collections::HashMap;
use std::fs;

/// A process as `/proc/PID/stat` describes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    pub parent: i32,
    pub group: i32,
    /// Resident memory, including pages that other processes share.
    pub resident_bytes: i64,
    /// CPU time of the process and of the children that it has collected.
    pub cpu_us: u64,
}

impl Process {
    /// Reads a process, if it still exists.
    pub fn read(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let page = i64::try_from(rustix::param::page_size()).unwrap_or(4_096);
        let tick_us = 1_000_000 / rustix::param::clock_ticks_per_second().max(1);
        Self::parse(pid, &stat, page, tick_us)
    }

    fn parse(pid: i32, stat: &str, page: i64, tick_us: u64) -> Option<Self> {
        // The name may contain any character, so fields are counted from its end: state, parent, group …
        let fields: Vec<&str> = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace().take(22).collect();
        let number = |at: usize| fields.get(at)?.parse::<i64>().ok();
        let ticks = (11..=14).map(number).sum::<Option<i64>>()?;
        Some(Self {
            pid,
            parent: i32::try_from(number(1)?).ok()?,
            group: i32::try_from(number(2)?).ok()?,
            resident_bytes: number(21)?.saturating_mul(page),
            cpu_us: ticks.unsigned_abs().saturating_mul(tick_us),
        })
    }
}

/// Returns the job of each process. `leaders` are the first processes of jobs; `marked` returns the job of a process
/// that lost its parent and was adopted by the shim.
pub fn owners(
    processes: &[Process],
    leaders: &HashMap<i32, usize>,
    marked: impl Fn(i32) -> Option<usize>,
) -> Vec<Option<usize>> {
    let places: HashMap<i32, usize> = processes.iter().enumerate().map(|(at, process)| (process.pid, at)).collect();
    // The shim is the parent of the first process of every job.
    let shim = processes.iter().find(|process| leaders.contains_key(&process.pid)).map(|process| process.parent);
    let mut known: Vec<Option<Option<usize>>> = vec![None; processes.len()];
    for start in 0..processes.len() {
        let mut path = Vec::new();
        let mut at = Some(start);
        let owner = loop {
            let Some(place) = at.filter(|place| !path.contains(place)) else { break None };
            if let Some(owner) = known[place] {
                break owner;
            }
            path.push(place);
            let process = &processes[place];
            let direct = leaders.get(&process.pid).or_else(|| leaders.get(&process.group));
            if let Some(owner) = direct {
                break Some(*owner);
            }
            if shim == Some(process.parent) {
                break marked(process.pid);
            }
            at = places.get(&process.parent).copied();
        };
        path.into_iter().for_each(|place| known[place] = Some(owner));
    }
    known.into_iter().map(Option::flatten).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_line_of_stat() {
        let stat = "12 (a (b) c) S 7 11 12 0 -1 4194560 1 0 0 0 5 6 70 80 20 0 1 0 4711 1000 25 1";
        let expected = Process { pid: 12, parent: 7, group: 11, resident_bytes: 100, cpu_us: 161_000 };
        assert_eq!(Process::parse(12, stat, 4, 1_000), Some(expected));
        for broken in ["", "12 (a", "12 (a) S 1 2", "12 (a) S x 11 12 0 -1 1 1 0 0 0 5 6 70 80 20 0 1 0 1 1 25 1"] {
            assert_eq!(Process::parse(12, broken, 4, 1_000), None, "{broken}");
        }
    }

    #[test]
    fn descendants_groups_and_orphans_belong_to_their_job() {
        let process = |pid, parent, group| Process { pid, parent, group, ..Process::default() };
        let cases = [
            (process(1, 0, 1), None, "init"),
            (process(50, 1, 50), None, "the shim"),
            (process(100, 50, 100), Some(0), "the first process of a job"),
            (process(101, 100, 100), Some(0), "its child"),
            (process(102, 101, 102), Some(0), "a grandchild with a group of its own"),
            (process(103, 1, 100), Some(0), "in its group, adopted by another process"),
            (process(200, 50, 200), Some(1), "the first process of another job"),
            (process(300, 50, 300), Some(1), "forked twice, marked by its environment"),
            (process(301, 300, 301), Some(1), "a child of that one"),
            (process(400, 50, 400), None, "adopted by the shim, without a job"),
            (process(500, 1, 500), None, "a stranger"),
            (process(600, 601, 600), None, "its parent is gone"),
        ];
        let processes: Vec<Process> = cases.iter().map(|(process, ..)| *process).collect();
        let leaders = HashMap::from([(100, 0), (200, 1), (999, 2)]);
        for reversed in [false, true] {
            let mut processes = processes.clone();
            let mut expected: Vec<_> = cases.iter().map(|(process, owner, why)| (process.pid, *owner, *why)).collect();
            if reversed {
                processes.reverse();
                expected.reverse();
            }
            let owners = owners(&processes, &leaders, |pid| (pid == 300).then_some(1));
            for ((pid, owner, why), found) in expected.into_iter().zip(owners) {
                assert_eq!(found, owner, "{pid}: {why}");
            }
        }
    }

    #[test]
    fn a_circle_of_parents_ends() {
        let process = |pid, parent| Process { pid, parent, group: pid, ..Process::default() };
        assert_eq!(owners(&[process(1, 2), process(2, 1)], &HashMap::new(), |_| None), [None, None]);
    }
}
