//! `torc apply`: create or update workflows from files and run them.

use clap::Args;
use torc_api::workflow::WorkflowSpec;
use torc_slurm::call::Tool;

use crate::args::FileArgs;
use crate::client::{Client, ClientError};
use crate::connection::{ServerConnection, create_store_dir, remote, with_client};
use crate::context::CommandContext;
use crate::documents::{self, Documents};
use crate::embedded::listening::Exposure;
use crate::embedded::store_dir::StoreDir;
use crate::embedded::{StoreAccess, acquire_or_attach, start_background};
use crate::error::{CliError, ExitStatus};
use crate::listen_args::ListenArgs;
use crate::output::ItemList;
use crate::settings::RunnerArgs;
use crate::use_cases::follow::{FollowedRun, follow_to_end};
use crate::use_cases::interrupts::Interrupts;
use crate::use_cases::run::{Placement, Target, run_workflows};
use crate::use_cases::statuses::REMOTE_TIMEOUT;
use crate::use_cases::submit::{SubmitPurpose, line, submit};

/// Create or update workflows from files and run them
///
/// Without a server the command runs the workflows in the foreground until they have settled, and exits with their outcome. After an
/// interrupt or an edit, run it again: completed jobs run again only if they have changed. With --url it returns at once.
#[derive(Debug, Args)]
pub struct ApplyArgs {
    #[command(flatten)]
    pub files: FileArgs,
    /// Run the workflows on a server in the background, which exits when it is idle
    #[arg(long, conflicts_with_all = ["no_run", "dry_run"])]
    pub detach: bool,
    /// Store the workflows without running them; runners of a server run all stored workflows
    #[arg(long, conflicts_with = "dry_run")]
    pub no_run: bool,
    /// Follow the workflows to their end if a server runs them
    #[arg(long, conflicts_with_all = ["no_run", "dry_run"])]
    pub wait: bool,
    /// Show the changes without making them
    #[arg(long)]
    pub dry_run: bool,
    /// In a Kubernetes cluster: take over fields that other managers have set
    #[arg(long)]
    pub force_conflicts: bool,
    #[command(flatten)]
    pub listen: ListenArgs,
    #[command(flatten)]
    pub runner: RunnerArgs,
}

impl ApplyArgs {
    const fn purpose(&self) -> SubmitPurpose {
        if self.dry_run {
            SubmitPurpose::DryRun
        } else if self.no_run {
            SubmitPurpose::Store
        } else {
            SubmitPurpose::Run
        }
    }
}

pub async fn run(context: &CommandContext, args: &ApplyArgs) -> Result<ExitStatus, CliError> {
    let documents = documents::read_valid(&args.files.files, context.settings.namespace.as_deref(), context.output)?;
    if let Some(url) = &context.settings.url {
        let client = remote(&context.settings, url, &context.folder)?;
        let ids = submit_and_print(context, &client, &documents, args.purpose()).await?;
        return if args.wait { follow_server(context, &client, &ids).await } else { Ok(ExitStatus::Success) };
    }
    if args.dry_run {
        return dry_run(context, &documents).await;
    }
    let store_dir = create_store_dir(&context.folder)?;
    if args.no_run {
        let connection = ServerConnection::open(&context.settings, &context.folder).await?;
        let result = submit_and_print(context, connection.client(), &documents, SubmitPurpose::Store).await;
        connection.close().await;
        return result.map(|_| ExitStatus::Success);
    }
    if args.detach {
        return detach(context, &store_dir, &documents, args.wait).await;
    }
    let placement = placement(context, &documents);
    run_workflows(context, &store_dir, &Target::Documents(documents), placement).await
}

/// Returns where workflows for Slurm run: in Slurm if this machine has it, otherwise on this machine.
fn placement(context: &CommandContext, documents: &Documents) -> Placement {
    let specs: Vec<&WorkflowSpec> = documents.specs().collect();
    if has_sbatch() || !needs_local_slurm(&specs, !documents.clusters.is_empty()) {
        return Placement::Slurm;
    }
    context.output.warning("Slurm is not available (`sbatch` is not installed): jobs run on this machine");
    Placement::ThisMachine
}

/// Returns whether an action requests nodes without a cluster, which means the Slurm of this machine.
fn needs_local_slurm(specs: &[&WorkflowSpec], has_clusters: bool) -> bool {
    let names_a_cluster = specs.iter().any(|spec| spec.slurm_cluster.is_some());
    specs.iter().any(|spec| spec.requests_slurm_nodes()) && !names_a_cluster && !has_clusters
}

fn has_sbatch() -> bool {
    finds_sbatch(|name| std::env::var(name).ok())
}

/// Returns whether `sbatch` is replaced by a variable or is in a folder of PATH.
fn finds_sbatch(variable: impl Fn(&str) -> Option<String>) -> bool {
    let set = |name: &str| variable(name).filter(|text| !text.is_empty());
    let path = set("PATH").unwrap_or_default();
    set(Tool::Sbatch.replacement_variable()).is_some()
        || std::env::split_paths(&path).any(|folder| folder.join(Tool::Sbatch.name()).is_file())
}

/// Prints the changes. Does not create a store where there is none.
async fn dry_run(context: &CommandContext, documents: &Documents) -> Result<ExitStatus, CliError> {
    if StoreDir::find(&context.folder).is_none() {
        return super::diff::all_new(context, &documents.workflows);
    }
    with_client(&context.settings, &context.folder, async |client: &Client| {
        submit_and_print(context, client, documents, SubmitPurpose::DryRun).await.map(|_| ExitStatus::Success)
    })
    .await
}

async fn detach(
    context: &CommandContext,
    store_dir: &StoreDir,
    documents: &Documents,
    wait: bool,
) -> Result<ExitStatus, CliError> {
    let (info, client) = match acquire_or_attach(store_dir, context.settings.namespace.as_deref()).await? {
        StoreAccess::Attached(info, client) => (*info, *client),
        StoreAccess::Acquired(lock) => {
            drop(lock);
            start_background(store_dir, &context.settings, Exposure::of(documents.specs())).await?
        }
    };
    let ids = submit_and_print(context, &client, documents, SubmitPurpose::Run).await?;
    context.output.progress(&format!(
        "running in the background: process {}, log {}",
        info.pid,
        store_dir.log_file().display()
    ));
    context.output.progress("follow with: torc get workflows -w");
    if wait { follow_server(context, &client, &ids).await } else { Ok(ExitStatus::Success) }
}

/// Submits documents and prints the outcome. Returns the ids of the workflows.
async fn submit_and_print(
    context: &CommandContext,
    client: &Client,
    documents: &Documents,
    purpose: SubmitPurpose,
) -> Result<Vec<i64>, CliError> {
    let responses = submit(context, client, documents, purpose).await?;
    context.output.value(&ItemList { items: &responses }, || {
        responses.iter().map(|response| line(response, purpose) + "\n").collect()
    })?;
    Ok(responses.into_iter().filter_map(|response| response.id).collect())
}

async fn follow_server(context: &CommandContext, client: &Client, ids: &[i64]) -> Result<ExitStatus, CliError> {
    let following =
        FollowedRun { timeout: REMOTE_TIMEOUT, interrupted: "stopped following; the server still runs the workflows" };
    let followed = follow_to_end(context, client, ids, following, &mut Interrupts::listen()?).await?;
    followed.ok_or_else(|| ClientError::Closed.into())
}

#[cfg(test)]
mod tests {
    use torc_api::action::Action;

    use super::*;

    #[test]
    fn flags_decide_the_purpose() {
        use clap::Parser as _;
        for (flags, purpose) in [
            ("", SubmitPurpose::Run),
            ("--wait", SubmitPurpose::Run),
            ("--detach", SubmitPurpose::Run),
            ("--no-run", SubmitPurpose::Store),
            ("--dry-run", SubmitPurpose::DryRun),
        ] {
            let line = format!("torc apply -f a.yaml {flags}");
            let cli = crate::cli::Cli::try_parse_from(line.split_whitespace()).expect("a command line");
            let crate::cli::Command::Apply(args) = cli.command else { panic!("an apply") };
            assert_eq!(args.purpose(), purpose, "{flags}");
        }
    }

    #[test]
    fn actions_without_a_cluster_need_the_local_slurm() {
        let action = |kind: &str| -> Action {
            let text =
                format!(r#"{{"triggerType": "on_workflow_start", "actionType": "{kind}", "schedulerType": "slurm"}}"#);
            serde_json::from_str(&text).expect("an action")
        };
        let plain = WorkflowSpec::default();
        let asks = WorkflowSpec { actions: vec![action("schedule_nodes")], ..WorkflowSpec::default() };
        let commands = WorkflowSpec { actions: vec![action("run_commands")], ..WorkflowSpec::default() };
        let named = WorkflowSpec { slurm_cluster: Some("c".to_owned()), ..asks.clone() };
        for (specs, has_clusters, expected) in [
            (vec![&plain], false, false),
            (vec![&commands], false, false),
            (vec![&asks], false, true),
            (vec![&plain, &asks], false, true),
            (vec![&asks], true, false),
            (vec![&named], false, false),
            (vec![&asks, &named], false, false),
        ] {
            assert_eq!(needs_local_slurm(&specs, has_clusters), expected);
        }
    }

    #[test]
    fn sbatch_is_searched_in_every_folder_of_the_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let (with, without) = (folder.path().join("with"), folder.path().join("without"));
        for one in [&with, &without] {
            std::fs::create_dir(one).expect("a folder");
        }
        std::fs::write(with.join("sbatch"), "").expect("a file");
        let path = |folders: &[&std::path::PathBuf]| {
            std::env::join_paths(folders).expect("a path").into_string().expect("UTF-8")
        };
        for (path, replaced, expected) in [
            (path(&[&without, &with]), None, true),
            (path(&[&with, &without]), None, true),
            (path(&[&without]), None, false),
            (path(&[&without]), Some("x"), true),
            (path(&[&without]), Some(""), false),
        ] {
            let variable = |name: &str| if name == "PATH" { Some(path.clone()) } else { replaced.map(str::to_owned) };
            assert_eq!(finds_sbatch(variable), expected, "{path} {replaced:?}");
        }
    }
}
