//! Jobs of a workflow that wait for their recovery scripts, and the runners that should execute these.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::tx::Tx;
use crate::ids::{JobId, RunnerId};
use crate::rows::{RecoveryRow, TaskLease};

/// Jobs of a workflow that wait for their recovery scripts.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::engine) struct Recoveries {
    rows: BTreeMap<JobId, RecoveryRow>,
    /// Jobs whose scripts no runner holds, by the preferred runner.
    waiting: BTreeMap<Option<RunnerId>, BTreeSet<JobId>>,
}

impl Recoveries {
    pub fn get(&self, job: JobId) -> Option<&RecoveryRow> {
        self.rows.get(&job)
    }

    pub fn iter(&self) -> impl Iterator<Item = &RecoveryRow> {
        self.rows.values()
    }

    pub fn insert(&mut self, row: RecoveryRow) {
        if row.lease.runner.is_none() {
            self.waiting.entry(row.preferred).or_default().insert(row.job);
        }
        self.rows.insert(row.job, row);
    }

    pub fn remove(&mut self, job: JobId) -> Option<RecoveryRow> {
        let row = self.rows.remove(&job)?;
        if let Some(waiting) = self.waiting.get_mut(&row.preferred) {
            waiting.remove(&job);
            if waiting.is_empty() {
                self.waiting.remove(&row.preferred);
            }
        }
        Some(row)
    }

    /// Changes the lease of a script and records the change.
    pub fn change_lease(&mut self, job: JobId, tx: &mut Tx, change: impl FnOnce(&mut TaskLease)) {
        if let Some(mut row) = self.remove(job) {
            change(&mut row.lease);
            tx.changes.recovery(&row);
            self.insert(row);
        }
    }

    /// Returns waiting scripts that prefer this runner, no runner, or one that is gone.
    pub fn for_runner(&self, runner: RunnerId, is_there: impl Fn(RunnerId) -> bool) -> impl Iterator<Item = JobId> {
        let may_run = move |preferred: &Option<RunnerId>| {
            preferred.is_none_or(|preferred| preferred == runner || !is_there(preferred))
        };
        self.waiting.iter().filter(move |(preferred, _)| may_run(preferred)).flat_map(|(_, jobs)| jobs.iter().copied())
    }
}
