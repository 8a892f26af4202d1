//! The simulated server: the real engine state and its long polls, driven as `controller/src/engine/writer.rs` does.
//!
//! Every message is a group of its own. Its answers leave when the commit is over.

use std::collections::BTreeSet;
use std::time::Duration;

use torc_api::problem::Problem;
use torc_api::wire::{AttemptKey, RegisterRequest, SyncRequest, SyncResponse};
use torc_core::engine::{Apply, CommandError, Engine, LongPoll, LongPolls, Tx};
use torc_core::expand::{ExpansionLimits, expand};
use torc_core::ids::RunnerId;
use torc_runner::LinkError;
use torc_runner::state::AgentEvent;

use crate::document::document;
use crate::runner::Message;
use crate::time::Time;
use crate::workload::WorkflowPlan;

/// Interval at which the server looks for silent runners.
pub const TICK_INTERVAL: Duration = Duration::from_secs(1);

/// A document that the engine does not accept.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("workflow '{workflow}' cannot be expanded: {problems:?}")]
    Expand { workflow: String, problems: Vec<Problem> },
    #[error("workflow '{workflow}' cannot be written as JSON")]
    Write { workflow: String, source: serde_json::Error },
}

/// The engine, its long polls and its counters.
pub struct Server {
    engine: Engine,
    polls: LongPolls<Time, Reply>,
    commit: Duration,
    /// Leases that the server has revoked and whose runner has not confirmed it.
    revoked: BTreeSet<AttemptKey>,
    /// Number of leases that runners returned because the server had revoked them.
    pub lease_moves: u64,
    pub syncs: u64,
}

/// The runner that waits for an answer, by its index.
#[derive(Clone, Copy, Debug)]
struct Reply {
    runner: usize,
}

/// An answer to a runner.
#[derive(Debug)]
pub struct Answer {
    /// The index of the runner in the scenario.
    pub runner: usize,
    pub leaves: Time,
    /// The event for its agent.
    pub event: AgentEvent,
}

impl Server {
    /// Returns a server without workflows and runners.
    pub fn new(commit: Duration) -> Self {
        let engine = Engine::default();
        let polls = LongPolls::new(&engine);
        Self { engine, polls, commit, revoked: BTreeSet::new(), lease_moves: 0, syncs: 0 }
    }

    /// Returns whether all workflows have settled.
    pub fn is_idle(&self) -> bool {
        self.engine.is_idle()
    }

    /// Returns the time at which the first waiting sync has to be answered.
    pub fn next_timeout(&self) -> Option<Time> {
        self.polls.next_timeout()
    }

    /// Applies a workflow. Returns its number and the answers to runners that waited for work.
    pub fn apply(&mut self, plan: &WorkflowPlan, now: Time) -> Result<(i64, Vec<Answer>), ApplyError> {
        let workflow = || plan.name.clone();
        let document = document(plan);
        let expanded = expand(&document.spec, &ExpansionLimits::default())
            .map_err(|problems| ApplyError::Expand { workflow: workflow(), problems })?;
        let apply = Apply {
            document: &document,
            expanded: &expanded,
            owner: &plan.owner,
            working_dir: "/simulated",
            store_only: false,
        };
        let mut tx = self.engine.begin(now.engine_now());
        let applied =
            self.engine.apply(&apply, &mut tx).map_err(|source| ApplyError::Write { workflow: workflow(), source })?;
        Ok((applied.id.unwrap_or_default(), self.finish(tx, Vec::new(), now)))
    }

    /// Handles a message of a runner.
    pub fn receive(&mut self, runner: usize, message: Message, now: Time) -> Vec<Answer> {
        let mut tx = self.engine.begin(now.engine_now());
        let answer = match message {
            Message::Register(request) => Some(self.register(&request, &mut tx)),
            Message::Sync(id, request) => self.sync(Reply { runner }, RunnerId(id), request, &mut tx, now),
        };
        let answers = answer.into_iter().map(|event| (Reply { runner }, event)).collect();
        self.finish(tx, answers, now)
    }

    /// Looks for silent runners.
    pub fn tick(&mut self, now: Time) -> Vec<Answer> {
        let mut tx = self.engine.begin(now.engine_now());
        self.engine.expire(&mut tx);
        self.finish(tx, Vec::new(), now)
    }

    /// Answers syncs that have waited for long enough.
    pub fn answer_timeouts(&mut self, now: Time) -> Vec<Answer> {
        self.finish(self.engine.begin(now.engine_now()), Vec::new(), now)
    }

    fn register(&mut self, request: &RegisterRequest, tx: &mut Tx) -> AgentEvent {
        match self.engine.register(request, tx) {
            Ok(response) => AgentEvent::Registered(response),
            Err(refusal) => AgentEvent::NotRegistered(link_error(&refusal)),
        }
    }

    fn sync(
        &mut self,
        reply: Reply,
        id: RunnerId,
        request: Box<SyncRequest>,
        tx: &mut Tx,
        now: Time,
    ) -> Option<AgentEvent> {
        self.syncs += 1;
        self.count_moves(&request);
        match self.engine.sync(id, &request, tx) {
            Ok(answer) => match answer.wait(&request) {
                Some(wait) => {
                    self.polls.park(LongPoll { runner: id, request, until: now.plus(wait), reply });
                    None
                }
                None => Some(self.answered(answer.response)),
            },
            Err(refusal) => Some(AgentEvent::NotAnswered(request.sequence, link_error(&refusal))),
        }
    }

    fn count_moves(&mut self, request: &SyncRequest) {
        for key in &request.returned {
            self.lease_moves += u64::from(self.revoked.remove(key));
        }
    }

    fn answered(&mut self, response: SyncResponse) -> AgentEvent {
        self.revoked.extend(&response.give_back);
        AgentEvent::Answered(Box::new(response))
    }

    /// Answers waiting syncs for which there is news, and ends the group.
    fn finish(&mut self, mut tx: Tx, mut answers: Vec<(Reply, AgentEvent)>, now: Time) -> Vec<Answer> {
        let waiting = self.polls.answer(&mut self.engine, &mut tx, now, false);
        for (reply, response) in waiting {
            let event = self.answered(response);
            answers.push((reply, event));
        }
        let changes = self.engine.finish(tx);
        // The writer skips a commit without changes.
        let leaves = if changes.is_empty() { now } else { now.plus(self.commit) };
        answers.into_iter().map(|(reply, event)| Answer { runner: reply.runner, leaves, event }).collect()
    }
}

/// Converts an error to the one that a runner gets over HTTP.
fn link_error(refusal: &CommandError) -> LinkError {
    match refusal {
        CommandError::NoRunner(_) => LinkError::Unknown,
        other => LinkError::Refused { code: "Refused".to_owned(), message: other.to_string() },
    }
}
