//! `torc apply`: make the world match documents.

use clap::Args;
use torc_api::action::Action;
use torc_api::api::{ApplyOutcome, ApplyRequest, ApplyResponse, JobChanges};
use torc_api::document::SlurmClusterDocument;
use torc_api::workflow::WorkflowSpec;
use torc_slurm::call::Tool;

use super::Context;
use crate::args::{FileArgs, RunnerArgs};
use crate::client::{Client, ClientError};
use crate::connection::{Connection, remote};
use crate::documents::{self, Documents, LoadedWorkflow, Report};
use crate::error::{CommandError, ExitStatus};
use crate::follow::{Followed, REMOTE_PATIENCE, follow};
use crate::listen_args::ListenArgs;
use crate::listening::Reach;
use crate::output::{Items, human};
use crate::place::{FOLDER, Place};
use crate::progress::Progress;
use crate::run_here::{self, Ground, Interrupts, Wanted};
use crate::standalone::{Entry, enter, start_background};

/// Make the world match documents, and run them here unless there is a server.
///
/// Without a server the command reconciles in the foreground until the workflows have settled, and exits with their outcome.
/// Stop it, run it again: it goes on where it was. An edited file runs again only what changed. With --url it returns at once.
#[derive(Debug, Args)]
pub struct ApplyArgs {
    #[command(flatten)]
    pub files: FileArgs,
    /// Leave a server in the background that runs the workflows and ends when it has nothing left to do.
    #[arg(long, conflicts_with_all = ["no_run", "dry_run"])]
    pub detach: bool,
    /// Only store the documents; `torc run` or another `torc apply` runs them. Runners of a server take all that is stored.
    #[arg(long, conflicts_with = "dry_run")]
    pub no_run: bool,
    /// Follow the workflows to their end where a server runs them.
    #[arg(long, conflicts_with_all = ["no_run", "dry_run"])]
    pub wait: bool,
    /// Only say what would change.
    #[arg(long)]
    pub dry_run: bool,
    /// In a cluster: take over fields that others have applied.
    #[arg(long)]
    pub force_conflicts: bool,
    #[command(flatten)]
    pub listen: ListenArgs,
    #[command(flatten)]
    pub runner: RunnerArgs,
}

/// What a document is handed in for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To run.
    Run,
    /// To be stored, until somebody wants it to run.
    Store,
    /// Only to see what would change.
    DryRun,
}

impl ApplyArgs {
    const fn purpose(&self) -> Purpose {
        if self.dry_run {
            Purpose::DryRun
        } else if self.no_run {
            Purpose::Store
        } else {
            Purpose::Run
        }
    }
}

/// Runs the verb.
pub async fn run(context: &Context, args: &ApplyArgs) -> Result<ExitStatus, CommandError> {
    let documents = documents::read_valid(&args.files.files, context.settings.namespace.as_deref(), context.output)?;
    if let Some(url) = &context.settings.url {
        let client = remote(&context.settings, url, &context.folder)?;
        let responses = hand_in(context, &client, &documents, args.purpose()).await?;
        return if args.wait { follow_remote(context, &client, &responses).await } else { Ok(ExitStatus::Success) };
    }
    if args.dry_run {
        return dry_run(context, &documents).await;
    }
    let place = place_here(context)?;
    if args.no_run {
        let connection = Connection::open(&context.settings, &context.folder).await?;
        let result = hand_in(context, connection.client(), &documents, Purpose::Store).await;
        connection.close().await;
        return result.map(|_| ExitStatus::Success);
    }
    if args.detach {
        return detach(context, &place, &documents, args.wait).await;
    }
    let ground = ground(context, &documents);
    run_here::run(context, &place, &Wanted::Documents(documents), ground).await
}

/// Workflows for Slurm run on it where it is. A file for the Slurm of some machine also runs on one that has none: here.
fn ground(context: &Context, documents: &Documents) -> Ground {
    let specs: Vec<&WorkflowSpec> = documents.workflows.iter().map(|workflow| &workflow.document.spec).collect();
    if has_sbatch() || !needs_the_slurm_of_this_machine(&specs, !documents.clusters.is_empty()) {
        return Ground::Slurm;
    }
    context.output.warning("there is no Slurm here (`sbatch` is not installed): jobs run on this machine");
    Ground::Here
}

/// Whether an action asks for nodes and no cluster is named or described, which leaves the Slurm of this machine.
fn needs_the_slurm_of_this_machine(specs: &[&WorkflowSpec], has_clusters: bool) -> bool {
    let asks_for_nodes = |spec: &WorkflowSpec| spec.actions.iter().any(Action::asks_slurm_for_nodes);
    let names_a_cluster = specs.iter().any(|spec| spec.slurm_cluster.is_some());
    specs.iter().any(|spec| asks_for_nodes(spec)) && !names_a_cluster && !has_clusters
}

fn has_sbatch() -> bool {
    finds_sbatch(|name| std::env::var(name).ok())
}

/// Whether a program stands in for `sbatch`, or a folder of the path has it.
fn finds_sbatch(variable: impl Fn(&str) -> Option<String>) -> bool {
    let said = |name: &str| variable(name).filter(|text| !text.is_empty());
    let path = said("PATH").unwrap_or_default();
    said(Tool::Sbatch.replacement_variable()).is_some()
        || std::env::split_paths(&path).any(|folder| folder.join(Tool::Sbatch.name()).is_file())
}

/// The store of this folder, made if there is none.
pub fn place_here(context: &Context) -> Result<Place, CommandError> {
    let place = Place::find(&context.folder).unwrap_or_else(|| Place::in_folder(context.folder.join(FOLDER)));
    place.create_folder()?;
    Ok(place)
}

/// A dry run must not make a store where there is none.
async fn dry_run(context: &Context, documents: &Documents) -> Result<ExitStatus, CommandError> {
    if Place::find(&context.folder).is_none() {
        return super::diff::all_new(context, &documents.workflows);
    }
    crate::connection::with_client(&context.settings, &context.folder, async |client: &Client| {
        hand_in(context, client, documents, Purpose::DryRun).await.map(|_| ExitStatus::Success)
    })
    .await
}

/// Who has to reach the server of these documents.
pub fn reach(documents: &Documents) -> Reach {
    Reach::of(documents.workflows.iter().map(|workflow| &workflow.document.spec))
}

async fn detach(
    context: &Context,
    place: &Place,
    documents: &Documents,
    wait: bool,
) -> Result<ExitStatus, CommandError> {
    let (info, client) = match enter(place, context.settings.namespace.as_deref()).await? {
        Entry::Theirs(info, client) => (*info, *client),
        Entry::Ours(lock) => {
            drop(lock);
            start_background(place, &context.settings, reach(documents)).await?
        }
    };
    let responses = hand_in(context, &client, documents, Purpose::Run).await?;
    context.output.progress(&format!(
        "running in the background: process {}, log {}",
        info.pid,
        place.log_file().display()
    ));
    context.output.progress("follow with: torc get workflows -w");
    if wait { follow_remote(context, &client, &responses).await } else { Ok(ExitStatus::Success) }
}

async fn follow_remote(
    context: &Context,
    client: &Client,
    responses: &[ApplyResponse],
) -> Result<ExitStatus, CommandError> {
    let ids: Vec<i64> = responses.iter().filter_map(|response| response.id).collect();
    let mut interrupts = Interrupts::listen()?;
    let mut progress = Progress::new(context.output);
    let followed = tokio::select! {
        followed = follow(client, &ids, &mut progress, REMOTE_PATIENCE) => followed,
        () = interrupts.next() => {
            progress.finish();
            context.output.progress("stopped following; the workflows go on");
            return Ok(ExitStatus::Interrupted);
        }
    };
    progress.finish();
    match followed? {
        Followed::Settled(workflows) => run_here::conclude(context, client, &workflows).await,
        Followed::ServerGone => Err(ClientError::Closed.into()),
    }
}

/// Applies and says what that did.
async fn hand_in(
    context: &Context,
    client: &Client,
    documents: &Documents,
    purpose: Purpose,
) -> Result<Vec<ApplyResponse>, CommandError> {
    // A workflow may name a cluster of the same files.
    for line in submit_clusters(client, &documents.clusters, purpose).await? {
        context.output.progress(&line);
    }
    let responses = submit(context, client, &documents.workflows, purpose).await?;
    context.output.value(&Items { items: &responses }, || {
        responses.iter().map(|response| line(response, purpose) + "\n").collect()
    })?;
    Ok(responses)
}

/// Applies Slurm clusters; what that did, as kubectl says it.
pub async fn submit_clusters(
    client: &Client,
    clusters: &[SlurmClusterDocument],
    purpose: Purpose,
) -> Result<Vec<String>, CommandError> {
    let mut lines = Vec::new();
    for document in clusters {
        let name = &document.metadata.name;
        let outcome = match purpose {
            Purpose::Run | Purpose::Store => client.apply_cluster(document).await?.outcome,
            Purpose::DryRun => match client.cluster(name).await {
                Ok(known) if known.spec == document.spec => ApplyOutcome::Unchanged,
                Ok(_) => ApplyOutcome::Configured,
                Err(error) if error.is_not_found() => ApplyOutcome::Created,
                Err(error) => return Err(error.into()),
            },
        };
        lines.push(format!("slurmcluster/{name} {}{}", outcome_word(outcome), dry(purpose)));
    }
    Ok(lines)
}

/// Applies documents one after the other; problems are told with their places in the files.
pub async fn submit(
    context: &Context,
    client: &Client,
    documents: &[LoadedWorkflow],
    purpose: Purpose,
) -> Result<Vec<ApplyResponse>, CommandError> {
    let working_dir = context.folder.to_str().ok_or_else(|| {
        CommandError::invalid(format!("the folder {} is not named in UTF-8", context.folder.display()))
    })?;
    let mut responses = Vec::new();
    for workflow in documents {
        let request = ApplyRequest {
            document: workflow.document.clone(),
            working_dir: working_dir.to_owned(),
            dry_run: purpose == Purpose::DryRun,
            store_only: purpose == Purpose::Store,
        };
        match client.apply(&request).await {
            Ok(response) => responses.push(response),
            Err(error) => return Err(located(workflow, error)),
        }
    }
    Ok(responses)
}

fn located(workflow: &LoadedWorkflow, error: ClientError) -> CommandError {
    match error {
        ClientError::Answer { body, .. } if !body.problems.is_empty() => {
            let message = body.message;
            let mut report = Report::default();
            report.add(&workflow.file, workflow.locate(body.problems));
            report.into_result().err().unwrap_or_else(|| CommandError::invalid(message))
        }
        other => other.into(),
    }
}

/// What an apply did, as kubectl says it.
pub fn line(response: &ApplyResponse, purpose: Purpose) -> String {
    let (outcome, dry) = (outcome_word(response.outcome), dry(purpose));
    format!("workflow/{} {outcome}{dry}{}", response.name, changes(&response.changes))
}

/// What became of an object, as kubectl says it.
pub const fn outcome_word(outcome: ApplyOutcome) -> &'static str {
    match outcome {
        ApplyOutcome::Created => "created",
        ApplyOutcome::Configured => "configured",
        ApplyOutcome::Unchanged => "unchanged",
    }
}

const fn dry(purpose: Purpose) -> &'static str {
    if matches!(purpose, Purpose::DryRun) { " (dry run)" } else { "" }
}

fn changes(changes: &JobChanges) -> String {
    let parts: Vec<String> = [
        (changes.added.count, "added"),
        (changes.removed.count, "removed"),
        (changes.changed.count, "changed"),
        (changes.rerun.count, "in a new run"),
        (changes.downstream.count, "downstream of changes"),
        (changes.adjusted.count, "adjusted"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .enumerate()
    .map(|(index, (count, word))| match index {
        0 => format!("{} {word}", human::count(count, "job")),
        _ => format!("{count} {word}"),
    })
    .collect();
    if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) }
}

#[cfg(test)]
mod tests {
    use torc_api::api::JobNames;

    use super::*;

    #[test]
    fn lines_as_kubectl_prints_them() {
        let added = JobNames { count: 3, names: Vec::new() };
        let mut response = ApplyResponse {
            name: "w".to_owned(),
            namespace: "default".to_owned(),
            id: Some(1),
            outcome: ApplyOutcome::Created,
            changes: JobChanges { added, ..JobChanges::default() },
        };
        assert_eq!(line(&response, Purpose::Run), "workflow/w created: 3 jobs added");
        response.changes = JobChanges::default();
        response.outcome = ApplyOutcome::Unchanged;
        assert_eq!(line(&response, Purpose::DryRun), "workflow/w unchanged (dry run)");
    }

    #[test]
    fn every_change_is_told_with_its_count() {
        let names = |count| JobNames { count, names: Vec::new() };
        let all = JobChanges {
            added: names(1),
            removed: names(2),
            changed: names(3),
            rerun: names(4),
            downstream: names(5),
            adjusted: names(6),
            unchanged: 7,
        };
        let expected = ": 1 job added, 2 removed, 3 changed, 4 in a new run, 5 downstream of changes, 6 adjusted";
        assert_eq!(changes(&all), expected);
        assert_eq!(changes(&JobChanges { adjusted: names(2), ..JobChanges::default() }), ": 2 jobs adjusted");
        let words = [ApplyOutcome::Created, ApplyOutcome::Configured, ApplyOutcome::Unchanged].map(outcome_word);
        assert_eq!(words, ["created", "configured", "unchanged"]);
        assert_eq!([Purpose::Run, Purpose::Store, Purpose::DryRun].map(dry), ["", "", " (dry run)"]);
    }

    #[test]
    fn what_a_document_is_handed_in_for() {
        use clap::Parser as _;
        for (flags, purpose) in [
            ("", Purpose::Run),
            ("--wait", Purpose::Run),
            ("--detach", Purpose::Run),
            ("--no-run", Purpose::Store),
            ("--dry-run", Purpose::DryRun),
        ] {
            let line = format!("torc apply -f a.yaml {flags}");
            let cli = crate::args::Cli::try_parse_from(line.split_whitespace()).expect("a command line");
            let crate::args::Command::Apply(args) = cli.command else { panic!("an apply") };
            assert_eq!(args.purpose(), purpose, "{flags}");
        }
    }

    #[test]
    fn only_what_implies_a_slurm_needs_that_of_this_machine() {
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
            assert_eq!(needs_the_slurm_of_this_machine(&specs, has_clusters), expected);
        }
    }

    #[test]
    fn sbatch_is_looked_for_in_every_folder_of_the_path() {
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
