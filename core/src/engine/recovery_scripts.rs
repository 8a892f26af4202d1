//! Jobs of a workflow that wait for their recovery scripts, and the runners that should have these.

use std::collections::{BTreeMap, BTreeSet};

use super::tx::Tx;
use crate::ids::{JobId, RunnerId};
use crate::rows::RecoveryRow;

/// Jobs of a workflow that wait for their recovery scripts.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Recoveries {
    rows: BTreeMap<JobId, RecoveryRow>,
    /// Those that nobody has, by the runner that should have them.
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

    /// Changes one and notes that it has to be written.
    pub fn change(&mut self, job: JobId, tx: &mut Tx, change: impl FnOnce(&mut RecoveryRow)) {
        if let Some(mut row) = self.remove(job) {
            change(&mut row);
            tx.changes.recovery(&row);
            self.insert(row);
        }
    }

    /// Scripts that wait for this runner, or for one that is not there any more.
    pub fn for_runner(&self, runner: RunnerId, is_there: impl Fn(RunnerId) -> bool) -> impl Iterator<Item = JobId> {
        let may = move |preferred: &Option<RunnerId>| {
            preferred.is_none_or(|preferred| preferred == runner || !is_there(preferred))
        };
        self.waiting.iter().filter(move |(preferred, _)| may(preferred)).flat_map(|(_, jobs)| jobs.iter().copied())
    }
}
