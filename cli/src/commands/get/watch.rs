//! `torc get -w`: changes after the list was printed.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;

use torc_api::allocation::Allocation;
use torc_api::api::{Event, Job, JobResult, Runner, RunnerStatus, Workflow, WorkflowAction};
use torc_api::status::WorkflowStatus;

use super::{GetArgs, Resource, workflow_id};
use crate::client::{Client, ClientError, WatchMessage};
use crate::connection::{ServerConnection, resolve_workflow};
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::output::{Listing, Printer};
use crate::use_cases::watch_store::watch_store;

/// The state that the output shows so far.
pub struct PrintedState {
    /// The printer of the list, which keeps column widths.
    pub listing: Listing,
    /// Statuses of workflows by workflow id.
    pub workflows: HashMap<i64, WorkflowStatus>,
    pub jobs: HashMap<i64, Job>,
    /// Results by job, run and attempt.
    pub results: HashSet<(i64, i32, i32)>,
    pub actions: HashMap<i64, WorkflowAction>,
    pub allocations: HashMap<i64, Allocation>,
    /// Status and number of running and queued jobs by runner id.
    pub runners: HashMap<i64, (RunnerStatus, i64, i64)>,
    /// The sequence number of the last event.
    pub sequence: i64,
}

impl PrintedState {
    /// Returns the state before anything is printed.
    pub fn new(output: Printer) -> Self {
        Self {
            listing: Listing::new(output),
            workflows: HashMap::new(),
            jobs: HashMap::new(),
            results: HashSet::new(),
            actions: HashMap::new(),
            allocations: HashMap::new(),
            runners: HashMap::new(),
            sequence: 0,
        }
    }
}

/// Returns the job, run and attempt of a result.
pub fn result_key(result: &JobResult) -> (i64, i32, i32) {
    (result.job_id, result.run_id, result.attempt)
}

/// Returns the id of a runner and the values whose changes are printed.
pub fn runner_key(runner: &Runner) -> (i64, (RunnerStatus, i64, i64)) {
    (runner.id, (runner.status, runner.running, runner.queued))
}

/// Prints changes until the user interrupts the command. Continues after the last event when another process serves the store.
pub async fn run(
    context: &CommandContext,
    args: &GetArgs,
    connection: ServerConnection,
    resource: Resource,
    name: Option<&str>,
    mut seen: PrintedState,
) -> Result<ExitStatus, CliError> {
    let poll = async |connection: &ServerConnection| -> Result<Option<Infallible>, CliError> {
        let round = WatchRound { args, client: connection.client(), resource, name };
        if connection.is_served() {
            round.watch(&mut seen).await?;
        } else {
            round.replay(&mut seen).await?;
        }
        Ok(None)
    };
    watch_store(context, connection, None, poll).await?;
    Ok(ExitStatus::Interrupted)
}

struct WatchRound<'a> {
    args: &'a GetArgs,
    client: &'a Client,
    resource: Resource,
    name: Option<&'a str>,
}

impl WatchRound<'_> {
    /// Returns the watched workflow; `None` for all.
    async fn workflow_id(&self) -> Result<Option<i64>, CliError> {
        match self.resource {
            Resource::Jobs | Resource::Results | Resource::Actions => {
                let name = resolve_workflow(self.client, self.name).await?;
                workflow_id(self.client, Some(&name)).await
            }
            Resource::Workflows | Resource::Events | Resource::Allocations => workflow_id(self.client, self.name).await,
            Resource::Runners | Resource::Files | Resource::UserData | Resource::SlurmClusters | Resource::Audit => {
                Ok(None)
            }
        }
    }

    /// Prints the changes since the last event, from a store without an owner.
    async fn replay(&self, seen: &mut PrintedState) -> Result<(), CliError> {
        let workflow = self.workflow_id().await?;
        for event in self.client.events(workflow, Some(seen.sequence), None).await? {
            self.event(event, workflow, seen).await?;
        }
        self.catch_up(workflow, seen).await
    }

    async fn watch(&self, seen: &mut PrintedState) -> Result<(), CliError> {
        let workflow = self.workflow_id().await?;
        let mut watch = self.client.watch(workflow, Some(seen.sequence)).await?;
        self.catch_up(workflow, seen).await?;
        loop {
            match watch.next().await? {
                WatchMessage::Status(status) if self.resource == Resource::Workflows => self.workflow(*status, seen)?,
                WatchMessage::Event(event) => self.event(event, workflow, seen).await?,
                WatchMessage::Status(_) => self.catch_up(workflow, seen).await?,
            }
        }
    }

    /// Prints changes between the list and the watch, and changes of resources that the watch does not contain.
    async fn catch_up(&self, workflow: Option<i64>, seen: &mut PrintedState) -> Result<(), CliError> {
        match (self.resource, workflow) {
            (Resource::Workflows, None) => {
                for workflow in self.client.workflows().await? {
                    self.workflow(workflow, seen)?;
                }
            }
            (Resource::Workflows, Some(id)) => self.workflow(self.client.workflow(&id.to_string()).await?, seen)?,
            (Resource::Results, Some(id)) => {
                let mut results =
                    self.client.results(&id.to_string(), &self.args.result_filter(), self.args.limit).await?;
                results.retain(|result| seen.results.insert(result_key(result)));
                seen.listing.print(&results)?;
            }
            (Resource::Actions, Some(id)) => {
                let mut actions = self.client.actions(&id.to_string()).await?;
                actions.retain(|action| seen.actions.insert(action.id, action.clone()).as_ref() != Some(action));
                seen.listing.print(&actions)?;
            }
            (Resource::Allocations, workflow) => {
                let workflow = workflow.map(|id| id.to_string());
                let mut allocations = self.client.allocations(workflow.as_deref(), self.args.limit).await?;
                allocations.retain(|one| seen.allocations.insert(one.id, one.clone()).as_ref() != Some(one));
                seen.listing.print(&allocations)?;
            }
            (Resource::Runners, _) => {
                let mut runners = self.client.runners(self.args.all).await?;
                runners.retain(|runner| {
                    let (id, key) = runner_key(runner);
                    seen.runners.insert(id, key) != Some(key)
                });
                seen.listing.print(&runners)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn workflow(&self, mut workflow: Workflow, seen: &mut PrintedState) -> Result<(), CliError> {
        workflow.document = None;
        let before = seen.workflows.insert(workflow.id, workflow.status.clone());
        if before.as_ref() == Some(&workflow.status) {
            return Ok(());
        }
        seen.listing.print(&[workflow])
    }

    async fn event(&self, event: Event, workflow: Option<i64>, seen: &mut PrintedState) -> Result<(), CliError> {
        seen.sequence = seen.sequence.max(event.sequence);
        match (self.resource, workflow) {
            (Resource::Events, _) => seen.listing.print(&[event]),
            (Resource::Jobs, Some(id)) => {
                let moved = self.moved(&event, id, seen).await?;
                seen.listing.print(&moved)
            }
            (Resource::Actions, Some(_)) => self.catch_up(workflow, seen).await,
            (Resource::Allocations, _) if event.jobs.is_empty() => self.catch_up(workflow, seen).await,
            _ => Ok(()),
        }
    }

    /// Returns the jobs of an event in their new states.
    async fn moved(&self, event: &Event, workflow: i64, seen: &mut PrintedState) -> Result<Vec<Job>, ClientError> {
        let mut moved = Vec::new();
        for transition in &event.jobs {
            let job = match seen.jobs.get(&transition.id) {
                Some(known) => Job {
                    status: transition.status,
                    attempt: transition.attempt,
                    start_time: None,
                    node: None,
                    ..known.clone()
                },
                None if self.is_filtered() => continue,
                None => self.client.job(&workflow.to_string(), &transition.id.to_string()).await?,
            };
            seen.jobs.insert(job.id, job.clone());
            moved.push(job);
        }
        Ok(moved)
    }

    fn is_filtered(&self) -> bool {
        self.args.job.is_some() || self.args.contains.is_some() || !self.args.status.is_empty()
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn keys_identify_results_and_runners() {
        let result: JobResult = serde_json::from_value(
            serde_json::json!({ "workflow": "w", "job": "j", "jobId": 3, "runId": 4, "attempt": 5,
            "status": "completed", "endTime": "t", "durationSeconds": 1.0 }),
        )
        .expect("a result");
        assert_eq!(result_key(&result), (3, 4, 5));
        let runner: Runner = serde_json::from_value(serde_json::json!({ "id": 4, "host": "h", "pid": 7, "kind": "local", "status": "silent",
            "capacity": { "cpus": 1, "memoryBytes": 1, "gpus": 0, "nodes": 1 }, "version": "1", "queued": 2, "running": 3, "startTime": "t" })).expect("a runner");
        assert_eq!(runner_key(&runner), (4, (RunnerStatus::Silent, 3, 2)));
    }

    #[test]
    fn a_filter_hides_jobs_that_were_not_listed() {
        let client = Client::new("http://127.0.0.1:1", None, &crate::client::Trust::System, None).expect("a client");
        let filtered = |args: GetArgs| {
            WatchRound { args: &args, client: &client, resource: Resource::Jobs, name: None }.is_filtered()
        };
        assert!(!filtered(GetArgs::default()));
        assert!(filtered(GetArgs { job: Some("j".to_owned()), ..GetArgs::default() }));
        assert!(filtered(GetArgs { contains: Some("c".to_owned()), ..GetArgs::default() }));
        assert!(filtered(GetArgs { status: vec![torc_api::state::JobState::Ready], ..GetArgs::default() }));
    }
}
