//! A fake Slurm and a clock that tests set.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use torc_core::ids::{AllocationId, WorkflowId};
use torc_core::rows::AllocationRow;
use torc_slurm::call::Tool;

use super::clusters::Clusters;
use crate::clock::InstantSource;
use crate::metrics::Metrics;

pub(super) struct FakeSlurm {
    folder: TempDir,
    start: Instant,
    passed_ms: Arc<AtomicU64>,
    pub metrics: Arc<Metrics>,
}

impl FakeSlurm {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake-slurm.sh");
        for tool in Tool::ALL {
            // A link and not a copy: a file that was just written may still be open in the child of another test.
            std::os::unix::fs::symlink(&program, folder.path().join(tool.name())).unwrap();
        }
        Self { folder, start: Instant::now(), passed_ms: Arc::default(), metrics: Arc::default() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Configures the output of a program.
    pub fn set_output(&self, tool: &str, text: &str) {
        let _ = std::fs::remove_file(self.path(&format!("{tool}.refuses")));
        std::fs::write(self.path(&format!("{tool}.says")), text).unwrap();
    }

    /// Makes a program fail with this message.
    pub fn refuses(&self, tool: &str, text: &str) {
        std::fs::write(self.path(&format!("{tool}.refuses")), text).unwrap();
    }

    /// Makes a failing program answer as before.
    pub fn relents(&self, tool: &str) {
        std::fs::remove_file(self.path(&format!("{tool}.refuses"))).unwrap();
    }

    /// Returns the calls of a program since the last call of this method.
    pub fn calls(&self, tool: &str) -> Vec<String> {
        let path = self.path(&format!("{tool}.calls"));
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let seen = self.path(&format!("{tool}.seen"));
        let before = std::fs::read_to_string(&seen).map_or(0, |count| count.parse::<usize>().unwrap());
        std::fs::write(seen, text.lines().count().to_string()).unwrap();
        text.lines().skip(before).map(str::to_owned).collect()
    }

    /// Returns the last submitted batch script.
    pub fn script(&self) -> String {
        std::fs::read_to_string(self.path("sbatch.script")).unwrap()
    }

    pub fn replaced(&self) -> BTreeMap<String, String> {
        let program = |tool: Tool| self.path(tool.name()).to_str().unwrap().to_owned();
        Tool::ALL.into_iter().map(|tool| (tool.replacement_variable().to_owned(), program(tool))).collect()
    }

    pub fn advance(&self, time: Duration) {
        self.passed_ms.fetch_add(u64::try_from(time.as_millis()).unwrap(), Ordering::SeqCst);
    }

    pub fn instants(&self) -> InstantSource {
        let (start, passed) = (self.start, Arc::clone(&self.passed_ms));
        Arc::new(move || start + Duration::from_millis(passed.load(Ordering::SeqCst)))
    }

    pub fn clusters(&self) -> Clusters {
        Clusters::new(self.replaced(), None, Arc::clone(&self.metrics), self.instants())
    }
}

/// Returns allocation `id` of workflow 3, submitted as Slurm job `number` if there is one.
pub(super) fn row(id: i64, number: Option<&str>) -> AllocationRow {
    AllocationRow {
        id: AllocationId(id),
        workflow: WorkflowId(3),
        cluster: "local".to_owned(),
        slurm_job_id: number.map(str::to_owned),
        called_ms: Some(1_000),
        created_ms: 1_790_000_000_000,
        nodes: 1,
        seconds: 60,
        ..AllocationRow::default()
    }
}

#[test]
fn slurm_is_looked_at_more_often_while_an_allocation_ends() {
    let poll = Duration::from_secs(30);
    assert_eq!(super::poll_interval(poll, false), poll);
    assert_eq!(super::poll_interval(poll, true), Duration::from_secs(10));
    assert!(super::MIN_TICK_INTERVAL <= Duration::from_secs(1), "news are acted upon promptly");
    assert!(super::RELEASE_POLL_INTERVAL <= Duration::from_secs(2), "a wait for the end of allocations polls often");
    assert!(super::SLURM_TIMEOUT < super::RELEASE_TIMEOUT, "a call that hangs does not use up the time of a deletion");
}
