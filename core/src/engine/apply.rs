//! Applying a document: a new one is stored, the same one changes nothing, an edited one changes only what it must.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use torc_api::api::{ApplyOutcome, ApplyResponse, JobChanges};
use torc_api::document::WorkflowDocument;
use torc_api::event_reason::EventReason;
use torc_api::state::JobState;
use torc_api::workflow::{RerunPolicy, WorkflowSpec};

use super::Engine;
use super::failures::Failures;
use super::status::counted;
use super::tx::Tx;
use super::workflow::Workflow;
use crate::expanded::{Expanded, ExpandedJob};
use crate::hash::{digest, job_hash};
use crate::ids::{JobId, ProfileId, WorkflowId};
use crate::job::{JobEvent, next_state};
use crate::rows::{JobProfile, JobRow, ProfileRow, WorkflowRow};

/// A document to apply, already expanded and without problems.
pub struct Apply<'a> {
    /// The document.
    pub document: &'a WorkflowDocument,
    /// What it comes to.
    pub expanded: &'a Expanded,
    /// Who applies it.
    pub owner: &'a str,
    /// The folder jobs run in, when the workflow is new.
    pub working_dir: &'a str,
    /// It is not to be run in this session, unless it is already.
    pub store_only: bool,
}

impl Engine {
    /// Makes the live state match a document.
    pub fn apply(&mut self, apply: &Apply<'_>, tx: &mut Tx) -> Result<ApplyResponse, serde_json::Error> {
        let metadata = &apply.document.metadata;
        let document = serde_json::to_string(apply.document)?;
        let key = (metadata.namespace().to_owned(), metadata.name.clone());
        let existing = self.names.get(&key).copied();
        let (id, outcome, changes) = match existing {
            None => {
                let id = self.create(apply, document, tx);
                self.names.insert(key, id);
                (id, ApplyOutcome::Created, apply_changes(None, apply.expanded, None))
            }
            Some(id) if self.workflows.get(&id).is_some_and(|workflow| workflow.row.document == document) => {
                (id, ApplyOutcome::Unchanged, self.preview(apply.document, apply.expanded))
            }
            Some(id) => {
                let changes = self.edit(id, apply, document, tx);
                (id, ApplyOutcome::Configured, changes)
            }
        };
        if !apply.store_only {
            self.session.workflows.insert(id);
        }
        self.wake_version += 1;
        let (namespace, name) = (metadata.namespace().to_owned(), metadata.name.clone());
        Ok(ApplyResponse { name, namespace, id: Some(id.0), outcome, changes })
    }

    /// What applying would do to the jobs of a workflow.
    pub fn preview(&self, document: &WorkflowDocument, expanded: &Expanded) -> JobChanges {
        let key = (document.metadata.namespace().to_owned(), document.metadata.name.clone());
        let existing = self.names.get(&key).and_then(|id| self.workflows.get(id));
        let rerun = existing.and_then(|workflow| rerun(workflow, &document.spec));
        apply_changes(existing.map(WorkflowRef), expanded, rerun)
    }

    /// Returns the specification that a document would replace.
    pub fn stored_spec(&self, document: &WorkflowDocument) -> Option<&WorkflowSpec> {
        let key = (document.metadata.namespace().to_owned(), document.metadata.name.clone());
        self.names.get(&key).and_then(|id| self.workflows.get(id)).map(|workflow| &*workflow.spec)
    }

    /// The document of a workflow as it is stored.
    pub fn stored_document(&self, namespace: &str, name: &str) -> Option<&str> {
        let id = self.names.get(&(namespace.to_owned(), name.to_owned()))?;
        self.workflows.get(id).map(|workflow| workflow.row.document.as_str())
    }

    fn create(&mut self, apply: &Apply<'_>, document: String, tx: &mut Tx) -> WorkflowId {
        let id = tx.next_workflow();
        let spec = &apply.document.spec;
        let row = WorkflowRow {
            id,
            namespace: apply.document.metadata.namespace().to_owned(),
            name: apply.document.metadata.name.clone(),
            owner: apply.owner.to_owned(),
            document,
            generation: 1,
            digest: digest(apply.expanded),
            working_dir: apply.working_dir.to_owned(),
            run: spec.run_id.unwrap_or(1),
            created_ms: tx.now.wall_ms,
            conditions: "[]".to_owned(),
            ..WorkflowRow::default()
        };
        let mut plan = PlanBuilder::new(&row, apply.expanded, HashMap::new());
        let jobs = plan.rows(None, tx);
        tx.changes.workflow(&row);
        tx.event(Some(id), EventReason::WorkflowCreated, format!("created with {}", counted(jobs.len() as i64)));
        let profiles = plan.profiles;
        let mut workflow = Workflow::build(row, Arc::new(spec.clone()), profiles.clone(), &jobs);
        workflow.declare_data(apply.expanded, tx);
        let changes = tx.changes.rows();
        changes.profiles.extend(profiles);
        changes.jobs.extend(jobs);
        workflow.create_actions(tx);
        self.workflows.insert(id, workflow);
        self.live.insert(id);
        if self.workflows.get(&id).is_some_and(Workflow::is_canceled) {
            self.cancel_jobs(id, tx);
        }
        id
    }

    fn edit(&mut self, id: WorkflowId, apply: &Apply<'_>, document: String, tx: &mut Tx) -> JobChanges {
        let Some(old) = self.workflows.remove(&id) else { return JobChanges::default() };
        let spec = &apply.document.spec;
        let changes = apply_changes(Some(WorkflowRef(&old)), apply.expanded, rerun(&old, spec));
        let mut row = old.row.clone();
        row.document = document;
        row.generation += 1;
        row.digest = digest(apply.expanded);
        let new_run = spec.run_id.filter(|run| *run > row.run);
        // New jobs belong to the new run from the start.
        row.run = new_run.unwrap_or(row.run);
        let known = old.graph.profiles().map(|entry| (entry.complete(), entry.id())).collect();
        let mut plan = PlanBuilder::new(&row, apply.expanded, known);
        let mut rows = plan.rows(Some(&old), tx);
        rows.extend(old.surviving_spawned(apply.expanded));
        rows.sort_unstable_by_key(|row| row.id);
        let new_profiles = plan.profiles;
        let all_profiles = old.graph.profile_rows().chain(new_profiles.iter().cloned());
        let mut workflow = Workflow::build(row, Arc::new(spec.clone()), all_profiles, &rows);
        workflow.inherit(&old);
        workflow.declare_data(apply.expanded, tx);
        workflow.adopt_actions(Some(&old), tx);
        if let Some(run) = new_run {
            workflow.begin_run(run, tx);
            workflow.data.forget_ephemeral(tx);
        }
        tx.changes.rows().profiles.extend(new_profiles);
        tx.changes.workflow(&workflow.row);
        match describe(&changes) {
            Some(text) => tx.event(Some(id), EventReason::WorkflowConfigured, text),
            None => tx.event(Some(id), EventReason::WorkflowUpdated, "the jobs are as they were".to_owned()),
        }

        let mut again = BTreeSet::new();
        for (index, mut row) in rows.into_iter().enumerate() {
            let before = old.graph.ordinal(row.id);
            let definition_changed = before.is_none_or(|job| *old.graph.job(job).hash() != row.hash)
                || workflow.drop_lost_parents(index as u32, &mut row);
            if definition_changed {
                again.insert(index as u32);
            }
            if definition_changed || before.is_some_and(|job| differs(&old.graph.row(job), &row)) {
                tx.changes.job(row);
            }
        }
        if new_run.is_some() {
            again.extend(workflow.to_rerun(spec.rerun_policy.unwrap_or_default()));
        }
        let replans = new_run.is_some() || workflow.has_left_its_plan(&old);
        self.drop_removed(&old, &workflow, tx);
        self.workflows.insert(id, workflow);
        self.live.insert(id);
        if replans {
            self.undo_regeneration(id, tx);
        }
        self.reset(id, again, tx);
        if self.workflows.get(&id).is_some_and(Workflow::is_canceled) {
            self.cancel_jobs(id, tx);
        }
        changes
    }

    /// Jobs that are no longer wanted. A runner that has one is told to end it, for its key is no longer known.
    pub(super) fn drop_removed(&mut self, old: &Workflow, new: &Workflow, tx: &mut Tx) {
        for (_, job) in old.graph.iter().filter(|(_, job)| new.graph.ordinal(job.id()).is_none()) {
            tx.changes.rows().removed_jobs.push(job.id());
            if old.recoveries.get(job.id()).is_some() {
                tx.changes.recovery_ended(job.id());
            }
            for lease in old.leases.expired_of(job.id()) {
                tx.changes.detached_ended(lease.lease_id);
            }
        }
        self.forget_leases(|target| target.workflow == new.id() && !new.has_target(target), tx);
    }
}

/// What an edit did to the jobs; nothing if it was about something else.
fn describe(changes: &JobChanges) -> Option<String> {
    let parts = [
        (changes.added.count, "added"),
        (changes.removed.count, "removed"),
        (changes.changed.count, "changed"),
        (changes.rerun.count, "in a new run"),
        (changes.downstream.count, "downstream of them"),
        (changes.adjusted.count, "adjusted"),
    ];
    let mut parts = parts.into_iter().filter(|(count, _)| *count > 0);
    let (count, word) = parts.next()?;
    let rest = parts.chain((changes.unchanged > 0).then_some((changes.unchanged, "unchanged")));
    let rest: String = rest.map(|(count, word)| format!(", {count} {word}")).collect();
    Some(format!("{} {word}{rest}", counted(count)))
}

fn differs(before: &JobRow, after: &JobRow) -> bool {
    before.profile != after.profile || before.priority != after.priority || before.depends_on != after.depends_on
}

/// A live workflow, for comparing it with a document.
#[derive(Clone, Copy)]
pub struct WorkflowRef<'a>(&'a Workflow);

/// Which jobs a document runs again by asking for a new run; none when it does not.
fn rerun(workflow: &Workflow, spec: &WorkflowSpec) -> Option<RerunPolicy> {
    spec.run_id.filter(|run| *run > workflow.row.run).map(|_| spec.rerun_policy.unwrap_or_default())
}

/// Whether a new run takes a job that stands here.
fn runs_again(policy: RerunPolicy, state: JobState) -> bool {
    match policy {
        RerunPolicy::All => state != JobState::Disabled,
        RerunPolicy::Incomplete => !matches!(state, JobState::Completed | JobState::Disabled),
        RerunPolicy::Failed => {
            matches!(state, JobState::Failed | JobState::Terminated | JobState::Canceled | JobState::PendingFailed)
        }
    }
}

/// What applying a document does to the jobs of a workflow; without one every job is new.
pub fn apply_changes(existing: Option<WorkflowRef<'_>>, expanded: &Expanded, rerun: Option<RerunPolicy>) -> JobChanges {
    let mut changes = JobChanges::default();
    let Some(WorkflowRef(old)) = existing else {
        for job in &expanded.jobs {
            changes.added.push(&job.name);
        }
        return changes;
    };
    let old_by_name = old.graph.by_name();
    let mut again = vec![false; expanded.jobs.len()];
    for (index, job) in expanded.jobs.iter().enumerate() {
        let Some(before) = old_by_name.get(job.name.as_str()).copied() else {
            changes.added.push(&job.name);
            again[index] = true;
            continue;
        };
        let record = old.graph.job(before);
        if *record.hash() != job_hash(expanded, index) {
            changes.changed.push(&job.name);
            again[index] = true;
        } else if rerun.is_some_and(|policy| runs_again(policy, record.state())) {
            changes.rerun.push(&job.name);
            again[index] = true;
        }
    }
    let downstream = downstream_of(expanded, &again);
    for (index, job) in expanded.jobs.iter().enumerate().filter(|(index, _)| !again[*index]) {
        let before = old_by_name[job.name.as_str()];
        let adjusted = !old.graph.complete_profile(before).is_as_declared(&profile_of(expanded, job))
            || old.graph.job(before).priority() != job.priority;
        if downstream[index] {
            changes.downstream.push(&job.name);
        } else if adjusted {
            changes.adjusted.push(&job.name);
        } else {
            changes.unchanged += 1;
        }
    }
    let wanted: HashMap<&str, bool> =
        expanded.jobs.iter().zip(&downstream).map(|(job, again)| (job.name.as_str(), *again)).collect();
    old.changes_beside_document(&wanted, &mut changes);
    changes
}

/// Which jobs depend, directly or not, on one that runs again.
fn downstream_of(expanded: &Expanded, again: &[bool]) -> Vec<bool> {
    let mut children: Vec<Vec<u32>> = vec![Vec::new(); expanded.jobs.len()];
    for (index, job) in expanded.jobs.iter().enumerate() {
        for parent in &job.depends_on {
            children[*parent as usize].push(index as u32);
        }
    }
    let mut reached = again.to_vec();
    let mut open: Vec<u32> = (0..again.len() as u32).filter(|job| again[*job as usize]).collect();
    while let Some(job) = open.pop() {
        for child in &children[job as usize] {
            if !std::mem::replace(&mut reached[*child as usize], true) {
                open.push(*child);
            }
        }
    }
    reached
}

/// Rows in the making.
struct PlanBuilder<'a> {
    workflow: WorkflowId,
    run: i32,
    expanded: &'a Expanded,
    known: HashMap<JobProfile, ProfileId>,
    /// Profiles that are new.
    profiles: Vec<ProfileRow>,
}

impl<'a> PlanBuilder<'a> {
    fn new(row: &WorkflowRow, expanded: &'a Expanded, known: HashMap<JobProfile, ProfileId>) -> Self {
        Self { workflow: row.id, run: row.run, expanded, known, profiles: Vec::new() }
    }

    /// The jobs' rows, sorted by number. Jobs that exist keep their number and where they stand.
    fn rows(&mut self, old: Option<&Workflow>, tx: &mut Tx) -> Vec<JobRow> {
        let by_name = old.map(|old| old.graph.by_name()).unwrap_or_default();
        let before: Vec<Option<u32>> =
            self.expanded.jobs.iter().map(|job| by_name.get(job.name.as_str()).copied()).collect();
        let ids: Vec<JobId> = before
            .iter()
            .map(|before| match (old, before) {
                (Some(old), Some(before)) => old.graph.job(*before).id(),
                _ => tx.next_job(),
            })
            .collect();
        let mut rows: Vec<JobRow> = (0..ids.len()).map(|index| self.new_row(index, &ids, tx)).collect();
        if let Some(old) = old {
            for (index, (row, before)) in rows.iter_mut().zip(&before).enumerate() {
                if let Some(before) = before {
                    let record = old.graph.job(*before);
                    row.state = record.state();
                    row.run = record.run();
                    row.attempt = record.attempt();
                    row.lease_id = record.lease_id();
                    row.runner = record.runner();
                    row.started_ms = record.started_ms();
                    // What recovery has given to a job stays, as long as the document asks for the same.
                    let present = old.graph.profile_entry(*before);
                    let is_recovered =
                        present.common().declared.is_some() || present.common().recovery_scheduler.is_some();
                    if is_recovered
                        && present.complete().is_as_declared(&profile_of(self.expanded, &self.expanded.jobs[index]))
                    {
                        row.profile = present.id();
                    }
                }
            }
            rows.sort_unstable_by_key(|row| row.id);
        }
        rows
    }

    fn new_row(&mut self, index: usize, ids: &[JobId], tx: &mut Tx) -> JobRow {
        let job = &self.expanded.jobs[index];
        let mut depends_on: Vec<JobId> = job.depends_on.iter().map(|parent| ids[*parent as usize]).collect();
        depends_on.sort_unstable();
        let planned = JobEvent::Planned { unmet: job.depends_on.len() as u32 };
        JobRow {
            id: ids[index],
            workflow: self.workflow,
            name: job.name.clone(),
            command: job.command.clone(),
            profile: self.profile_id(job, tx),
            priority: job.priority,
            hash: job_hash(self.expanded, index),
            depends_on,
            state: next_state(JobState::Uninitialized, planned).unwrap_or(JobState::Blocked),
            run: self.run,
            attempt: 1,
            lease_id: 0,
            runner: None,
            started_ms: None,
        }
    }

    fn profile_id(&mut self, job: &ExpandedJob, tx: &mut Tx) -> ProfileId {
        let profile = profile_of(self.expanded, job);
        if let Some(id) = self.known.get(&profile) {
            return *id;
        }
        let id = tx.next_profile();
        self.known.insert(profile.clone(), id);
        self.profiles.push(ProfileRow { id, workflow: self.workflow, profile });
        id
    }
}

pub(super) fn profile_of(expanded: &Expanded, job: &ExpandedJob) -> JobProfile {
    JobProfile {
        requirements: expanded.requirements[job.requirements as usize].clone(),
        declared: None,
        labels: job.labels.clone(),
        scheduler: job.scheduler.clone(),
        recovery_scheduler: None,
        env: job.env.clone(),
        invocation_script: job.invocation_script.clone(),
        stdio: job.stdio.clone(),
        input_files: job.input_files.iter().map(|file| expanded.files[*file as usize].path.clone()).collect(),
        output_files: job.output_files.iter().map(|file| expanded.files[*file as usize].path.clone()).collect(),
        input_user_data: job
            .input_user_data
            .iter()
            .map(|data| expanded.user_data[*data as usize].name.clone())
            .collect(),
        output_user_data: job
            .output_user_data
            .iter()
            .map(|data| expanded.user_data[*data as usize].name.clone())
            .collect(),
        spawned: None,
        tasks_per_node: job.tasks_per_node,
        failure_handler: job.failure_handler.clone(),
        cancel_on_blocking_job_failure: job.cancel_on_blocking_job_failure,
    }
}

impl Workflow {
    /// Takes over what is remembered about jobs beside their rows.
    pub(super) fn inherit(&mut self, old: &Workflow) {
        let names = self.graph.by_name();
        let mut failures = Failures::default();
        failures.inherit(&old.failures, |name| names.contains_key(name), |job| self.graph.state_of(job));
        self.failures = failures;
        self.data = old.data.clone();
        self.allocations = old.allocations.after_an_edit();
        self.inherit_leases(old);
        for row in old.recoveries.iter() {
            if self.graph.ordinal(row.job).is_some() {
                self.recoveries.insert(row.clone());
            }
        }
    }

    /// An edit gave a job other requirements, labels or schedulers than those that recovery planned its allocations for.
    fn has_left_its_plan(&self, old: &Workflow) -> bool {
        let planned_for = |job: u32| old.graph.profile(job).recovery_scheduler.as_deref();
        old.graph.all().filter(|job| planned_for(*job).is_some()).any(|job| {
            let now = self.graph.ordinal(old.graph.job(job).id());
            now.is_some_and(|now| self.graph.profile(now).recovery_scheduler.as_deref() != planned_for(job))
        })
    }

    fn to_rerun(&self, policy: RerunPolicy) -> impl Iterator<Item = u32> + '_ {
        self.graph.all().filter(move |job| runs_again(policy, self.graph.job(*job).state()))
    }
}

#[cfg(test)]
mod tests {
    use torc_api::api::JobNames;

    use super::*;

    #[test]
    fn an_edit_is_told_without_what_did_not_happen() {
        let count = |count: i64| JobNames { count, names: Vec::new() };
        let none = JobChanges::default();
        for (changes, expected) in [
            (JobChanges { unchanged: 4, ..none.clone() }, None),
            (JobChanges { added: count(1), ..none.clone() }, Some("1 job added")),
            (
                JobChanges { changed: count(1), downstream: count(1), unchanged: 2, ..none.clone() },
                Some("1 job changed, 1 downstream of them, 2 unchanged"),
            ),
            (JobChanges { rerun: count(4), adjusted: count(2), ..none }, Some("4 jobs in a new run, 2 adjusted")),
        ] {
            assert_eq!(describe(&changes).as_deref(), expected, "{changes:?}");
        }
    }
}
