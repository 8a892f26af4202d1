//! Writes the journal beside the loop, one order after the other: a disk that hangs holds up nothing but the journal.

use std::time::Duration;

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use torc_api::causes::error_chain;
use torc_api::wire::{AttemptKey, JournalledResult};

use crate::clock;
use crate::journal::Journal;
use crate::state::AgentEvent;

/// How long a leaving runner waits for the disk.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the journal's task is told.
enum JournalOrder {
    Write(Vec<JournalledResult>),
    Remove(Vec<AttemptKey>),
}

/// The journal, as the loop sees it.
pub struct JournalWriter {
    orders: UnboundedSender<JournalOrder>,
    task: JoinHandle<()>,
}

impl JournalWriter {
    /// Looks for what earlier runners of this place left; from then on orders are carried out and answered with events.
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
                // The loop may have ended; what was ordered is done all the same.
                let _ = events.send(carry_out(&mut journal, order).await);
            }
        });
        (Self { orders, task }, first, problems.iter().map(|problem| error_chain(problem)).collect())
    }

    /// Writes results down; their age becomes a time of day.
    pub fn write(&self, results: Vec<JournalledResult>) {
        let now = clock::wall_ms();
        let dated = results.into_iter().map(|mut result| {
            let age = i64::try_from(std::mem::take(&mut result.finished.ended_ms_ago)).unwrap_or(i64::MAX);
            result.ended_ms = now.saturating_sub(age);
            result
        });
        let _ = self.orders.send(JournalOrder::Write(dated.collect()));
    }

    /// The server has these.
    pub fn remove(&self, keys: Vec<AttemptKey>) {
        let _ = self.orders.send(JournalOrder::Remove(keys));
    }

    /// Waits until everything that was ordered is done.
    pub async fn finish(self) {
        drop(self.orders);
        let _ = timeout(PATIENCE, self.task).await;
    }
}

async fn carry_out(journal: &mut Journal, order: JournalOrder) -> AgentEvent {
    match order {
        JournalOrder::Write(results) => match journal.write(&results).await {
            Ok(()) => AgentEvent::Journalled(results.iter().map(|result| result.finished.key).collect()),
            Err(error) => AgentEvent::NotJournalled(error_chain(&error)),
        },
        // What stays is delivered again by the next runner of this place, and changes nothing.
        JournalOrder::Remove(keys) => match journal.remove(&keys).await {
            Ok(()) => AgentEvent::Tick,
            Err(error) => AgentEvent::Problem(error_chain(&error)),
        },
    }
}
