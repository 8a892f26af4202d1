//! The jobs that the runner holds: their stages, the order of those that wait, and the resources they take.
//!
//! A job's stage, the queues, the classes and the ledger change together, and only here. Other modules read jobs, and change them
//! through [`Jobs`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use torc_api::wire::{AttemptKey, FileStat, Lease, LeaseRole};
use torc_core::ledger::{Ledger, NodeScope, Reservation};
use torc_core::urgency::Urgency;

use super::classes::Classes;
use super::profiles::LaunchProfile;
use super::step_state::StepState;
use super::usage_stats::UsageStats;
use crate::clock::BootInstant;
use crate::protocol::{ShimJob, StartOrder, StopReason};

/// Time for which smaller jobs may start before a job of several nodes. After it, nodes are kept for this job as they
/// become free.
const MAX_PASSED_OVER_WITH_NODES: Duration = Duration::from_secs(10);
/// The same for a job of one node. It is longer, because one node becomes free by itself as jobs end, and is idle while it is kept.
const MAX_PASSED_OVER: Duration = Duration::from_secs(300);

/// A lease that the runner holds, from its arrival until its report is complete.
#[derive(Debug)]
pub(super) struct LeasedJob {
    pub role: LeaseRole,
    pub name: String,
    pub command: String,
    /// Variables of this job, without those of its profile.
    pub env: BTreeMap<String, String>,
    pub launch: Arc<LaunchProfile>,
    /// The position among the waiting leases.
    pub urgency: Urgency,
    pub stage: JobStage,
    /// The reserved resources; absent while the job waits, and for a job that follows another one.
    pub reservation: Option<Reservation>,
    /// The moment of its arrival, later of its start.
    pub since: BootInstant,
    /// True if the server knows of the start.
    pub start_known: bool,
    pub ending: Option<EndingOrder>,
    pub inputs: Inputs,
    /// The first process, once the job has started.
    pub pid: i32,
    pub usage: UsageStats,
    /// The state of its step in Slurm.
    pub step: StepState,
    /// Names of its GPUs, once the job has started.
    pub devices: Vec<String>,
}

impl LeasedJob {
    /// Creates the job of a lease that has just arrived.
    pub fn leased(
        lease: Lease,
        launch: Arc<LaunchProfile>,
        urgency: Urgency,
        inputs: Inputs,
        now: BootInstant,
    ) -> Self {
        Self {
            role: lease.role,
            name: lease.name,
            command: lease.command,
            env: lease.env,
            launch,
            urgency,
            stage: JobStage::Queued,
            reservation: None,
            since: now,
            start_known: false,
            ending: None,
            inputs,
            pid: 0,
            usage: UsageStats::default(),
            step: StepState::default(),
            devices: Vec::new(),
        }
    }

    /// Creates a job that an earlier agent started.
    fn running(job: ShimJob, launch: Arc<LaunchProfile>) -> Self {
        Self {
            role: job.order.role,
            name: job.order.name,
            command: String::new(),
            env: BTreeMap::new(),
            launch,
            urgency: Urgency::default(),
            stage: JobStage::Running,
            reservation: None,
            since: job.started,
            // The earlier agent has probably reported the start. A running job is not ended on suspicion.
            start_known: true,
            ending: job.ending.map(|(why, at)| EndingOrder { why, at }),
            inputs: Inputs::Unknown,
            pid: job.pid,
            usage: UsageStats::default(),
            step: StepState::of_running(job.order.step_limit_ms, job.is_warned),
            devices: job.order.devices,
        }
    }
}

impl LeasedJob {
    /// Returns whether this job has waited so long that smaller jobs must no longer start before it.
    pub fn is_starved(&self, now: BootInstant) -> bool {
        let limit = if self.launch.resources().nodes > 1 { MAX_PASSED_OVER_WITH_NODES } else { MAX_PASSED_OVER };
        now.since(self.since) > limit
    }
}

/// The first reason for ending a job, and its moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EndingOrder {
    pub why: StopReason,
    pub at: BootInstant,
}

/// The state of a job's input files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Inputs {
    /// They are being checked; the job cannot start before.
    Awaited,
    /// They were found before the start, in this state.
    Found(Vec<FileStat>),
    /// An earlier agent checked them.
    Unknown,
}

/// The stage of an attempt in its runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobStage {
    /// The lease waits in the queue.
    Queued,
    /// The shim has it, and starts it after another job of its class.
    ShimQueued,
    /// The shim has it and was asked not to start it.
    Recalled,
    /// The shim has the order to start it.
    Starting,
    Running,
    /// It has ended, and its report is not complete: files are checked, or the accounting is asked.
    Checking,
}

impl JobStage {
    /// Returns whether the attempt counts as started.
    pub fn is_started(self) -> bool {
        matches!(self, Self::Starting | Self::Running | Self::Checking)
    }
}

/// All jobs of a runner, and the resources they take.
#[derive(Debug)]
pub(super) struct Jobs {
    jobs: BTreeMap<AttemptKey, LeasedJob>,
    queue: VecDeque<AttemptKey>,
    /// Tasks, which take no resources, that have not started.
    tasks: VecDeque<AttemptKey>,
    /// Attempts that count as started and have not ended.
    active: BTreeSet<AttemptKey>,
    classes: Classes,
    ledger: Ledger,
}

// Reads.
impl Jobs {
    pub fn new(ledger: Ledger) -> Self {
        Self {
            jobs: BTreeMap::new(),
            queue: VecDeque::new(),
            tasks: VecDeque::new(),
            active: BTreeSet::new(),
            classes: Classes::default(),
            ledger,
        }
    }

    pub fn get(&self, key: &AttemptKey) -> Option<&LeasedJob> {
        self.jobs.get(key)
    }

    pub fn contains_key(&self, key: &AttemptKey) -> bool {
        self.jobs.contains_key(key)
    }

    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&AttemptKey, &LeasedJob)> {
        self.jobs.iter()
    }

    /// Returns jobs in the queue, the first to start first.
    pub fn queue(&self) -> impl ExactSizeIterator<Item = AttemptKey> + '_ {
        self.queue.iter().copied()
    }

    /// Returns the key at a position of the queue.
    pub fn queued(&self, at: usize) -> Option<AttemptKey> {
        self.queue.get(at).copied()
    }

    /// Returns jobs that count as started and have not ended.
    pub fn active(&self) -> impl Iterator<Item = (AttemptKey, &LeasedJob)> {
        self.active.iter().filter_map(|key| Some((*key, self.jobs.get(key)?)))
    }

    pub fn active_keys(&self) -> Vec<AttemptKey> {
        self.active.iter().copied().collect()
    }

    /// Returns active jobs without tasks.
    pub fn active_jobs(&self) -> impl Iterator<Item = &LeasedJob> {
        self.active().map(|(_, job)| job).filter(|job| job.role.is_job())
    }

    pub fn is_active(&self, key: &AttemptKey) -> bool {
        self.active.contains(key)
    }

    pub fn active_count(&self) -> usize {
        self.active.len()
    }

    /// Returns the number of jobs at the shim that have not started.
    pub fn handed(&self) -> usize {
        self.classes.handed().count()
    }

    /// Returns the number of leases that have not started.
    pub fn waiting(&self) -> usize {
        self.queue.len() + self.tasks.len() + self.handed()
    }

    /// Returns the number of jobs that have not started, without tasks.
    pub fn waiting_jobs(&self) -> usize {
        self.queue.len() + self.handed()
    }

    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Returns leases that have not started, in no particular order.
    pub fn unstarted(&self) -> Vec<AttemptKey> {
        self.queue.iter().chain(&self.tasks).chain(self.classes.handed()).copied().collect()
    }

    /// Returns tasks that have not started.
    pub fn tasks(&self) -> Vec<AttemptKey> {
        self.tasks.iter().copied().collect()
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Returns whether a small job could start.
    pub fn has_room(&self) -> bool {
        self.ledger.free_slots().map_or_else(|| self.ledger.free().cpus > 0, |slots| slots > 0)
    }

    /// Returns whether no job waits although one could start.
    pub fn is_starving(&self) -> bool {
        self.waiting_jobs() == 0 && self.has_room()
    }

    /// Returns whether jobs may start on some node.
    pub fn has_node(&self) -> bool {
        (0..self.ledger.nodes()).any(|node| self.ledger.is_in_service(node))
    }

    /// Returns whether the shim may get one more job of this class in advance.
    pub fn can_prefetch(&self, key: &AttemptKey, depth: usize) -> bool {
        self.jobs.get(key).is_some_and(|job| self.classes.can_prefetch(job.launch.class, depth))
    }
}

// Stages.
impl Jobs {
    /// Adds a lease. A job goes before less urgent ones of its workflow; between workflows the server's order stays, because only the
    /// server knows the shares of their owners.
    pub fn admit(&mut self, key: AttemptKey, job: LeasedJob) {
        if job.role.is_job() {
            let is_less_urgent = |waiting: &AttemptKey| {
                waiting.workflow == key.workflow && self.jobs.get(waiting).is_some_and(|it| it.urgency < job.urgency)
            };
            let passed = self.queue.iter().rev().take_while(|waiting| is_less_urgent(waiting)).count();
            self.queue.insert(self.queue.len() - passed, key);
        } else {
            self.tasks.push_back(key);
        }
        self.jobs.insert(key, job);
    }

    /// Adds a job that an earlier agent started on these nodes.
    pub fn adopt(&mut self, running: ShimJob, launch: Arc<LaunchProfile>, nodes: &[usize]) {
        let key = running.order.key;
        let mut job = LeasedJob::running(running, launch);
        if job.role.is_job() {
            job.reservation = Some(self.ledger.adopt(job.launch.resources(), &job.devices, nodes));
        }
        self.jobs.insert(key, job);
        self.activate(key);
    }

    /// Reserves the resources of a waiting job, if they are free.
    pub fn reserve(&mut self, key: &AttemptKey) -> Option<Reservation> {
        let job = self.jobs.get(key)?;
        self.ledger.reserve(job.launch.resources(), job.launch.node_scope())
    }

    /// Marks a waiting lease as starting.
    pub fn start(&mut self, key: AttemptKey, reservation: Option<Reservation>, order: &StartOrder) {
        self.dequeue(key);
        let Some(job) = self.jobs.get_mut(&key) else { return };
        job.reservation = reservation;
        job.stage = JobStage::Starting;
        job.devices.clone_from(&order.devices);
        job.step.limit = order.step_limit_ms.map(Duration::from_millis);
        self.activate(key);
    }

    /// Marks a waiting job as handed to the shim.
    pub fn hand_over(&mut self, key: AttemptKey) {
        self.dequeue(key);
        let Some(job) = self.jobs.get_mut(&key) else { return };
        job.stage = JobStage::ShimQueued;
        if let Some(class) = self.classes.get_mut(job.launch.class) {
            class.handed.push_back(key);
        }
    }

    /// Starts handed jobs for which resources are free, so that they do not wait for a predecessor.
    pub fn start_handed(&mut self) -> Vec<AttemptKey> {
        let mut started = Vec::new();
        for class in self.classes.iter_mut() {
            while let Some(key) = class.handed.front().copied()
                && let Some(job) = self.jobs.get_mut(&key)
                && let Some(reservation) = self.ledger.reserve(job.launch.resources(), NodeScope::FirstNode)
            {
                class.handed.pop_front();
                job.reservation = Some(reservation);
                job.stage = JobStage::Starting;
                class.running += 1;
                self.active.insert(key);
                started.push(key);
            }
        }
        started
    }

    /// Marks a handed job as recalled.
    pub fn recall(&mut self, key: AttemptKey) {
        let Some(job) = self.jobs.get_mut(&key) else { return };
        job.stage = JobStage::Recalled;
        self.classes.remove_handed(key);
    }

    /// Marks a job as running.
    pub fn run(&mut self, key: AttemptKey, at: BootInstant, pid: i32) -> Option<&LeasedJob> {
        let job = self.jobs.get_mut(&key)?;
        let was_recalled = job.stage == JobStage::Recalled;
        job.stage = JobStage::Running;
        job.since = at;
        job.pid = pid;
        if was_recalled {
            // The recall came too late. The end of the predecessor, which transfers its reservation, arrived before the
            // recall.
            self.activate(key);
        }
        self.jobs.get(&key)
    }

    /// Puts a job that the shim did not start back to the front of the queue.
    pub fn requeue_front(&mut self, key: AttemptKey) {
        let Some(job) = self.jobs.get_mut(&key) else { return };
        let reservation = job.reservation.take();
        let was_started = job.stage.is_started();
        job.stage = JobStage::Queued;
        let queue = if job.role.is_job() { &mut self.queue } else { &mut self.tasks };
        queue.push_front(key);
        if was_started {
            self.deactivate(key);
        } else {
            self.classes.remove_handed(key);
        }
        if let Some(reservation) = reservation {
            self.ledger.release(reservation);
        }
    }

    /// Marks a job as ended; its successor runs in its place. Returns the state of its input files.
    pub fn end(&mut self, key: AttemptKey, successor: Option<AttemptKey>) -> Inputs {
        if let Some(job) = self.jobs.get_mut(&key) {
            job.step.nodes = job.reservation.as_ref().map(Reservation::nodes).unwrap_or_default();
        }
        self.transfer_slot(successor, key);
        self.deactivate(key);
        self.classes.remove_handed(key);
        let Some(job) = self.jobs.get_mut(&key) else { return Inputs::Unknown };
        job.stage = JobStage::Checking;
        std::mem::replace(&mut job.inputs, Inputs::Unknown)
    }

    /// Drops a lease that has not started, or a job whose report is complete.
    pub fn remove(&mut self, key: &AttemptKey) -> Option<LeasedJob> {
        let job = self.jobs.remove(key)?;
        if job.stage == JobStage::Queued {
            let queue = if job.role.is_job() { &mut self.queue } else { &mut self.tasks };
            queue.retain(|waiting| waiting != key);
        }
        Some(job)
    }

    /// Drops all jobs at the shim that have not started. Returns whether there were any.
    pub fn remove_handed(&mut self) -> bool {
        self.classes.iter_mut().for_each(|class| class.handed.clear());
        let before = self.jobs.len();
        self.jobs.retain(|_, job| !matches!(job.stage, JobStage::ShimQueued | JobStage::Recalled));
        self.jobs.len() < before
    }

    fn dequeue(&mut self, key: AttemptKey) {
        let queue =
            if self.jobs.get(&key).is_none_or(|job| job.role.is_job()) { &mut self.queue } else { &mut self.tasks };
        if let Some(at) = queue.iter().position(|waiting| *waiting == key) {
            queue.remove(at);
        }
    }

    /// Gives the resources of an ended job to its successor, or frees them.
    fn transfer_slot(&mut self, successor: Option<AttemptKey>, key: AttemptKey) {
        let Some(slot) = self.jobs.get_mut(&key).and_then(|job| job.reservation.take()) else { return };
        let next = successor.and_then(|next| Some((next, self.jobs.get_mut(&next)?)));
        match next {
            Some((next, job)) if job.reservation.is_none() => {
                job.reservation = Some(slot);
                if job.stage == JobStage::ShimQueued {
                    job.stage = JobStage::Starting;
                    self.classes.remove_handed(next);
                    self.activate(next);
                }
            }
            _ => self.ledger.release(slot),
        }
    }

    fn activate(&mut self, key: AttemptKey) {
        self.active.insert(key);
        if let Some(class) = self.jobs.get(&key).and_then(|job| self.classes.get_mut(job.launch.class)) {
            class.running += 1;
        }
    }

    fn deactivate(&mut self, key: AttemptKey) {
        if !self.active.remove(&key) {
            return;
        }
        if let Some(class) = self.jobs.get(&key).and_then(|job| self.classes.get_mut(job.launch.class)) {
            class.running = class.running.saturating_sub(1);
        }
    }
}

// Facts about single jobs.
impl Jobs {
    /// Sets the reason for ending a job, unless it has one.
    pub fn set_ending(&mut self, key: &AttemptKey, why: StopReason, at: BootInstant) {
        if let Some(job) = self.jobs.get_mut(key) {
            job.ending.get_or_insert(EndingOrder { why, at });
        }
    }

    /// Records the state of a job's input files.
    pub fn set_inputs(&mut self, key: &AttemptKey, found: Vec<FileStat>) {
        if let Some(job) = self.jobs.get_mut(key) {
            job.inputs = Inputs::Found(found);
        }
    }

    /// Marks a start as known to the server.
    pub fn set_start_known(&mut self, key: &AttemptKey) {
        if let Some(job) = self.jobs.get_mut(key) {
            job.start_known = true;
        }
    }

    pub fn usage_mut(&mut self, key: &AttemptKey) -> Option<&mut UsageStats> {
        self.jobs.get_mut(key).map(|job| &mut job.usage)
    }

    pub fn step_mut(&mut self, key: &AttemptKey) -> Option<&mut StepState> {
        self.jobs.get_mut(key).map(|job| &mut job.step)
    }

    /// Sets whether jobs may start on a node.
    pub fn set_in_service(&mut self, node: usize, is_in_service: bool) {
        self.ledger.set_in_service(node, is_in_service);
    }
}

#[cfg(test)]
impl Jobs {
    pub fn get_mut(&mut self, key: &AttemptKey) -> Option<&mut LeasedJob> {
        self.jobs.get_mut(key)
    }

    pub fn running_in_class(&self, class: usize) -> usize {
        self.classes.running(class)
    }
}

#[cfg(test)]
impl std::ops::Index<&AttemptKey> for Jobs {
    type Output = LeasedJob;

    fn index(&self, key: &AttemptKey) -> &LeasedJob {
        &self.jobs[key]
    }
}
