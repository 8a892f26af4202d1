//! Jobs of the graph that running jobs have added.

use std::collections::{BTreeSet, HashMap, HashSet};

use torc_api::api::JobChanges;

use super::Graph;
use crate::rows::JobRow;

impl Graph {
    pub fn has_spawned(&self) -> bool {
        self.profiles().any(|entry| entry.common().spawned.is_some())
    }

    /// Returns the jobs that `jobs` have spawned, directly or not. A spawned job has a higher number than its caller.
    pub fn spawned_by(&self, jobs: &BTreeSet<u32>) -> BTreeSet<u32> {
        let mut found = BTreeSet::new();
        for job in self.ordinals() {
            let Some(spawned) = &self.profile(job).spawned else { continue };
            let caller = self.ordinal(spawned.by);
            if caller.is_none_or(|caller| jobs.contains(&caller) || found.contains(&caller)) {
                found.insert(job);
            }
        }
        found
    }

    /// Returns the spawned jobs that an edit keeps: those whose caller stays and whose name is not in the edited document.
    pub fn surviving_spawned(&self, declared: &HashSet<&str>) -> Vec<JobRow> {
        if !self.has_spawned() {
            return Vec::new();
        }
        let mut kept: BTreeSet<u32> = self.ordinals().filter(|job| declared.contains(self.name(*job))).collect();
        let mut rows = Vec::new();
        for job in self.ordinals() {
            let Some(spawned) = self.profile(job).spawned.as_ref().filter(|_| !kept.contains(&job)) else { continue };
            if self.ordinal(spawned.by).is_some_and(|caller| kept.contains(&caller)) {
                kept.insert(job);
                rows.push(self.row(job));
            }
        }
        rows
    }

    /// Adds to `changes` the jobs that an edited document does not have. Declared jobs are removed. Spawned jobs are removed if their caller
    /// is removed or reset. `declared`: whether an edit resets a job of the document, by name.
    pub fn undeclared_changes(&self, declared: &HashMap<&str, bool>, changes: &mut JobChanges) {
        let (mut removed, mut reset) = (BTreeSet::new(), BTreeSet::new());
        for job in self.ordinals() {
            match (declared.get(self.name(job)), &self.profile(job).spawned) {
                (Some(true), _) => drop(reset.insert(job)),
                (None, None) => drop(removed.insert(job)),
                _ => {}
            }
        }
        let lost: BTreeSet<u32> = reset.union(&removed).copied().collect();
        let is_undeclared = |job: &u32| !declared.contains_key(self.name(*job));
        removed.extend(self.spawned_by(&lost).into_iter().filter(is_undeclared));
        let downstream = self.with_descendants(&lost);
        for job in self.ordinals().filter(is_undeclared) {
            match (removed.contains(&job), downstream.contains(&job)) {
                (true, _) => changes.removed.push(self.name(job)),
                (_, true) => changes.downstream.push(self.name(job)),
                _ => changes.unchanged += 1,
            }
        }
    }

    /// Removes from the row of a spawned job the dependencies that no longer exist. Returns whether there were any.
    pub fn drop_removed_parents(&self, job: u32, row: &mut JobRow) -> bool {
        let before = row.depends_on.len();
        if self.profile(job).spawned.is_some() {
            row.depends_on.retain(|parent| self.ordinal(*parent).is_some());
        }
        row.depends_on.len() < before
    }
}
