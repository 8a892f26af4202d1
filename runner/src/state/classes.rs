//! Resource classes. Jobs of one class take the same resources, so the shim can start one after the other without the
//! agent.

use std::collections::VecDeque;

use torc_api::wire::AttemptKey;

use super::profiles::LaunchProfile;

/// The jobs of one class.
#[derive(Debug, Default)]
pub(super) struct ClassMembers {
    /// Number of running jobs.
    pub running: usize,
    /// Jobs at the shim that start when a running one ends.
    pub handed: VecDeque<AttemptKey>,
}

/// All classes, indexed by their number.
#[derive(Debug, Default)]
pub(super) struct Classes {
    queues: Vec<ClassMembers>,
}

impl Classes {
    /// Returns the jobs at the shim that have not started.
    pub fn handed(&self) -> impl Iterator<Item = &AttemptKey> {
        self.queues.iter().flat_map(|queue| queue.handed.iter())
    }

    /// Returns whether the shim may get one more job of this class, with up to `depth` jobs for each that runs.
    pub fn can_prefetch(&self, class: u32, depth: usize) -> bool {
        self.queues.get(class as usize).is_some_and(|queue| queue.handed.len() < depth * queue.running)
    }

    /// Returns a class; none for tasks.
    pub fn get_mut(&mut self, class: u32) -> Option<&mut ClassMembers> {
        if class == LaunchProfile::NO_CLASS {
            return None;
        }
        let at = class as usize;
        if at >= self.queues.len() {
            self.queues.resize_with(at + 1, ClassMembers::default);
        }
        self.queues.get_mut(at)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut ClassMembers> {
        self.queues.iter_mut()
    }

    /// Removes a job from those that wait at the shim for a running one to end.
    pub fn remove_handed(&mut self, key: AttemptKey) {
        for queue in &mut self.queues {
            queue.handed.retain(|handed| *handed != key);
        }
    }

    #[cfg(test)]
    pub fn running(&self, class: usize) -> usize {
        self.queues[class].running
    }
}
