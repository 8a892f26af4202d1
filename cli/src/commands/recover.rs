//! `torc recover`: retry failed jobs with more memory or time, and submit new allocations for them.

use std::fmt::Write as _;
use std::process::Command;

use clap::Args;
use serde::Serialize;
use torc_api::allocation::OrphanReport;
use torc_api::api::Workflow;
use torc_api::recovery::{RecoverReport, RecoverRequest, RecoveryDecision, RegenerateRequest};

use super::slurm::regenerate::{self, ReplanArgs};
use super::sync_status::{assume_lost, unreachable};
use crate::client::Client;
use crate::connection::{ServerConnection, explain_missing, resolve_workflow};
use crate::context::CommandContext;
use crate::env;
use crate::error::{CliError, ExitStatus};
use crate::listen_args::ListenArgs;
use crate::output::human;
use crate::use_cases::background_server::ensure_background_server;
use crate::use_cases::next_step::start_command;
use crate::use_cases::orphans::{OrphanSearch, find_lost};

/// Retry failed jobs, with more memory or time where they ran out of it
///
/// Finds lost allocations and runners first. A job that ran out of memory or time gets more than it requested and more than it used,
/// up to the largest node and the longest time limit. A lost job is retried unchanged. A job that failed with an exit code stays
/// failed unless --retry-unknown or --recovery-hook is set. A workflow with Slurm schedulers gets new allocations.
/// `recovery: {policy: Auto}` in the document does the same automatically.
#[derive(Debug, Args)]
pub struct RecoverArgs {
    /// Workflow by name or number (default: the only one in the store)
    #[arg(value_name = "WORKFLOW")]
    pub workflow: Option<String>,
    #[command(flatten)]
    pub recovery: RecoveryArgs,
    /// Show the decisions without acting on them
    #[arg(long)]
    pub dry_run: bool,
    /// Declare a runner lost that does not report and cannot be checked; may be repeated
    #[arg(long, value_name = "RUNNER")]
    pub assume_lost: Vec<i64>,
    #[command(flatten)]
    pub listen: ListenArgs,
}

/// Flags that decide about failed jobs.
#[derive(Clone, Debug, Args)]
pub struct RecoveryArgs {
    /// Factor for the memory of jobs that ran out of memory
    #[arg(long, value_name = "FACTOR", default_value_t = 1.5, value_parser = factor)]
    pub memory_multiplier: f64,
    /// Factor for the runtime of jobs that ran out of time
    #[arg(long, value_name = "FACTOR", default_value_t = 1.5, value_parser = factor)]
    pub runtime_multiplier: f64,
    /// Retry also jobs that failed with an exit code
    #[arg(long)]
    pub retry_unknown: bool,
    /// Command to run before jobs that failed with an exit code are retried; it gets TORC_WORKFLOW_ID
    #[arg(long, value_name = "COMMAND")]
    pub recovery_hook: Option<String>,
    #[command(flatten)]
    pub plan: ReplanArgs,
}

fn factor(text: &str) -> Result<f64, String> {
    let factor: f64 = text.parse().map_err(|_| "must be a number, e.g. 1.5".to_owned())?;
    if (1.0..=100.0).contains(&factor) { Ok(factor) } else { Err("must be between 1 and 100".to_owned()) }
}

impl RecoveryArgs {
    fn request(&self, dry_run: bool) -> RecoverRequest {
        #[expect(clippy::cast_possible_truncation, reason = "it is between 100 and 10,000")]
        let percent = |factor: f64| Some((factor * 100.0).round() as i32);
        RecoverRequest {
            dry_run,
            memory_percent: percent(self.memory_multiplier),
            runtime_percent: percent(self.runtime_multiplier),
            retry_unknown: self.retry_unknown || self.recovery_hook.is_some(),
            ..RecoverRequest::default()
        }
    }
}

impl RecoveryArgs {
    /// Adds the allocations or partitions of Slurm to a request. A dry run computes the same.
    async fn with_slurm(
        &self,
        client: &Client,
        workflow: &Workflow,
        preview: &RecoverReport,
        request: RecoverRequest,
    ) -> Result<RecoverRequest, CliError> {
        let open = client.workflow(&workflow.id.to_string()).await?.status.jobs;
        let open = preview.again + open.ready + open.blocked + request.lost.len() as i64;
        if needs_allocations(workflow, open) {
            let plan = RegenerateRequest { submit: true, ..self.plan.request(client, workflow).await? };
            return Ok(RecoverRequest { regenerate: Some(Box::new(plan)), ..request });
        }
        let gets_more = preview.jobs.iter().any(|one| !one.raised.is_empty());
        if gets_more && workflow.slurm_cluster.is_some() {
            // If Slurm cannot be queried from this machine, the server uses the partitions that it knows.
            let partitions = self.plan.partitions(client, workflow).await.unwrap_or_default();
            return Ok(RecoverRequest { partitions, ..request });
        }
        Ok(request)
    }
}

/// The outcome of a recovery, as in JSON output.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecoverOutcome {
    /// The losses that were found.
    pub orphans: OrphanReport,
    /// The decisions about failed jobs, and the allocations that were planned for them.
    #[serde(flatten)]
    pub jobs: RecoverReport,
}

pub async fn run(context: &CommandContext, args: &RecoverArgs) -> Result<ExitStatus, CliError> {
    let connection = ServerConnection::open(&context.settings, &context.folder).await?;
    let is_served = connection.is_served();
    let result = recover_and_print(context, args, connection.client(), is_served).await;
    connection.close().await;
    let to_serve = result?;
    if let Some(workflow) = to_serve.filter(|_| !is_served) {
        ensure_background_server(context, &workflow).await?;
    }
    Ok(ExitStatus::Success)
}

/// Recovers a workflow and prints the outcome. Returns the workflow if a server must submit allocations for it.
async fn recover_and_print(
    context: &CommandContext,
    args: &RecoverArgs,
    client: &Client,
    is_served: bool,
) -> Result<Option<String>, CliError> {
    let name = resolve_workflow(client, args.workflow.as_deref()).await?;
    let workflow = client.workflow(&name).await.map_err(explain_missing)?;
    let search =
        OrphanSearch { dry_run: args.dry_run, is_served, ends_left_processes: true, assume_lost: &args.assume_lost };
    let recovered = recover(context, client, &workflow, &args.recovery, search).await?;
    let is_for_slurm = recovered.jobs.regenerated.is_some() || workflow.slurm_cluster.is_some();
    let will_be_served = is_for_slurm && !args.dry_run && recovered.jobs.again > 0;
    context.output.value(&recovered, || describe(context, &workflow, &recovered, is_served || will_be_served))?;
    Ok(will_be_served.then(|| workflow.id.to_string()))
}

/// Runs one recovery: records losses, decides about failed jobs, and submits allocations.
pub async fn recover(
    context: &CommandContext,
    client: &Client,
    workflow: &Workflow,
    recovery: &RecoveryArgs,
    search: OrphanSearch<'_>,
) -> Result<RecoverOutcome, CliError> {
    let (name, dry_run) = (workflow.id.to_string(), search.dry_run);
    let orphans = find_lost(context, client, workflow, search).await?;
    // A dry run does not record losses, so lost jobs still count as running.
    let lost = if dry_run { orphans.jobs.clone() } else { Vec::new() };
    let preview = RecoverRequest { lost: lost.clone(), ..recovery.request(true) };
    let preview = match client.recover(&name, &preview).await {
        Err(error) if error.is_conflict() => {
            return Err(still_running(error.into(), &workflow.name, &orphans, dry_run));
        }
        answer => answer.map_err(explain_missing)?,
    };
    if let Some(hook) = recovery.recovery_hook.as_deref().filter(|_| !dry_run && has_unknown(&preview)) {
        run_hook(context, hook, workflow)?;
    }
    let request = RecoverRequest { lost, ..recovery.request(dry_run) };
    let request = recovery.with_slurm(client, workflow, &preview, request).await?;
    let jobs = client.recover(&name, &request).await.map_err(explain_missing)?;
    if !dry_run && jobs.regenerated.is_none() && jobs.again > 0 {
        client.submit(&name).await?;
    }
    Ok(RecoverOutcome { orphans, jobs })
}

/// Returns the error for a workflow that still runs, with the losses and with hints for runners that do not report.
fn still_running(error: CliError, workflow: &str, orphans: &OrphanReport, dry_run: bool) -> CliError {
    if !orphans.has_losses() && orphans.unreachable.is_empty() {
        return error;
    }
    let command = format!("torc recover {workflow}");
    let found = OrphanReport { unreachable: Vec::new(), ..orphans.clone() };
    let losses = if found.has_losses() { describe_losses(workflow, &found, dry_run) } else { String::new() };
    let lines =
        losses.lines().map(str::to_owned).chain(orphans.unreachable.iter().map(|one| unreachable(workflow, one)));
    let error = error.lines(lines.collect::<Vec<String>>());
    orphans.unreachable.iter().filter_map(|one| assume_lost(one, &command)).fold(error, CliError::hint)
}

fn describe_losses(workflow: &str, orphans: &OrphanReport, dry_run: bool) -> String {
    super::sync_status::describe(workflow, orphans, dry_run, &format!("torc recover {workflow}"))
}

/// Returns whether a recovery must submit new allocations, because actions have submitted the earlier ones.
fn needs_allocations(workflow: &Workflow, jobs: i64) -> bool {
    let spec = workflow.document.as_ref().map(|document| &document.spec);
    let asks = spec.is_some_and(|spec| spec.requests_slurm_nodes());
    jobs > 0 && asks
}

fn has_unknown(report: &RecoverReport) -> bool {
    use torc_api::state::Cause;
    report.jobs.iter().any(|one| matches!(one.cause, Cause::ExitCode | Cause::StartFailed | Cause::MissingOutput))
}

/// Runs the recovery hook of the user and shows its output. A non-zero exit code is an error.
fn run_hook(context: &CommandContext, hook: &str, workflow: &Workflow) -> Result<(), CliError> {
    context.output.progress(&format!("recovery hook: {hook}"));
    let status = Command::new("bash")
        .args(["-c", hook])
        .current_dir(&context.folder)
        .env(env::WORKFLOW_ID, workflow.id.to_string())
        .env("TORC_WORKFLOW_NAME", &workflow.name)
        .stdout(std::io::stderr())
        .status()
        .map_err(|error| CliError::unexpected("could not run the recovery hook", error))?;
    if status.success() {
        return Ok(());
    }
    Err(CliError::new(ExitStatus::WorkflowFailed, format!("the recovery hook failed: {status}"))
        .hint("no job was retried; fix the problem and run `torc recover` again"))
}

/// Describes the outcome of a recovery.
pub fn describe(context: &CommandContext, workflow: &Workflow, recovered: &RecoverOutcome, served: bool) -> String {
    let start = start_command(workflow);
    let workflow = workflow.name.as_str();
    let mut text = String::new();
    let orphans = &recovered.orphans;
    if !orphans.allocations.is_empty() || !orphans.jobs.is_empty() || !orphans.unreachable.is_empty() {
        // The line about the dry run comes once, at the end.
        text.push_str(&describe_losses(workflow, orphans, false));
    }
    let report = &recovered.jobs;
    for one in &report.jobs {
        let what = match (one.decision, &one.reason, one.raised.as_slice()) {
            (RecoveryDecision::Leave, Some(reason), _) => format!("stays failed: {reason}"),
            (RecoveryDecision::Leave, None, _) => "stays failed (--retry-unknown retries it)".to_owned(),
            (RecoveryDecision::Retry, _, []) => "retried".to_owned(),
            (RecoveryDecision::Retry, _, raised) => format!("retried with {}", raised.join(", ")),
        };
        let _ = writeln!(text, "{}: {} ({}) → {what}", one.job, one.cause, human::exit_code(one.return_code));
    }
    let _ = match (report.dry_run, report.again) {
        (_, 0) if report.jobs.is_empty() => writeln!(text, "workflow/{workflow}: no failed jobs"),
        (true, again) => writeln!(text, "workflow/{workflow}: {} would be reset to ready", human::count(again, "job")),
        (false, again) => writeln!(text, "workflow/{workflow}: {} reset to ready", human::count(again, "job")),
    };
    if let Some(regenerated) = &report.regenerated {
        text.push_str(&regenerate::describe_plan(context, workflow, regenerated, served));
    } else if report.again > 0 && !report.dry_run && !served {
        let _ = writeln!(text, "run them with: {start}");
    }
    if report.dry_run {
        text.push_str("dry run: nothing was changed\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use torc_api::state::Cause;

    use super::*;

    fn recovery(line: &str) -> RecoveryArgs {
        use clap::Parser as _;
        let cli = crate::cli::Cli::try_parse_from(format!("torc recover w {line}").split_whitespace())
            .expect("a command line");
        let crate::cli::Command::Recover(args) = cli.command else { panic!("a recover") };
        args.recovery
    }

    fn job(cause: Cause, decision: RecoveryDecision, raised: &[&str]) -> torc_api::recovery::RecoveredJob {
        let raised: Vec<String> = raised.iter().map(|text| (*text).to_owned()).collect();
        torc_api::recovery::RecoveredJob {
            job: "a".to_owned(),
            attempt: 2,
            cause,
            return_code: 137,
            decision,
            raised,
            reason: None,
        }
    }

    // S20
    #[test]
    fn factors_are_between_1_and_100_and_become_percent() {
        for (text, accepted) in [
            ("1", true),
            ("0.99", false),
            ("100", true),
            ("100.01", false),
            ("-2", false),
            ("NaN", false),
            ("x", false),
        ] {
            assert_eq!(factor(text).is_ok(), accepted, "{text}");
        }
        let usual = recovery("").request(false);
        assert_eq!((usual.memory_percent, usual.runtime_percent), (Some(150), Some(150)));
        assert_eq!((usual.dry_run, usual.retry_unknown), (false, false));
        let said = recovery("--memory-multiplier 2 --runtime-multiplier 1.256").request(true);
        assert_eq!((said.memory_percent, said.runtime_percent, said.dry_run), (Some(200), Some(126), true));
        assert!(recovery("--retry-unknown").request(false).retry_unknown);
        assert!(recovery("--recovery-hook x").request(false).retry_unknown, "a hook is for what failed by itself");
    }

    // R06
    #[test]
    fn watch_asks_for_the_same_as_recover() {
        use clap::Parser as _;
        for line in ["", "--memory-multiplier 1.2 --runtime-multiplier 3 --retry-unknown"] {
            let cli = crate::cli::Cli::try_parse_from(format!("torc watch w --recover {line}").split_whitespace())
                .expect("a command line");
            let crate::cli::Command::Watch(args) = cli.command else { panic!("a watch") };
            assert_eq!(args.recovery.request(false), recovery(line).request(false), "{line}");
        }
    }

    #[test]
    fn a_hook_is_for_jobs_that_failed_by_themselves() {
        for (cause, expected) in [
            (Cause::OutOfMemory, false),
            (Cause::Timeout, false),
            (Cause::NodeFailure, false),
            (Cause::Preempted, false),
            (Cause::Lost, false),
            (Cause::ExitCode, true),
            (Cause::Canceled, false),
            (Cause::StartFailed, true),
            (Cause::MissingOutput, true),
            (Cause::Stopped, false),
        ] {
            let jobs = vec![job(Cause::Lost, RecoveryDecision::Retry, &[]), job(cause, RecoveryDecision::Leave, &[])];
            assert_eq!(has_unknown(&RecoverReport { jobs, ..RecoverReport::default() }), expected, "{cause:?}");
        }
        assert!(!has_unknown(&RecoverReport::default()));
    }

    #[test]
    fn only_actions_need_new_allocations() {
        let workflow = |actions: serde_json::Value| -> Workflow {
            let document = serde_json::json!({ "apiVersion": "torc.dev/v1alpha1", "metadata": { "name": "w" }, "spec": { "jobs": [], "actions": actions } });
            let mut workflow = crate::workflow_phase::tests::workflow(torc_api::status::JobCounts::default(), &[]);
            workflow.document = Some(serde_json::from_value(document).expect("a document"));
            workflow
        };
        let asks =
            workflow(serde_json::json!([{ "triggerType": "on_workflow_start", "actionType": "schedule_nodes" }]));
        for (workflow, jobs, expected) in
            [(&asks, 1, true), (&asks, 0, false), (&workflow(serde_json::json!([])), 1, false)]
        {
            assert_eq!(needs_allocations(workflow, jobs), expected);
        }
    }

    // R04
    #[test]
    fn what_was_done_is_told_job_by_job() {
        let context = crate::context::tests::context();
        let told = |jobs: RecoverReport, orphans: OrphanReport, served: bool| {
            let workflow = crate::workflow_phase::tests::workflow(torc_api::status::JobCounts::default(), &[]);
            describe(&context, &workflow, &RecoverOutcome { orphans, jobs }, served)
        };
        let report = |again: i64, dry_run: bool, jobs| RecoverReport { again, dry_run, jobs, regenerated: None };
        let jobs = || {
            vec![
                job(Cause::OutOfMemory, RecoveryDecision::Retry, &["memory from 1 MiB to 2 MiB", "time"]),
                job(Cause::Lost, RecoveryDecision::Retry, &[]),
                job(Cause::ExitCode, RecoveryDecision::Leave, &[]),
            ]
        };
        let lines = "a: OutOfMemory (exit code 137, signal 9 (KILL)) → retried with memory from 1 MiB to 2 MiB, time\n\
            a: Lost (exit code 137, signal 9 (KILL)) → retried\n\
            a: ExitCode (exit code 137, signal 9 (KILL)) → stays failed (--retry-unknown retries it)\n";
        let none = OrphanReport::default;
        assert_eq!(
            told(report(2, false, jobs()), none(), false),
            format!("{lines}workflow/w: 2 jobs reset to ready\nrun them with: torc run w\n")
        );
        assert_eq!(told(report(1, false, jobs()), none(), true), format!("{lines}workflow/w: 1 job reset to ready\n"));
        assert_eq!(
            told(report(2, true, jobs()), none(), false),
            format!("{lines}workflow/w: 2 jobs would be reset to ready\ndry run: nothing was changed\n")
        );
        assert_eq!(told(report(0, false, vec![]), none(), false), "workflow/w: no failed jobs\n");
        let lost = OrphanReport {
            jobs: vec![torc_api::allocation::OrphanedJob {
                workflow: "w".to_owned(),
                job: "a".to_owned(),
                cause: Cause::Lost,
            }],
            ..OrphanReport::default()
        };
        let text = told(report(0, true, vec![]), lost, false);
        assert!(
            text.starts_with("job a of w was lost: Lost\n")
                && text.ends_with("no failed jobs\ndry run: nothing was changed\n"),
            "{text}"
        );
        assert_eq!(text.matches("nothing was changed").count(), 1, "{text}");
        let planned: torc_api::recovery::RegenerateReport =
            serde_json::from_value(serde_json::json!({ "dryRun": true, "pendingJobs": 1 })).expect("a report");
        let limited = torc_api::recovery::RecoveredJob {
            reason: Some("it ran out of memory with 8 GiB, and the largest node that it can use has 8 GiB".to_owned()),
            ..job(Cause::OutOfMemory, RecoveryDecision::Leave, &[])
        };
        let dry = RecoverReport { regenerated: Some(planned), ..report(1, true, vec![limited]) };
        let text = told(dry, none(), false);
        assert!(text.contains("→ stays failed: it ran out of memory with 8 GiB, and the largest node"), "{text}");
        assert!(text.ends_with("dry run: nothing was changed\n"), "{text}");
        assert_eq!(text.matches("nothing was changed").count(), 1, "{text}");
        let value = serde_json::json!(RecoverOutcome { orphans: none(), jobs: report(1, false, jobs()) });
        let mut fields: Vec<&String> = value.as_object().expect("fields").keys().collect();
        fields.sort();
        assert_eq!(fields, ["again", "jobs", "orphans"]);
    }

    // R03, R04
    #[test]
    fn a_refusal_names_the_runners_that_do_not_report() {
        use torc_api::allocation::{UnreachableReason, UnreachableRunner};
        let refusal = || CliError::new(ExitStatus::Refused, "1 job still running");
        let told = |orphans| still_running(refusal(), "w", &orphans, false);
        let plain = told(OrphanReport::default());
        assert!(plain.lines.is_empty() && plain.hints.is_empty());
        let (jobs, host) = (vec!["a".to_owned()], "n7".to_owned());
        let one =
            UnreachableRunner { runner: 3, host, pid: 12, reason: UnreachableReason::NotVerified, jobs, running: 1 };
        let lost =
            torc_api::allocation::OrphanedJob { workflow: "w".to_owned(), job: "b".to_owned(), cause: Cause::Lost };
        let error = told(OrphanReport { jobs: vec![lost], unreachable: vec![one], ..OrphanReport::default() });
        assert_eq!(error.hints, ["if runner 3 is gone: torc recover w --assume-lost 3"]);
        assert_eq!(error.lines.len(), 2, "{:?}", error.lines);
        assert_eq!(error.lines[0], "job b of w was lost: Lost");
        assert!(error.lines[1].contains("job a of w may still run on runner 3"), "{:?}", error.lines);
    }
}
