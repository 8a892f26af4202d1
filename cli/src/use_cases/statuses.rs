//! Waiting for workflows, on the server's watch of statuses.

use std::time::{Duration, Instant};

use torc_api::api::Workflow;
use torc_core::backoff::Backoff;

use crate::client::{Client, ClientError, WatchMessage};

/// Time without an answer after which the owner of a store on this machine counts as gone.
pub const LOCAL_TIMEOUT: Duration = Duration::from_millis(500);
/// Time without an answer after which a server elsewhere counts as gone: it may be restarting.
pub const REMOTE_TIMEOUT: Duration = Duration::from_secs(120);

/// A sequence number after all events. The server then sends statuses only: the events of a large workflow are many.
const AFTER_ALL_EVENTS: i64 = i64::MAX;
/// Age at which a watch is opened again. It bounds the time in which a deletion or a broken connection goes unnoticed.
const RESYNC_INTERVAL: Duration = Duration::from_secs(5);
/// Shortest and longest delay before an unreachable server is tried again.
const RETRY_INTERVALS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(250));

/// Waits until `is_reached` holds for the latest status of each workflow, and returns these statuses in the order of `ids`.
///
/// Calls `is_reached` with every status that the server sends. Returns `None` when the server does not answer for `timeout`.
pub async fn wait_until(
    client: &Client,
    ids: &[i64],
    timeout: Duration,
    mut is_reached: impl FnMut(&Workflow) -> bool,
) -> Result<Option<Vec<Workflow>>, ClientError> {
    let mut retry = Backoff::new(RETRY_INTERVALS.0, RETRY_INTERVALS.1);
    let mut unreachable_since: Option<Instant> = None;
    loop {
        let mut statuses = Statuses::new(ids);
        let watched = tokio::time::timeout(RESYNC_INTERVAL, statuses.watch(client, &mut is_reached)).await;
        if statuses.has_answer() {
            unreachable_since = None;
            retry.reset();
        }
        match watched {
            Ok(Ok(())) => return Ok(Some(statuses.into_workflows())),
            Err(_) => continue,
            Ok(Err(error)) if !error.is_unreachable() => return Err(error),
            Ok(Err(_)) => {}
        }
        if unreachable_since.get_or_insert_with(Instant::now).elapsed() > timeout {
            return Ok(None);
        }
        tokio::time::sleep(retry.next_delay()).await;
    }
}

/// Returns the workflows with these ids, without their documents.
pub async fn fetch_workflows(client: &Client, ids: &[i64]) -> Result<Vec<Workflow>, ClientError> {
    let all = client.workflows().await?;
    let find = |id: &i64| all.iter().find(|workflow| workflow.id == *id).cloned();
    ids.iter().map(|id| find(id).ok_or(ClientError::Deleted { id: *id })).collect()
}

/// The latest status of each watched workflow.
struct Statuses<'a> {
    ids: &'a [i64],
    /// Each workflow that has sent a status, and whether it has reached the condition.
    latest: Vec<(Workflow, bool)>,
}

impl<'a> Statuses<'a> {
    fn new(ids: &'a [i64]) -> Self {
        Self { ids, latest: Vec::new() }
    }

    fn has_answer(&self) -> bool {
        !self.latest.is_empty()
    }

    fn all_reached(&self) -> bool {
        self.latest.len() == self.ids.len() && self.latest.iter().all(|(_, reached)| *reached)
    }

    /// Reads statuses until all workflows have reached the condition.
    async fn watch(
        &mut self,
        client: &Client,
        is_reached: &mut impl FnMut(&Workflow) -> bool,
    ) -> Result<(), ClientError> {
        // One workflow has a stream of its own; several share the stream of all, to open one connection only.
        let only = match self.ids {
            [only] => Some(*only),
            _ => None,
        };
        if only.is_none() {
            // The stream of all says nothing about a deleted workflow.
            for workflow in fetch_workflows(client, self.ids).await? {
                self.update(workflow, is_reached);
            }
        }
        let mut watch = client.watch(only, Some(AFTER_ALL_EVENTS)).await?;
        while !self.all_reached() {
            if let WatchMessage::Status(workflow) = watch.next().await?
                && self.ids.contains(&workflow.id)
            {
                self.update(*workflow, is_reached);
            }
        }
        Ok(())
    }

    fn update(&mut self, workflow: Workflow, is_reached: &mut impl FnMut(&Workflow) -> bool) {
        let reached = is_reached(&workflow);
        match self.latest.iter_mut().find(|(known, _)| known.id == workflow.id) {
            Some(known) => *known = (workflow, reached),
            None => self.latest.push((workflow, reached)),
        }
    }

    fn into_workflows(self) -> Vec<Workflow> {
        let mut workflows: Vec<Workflow> = self.latest.into_iter().map(|(workflow, _)| workflow).collect();
        workflows.sort_by_key(|workflow| self.ids.iter().position(|id| *id == workflow.id));
        workflows
    }
}

#[cfg(test)]
mod tests {
    use torc_api::status::JobCounts;

    use super::*;
    use crate::workflow_phase::tests::workflow;

    #[test]
    fn all_workflows_must_reach_the_condition() {
        let status =
            |id: i64, completed: i64| Workflow { id, ..workflow(JobCounts { completed, ..JobCounts::default() }, &[]) };
        let ids = [7, 3];
        let mut statuses = Statuses::new(&ids);
        let mut is_reached = |workflow: &Workflow| workflow.status.jobs.completed == 1;
        assert!(!statuses.has_answer());
        for (id, completed, expected) in [(3, 1, false), (7, 0, false), (7, 1, true), (3, 0, false), (3, 1, true)] {
            statuses.update(status(id, completed), &mut is_reached);
            assert_eq!((statuses.has_answer(), statuses.all_reached()), (true, expected), "{id} {completed}");
        }
        let ids: Vec<i64> = statuses.into_workflows().iter().map(|workflow| workflow.id).collect();
        assert_eq!(ids, [7, 3], "in the order of the ids");
    }

    #[test]
    fn a_local_owner_counts_as_gone_sooner_than_a_server() {
        assert_eq!((LOCAL_TIMEOUT.as_millis(), REMOTE_TIMEOUT.as_secs()), (500, 120));
        assert_eq!((RETRY_INTERVALS.0.as_millis(), RETRY_INTERVALS.1.as_millis()), (20, 250));
    }
}
