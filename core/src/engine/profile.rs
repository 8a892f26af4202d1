//! Profiles in memory. Jobs with files of their own have profiles of their own, though all else of them is the same: that is
//! kept once, and only the paths for each.

use std::collections::HashSet;
use std::sync::Arc;

use crate::ids::ProfileId;
use crate::rows::JobProfile;

/// A profile of a live workflow.
pub(super) struct ProfileEntry {
    pub id: ProfileId,
    /// Index into the workflow's classes.
    pub class: u32,
    /// How many of the paths are those of inputs.
    inputs: u32,
    common: Arc<JobProfile>,
    paths: Box<[Box<str>]>,
}

impl ProfileEntry {
    /// Takes the paths out of a profile, and shares the rest with those that are alike.
    pub fn new(id: ProfileId, class: u32, mut profile: JobProfile, known: &mut HashSet<Arc<JobProfile>>) -> Self {
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

    /// The profile without paths of files.
    pub fn common(&self) -> &JobProfile {
        &self.common
    }

    /// The whole profile.
    pub fn whole(&self) -> JobProfile {
        let (inputs, outputs) = self.paths.split_at(self.inputs as usize);
        let texts = |paths: &[Box<str>]| paths.iter().map(|path| String::from(&**path)).collect();
        JobProfile { input_files: texts(inputs), output_files: texts(outputs), ..(*self.common).clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_put_together_again_and_what_is_alike_is_kept_once() {
        let mut known = HashSet::new();
        let whole = |number: i64| JobProfile {
            labels: vec!["gpu".to_owned()],
            input_files: vec!["in".to_owned()],
            output_files: vec![format!("out{number}"), "log".to_owned()],
            ..JobProfile::default()
        };
        let entries = [1, 2].map(|number| ProfileEntry::new(ProfileId(number), 0, whole(number), &mut known));
        for (entry, number) in entries.iter().zip(1..) {
            assert_eq!(entry.whole(), whole(number));
            assert!(entry.common().output_files.is_empty());
        }
        assert!(Arc::ptr_eq(&entries[0].common, &entries[1].common));
        assert_eq!(known.len(), 1);
    }

    /// A job whose files are its own costs these entries, its record and the bytes of its paths.
    #[test]
    fn an_entry_is_small() {
        assert!(size_of::<ProfileEntry>() <= 40, "{}", size_of::<ProfileEntry>());
    }
}
