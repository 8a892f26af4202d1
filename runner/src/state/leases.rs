//! From a lease to a start: the queue, what may start now, what is handed to the shim in advance, what is given back.

use std::sync::Arc;
use std::time::Duration;

use torc_api::execution::ExecutionMode;
use torc_api::wire::{AttemptKey, Lease, LeaseRole, Profile};
use torc_core::ledger::Reservation;
use torc_core::urgency::Urgency;

use super::jobs::{Inputs, Job, Stage};
use super::lifecycle::Phase;
use super::profiles::LaunchProfile;
use super::{Effect, InputCheck, State};
use crate::clock::BootInstant;
use crate::events::RunnerEvent;
use crate::mode::{self, Mode};
use crate::protocol::{ShimJob, StartOrder, StopReason};

/// A job of several nodes that has waited for so long is not passed over any more: its nodes are kept free as they become free.
const MAX_PASSED_OVER_WITH_NODES: Duration = Duration::from_secs(10);
/// The same for a job of one node. Room for it comes by itself as jobs end, and a node that is kept free for it is idle meanwhile.
const MAX_PASSED_OVER: Duration = Duration::from_secs(300);

impl State {
    /// Takes in new work, or gives it back at once.
    pub(super) fn take_leases(
        &mut self,
        leases: Vec<Lease>,
        profiles: &[Profile],
        now: BootInstant,
        effects: &mut Vec<Effect>,
    ) {
        for lease in leases {
            if self.jobs.contains_key(&lease.key) || self.reports.contains_key(&lease.key) {
                continue;
            }
            let profile = profiles.get(lease.profile as usize).filter(|_| self.is_welcome(lease.role));
            if let Some(profile) = profile {
                self.announce_workflow(&lease.key, profile, effects);
            }
            let launch = profile.map(|profile| match lease.role.is_job() {
                true => self.profiles.of(lease.key.workflow, profile, &self.settings),
                false => self.profiles.of_task(lease.key.workflow, profile, &self.settings),
            });
            let fits = |launch: &Arc<LaunchProfile>| {
                !lease.role.is_job() || self.jobs.ledger().can_ever_fit(launch.resources())
            };
            let Some(launch) = launch.filter(fits) else {
                self.give_back(lease.key, now);
                continue;
            };
            self.reports.forget_returned(&lease.key);
            let key = lease.key;
            let urgency = self.urgency_of(&lease, &launch);
            let inputs = check_inputs(key, &launch, effects);
            let job = Job::leased(lease, launch, urgency, inputs, now);
            self.watch_time_of(&job);
            self.jobs.admit(key, job);
        }
    }

    /// Returns the position of a lease among those that wait.
    fn urgency_of(&self, lease: &Lease, launch: &LaunchProfile) -> Urgency {
        if self.settings.max_parallel_jobs.is_some() {
            return Urgency::by_count(lease.priority, lease.downstream_seconds);
        }
        Urgency::new(lease.priority, launch.resources(), launch.template.runtime_seconds, lease.downstream_seconds)
    }

    /// Says once for each workflow how its jobs are executed here.
    fn announce_workflow(&mut self, key: &AttemptKey, profile: &Profile, effects: &mut Vec<Effect>) {
        if !self.profiles.is_new_workflow(key.workflow) {
            return;
        }
        let config = profile.execution_config.clone().unwrap_or_default();
        let mode = mode::effective(&config, self.settings.allocation.is_some());
        if mode == Mode::Direct && config.mode == Some(ExecutionMode::Slurm) {
            let message = format!(
                "workflow {} asks for mode slurm, but there is no allocation with srun here: its jobs run directly",
                key.workflow
            );
            effects.push(Effect::Log(RunnerEvent::Problem { message }));
        }
        effects.push(Effect::Log(RunnerEvent::Serving {
            workflow: key.workflow,
            run: key.run,
            mode,
            limit_resources: mode == Mode::Slurm || config.limit_resources.unwrap_or(true),
            capacity: self.jobs.ledger().capacity(),
        }));
    }

    /// A job runs that an earlier agent started.
    pub(super) fn adopted(&mut self, running: ShimJob, now: BootInstant) {
        let key = running.order.key;
        let launch = self.profiles.of_running(running.order.role, running.template.clone());
        let nodes = self.node_numbers(&running.order.nodes);
        self.usage.expect(&key, &launch.template.monitor, now);
        self.jobs.adopt(running, launch, &nodes);
        self.watch_end_of(key);
        self.watch_warning(key);
        self.watch_extension(key);
        self.session.mark_dirty(now);
    }

    /// Whether it still takes such work. At its end a runner takes what belongs to the end.
    pub(super) fn is_welcome(&self, role: LeaseRole) -> bool {
        match self.lifecycle.phase() {
            Phase::Serving => !(role.is_job() && (self.is_preempted() || !self.jobs.has_node())),
            Phase::Completing(..) => role == LeaseRole::Action,
            _ => false,
        }
    }

    /// What takes no resources starts at once, even on a full node.
    fn start_tasks(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        if !matches!(self.lifecycle.phase(), Phase::Serving | Phase::Completing(..)) || now > self.session.lease_until()
        {
            return;
        }
        for key in self.jobs.tasks() {
            let Some(job) = self.jobs.get(&key) else { continue };
            if self.deadlines.end().is_some_and(|end| end.minus(job.launch.template.headroom()) <= now) {
                self.drop_unstarted(key, now);
            } else {
                self.start(key, None, now, effects);
            }
        }
    }

    /// Starts what fits, and hands to the shim what may follow.
    pub(super) fn fill(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        self.return_late_leases(now, effects);
        self.start_tasks(now, effects);
        if !self.lifecycle.is_serving() {
            return;
        }
        effects.extend(self.jobs.start_handed().into_iter().map(Effect::StartNow));
        let mut at = 0;
        while let Some(key) = self.jobs.queued(at)
            && self.jobs.has_room()
            && let Some(job) = self.jobs.get(&key)
        {
            let blocks_others = self.is_passed_over_too_long(job, now);
            if !self.may_start(job, now) {
                at += 1;
            } else if let Some(reservation) = self.jobs.reserve(&key) {
                self.start(key, Some(reservation), now, effects);
            } else if blocks_others {
                break;
            } else {
                at += 1;
            }
        }
        self.hand_ahead(now, effects);
    }

    /// Smaller jobs must not be started before this one any more.
    pub(super) fn is_passed_over_too_long(&self, job: &Job, now: BootInstant) -> bool {
        let most = if job.launch.resources().nodes > 1 { MAX_PASSED_OVER_WITH_NODES } else { MAX_PASSED_OVER };
        now.since(job.since) > most
    }

    /// Whether its files were found, and there is time for it. With the server out of reach it must fit the time its lease has left, because nobody
    /// would know that it has started.
    fn may_start(&self, job: &Job, now: BootInstant) -> bool {
        let runtime = Duration::from_secs(u64::try_from(job.launch.template.runtime_seconds).unwrap_or(0));
        let lease_is_enough = !self.session.is_failing() || now.plus(runtime) <= self.session.lease_until();
        job.inputs != Inputs::Awaited
            && lease_is_enough
            && now <= self.session.lease_until()
            && self.time_for(job).is_none_or(|end| now < end)
            && self.has_time_for_step(job, now)
    }

    fn start(
        &mut self,
        key: AttemptKey,
        reservation: Option<Reservation>,
        now: BootInstant,
        effects: &mut Vec<Effect>,
    ) {
        let Some(order) = self.order(key, reservation.as_ref(), now) else { return };
        self.jobs.start(key, reservation, &order);
        self.push_start(order, effects);
    }

    /// Sends an order to the shim, with the template that it refers to.
    fn push_start(&self, order: StartOrder, effects: &mut Vec<Effect>) {
        let template = self.jobs.get(&order.key).map(|job| Arc::clone(&job.launch.template));
        effects.extend(template.map(|template| Effect::Start(Box::new(order), template)));
    }

    /// Gives the shim jobs that follow as soon as one of their class has ended, without a word with us. Devices and nodes differ
    /// from job to job, so those with GPUs and steps are never among them.
    fn hand_ahead(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        let depth = self.throughput.hand_ahead() as usize;
        if depth == 0 || self.session.is_failing() {
            return;
        }
        while let Some(key) = self.jobs.queued(0) {
            let Some(job) = self.jobs.get(&key) else { break };
            let resources = job.launch.resources();
            let chooses = resources.gpus > 0 || resources.nodes > 1 || job.launch.step.is_some();
            if chooses || !self.may_start(job, now) || !self.jobs.can_hand_over(&key, depth) {
                break;
            }
            self.jobs.hand_over(key);
            let Some(order) = self.order(key, None, now) else { break };
            self.push_start(order, effects);
        }
    }

    /// The shim has started a job.
    pub(super) fn started(
        &mut self,
        key: AttemptKey,
        at: BootInstant,
        pid: i32,
        now: BootInstant,
        effects: &mut Vec<Effect>,
    ) {
        let Some(job) = self.jobs.run(key, at, pid) else { return };
        self.usage.expect(&key, &job.launch.template.monitor, now);
        effects.push(Effect::Log(RunnerEvent::Started { key, name: job.name.clone() }));
        let (ending, role) = (job.ending, job.role);
        self.session.mark_dirty(now);
        self.watch_end_of(key);
        self.watch_warning(key);
        if let Some(ending) = ending {
            self.terminate(key, ending.why, now, effects);
        } else if !self.is_welcome(role) {
            self.terminate(key, StopReason::Stopped, now, effects);
        }
    }

    /// The shim has not started a job and will not.
    pub(super) fn revoked(&mut self, key: AttemptKey, now: BootInstant) {
        let Some(job) = self.jobs.get(&key) else { return };
        let is_unwanted = job.stage == Stage::Recalled || !self.is_welcome(job.role);
        self.jobs.unstart(key);
        if is_unwanted {
            self.drop_unstarted(key, now);
        }
    }

    /// Gives an unstarted lease back, unless the server has taken it already.
    fn drop_unstarted(&mut self, key: AttemptKey, now: BootInstant) {
        let Some(job) = self.jobs.remove(&key) else { return };
        if job.ending.is_none_or(|ending| ending.why != StopReason::LeaseLost) {
            self.give_back(key, now);
        }
    }

    fn give_back(&mut self, key: AttemptKey, now: BootInstant) {
        self.reports.give_back(key);
        self.session.mark_dirty(now);
    }

    /// Lets go of leases that have not started: at once, or when the shim has confirmed that it did not start them.
    pub(super) fn let_go(
        &mut self,
        keys: Vec<AttemptKey>,
        why: Option<StopReason>,
        now: BootInstant,
        effects: &mut Vec<Effect>,
    ) {
        let mut recalled = Vec::new();
        for key in keys {
            if let Some(why) = why {
                self.jobs.set_ending(&key, why, now);
            }
            let Some(job) = self.jobs.get(&key) else { continue };
            match job.stage {
                Stage::Queued => self.drop_unstarted(key, now),
                Stage::Handed => {
                    self.jobs.recall(key);
                    recalled.push(key);
                }
                Stage::Recalled | Stage::Starting | Stage::Running | Stage::Checking => {}
            }
        }
        if !recalled.is_empty() {
            effects.push(Effect::Revoke(recalled));
        }
    }

    /// When the lease time runs out, unstarted leases are no longer ours, and neither are jobs whose start the server does not
    /// know of.
    pub(super) fn expire_leases(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        let until = self.session.lease_until();
        let unknown = self.jobs.active().filter(|(_, job)| !job.start_known && job.ending.is_none());
        let unknown: Vec<AttemptKey> = unknown.map(|(key, _)| key).collect();
        if self.jobs.waiting() == 0 && unknown.is_empty() || !self.session.has_leases() {
            return;
        }
        if now < until {
            self.wake(until);
            return;
        }
        self.let_go(self.jobs.unstarted(), Some(StopReason::LeaseLost), now, effects);
        for key in unknown {
            self.kill(key, StopReason::LeaseLost, now, effects);
        }
    }
}

/// A job that reads files is not started before they were found.
fn check_inputs(key: AttemptKey, launch: &LaunchProfile, effects: &mut Vec<Effect>) -> Inputs {
    let template = &launch.template;
    if template.input_files.is_empty() {
        return Inputs::Found(Vec::new());
    }
    let check = InputCheck {
        working_dir: launch.template.working_dir.clone().into(),
        files: template.input_files.clone(),
        hash_large_files: template.hash_large_files,
    };
    effects.push(Effect::CheckInputs(key, Box::new(check)));
    Inputs::Awaited
}
