//! Everything that the server has to be told: attempts that ended, and leases that are given back.
//!
//! It stays here until the server has confirmed it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use torc_api::wire::{AttemptKey, FinishedAttempt};

use super::milliseconds;
use crate::clock::BootInstant;

/// An attempt that ended, until the server has it.
#[derive(Clone, Debug)]
pub(super) struct Report {
    /// The job's name.
    pub name: String,
    pub finished: FinishedAttempt,
    pub ended: BootInstant,
    /// How much older it is: one that was read from a file may be from before this machine started.
    pub older: Duration,
    /// The journal has it: it is safe from the end of this process and its shim.
    pub is_journaled: bool,
}

impl Report {
    pub fn new(name: &str, finished: FinishedAttempt, ended: BootInstant) -> Self {
        Self { name: name.to_owned(), finished, ended, older: Duration::ZERO, is_journaled: false }
    }

    /// Returns the report with its age.
    pub fn told_at(&self, now: BootInstant) -> FinishedAttempt {
        FinishedAttempt {
            ended_ms_ago: milliseconds(now.since(self.ended).saturating_add(self.older)),
            ..self.finished.clone()
        }
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Reports {
    reports: BTreeMap<AttemptKey, Report>,
    returned: BTreeSet<AttemptKey>,
    /// Those of them for which too little time is left.
    out_of_time: BTreeSet<AttemptKey>,
}

impl Reports {
    pub fn get(&self, key: &AttemptKey) -> Option<&Report> {
        self.reports.get(key)
    }

    pub fn contains_key(&self, key: &AttemptKey) -> bool {
        self.reports.contains_key(key)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&AttemptKey, &Report)> + Clone {
        self.reports.iter()
    }

    pub fn len(&self) -> usize {
        self.reports.len()
    }

    /// Whether no attempt is to be reported.
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
    pub fn add(&mut self, report: Report) {
        self.reports.insert(report.finished.key, report);
    }

    /// Changes a report. One in the journal is written again.
    pub fn finished_mut(&mut self, key: &AttemptKey) -> Option<&mut FinishedAttempt> {
        let report = self.reports.get_mut(key)?;
        report.is_journaled = false;
        Some(&mut report.finished)
    }

    /// Notes that a report is in the journal. Returns false if the server has it already.
    pub fn set_journaled(&mut self, key: &AttemptKey) -> bool {
        let report = self.reports.get_mut(key);
        report.map(|report| report.is_journaled = true).is_some()
    }

    /// Gives a lease back that has not started.
    pub fn give_back(&mut self, key: AttemptKey) {
        self.returned.insert(key);
    }

    /// Notes that a lease is given back because too little time is left for its job.
    pub fn set_out_of_time(&mut self, key: AttemptKey) {
        self.out_of_time.insert(key);
    }

    /// A lease that was given back was granted again, or the server knows that it was given back.
    pub fn forget_returned(&mut self, key: &AttemptKey) {
        self.returned.remove(key);
        self.out_of_time.remove(key);
    }

    /// The server has a report.
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
    type Output = Report;

    fn index(&self, key: &AttemptKey) -> &Report {
        &self.reports[key]
    }
}
