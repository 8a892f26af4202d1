//! Writes to the journal in a task of its own, in order, so that a slow disk delays only the journal.

use std::time::Duration;

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use torc_api::causes::error_chain;
use torc_api::wire::{AttemptKey, JournalledResult};

use crate::clock;
use crate::journal::Journal;
use crate::state::AgentEvent;

/// Time for which an exiting runner waits for its last journal writes: network file systems may block for several
/// seconds.
const FINISH_TIMEOUT: Duration = Duration::from_secs(20);

/// An order to the journal's task.
enum JournalOrder {
    Write(Vec<JournalledResult>),
    Remove(Vec<AttemptKey>),
}

/// The event loop's handle of the journal.
pub struct JournalWriter {
    orders: UnboundedSender<JournalOrder>,
    task: JoinHandle<()>,
}

impl JournalWriter {
    /// Starts the task that executes orders and reports the outcome as events. Also returns events with the results of
    /// earlier runners in the same state folder, and the problems of reading them.
    pub async fn start(
        mut journal: Journal,
        events: UnboundedSender<AgentEvent>,
    ) -> (Self, Vec<AgentEvent>, Vec<String>) {
        let (left, problems) = journal.left().await;
        let now = clock::wall_ms();
        let age = |ended_ms: i64| Duration::from_millis(u64::try_from(now.saturating_sub(ended_ms)).unwrap_or(0));
        let recovered = left.into_iter().map(|result| (age(result.ended_ms), result));
        let recovered: Vec<_> = recovered.map(|(age, result)| (result, age)).collect();
        let first = if recovered.is_empty() { Vec::new() } else { vec![AgentEvent::Recovered(recovered)] };
        let (orders, mut received) = unbounded_channel();
        let task = tokio::spawn(async move {
            while let Some(order) = received.recv().await {
                // The event loop may have ended; the order is carried out all the same.
                let _ = events.send(execute_order(&mut journal, order).await);
            }
        });
        (Self { orders, task }, first, problems.iter().map(|problem| error_chain(problem)).collect())
    }

    /// Writes results. Their ages become times of day, which stay valid after a restart of the machine.
    pub fn write(&self, results: Vec<JournalledResult>) {
        let now = clock::wall_ms();
        let dated = results.into_iter().map(|mut result| {
            let age = i64::try_from(std::mem::take(&mut result.finished.ended_ms_ago)).unwrap_or(i64::MAX);
            result.ended_ms = now.saturating_sub(age);
            result
        });
        let _ = self.orders.send(JournalOrder::Write(dated.collect()));
    }

    /// Removes results that the server has.
    pub fn remove(&self, keys: Vec<AttemptKey>) {
        let _ = self.orders.send(JournalOrder::Remove(keys));
    }

    /// Waits until all orders are carried out.
    pub async fn finish(self) {
        drop(self.orders);
        let _ = timeout(FINISH_TIMEOUT, self.task).await;
    }
}

async fn execute_order(journal: &mut Journal, order: JournalOrder) -> AgentEvent {
    match order {
        JournalOrder::Write(results) => match journal.write(&results).await {
            Ok(()) => AgentEvent::Journalled(results.iter().map(|result| result.finished.key).collect()),
            Err(error) => AgentEvent::NotJournalled(error_chain(&error)),
        },
        // A result that stays is delivered again by the next runner, which has no effect.
        JournalOrder::Remove(keys) => match journal.remove(&keys).await {
            Ok(()) => AgentEvent::Tick,
            Err(error) => AgentEvent::Problem(error_chain(&error)),
        },
    }
}
