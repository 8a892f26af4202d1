//! The end of a job: its first process has exited, and nothing else of it may be left.
//!
//! Whatever is in its process group is killed. What left the group, e.g. a daemon that forked twice, became a child of the
//! shim when its parent died; its environment says whose it is.

use std::path::PathBuf;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};
use torc_api::execution::StdioMode;
use torc_api::wire::AttemptKey;

use super::{Job, Jobs, signal_group, tell_terms};
use crate::clock::{BootInstant, now as clock_now};
use crate::procfs;
use crate::protocol::{Ended, FromShim, Outcome, Template};
use crate::shim::logs::LogOutcome;
use crate::shim::rusage::{Collected, collect};
use crate::shim::spawn::SHIM_VARIABLE;

impl Jobs {
    /// Collects every child that has exited.
    pub fn reap(&mut self) {
        while let Some(collected) = collect() {
            self.collected(collected, clock_now());
        }
        self.settle();
    }

    fn collected(&mut self, collected: Collected, now: BootInstant) {
        let Collected { pid, outcome, rusage } = collected;
        let rusage = self.own_peak.rusage(rusage.as_ref(), now);
        if let Some(owner) = self.strays.remove(&pid) {
            let job = self.processes.get(&owner).and_then(|leader| self.running.get_mut(leader));
            job.into_iter().for_each(|job| job.rusage = job.rusage.and(rusage));
        }
        let Some(job) = self.running.get_mut(&pid).filter(|job| job.exited.is_none()) else { return };
        job.rusage = job.rusage.and(rusage);
        job.exited = Some((now, outcome));
        self.ending.push(pid);
    }

    /// Reports the jobs of which nothing is left, and kills what is left of the others.
    pub(super) fn settle(&mut self) {
        if self.ending.is_empty() {
            return;
        }
        let unknown = self.look_for_strays();
        for leader in std::mem::take(&mut self.ending) {
            let Some(job) = self.running.get_mut(&leader) else { continue };
            let group_left = signal_group(leader, Signal::KILL);
            let mut strays_left = false;
            for (pid, owner) in &self.strays {
                if *owner == job.key {
                    strays_left = true;
                    signal_process(*pid);
                }
            }
            if group_left || strays_left {
                job.left_processes = true;
                self.ending.push(leader);
            } else {
                self.finish(leader, unknown == 0);
            }
        }
    }

    /// Finds children that are nobody's first process, notes whose they are, and returns how many are of unknown origin.
    fn look_for_strays(&mut self) -> usize {
        let mut unknown = 0;
        for pid in self.children.list() {
            if self.running.contains_key(&pid) || self.strays.contains_key(&pid) {
                continue;
            }
            let marked = owner(pid, &self.shim);
            match marked.and_then(|marked| self.running_job(&marked)) {
                Some(key) => {
                    self.strays.insert(pid, key);
                }
                None if marked.is_some() || self.running.len() == self.ending.len() => signal_process(pid),
                None => unknown += 1,
            }
        }
        unknown
    }

    /// The running job with this identity; the lease's number is not part of an environment.
    fn running_job(&self, marked: &AttemptKey) -> Option<AttemptKey> {
        let same = |key: &&AttemptKey| AttemptKey { lease_id: marked.lease_id, ..**key } == *marked;
        self.processes.keys().find(same).copied()
    }

    fn finish(&mut self, leader: i32, no_strangers: bool) {
        let Some(mut job) = self.running.remove(&leader) else { return };
        self.processes.remove(&job.key);
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
        let ended = result(&job, (at, outcome), &kept);
        self.news.extend(kept.problem.map(FromShim::Problem));
        self.report(ended, job.class);
    }

    /// Kills and collects every child that is left, at the end of the shim.
    pub(super) fn kill_strays(&mut self) {
        loop {
            let children = self.children.list();
            children.iter().for_each(|pid| signal_process(*pid));
            if children.is_empty() || wait(WaitOptions::empty()).is_err() {
                return;
            }
        }
    }
}

/// The result of a job that exited at a moment, with the output that is kept.
pub(super) fn result(job: &Job, (at, outcome): (BootInstant, Outcome), kept: &LogOutcome) -> Ended {
    let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.to_string_lossy().into_owned());
    let mut ended = Ended::of(job.key, &job.name, (job.started, at), outcome);
    ended.rusage = Some(job.rusage);
    // A job that had exited before it was asked to has ended by itself.
    ended.ending = job.ending.filter(|(_, since)| *since <= at).map(|(why, _)| why);
    ended.step_limit_ms = job.step_limit_ms;
    ended.stdout = path(&kept.stdout);
    ended.stderr = path(&kept.stderr);
    tell_terms(&mut ended, &job.prepared);
    ended
}

/// Whether the output of a job that ended so goes at once. Nothing can be taken out of a pack, so it must not get there. Elsewhere
/// the agent removes the files, after it has looked for what the job should have made.
pub(super) fn is_unwanted(template: &Template, outcome: &Outcome) -> bool {
    let Template { stdio, terms, .. } = template;
    *stdio == StdioMode::Packed
        && terms.delete_on_success
        && terms.output_files.is_empty()
        && *outcome == Outcome::Exited(0)
}

fn signal_process(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// The attempt that a process was started for, if this shim started it.
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
