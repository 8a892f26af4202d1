//! Decides for each lease whether its job starts now, goes to the shim in advance, or returns to the server.

use std::sync::Arc;

use torc_api::execution::ExecutionMode;
use torc_api::wire::{AttemptKey, Lease, LeaseRole, Profile, Resources};
use torc_core::ledger::Reservation;
use torc_core::urgency::Urgency;

use super::jobs::{Inputs, JobStage, LeasedJob};
use super::lifecycle::Phase;
use super::profiles::LaunchProfile;
use super::start::has_time_for_step;
use super::{Effect, InputCheck, State};
use crate::clock::BootInstant;
use crate::events::RunnerEvent;
use crate::mode::{self, LaunchMode};
use crate::protocol::{ShimJob, StartOrder, StopReason};

impl State {
    /// Queues new leases, or returns them at once.
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
            let profile = profiles.get(lease.profile as usize).filter(|_| self.accepts(lease.role));
            if let Some(profile) = profile
                && self.profiles.is_new_workflow(lease.key.workflow)
            {
                let has_srun = self.settings.allocation.is_some();
                let events = workflow_events(&lease.key, profile, has_srun, self.jobs.ledger().capacity());
                effects.extend(events.into_iter().map(Effect::Log));
            }
            let launch = profile.map(|profile| match lease.role.is_job() {
                true => self.profiles.of(lease.key.workflow, profile, &self.settings),
                false => self.profiles.of_task(lease.key.workflow, profile, &self.settings),
            });
            let fits = |launch: &Arc<LaunchProfile>| {
                !lease.role.is_job() || self.jobs.ledger().can_ever_fit(launch.resources())
            };
            let Some(launch) = launch.filter(fits) else {
                self.return_lease(lease.key, now);
                continue;
            };
            self.reports.forget_returned(&lease.key);
            let key = lease.key;
            let urgency = match self.settings.user.max_parallel_jobs {
                Some(_) => Urgency::by_count(lease.priority, lease.downstream_seconds),
                None => urgency(&lease, &launch),
            };
            let inputs = check_inputs(key, &launch, effects);
            let job = LeasedJob::leased(lease, launch, urgency, inputs, now);
            self.deadlines.watch_start(&job);
            self.jobs.admit(key, job);
        }
    }

    /// Takes over a job that an earlier agent started.
    pub(super) fn adopted(&mut self, running: ShimJob, now: BootInstant) {
        let key = running.order.key;
        let launch = self.profiles.of_running(running.order.role, running.template.clone());
        let nodes = self.settings.node_indexes(&running.order.nodes);
        self.usage.expect(&key, &launch.template.monitor, now);
        self.jobs.adopt(running, launch, &nodes);
        if let Some(job) = self.jobs.get(&key) {
            self.deadlines.watch_end(key, job);
            self.warnings.watch(key, job);
            self.extensions.watch(key, job, self.deadlines.end());
        }
        self.session.mark_dirty(now);
    }

    /// Returns whether the runner still takes leases of this role. At its end it takes only the actions of a worker's
    /// end.
    pub(super) fn accepts(&self, role: LeaseRole) -> bool {
        match self.lifecycle.phase() {
            Phase::Serving => !(role.is_job() && (self.allocation.is_preempted() || !self.jobs.has_node())),
            Phase::Completing(..) => role == LeaseRole::Action,
            _ => false,
        }
    }

    /// Starts tasks, which take no resources, also on a full node.
    fn start_tasks(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        if !matches!(self.lifecycle.phase(), Phase::Serving | Phase::Completing(..)) || now > self.session.lease_until()
        {
            return;
        }
        for key in self.jobs.tasks() {
            let Some(job) = self.jobs.get(&key) else { continue };
            if self.deadlines.remaining(now).is_some_and(|left| left <= job.launch.template.headroom()) {
                self.drop_unstarted(key, now);
            } else {
                self.start(key, None, now, effects);
            }
        }
    }

    /// Starts the jobs that fit, and hands further ones to the shim in advance.
    pub(super) fn start_jobs(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
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
            let blocks_others = job.is_starved(now);
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
        self.prefetch_to_shim(now, effects);
    }

    /// Returns whether the input files of a job were found and there is time for it. While the server is unreachable the job must
    /// fit into the time of its lease, because the server cannot learn of the start.
    fn may_start(&self, job: &LeasedJob, now: BootInstant) -> bool {
        let lease_is_enough =
            !self.session.is_failing() || now.plus(job.launch.template.runtime()) <= self.session.lease_until();
        job.inputs != Inputs::Awaited
            && lease_is_enough
            && now <= self.session.lease_until()
            && self.deadlines.signal_time(job).is_none_or(|end| now < end)
            && has_time_for_step(job, self.deadlines.end(), now)
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
        effects.extend(self.jobs.get(&key).map(|job| start_effect(order, job)));
    }

    /// Hands jobs to the shim that start as soon as one of their class has ended, without the agent. Devices and nodes differ from
    /// job to job, so jobs with GPUs and steps are never among them.
    fn prefetch_to_shim(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        let depth = self.throughput.prefetch_to_shim() as usize;
        if depth == 0 || self.session.is_failing() {
            return;
        }
        while let Some(key) = self.jobs.queued(0) {
            let Some(job) = self.jobs.get(&key) else { break };
            let resources = job.launch.resources();
            let chooses = resources.gpus > 0 || resources.nodes > 1 || job.launch.step.is_some();
            if chooses || !self.may_start(job, now) || !self.jobs.can_prefetch(&key, depth) {
                break;
            }
            self.jobs.hand_over(key);
            let Some(order) = self.order(key, None, now) else { break };
            effects.extend(self.jobs.get(&key).map(|job| start_effect(order, job)));
        }
    }

    /// Handles the start of a job by the shim.
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
        if let Some(job) = self.jobs.get(&key) {
            self.deadlines.watch_end(key, job);
            self.warnings.watch(key, job);
        }
        if let Some(ending) = ending {
            self.terminate(key, ending.why, now, effects);
        } else if !self.accepts(role) {
            self.terminate(key, StopReason::Stopped, now, effects);
        }
    }

    /// Handles the confirmation that the shim will not start a job.
    pub(super) fn revoked(&mut self, key: AttemptKey, now: BootInstant) {
        let Some(job) = self.jobs.get(&key) else { return };
        let is_unwanted = job.stage == JobStage::Recalled || !self.accepts(job.role);
        self.jobs.requeue_front(key);
        if is_unwanted {
            self.drop_unstarted(key, now);
        }
    }

    /// Drops an unstarted lease. It returns to the server, unless it has expired there.
    fn drop_unstarted(&mut self, key: AttemptKey, now: BootInstant) {
        let Some(job) = self.jobs.remove(&key) else { return };
        if job.ending.is_none_or(|ending| ending.why != StopReason::LeaseLost) {
            self.return_lease(key, now);
        }
    }

    fn return_lease(&mut self, key: AttemptKey, now: BootInstant) {
        self.reports.return_lease(key);
        self.session.mark_dirty(now);
    }

    /// Releases leases that have not started: at once, or when the shim has confirmed that it did not start them.
    pub(super) fn release(
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
                JobStage::Queued => self.drop_unstarted(key, now),
                JobStage::ShimQueued => {
                    self.jobs.recall(key);
                    recalled.push(key);
                }
                JobStage::Recalled | JobStage::Starting | JobStage::Running | JobStage::Checking => {}
            }
        }
        if !recalled.is_empty() {
            effects.push(Effect::Revoke(recalled));
        }
    }

    /// Drops unstarted leases when the lease time is over, and kills jobs whose start the server does not know: another runner may
    /// get them.
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
        self.release(self.jobs.unstarted(), Some(StopReason::LeaseLost), now, effects);
        for key in unknown {
            self.kill(key, StopReason::LeaseLost, now, effects);
        }
    }
}

fn start_effect(order: StartOrder, job: &LeasedJob) -> Effect {
    Effect::Start(Box::new(order), Arc::clone(&job.launch.template))
}

fn urgency(lease: &Lease, launch: &LaunchProfile) -> Urgency {
    let runtime_seconds = launch.template.runtime_seconds;
    Urgency::new(lease.priority, launch.resources(), runtime_seconds, lease.downstream_seconds)
}

/// Returns the log events about a workflow that is new to the runner: how its jobs are executed.
fn workflow_events(key: &AttemptKey, profile: &Profile, has_srun: bool, capacity: Resources) -> Vec<RunnerEvent> {
    let config = profile.execution_config.clone().unwrap_or_default();
    let mode = mode::effective(&config, has_srun);
    let mut events = Vec::new();
    if mode == LaunchMode::Direct && config.mode == Some(ExecutionMode::Slurm) {
        let message = format!(
            "workflow {} has mode slurm, but this runner has no Slurm allocation with srun: its jobs run directly",
            key.workflow
        );
        events.push(RunnerEvent::Problem { message });
    }
    events.push(RunnerEvent::Serving {
        workflow: key.workflow,
        run: key.run,
        mode,
        limit_resources: mode == LaunchMode::Slurm || config.limit_resources.unwrap_or(true),
        capacity,
    });
    events
}

/// Orders the check of a job's input files, if it has any. The job does not start before.
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
