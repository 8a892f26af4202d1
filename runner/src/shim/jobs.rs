//! The jobs of a shim: those that wait for their turn, those that run, and the results that nobody has acknowledged.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ffi::OsString;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use torc_api::wire::{AttemptKey, LeaseRole};

use super::logs::{self, Log, LogSlots};
use super::place::LeftResult;
use super::rusage::OwnPeak;
use super::spawn::{Prepared, Programs, not_started};
use super::start_log::{StartLog, StartRecord};
use crate::clock::{BootInstant, date_ms, ms_since, now as clock_now};
use crate::procfs::{self, Children};
use crate::protocol::{
    Ended, Ending, FromShim, Outcome, RunningJob, Rusage, StartOrder, StepRecord, Template, Termination, Terms,
};

mod reap;
#[cfg(test)]
mod tests;

/// A job that runs for so long gets its log file, whether it has said something or not.
const LOG_AFTER: Duration = Duration::from_secs(1);

/// Everything a shim holds.
pub struct Jobs {
    shim: String,
    inherited: Vec<(OsString, OsString)>,
    templates: HashMap<u32, Rc<Prepared>>,
    /// By first process.
    running: HashMap<i32, Job>,
    processes: HashMap<AttemptKey, i32>,
    waiting: HashMap<u32, VecDeque<StartOrder>>,
    /// Waiting jobs are started in turn until this moment; absent before the first heartbeat of an agent.
    agent_alive_until: Option<BootInstant>,
    unacknowledged: BTreeMap<AttemptKey, Ended>,
    /// When those of them ended that did so before the machine started, in milliseconds since 1970.
    ended_earlier: HashMap<AttemptKey, i64>,
    /// First processes that have exited while something of their job may be left.
    ending: Vec<i32>,
    promotions: VecDeque<(BootInstant, i32, AttemptKey)>,
    /// Children that no longer have a parent of their own, and the job they belong to.
    strays: HashMap<i32, AttemptKey>,
    free_slots: BTreeSet<usize>,
    slots: usize,
    log_slots: LogSlots,
    start_log: StartLog,
    programs: Programs,
    children: Children,
    own_peak: OwnPeak,
    /// What the agent has to be told.
    pub news: Vec<FromShim>,
}

struct Job {
    key: AttemptKey,
    role: LeaseRole,
    name: String,
    devices: Vec<String>,
    nodes: Vec<String>,
    step_limit_ms: Option<u64>,
    is_warned: bool,
    prepared: Rc<Prepared>,
    /// Absent for jobs that another agent started: its classes mean nothing to this one.
    class: Option<u32>,
    slot: usize,
    started: BootInstant,
    exited: Option<(BootInstant, Outcome)>,
    rusage: Rusage,
    logs: Vec<Log>,
    ending: Option<(Ending, BootInstant)>,
    kill_at: Option<BootInstant>,
    left_processes: bool,
}

impl Job {
    fn new(order: StartOrder, prepared: Rc<Prepared>, slot: usize, logs: Vec<Log>, started: BootInstant) -> Self {
        Self {
            key: order.key,
            role: order.role,
            name: order.name,
            devices: order.devices,
            nodes: order.nodes,
            step_limit_ms: order.step_limit_ms,
            is_warned: false,
            prepared,
            class: Some(order.class),
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
}

impl Jobs {
    /// None run yet; `results` are those of an earlier shim.
    pub fn new(shim: &str, start_log: StartLog, results: Vec<LeftResult>) -> Self {
        let earlier = results.iter().filter(|result| result.is_of_earlier_boot());
        let ended_earlier = earlier.map(|result| (result.ended.key, result.ended_ms)).collect();
        Self {
            shim: shim.to_owned(),
            inherited: Vec::new(),
            templates: HashMap::new(),
            running: HashMap::new(),
            processes: HashMap::new(),
            waiting: HashMap::new(),
            agent_alive_until: None,
            unacknowledged: results.into_iter().map(|result| (result.ended.key, result.ended)).collect(),
            ended_earlier,
            ending: Vec::new(),
            promotions: VecDeque::new(),
            strays: HashMap::new(),
            free_slots: BTreeSet::new(),
            slots: 0,
            log_slots: LogSlots::new(shim),
            start_log,
            programs: Programs::default(),
            children: Children::open(),
            own_peak: OwnPeak::default(),
            news: Vec::new(),
        }
    }

    /// Nothing runs.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// The agent has to act on something: a place is free, or little is left to follow. Starts and ends that the shim went on
    /// from by itself can wait for more.
    pub fn has_urgent_news(&self) -> bool {
        self.waiting.values().map(VecDeque::len).sum::<usize>() < self.running.len()
            || !self.news.iter().all(|news| match news {
                FromShim::Started { .. } => true,
                FromShim::Ended(ended) => ended.successor.is_some(),
                _ => false,
            })
    }

    /// A new agent has come: everything that is held is told, and what follows inherits its environment.
    pub fn welcome(&mut self, environment: Vec<(OsString, OsString)>) {
        self.agent_left();
        self.inherited = environment;
        self.templates.clear();
        let mut running: Vec<(&i32, &mut Job)> = self.running.iter_mut().collect();
        running.sort_by_key(|(_, job)| job.key);
        for (pid, job) in running {
            job.class = None;
            self.news.push(FromShim::Running(RunningJob {
                key: job.key,
                role: job.role,
                name: job.name.clone(),
                started: job.started,
                pid: *pid,
                devices: job.devices.clone(),
                nodes: job.nodes.clone(),
                step_limit_ms: job.step_limit_ms,
                is_warned: job.is_warned,
                terms: job.prepared.template.terms.clone(),
                working_dir: job.prepared.template.working_dir.clone(),
                ending: job.ending,
            }));
        }
        for ended in self.unacknowledged.values() {
            let age_ms = self.ended_earlier.get(&ended.key).map(|ended_ms| ms_since(*ended_ms));
            self.news.push(FromShim::Ended(Ended { age_ms, ..ended.clone() }));
        }
        self.news.push(FromShim::Ready);
    }

    /// Nobody decides any more: what has not started does not start.
    pub fn agent_left(&mut self) {
        self.waiting.clear();
        self.agent_alive_until = None;
        self.news.clear();
    }

    /// What later starts have in common.
    pub fn define(&mut self, template: Template) {
        let prepared = Prepared::new(template, &self.inherited, &self.shim);
        self.templates.insert(prepared.template.id, Rc::new(prepared));
    }

    /// Starts a job, or lets it wait for its turn.
    pub fn order(&mut self, order: StartOrder) {
        if order.in_turn {
            self.waiting.entry(order.class).or_default().push_back(order);
        } else {
            self.start(order);
        }
    }

    /// A job need not wait for its turn any longer.
    pub fn start_now(&mut self, key: &AttemptKey) {
        if let Some(order) = self.take_waiting(key) {
            self.start(order);
        }
    }

    /// The agent counts as alive until this moment. The latest word counts, also if it is shorter than the one before.
    pub fn heartbeat(&mut self, alive_until: BootInstant) {
        self.agent_alive_until = Some(alive_until);
    }

    #[cfg(test)]
    pub(super) fn agent_alive_until(&self) -> Option<BootInstant> {
        self.agent_alive_until
    }

    /// These are not to be started. Those that have been are not named in the answer.
    pub fn revoke(&mut self, keys: &[AttemptKey]) {
        for key in keys {
            if self.take_waiting(key).is_some() {
                self.news.push(FromShim::Revoked(*key));
            }
        }
    }

    fn take_waiting(&mut self, key: &AttemptKey) -> Option<StartOrder> {
        self.waiting.values_mut().find_map(|queue| {
            let at = queue.iter().position(|order| order.key == *key)?;
            queue.remove(at)
        })
    }

    /// Their results are durable elsewhere.
    pub fn acknowledge(&mut self, keys: &[AttemptKey]) {
        for key in keys {
            self.unacknowledged.remove(key);
            self.ended_earlier.remove(key);
        }
    }

    /// Keeps what was done to a step.
    pub fn record(&mut self, record: &StepRecord) {
        let Some(job) = self.processes.get(&record.key).and_then(|pid| self.running.get_mut(pid)) else { return };
        job.step_limit_ms = record.step_limit_ms;
        job.is_warned = record.is_warned;
    }

    /// Ends a job: signal, lead, SIGKILL. Repeated, it can only become faster.
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

    /// Ends every job in order, because nobody is there to decide about it.
    pub fn terminate_all(&mut self, now: BootInstant) {
        let terms = |job: &Job| {
            let Terms { signal, lead_ms, .. } = job.prepared.template.terms;
            Termination { key: job.key, why: Ending::Stopped, signal, lead_ms }
        };
        let all: Vec<Termination> = self.running.values().map(terms).collect();
        for termination in all {
            self.terminate(&termination, now);
        }
    }

    /// Does what has become due.
    pub fn on_time(&mut self, now: BootInstant) {
        while let Some((_, pid, key)) = self.promotions.pop_front_if(|(due, ..)| *due <= now) {
            let Some(job) = self.running.get_mut(&pid).filter(|job| job.key == key) else { continue };
            for log in &mut job.logs {
                if let Err(error) = log.promote() {
                    self.news.push(FromShim::Problem(format!("cannot name the log of job {}: {error}", job.name)));
                }
            }
        }
        for (pid, job) in &mut self.running {
            if job.kill_at.is_some_and(|due| due <= now) {
                job.kill_at = None;
                signal_group(*pid, Signal::KILL);
                self.news.push(FromShim::Killed(job.key));
            }
        }
        self.settle();
    }

    /// When something becomes due next.
    pub fn next_time(&mut self, now: BootInstant) -> Option<BootInstant> {
        let is_over = |running: &HashMap<i32, Job>, pid: &i32, key: &AttemptKey| {
            running.get(pid).is_none_or(|job| job.key != *key)
        };
        while self.promotions.pop_front_if(|(_, pid, key)| is_over(&self.running, pid, key)).is_some() {}
        let promotion = self.promotions.front().map(|(due, ..)| *due);
        let kill = self.running.values().filter_map(|job| job.kill_at).min();
        // A process that is not ours yet sends us no signal when it goes.
        let recheck = (!self.ending.is_empty()).then(|| now.plus(Duration::from_millis(20)));
        [promotion, kill, recheck].into_iter().flatten().min()
    }

    fn start(&mut self, order: StartOrder) {
        let before = clock_now();
        if before > order.until {
            self.news.push(FromShim::Revoked(order.key));
            return;
        }
        let Some(prepared) = self.templates.get(&order.template).cloned() else {
            self.never_ran(&order, before, None, not_started(126, "its template is unknown"));
            return;
        };
        let log_dir = Path::new(&prepared.template.log_dir);
        let mut name = order.role.log_name(&order.key);
        if !order.role.is_job() {
            name = logs::unused_name(log_dir, &name);
        }
        let taken = self.log_slots.take(log_dir, prepared.template.stdio, &name);
        let logs = match taken {
            Ok(logs) => logs,
            Err(error) => {
                let message = format!("cannot write logs in {}: {error}", log_dir.display());
                self.never_ran(&order, before, Some(&prepared), not_started(126, message));
                return;
            }
        };
        let slot = self.free_slots.pop_first().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        });
        match self.spawn(&prepared, &order, &logs, slot) {
            Ok((pid, started)) => self.add_running(pid, Job::new(order, prepared, slot, logs, started)),
            Err(outcome) => {
                self.free_slots.insert(slot);
                self.log_slots.finish(logs, true);
                self.never_ran(&order, before, Some(&prepared), outcome);
            }
        }
    }

    /// Records the job, starts it, records its process.
    fn spawn(
        &mut self,
        prepared: &Prepared,
        order: &StartOrder,
        logs: &[Log],
        slot: usize,
    ) -> Result<(i32, BootInstant), Outcome> {
        let io = |error: std::io::Error| not_started(126, format!("cannot prepare the start: {error}"));
        let mut record =
            StartRecord { key: order.key, logs: logs.iter().map(Log::record).collect(), ..StartRecord::default() };
        self.start_log.set(slot, &record).map_err(io)?;
        let outputs = logs::outputs(logs).map_err(io)?;
        let before = clock_now();
        let pid = self.programs.spawn(prepared, order, outputs)?;
        record.started(pid, (before, clock_now()));
        if let Err(error) = self.start_log.set(slot, &record) {
            self.news.push(FromShim::Problem(format!("cannot record process {pid}: {error}")));
        }
        Ok((pid, before))
    }

    fn add_running(&mut self, pid: i32, job: Job) {
        self.promotions.push_back((job.started.plus(LOG_AFTER), pid, job.key));
        self.processes.insert(job.key, pid);
        self.news.push(FromShim::Started { key: job.key, at: job.started, pid });
        self.running.insert(pid, job);
    }

    fn never_ran(&mut self, order: &StartOrder, at: BootInstant, prepared: Option<&Prepared>, outcome: Outcome) {
        let mut ended = Ended::of(order.key, &order.name, (at, at), outcome);
        if let Some(prepared) = prepared {
            tell_terms(&mut ended, prepared);
        }
        self.report(ended, Some(order.class));
    }

    /// Keeps and tells a result, and gives the place to the next job whose turn it is.
    fn report(&mut self, ended: Ended, class: Option<u32>) {
        let next = class.and_then(|class| self.next_in_turn(class, clock_now()));
        // Known terms are not told again: the agent that is here knows them.
        let told = Ended {
            terms: None,
            working_dir: String::new(),
            successor: next.as_ref().map(|order| order.key),
            ..ended.clone()
        };
        // Who has not heard of the start yet need not hear of it any more.
        self.news.retain(|news| !matches!(news, FromShim::Started { key, .. } if *key == ended.key));
        self.news.push(FromShim::Ended(told));
        self.unacknowledged.insert(ended.key, ended);
        if let Some(order) = next {
            self.start(order);
        }
    }

    /// Takes the next job of a class that may be started now. While the agent is silent there is none, and everything goes on waiting:
    /// the agent learns that the place is empty, and starts or revokes the job itself when it is back.
    fn next_in_turn(&mut self, class: u32, now: BootInstant) -> Option<StartOrder> {
        if self.agent_alive_until.is_none_or(|until| until < now) {
            return None;
        }
        let queue = self.waiting.get_mut(&class)?;
        while let Some(order) = queue.pop_front() {
            if now <= order.until {
                return Some(order);
            }
            self.news.push(FromShim::Revoked(order.key));
        }
        None
    }

    /// Ends for good: what nobody acknowledged is given back, files go.
    pub fn close(mut self) -> Vec<LeftResult> {
        self.kill_strays();
        self.log_slots.remove();
        self.start_log.remove();
        let dated = |ended: Ended| match self.ended_earlier.get(&ended.key) {
            Some(ended_ms) => LeftResult { boot_id: String::new(), ended_ms: *ended_ms, ended },
            None => LeftResult { boot_id: procfs::boot_id(), ended_ms: date_ms(ended.ended), ended },
        };
        self.unacknowledged.into_values().map(dated).collect()
    }
}

fn tell_terms(ended: &mut Ended, prepared: &Prepared) {
    ended.terms = Some(Box::new(prepared.template.terms.clone()));
    ended.working_dir.clone_from(&prepared.template.working_dir);
}

/// Whether anybody was there to get it.
fn signal_group(leader: i32, signal: Signal) -> bool {
    Pid::from_raw(leader).is_some_and(|pid| kill_process_group(pid, signal).is_ok())
}
