//! The simulated shim of one runner: orders that wait for their turn, and processes that only take time.
//!
//! It follows `runner/src/shim/jobs.rs`: an order in turn starts in the place of a job of its class that has ended.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use torc_api::wire::AttemptKey;
use torc_runner::protocol::{JobExit, Outcome, StartOrder, StopReason, Termination};
use torc_runner::state::AgentEvent;

use crate::time::Time;

/// The number of SIGKILL.
const SIGKILL: i32 = 9;

/// The shim of a runner.
#[derive(Debug, Default)]
pub struct Shim {
    start_overhead: Duration,
    /// Orders in turn, by class.
    waiting: BTreeMap<u32, VecDeque<PlannedStart>>,
    processes: BTreeMap<AttemptKey, Process>,
    last_pid: i32,
}

/// An order, and how long its process will run.
#[derive(Debug)]
pub struct PlannedStart {
    pub order: StartOrder,
    pub duration: Duration,
}

#[derive(Debug)]
struct Process {
    class: u32,
    pid: i32,
    started: Time,
    ends: Time,
    outcome: Outcome,
    ending: Option<StopReason>,
}

impl Process {
    /// Agents report a job that was asked to stop as stopped, even if it exits with 0. Only one that is out of time may succeed.
    fn has_succeeded(&self) -> bool {
        self.outcome == Outcome::Exited(0) && self.ending.is_none_or(|why| why == StopReason::Timeout)
    }
}

/// Output of a shim: a message now, or the end of a process later.
#[derive(Debug)]
pub enum ShimOutput {
    /// For the agent, now.
    Event(AgentEvent),
    /// A process was ordered and starts at this time.
    Starts { key: AttemptKey, name: String, at: Time },
    /// [`Shim::check_process`] is to be called at this time.
    Check { key: AttemptKey, at: Time },
    /// A process has ended.
    Exited { key: AttemptKey, succeeded: bool },
}

impl Shim {
    /// Returns a shim without processes.
    pub fn new(start_overhead: Duration) -> Self {
        Self { start_overhead, ..Self::default() }
    }

    /// Starts a job, or lets it wait for its turn.
    pub fn order(&mut self, start: PlannedStart, now: Time, out: &mut Vec<ShimOutput>) {
        if start.order.in_turn {
            self.waiting.entry(start.order.class).or_default().push_back(start);
        } else {
            self.start(start, now, out);
        }
    }

    /// Starts a job that need not wait for its turn any longer.
    pub fn start_waiting(&mut self, key: &AttemptKey, now: Time, out: &mut Vec<ShimOutput>) {
        if let Some(start) = self.take_waiting(key) {
            self.start(start, now, out);
        }
    }

    /// Removes orders that have not started. Others are not answered.
    pub fn revoke(&mut self, keys: &[AttemptKey], out: &mut Vec<ShimOutput>) {
        for key in keys {
            if self.take_waiting(key).is_some() {
                out.push(ShimOutput::Event(AgentEvent::Revoked(*key)));
            }
        }
    }

    /// Ends a process when the lead is over: a simulated process ignores the first signal.
    pub fn terminate(&mut self, termination: &Termination, now: Time, out: &mut Vec<ShimOutput>) {
        let Some(process) = self.processes.get_mut(&termination.key) else { return };
        process.ending.get_or_insert(termination.why);
        let killed = now.plus(Duration::from_millis(termination.lead_ms)).max(process.started);
        if killed < process.ends {
            process.ends = killed;
            process.outcome = Outcome::Signaled(SIGKILL);
            out.push(ShimOutput::Check { key: termination.key, at: killed });
        }
    }

    /// Reports the start or the end of a process, if one of them is due.
    pub fn check_process(&mut self, key: AttemptKey, now: Time, out: &mut Vec<ShimOutput>) {
        let Some(process) = self.processes.get(&key) else { return };
        if process.started == now && process.ends > now {
            out.push(ShimOutput::Event(AgentEvent::Started(key, now.moment(), process.pid)));
        } else if process.ends == now {
            self.exit(key, now, out);
        }
    }

    fn exit(&mut self, key: AttemptKey, now: Time, out: &mut Vec<ShimOutput>) {
        let Some(process) = self.processes.remove(&key) else { return };
        out.push(ShimOutput::Exited { key, succeeded: process.has_succeeded() });
        let next = self.next_in_turn(process.class, now, out);
        let ended = JobExit {
            ending: process.ending,
            successor: next.as_ref().map(|start| start.order.key),
            ..JobExit::new(key, process.started.moment(), now.moment(), process.outcome)
        };
        out.push(ShimOutput::Event(AgentEvent::Ended(Box::new(ended))));
        if let Some(start) = next {
            self.start(start, now, out);
        }
    }

    fn start(&mut self, start: PlannedStart, now: Time, out: &mut Vec<ShimOutput>) {
        let PlannedStart { order, duration } = start;
        if now.moment() > order.until {
            out.push(ShimOutput::Event(AgentEvent::Revoked(order.key)));
            return;
        }
        let started = now.plus(self.start_overhead);
        let ends = started.plus(duration);
        self.last_pid += 1;
        out.push(ShimOutput::Starts { key: order.key, name: order.name, at: started });
        for at in [started, ends] {
            out.push(ShimOutput::Check { key: order.key, at });
        }
        let process = Process {
            class: order.class,
            pid: self.last_pid,
            started,
            ends,
            outcome: Outcome::Exited(0),
            ending: None,
        };
        self.processes.insert(order.key, process);
    }

    fn next_in_turn(&mut self, class: u32, now: Time, out: &mut Vec<ShimOutput>) -> Option<PlannedStart> {
        let queue = self.waiting.get_mut(&class)?;
        while let Some(start) = queue.pop_front() {
            if now.moment() <= start.order.until {
                return Some(start);
            }
            out.push(ShimOutput::Event(AgentEvent::Revoked(start.order.key)));
        }
        None
    }

    fn take_waiting(&mut self, key: &AttemptKey) -> Option<PlannedStart> {
        self.waiting.values_mut().find_map(|queue| {
            let at = queue.iter().position(|start| start.order.key == *key)?;
            queue.remove(at)
        })
    }
}
