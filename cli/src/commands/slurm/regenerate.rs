//! `torc slurm regenerate`: re-plan schedulers and allocations for the remaining jobs.

use clap::Args;
use torc_api::api::Workflow;
use torc_api::cluster::{LOCAL, Partition};
use torc_api::recovery::{RegenerateReport, RegenerateRequest};

use crate::client::Client;
use crate::commands::hpc::SiteArgs;
use crate::connection::{ServerConnection, explain_missing, resolve_workflow};
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::listen_args::ListenArgs;
use crate::output::{SchedulerRow, human};
use crate::sites;
use crate::use_cases::background_server::ensure_background_server;

/// Re-plan schedulers and allocations for the remaining jobs
///
/// For a workflow whose allocations have ended. Marks the scheduling actions of the document as executed, so that no allocation is
/// submitted twice. Jobs with dependencies get their allocations when they are ready. A restart of the workflow reverts the plan.
#[derive(Debug, Args)]
pub struct RegenerateArgs {
    /// Workflow by name or number (default: the only one in the store)
    #[arg(value_name = "WORKFLOW")]
    pub workflow: Option<String>,
    #[command(flatten)]
    pub plan: ReplanArgs,
    /// Submit the allocations of jobs without open dependencies
    #[arg(long)]
    pub submit: bool,
    /// Show the plan without storing it
    #[arg(long)]
    pub dry_run: bool,
    /// Jobs to include in any state, by name or number
    #[arg(long, value_delimiter = ',', value_name = "JOBS")]
    pub include_job_ids: Vec<String>,
    #[command(flatten)]
    pub listen: ListenArgs,
}

/// Flags of the new plan.
#[derive(Clone, Debug, Default, Args)]
pub struct ReplanArgs {
    /// Account to charge (default: the account in the document)
    #[arg(long)]
    pub account: Option<String>,
    #[command(flatten)]
    pub site: SiteArgs,
    /// Partition for all allocations (default: chosen for each group)
    #[arg(long)]
    pub partition: Option<String>,
    /// Walltime of allocations, e.g. `4h` or `04:00:00` (default: 1.5 times the longest job)
    #[arg(long, value_name = "TIME")]
    pub walltime: Option<String>,
    /// Plan one allocation with all nodes instead of one per node
    #[arg(long)]
    pub single_allocation: bool,
}

impl ReplanArgs {
    /// Returns the request to the server, with the partitions that this machine sees.
    pub async fn request(&self, client: &Client, workflow: &Workflow) -> Result<RegenerateRequest, CliError> {
        Ok(self.with(self.partitions(client, workflow).await?))
    }

    fn with(&self, partitions: Vec<Partition>) -> RegenerateRequest {
        RegenerateRequest {
            account: self.account.clone(),
            partition: self.partition.clone(),
            walltime: self.walltime.clone(),
            single_allocation: self.single_allocation,
            partitions,
            ..RegenerateRequest::default()
        }
    }

    /// Returns the partitions of the selected profile, of the cluster of the workflow, or of this cluster.
    pub async fn partitions(&self, client: &Client, workflow: &Workflow) -> Result<Vec<Partition>, CliError> {
        let name = workflow.slurm_cluster.as_deref().filter(|name| *name != LOCAL);
        if let (None, Some(name)) = (&self.site.profile, name) {
            let clusters = client.clusters().await?;
            if let Some(cluster) = clusters.into_iter().find(|cluster| cluster.name == name) {
                if !cluster.spec.partitions.is_empty() {
                    return Ok(cluster.spec.partitions);
                }
                return Ok(sites::detect(&cluster.spec.command_prefix).await?.profile.partitions);
            }
        }
        Ok(self.site.find().await?.profile.partitions)
    }
}

impl RegenerateArgs {
    fn request(&self, plan: RegenerateRequest) -> RegenerateRequest {
        let include_jobs = self.include_job_ids.clone();
        RegenerateRequest { dry_run: self.dry_run, submit: self.submit, include_jobs, ..plan }
    }
}

pub async fn run(context: &CommandContext, args: &RegenerateArgs) -> Result<ExitStatus, CliError> {
    let connection = ServerConnection::open(&context.settings, &context.folder).await?;
    let is_served = connection.is_served();
    let result = regenerate(context, args, connection.client(), is_served).await;
    connection.close().await;
    let to_serve = result?;
    if let Some(workflow) = to_serve.filter(|_| !is_served) {
        ensure_background_server(context, &workflow).await?;
    }
    Ok(ExitStatus::Success)
}

/// Plans again and prints the report. Returns the workflow if a server must submit allocations.
async fn regenerate(
    context: &CommandContext,
    args: &RegenerateArgs,
    client: &Client,
    is_served: bool,
) -> Result<Option<String>, CliError> {
    let name = resolve_workflow(client, args.workflow.as_deref()).await?;
    let workflow = client.workflow(&name).await.map_err(explain_missing)?;
    let request = args.request(args.plan.request(client, &workflow).await?);
    let report = client.regenerate(&name, &request).await.map_err(explain_missing)?;
    let has_submitted = !report.dry_run && !report.allocations.is_empty();
    context.output.value(&report, || describe(context, &workflow.name, &report, is_served || has_submitted))?;
    Ok(has_submitted.then(|| workflow.id.to_string()))
}

/// Describes the plan, and says whether it was a dry run.
fn describe(context: &CommandContext, workflow: &str, report: &RegenerateReport, served: bool) -> String {
    let mut text = describe_plan(context, workflow, report, served);
    if report.dry_run && report.pending_jobs > 0 {
        text.push_str("dry run: nothing was changed\n");
    }
    text
}

/// Describes the planned allocations, as part of a larger report.
pub fn describe_plan(context: &CommandContext, workflow: &str, report: &RegenerateReport, served: bool) -> String {
    if report.pending_jobs == 0 {
        return format!("workflow/{workflow}: no remaining jobs, nothing to plan\n");
    }
    let rows: Vec<SchedulerRow> = report.schedulers.iter().map(SchedulerRow::of_recovery).collect();
    let mut text = context.output.table(&rows);
    if report.superseded_actions > 0 {
        let actions = human::count(report.superseded_actions, "action");
        text.push_str(&format!("{actions} of the document superseded\n"));
    }
    for one in report.unplaced.iter().take(5) {
        text.push_str(&format!("no scheduler for {}: {}\n", one.job, one.reason));
    }
    let deferred = rows.iter().filter(|row| row.deferred).count();
    if deferred > 0 {
        text.push_str("allocations of deferred schedulers are submitted when their jobs are ready\n");
    }
    match (report.dry_run, report.allocations.as_slice()) {
        (true, _) => {}
        (false, []) => text.push_str(&format!(
            "nothing was submitted; submit allocations with: torc slurm schedule-nodes {workflow} --scheduler NAME\n"
        )),
        (false, names) => text.push_str(&format!("submitted {}\n", names.join(", "))),
    }
    if !report.dry_run && !served {
        text.push_str(&format!("no process serves this store; start one with: torc submit {workflow}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: RegenerateArgs,
    }

    fn asked(words: &[&str]) -> RegenerateRequest {
        let line = Line::try_parse_from(["regenerate", "w"].iter().chain(words)).expect("a command line");
        line.args.request(line.args.plan.with(Vec::new()))
    }

    // R14
    #[test]
    fn nothing_is_submitted_or_charged_without_a_flag() {
        assert_eq!(asked(&[]), RegenerateRequest::default());
        let words = ["--submit", "--account", "x", "--partition", "p", "--walltime", "2h", "--include-job-ids", "a,b"];
        let expected = RegenerateRequest {
            submit: true,
            account: Some("x".to_owned()),
            partition: Some("p".to_owned()),
            walltime: Some("2h".to_owned()),
            include_jobs: vec!["a".to_owned(), "b".to_owned()],
            ..RegenerateRequest::default()
        };
        assert_eq!(asked(&words), expected);
        let line = Line::try_parse_from(["regenerate", "--profile", "kestrel"]).expect("a command line");
        assert_eq!(line.args.plan.site.profile.as_deref(), Some("kestrel"));
    }

    // R07, R08, R14
    #[test]
    fn what_was_planned_is_told() {
        let context = crate::context::tests::context();
        let report =
            |value: serde_json::Value| -> RegenerateReport { serde_json::from_value(value).expect("a report") };
        let told = |value, served| describe(&context, "w", &report(value), served);
        assert_eq!(
            told(serde_json::json!({ "pendingJobs": 0 }), false),
            "workflow/w: no remaining jobs, nothing to plan\n"
        );
        let scheduler = |deferred| serde_json::json!({ "name": "s", "jobs": 1, "allocations": 2, "nodes": 3, "walltimeSeconds": 60, "deferred": deferred, "nodeHours": 1.0 });
        let full = serde_json::json!({ "pendingJobs": 2, "schedulers": [scheduler(true)], "supersededActions": 1, "allocations": ["a1", "a2"],
            "unplaced": [{ "job": "j", "reason": "r" }] });
        let text = told(full, true);
        for line in [
            "1 action of the document superseded\n",
            "no scheduler for j: r\n",
            "allocations of deferred schedulers are submitted when their jobs are ready\n",
            "submitted a1, a2\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(text.ends_with("submitted a1, a2\n"), "{text}");
        let unasked = told(serde_json::json!({ "pendingJobs": 2, "schedulers": [scheduler(false)] }), false);
        assert!(
            unasked.contains(
                "nothing was submitted; submit allocations with: torc slurm schedule-nodes w --scheduler NAME"
            ),
            "{unasked}"
        );
        assert!(
            unasked.ends_with("no process serves this store; start one with: torc submit w\n")
                && !unasked.contains("deferred"),
            "{unasked}"
        );
        let dry =
            told(serde_json::json!({ "dryRun": true, "pendingJobs": 2, "schedulers": [scheduler(false)] }), false);
        assert!(dry.ends_with("dry run: nothing was changed\n"), "{dry}");
    }

    #[test]
    fn what_was_said_of_the_plan_is_passed_on() {
        let words = ["--dry-run", "--single-allocation"];
        let found = asked(&words);
        assert!(found.dry_run && found.single_allocation && !found.submit);
    }
}
