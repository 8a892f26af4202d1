//! Reports that the server has not confirmed yet: attempts that ended, and leases that are returned. An entry stays
//! until the server has confirmed it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use torc_api::wire::{AttemptKey, FinishedAttempt, JournalledResult};

use super::milliseconds;
use crate::clock::BootInstant;

/// An attempt that ended, until the server has its result.
#[derive(Clone, Debug)]
pub(super) struct PendingReport {
    pub name: String,
    pub finished: FinishedAttempt,
    pub ended: BootInstant,
    /// Time between the end of the attempt and `ended`: a result from a file may be older than the machine's uptime.
    pub older: Duration,
    /// True if the journal has it, so that it survives the agent and the shim.
    pub is_journaled: bool,
}

impl PendingReport {
    pub fn new(name: &str, finished: FinishedAttempt, ended: BootInstant) -> Self {
        Self { name: name.to_owned(), finished, ended, older: Duration::ZERO, is_journaled: false }
    }

    /// Returns the result with its age.
    pub fn with_age(&self, now: BootInstant) -> FinishedAttempt {
        FinishedAttempt {
            ended_ms_ago: milliseconds(now.since(self.ended).saturating_add(self.older)),
            ..self.finished.clone()
        }
    }
}

/// The unconfirmed reports and returns.
#[derive(Debug, Default)]
pub(super) struct Reports {
    reports: BTreeMap<AttemptKey, PendingReport>,
    returned: BTreeSet<AttemptKey>,
    /// Returned leases for which too little time is left.
    out_of_time: BTreeSet<AttemptKey>,
}

impl Reports {
    pub fn get(&self, key: &AttemptKey) -> Option<&PendingReport> {
        self.reports.get(key)
    }

    pub fn contains_key(&self, key: &AttemptKey) -> bool {
        self.reports.contains_key(key)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&AttemptKey, &PendingReport)> + Clone {
        self.reports.iter()
    }

    pub fn len(&self) -> usize {
        self.reports.len()
    }

    /// Returns whether no attempt is to be reported.
    pub fn is_empty(&self) -> bool {
        self.reports.is_empty()
    }

    pub fn returned(&self) -> &BTreeSet<AttemptKey> {
        &self.returned
    }

    pub fn out_of_time(&self) -> &BTreeSet<AttemptKey> {
        &self.out_of_time
    }

    /// Adds an attempt that has ended.
    pub fn add(&mut self, report: PendingReport) {
        self.reports.insert(report.finished.key, report);
    }

    /// Adds a result that an earlier runner wrote into the journal, with its age. Returns false if the report exists already.
    pub fn add_journaled(&mut self, result: JournalledResult, age: Duration, now: BootInstant) -> bool {
        if self.set_journaled(&result.finished.key) {
            return false;
        }
        let report = PendingReport::new(&result.name, result.finished, now);
        self.add(PendingReport { older: age, is_journaled: true, ..report });
        true
    }

    /// Returns a result to be changed. It is then written to the journal again.
    pub fn finished_mut(&mut self, key: &AttemptKey) -> Option<&mut FinishedAttempt> {
        let report = self.reports.get_mut(key)?;
        report.is_journaled = false;
        Some(&mut report.finished)
    }

    /// Marks a report as journaled. Returns false if there is none, because the server has it already.
    pub fn set_journaled(&mut self, key: &AttemptKey) -> bool {
        let report = self.reports.get_mut(key);
        report.map(|report| report.is_journaled = true).is_some()
    }

    /// Returns those of these attempts that are in the journal.
    pub fn journaled_among(&self, keys: &[AttemptKey]) -> Vec<AttemptKey> {
        let is_journaled = |key: &&AttemptKey| self.get(key).is_some_and(|report| report.is_journaled);
        keys.iter().filter(is_journaled).copied().collect()
    }

    /// Returns a lease that has not started.
    pub fn return_lease(&mut self, key: AttemptKey) {
        self.returned.insert(key);
    }

    /// Marks a returned lease as too late for the time that is left.
    pub fn set_out_of_time(&mut self, key: AttemptKey) {
        self.out_of_time.insert(key);
    }

    /// Removes a returned lease: the server has confirmed the return, or has granted the lease again.
    pub fn forget_returned(&mut self, key: &AttemptKey) {
        self.returned.remove(key);
        self.out_of_time.remove(key);
    }

    /// Removes a report that the server has confirmed.
    pub fn settle(&mut self, key: &AttemptKey) {
        self.reports.remove(key);
    }
}

#[cfg(test)]
impl Reports {
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
impl std::ops::Index<&AttemptKey> for Reports {
    type Output = PendingReport;

    fn index(&self, key: &AttemptKey) -> &PendingReport {
        &self.reports[key]
    }
}
