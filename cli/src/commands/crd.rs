//! `torc crd`: custom resource definitions for Kubernetes, printed, installed and compared.

mod status;

use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::params::ValidationDirective;
use serde_json::{Value, json};
use torc_api::definition::definitions;

use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::kubernetes::{api_error, connect};
use status::{CrdStatus, compare};

/// Who owns the fields that this command writes.
const MANAGER: &str = "torc-cli";
/// An API server needs a moment to serve what it has accepted.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(200);

/// Custom resource definitions for Kubernetes.
#[derive(Debug, Args)]
pub struct CrdArgs {
    #[command(subcommand)]
    command: CrdCommand,
}

#[derive(Debug, Subcommand)]
enum CrdCommand {
    /// Print the definitions, as YAML unless JSON is asked for.
    Print,
    /// Install the definitions in a cluster, or bring them up to date; objects stay as they are.
    Install(InstallArgs),
    /// Compare the definitions of a cluster with those of this program: exit code 0 when there is nothing to do, 5 when one is
    /// missing, 9 when one is older.
    Check,
}

#[derive(Debug, Args)]
struct InstallArgs {
    /// Take over fields that another program manages, such as Helm.
    #[arg(long)]
    force_conflicts: bool,
}

/// Runs the verb.
pub async fn run(context: &CommandContext, args: &CrdArgs) -> Result<ExitStatus, CliError> {
    match &args.command {
        CrdCommand::Print => print(context),
        CrdCommand::Install(args) => install(context, args).await,
        CrdCommand::Check => check(context).await,
    }
}

fn print(context: &CommandContext) -> Result<ExitStatus, CliError> {
    for (index, definition) in definitions().iter().enumerate() {
        if index > 0 {
            context.output.note("---")?;
        }
        context.output.document(definition)?;
    }
    Ok(ExitStatus::Success)
}

fn name(definition: &Value) -> &str {
    definition["metadata"]["name"].as_str().unwrap_or_default()
}

async fn installed(context: &CommandContext) -> Result<Api<DynamicObject>, CliError> {
    let resource = ApiResource::erase::<CustomResourceDefinition>(&());
    Ok(Api::all_with(connect(&context.settings.backend.choice()).await?, &resource))
}

async fn install(context: &CommandContext, args: &InstallArgs) -> Result<ExitStatus, CliError> {
    let api = installed(context).await?;
    let mut outcomes = Vec::new();
    for definition in definitions() {
        let name = name(&definition);
        let what = format!("install {name}");
        let before = api.get_opt(name).await.map_err(|error| api_error(&what, error))?;
        let mut params =
            PatchParams { field_validation: Some(ValidationDirective::Strict), ..PatchParams::apply(MANAGER) };
        params.force = args.force_conflicts;
        let patched = api.patch(name, &params, &Patch::Apply(&definition)).await;
        let after = patched.map_err(|error| conflict_or_refusal(&what, error))?;
        let outcome = match before {
            None => "created",
            Some(before) if before.metadata.resource_version == after.metadata.resource_version => "unchanged",
            Some(_) => "configured",
        };
        established(&api, name).await?;
        outcomes.push(json!({ "name": name, "outcome": outcome }));
    }
    context.output.value(&json!({ "items": outcomes }), || {
        let line = |item: &Value| {
            let word = |field: &str| item[field].as_str().unwrap_or_default().to_owned();
            format!("customresourcedefinition/{} {}\n", word("name"), word("outcome"))
        };
        outcomes.iter().map(line).collect()
    })?;
    Ok(ExitStatus::Success)
}

fn conflict_or_refusal(what: &str, error: kube::Error) -> CliError {
    let conflict = matches!(&error, kube::Error::Api(status) if status.code == 409);
    let error = api_error(what, error);
    if conflict { error.hint("take over these fields with --force-conflicts") } else { error }
}

/// Waits until the API server serves what it has accepted.
async fn established(api: &Api<DynamicObject>, name: &str) -> Result<(), CliError> {
    let start = Instant::now();
    loop {
        let found = api.get(name).await.map_err(|error| api_error(&format!("look at {name}"), error))?;
        if status::is_established(&found.data) {
            return Ok(());
        }
        if start.elapsed() > PATIENCE {
            let message = format!("the API server has accepted {name} and does not serve it");
            let hint = format!("`kubectl describe crd {name}` tells why");
            return Err(CliError::new(ExitStatus::Timeout, message).hint(hint));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn check(context: &CommandContext) -> Result<ExitStatus, CliError> {
    let api = installed(context).await?;
    let mut statuses = Vec::new();
    for definition in definitions() {
        let name = name(&definition).to_owned();
        let found = api.get_opt(&name).await.map_err(|error| api_error(&format!("look at {name}"), error))?;
        let found = found.map(|found| json!(found));
        statuses.push((name, compare(&definition, found.as_ref())));
    }
    let items: Vec<Value> =
        statuses.iter().map(|(name, found)| json!({ "name": name, "status": found.word() })).collect();
    context.output.value(&json!({ "items": items }), || {
        statuses.iter().map(|(name, found)| format!("customresourcedefinition/{name} {}\n", found.in_words())).collect()
    })?;
    let worst = statuses.iter().map(|(_, found)| *found).max().unwrap_or(CrdStatus::Current);
    if worst.needs_install() {
        context.output.progress("`torc crd install` brings them up to date");
    }
    Ok(worst.exit_status())
}
