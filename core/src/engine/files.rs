//! Files that jobs read and wrote, as their runners saw them. They are only written down: nothing live depends on them.

use torc_api::wire::FinishedAttempt;

use super::tx::Tx;
use super::workflow::Workflow;
use crate::rows::FileRow;

impl Workflow {
    /// Takes down what an attempt that succeeded read and wrote.
    pub(super) fn record_files(&self, job: u32, finished: &FinishedAttempt, tx: &mut Tx) {
        tx.changes.rows().files.extend(finished.files.iter().map(|seen| FileRow {
            workflow: self.row.id,
            job: self.graph.job(job).id(),
            path: seen.path.clone(),
            size_bytes: seen.size_bytes,
            modified_ms: seen.modified_ms,
            sha256: seen.sha256.clone(),
            seen_ms: tx.now.wall_ms,
        }));
    }
}
