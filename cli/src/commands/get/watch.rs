//! `torc get -w`: what changes after the list was printed.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use torc_api::api::{Event, Job, JobResult, Runner, RunnerStatus, Workflow};
use torc_api::status::WorkflowStatus;

use super::{GetArgs, Resource, workflow_id};
use crate::client::{Client, ClientError, WatchMessage};
use crate::commands::Context;
use crate::connection::{Connection, resolve_workflow};
use crate::error::{CommandError, ExitStatus};
use crate::output::{Listing, Output};
use crate::run_here::Interrupts;

/// How often a store that nobody serves is looked at for somebody who does.
const PAUSE: Duration = Duration::from_millis(500);

/// What has been printed.
pub struct Seen {
    /// The list as it was printed.
    pub listing: Listing,
    /// Workflows and how they stood.
    pub workflows: HashMap<i64, WorkflowStatus>,
    /// Jobs as they stood.
    pub jobs: HashMap<i64, Job>,
    /// Results by job, run and attempt.
    pub results: HashSet<(i64, i32, i32)>,
    /// Runners and what was said of them.
    pub runners: HashMap<i64, (RunnerStatus, i64, i64)>,
    /// The last event.
    pub sequence: i64,
}

impl Seen {
    /// Nothing yet.
    pub fn new(output: Output) -> Self {
        Self {
            listing: Listing::new(output),
            workflows: HashMap::new(),
            jobs: HashMap::new(),
            results: HashSet::new(),
            runners: HashMap::new(),
            sequence: 0,
        }
    }
}

/// What tells one result from another.
pub fn result_key(result: &JobResult) -> (i64, i32, i32) {
    (result.job_id, result.run_id, result.attempt)
}

/// What is looked at in a runner.
pub fn runner_key(runner: &Runner) -> (i64, (RunnerStatus, i64, i64)) {
    (runner.id, (runner.status, runner.running, runner.queued))
}

/// Prints changes until a person stops it.
pub async fn run(
    context: &Context,
    args: &GetArgs,
    connection: Connection,
    resource: Resource,
    name: Option<&str>,
    mut seen: Seen,
) -> Result<ExitStatus, CommandError> {
    let mut interrupts = Interrupts::listen()?;
    let mut next = Some(connection);
    loop {
        let connection = match next.take() {
            Some(connection) => connection,
            None => Connection::open(&context.settings, &context.folder).await?,
        };
        if connection.is_served() {
            let round = Round { args, client: connection.client(), resource, name };
            let ended = tokio::select! {
                ended = round.watch(&mut seen) => ended,
                () = interrupts.next() => return Ok(ExitStatus::Interrupted),
            };
            match ended {
                Err(error) if error.kind == ExitStatus::Unreachable && context.settings.url.is_none() => {}
                other => return other.map(|()| ExitStatus::Success),
            }
        } else {
            // Nothing changes while the store is ours; holding it would keep others from running.
            connection.close().await;
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = interrupts.next() => return Ok(ExitStatus::Interrupted),
        }
    }
}

struct Round<'a> {
    args: &'a GetArgs,
    client: &'a Client,
    resource: Resource,
    name: Option<&'a str>,
}

impl Round<'_> {
    async fn watch(&self, seen: &mut Seen) -> Result<(), CommandError> {
        let workflow = match self.resource {
            Resource::Jobs | Resource::Results => {
                let name = resolve_workflow(self.client, self.name).await?;
                workflow_id(self.client, Some(&name)).await?
            }
            Resource::Workflows | Resource::Events => workflow_id(self.client, self.name).await?,
            Resource::Runners => None,
        };
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

    /// What changed between the list and the watch, and what the watch does not say.
    async fn catch_up(&self, workflow: Option<i64>, seen: &mut Seen) -> Result<(), CommandError> {
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

    fn workflow(&self, mut workflow: Workflow, seen: &mut Seen) -> Result<(), CommandError> {
        workflow.document = None;
        let before = seen.workflows.insert(workflow.id, workflow.status.clone());
        if before.as_ref() == Some(&workflow.status) {
            return Ok(());
        }
        seen.listing.print(&[workflow])
    }

    async fn event(&self, event: Event, workflow: Option<i64>, seen: &mut Seen) -> Result<(), CommandError> {
        seen.sequence = seen.sequence.max(event.sequence);
        match (self.resource, workflow) {
            (Resource::Events, _) => seen.listing.print(&[event]),
            (Resource::Jobs, Some(id)) => {
                let moved = self.moved(&event, id, seen).await?;
                seen.listing.print(&moved)
            }
            _ => Ok(()),
        }
    }

    /// Jobs of an event, as they stand after it.
    async fn moved(&self, event: &Event, workflow: i64, seen: &mut Seen) -> Result<Vec<Job>, ClientError> {
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
