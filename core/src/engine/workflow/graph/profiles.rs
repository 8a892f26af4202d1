//! The profiles of a workflow and the classes that they belong to.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use indexmap::IndexSet;

use super::profile::ProfileEntry;
use crate::class::JobClass;
use crate::expanded::Requirements;
use crate::ids::{ProfileId, WorkflowId};
use crate::rows::{JobProfile, ProfileRow};

/// The profiles of a workflow.
#[derive(Default)]
pub(super) struct Profiles {
    entries: Vec<ProfileEntry>,
    /// The parts that profiles share.
    common: HashSet<Arc<JobProfile>>,
    classes: IndexSet<JobClass>,
    /// Profiles with scaled requirements, by the original profile and the new requirements: jobs that are scaled alike share one.
    scaled: HashMap<(u32, Requirements), u32>,
}

impl Profiles {
    /// Adds a profile, and its class if that is new. Returns the index of the profile.
    pub fn add(&mut self, id: ProfileId, profile: JobProfile) -> u32 {
        let class = self.classes.insert_full(JobClass::of(&profile)).0 as u32;
        self.entries.push(ProfileEntry::new(id, class, profile, &mut self.common));
        self.entries.len() as u32 - 1
    }

    pub fn get(&self, index: u32) -> &ProfileEntry {
        &self.entries[index as usize]
    }

    pub fn classes(&self) -> &IndexSet<JobClass> {
        &self.classes
    }

    pub fn iter(&self) -> impl Iterator<Item = &ProfileEntry> {
        self.entries.iter()
    }

    pub fn rows(&self, workflow: WorkflowId) -> impl Iterator<Item = ProfileRow> {
        self.iter().map(move |entry| ProfileRow { id: entry.id(), workflow, profile: entry.complete() })
    }

    /// Returns the profile that was created earlier for a job with this profile and these new requirements.
    pub fn scaled(&self, index: u32, requirements: &Requirements) -> Option<u32> {
        self.scaled.get(&(index, requirements.clone())).copied()
    }

    pub fn set_scaled(&mut self, index: u32, requirements: Requirements, scaled: u32) {
        self.scaled.insert((index, requirements), scaled);
    }

    /// Takes over the scaled profiles of the same list of profiles.
    pub fn copy_scaled(&mut self, from: &Self) {
        self.scaled.clone_from(&from.scaled);
    }

    /// Forgets which profiles are scaled ones, as a restart does.
    #[cfg(test)]
    pub fn forget_scaled(&mut self) {
        self.scaled.clear();
    }
}
