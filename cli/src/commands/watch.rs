//! `torc watch`: monitor a workflow until it has ended, and optionally recover it.

use std::time::{Duration, Instant};

use clap::Args;
use torc_api::allocation::{Allocation, AllocationStatus, OrphanReport, UnreachableRunner};
use torc_api::api::Workflow;
use torc_api::recovery::RegenerateRequest;
use torc_api::workflow::WorkflowSpec;

use super::recover::{self, RecoveryArgs};
use crate::args::parse_duration;
use crate::client::Client;
use crate::connection::{ServerConnection, explain_missing, resolve_workflow};
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::listen_args::ListenArgs;
use crate::output::{human, status_word};
use crate::use_cases::background_server::ensure_background_server;
use crate::use_cases::interrupts::Interrupts;
use crate::use_cases::next_step::start_command;
use crate::use_cases::orphans::{OrphanSearch, find_lost};
use crate::workflow_phase::{WorkflowPhase, phase};

/// Monitor a workflow until it has ended, and recover it with --recover
///
/// Checks for lost allocations and runners at a fixed interval. A server does the same according to `recovery` in the document.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// Workflow by name or number (default: the only one in the store)
    #[arg(value_name = "WORKFLOW")]
    pub workflow: Option<String>,
    /// Interval between two checks
    #[arg(short = 'p', long, value_name = "TIME", default_value = "60s", value_parser = parse_interval)]
    pub poll_interval: Duration,
    /// Recover the workflow when it has ended with failed jobs
    #[arg(short = 'r', long)]
    pub recover: bool,
    /// Maximum number of recoveries (default: no limit)
    #[arg(short = 'm', long, value_name = "N", requires = "recover")]
    pub max_retries: Option<u32>,
    /// Submit new allocations when jobs are ready and no allocation is left
    #[arg(long)]
    pub auto_schedule: bool,
    #[command(flatten)]
    pub recovery: RecoveryArgs,
    #[command(flatten)]
    pub listen: ListenArgs,
}

/// Parses an interval. A number without unit is in seconds, as in Torc 1.0.
fn parse_interval(text: &str) -> Result<Duration, String> {
    match text.parse::<u64>() {
        Ok(seconds) => Ok(Duration::from_secs(seconds.max(1))),
        Err(_) => parse_duration(text).map(|interval| interval.max(Duration::from_secs(1))),
    }
}

/// Number of successive checks without a live allocation after which losses are searched.
const CHECKS_BEFORE_SEARCH: u32 = 3;
/// Shortest interval between two submissions of allocations.
const SUBMIT_INTERVAL: Duration = Duration::from_secs(60);

pub async fn run(context: &CommandContext, args: &WatchArgs) -> Result<ExitStatus, CliError> {
    let mut interrupts = Interrupts::listen()?;
    let mut watch = WatchState::default();
    loop {
        // The store is opened for each check only, so that other processes can run it.
        let connection = ServerConnection::open(&context.settings, &context.folder).await?;
        let is_served = connection.is_served();
        watch.is_served = is_served;
        let checked = check(context, args, connection.client(), &mut watch).await;
        connection.close().await;
        match checked? {
            CheckOutcome::Over(status) => return Ok(status),
            // The allocations that this command requests need a server that submits them.
            CheckOutcome::Continues { workflow, is_for_slurm: true }
                if !is_served && (args.recover || args.auto_schedule) =>
            {
                ensure_background_server(context, &workflow).await?;
            }
            CheckOutcome::Continues { .. } => {}
        }
        tokio::select! {
            () = tokio::time::sleep(args.poll_interval) => {}
            () = interrupts.next() => return Ok(ExitStatus::Interrupted),
        }
    }
}

/// The state between two checks.
#[derive(Default)]
struct WatchState {
    last_line: String,
    /// Runners that do not report, as printed last.
    printed_unreachable: Vec<UnreachableRunner>,
    /// True if the line about a store without a server was printed.
    printed_unserved: bool,
    /// True if a process serves the store at this check.
    is_served: bool,
    checks_without_allocation: u32,
    recoveries: u32,
    scheduled: Option<Instant>,
}

/// The outcome of a check.
enum CheckOutcome {
    /// The workflow has ended.
    Over(ExitStatus),
    /// The workflow has not ended, or its failed jobs were retried.
    Continues { workflow: String, is_for_slurm: bool },
}

/// Checks the workflow once.
async fn check(
    context: &CommandContext,
    args: &WatchArgs,
    client: &Client,
    watch: &mut WatchState,
) -> Result<CheckOutcome, CliError> {
    let name = resolve_workflow(client, args.workflow.as_deref()).await?;
    let mut workflow = client.workflow(&name).await.map_err(explain_missing)?;
    let id = workflow.id.to_string();
    print_status(context, watch, &workflow);
    // With these flags the command starts a server after this check.
    if !args.recover && !args.auto_schedule {
        print_unserved(context, watch, &workflow);
    }
    let mut is_alive = has_live_allocation(client, &id).await?;
    watch.checks_without_allocation = if is_alive { 0 } else { watch.checks_without_allocation + 1 };
    let snapshot = LossSnapshot {
        is_served: watch.is_served,
        is_alive,
        checks_without: watch.checks_without_allocation,
        running: workflow.status.jobs.running,
    };
    if may_be_lost(snapshot) {
        let search = OrphanSearch { is_served: watch.is_served, ..OrphanSearch::default() };
        let found = find_lost(context, client, &workflow, search).await?;
        print_found(context, watch, &workflow.name, found.clone());
        if found.has_losses() {
            workflow = client.workflow(&id).await?;
            is_alive = has_live_allocation(client, &id).await?;
        }
    }
    let goes = CheckOutcome::Continues { workflow: id, is_for_slurm: workflow.status.allocations.is_some() };
    match phase(&workflow) {
        WorkflowPhase::Active | WorkflowPhase::Suspended => {
            if args.auto_schedule && !is_alive && workflow.status.jobs.ready > 0 {
                schedule(context, args, client, &workflow, watch).await?;
            }
            Ok(goes)
        }
        WorkflowPhase::Succeeded => Ok(CheckOutcome::Over(ExitStatus::Success)),
        WorkflowPhase::Failed | WorkflowPhase::NeedsDecision => {
            Ok(after_failure(context, args, client, &workflow, watch).await?.map_or(goes, CheckOutcome::Over))
        }
        WorkflowPhase::Canceled => Ok(CheckOutcome::Over(ExitStatus::WorkflowFailed)),
    }
}

/// Returns whether Slurm knows the allocation.
fn is_alive(allocation: &Allocation) -> bool {
    allocation.status != AllocationStatus::Pending || allocation.slurm_job_id.is_some()
}

async fn has_live_allocation(client: &Client, workflow: &str) -> Result<bool, CliError> {
    Ok(client.live_allocations(workflow).await?.iter().any(is_alive))
}

/// The data that decides whether losses are searched.
#[derive(Clone, Copy, Debug)]
struct LossSnapshot {
    is_served: bool,
    /// True if the store knows a live allocation. Only a process that serves the store keeps this up to date.
    is_alive: bool,
    checks_without: u32,
    running: i64,
}

/// Returns whether losses are searched. Without a live allocation, they are searched at once if jobs are running and otherwise after
/// some checks. Without a server no other process queries Slurm, so losses are also searched with live allocations.
fn may_be_lost(snapshot: LossSnapshot) -> bool {
    let is_stale = !snapshot.is_served && (snapshot.is_alive || snapshot.running > 0);
    is_stale || !snapshot.is_alive && (snapshot.checks_without >= CHECKS_BEFORE_SEARCH || snapshot.running > 0)
}

/// Prints the losses, and once the runners that cannot be checked.
fn print_found(context: &CommandContext, watch: &mut WatchState, workflow: &str, found: OrphanReport) {
    let is_printed = watch.printed_unreachable == found.unreachable;
    watch.printed_unreachable.clone_from(&found.unreachable);
    let unreachable = if is_printed { Vec::new() } else { found.unreachable };
    let changes = OrphanReport { unreachable, in_doubt: Vec::new(), requeued: Vec::new(), ..found };
    if changes.has_losses() || !changes.unreachable.is_empty() {
        let command = format!("torc workflows sync-status {workflow}");
        context.output.progress(super::sync_status::describe(workflow, &changes, false, &command).trim_end());
    }
}

/// Prints once that no job starts because no process serves the store.
fn print_unserved(context: &CommandContext, watch: &mut WatchState, workflow: &Workflow) {
    let is_new = !watch.is_served && !std::mem::replace(&mut watch.printed_unserved, true);
    watch.printed_unserved &= !watch.is_served;
    if is_new && phase(workflow).is_active() {
        let start = start_command(workflow);
        context.output.progress(&format!(
            "{}: no torc process serves this store, so no job starts; continue with: {start}",
            workflow.name
        ));
    }
}

fn print_status(context: &CommandContext, watch: &mut WatchState, workflow: &Workflow) {
    let jobs = &workflow.status.jobs;
    let allocations = workflow.status.allocations.unwrap_or_default();
    let line = format!(
        "{}: {}, {}/{} done, {} running, {} failed; {} pending, {} active",
        workflow.name,
        status_word(workflow),
        jobs.settled(),
        jobs.total,
        jobs.running,
        jobs.failed + jobs.terminated,
        human::count(allocations.pending, "allocation"),
        allocations.active,
    );
    if watch.last_line != line {
        context.output.progress(&line);
        watch.last_line = line;
    }
}

/// Returns whether the maximum number of recoveries is reached.
fn has_reached_limit(max_retries: Option<u32>, recoveries: u32) -> bool {
    max_retries.is_some_and(|most| recoveries >= most)
}

async fn after_failure(
    context: &CommandContext,
    args: &WatchArgs,
    client: &Client,
    workflow: &Workflow,
    watch: &mut WatchState,
) -> Result<Option<ExitStatus>, CliError> {
    let has_reached_limit = has_reached_limit(args.max_retries, watch.recoveries);
    if !args.recover || has_reached_limit {
        if has_reached_limit && args.recover {
            context.output.progress(&format!("{}: the maximum number of recoveries is reached", workflow.name));
        }
        return Ok(Some(ExitStatus::WorkflowFailed));
    }
    let search = OrphanSearch { is_served: watch.is_served, ends_left_processes: true, ..OrphanSearch::default() };
    let recovered = recover::recover(context, client, workflow, &args.recovery, search).await?;
    watch.recoveries += 1;
    context.output.progress(recover::describe(context, workflow, &recovered, true).trim_end());
    if recovered.jobs.again == 0 {
        return Ok(Some(ExitStatus::WorkflowFailed));
    }
    Ok(None)
}

/// Returns whether the last submission is long enough ago.
fn may_submit(since: Option<Duration>) -> bool {
    since.is_none_or(|since| since >= SUBMIT_INTERVAL)
}

/// Returns whether the controller plans the allocations of a workflow.
fn has_automatic_allocations(spec: &WorkflowSpec) -> bool {
    spec.slurm_cluster.is_some() && !spec.requests_slurm_nodes()
}

async fn schedule(
    context: &CommandContext,
    args: &WatchArgs,
    client: &Client,
    workflow: &Workflow,
    watch: &mut WatchState,
) -> Result<(), CliError> {
    let spec = workflow.document.as_ref().map(|document| &document.spec);
    if !may_submit(watch.scheduled.map(|last| last.elapsed())) || spec.is_some_and(has_automatic_allocations) {
        return Ok(());
    }
    watch.scheduled = Some(Instant::now());
    let request = RegenerateRequest { submit: true, ..args.recovery.plan.request(client, workflow).await? };
    let report = client.regenerate(&workflow.id.to_string(), &request).await?;
    context.output.progress(&format!("{}: submitted {}", workflow.name, report.allocations.join(", ")));
    Ok(())
}

#[cfg(test)]
mod tests {
    use torc_api::action::Action;

    use super::*;

    // R06
    #[test]
    fn losses_are_searched_without_a_live_allocation() {
        let cases = [
            (false, 1, 1, true),
            (false, 1, 0, false),
            (false, CHECKS_BEFORE_SEARCH - 1, 0, false),
            (false, CHECKS_BEFORE_SEARCH, 0, true),
            (true, 0, 9, false),
            (true, CHECKS_BEFORE_SEARCH, 9, false),
        ];
        for (is_alive, checks_without, running, expected) in cases {
            let snapshot = LossSnapshot { is_served: true, is_alive, checks_without, running };
            assert_eq!(may_be_lost(snapshot), expected, "{snapshot:?}");
        }
    }

    // R06
    #[test]
    fn losses_are_searched_at_every_check_without_a_server() {
        for (is_alive, running, expected) in [(true, 0, true), (true, 3, true), (false, 1, true), (false, 0, false)] {
            let snapshot = LossSnapshot { is_served: false, is_alive, checks_without: 0, running };
            assert_eq!(may_be_lost(snapshot), expected, "{snapshot:?}");
        }
    }

    #[test]
    fn checks_are_at_least_a_second_apart() {
        for (text, seconds) in [("0", 1), ("1", 1), ("30", 30), ("2m", 120), ("0s", 1), ("1h", 3_600)] {
            assert_eq!(parse_interval(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        assert!(parse_interval("soon").is_err());
    }

    #[test]
    fn recoveries_and_submissions_are_limited() {
        for (most, done, expected) in
            [(None, 99, false), (Some(0), 0, true), (Some(2), 1, false), (Some(2), 2, true), (Some(2), 3, true)]
        {
            assert_eq!(has_reached_limit(most, done), expected, "{done} of {most:?}");
        }
        for (since, expected) in [(None, true), (Some(59_999), false), (Some(60_000), true)] {
            assert_eq!(may_submit(since.map(Duration::from_millis)), expected, "{since:?}");
        }
        assert_eq!(CHECKS_BEFORE_SEARCH, 3);
    }

    #[test]
    fn an_allocation_lives_once_slurm_knows_of_it() {
        let allocation = |status: &str, id: Option<&str>| -> Allocation {
            let mut value = serde_json::json!({ "name": "a", "id": 1, "workflow": "w", "workflowId": 1, "cluster": "c",
                "status": status, "nodes": 1, "origin": "manual", "walltimeSeconds": 1, "creationTime": "t" });
            if let Some(id) = id {
                value["slurmJobId"] = id.into();
            }
            serde_json::from_value(value).expect("an allocation")
        };
        for (status, id, expected) in [
            ("pending", None, false),
            ("pending", Some("7"), true),
            ("active", None, true),
            ("active", Some("7"), true),
        ] {
            assert_eq!(is_alive(&allocation(status, id)), expected, "{status} {id:?}");
        }
    }

    #[test]
    fn only_a_cluster_without_actions_sizes_itself() {
        let action = || {
            serde_json::from_str(
                r#"{"triggerType": "on_workflow_start", "actionType": "schedule_nodes", "schedulerType": "slurm"}"#,
            )
        };
        let action: Action = action().expect("an action");
        let cluster = || Some("c".to_owned());
        for (slurm_cluster, actions, expected) in [
            (None, vec![], false),
            (cluster(), vec![], true),
            (cluster(), vec![action.clone()], false),
            (None, vec![action], false),
        ] {
            assert_eq!(
                has_automatic_allocations(&WorkflowSpec { slurm_cluster, actions, ..WorkflowSpec::default() }),
                expected
            );
        }
    }
}
