//! `torc gc`: delete old results, events and logs.

use std::time::Duration;

use clap::Args;
use serde_json::json;
use torc_api::api::GcRequest;

use crate::client::Client;
use crate::connection::with_client;
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::output::human;

/// Delete old results, events, runners, allocations and log files
///
/// Keeps the latest result of every job regardless of its age, and the runner and allocation of that result.
#[derive(Debug, Args)]
pub struct GcArgs {
    /// Minimum age of what is deleted, e.g. `30d` or `12h`
    #[arg(long, value_name = "AGE", value_parser = crate::args::parse_duration)]
    pub older_than: Duration,
    /// Keep log files
    #[arg(long)]
    pub keep_logs: bool,
    /// Show what would be deleted without deleting it
    #[arg(long)]
    pub dry_run: bool,
}

pub async fn run(context: &CommandContext, args: &GcArgs) -> Result<ExitStatus, CliError> {
    let older_than_seconds = i64::try_from(args.older_than.as_secs()).unwrap_or(i64::MAX);
    let request = GcRequest { older_than_seconds, dry_run: args.dry_run };
    let gone =
        with_client(&context.settings, &context.folder, async |client: &Client| Ok(client.gc(&request).await?)).await?;
    let removed = if args.keep_logs || args.dry_run { 0 } else { remove_logs(context, &gone.log_files) };
    let logs =
        if args.dry_run && !args.keep_logs { i64::try_from(gone.log_files.len()).unwrap_or(i64::MAX) } else { removed };
    let value = json!({
        "results": gone.results,
        "events": gone.events,
        "runners": gone.runners,
        "allocations": gone.allocations,
        "logFiles": logs,
        "dryRun": args.dry_run,
    });
    context.output.value(&value, || {
        let verb = if args.dry_run { "would be deleted" } else { "deleted" };
        format!(
            "{verb}: {}, {}, {}, {}, {}\n",
            human::count(gone.results, "result"),
            human::count(gone.events, "event"),
            human::count(gone.runners, "runner"),
            human::count(gone.allocations, "allocation"),
            human::count(logs, "log file"),
        )
    })?;
    Ok(ExitStatus::Success)
}

fn remove_logs(context: &CommandContext, paths: &[String]) -> i64 {
    let mut removed = 0;
    for path in paths {
        match std::fs::remove_file(path) {
            Ok(()) => removed += 1,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => context.output.warning(&format!("could not remove {path}: {error}")),
        }
    }
    removed
}
