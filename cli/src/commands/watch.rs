//! `torc watch`: look after a workflow until it has ended, and recover it if that is wanted.

use std::time::{Duration, Instant};

use clap::Args;
use torc_api::allocation::{Allocation, AllocationStatus, OrphanReport, UnreachableRunner};
use torc_api::api::Workflow;
use torc_api::recovery::RegenerateRequest;
use torc_api::workflow::WorkflowSpec;

use super::recover::{self, RemedyArgs};
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
use crate::use_cases::orphans::{Search, find_lost};
use crate::workflow_phase::{WorkflowPhase, phase};

/// Look after a workflow until it has ended; with --recover, try what failed again.
///
/// A server does all this by itself under the document's `recovery`; this is for those who would rather keep a terminal open.
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// The workflow, by name or number; may be left out where the store holds one.
    #[arg(value_name = "WORKFLOW")]
    pub workflow: Option<String>,
    /// Between two looks.
    #[arg(short = 'p', long, value_name = "TIME", default_value = "60s", value_parser = parse_interval)]
    pub poll_interval: Duration,
    /// Recover the workflow when it has ended with failed jobs.
    #[arg(short = 'r', long)]
    pub recover: bool,
    /// At most so many recoveries (no limit when absent).
    #[arg(short = 'm', long, value_name = "N", requires = "recover")]
    pub max_retries: Option<u32>,
    /// Ask for new allocations when jobs are ready and none is left.
    #[arg(long)]
    pub auto_schedule: bool,
    #[command(flatten)]
    pub remedy: RemedyArgs,
    #[command(flatten)]
    pub listen: ListenArgs,
}

/// A number alone is in seconds, as in Torc 1.0.
fn parse_interval(text: &str) -> Result<Duration, String> {
    match text.parse::<u64>() {
        Ok(seconds) => Ok(Duration::from_secs(seconds.max(1))),
        Err(_) => parse_duration(text).map(|interval| interval.max(Duration::from_secs(1))),
    }
}

/// So many looks in a row without a live allocation, before what was lost is looked for.
const LOOKS: u32 = 3;
/// Between two times at which allocations are asked for.
const COOL_DOWN: Duration = Duration::from_secs(60);

/// Runs the verb.
pub async fn run(context: &CommandContext, args: &WatchArgs) -> Result<ExitStatus, CliError> {
    let mut interrupts = Interrupts::listen()?;
    let mut watch = Watch::default();
    loop {
        // The store is opened anew for each look: nobody is kept from running meanwhile.
        let connection = ServerConnection::open(&context.settings, &context.folder).await?;
        let is_served = connection.is_served();
        watch.is_served = is_served;
        let looked = look(context, args, connection.client(), &mut watch).await;
        connection.close().await;
        match looked? {
            Look::Over(status) => return Ok(status),
            // Who recovers also sees to it that what is asked for is submitted.
            Look::Goes { workflow, is_for_slurm: true } if !is_served && (args.recover || args.auto_schedule) => {
                ensure_background_server(context, &workflow).await?;
            }
            Look::Goes { .. } => {}
        }
        tokio::select! {
            () = tokio::time::sleep(args.poll_interval) => {}
            () = interrupts.next() => return Ok(ExitStatus::Interrupted),
        }
    }
}

/// What is remembered from look to look.
#[derive(Default)]
struct Watch {
    said: String,
    /// Runners that do not report, as they were told last.
    told_unreachable: Vec<UnreachableRunner>,
    /// It was told that no process serves the store.
    told_unserved: bool,
    /// A process serves the store at this look.
    is_served: bool,
    without_allocation: u32,
    recoveries: u32,
    scheduled: Option<Instant>,
}

/// What a look has come to.
enum Look {
    /// There is nothing to watch any more.
    Over(ExitStatus),
    /// It goes on.
    Goes { workflow: String, is_for_slurm: bool },
}

/// One look.
async fn look(
    context: &CommandContext,
    args: &WatchArgs,
    client: &Client,
    watch: &mut Watch,
) -> Result<Look, CliError> {
    let name = resolve_workflow(client, args.workflow.as_deref()).await?;
    let mut workflow = client.workflow(&name).await.map_err(explain_missing)?;
    let id = workflow.id.to_string();
    say(context, watch, &workflow);
    // Every allocation is looked at: a live one hides no dead one.
    // What these flags ask for is served from here, after this look.
    if !args.recover && !args.auto_schedule {
        tell_unserved(context, watch, &workflow);
    }
    let mut is_alive = has_live_allocation(client, &id).await?;
    watch.without_allocation = if is_alive { 0 } else { watch.without_allocation + 1 };
    let seen = Seen {
        is_served: watch.is_served,
        is_alive,
        looks_without: watch.without_allocation,
        running: workflow.status.jobs.running,
    };
    if may_be_lost(seen) {
        let search = Search { is_served: watch.is_served, ..Search::default() };
        let found = find_lost(context, client, &workflow, search).await?;
        tell_found(context, watch, &workflow.name, found.clone());
        if found.has_losses() {
            workflow = client.workflow(&id).await?;
            is_alive = has_live_allocation(client, &id).await?;
        }
    }
    let goes = Look::Goes { workflow: id, is_for_slurm: workflow.status.allocations.is_some() };
    match phase(&workflow) {
        WorkflowPhase::Active | WorkflowPhase::Suspended => {
            if args.auto_schedule && !is_alive && workflow.status.jobs.ready > 0 {
                schedule(context, args, client, &workflow, watch).await?;
            }
            Ok(goes)
        }
        WorkflowPhase::Succeeded => Ok(Look::Over(ExitStatus::Success)),
        WorkflowPhase::Failed | WorkflowPhase::NeedsDecision => {
            Ok(after_failure(context, args, client, &workflow, watch).await?.map_or(goes, Look::Over))
        }
        WorkflowPhase::Canceled => Ok(Look::Over(ExitStatus::WorkflowFailed)),
    }
}

/// Slurm knows of it.
fn is_alive(allocation: &Allocation) -> bool {
    allocation.status != AllocationStatus::Pending || allocation.slurm_job_id.is_some()
}

async fn has_live_allocation(client: &Client, workflow: &str) -> Result<bool, CliError> {
    Ok(client.live_allocations(workflow).await?.iter().any(is_alive))
}

/// One look, as far as it tells whether something may be lost.
#[derive(Clone, Copy, Debug)]
struct Seen {
    is_served: bool,
    /// The store knows of a live allocation. Only a process that serves it keeps that up to date.
    is_alive: bool,
    looks_without: u32,
    running: i64,
}

/// Without a live allocation, what was lost is looked for: at once if jobs are said to run, otherwise after some looks. Where no
/// process serves the store, no other process asks Slurm whether an allocation lives.
fn may_be_lost(seen: Seen) -> bool {
    let is_stale = !seen.is_served && (seen.is_alive || seen.running > 0);
    is_stale || !seen.is_alive && (seen.looks_without >= LOOKS || seen.running > 0)
}

/// Says what was lost, and once what cannot be judged.
fn tell_found(context: &CommandContext, watch: &mut Watch, workflow: &str, found: OrphanReport) {
    let is_told = watch.told_unreachable == found.unreachable;
    watch.told_unreachable.clone_from(&found.unreachable);
    let unreachable = if is_told { Vec::new() } else { found.unreachable };
    let news = OrphanReport { unreachable, in_doubt: Vec::new(), requeued: Vec::new(), ..found };
    if news.has_losses() || !news.unreachable.is_empty() {
        let command = format!("torc workflows sync-status {workflow}");
        context.output.progress(super::sync_status::describe(workflow, &news, false, &command).trim_end());
    }
}

/// Says once that nothing moves because no process serves the store.
fn tell_unserved(context: &CommandContext, watch: &mut Watch, workflow: &Workflow) {
    let is_news = !watch.is_served && !std::mem::replace(&mut watch.told_unserved, true);
    watch.told_unserved &= !watch.is_served;
    if is_news && phase(workflow).is_active() {
        let start = start_command(workflow);
        context.output.progress(&format!(
            "{}: no torc process serves this store: no job is started and no result is taken; continue with: {start}",
            workflow.name
        ));
    }
}

fn say(context: &CommandContext, watch: &mut Watch, workflow: &Workflow) {
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
    if watch.said != line {
        context.output.progress(&line);
        watch.said = line;
    }
}

/// It was recovered as often as it may be.
fn is_spent(max_retries: Option<u32>, recoveries: u32) -> bool {
    max_retries.is_some_and(|most| recoveries >= most)
}

async fn after_failure(
    context: &CommandContext,
    args: &WatchArgs,
    client: &Client,
    workflow: &Workflow,
    watch: &mut Watch,
) -> Result<Option<ExitStatus>, CliError> {
    let is_spent = is_spent(args.max_retries, watch.recoveries);
    if !args.recover || is_spent {
        if is_spent && args.recover {
            context.output.progress(&format!("{}: recovered as often as it may be", workflow.name));
        }
        return Ok(Some(ExitStatus::WorkflowFailed));
    }
    let search = Search { is_served: watch.is_served, ends_left_processes: true, ..Search::default() };
    let recovered = recover::recover(context, client, workflow, &args.remedy, search).await?;
    watch.recoveries += 1;
    context.output.progress(recover::describe(context, workflow, &recovered, true).trim_end());
    if recovered.jobs.again == 0 {
        return Ok(Some(ExitStatus::WorkflowFailed));
    }
    Ok(None)
}

/// Allocations were not asked for, or long ago.
fn is_cool(since: Option<Duration>) -> bool {
    since.is_none_or(|since| since >= COOL_DOWN)
}

/// Its allocations follow from its jobs, and nobody has to ask for them.
fn sizes_itself(spec: &WorkflowSpec) -> bool {
    spec.slurm_cluster.is_some() && !spec.asks_slurm_for_nodes()
}

async fn schedule(
    context: &CommandContext,
    args: &WatchArgs,
    client: &Client,
    workflow: &Workflow,
    watch: &mut Watch,
) -> Result<(), CliError> {
    let spec = workflow.document.as_ref().map(|document| &document.spec);
    if !is_cool(watch.scheduled.map(|last| last.elapsed())) || spec.is_some_and(sizes_itself) {
        return Ok(());
    }
    watch.scheduled = Some(Instant::now());
    let request = RegenerateRequest { submit: true, ..args.remedy.plan.request(client, workflow).await? };
    let report = client.regenerate(&workflow.id.to_string(), &request).await?;
    context.output.progress(&format!("{}: asked for {}", workflow.name, report.allocations.join(", ")));
    Ok(())
}

#[cfg(test)]
mod tests {
    use torc_api::action::Action;

    use super::*;

    // R06
    #[test]
    fn what_was_lost_is_looked_for_when_no_allocation_is_left() {
        let cases = [
            (false, 1, 1, true),
            (false, 1, 0, false),
            (false, LOOKS - 1, 0, false),
            (false, LOOKS, 0, true),
            (true, 0, 9, false),
            (true, LOOKS, 9, false),
        ];
        for (is_alive, looks_without, running, expected) in cases {
            let seen = Seen { is_served: true, is_alive, looks_without, running };
            assert_eq!(may_be_lost(seen), expected, "{seen:?}");
        }
    }

    // R06
    #[test]
    fn slurm_is_asked_at_every_look_where_nothing_serves_the_store() {
        for (is_alive, running, expected) in [(true, 0, true), (true, 3, true), (false, 1, true), (false, 0, false)] {
            let seen = Seen { is_served: false, is_alive, looks_without: 0, running };
            assert_eq!(may_be_lost(seen), expected, "{seen:?}");
        }
    }

    #[test]
    fn looks_are_at_least_a_second_apart() {
        for (text, seconds) in [("0", 1), ("1", 1), ("30", 30), ("2m", 120), ("0s", 1), ("1h", 3_600)] {
            assert_eq!(parse_interval(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        assert!(parse_interval("soon").is_err());
    }

    #[test]
    fn recoveries_are_counted_and_allocations_asked_for_now_and_then() {
        for (most, done, expected) in
            [(None, 99, false), (Some(0), 0, true), (Some(2), 1, false), (Some(2), 2, true), (Some(2), 3, true)]
        {
            assert_eq!(is_spent(most, done), expected, "{done} of {most:?}");
        }
        for (since, expected) in [(None, true), (Some(59_999), false), (Some(60_000), true)] {
            assert_eq!(is_cool(since.map(Duration::from_millis)), expected, "{since:?}");
        }
        assert_eq!(LOOKS, 3);
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
            assert_eq!(sizes_itself(&WorkflowSpec { slurm_cluster, actions, ..WorkflowSpec::default() }), expected);
        }
    }
}
