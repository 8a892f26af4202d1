//! The end of a job. When its first process has exited, all other processes of the job are killed before the result is
//! reported.
//!
//! All processes of its process group get SIGKILL. A process that left the group, e.g. a daemon that forked twice,
//! became a child of the shim when its parent exited; its environment names its job.

use std::path::PathBuf;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};
use torc_api::execution::StdioMode;
use torc_api::wire::AttemptKey;

use super::{JobProcess, JobTable, signal_group};
use crate::clock::{BootInstant, now as clock_now};
use crate::procfs;
use crate::protocol::{FromShim, JobExit, Outcome, StartTemplate};
use crate::shim::logs::LogOutcome;
use crate::shim::rusage::{ReapedChild, collect};
use crate::shim::spawn::SHIM_VARIABLE;

impl JobTable {
    /// Collects every child that has exited.
    pub fn reap(&mut self) {
        while let Some(collected) = collect() {
            self.record_exit(collected, clock_now());
        }
        self.settle();
    }

    fn record_exit(&mut self, collected: ReapedChild, now: BootInstant) {
        let ReapedChild { pid, outcome, rusage } = collected;
        let rusage = self.own_peak.rusage(rusage.as_ref(), now);
        if let Some(owner) = self.orphans.remove(&pid) {
            let job = self.processes.get(&owner).and_then(|leader| self.running.get_mut(leader));
            job.into_iter().for_each(|job| job.rusage = job.rusage.and(rusage));
        }
        let Some(job) = self.running.get_mut(&pid).filter(|job| job.exited.is_none()) else { return };
        job.rusage = job.rusage.and(rusage);
        job.exited = Some((now, outcome));
        self.ending.push(pid);
    }

    /// Reports jobs without processes, and kills the remaining processes of the others.
    pub(super) fn settle(&mut self) {
        if self.ending.is_empty() {
            return;
        }
        let unknown = self.find_orphans();
        for leader in std::mem::take(&mut self.ending) {
            let Some(job) = self.running.get_mut(&leader) else { continue };
            let group_left = signal_group(leader, Signal::KILL);
            let mut orphans_left = false;
            for (pid, owner) in &self.orphans {
                if *owner == job.order.key {
                    orphans_left = true;
                    signal_process(*pid);
                }
            }
            if group_left || orphans_left {
                job.left_processes = true;
                self.ending.push(leader);
            } else {
                self.finish(leader, unknown == 0);
            }
        }
    }

    /// Finds children that are not the first process of a job, and assigns them to their jobs. Returns the number of children whose
    /// job is unknown.
    fn find_orphans(&mut self) -> usize {
        let mut unknown = 0;
        for pid in self.children.list() {
            if self.running.contains_key(&pid) || self.orphans.contains_key(&pid) {
                continue;
            }
            let marked = owner(pid, &self.shim);
            match marked.and_then(|marked| self.running_job(&marked)) {
                Some(key) => {
                    self.orphans.insert(pid, key);
                }
                None if marked.is_some() || self.running.len() == self.ending.len() => signal_process(pid),
                None => unknown += 1,
            }
        }
        unknown
    }

    /// Returns the running job of this attempt. The lease ID is not part of an environment, so it is ignored.
    fn running_job(&self, marked: &AttemptKey) -> Option<AttemptKey> {
        let same = |key: &&AttemptKey| AttemptKey { lease_id: marked.lease_id, ..**key } == *marked;
        self.processes.keys().find(same).copied()
    }

    fn finish(&mut self, leader: i32, no_strangers: bool) {
        let Some(mut job) = self.running.remove(&leader) else { return };
        self.processes.remove(&job.order.key);
        self.free_slots.insert(job.slot);
        let Some((at, outcome)) = job.exited.take() else { return };
        let reusable = no_strangers && !job.left_processes;
        let logs = std::mem::take(&mut job.logs);
        let kept = if is_unwanted(&job.prepared.template, &outcome) {
            self.log_slots.discard(logs, reusable);
            LogOutcome::default()
        } else {
            self.log_slots.finish(logs, reusable)
        };
        let exit = job_exit(&job, at, outcome, &kept);
        self.outbox.extend(kept.problem.map(FromShim::Problem));
        self.report(exit, job.order, Some(job.prepared), job.class);
    }

    /// Kills and collects all children that are left when the shim exits.
    pub(super) fn kill_children(&mut self) {
        loop {
            let children = self.children.list();
            children.iter().for_each(|pid| signal_process(*pid));
            if children.is_empty() || wait(WaitOptions::empty()).is_err() {
                return;
            }
        }
    }
}

/// Returns the result of a job that exited at a moment, with the output that is kept.
pub(super) fn job_exit(job: &JobProcess, at: BootInstant, outcome: Outcome, kept: &LogOutcome) -> JobExit {
    let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.to_string_lossy().into_owned());
    JobExit {
        rusage: Some(job.rusage),
        // A job that had exited before the signal has ended by itself.
        ending: job.ending.filter(|(_, since)| *since <= at).map(|(why, _)| why),
        stdout: path(&kept.stdout),
        stderr: path(&kept.stderr),
        ..JobExit::new(job.order.key, job.started, at, outcome)
    }
}

/// Returns whether the output of a job is dropped at once. Output cannot be removed from a pack, so unwanted output
/// must not be added to it. Log files are deleted by the agent, after it has checked the job's output files.
pub(super) fn is_unwanted(template: &StartTemplate, outcome: &Outcome) -> bool {
    template.stdio == StdioMode::Packed
        && template.delete_on_success
        && template.output_files.is_empty()
        && *outcome == Outcome::Exited(0)
}

fn signal_process(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Returns the attempt that a process belongs to, if this shim started it.
fn owner(pid: i32, shim: &str) -> Option<AttemptKey> {
    let environment = procfs::environment(pid);
    if procfs::variable(&environment, SHIM_VARIABLE) != Some(shim) {
        return None;
    }
    let number = |name: &str| procfs::variable(&environment, name)?.parse::<i64>().ok();
    Some(AttemptKey {
        workflow: number("TORC_WORKFLOW_ID")?,
        job: number("TORC_JOB_ID")?,
        run: i32::try_from(number("TORC_RUN_ID")?).ok()?,
        attempt: i32::try_from(number("TORC_ATTEMPT_ID")?).ok()?,
        lease_id: 0,
    })
}
