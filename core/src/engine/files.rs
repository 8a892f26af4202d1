//! Files that jobs read and wrote, as their runners reported them. They are only stored: the engine does not use them.

use torc_api::wire::FinishedAttempt;

use super::tx::Tx;
use super::workflow::LiveWorkflow;
use crate::rows::FileRow;

impl LiveWorkflow {
    /// Records the files that a successful attempt read and wrote.
    pub(super) fn record_files(&self, job: u32, finished: &FinishedAttempt, tx: &mut Tx) {
        tx.changes.rows().files.extend(finished.files.iter().map(|file| FileRow {
            workflow: self.id(),
            job: self.graph.job(job).id(),
            path: file.path.clone(),
            size_bytes: file.size_bytes,
            modified_ms: file.modified_ms,
            sha256: file.sha256.clone(),
            seen_ms: tx.now.wall_ms,
        }));
    }
}
