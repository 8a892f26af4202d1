//! `torc crd`: print, install and check the custom resource definitions for Kubernetes.

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

/// The field manager of this command.
const MANAGER: &str = "torc-cli";
/// Time that an API server has to serve a definition that it has accepted. It usually takes less than a second.
const ESTABLISH_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval at which the definition is read until the API server serves it.
const ESTABLISH_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Print, install or check the custom resource definitions for Kubernetes
#[derive(Debug, Args)]
pub struct CrdArgs {
    #[command(subcommand)]
    command: CrdCommand,
}

#[derive(Debug, Subcommand)]
enum CrdCommand {
    /// Print the definitions, as YAML by default
    Print,
    /// Install or update the definitions in a cluster; existing objects do not change
    Install(InstallArgs),
    /// Compare the definitions in a cluster with those of this program
    ///
    /// Exits with 0 if they are up to date, with 5 if one is missing, and with 9 if one is older.
    Check,
}

#[derive(Debug, Args)]
struct InstallArgs {
    /// Take over fields that another program manages, such as Helm
    #[arg(long)]
    force_conflicts: bool,
}

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

/// Waits until the API server serves the definition that it has accepted.
async fn established(api: &Api<DynamicObject>, name: &str) -> Result<(), CliError> {
    let start = Instant::now();
    loop {
        let found = api.get(name).await.map_err(|error| api_error(&format!("read {name}"), error))?;
        if status::is_established(&found.data) {
            return Ok(());
        }
        if start.elapsed() > ESTABLISH_TIMEOUT {
            let message = format!("the API server has accepted {name} but does not serve it");
            let hint = format!("`kubectl describe crd {name}` shows the reason");
            return Err(CliError::new(ExitStatus::Timeout, message).hint(hint));
        }
        tokio::time::sleep(ESTABLISH_CHECK_INTERVAL).await;
    }
}

async fn check(context: &CommandContext) -> Result<ExitStatus, CliError> {
    let api = installed(context).await?;
    let mut statuses = Vec::new();
    for definition in definitions() {
        let name = name(&definition).to_owned();
        let found = api.get_opt(&name).await.map_err(|error| api_error(&format!("read {name}"), error))?;
        let found = found.map(|found| json!(found));
        statuses.push((name, compare(&definition, found.as_ref())));
    }
    let items: Vec<Value> =
        statuses.iter().map(|(name, found)| json!({ "name": name, "status": found.word() })).collect();
    context.output.value(&json!({ "items": items }), || {
        statuses.iter().map(|(name, found)| format!("customresourcedefinition/{name} {}\n", found.text())).collect()
    })?;
    let worst = statuses.iter().map(|(_, found)| *found).max().unwrap_or(CrdStatus::Current);
    if worst.needs_install() {
        context.output.progress("update them with `torc crd install`");
    }
    Ok(worst.exit_status())
}
