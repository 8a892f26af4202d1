//! `torc hpc generate`: write a cluster as a document.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use torc_api::document::{Document, Metadata, SlurmClusterDocument};

use super::SiteArgs;
use crate::context::CommandContext;
use crate::error::CliError;
use crate::output::document_text;
use crate::sites::ProfileOrigin;

/// Write a `SlurmCluster` document for a cluster
///
/// Queries Slurm unless a profile is named. Review the document and keep it with your workflows: `torc apply -f` accepts both.
#[derive(Debug, Args)]
pub struct GenerateClusterArgs {
    #[command(flatten)]
    pub site: SiteArgs,
    /// Name for `slurmCluster` in workflows (default: the name of the profile)
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Account to charge unless a scheduler names another (default: none)
    #[arg(long)]
    pub account: Option<String>,
    /// File to create instead of printing the document; it must not exist
    #[arg(long, value_name = "FILE")]
    pub to: Option<PathBuf>,
}

pub(super) async fn run(context: &CommandContext, args: &GenerateClusterArgs) -> Result<(), CliError> {
    let site = args.site.find().await?;
    let name = args.name.clone().unwrap_or_else(|| site.profile.name.clone());
    let mut spec = site.profile.to_cluster();
    spec.default_account.clone_from(&args.account);
    if site.origin == ProfileOrigin::Detected {
        spec.command_prefix = args.site.prefix.words();
    }
    let document = Document::SlurmCluster(SlurmClusterDocument {
        api_version: "torc.dev/v1alpha1".to_owned(),
        metadata: Metadata { name: name.clone(), ..Metadata::default() },
        spec,
    });
    let problems = torc_api::validate::validate(&document);
    if let Some(problem) = problems.iter().find(|problem| problem.is_error()) {
        return Err(CliError::invalid(problem.message.clone()).hint("set another name with --name"));
    }
    let Some(path) = &args.to else { return context.output.document(&json!(document)) };
    write_new(path, &document_text(&json!(document)))?;
    context.output.value(&json!({ "file": path, "name": name, "partitions": site.profile.partitions.len() }), || {
        format!("{} written; refer to it in a workflow with `slurmCluster: {name}`\n", path.display())
    })
}

/// Creates a file; it must not exist.
fn write_new(path: &PathBuf, text: &str) -> Result<(), CliError> {
    use std::io::Write as _;
    let file = std::fs::File::create_new(path).and_then(|mut file| file.write_all(text.as_bytes()));
    file.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => CliError::usage(format!("{} already exists", path.display()))
            .hint("choose another name, or remove the file first"),
        _ => CliError::unexpected(format!("could not write {}", path.display()), error),
    })
}
