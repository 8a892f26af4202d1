//! From a lease to a start: the queue, what may start now, what is handed to the shim in advance, what is given back.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use torc_api::execution::ExecutionMode;
use torc_api::wire::{AttemptKey, Lease, LeaseRole, Profile};
use torc_core::ledger::{Reach, Reservation};
use torc_core::urgency::Urgency;

use super::job::{Inputs, Job, Stage};
use super::profiles::LaunchProfile;
use super::steps::StepState;
use super::usage::UsageStats;
use super::{Effect, InputCheck, Phase, State};
use crate::clock::BootInstant;
use crate::events::RunnerEvent;
use crate::mode::{self, Mode};
use crate::protocol::{Ending, RunningJob};

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
            let fits =
                |launch: &Arc<LaunchProfile>| !lease.role.is_job() || self.ledger.can_ever_fit(launch.resources());
            let Some(launch) = launch.filter(fits) else {
                self.give_back(lease.key, now);
                continue;
            };
            self.returned.remove(&lease.key);
            self.out_of_time.remove(&lease.key);
            let urgency = self.urgency_of(&lease, &launch);
            if lease.role.is_job() {
                self.enqueue(lease.key, urgency);
            } else {
                self.tasks.push_back(lease.key);
            }
            let inputs = look_for_inputs(lease.key, &launch, effects);
            let job = Job {
                role: lease.role,
                name: lease.name,
                command: lease.command,
                env: lease.env,
                launch,
                urgency,
                stage: Stage::Queued,
                reservation: None,
                since: now,
                start_known: false,
                ending: None,
                inputs,
                pid: 0,
                usage: UsageStats::default(),
                step: StepState::default(),
                devices: Vec::new(),
            };
            self.watch_time_of(&job);
            self.jobs.insert(lease.key, job);
        }
    }

    /// Returns the position of a lease among those that wait.
    fn urgency_of(&self, lease: &Lease, launch: &LaunchProfile) -> Urgency {
        if self.settings.max_parallel_jobs.is_some() {
            return Urgency::by_count(lease.priority, lease.downstream_seconds);
        }
        Urgency::new(lease.priority, launch.resources(), launch.terms().runtime_seconds, lease.downstream_seconds)
    }

    /// Puts a lease before less urgent ones of its workflow. Between workflows the server's order stays: only the server knows how
    /// their owners share.
    fn enqueue(&mut self, key: AttemptKey, urgency: Urgency) {
        let is_less_urgent = |waiting: &AttemptKey| {
            waiting.workflow == key.workflow && self.jobs.get(waiting).is_some_and(|job| job.urgency < urgency)
        };
        let passed = self.queue.iter().rev().take_while(|waiting| is_less_urgent(waiting)).count();
        self.queue.insert(self.queue.len() - passed, key);
    }

    /// Says once for each workflow how its jobs are executed here.
    fn announce_workflow(&mut self, key: &AttemptKey, profile: &Profile, effects: &mut Vec<Effect>) {
        if !self.announced_workflows.insert(key.workflow) {
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
            capacity: self.ledger.capacity(),
        }));
    }

    /// A job runs that an earlier agent started.
    pub(super) fn adopted(&mut self, held: RunningJob, now: BootInstant) {
        let launch = self.profiles.of_running(&held);
        let nodes = self.node_numbers(&held.nodes);
        let reservation = held.role.is_job().then(|| self.ledger.adopt(launch.resources(), &held.devices, &nodes));
        let job = Job {
            role: held.role,
            name: held.name,
            command: String::new(),
            env: BTreeMap::new(),
            launch,
            urgency: Urgency::default(),
            stage: Stage::Running,
            reservation,
            since: held.started,
            // Whoever started it had the time to say so, and a job that has come so far is not given up lightly.
            start_known: true,
            ending: held.ending,
            inputs: Inputs::Unknown,
            pid: held.pid,
            usage: UsageStats::default(),
            step: StepState::of_running(held.step_limit_ms.map(Duration::from_millis), held.is_warned),
            devices: held.devices,
        };
        self.usage.expect(&held.key, &job.launch.terms().monitor, now);
        self.jobs.insert(held.key, job);
        self.activate(held.key);
        self.mind_time(held.key);
        self.mind_warning(held.key);
        self.mind_extension(held.key);
        self.session.mark_dirty(now);
    }

    /// Whether it still takes such work. At its end a runner takes what belongs to the end.
    pub(super) fn is_welcome(&self, role: LeaseRole) -> bool {
        match self.phase {
            Phase::Serving => !(role.is_job() && (self.is_preempted() || !self.has_node())),
            Phase::Completing(..) => role == LeaseRole::Action,
            _ => false,
        }
    }

    /// Where such work waits for its start.
    fn line_for(&mut self, role: LeaseRole) -> &mut VecDeque<AttemptKey> {
        if role.is_job() { &mut self.queue } else { &mut self.tasks }
    }

    /// What takes no resources starts at once, even on a full node.
    fn start_tasks(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        for key in std::mem::take(&mut self.tasks) {
            let Some(job) = self.jobs.get_mut(&key) else { continue };
            if !matches!(self.phase, Phase::Serving | Phase::Completing(..)) || now > self.session.lease_until {
                self.tasks.push_back(key);
            } else if self.settings.time.is_some_and(|(_, end)| end.minus(job.launch.terms().headroom()) <= now) {
                self.drop_unstarted(key, now);
            } else {
                job.stage = Stage::Starting;
                effects.extend(self.order(key, None, now));
                self.activate(key);
            }
        }
    }

    /// Starts what fits, and hands to the shim what may follow.
    pub(super) fn fill(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        self.return_late_leases(now, effects);
        self.start_tasks(now, effects);
        if self.phase != Phase::Serving {
            return;
        }
        self.release_handed(effects);
        let mut at = 0;
        while at < self.queue.len() && self.has_room() {
            let key = self.queue[at];
            let Some(job) = self.jobs.get(&key) else {
                self.queue.remove(at);
                continue;
            };
            if !self.may_start(job, now) {
                at += 1;
            } else if let Some(reservation) = self.ledger.reserve(job.launch.resources(), job.launch.reach()) {
                self.queue.remove(at);
                self.start(key, reservation, now, effects);
            } else if self.is_passed_over_too_long(job, now) {
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

    /// Something could start, if it is small enough.
    pub(super) fn has_room(&self) -> bool {
        self.ledger.free_slots().map_or_else(|| self.ledger.free().cpus > 0, |slots| slots > 0)
    }

    /// Whether its files were found, and there is time for it. With the server out of reach it must fit the time its lease has left, because nobody
    /// would know that it has started.
    fn may_start(&self, job: &Job, now: BootInstant) -> bool {
        let runtime = Duration::from_secs(u64::try_from(job.launch.terms().runtime_seconds).unwrap_or(0));
        let lease_is_enough = !self.session.is_failing() || now.plus(runtime) <= self.session.lease_until;
        job.inputs != Inputs::Awaited
            && lease_is_enough
            && now <= self.session.lease_until
            && self.time_for(job).is_none_or(|end| now < end)
            && self.has_time_for_step(job, now)
    }

    /// Handed jobs whose class has room again need not wait for a predecessor.
    fn release_handed(&mut self, effects: &mut Vec<Effect>) {
        for class in &mut self.profiles.classes {
            while !class.handed.is_empty()
                && let Some(reservation) = self.ledger.reserve(&class.resources, Reach::Here)
            {
                let Some(key) = class.handed.pop_front() else { break };
                let Some(job) = self.jobs.get_mut(&key) else { continue };
                job.reservation = Some(reservation);
                job.stage = Stage::Starting;
                class.running += 1;
                self.active.insert(key);
                effects.push(Effect::StartNow(key));
            }
        }
    }

    fn start(&mut self, key: AttemptKey, reservation: Reservation, now: BootInstant, effects: &mut Vec<Effect>) {
        let order = self.order(key, Some(&reservation), now);
        let Some(job) = self.jobs.get_mut(&key) else { return self.ledger.release(reservation) };
        job.reservation = Some(reservation);
        job.stage = Stage::Starting;
        if let Some(Effect::Start(order, _)) = &order {
            job.devices.clone_from(&order.devices);
            job.step.limit = order.step_limit_ms.map(Duration::from_millis);
        }
        effects.extend(order);
        self.activate(key);
    }

    /// Counts a job as started.
    fn activate(&mut self, key: AttemptKey) {
        self.active.insert(key);
        let Some(job) = self.jobs.get(&key) else { return };
        if let Some(class) = self.profiles.class_of(&job.launch) {
            class.running += 1;
        }
    }

    /// Gives the shim jobs that follow as soon as one of their class has ended, without a word with us. Devices and nodes differ
    /// from job to job, so those with GPUs and steps are never among them.
    fn hand_ahead(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        let depth = self.throughput.hand_ahead() as usize;
        if depth == 0 || self.session.is_failing() {
            return;
        }
        while let Some(key) = self.queue.front().copied() {
            let Some(job) = self.jobs.get(&key) else { break };
            let chooses =
                job.launch.resources().gpus > 0 || job.launch.resources().nodes > 1 || job.launch.step.is_some();
            if chooses || !self.may_start(job, now) {
                break;
            }
            let Some(class) = self.profiles.classes.get_mut(job.launch.class as usize) else { break };
            if class.handed.len() >= depth * class.running {
                break;
            }
            class.handed.push_back(key);
            self.queue.pop_front();
            let Some(job) = self.jobs.get_mut(&key) else { break };
            job.stage = Stage::Handed;
            effects.extend(self.order(key, None, now));
        }
    }

    /// The shim has started a job.
    pub(super) fn started(
        &mut self,
        key: AttemptKey,
        (at, pid): (BootInstant, i32),
        now: BootInstant,
        effects: &mut Vec<Effect>,
    ) {
        let Some(job) = self.jobs.get_mut(&key) else { return };
        if job.stage == Stage::Recalled {
            // The recall came too late; the end of its predecessor, which brings the reservation, was told before this.
            job.stage = Stage::Starting;
            self.activate(key);
        }
        let Some(job) = self.jobs.get_mut(&key) else { return };
        job.stage = Stage::Running;
        job.since = at;
        job.pid = pid;
        self.usage.expect(&key, &job.launch.terms().monitor, now);
        effects.push(Effect::Log(RunnerEvent::Started { key, name: job.name.clone() }));
        let (ending, role) = (job.ending, job.role);
        self.session.mark_dirty(now);
        self.mind_time(key);
        self.mind_warning(key);
        if let Some((why, _)) = ending {
            self.terminate(key, why, now, effects);
        } else if !self.is_welcome(role) {
            self.terminate(key, Ending::Stopped, now, effects);
        }
    }

    /// The shim has not started a job and will not.
    pub(super) fn revoked(&mut self, key: AttemptKey, now: BootInstant) {
        let Some(job) = self.jobs.get_mut(&key) else { return };
        let reservation = job.reservation.take();
        let was_started = job.stage.is_started();
        let (role, recalled) = (job.role, job.stage == Stage::Recalled);
        job.stage = Stage::Queued;
        let unwanted = recalled || !self.is_welcome(role);
        if was_started {
            self.deactivate(key);
        } else {
            self.forget_handed(key);
        }
        if let Some(reservation) = reservation {
            self.ledger.release(reservation);
        }
        if unwanted {
            self.drop_unstarted(key, now);
        } else {
            self.line_for(role).push_front(key);
        }
    }

    pub(super) fn deactivate(&mut self, key: AttemptKey) {
        let was_active = self.active.remove(&key);
        let Some(job) = self.jobs.get(&key).filter(|_| was_active) else { return };
        if let Some(class) = self.profiles.class_of(&job.launch) {
            class.running = class.running.saturating_sub(1);
        }
    }

    pub(super) fn forget_handed(&mut self, key: AttemptKey) {
        for class in &mut self.profiles.classes {
            class.handed.retain(|handed| *handed != key);
        }
    }

    /// Gives an unstarted lease back, unless the server has taken it already.
    fn drop_unstarted(&mut self, key: AttemptKey, now: BootInstant) {
        let Some(job) = self.jobs.remove(&key) else { return };
        self.line_for(job.role).retain(|queued| *queued != key);
        if job.ending.is_none_or(|(why, _)| why != Ending::LeaseLost) {
            self.give_back(key, now);
        }
    }

    fn give_back(&mut self, key: AttemptKey, now: BootInstant) {
        self.returned.insert(key);
        self.session.mark_dirty(now);
    }

    /// Lets go of leases that have not started: at once, or when the shim has confirmed that it did not start them.
    pub(super) fn let_go(
        &mut self,
        keys: Vec<AttemptKey>,
        why: Option<Ending>,
        now: BootInstant,
        effects: &mut Vec<Effect>,
    ) {
        let mut recalled = Vec::new();
        for key in keys {
            let Some(job) = self.jobs.get_mut(&key) else { continue };
            if let Some(why) = why {
                job.ending.get_or_insert((why, now));
            }
            match job.stage {
                Stage::Queued => self.drop_unstarted(key, now),
                Stage::Handed => {
                    job.stage = Stage::Recalled;
                    self.forget_handed(key);
                    recalled.push(key);
                }
                Stage::Recalled | Stage::Starting | Stage::Running | Stage::Checking => {}
            }
        }
        if !recalled.is_empty() {
            effects.push(Effect::Revoke(recalled));
        }
    }

    /// Leases that have not started, in no particular order.
    pub(super) fn unstarted(&self) -> Vec<AttemptKey> {
        let handed = self.profiles.classes.iter().flat_map(|class| class.handed.iter());
        self.queue.iter().chain(&self.tasks).chain(handed).copied().collect()
    }

    /// When the lease time runs out, unstarted leases are no longer ours, and neither are jobs whose start the server does not
    /// know of.
    pub(super) fn expire_leases(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        let until = self.session.lease_until;
        let secret = |key: &&AttemptKey| self.jobs.get(key).is_some_and(|job| !job.start_known && job.ending.is_none());
        let unknown: Vec<AttemptKey> = self.active.iter().filter(secret).copied().collect();
        let waiting = !self.queue.is_empty() || !self.tasks.is_empty() || self.profiles.handed() > 0;
        if !waiting && unknown.is_empty() || !self.session.has_leases() {
            return;
        }
        if now < until {
            self.wake(until);
            return;
        }
        self.let_go(self.unstarted(), Some(Ending::LeaseLost), now, effects);
        for key in unknown {
            self.kill(key, Ending::LeaseLost, now, effects);
        }
    }
}

/// A job that reads files is not started before they were found.
fn look_for_inputs(key: AttemptKey, launch: &LaunchProfile, effects: &mut Vec<Effect>) -> Inputs {
    let terms = launch.terms();
    if terms.input_files.is_empty() {
        return Inputs::Found(Vec::new());
    }
    let look = InputCheck {
        working_dir: launch.template.working_dir.clone().into(),
        files: terms.input_files.clone(),
        hash_large_files: terms.hash_large_files,
    };
    effects.push(Effect::CheckInputs(key, Box::new(look)));
    Inputs::Awaited
}
