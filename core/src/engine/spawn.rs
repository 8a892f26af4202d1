//! Jobs that a running job adds to its workflow, one generation of a loop after another.
//!
//! They depend on the job that added them, are not in the document, and stay when the document is edited. When their caller is reset,
//! they and the jobs that they added are removed: the next attempt of the caller decides again. Their results stay.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;
use torc_api::data::SpawnResponse;
use torc_api::event_reason::EventReason;
use torc_api::quantity::count;
use torc_api::state::JobState;

use super::apply::profile_of;
use super::tx::Tx;
use super::workflow::Graph;
use super::workflow::LiveWorkflow;
use super::{CommandError, Engine};
use crate::expanded::{Expanded, ExpandedJob};
use crate::hash::spawned_job_hash;
use crate::ids::{JobId, ProfileId, WorkflowId};
use crate::lineage;
use crate::rows::{JobProfile, JobRow, ProfileRow, Spawned, UserDataRow};

/// Maximum number of iterations of a loop, unless the document sets another one.
pub const MAX_ITERATIONS: i64 = 1_000;
/// Environment variable of a spawned job that names its loop.
pub const LINEAGE_VARIABLE: &str = "TORC_ORCHESTRATOR_LINEAGE_ID";

/// Jobs to add, already expanded and validated.
pub struct Spawn<'a> {
    /// Name or number of the job that adds them.
    pub caller: &'a str,
    /// Run of the caller.
    pub run: i32,
    /// Attempt of the caller.
    pub attempt: i32,
    /// Name of the loop.
    pub lineage: &'a str,
    /// The new jobs, followed by existing ones that they depend on.
    pub expanded: &'a Expanded,
    /// Number of existing jobs at the end of `expanded`.
    pub known: usize,
    /// State that the loop keeps with this generation.
    pub state: Option<Value>,
    /// Maximum number of jobs of a workflow.
    pub max_jobs: usize,
}

impl Spawn<'_> {
    fn new_jobs(&self) -> &[ExpandedJob] {
        &self.expanded.jobs[..self.expanded.jobs.len().saturating_sub(self.known)]
    }

    fn known_jobs(&self) -> &[ExpandedJob] {
        &self.expanded.jobs[self.new_jobs().len()..]
    }

    /// Returns the caller if its named attempt is running. A start that its runner has not reported yet counts.
    fn running_caller(&self, workflow: &LiveWorkflow) -> Result<JobId, CommandError> {
        if self.lineage.is_empty() || self.lineage.chars().any(char::is_control) {
            return Err(CommandError::Invalid(
                "the name of a lineage must not be empty or contain control characters".to_owned(),
            ));
        }
        let job = workflow.require_job(self.caller)?;
        let record = workflow.graph.job(job);
        let runs = record.state().is_held() && (record.run(), record.attempt()) == (self.run, self.attempt);
        if !runs || workflow.is_canceled() {
            return Err(CommandError::Conflict(format!(
                "only a running job can spawn jobs: attempt {} of job '{}' in run {} is not running",
                self.attempt,
                workflow.graph.name(job),
                self.run
            )));
        }
        Ok(record.id())
    }

    /// Returns whether all of the jobs already exist. It is an error if only some of them do.
    fn is_replay(&self, graph: &Graph) -> Result<bool, CommandError> {
        let by_name = graph.by_name();
        let is_of_loop = |job: u32| graph.profile(job).spawned.as_ref().is_some_and(|one| one.lineage == self.lineage);
        let names = || self.new_jobs().iter().map(|job| job.name.as_str());
        let known: Vec<&str> = names().filter(|name| by_name.contains_key(name)).collect();
        let Some(first) = known.first() else { return Ok(false) };
        let (count, all) = (known.len(), names().count());
        if count == all && known.iter().all(|name| is_of_loop(by_name[name])) {
            return Ok(true);
        }
        let message = format!(
            "{count} of {all} jobs already exist, e.g. '{first}': a call must add all of its jobs, or none if it is repeated"
        );
        Err(CommandError::Conflict(message))
    }

    fn check_limits(&self, workflow: &LiveWorkflow, generation: i64) -> Result<(), CommandError> {
        let lineage = self.lineage;
        if workflow.data.has_converged(lineage) {
            return Err(CommandError::Conflict(format!(
                "loop '{lineage}' has converged: no more jobs can be added to it"
            )));
        }
        let dynamic_jobs = workflow.spec().dynamic_jobs.as_ref();
        let most = dynamic_jobs.and_then(|dynamic| dynamic.max_iterations).unwrap_or(MAX_ITERATIONS);
        if generation >= most {
            return Err(CommandError::TooManyIterations { lineage: lineage.to_owned(), most });
        }
        let total = workflow.graph.len() as usize + self.new_jobs().len();
        if total > self.max_jobs {
            return Err(CommandError::Invalid(format!(
                "the workflow would have {total} jobs; the limit of this server is {}",
                self.max_jobs
            )));
        }
        Ok(())
    }

    fn profile_of(&self, job: &ExpandedJob, caller: JobId) -> JobProfile {
        let mut profile = profile_of(self.expanded, job);
        profile.env.insert(LINEAGE_VARIABLE.to_owned(), self.lineage.to_owned());
        profile.spawned = Some(Spawned { lineage: self.lineage.to_owned(), by: caller });
        profile
    }
}

impl Engine {
    /// Adds jobs: all of them or none. A repeated call changes nothing.
    pub fn spawn(&mut self, id: WorkflowId, spawn: &Spawn<'_>, tx: &mut Tx) -> Result<SpawnResponse, CommandError> {
        let workflow = self.workflows.require_mut(id)?;
        let caller = spawn.running_caller(workflow)?;
        let generation = workflow.data.generation(spawn.lineage);
        let response = SpawnResponse { lineage: spawn.lineage.to_owned(), generation, ..SpawnResponse::default() };
        if spawn.new_jobs().is_empty() {
            end_loop(workflow, caller, spawn, tx);
            return Ok(SpawnResponse { converged: true, ..response });
        }
        if spawn.is_replay(&workflow.graph)? {
            return Ok(SpawnResponse { replayed: true, ..response });
        }
        spawn.check_limits(workflow, generation)?;
        let jobs = add_jobs(workflow, caller, spawn, tx);
        let generation = generation + 1;
        let name = lineage::generation_name(spawn.lineage, generation);
        store_state(workflow, caller, name, spawn.state.clone(), tx);
        let (jobs_text, caller, lineage) = (count(jobs, "job"), spawn.caller, spawn.lineage);
        let message = format!("{jobs_text} spawned by '{caller}' (generation {generation} of {lineage})");
        tx.event(Some(id), EventReason::JobsSpawned, message);
        self.runners.wake();
        Ok(SpawnResponse { generation, jobs, ..response })
    }
}

/// Records the end of a loop with its last state.
fn end_loop(workflow: &mut LiveWorkflow, caller: JobId, spawn: &Spawn<'_>, tx: &mut Tx) {
    if workflow.data.has_converged(spawn.lineage) {
        return;
    }
    store_state(workflow, caller, lineage::final_name(spawn.lineage), spawn.state.clone(), tx);
    let message = format!("loop {} has converged", spawn.lineage);
    tx.event(Some(workflow.id()), EventReason::LoopConverged, message);
}

fn store_state(workflow: &mut LiveWorkflow, caller: JobId, name: String, state: Option<Value>, tx: &mut Tx) {
    let written = Some(state.unwrap_or(Value::Null));
    let row = UserDataRow { workflow: workflow.id(), name, written, job: Some(caller), ..UserDataRow::default() };
    workflow.data.put(row, tx);
}

/// Adds the new jobs to the workflow and returns their number.
fn add_jobs(workflow: &mut LiveWorkflow, caller: JobId, spawn: &Spawn<'_>, tx: &mut Tx) -> i64 {
    let id = workflow.id();
    let ids: Vec<JobId> = spawn.new_jobs().iter().map(|_| tx.next_job()).collect();
    let parents = Parents::new(&workflow.graph, spawn, &ids, caller);
    let mut profiles = NewProfiles { workflow: id, new: Vec::new(), known: HashMap::new() };
    let mut rows = Vec::new();
    for (index, (job, number)) in spawn.new_jobs().iter().zip(&ids).enumerate() {
        rows.push(JobRow {
            id: *number,
            workflow: id,
            name: job.name.clone(),
            command: job.command.clone(),
            profile: profiles.add(spawn.profile_of(job, caller), tx),
            priority: job.priority,
            hash: spawned_job_hash(spawn.expanded, index, spawn.lineage),
            depends_on: parents.of_job(job),
            state: JobState::Blocked,
            run: spawn.run,
            attempt: 1,
            lease_id: 0,
            runner: None,
            started_ms: None,
        });
    }
    tx.changes.rows().profiles.extend(profiles.new.iter().cloned());
    rows.iter().for_each(|row| tx.changes.job(row.clone()));
    let added = workflow.graph.append(profiles.new, &rows);
    workflow.update_gates();
    workflow.plan(&added, tx);
    added.len() as i64
}

/// Profiles of new jobs, each once. A profile names the caller, so the workflow has none of them yet.
struct NewProfiles {
    workflow: WorkflowId,
    new: Vec<ProfileRow>,
    known: HashMap<JobProfile, ProfileId>,
}

impl NewProfiles {
    fn add(&mut self, profile: JobProfile, tx: &mut Tx) -> ProfileId {
        if let Some(id) = self.known.get(&profile) {
            return *id;
        }
        let id = tx.next_profile();
        self.known.insert(profile.clone(), id);
        self.new.push(ProfileRow { id, workflow: self.workflow, profile });
        id
    }
}

/// Dependencies of new jobs: the caller, the jobs that they name, and the writers of their inputs.
struct Parents {
    caller: JobId,
    /// Numbers of the jobs by index in the expansion; none for jobs that do not exist.
    ids: Vec<Option<JobId>>,
    file_writers: BTreeMap<String, Vec<JobId>>,
    files: Vec<String>,
    data_writers: BTreeMap<String, Vec<JobId>>,
    data: Vec<String>,
}

impl Parents {
    fn new(graph: &Graph, spawn: &Spawn<'_>, ids: &[JobId], caller: JobId) -> Self {
        let by_name = if spawn.known > 0 { graph.by_name() } else { HashMap::new() };
        let existing = |job: &ExpandedJob| by_name.get(job.name.as_str()).map(|job| graph.job(*job).id());
        let new = ids.iter().copied().map(Some);
        let ids = new.chain(spawn.known_jobs().iter().map(existing)).collect();
        let mut parents = Self {
            caller,
            ids,
            file_writers: BTreeMap::new(),
            files: spawn.expanded.files.iter().map(|file| file.path.clone()).collect(),
            data_writers: BTreeMap::new(),
            data: spawn.expanded.user_data.iter().map(|data| data.name.clone()).collect(),
        };
        let has_inputs = |job: &ExpandedJob| !job.input_files.is_empty() || !job.input_user_data.is_empty();
        if spawn.new_jobs().iter().any(has_inputs) {
            for (job, record) in graph.iter() {
                let profile = graph.complete_profile(job);
                for path in profile.output_files {
                    parents.file_writers.entry(path).or_default().push(record.id());
                }
                for name in profile.output_user_data {
                    parents.data_writers.entry(name).or_default().push(record.id());
                }
            }
        }
        parents
    }

    fn of_job(&self, job: &ExpandedJob) -> Vec<JobId> {
        let named = job.depends_on.iter().filter_map(|parent| *self.ids.get(*parent as usize)?);
        let files = job.input_files.iter().filter_map(|file| self.file_writers.get(self.files.get(*file as usize)?));
        let data = job.input_user_data.iter().filter_map(|data| self.data_writers.get(self.data.get(*data as usize)?));
        let writers = files.chain(data).flatten().copied();
        let all: BTreeSet<JobId> = named.chain(writers).chain([self.caller]).collect();
        all.into_iter().collect()
    }
}
