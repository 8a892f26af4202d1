//! The set of workflows that have changed since it was last taken.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;
use torc_core::ids::WorkflowId;
use torc_core::rows::Changes;

/// Workflows that have changed. Clones share state. Records nothing before `begin`.
#[derive(Clone, Default)]
pub(crate) struct ChangedWorkflows {
    ids: Arc<Mutex<Option<BTreeSet<WorkflowId>>>>,
    changed_signal: Arc<Notify>,
}

impl ChangedWorkflows {
    /// Starts to record changes.
    pub fn begin(&self) {
        self.lock().get_or_insert_default();
    }

    /// Records the workflows that a group has changed.
    pub(super) fn note(&self, changes: &Changes) {
        let mut ids = self.lock();
        let Some(ids) = ids.as_mut() else { return };
        ids.extend(changes.workflows.iter().map(|row| row.id));
        ids.extend(changes.events.iter().filter_map(|event| event.workflow));
        ids.extend(changes.allocations.iter().map(|row| row.workflow));
        if !ids.is_empty() {
            self.changed_signal.notify_one();
        }
    }

    /// Waits until a workflow has changed.
    pub async fn some(&self) {
        self.changed_signal.notified().await;
    }

    /// Returns the workflows that have changed since the last call.
    pub fn take(&self) -> BTreeSet<WorkflowId> {
        self.lock().as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<BTreeSet<WorkflowId>>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use torc_core::rows::EventRow;

    use super::*;

    #[tokio::test]
    async fn each_workflow_is_told_once() {
        let event = |id| EventRow { workflow: Some(WorkflowId(id)), ..EventRow::default() };
        let changes = Changes { events: vec![event(1), event(2), event(1)], ..Changes::default() };
        let changed = ChangedWorkflows::default();
        changed.note(&changes);
        assert!(changed.take().is_empty(), "no watch has asked for it");
        changed.begin();
        changed.note(&changes);
        changed.note(&changes);
        changed.some().await;
        assert_eq!(changed.take(), BTreeSet::from([WorkflowId(1), WorkflowId(2)]));
        assert!(changed.take().is_empty());
    }

    #[tokio::test]
    async fn allocations_and_events_touch_their_workflow() {
        let event = EventRow { workflow: Some(WorkflowId(1)), ..EventRow::default() };
        let allocation = torc_core::rows::AllocationRow { workflow: WorkflowId(2), ..Default::default() };
        for (changes, expected) in [
            (Changes { events: vec![event], ..Changes::default() }, vec![WorkflowId(1)]),
            (Changes { allocations: vec![allocation], ..Changes::default() }, vec![WorkflowId(2)]),
            (Changes { events: vec![EventRow::default()], ..Changes::default() }, vec![]),
        ] {
            let changed = ChangedWorkflows::default();
            changed.begin();
            changed.note(&changes);
            assert_eq!(changed.take(), expected.into_iter().collect());
        }
    }
}
