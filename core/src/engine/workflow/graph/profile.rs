//! Profiles in memory.
//!
//! Jobs that differ only in their files have different profiles. Their common part is kept once, and only the paths for each.

use std::collections::HashSet;
use std::sync::Arc;

use crate::ids::ProfileId;
use crate::rows::JobProfile;

/// A profile of a live workflow.
pub(in crate::engine) struct ProfileEntry {
    id: ProfileId,
    /// Index into the classes of the workflow.
    class: u32,
    /// Number of leading paths that are inputs.
    inputs: u32,
    common: Arc<JobProfile>,
    paths: Box<[Box<str>]>,
}

impl ProfileEntry {
    /// Separates the paths from a profile, and shares the rest with equal ones.
    pub(super) fn new(
        id: ProfileId,
        class: u32,
        mut profile: JobProfile,
        known: &mut HashSet<Arc<JobProfile>>,
    ) -> Self {
        let inputs = std::mem::take(&mut profile.input_files);
        let outputs = std::mem::take(&mut profile.output_files);
        let common = known.get(&profile).cloned().unwrap_or_else(|| {
            let common = Arc::new(profile);
            known.insert(common.clone());
            common
        });
        let count = inputs.len() as u32;
        let paths = inputs.into_iter().chain(outputs).map(String::into_boxed_str).collect();
        Self { id, class, inputs: count, common, paths }
    }

    pub fn id(&self) -> ProfileId {
        self.id
    }

    pub fn class(&self) -> u32 {
        self.class
    }

    /// Returns the profile without paths of files.
    pub fn common(&self) -> &JobProfile {
        &self.common
    }

    /// Returns the profile with paths of files.
    pub fn complete(&self) -> JobProfile {
        let (inputs, outputs) = self.paths.split_at(self.inputs as usize);
        let texts = |paths: &[Box<str>]| paths.iter().map(|path| String::from(&**path)).collect();
        JobProfile { input_files: texts(inputs), output_files: texts(outputs), ..(*self.common).clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_parts_of_profiles_are_kept_once() {
        let mut known = HashSet::new();
        let profile = |number: i64| JobProfile {
            labels: vec!["gpu".to_owned()],
            input_files: vec!["in".to_owned()],
            output_files: vec![format!("out{number}"), "log".to_owned()],
            ..JobProfile::default()
        };
        let entries = [1, 2].map(|number| ProfileEntry::new(ProfileId(number), 0, profile(number), &mut known));
        for (entry, number) in entries.iter().zip(1..) {
            assert_eq!(entry.complete(), profile(number));
            assert!(entry.common().output_files.is_empty());
        }
        assert!(Arc::ptr_eq(&entries[0].common, &entries[1].common));
        assert_eq!(known.len(), 1);
    }

    /// A job with its own files costs one entry, its record and the bytes of its paths.
    #[test]
    fn an_entry_is_small() {
        assert!(size_of::<ProfileEntry>() <= 40, "{}", size_of::<ProfileEntry>());
    }
}
