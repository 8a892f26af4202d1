//! Polls the allocations of a cluster: one `squeue` for all, and `sacct` for those that `squeue` no longer lists.

use std::collections::HashMap;
use std::time::Instant;

use torc_api::slurm::SlurmState;
use torc_core::engine::{AllocationKey, Observation, slurm_name};
use torc_core::ids::AllocationId;
use torc_core::planning::adopt::{self, PendingSubmission, Resolution, SlurmLookup};
use torc_core::planning::orphans::SlurmObservation;
use torc_core::rows::AllocationRow;
use torc_core::time::rfc3339;
use torc_slurm::error::SlurmError;
use torc_slurm::sacct::{self, RecordedJob};
use torc_slurm::squeue::{self, QueuedJob};

use super::clusters::ClusterConnection;

/// The instants since which Slurm has not known allocations.
pub(super) type MissingSince = HashMap<AllocationId, Instant>;

/// Polls every allocation of a cluster that has a Slurm job ID.
pub(super) async fn poll_allocations(
    cluster: &mut ClusterConnection,
    rows: &[AllocationRow],
    unseen: &mut MissingSince,
) -> Vec<Observation> {
    let numbered: Vec<(&AllocationRow, &str)> =
        rows.iter().filter_map(|row| Some((row, row.slurm_job_id.as_deref()?))).collect();
    if numbered.is_empty() {
        return Vec::new();
    }
    let unanswered = || numbered.iter().map(|(row, _)| Observation::unanswered(key(row))).collect();
    let call = squeue::jobs(numbered.iter().map(|(_, number)| *number));
    let queued = match squeue::read_jobs(cluster.ask(&call).await) {
        Ok(queued) => queued,
        Err(_) => return unanswered(),
    };
    let in_queue = |number: &str| queued.iter().find(|job| job.id.to_string() == number);
    let forgotten: Vec<&str> =
        numbered.iter().map(|(_, number)| *number).filter(|number| in_queue(number).is_none()).collect();
    let recorded = match forgotten.as_slice() {
        [] => Some(Vec::new()),
        ids => recorded(cluster, ids).await,
    };
    let now = cluster.now();
    let observe = |(row, number): &(&AllocationRow, &str)| match (in_queue(number), &recorded) {
        (Some(job), _) => {
            unseen.remove(&row.id);
            of_queued(row, job)
        }
        (None, None) => Observation::unanswered(key(row)),
        (None, Some(records)) => {
            let record = records.iter().find(|record| record.id.to_string() == *number);
            let since = *unseen.entry(row.id).or_insert(now);
            let unseen_ms = now.duration_since(since).as_millis();
            of_forgotten(row, record, i64::try_from(unseen_ms).unwrap_or(i64::MAX))
        }
    };
    let mut seen: Vec<Observation> = numbered.iter().map(observe).collect();
    query_former_ends(cluster, &numbered, &mut seen).await;
    seen
}

/// Asks the accounting why Slurm has requeued allocations. Without an answer, the reason stays unknown.
async fn query_former_ends(cluster: &mut ClusterConnection, rows: &[(&AllocationRow, &str)], seen: &mut [Observation]) {
    let mut requeued: Vec<(&str, &mut Observation)> = rows
        .iter()
        .zip(seen)
        .filter(|((row, _), seen)| seen.is_requeued(row))
        .map(|((_, number), seen)| (*number, seen))
        .collect();
    if requeued.is_empty() {
        return;
    }
    let call = sacct::all_starts(requeued.iter().map(|(number, _)| *number));
    let Ok(records) = cluster.ask(&call).await.and_then(|answer| sacct::read_jobs(&answer.text)) else { return };
    for (number, seen) in &mut requeued {
        let of_it = records.iter().filter(|record| record.id.to_string() == *number);
        seen.former_end =
            of_it.map(|record| record.state).rfind(|state| !state.has_nodes() && *state != SlurmState::Pending);
    }
}

/// Returns the accounting of jobs; `None` without an answer. A site without accounting answers with nothing.
async fn recorded(cluster: &mut ClusterConnection, ids: &[&str]) -> Option<Vec<RecordedJob>> {
    match cluster.ask(&sacct::jobs(ids.iter().copied())).await {
        Ok(answer) => sacct::read_jobs(&answer.text).ok(),
        Err(SlurmError::NoAnswer { .. }) => None,
        Err(SlurmError::Missing { .. } | SlurmError::Refused { .. }) => Some(Vec::new()),
    }
}

fn key(row: &AllocationRow) -> AllocationKey {
    (row.workflow, row.id)
}

fn of_queued(row: &AllocationRow, job: &QueuedJob) -> Observation {
    let ms = |seconds: Option<i64>| seconds.map(|seconds| seconds.saturating_mul(1_000));
    Observation {
        observation: SlurmObservation::Queued(job.state),
        state_text: Some(job.state_text.clone()),
        reason: job.reason.clone(),
        start_ms: ms(job.start),
        end_ms: ms(job.end),
        node_list: job.node_list.clone(),
        partition: job.partition.clone(),
        ..Observation::unanswered(key(row))
    }
}

fn of_forgotten(row: &AllocationRow, record: Option<&RecordedJob>, unseen_ms: i64) -> Observation {
    let blank = Observation { unseen_ms, observation: SlurmObservation::Unseen, ..Observation::unanswered(key(row)) };
    let Some(record) = record else { return blank };
    Observation {
        observation: SlurmObservation::Recorded(record.state),
        state_text: Some(record.state_text.clone()),
        end_ms: record.end.map(|seconds| seconds.saturating_mul(1_000)),
        ..blank
    }
}

/// The result of the search for a submission whose Slurm job ID is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PollResult {
    /// Slurm has it under this ID. The others are unwanted copies.
    There(String, Vec<String>),
    /// Slurm does not have it: it must be submitted again.
    Lost,
    /// Nothing is known yet.
    Unclear,
}

/// Searches for allocations that an interrupted process may have submitted without recording their Slurm job IDs.
pub(super) async fn search(
    cluster: &mut ClusterConnection,
    rows: &[AllocationRow],
    name_of: &(dyn Fn(&AllocationRow) -> String + Sync),
    identity: &str,
    now_ms: i64,
) -> Vec<(AllocationKey, PollResult)> {
    let nameless: Vec<&AllocationRow> =
        rows.iter().filter(|row| row.slurm_job_id.is_none() && row.called_ms.is_some()).collect();
    if nameless.is_empty() {
        return Vec::new();
    }
    let known: Vec<&str> = rows.iter().filter_map(|row| row.slurm_job_id.as_deref()).collect();
    let observe = observe(cluster, &nameless, &known, (name_of, identity)).await;
    let resolve = |row: &&AllocationRow| {
        let marker = row.name();
        let called_ms_ago = row.called_ms.map(|called| now_ms - called);
        let found: Option<Vec<(&str, &str)>> = observe
            .as_ref()
            .map(|found| found.iter().map(|(marker, number)| (marker.as_str(), number.as_str())).collect());
        let lookup = found.as_deref().map_or(SlurmLookup::NoAnswer, SlurmLookup::Found);
        let result = match adopt::decide(PendingSubmission { marker: &marker, called_ms_ago }, lookup) {
            Resolution::Adopt(number) => {
                let copies = adopt::duplicates(&marker, number, lookup);
                PollResult::There(number.to_owned(), copies.into_iter().map(str::to_owned).collect())
            }
            Resolution::Submit => PollResult::Lost,
            Resolution::Wait => PollResult::Unclear,
        };
        (key(row), result)
    };
    nameless.iter().map(resolve).collect()
}

/// Returns the Slurm job IDs by allocation name; `None` without an answer.
async fn observe(
    cluster: &mut ClusterConnection,
    rows: &[&AllocationRow],
    known: &[&str],
    (name_of, identity): (&(dyn Fn(&AllocationRow) -> String + Sync), &str),
) -> Option<Vec<(String, String)>> {
    let names: Vec<String> = rows.iter().map(|row| name_of(row)).collect();
    let queued = squeue::read_jobs(cluster.ask(&squeue::jobs_named(names.iter().map(String::as_str))).await).ok()?;
    let mut found: Vec<(String, String)> = Vec::new();
    let is_taken = |number: &str, found: &[(String, String)]| {
        known.contains(&number) || found.iter().any(|(_, taken)| taken == number)
    };
    for (row, name) in rows.iter().zip(&names) {
        let its_own = |job: &&QueuedJob| {
            // Allocations that run one after another share a name; their comments differ.
            job.name == *name && job.comment.as_deref().is_none_or(|comment| comment == slurm_name(row, identity))
        };
        for job in queued.iter().filter(its_own) {
            let number = job.id.to_string();
            if !is_taken(&number, &found) {
                found.push((row.name(), number));
            }
        }
    }
    let missing: Vec<usize> =
        (0..rows.len()).filter(|index| !found.iter().any(|(name, _)| *name == rows[*index].name())).collect();
    if missing.is_empty() {
        return Some(found);
    }
    let earliest = missing.iter().map(|index| rows[*index].created_ms).min().unwrap_or_default();
    let since = rfc3339(earliest - 60_000);
    let since = since.get(..19).unwrap_or_default();
    let wanted = missing.iter().map(|index| names[*index].as_str());
    let records = match cluster.ask(&sacct::jobs_named(wanted, since)).await {
        Ok(answer) => sacct::read_jobs(&answer.text).ok()?,
        Err(SlurmError::NoAnswer { .. }) => return None,
        Err(SlurmError::Missing { .. } | SlurmError::Refused { .. }) => Vec::new(),
    };
    for index in missing {
        let number = |record: &RecordedJob| record.id.to_string();
        let its_own = |record: &&RecordedJob| record.name == names[index] && !is_taken(&number(record), &found);
        if let Some(record) = records.iter().find(its_own) {
            found.push((rows[index].name(), number(record)));
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests;
