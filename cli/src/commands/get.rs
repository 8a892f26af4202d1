//! `torc get`: list resources.

mod watch;

use std::collections::HashMap;

use clap::{Args, ValueEnum};
use torc_api::filter::{JobFilter, ResultFilter};
use torc_api::state::JobState;

use crate::client::Client;
use crate::connection::{ServerConnection, bare_name, explain_missing, resolve_workflow};
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::output::WithNamespace;

/// List workflows, jobs, results and other resources
#[derive(Debug, Default, Args)]
pub struct GetArgs {
    /// workflows, jobs, results, actions, runners, allocations, slurmclusters, events, files, user-data or audit; also `workflow/NAME`
    #[arg(value_name = "RESOURCE")]
    pub resource: String,
    /// Workflow by name or number (default: the only one in the store)
    #[arg(value_name = "WORKFLOW")]
    pub workflow: Option<String>,
    /// After the list, print changes until interrupted
    #[arg(short = 'w', long)]
    pub watch: bool,
    /// Jobs and results: list only these states, e.g. `failed,terminated`
    #[arg(long, value_delimiter = ',', value_name = "STATES", value_parser = parse_state)]
    pub status: Vec<JobState>,
    /// Jobs and results: list only the job with this name (results: name or number)
    #[arg(long, value_name = "NAME")]
    pub job: Option<String>,
    /// Jobs: list only names that contain this text
    #[arg(long, value_name = "TEXT")]
    pub contains: Option<String>,
    /// Results: list only this run (default: all runs)
    #[arg(long, value_name = "RUN")]
    pub run: Option<i32>,
    /// Results: list only those that did not succeed
    #[arg(long)]
    pub failed: bool,
    /// Results: list only this exit code, e.g. 137
    #[arg(long, value_name = "CODE", allow_negative_numbers = true)]
    pub return_code: Option<i32>,
    /// Results: list only the latest of each job
    #[arg(long)]
    pub latest: bool,
    /// Runners: include those that have exited
    #[arg(long)]
    pub all: bool,
    /// Workflows: list all namespaces
    #[arg(short = 'A', long, conflicts_with = "workflow")]
    pub all_namespaces: bool,
    /// Maximum number of items (default: no limit)
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
}

/// A kind of resource that can be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Resource {
    #[value(aliases = ["workflow", "wf", "twf"])]
    Workflows,
    #[value(alias = "job")]
    Jobs,
    #[value(alias = "result")]
    Results,
    #[value(alias = "action")]
    Actions,
    #[value(alias = "runner")]
    Runners,
    #[value(aliases = ["allocation", "allocs", "alloc"])]
    Allocations,
    #[value(name = "slurmclusters", aliases = ["slurmcluster", "slc"])]
    SlurmClusters,
    #[value(aliases = ["event", "ev"])]
    Events,
    #[value(alias = "file")]
    Files,
    #[value(aliases = ["userdata", "user_data"])]
    UserData,
    Audit,
}

/// Parses a job state on the command line.
pub fn parse_state(text: &str) -> Result<JobState, String> {
    text.parse()
}

impl GetArgs {
    /// Returns the resource and the name, which may be part of it as in `workflow/NAME`.
    fn target(&self) -> Result<(Resource, Option<&str>), CliError> {
        let (kind, name) = match self.resource.split_once('/') {
            Some((kind, name)) => (kind, Some(name)),
            None => (self.resource.as_str(), None),
        };
        let resource = Resource::from_str(kind, true).map_err(|_| {
            CliError::usage(format!("unknown resource `{kind}`"))
                .hint("use workflows, jobs, results, actions, runners, allocations, slurmclusters, events, files, user-data or audit")
        })?;
        Ok((resource, name.or(self.workflow.as_deref().map(bare_name))))
    }

    fn job_filter(&self) -> JobFilter {
        JobFilter {
            status: self.status.clone(),
            name: self.job.clone(),
            contains: self.contains.clone(),
            ..JobFilter::default()
        }
    }

    fn result_filter(&self) -> ResultFilter {
        ResultFilter {
            job: self.job.clone(),
            run: self.run,
            status: self.status.clone(),
            failed: self.failed,
            return_code: self.return_code,
            latest: self.latest,
            ..ResultFilter::default()
        }
    }
}

pub async fn run(context: &CommandContext, args: &GetArgs) -> Result<ExitStatus, CliError> {
    let (resource, name) = args.target()?;
    let unwatched = [Resource::Files, Resource::UserData, Resource::SlurmClusters, Resource::Audit];
    if args.watch && unwatched.contains(&resource) {
        let message = "--watch does not support files, user-data, slurmclusters and audit";
        return Err(CliError::usage(message).hint("run the command without --watch"));
    }
    if args.all_namespaces && (args.watch || resource != Resource::Workflows || name.is_some()) {
        return Err(CliError::usage("--all-namespaces applies only to `torc get workflows`")
            .hint("leave it out, or select a namespace with -n"));
    }
    let mut seen = watch::PrintedState::new(context.output);
    let connection = ServerConnection::open(&context.settings, &context.folder).await?;
    let listed = first(args, connection.client(), resource, name, &mut seen).await;
    if let Err(error) = listed {
        connection.close().await;
        return Err(error);
    }
    if !args.watch {
        connection.close().await;
        return Ok(ExitStatus::Success);
    }
    watch::run(context, args, connection, resource, name, seen).await
}

/// Prints the list. Reads the last event number first, so that a watch continues after it.
async fn first(
    args: &GetArgs,
    client: &Client,
    resource: Resource,
    name: Option<&str>,
    seen: &mut watch::PrintedState,
) -> Result<(), CliError> {
    if args.watch {
        seen.sequence = client.last_sequence().await?;
    }
    list(args, client, resource, name, seen).await
}

async fn list(
    args: &GetArgs,
    client: &Client,
    resource: Resource,
    name: Option<&str>,
    seen: &mut watch::PrintedState,
) -> Result<(), CliError> {
    match resource {
        Resource::Workflows if args.all_namespaces => {
            let mut workflows = client.workflows_everywhere().await?;
            workflows.truncate(args.limit.unwrap_or(usize::MAX));
            seen.listing.print(&workflows.into_iter().map(WithNamespace).collect::<Vec<_>>())?;
        }
        Resource::Workflows => {
            let workflows = match name {
                Some(name) => vec![client.workflow(name).await.map_err(explain_missing)?],
                None => match args.limit {
                    Some(limit) => client.first_workflows(limit).await?,
                    None => client.workflows().await?,
                },
            };
            seen.listing.print(&workflows)?;
            seen.workflows = workflows.into_iter().map(|workflow| (workflow.id, workflow.status)).collect();
        }
        Resource::Jobs => {
            let workflow = resolve_workflow(client, name).await?;
            let jobs = client.jobs(&workflow, &args.job_filter(), args.limit).await.map_err(explain_missing)?;
            seen.listing.print(&jobs)?;
            seen.jobs = jobs.into_iter().map(|job| (job.id, job)).collect::<HashMap<_, _>>();
        }
        Resource::Results => {
            let workflow = resolve_workflow(client, name).await?;
            let results =
                client.results(&workflow, &args.result_filter(), args.limit).await.map_err(explain_missing)?;
            seen.listing.print(&results)?;
            seen.results = results.iter().map(watch::result_key).collect();
        }
        Resource::Actions => {
            let workflow = resolve_workflow(client, name).await?;
            let mut actions = client.actions(&workflow).await.map_err(explain_missing)?;
            actions.truncate(args.limit.unwrap_or(usize::MAX));
            seen.listing.print(&actions)?;
            seen.actions = actions.into_iter().map(|action| (action.id, action)).collect();
        }
        Resource::Runners => {
            let mut runners = client.runners(args.all).await?;
            runners.truncate(args.limit.unwrap_or(usize::MAX));
            seen.listing.print(&runners)?;
            seen.runners = runners.iter().map(watch::runner_key).collect();
        }
        Resource::Allocations => {
            let allocations = client.allocations(name, args.limit).await.map_err(explain_missing)?;
            seen.listing.print(&allocations)?;
            seen.allocations = allocations.into_iter().map(|allocation| (allocation.id, allocation)).collect();
        }
        Resource::SlurmClusters => {
            let clusters = match name {
                Some(name) => vec![client.cluster(name).await?],
                None => client.clusters().await?,
            };
            seen.listing.print(&clusters)?;
        }
        Resource::Files => {
            let workflow = resolve_workflow(client, name).await?;
            let mut files = client.files(&workflow).await.map_err(explain_missing)?;
            files.truncate(args.limit.unwrap_or(usize::MAX));
            seen.listing.print(&files)?;
        }
        Resource::UserData => {
            let workflow = resolve_workflow(client, name).await?;
            let mut data = client.user_data(&workflow).await.map_err(explain_missing)?;
            data.truncate(args.limit.unwrap_or(usize::MAX));
            seen.listing.print(&data)?;
        }
        Resource::Audit => {
            let mut entries = client.audit().await?;
            entries.truncate(args.limit.unwrap_or(usize::MAX));
            seen.listing.print(&entries)?;
        }
        Resource::Events => {
            let workflow = workflow_id(client, name).await?;
            let events = client.events(workflow, None, args.limit).await?;
            seen.listing.print(&events)?;
            seen.sequence = events.last().map_or(seen.sequence, |event| event.sequence);
        }
    }
    Ok(())
}

/// Returns the id of a named workflow, and `None` for all workflows.
async fn workflow_id(client: &Client, name: Option<&str>) -> Result<Option<i64>, CliError> {
    match name {
        Some(name) => Ok(Some(client.workflow(name).await.map_err(explain_missing)?.id)),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        get: GetArgs,
    }

    fn get(line: &str) -> GetArgs {
        Line::try_parse_from(format!("get {line}").split_whitespace()).expect("parses").get
    }

    #[test]
    fn resources_have_their_usual_names() {
        for (line, resource, name) in [
            ("workflows", Resource::Workflows, None),
            ("wf", Resource::Workflows, None),
            ("workflow/a", Resource::Workflows, Some("a")),
            ("workflow a", Resource::Workflows, Some("a")),
            ("jobs workflow/a", Resource::Jobs, Some("a")),
            ("job a", Resource::Jobs, Some("a")),
            ("events", Resource::Events, None),
            ("files a", Resource::Files, Some("a")),
            ("user-data a", Resource::UserData, Some("a")),
            ("audit", Resource::Audit, None),
        ] {
            assert_eq!(get(line).target().expect(line), (resource, name), "{line}");
        }
        assert_eq!(get("pods").target().expect_err("no such thing").kind, ExitStatus::Usage);
    }

    #[test]
    fn states_are_checked() {
        assert_eq!(get("jobs --status failed,ready").status, [JobState::Failed, JobState::Ready]);
        assert_eq!(get("jobs").status, []);
        assert!(Line::try_parse_from(["get", "jobs", "--status", "sleepy"]).is_err());
    }

    #[test]
    fn flags_become_filters() {
        let args = get("results w --status failed --job j --contains c --run 2 --failed --return-code -9 --latest");
        let results = args.result_filter();
        assert_eq!(
            (results.job.as_deref(), results.run, results.status.as_slice()),
            (Some("j"), Some(2), [JobState::Failed].as_slice())
        );
        assert_eq!((results.failed, results.return_code, results.latest), (true, Some(-9), true));
        let jobs = args.job_filter();
        assert_eq!(
            (jobs.status.as_slice(), jobs.name.as_deref(), jobs.contains.as_deref()),
            ([JobState::Failed].as_slice(), Some("j"), Some("c"))
        );
        let plain = get("results w").result_filter();
        assert!(!plain.failed && !plain.latest && plain.run.is_none() && plain.return_code.is_none());
    }

    #[test]
    fn every_resource_is_known_by_its_names() {
        for (names, resource) in [
            (&["workflows", "workflow", "wf", "twf"][..], Resource::Workflows),
            (&["jobs", "job"], Resource::Jobs),
            (&["results", "result"], Resource::Results),
            (&["actions", "action"], Resource::Actions),
            (&["runners", "runner"], Resource::Runners),
            (&["allocations", "allocation", "allocs", "alloc"], Resource::Allocations),
            (&["slurmclusters", "slurmcluster", "slc"], Resource::SlurmClusters),
            (&["events", "event", "ev"], Resource::Events),
            (&["files", "file"], Resource::Files),
            (&["user-data", "userdata", "user_data"], Resource::UserData),
            (&["audit"], Resource::Audit),
        ] {
            for name in names {
                assert_eq!(get(name).target().expect(name).0, resource, "{name}");
            }
        }
    }
}
