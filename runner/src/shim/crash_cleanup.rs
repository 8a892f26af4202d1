//! Cleanup after a shim that was killed together with its agent: kills running processes, and keeps the output in
//! scratch files.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::logs;
use super::spawn::SHIM_VARIABLE;
use super::start_log::{StartLogHeader, StartRecord, read_left};
use crate::clock::now;
use crate::procfs;

/// Time to wait for the end of killed processes.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// Kills the processes that an earlier shim in this folder left running, and moves the output of its jobs to their
/// logs.
pub fn clear(dir: &Path) {
    let Some((header, records)) = read_left(dir) else { return };
    if header.boot_id == procfs::boot_id() {
        let until = now().plus(KILL_TIMEOUT);
        while kill_left(&header, &records) > 0 && now() < until {
            // These processes are not children of this shim, so it cannot wait for them.
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    logs::adopt(&header.shim, records.into_iter().flat_map(|record| record.logs));
}

/// Returns the number of job processes that an earlier shim in this folder left running.
pub fn count(dir: &Path) -> usize {
    let Some((header, records)) = read_left(dir).filter(|(header, _)| header.boot_id == procfs::boot_id()) else {
        return 0;
    };
    let noted = records.iter().filter_map(StartRecord::living_process).filter(|pid| !procfs::is_zombie(*pid));
    let pids: BTreeSet<i32> = noted.chain(marked(&header)).collect();
    pids.len()
}

/// Kills the groups of recorded processes, and all processes with the shim's mark. Returns the number of processes that
/// were still alive.
fn kill_left(header: &StartLogHeader, records: &[StartRecord]) -> usize {
    let mut killed = 0;
    for pid in records.iter().filter_map(StartRecord::living_process) {
        let alive = !procfs::is_zombie(pid);
        killed +=
            usize::from(Pid::from_raw(pid).is_some_and(|pid| kill_process_group(pid, Signal::KILL).is_ok()) && alive);
    }
    for pid in marked(header) {
        killed += usize::from(Pid::from_raw(pid).is_some_and(|pid| kill_process(pid, Signal::KILL).is_ok()));
    }
    killed
}

/// Returns the processes with the shim's mark in their environment.
fn marked(header: &StartLogHeader) -> Vec<i32> {
    let own = i32::try_from(std::process::id()).ok();
    let is_marked = |pid: &i32| {
        let environment = procfs::environment(*pid);
        procfs::variable(&environment, SHIM_VARIABLE) == Some(header.shim.as_str()) && !procfs::is_zombie(*pid)
    };
    procfs::processes().into_iter().filter(|pid| Some(*pid) != own).filter(is_marked).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::process::{Child, Command};

    use super::super::start_log::StartLog;
    use super::*;

    /// Starts a process with a mark that runs for a while.
    fn marked_process(shim: &str) -> Child {
        Command::new("sleep").arg("300").env(SHIM_VARIABLE, shim).spawn().unwrap()
    }

    fn shim(name: &str) -> String {
        format!("crash_cleanup-{name}-{}", std::process::id())
    }

    fn end(mut process: Child) {
        process.kill().unwrap();
        process.wait().unwrap();
    }

    #[test]
    fn marked_processes_of_an_earlier_shim_are_counted_and_killed() {
        let folder = tempfile::tempdir().unwrap();
        let header = StartLogHeader { shim: shim("killed"), boot_id: procfs::boot_id() };
        assert_eq!(count(folder.path()), 0, "no shim was here");
        drop(StartLog::create(folder.path(), &header).unwrap());
        let (mut own, mut others) = (marked_process(&header.shim), marked_process(&shim("spared")));
        assert_eq!(count(folder.path()), 1);
        clear(folder.path());
        assert!(own.wait().unwrap().code().is_none(), "it was killed");
        assert_eq!((count(folder.path()), others.try_wait().unwrap()), (0, None), "another shim's lives on");
        end(others);
    }

    #[test]
    fn numbers_of_processes_from_before_a_boot_mean_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let header = StartLogHeader { shim: shim("booted"), boot_id: "an earlier boot".to_owned() };
        drop(StartLog::create(folder.path(), &header).unwrap());
        let mut process = marked_process(&header.shim);
        assert_eq!(count(folder.path()), 0);
        clear(folder.path());
        assert_eq!(process.try_wait().unwrap(), None);
        end(process);
    }

    /// Starts a job of an earlier shim: a process group without the shim's mark.
    fn noted_process(script: &str) -> (Child, StartRecord) {
        use std::os::unix::process::CommandExt as _;
        let before = now();
        let child = Command::new("sh").args(["-c", script]).process_group(0).spawn().unwrap();
        let mut record = StartRecord::default();
        record.started(i32::try_from(child.id()).unwrap(), before, now());
        (child, record)
    }

    fn is_gone(pid: i32) -> bool {
        procfs::is_zombie(pid)
    }

    /// Waits for another process, up to two minutes.
    fn until(mut is_so: impl FnMut() -> bool) {
        let end = now().plus(Duration::from_secs(120));
        while !is_so() {
            assert!(now() < end, "waited in vain");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn noted_processes_are_killed_with_their_groups() {
        let folder = tempfile::tempdir().unwrap();
        let header = StartLogHeader { shim: shim("noted"), boot_id: procfs::boot_id() };
        let records = StartLog::create(folder.path(), &header).unwrap();
        let pid_file = folder.path().join("pid");
        let script = format!("sleep 300 & echo $! >{0}.new; mv {0}.new {0}; wait", pid_file.display());
        let (mut leader, record) = noted_process(&script);
        records.set(0, &record).unwrap();
        let (mut other, of_other) = noted_process("exec sleep 300");
        // The PID is reused by another process: the record is about one that started earlier.
        records.set(1, &StartRecord { ticks: (0, of_other.ticks.0 - 1), ..of_other }).unwrap();
        until(|| pid_file.exists());
        let member: i32 = std::fs::read_to_string(&pid_file).unwrap().trim().parse().unwrap();
        assert_eq!(count(folder.path()), 1, "a member of a group is not noted");
        clear(folder.path());
        assert!(leader.wait().unwrap().code().is_none());
        until(|| is_gone(member));
        assert_eq!((count(folder.path()), other.try_wait().unwrap()), (0, None));
        end(other);
    }

    #[test]
    fn a_noted_process_with_a_mark_is_counted_once() {
        let folder = tempfile::tempdir().unwrap();
        let header = StartLogHeader { shim: shim("both"), boot_id: procfs::boot_id() };
        let records = StartLog::create(folder.path(), &header).unwrap();
        let before = now();
        let mut both = marked_process(&header.shim);
        let mut record = StartRecord::default();
        record.started(i32::try_from(both.id()).unwrap(), before, now());
        records.set(0, &record).unwrap();
        assert_eq!(count(folder.path()), 1);
        both.kill().unwrap();
        until(|| is_gone(i32::try_from(both.id()).unwrap()));
        assert_eq!(count(folder.path()), 0, "a zombie runs no more");
        clear(folder.path());
        both.wait().unwrap();
    }

    #[test]
    fn output_is_put_where_it_belongs_also_after_a_boot() {
        let folder = tempfile::tempdir().unwrap();
        for boot_id in [procfs::boot_id(), "an earlier boot".to_owned()] {
            let records = StartLog::create(folder.path(), &StartLogHeader { shim: shim("output"), boot_id }).unwrap();
            let (scratch, log) = (folder.path().join("scratch"), folder.path().join("log"));
            std::fs::write(&scratch, "said").unwrap();
            records
                .set(0, &StartRecord { logs: vec![(scratch.clone(), log.clone())], ..StartRecord::default() })
                .unwrap();
            clear(folder.path());
            assert_eq!((std::fs::read_to_string(&log).unwrap().as_str(), scratch.exists()), ("said", false));
            std::fs::remove_file(&log).unwrap();
        }
    }
}
