//! The jobs that the runner holds: where each of them stands, in which order those that wait start, and what they take.
//!
//! A job's stage, the queues, the classes and the ledger change together, and only here. Other modules read jobs, and change them
//! through [`Jobs`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use torc_api::wire::{AttemptKey, FileStat, Lease, LeaseRole};
use torc_core::ledger::{Ledger, NodeScope, Reservation};
use torc_core::urgency::Urgency;

use super::profiles::LaunchProfile;
use super::step_state::StepState;
use super::usage_stats::UsageStats;
use crate::clock::BootInstant;
use crate::protocol::{ShimJob, StartOrder, StopReason};

/// An attempt that the runner holds.
#[derive(Debug)]
pub(super) struct Job {
    pub role: LeaseRole,
    pub name: String,
    pub command: String,
    /// Variables of this one alone.
    pub env: BTreeMap<String, String>,
    pub launch: Arc<LaunchProfile>,
    /// Decides which of the leases that wait starts first.
    pub urgency: Urgency,
    pub stage: Stage,
    /// Taken from the ledger; absent while it waits, and for one that is to follow another.
    pub reservation: Option<Reservation>,
    /// When it came, later when it started.
    pub since: BootInstant,
    /// The server knows that it has started.
    pub start_known: bool,
    pub ending: Option<EndingOrder>,
    pub inputs: Inputs,
    /// Its first process, once it has started.
    pub pid: i32,
    pub usage: UsageStats,
    /// What Slurm has said of its step.
    pub step: StepState,
    /// GPUs it uses, once it has started.
    pub devices: Vec<String>,
}

impl Job {
    /// A lease that waits for its start.
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
        }
    }

    /// A job that an earlier agent started.
    fn running(job: ShimJob, launch: Arc<LaunchProfile>) -> Self {
        Self {
            role: job.order.role,
            name: job.order.name,
            command: String::new(),
            env: BTreeMap::new(),
            launch,
            urgency: Urgency::default(),
            stage: Stage::Running,
            reservation: None,
            since: job.started,
            // The agent that started it had the time to say so, and a job that has come so far is not given up lightly.
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

/// Why a job is being ended, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EndingOrder {
    pub why: StopReason,
    pub at: BootInstant,
}

/// What is known about the files that a job reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Inputs {
    /// They are being looked for; it cannot start before.
    Awaited,
    /// As found before its start.
    Found(Vec<FileStat>),
    /// An earlier agent looked for them.
    Unknown,
}

/// Where an attempt stands in its runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// In the queue.
    Queued,
    /// At the shim, to follow another job of its class.
    Handed,
    /// At the shim, which was told not to start it.
    Recalled,
    /// The shim was told to start it.
    Starting,
    Running,
    /// Ended; its output files are being looked for.
    Checking,
}

impl Stage {
    /// Whether the attempt counts as started.
    pub fn is_started(self) -> bool {
        matches!(self, Self::Starting | Self::Running | Self::Checking)
    }
}

/// Jobs that take the same from the node.
#[derive(Debug, Default)]
struct Class {
    /// Jobs of it that run.
    running: usize,
    /// Jobs of it at the shim, to follow those that run.
    handed: VecDeque<AttemptKey>,
}

/// All jobs of a runner, and what they take.
#[derive(Debug)]
pub(super) struct Jobs {
    jobs: BTreeMap<AttemptKey, Job>,
    queue: VecDeque<AttemptKey>,
    /// What takes no resources and has not started.
    tasks: VecDeque<AttemptKey>,
    /// Attempts that count as started and have not ended.
    active: BTreeSet<AttemptKey>,
    /// By the number of a class.
    classes: Vec<Class>,
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
            classes: Vec::new(),
            ledger,
        }
    }

    pub fn get(&self, key: &AttemptKey) -> Option<&Job> {
        self.jobs.get(key)
    }

    pub fn contains_key(&self, key: &AttemptKey) -> bool {
        self.jobs.contains_key(key)
    }

    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&AttemptKey, &Job)> {
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
    pub fn active(&self) -> impl Iterator<Item = (AttemptKey, &Job)> {
        self.active.iter().filter_map(|key| Some((*key, self.jobs.get(key)?)))
    }

    pub fn active_keys(&self) -> Vec<AttemptKey> {
        self.active.iter().copied().collect()
    }

    pub fn is_active(&self, key: &AttemptKey) -> bool {
        self.active.contains(key)
    }

    pub fn active_count(&self) -> usize {
        self.active.len()
    }

    /// Returns the number of jobs at the shim that have not started.
    pub fn handed(&self) -> usize {
        self.classes.iter().map(|class| class.handed.len()).sum()
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
        let handed = self.classes.iter().flat_map(|class| class.handed.iter());
        self.queue.iter().chain(&self.tasks).chain(handed).copied().collect()
    }

    /// Returns tasks that have not started.
    pub fn tasks(&self) -> Vec<AttemptKey> {
        self.tasks.iter().copied().collect()
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Whether something could start, if it is small enough.
    pub fn has_room(&self) -> bool {
        self.ledger.free_slots().map_or_else(|| self.ledger.free().cpus > 0, |slots| slots > 0)
    }

    /// Whether a node is left on which jobs may start.
    pub fn has_node(&self) -> bool {
        (0..self.ledger.nodes()).any(|node| self.ledger.is_in_service(node))
    }

    /// Whether the shim may get one more job of this class in advance.
    pub fn can_hand_over(&self, key: &AttemptKey, depth: usize) -> bool {
        let class = self.jobs.get(key).and_then(|job| self.classes.get(job.launch.class as usize));
        class.is_some_and(|class| class.handed.len() < depth * class.running)
    }
}

// Stages.
impl Jobs {
    /// Takes in a lease. A job goes before less urgent ones of its workflow; between workflows the server's order stays: only the
    /// server knows how their owners share.
    pub fn admit(&mut self, key: AttemptKey, job: Job) {
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

    /// Takes in a job that an earlier agent started on these nodes.
    pub fn adopt(&mut self, running: ShimJob, launch: Arc<LaunchProfile>, nodes: &[usize]) {
        let key = running.order.key;
        let mut job = Job::running(running, launch);
        if job.role.is_job() {
            job.reservation = Some(self.ledger.adopt(job.launch.resources(), &job.devices, nodes));
        }
        self.jobs.insert(key, job);
        self.activate(key);
    }

    /// Reserves what a waiting job takes, if it is free.
    pub fn reserve(&mut self, key: &AttemptKey) -> Option<Reservation> {
        let job = self.jobs.get(key)?;
        self.ledger.reserve(job.launch.resources(), job.launch.reach())
    }

    /// The shim is told to start a waiting lease.
    pub fn start(&mut self, key: AttemptKey, reservation: Option<Reservation>, order: &StartOrder) {
        self.leave_line(key);
        let Some(job) = self.jobs.get_mut(&key) else { return };
        job.reservation = reservation;
        job.stage = Stage::Starting;
        job.devices.clone_from(&order.devices);
        job.step.limit = order.step_limit_ms.map(std::time::Duration::from_millis);
        self.activate(key);
    }

    /// The shim gets a waiting job in advance.
    pub fn hand_over(&mut self, key: AttemptKey) {
        self.leave_line(key);
        let Some(job) = self.jobs.get_mut(&key) else { return };
        job.stage = Stage::Handed;
        let class = job.launch.class;
        if let Some(class) = self.class_mut(class) {
            class.handed.push_back(key);
        }
    }

    /// Starts handed jobs whose class has room again: they need not wait for a predecessor.
    pub fn start_handed(&mut self) -> Vec<AttemptKey> {
        let mut started = Vec::new();
        for class in &mut self.classes {
            while let Some(key) = class.handed.front().copied()
                && let Some(job) = self.jobs.get_mut(&key)
                && let Some(reservation) = self.ledger.reserve(job.launch.resources(), NodeScope::Here)
            {
                class.handed.pop_front();
                job.reservation = Some(reservation);
                job.stage = Stage::Starting;
                class.running += 1;
                self.active.insert(key);
                started.push(key);
            }
        }
        started
    }

    /// The shim is told not to start a handed job.
    pub fn recall(&mut self, key: AttemptKey) {
        let Some(job) = self.jobs.get_mut(&key) else { return };
        job.stage = Stage::Recalled;
        self.forget_handed(key);
    }

    /// The shim has started a job.
    pub fn run(&mut self, key: AttemptKey, at: BootInstant, pid: i32) -> Option<&Job> {
        let job = self.jobs.get_mut(&key)?;
        let was_recalled = job.stage == Stage::Recalled;
        job.stage = Stage::Running;
        job.since = at;
        job.pid = pid;
        if was_recalled {
            // The recall came too late; the end of its predecessor, which brings the reservation, was told before this.
            self.activate(key);
        }
        self.jobs.get(&key)
    }

    /// The shim has not started a job: it is the next to start.
    pub fn unstart(&mut self, key: AttemptKey) {
        let Some(job) = self.jobs.get_mut(&key) else { return };
        let reservation = job.reservation.take();
        let was_started = job.stage.is_started();
        job.stage = Stage::Queued;
        let line = if job.role.is_job() { &mut self.queue } else { &mut self.tasks };
        line.push_front(key);
        if was_started {
            self.deactivate(key);
        } else {
            self.forget_handed(key);
        }
        if let Some(reservation) = reservation {
            self.ledger.release(reservation);
        }
    }

    /// The processes of a job have ended; its successor runs in its place. Returns what is known about its input files.
    pub fn end(&mut self, key: AttemptKey, successor: Option<AttemptKey>) -> Inputs {
        if let Some(job) = self.jobs.get_mut(&key) {
            job.step.nodes = job.reservation.as_ref().map(Reservation::nodes).unwrap_or_default();
        }
        self.transfer_slot(successor, key);
        self.deactivate(key);
        self.forget_handed(key);
        let Some(job) = self.jobs.get_mut(&key) else { return Inputs::Unknown };
        job.stage = Stage::Checking;
        std::mem::replace(&mut job.inputs, Inputs::Unknown)
    }

    /// Drops a lease that has not started, or a job whose report is complete.
    pub fn remove(&mut self, key: &AttemptKey) -> Option<Job> {
        let job = self.jobs.remove(key)?;
        if job.stage == Stage::Queued {
            let line = if job.role.is_job() { &mut self.queue } else { &mut self.tasks };
            line.retain(|waiting| waiting != key);
        }
        Some(job)
    }

    /// Drops all jobs at the shim that have not started. Returns whether there were any.
    pub fn remove_handed(&mut self) -> bool {
        self.classes.iter_mut().for_each(|class| class.handed.clear());
        let before = self.jobs.len();
        self.jobs.retain(|_, job| !matches!(job.stage, Stage::Handed | Stage::Recalled));
        self.jobs.len() < before
    }

    fn leave_line(&mut self, key: AttemptKey) {
        let line =
            if self.jobs.get(&key).is_none_or(|job| job.role.is_job()) { &mut self.queue } else { &mut self.tasks };
        if let Some(at) = line.iter().position(|waiting| *waiting == key) {
            line.remove(at);
        }
    }

    /// The successor runs in the place of the job that ended; without one the place is free.
    fn transfer_slot(&mut self, successor: Option<AttemptKey>, key: AttemptKey) {
        let Some(slot) = self.jobs.get_mut(&key).and_then(|job| job.reservation.take()) else { return };
        let next = successor.and_then(|next| Some((next, self.jobs.get_mut(&next)?)));
        match next {
            Some((next, job)) if job.reservation.is_none() => {
                job.reservation = Some(slot);
                if job.stage == Stage::Handed {
                    job.stage = Stage::Starting;
                    self.forget_handed(next);
                    self.activate(next);
                }
            }
            _ => self.ledger.release(slot),
        }
    }

    fn activate(&mut self, key: AttemptKey) {
        self.active.insert(key);
        let class = self.jobs.get(&key).map(|job| job.launch.class);
        if let Some(class) = class.and_then(|class| self.class_mut(class)) {
            class.running += 1;
        }
    }

    fn deactivate(&mut self, key: AttemptKey) {
        if !self.active.remove(&key) {
            return;
        }
        let class = self.jobs.get(&key).map(|job| job.launch.class);
        if let Some(class) = class.and_then(|class| self.class_mut(class)) {
            class.running = class.running.saturating_sub(1);
        }
    }

    fn forget_handed(&mut self, key: AttemptKey) {
        for class in &mut self.classes {
            class.handed.retain(|handed| *handed != key);
        }
    }

    /// Returns a class; none for what takes no resources.
    fn class_mut(&mut self, class: u32) -> Option<&mut Class> {
        if class == LaunchProfile::NO_CLASS {
            return None;
        }
        let at = class as usize;
        if at >= self.classes.len() {
            self.classes.resize_with(at + 1, Class::default);
        }
        self.classes.get_mut(at)
    }
}

// What else is learned about a job.
impl Jobs {
    /// Notes why a job is being ended; the first reason counts.
    pub fn set_ending(&mut self, key: &AttemptKey, why: StopReason, at: BootInstant) {
        if let Some(job) = self.jobs.get_mut(key) {
            job.ending.get_or_insert(EndingOrder { why, at });
        }
    }

    /// The files that a job reads were found.
    pub fn set_inputs(&mut self, key: &AttemptKey, found: Vec<FileStat>) {
        if let Some(job) = self.jobs.get_mut(key) {
            job.inputs = Inputs::Found(found);
        }
    }

    /// The server knows that a job has started.
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

    /// Jobs may start on a node, or not any more.
    pub fn set_in_service(&mut self, node: usize, is_in_service: bool) {
        self.ledger.set_in_service(node, is_in_service);
    }
}

#[cfg(test)]
impl Jobs {
    pub fn get_mut(&mut self, key: &AttemptKey) -> Option<&mut Job> {
        self.jobs.get_mut(key)
    }

    pub fn running_in_class(&self, class: usize) -> usize {
        self.classes[class].running
    }
}

#[cfg(test)]
impl std::ops::Index<&AttemptKey> for Jobs {
    type Output = Job;

    fn index(&self, key: &AttemptKey) -> &Job {
        &self.jobs[key]
    }
}
