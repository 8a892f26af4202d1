//! The jobs of a shim: waiting for their turn, running, and ended but not acknowledged by an agent.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ffi::OsString;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use torc_api::wire::AttemptKey;

use super::logs::{self, JobLog, LogSlots};
use super::rusage::OwnPeak;
use super::shim_dir::StoredResult;
use super::spawn::{PreparedTemplate, ProgramCache, not_started};
use super::start_log::{StartLog, StartRecord};
use crate::clock::{BootInstant, date_ms, ms_since, now as clock_now};
use crate::procfs::{self, Children};
use crate::protocol::{
    FromShim, JobExit, Outcome, Rusage, ShimJob, StartOrder, StartTemplate, StepRecord, StopReason, Termination,
};

mod reap;
#[cfg(test)]
mod tests;

/// Runtime after which a log file gets the job's name, even if it is empty: users look for logs of jobs that run for longer.
const LOG_PROMOTION_DELAY: Duration = Duration::from_secs(1);
/// Interval at which processes that are not children of the shim are checked for their end: they send no SIGCHLD.
const ORPHAN_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// All jobs of a shim.
pub struct JobTable {
    shim: String,
    inherited: Vec<(OsString, OsString)>,
    templates: HashMap<u32, Rc<PreparedTemplate>>,
    /// Running jobs by their first process.
    running: HashMap<i32, JobProcess>,
    processes: HashMap<AttemptKey, i32>,
    /// Orders that wait for their turn, by resource class.
    waiting: HashMap<u32, VecDeque<StartOrder>>,
    /// The moment until which waiting jobs start in turn; absent before the first heartbeat of an agent.
    agent_alive_until: Option<BootInstant>,
    unacknowledged: BTreeMap<AttemptKey, UnacknowledgedResult>,
    /// First processes that have exited while other processes of their job may be left.
    ending: Vec<i32>,
    /// Logs to be renamed to the job's name, ordered by the moment when this is due.
    promotions: VecDeque<(BootInstant, i32, AttemptKey)>,
    /// Processes that became children of the shim when their parent exited, with the job they belong to.
    orphans: HashMap<i32, AttemptKey>,
    free_slots: BTreeSet<usize>,
    slots: usize,
    log_slots: LogSlots,
    start_log: StartLog,
    programs: ProgramCache,
    children: Children,
    own_peak: OwnPeak,
    /// Messages for the agent, in order.
    pub outbox: Vec<FromShim>,
}

/// A running job and its processes.
struct JobProcess {
    order: StartOrder,
    prepared: Rc<PreparedTemplate>,
    is_warned: bool,
    /// The resource class; absent for jobs that an earlier agent started: its classes differ from those of this one.
    class: Option<u32>,
    slot: usize,
    started: BootInstant,
    exited: Option<(BootInstant, Outcome)>,
    rusage: Rusage,
    logs: Vec<JobLog>,
    ending: Option<(StopReason, BootInstant)>,
    kill_at: Option<BootInstant>,
    /// True if other processes of the job outlived the first one.
    left_processes: bool,
}

impl JobProcess {
    fn new(
        order: StartOrder,
        prepared: Rc<PreparedTemplate>,
        slot: usize,
        logs: Vec<JobLog>,
        started: BootInstant,
    ) -> Self {
        Self {
            class: Some(order.class),
            // The process has its arguments and variables: no agent asks for them again.
            order: StartOrder { argv: Vec::new(), env: Vec::new(), ..order },
            prepared,
            is_warned: false,
            slot,
            started,
            exited: None,
            rusage: Rusage::default(),
            logs,
            ending: None,
            kill_at: None,
            left_processes: false,
        }
    }

    /// Returns the job for the next agent.
    fn describe(&self, pid: i32) -> ShimJob {
        ShimJob {
            order: self.order.clone(),
            template: self.prepared.template.clone(),
            started: self.started,
            pid,
            is_warned: self.is_warned,
            ending: self.ending,
        }
    }
}

/// A result that no agent has acknowledged.
struct UnacknowledgedResult {
    exit: JobExit,
    /// The order and the template of a job that this shim started, for the next agent.
    source: Option<(StartOrder, Option<Rc<PreparedTemplate>>)>,
    /// The time of the end in milliseconds since 1970, if the machine has restarted since.
    ended_ms: Option<i64>,
}

impl UnacknowledgedResult {
    fn of_earlier_shim(result: StoredResult) -> Self {
        let ended_ms = result.is_of_earlier_boot().then_some(result.ended_ms);
        Self { exit: result.exit, source: None, ended_ms }
    }

    /// Returns the result for an agent that did not start the job.
    fn describe(&self) -> JobExit {
        let started = self.exit.started;
        let job = self.source.as_ref().map(|(order, prepared)| {
            let template = prepared.as_ref().map_or_else(StartTemplate::default, |prepared| prepared.template.clone());
            Box::new(ShimJob { order: order.clone(), template, started, ..ShimJob::default() })
        });
        JobExit { age_ms: self.ended_ms.map(ms_since), job: job.or_else(|| self.exit.job.clone()), ..self.exit.clone() }
    }

    fn leave(&self) -> StoredResult {
        let exit = JobExit { age_ms: None, ..self.describe() };
        match self.ended_ms {
            Some(ended_ms) => StoredResult { boot_id: String::new(), ended_ms, exit },
            None => StoredResult { boot_id: procfs::boot_id(), ended_ms: date_ms(exit.ended), exit },
        }
    }
}

impl JobTable {
    /// Creates a table without running jobs; `results` are those of an earlier shim.
    pub fn new(shim: &str, start_log: StartLog, results: Vec<StoredResult>) -> Self {
        let kept = results.into_iter().map(|result| (result.exit.key, UnacknowledgedResult::of_earlier_shim(result)));
        Self {
            shim: shim.to_owned(),
            inherited: Vec::new(),
            templates: HashMap::new(),
            running: HashMap::new(),
            processes: HashMap::new(),
            waiting: HashMap::new(),
            agent_alive_until: None,
            unacknowledged: kept.collect(),
            ending: Vec::new(),
            promotions: VecDeque::new(),
            orphans: HashMap::new(),
            free_slots: BTreeSet::new(),
            slots: 0,
            log_slots: LogSlots::new(shim),
            start_log,
            programs: ProgramCache::default(),
            children: Children::open(),
            own_peak: OwnPeak::default(),
            outbox: Vec::new(),
        }
    }

    /// Returns whether no job runs.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// Returns whether the agent must learn of the messages at once: a slot is free, or few jobs wait for their turn.
    /// Other starts and ends can be sent later, because the shim has continued by itself.
    pub fn has_urgent_messages(&self) -> bool {
        self.waiting.values().map(VecDeque::len).sum::<usize>() < self.running.len()
            || !self.outbox.iter().all(|outbox| match outbox {
                FromShim::Started { .. } => true,
                FromShim::Ended(exit) => exit.successor.is_some(),
                _ => false,
            })
    }

    /// Sends a new agent everything that the shim holds. Later jobs inherit the agent's environment.
    pub fn welcome(&mut self, environment: Vec<(OsString, OsString)>) {
        self.agent_left();
        self.inherited = environment;
        self.templates.clear();
        let mut running: Vec<(&i32, &mut JobProcess)> = self.running.iter_mut().collect();
        running.sort_by_key(|(_, job)| job.order.key);
        for (pid, job) in running {
            job.class = None;
            self.outbox.push(FromShim::Running(Box::new(job.describe(*pid))));
        }
        self.outbox.extend(self.unacknowledged.values().map(|kept| FromShim::Ended(kept.describe())));
        self.outbox.push(FromShim::Ready);
    }

    /// Drops jobs that have not started: without an agent they must not.
    pub fn agent_left(&mut self) {
        self.waiting.clear();
        self.agent_alive_until = None;
        self.outbox.clear();
    }

    /// Defines a template for later starts.
    pub fn define(&mut self, template: StartTemplate) {
        let prepared = PreparedTemplate::new(template, &self.inherited, &self.shim);
        self.templates.insert(prepared.template.id, Rc::new(prepared));
    }

    /// Starts a job, or queues it until its turn comes.
    pub fn order(&mut self, order: StartOrder) {
        if order.in_turn {
            self.waiting.entry(order.class).or_default().push_back(order);
        } else {
            self.start(order);
        }
    }

    /// Starts a queued job now.
    pub fn start_now(&mut self, key: &AttemptKey) {
        if let Some(order) = self.take_waiting(key) {
            self.start(order);
        }
    }

    /// Sets the moment until which the agent counts as alive. The latest value counts, also if it is earlier than the one before.
    pub fn heartbeat(&mut self, alive_until: BootInstant) {
        self.agent_alive_until = Some(alive_until);
    }

    #[cfg(test)]
    pub(super) fn agent_alive_until(&self) -> Option<BootInstant> {
        self.agent_alive_until
    }

    /// Drops queued jobs. The answer names only those that had not started.
    pub fn revoke(&mut self, keys: &[AttemptKey]) {
        for key in keys {
            if self.take_waiting(key).is_some() {
                self.outbox.push(FromShim::Revoked(*key));
            }
        }
    }

    fn take_waiting(&mut self, key: &AttemptKey) -> Option<StartOrder> {
        self.waiting.values_mut().find_map(|queue| {
            let at = queue.iter().position(|order| order.key == *key)?;
            queue.remove(at)
        })
    }

    /// Drops results that are durable elsewhere.
    pub fn acknowledge(&mut self, keys: &[AttemptKey]) {
        for key in keys {
            self.unacknowledged.remove(key);
        }
    }

    /// Records the time limit and the warning of a step for the next agent.
    pub fn record(&mut self, record: &StepRecord) {
        let Some(job) = self.processes.get(&record.key).and_then(|pid| self.running.get_mut(pid)) else { return };
        job.order.step_limit_ms = record.step_limit_ms;
        job.is_warned = record.is_warned;
    }

    /// Ends a job: the signal, the lead, then SIGKILL. A repetition can only shorten the lead.
    pub fn terminate(&mut self, termination: &Termination, now: BootInstant) {
        let Some(pid) = self.processes.get(&termination.key) else { return };
        let Some(job) = self.running.get_mut(pid) else { return };
        let kill_at = now.plus(Duration::from_millis(termination.lead_ms));
        job.kill_at = Some(job.kill_at.map_or(kill_at, |earlier| earlier.min(kill_at)));
        // Without a lead SIGKILL is due at once.
        if termination.lead_ms > 0 && job.ending.is_none() {
            signal_group(*pid, Signal::from_named_raw(termination.signal).unwrap_or(Signal::TERM));
        }
        job.ending.get_or_insert((termination.why, now));
    }

    /// Asks every job to end, because no agent is left to decide about it.
    pub fn terminate_all(&mut self, now: BootInstant) {
        let termination = |job: &JobProcess| {
            let StartTemplate { signal, lead_ms, .. } = job.prepared.template;
            Termination { key: job.order.key, why: StopReason::Stopped, signal, lead_ms }
        };
        let all: Vec<Termination> = self.running.values().map(termination).collect();
        for termination in all {
            self.terminate(&termination, now);
        }
    }

    /// Renames the logs and kills the jobs that are due, and completes jobs that have ended.
    pub fn on_time(&mut self, now: BootInstant) {
        while let Some((_, pid, key)) = self.promotions.pop_front_if(|(due, ..)| *due <= now) {
            let Some(job) = self.running.get_mut(&pid).filter(|job| job.order.key == key) else { continue };
            for log in &mut job.logs {
                if let Err(error) = log.promote() {
                    let name = &job.order.name;
                    self.outbox.push(FromShim::Problem(format!("cannot rename the log of job {name}: {error}")));
                }
            }
        }
        for (pid, job) in &mut self.running {
            if job.kill_at.is_some_and(|due| due <= now) {
                job.kill_at = None;
                signal_group(*pid, Signal::KILL);
                self.outbox.push(FromShim::Killed(job.order.key));
            }
        }
        self.settle();
    }

    /// Returns the moment of the next call of `on_time`; none if nothing will be due.
    pub fn next_time(&mut self, now: BootInstant) -> Option<BootInstant> {
        let is_over = |running: &HashMap<i32, JobProcess>, pid: &i32, key: &AttemptKey| {
            running.get(pid).is_none_or(|job| job.order.key != *key)
        };
        while self.promotions.pop_front_if(|(_, pid, key)| is_over(&self.running, pid, key)).is_some() {}
        let promotion = self.promotions.front().map(|(due, ..)| *due);
        let kill = self.running.values().filter_map(|job| job.kill_at).min();
        let recheck = (!self.ending.is_empty()).then(|| now.plus(ORPHAN_CHECK_INTERVAL));
        [promotion, kill, recheck].into_iter().flatten().min()
    }

    fn start(&mut self, order: StartOrder) {
        let before = clock_now();
        if before > order.until {
            self.outbox.push(FromShim::Revoked(order.key));
            return;
        }
        let Some(prepared) = self.templates.get(&order.template).cloned() else {
            self.never_ran(order, before, None, not_started(126, "the template of the start request is unknown"));
            return;
        };
        let log_dir = Path::new(&prepared.template.log_dir);
        let mut name = order.role.log_name(&order.key);
        if !order.role.is_job() {
            name = logs::free_log_name(log_dir, &name);
        }
        let taken = self.log_slots.take(log_dir, prepared.template.stdio, &name);
        let logs = match taken {
            Ok(logs) => logs,
            Err(error) => {
                let message = format!("cannot write logs in {}: {error}", log_dir.display());
                self.never_ran(order, before, Some(prepared), not_started(126, message));
                return;
            }
        };
        let slot = self.free_slots.pop_first().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        });
        match self.spawn(&prepared, &order, &logs, slot) {
            Ok((pid, started)) => self.add_running(pid, JobProcess::new(order, prepared, slot, logs, started)),
            Err(outcome) => {
                self.free_slots.insert(slot);
                self.log_slots.finish(logs, true);
                self.never_ran(order, before, Some(prepared), outcome);
            }
        }
    }

    /// Records the job, starts it, and records its process.
    fn spawn(
        &mut self,
        prepared: &PreparedTemplate,
        order: &StartOrder,
        logs: &[JobLog],
        slot: usize,
    ) -> Result<(i32, BootInstant), Outcome> {
        let io = |error: std::io::Error| not_started(126, format!("cannot prepare the start: {error}"));
        let mut record =
            StartRecord { key: order.key, logs: logs.iter().map(JobLog::record).collect(), ..StartRecord::default() };
        self.start_log.set(slot, &record).map_err(io)?;
        let outputs = logs::outputs(logs).map_err(io)?;
        let before = clock_now();
        let pid = self.programs.spawn(prepared, order, outputs)?;
        record.started(pid, before, clock_now());
        if let Err(error) = self.start_log.set(slot, &record) {
            self.outbox.push(FromShim::Problem(format!("cannot record process {pid}: {error}")));
        }
        Ok((pid, before))
    }

    fn add_running(&mut self, pid: i32, job: JobProcess) {
        let (key, started) = (job.order.key, job.started);
        self.promotions.push_back((started.plus(LOG_PROMOTION_DELAY), pid, key));
        self.processes.insert(key, pid);
        self.outbox.push(FromShim::Started { key, at: started, pid });
        self.running.insert(pid, job);
    }

    fn never_ran(
        &mut self,
        order: StartOrder,
        at: BootInstant,
        prepared: Option<Rc<PreparedTemplate>>,
        outcome: Outcome,
    ) {
        let exit = JobExit::new(order.key, at, at, outcome);
        let class = order.class;
        self.report(exit, StartOrder { argv: Vec::new(), env: Vec::new(), ..order }, prepared, Some(class));
    }

    /// Keeps and sends a result, and starts the next job of its class.
    fn report(&mut self, exit: JobExit, order: StartOrder, prepared: Option<Rc<PreparedTemplate>>, class: Option<u32>) {
        let next = class.and_then(|class| self.next_in_turn(class, clock_now()));
        // An unsent start message is superseded by the result.
        self.outbox.retain(|outbox| !matches!(outbox, FromShim::Started { key, .. } if *key == exit.key));
        let successor = next.as_ref().map(|order| order.key);
        self.outbox.push(FromShim::Ended(JobExit { successor, ..exit.clone() }));
        self.unacknowledged
            .insert(exit.key, UnacknowledgedResult { exit, source: Some((order, prepared)), ended_ms: None });
        if let Some(next) = next {
            self.start(next);
        }
    }

    /// Removes and returns the next job of a class that may start now. If the agent is silent, there is none and the
    /// jobs stay queued. The result then names no successor, so the agent starts or revokes the jobs itself.
    fn next_in_turn(&mut self, class: u32, now: BootInstant) -> Option<StartOrder> {
        if self.agent_alive_until.is_none_or(|until| until < now) {
            return None;
        }
        let queue = self.waiting.get_mut(&class)?;
        while let Some(order) = queue.pop_front() {
            if now <= order.until {
                return Some(order);
            }
            self.outbox.push(FromShim::Revoked(order.key));
        }
        None
    }

    /// Kills what is left, removes the shim's files, and returns the unacknowledged results.
    pub fn close(mut self) -> Vec<StoredResult> {
        self.kill_children();
        self.log_slots.remove();
        self.start_log.remove();
        self.unacknowledged.values().map(UnacknowledgedResult::leave).collect()
    }
}

/// Sends a signal to a process group. Returns whether the group had a process left.
fn signal_group(leader: i32, signal: Signal) -> bool {
    Pid::from_raw(leader).is_some_and(|pid| kill_process_group(pid, signal).is_ok())
}
