//! `torc hpc generate`: a cluster as a document.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use torc_api::document::{Document, Metadata, SlurmClusterDocument};

use super::SiteArgs;
use crate::context::CommandContext;
use crate::error::CliError;
use crate::output::document_text;
use crate::sites::ProfileOrigin;

/// Write a cluster down as a `SlurmCluster` document.
///
/// What Slurm says about itself unless a profile is named. Print it, look at it, keep it beside your workflows: `torc apply -f`
/// takes both.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    #[command(flatten)]
    pub site: SiteArgs,
    /// What workflows refer to as `slurmCluster` (the profile's name when absent).
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// The account that is charged unless a scheduler names another.
    #[arg(long)]
    pub account: Option<String>,
    /// Write it to this file, which must not exist, instead of printing it.
    #[arg(long, value_name = "FILE")]
    pub to: Option<PathBuf>,
}

pub(super) async fn run(context: &CommandContext, args: &GenerateArgs) -> Result<(), CliError> {
    let site = args.site.find().await?;
    let name = args.name.clone().unwrap_or_else(|| site.profile.name.clone());
    let mut spec = site.profile.to_cluster();
    spec.default_account.clone_from(&args.account);
    if site.origin == ProfileOrigin::Detected {
        spec.command_prefix = args.site.way.prefix();
    }
    let document = Document::SlurmCluster(SlurmClusterDocument {
        api_version: "torc.dev/v1alpha1".to_owned(),
        metadata: Metadata { name: name.clone(), ..Metadata::default() },
        spec,
    });
    let problems = torc_api::validate::validate(&document);
    if let Some(problem) = problems.iter().find(|problem| problem.is_error()) {
        return Err(CliError::invalid(problem.message.clone()).hint("give it another name with --name"));
    }
    let Some(path) = &args.to else { return context.output.document(&json!(document)) };
    write_new(path, &document_text(&json!(document)))?;
    context.output.value(&json!({ "file": path, "name": name, "partitions": site.profile.partitions.len() }), || {
        format!("{} written: `slurmCluster: {name}` in a workflow refers to it\n", path.display())
    })
}

/// Writes a file that must not exist yet.
fn write_new(path: &PathBuf, text: &str) -> Result<(), CliError> {
    use std::io::Write as _;
    let file = std::fs::File::create_new(path).and_then(|mut file| file.write_all(text.as_bytes()));
    file.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            CliError::usage(format!("{} exists", path.display())).hint("choose another name, or remove it first")
        }
        _ => CliError::unexpected(format!("could not write {}", path.display()), error),
    })
}
