//! A server under test: the live state, the database behind it, and a clock that the test advances.

use torc_api::api::ApplyResponse;
use torc_api::state::{Cause, JobState};
use torc_api::wire::{
    AttemptKey, FinishedAttempt, PROTOCOL, RegisterRequest, Resources, RunningAttempt, SyncRequest, SyncResponse,
    WorkRequest,
};

use super::invariants;
use super::plan::Plan;
use crate::engine::{Apply, CommandError, Engine, SyncAnswer, Tx};
use crate::ids::{Now, RunnerId, WorkflowId};
use crate::planning::allocation_plan::NodeRequest;
use crate::rows::{JobRow, LastIds, ResultRow};
use crate::testing::Database;

pub struct EngineHarness {
    pub engine: Engine,
    pub database: Database,
    pub now: Now,
    /// Changes of commands that were executed and are not written yet.
    group: Option<Tx>,
}

impl EngineHarness {
    pub fn new() -> Self {
        let now = Now { wall_ms: 1_800_000_000_000, mono_ms: 1_000_000 };
        Self { engine: Engine::default(), database: Database::default(), now, group: None }
    }

    pub fn with(plan: &Plan) -> Self {
        let mut harness = Self::new();
        harness.apply(plan);
        harness
    }

    /// Executes a command, alone or in the open group.
    pub fn run<R>(&mut self, command: impl FnOnce(&mut Engine, &mut Tx) -> R) -> R {
        if let Some(tx) = &mut self.group {
            tx.now = self.now;
            let answer = command(&mut self.engine, tx);
            invariants::check_live(&self.engine);
            return answer;
        }
        self.open();
        let answer = self.run(command);
        self.commit();
        answer
    }

    /// Opens a group: the following commands are written together.
    pub fn open(&mut self) {
        self.group.get_or_insert_with(|| self.engine.begin(self.now));
    }

    pub fn is_open(&self) -> bool {
        self.group.is_some()
    }

    /// Writes the open group, and checks that a restored state equals the live one.
    pub fn commit(&mut self) {
        let Some(mut tx) = self.group.take() else { return };
        tx.now = self.now;
        let changes = self.engine.finish(tx);
        self.database.check(&changes);
        self.database.write(&changes);
        invariants::check_live(&self.engine);
        let restored = Engine::restore(self.database.snapshot(), self.now).unwrap();
        invariants::check_live(&restored);
        invariants::check_same(&self.engine, &restored);
        // The number of a lease that was withdrawn before it was written may be assigned again, to another attempt.
        let durable = LastIds { lease_id: self.engine.last.lease_id, ..self.database.last() };
        assert_eq!(self.engine.last, durable);
    }

    /// Restarts the server. Everything that was not written is lost.
    pub fn restart(&mut self) {
        self.group = None;
        self.engine = Engine::restore(self.database.snapshot(), self.now).unwrap();
        invariants::check_live(&self.engine);
    }

    pub fn pass(&mut self, ms: u64) {
        self.now.mono_ms += ms;
        self.now.wall_ms += ms.cast_signed();
    }

    /// Advances the clock and expires what is due.
    pub fn silence(&mut self, ms: u64) {
        self.pass(ms);
        self.run(|engine, tx| engine.expire(tx));
    }

    pub fn apply(&mut self, plan: &Plan) -> ApplyResponse {
        let (document, expanded) = (plan.document(), plan.expanded());
        let apply =
            Apply { document: &document, expanded: &expanded, owner: "ada", working_dir: "/here", store_only: false };
        self.run(|engine, tx| engine.apply(&apply, tx).unwrap())
    }

    /// Returns the actions whose allocations the controller has to submit.
    pub fn node_requests(&self) -> Vec<NodeRequest> {
        self.engine.slurm_needs(None, self.now).into_iter().flat_map(|demand| demand.actions).collect()
    }

    pub fn workflow(&self) -> WorkflowId {
        self.engine.find("default", "w").unwrap()
    }

    pub fn register(&mut self, request: &RegisterRequest) -> RunnerId {
        self.run(|engine, tx| RunnerId(engine.register(request, tx).unwrap().runner))
    }

    pub fn try_sync(&mut self, id: RunnerId, request: &SyncRequest) -> Result<SyncAnswer, CommandError> {
        self.run(|engine, tx| engine.sync(id, request, tx))
    }

    pub fn sync(&mut self, id: RunnerId, request: &SyncRequest) -> SyncResponse {
        self.try_sync(id, request).unwrap().response
    }

    /// Returns the stored row of a job of the workflow `w`.
    pub fn job(&self, name: &str) -> &JobRow {
        self.database.jobs.values().find(|row| row.name == name).unwrap()
    }

    pub fn state_of(&self, name: &str) -> JobState {
        self.job(name).state
    }

    pub fn states(&self, names: &[&str]) -> Vec<JobState> {
        names.iter().map(|name| self.state_of(name)).collect()
    }

    pub fn key(&self, name: &str) -> AttemptKey {
        let row = self.job(name);
        AttemptKey {
            workflow: row.workflow.0,
            job: row.id.0,
            run: row.run,
            attempt: row.attempt,
            lease_id: row.lease_id,
        }
    }

    pub fn results_of(&self, name: &str) -> Vec<&ResultRow> {
        self.database.results_of(self.job(name).id)
    }

    pub fn reasons(&self) -> Vec<&str> {
        self.database.events.iter().map(|event| event.reason.as_str()).collect()
    }
}

/// A runner of 8 CPUs, 2 GPUs, 64 GiB.
pub fn runner(host: &str) -> RegisterRequest {
    RegisterRequest {
        protocol: PROTOCOL,
        host: host.to_owned(),
        place: format!("{host}:/shim"),
        capacity: Resources { cpus: 8, memory_bytes: 64 << 30, gpus: 2, nodes: 1 },
        ..RegisterRequest::default()
    }
}

/// Requests `limit` jobs for an empty runner of [`runner`].
pub fn want(limit: u32) -> WorkRequest {
    WorkRequest { free: runner("").capacity, ahead: 0, bridge: 0, limit }
}

pub fn work_request(sequence: u64, limit: u32) -> SyncRequest {
    SyncRequest { sequence, acknowledged: sequence - 1, want: want(limit), ..SyncRequest::default() }
}

pub fn sync_request(sequence: u64) -> SyncRequest {
    SyncRequest { sequence, acknowledged: sequence - 1, ..SyncRequest::default() }
}

pub fn running(key: AttemptKey) -> RunningAttempt {
    RunningAttempt { key, elapsed_ms: 10 }
}

pub fn success(key: AttemptKey) -> FinishedAttempt {
    FinishedAttempt { key, duration_ms: 100, ended_ms_ago: 5, ..FinishedAttempt::default() }
}

pub fn failure(key: AttemptKey, return_code: i32, cause: Cause) -> FinishedAttempt {
    FinishedAttempt { return_code, cause: Some(cause), ..success(key) }
}
