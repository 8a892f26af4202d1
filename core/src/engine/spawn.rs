//! Jobs that a running job adds to its workflow, one generation of a loop after the other.
//!
//! They wait for the job that added them, are not in the document, and stay when it is edited. When the job that added them runs
//! again from the start, they go, with what they added themselves: its next attempt decides anew. Their results stay.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;
use torc_api::api::JobChanges;
use torc_api::data::SpawnResponse;
use torc_api::event_reason::EventReason;
use torc_api::quantity::count;
use torc_api::state::JobState;

use super::apply::profile_of;
use super::tx::Tx;
use super::workflow::Workflow;
use super::{CommandError, Engine};
use crate::expanded::{Expanded, ExpandedJob};
use crate::hash::spawned_job_hash;
use crate::ids::{JobId, ProfileId, WorkflowId};
use crate::lineage;
use crate::rows::{JobProfile, JobRow, ProfileRow, Spawned, UserDataRow};

/// How often a loop may go round, unless the document says otherwise.
pub const MAX_ITERATIONS: i64 = 1_000;
/// The variable that tells a spawned job which loop it belongs to.
pub const LINEAGE_VARIABLE: &str = "TORC_ORCHESTRATOR_LINEAGE_ID";

/// Jobs to add, already expanded and without problems.
pub struct Spawn<'a> {
    /// The job that adds them, by name or number.
    pub caller: &'a str,
    /// Its run.
    pub run: i32,
    /// Its attempt.
    pub attempt: i32,
    /// The loop.
    pub lineage: &'a str,
    /// The new jobs, then some that exist and are only referred to.
    pub expanded: &'a Expanded,
    /// How many are only referred to.
    pub known: usize,
    /// What the loop wants to remember.
    pub state: Option<Value>,
    /// The most jobs of a workflow.
    pub max_jobs: usize,
}

impl Spawn<'_> {
    fn new_jobs(&self) -> &[ExpandedJob] {
        &self.expanded.jobs[..self.expanded.jobs.len().saturating_sub(self.known)]
    }

    fn known_jobs(&self) -> &[ExpandedJob] {
        &self.expanded.jobs[self.new_jobs().len()..]
    }
}

impl Engine {
    /// Adds jobs: all of them or none. What was added before by the same call changes nothing.
    pub fn spawn(&mut self, id: WorkflowId, spawn: &Spawn<'_>, tx: &mut Tx) -> Result<SpawnResponse, CommandError> {
        let workflow = self.workflow(id)?;
        let caller = workflow.running_caller(spawn)?;
        let generation = workflow.data.generation(spawn.lineage);
        let plain = SpawnResponse { lineage: spawn.lineage.to_owned(), generation, ..SpawnResponse::default() };
        if spawn.new_jobs().is_empty() {
            self.converge(id, caller, spawn, tx);
            return Ok(SpawnResponse { converged: true, ..plain });
        }
        if workflow.is_replay(spawn)? {
            return Ok(SpawnResponse { replayed: true, ..plain });
        }
        workflow.check_limits(spawn, generation)?;
        let jobs = self.insert(id, caller, spawn, tx);
        let name = lineage::generation_name(spawn.lineage, generation + 1);
        self.remember(id, caller, name, spawn.state.clone(), tx);
        let message = format!(
            "{} spawned by '{}' (generation {} of {})",
            count(jobs, "job"),
            spawn.caller,
            generation + 1,
            spawn.lineage
        );
        tx.event(Some(id), EventReason::JobsSpawned, message);
        self.wake_version += 1;
        Ok(SpawnResponse { generation: generation + 1, jobs, ..plain })
    }

    /// The loop has ended: its last state is kept.
    fn converge(&mut self, id: WorkflowId, caller: JobId, spawn: &Spawn<'_>, tx: &mut Tx) {
        let name = lineage::final_name(spawn.lineage);
        if self.workflows.get(&id).is_some_and(|workflow| workflow.data.has_converged(spawn.lineage)) {
            return;
        }
        self.remember(id, caller, name, spawn.state.clone(), tx);
        let message = format!("loop {} has converged", spawn.lineage);
        tx.event(Some(id), EventReason::LoopConverged, message);
    }

    fn remember(&mut self, workflow: WorkflowId, caller: JobId, name: String, state: Option<Value>, tx: &mut Tx) {
        let written = Some(state.unwrap_or(Value::Null));
        let row = UserDataRow { workflow, name, written, job: Some(caller), ..UserDataRow::default() };
        if let Some(workflow) = self.workflows.get_mut(&workflow) {
            workflow.data.put(row, tx);
        }
    }

    /// Makes the rows and brings them to life. Returns how many.
    fn insert(&mut self, id: WorkflowId, caller: JobId, spawn: &Spawn<'_>, tx: &mut Tx) -> i64 {
        let Some(workflow) = self.workflows.get_mut(&id) else { return 0 };
        let ids: Vec<JobId> = spawn.new_jobs().iter().map(|_| tx.next_job()).collect();
        let parents = Parents::of(workflow, spawn, &ids, caller);
        let mut profiles = NewProfiles { workflow: id, new: Vec::new(), known: HashMap::new() };
        let mut rows = Vec::new();
        for (index, (job, number)) in spawn.new_jobs().iter().zip(&ids).enumerate() {
            rows.push(JobRow {
                id: *number,
                workflow: id,
                name: job.name.clone(),
                command: job.command.clone(),
                profile: profiles.of(spawned_profile(spawn, job, caller), tx),
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
        let new_profiles = profiles.new;
        tx.changes.rows().profiles.extend(new_profiles.iter().cloned());
        rows.iter().for_each(|row| tx.changes.job(row.clone()));
        let count = workflow.graph.append(new_profiles, &rows);
        workflow.renew_gates();
        workflow.plan(&count, tx);
        count.len() as i64
    }

    /// These jobs run again: what they or their descendants have spawned goes. Returns the jobs by their new indices.
    pub(super) fn forget_spawned(&mut self, id: WorkflowId, jobs: BTreeSet<u32>, tx: &mut Tx) -> BTreeSet<u32> {
        let Some(workflow) = self.workflows.get(&id) else { return jobs };
        if !workflow.has_spawned() {
            return jobs;
        }
        let again = workflow.graph.with_descendants(&jobs);
        let gone = workflow.spawned_by(&again);
        let ids: Vec<JobId> = jobs.difference(&gone).map(|job| workflow.graph.job(*job).id()).collect();
        let callers: BTreeSet<JobId> = again.iter().map(|job| workflow.graph.job(*job).id()).collect();
        let Some(old) = self.workflows.remove(&id) else { return jobs };
        let mut new = old.without(&gone);
        new.data.forget_states_of(|job| callers.contains(&job), tx);
        self.drop_removed(&old, &new, tx);
        let jobs = ids.into_iter().filter_map(|job| new.graph.ordinal(job)).collect();
        self.workflows.insert(id, new);
        jobs
    }
}

fn spawned_profile(spawn: &Spawn<'_>, job: &ExpandedJob, caller: JobId) -> JobProfile {
    let mut profile = profile_of(spawn.expanded, job);
    profile.env.insert(LINEAGE_VARIABLE.to_owned(), spawn.lineage.to_owned());
    profile.spawned = Some(Spawned { lineage: spawn.lineage.to_owned(), by: caller });
    profile
}

/// Profiles of new jobs, each once. Who spawned them is part of it, so the workflow has none of them yet.
struct NewProfiles {
    workflow: WorkflowId,
    new: Vec<ProfileRow>,
    known: HashMap<JobProfile, ProfileId>,
}

impl NewProfiles {
    fn of(&mut self, profile: JobProfile, tx: &mut Tx) -> ProfileId {
        if let Some(id) = self.known.get(&profile) {
            return *id;
        }
        let id = tx.next_profile();
        self.known.insert(profile.clone(), id);
        self.new.push(ProfileRow { id, workflow: self.workflow, profile });
        id
    }
}

/// What new jobs wait for: the caller, the jobs they name, and the writers of what they read.
struct Parents {
    caller: JobId,
    /// By index in the expansion.
    ids: Vec<Option<JobId>>,
    file_writers: BTreeMap<String, Vec<JobId>>,
    files: Vec<String>,
    data_writers: BTreeMap<String, Vec<JobId>>,
    data: Vec<String>,
}

impl Parents {
    fn of(workflow: &Workflow, spawn: &Spawn<'_>, ids: &[JobId], caller: JobId) -> Self {
        let by_name = if spawn.known > 0 { workflow.graph.by_name() } else { HashMap::new() };
        let existing = |job: &ExpandedJob| by_name.get(job.name.as_str()).map(|job| workflow.graph.job(*job).id());
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
        let reads = |job: &ExpandedJob| !job.input_files.is_empty() || !job.input_user_data.is_empty();
        if spawn.new_jobs().iter().any(reads) {
            for job in workflow.graph.all() {
                let (id, profile) = (workflow.graph.job(job).id(), workflow.graph.complete_profile(job));
                for path in profile.output_files {
                    parents.file_writers.entry(path).or_default().push(id);
                }
                for name in profile.output_user_data {
                    parents.data_writers.entry(name).or_default().push(id);
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

impl Workflow {
    /// The job that asks, if it is the attempt that runs now. A start that its runner has not reported yet counts.
    fn running_caller(&self, spawn: &Spawn<'_>) -> Result<JobId, CommandError> {
        if spawn.lineage.is_empty() || spawn.lineage.chars().any(char::is_control) {
            return Err(CommandError::Invalid("a lineage needs a name without control characters".to_owned()));
        }
        let job = self.require_job(spawn.caller)?;
        let record = self.graph.job(job);
        let runs = record.state().is_held() && (record.run(), record.attempt()) == (spawn.run, spawn.attempt);
        if !runs || self.is_canceled() {
            return Err(CommandError::Conflict(format!(
                "only a running job can spawn jobs: attempt {} of job '{}' in run {} does not run",
                spawn.attempt,
                self.graph.name(job),
                spawn.run
            )));
        }
        Ok(record.id())
    }

    /// Whether all of the jobs are there already. Some of them would be a mistake.
    fn is_replay(&self, spawn: &Spawn<'_>) -> Result<bool, CommandError> {
        let by_name = self.graph.by_name();
        let of_loop =
            |job: u32| self.graph.profile(job).spawned.as_ref().is_some_and(|spawned| spawned.lineage == spawn.lineage);
        let names = || spawn.new_jobs().iter().map(|job| job.name.as_str());
        let known: Vec<&str> = names().filter(|name| by_name.contains_key(name)).collect();
        let Some(first) = known.first() else { return Ok(false) };
        if known.len() == names().count() && known.iter().all(|name| of_loop(by_name[name])) {
            return Ok(true);
        }
        let (count, all) = (known.len(), names().count());
        let message = format!(
            "{count} of {all} jobs exist already, e.g. '{first}': a call adds all of its jobs or, repeated, none of them"
        );
        Err(CommandError::Conflict(message))
    }

    fn check_limits(&self, spawn: &Spawn<'_>, generation: i64) -> Result<(), CommandError> {
        let lineage = spawn.lineage;
        if self.data.has_converged(lineage) {
            return Err(CommandError::Conflict(format!(
                "loop '{lineage}' has converged: no more jobs can be added to it"
            )));
        }
        let most = self.spec.dynamic_jobs.as_ref().and_then(|dynamic| dynamic.max_iterations).unwrap_or(MAX_ITERATIONS);
        if generation >= most {
            return Err(CommandError::TooManyIterations { lineage: lineage.to_owned(), most });
        }
        let total = self.graph.len() as usize + spawn.new_jobs().len();
        if total > spawn.max_jobs {
            return Err(CommandError::Invalid(format!(
                "{total} jobs, but {} is the limit of this server",
                spawn.max_jobs
            )));
        }
        Ok(())
    }

    fn has_spawned(&self) -> bool {
        self.graph.profiles().any(|entry| entry.common().spawned.is_some())
    }

    /// What these jobs have spawned, and what that has. A spawned job has a higher number than the one that spawned it.
    pub(super) fn spawned_by(&self, jobs: &BTreeSet<u32>) -> BTreeSet<u32> {
        let mut found = BTreeSet::new();
        for job in self.graph.all() {
            let Some(spawned) = &self.graph.profile(job).spawned else { continue };
            let by = self.graph.ordinal(spawned.by);
            if by.is_none_or(|by| jobs.contains(&by) || found.contains(&by)) {
                found.insert(job);
            }
        }
        found
    }

    /// Spawned jobs that an edit leaves alone: their names are not taken by the document, and what spawned them stays.
    pub(super) fn surviving_spawned(&self, expanded: &Expanded) -> Vec<JobRow> {
        if !self.has_spawned() {
            return Vec::new();
        }
        let wanted: std::collections::HashSet<&str> = expanded.jobs.iter().map(|job| job.name.as_str()).collect();
        let mut stays: BTreeSet<u32> = self.graph.all().filter(|job| wanted.contains(self.graph.name(*job))).collect();
        let mut rows = Vec::new();
        for job in self.graph.all() {
            let Some(spawned) = self.graph.profile(job).spawned.as_ref().filter(|_| !stays.contains(&job)) else {
                continue;
            };
            if self.graph.ordinal(spawned.by).is_some_and(|by| stays.contains(&by)) {
                stays.insert(job);
                rows.push(self.graph.row(job));
            }
        }
        rows
    }

    /// What an edit does to jobs that it does not name: those of the document are removed; spawned ones go with what spawned
    /// them, or when that runs again. `wanted` says of every job of the document whether it runs again.
    pub(super) fn changes_beside_document(&self, wanted: &HashMap<&str, bool>, changes: &mut JobChanges) {
        let all = || self.graph.all();
        let (mut removed, mut again) = (BTreeSet::new(), BTreeSet::new());
        for job in all() {
            match (wanted.get(self.graph.name(job)), &self.graph.profile(job).spawned) {
                (Some(true), _) => drop(again.insert(job)),
                (None, None) => drop(removed.insert(job)),
                _ => {}
            }
        }
        let lost: BTreeSet<u32> = again.union(&removed).copied().collect();
        removed.extend(self.spawned_by(&lost).into_iter().filter(|job| !wanted.contains_key(self.graph.name(*job))));
        let downstream = self.graph.with_descendants(&lost);
        for job in all().filter(|job| !wanted.contains_key(self.graph.name(*job))) {
            match (removed.contains(&job), downstream.contains(&job)) {
                (true, _) => changes.removed.push(self.graph.name(job)),
                (_, true) => changes.downstream.push(self.graph.name(job)),
                _ => changes.unchanged += 1,
            }
        }
    }

    /// A spawned job may depend on one that an edit removes: then it does no longer, and runs again.
    pub(super) fn drop_lost_parents(&self, job: u32, row: &mut JobRow) -> bool {
        let before = row.depends_on.len();
        if self.graph.profile(job).spawned.is_some() {
            row.depends_on.retain(|parent| self.graph.ordinal(*parent).is_some());
        }
        row.depends_on.len() < before
    }

    /// The same workflow without some of its jobs.
    pub(super) fn without(&self, gone: &BTreeSet<u32>) -> Self {
        let mut new = Self::with_graph(self.row.clone(), self.spec.clone(), self.graph.without(gone));
        new.inherit(self);
        new.set_actions(self.actions.iter().map(|action| action.row.clone()).collect());
        new
    }
}
