//! Applies documents: a new one creates a workflow, an equal one changes nothing, an edited one changes only the jobs
//! that differ.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use torc_api::api::{ApplyOutcome, ApplyResponse, JobChanges};
use torc_api::document::WorkflowDocument;
use torc_api::event_reason::EventReason;
use torc_api::quantity::count;
use torc_api::state::JobState;
use torc_api::workflow::{RerunPolicy, WorkflowSpec};

use super::Engine;
use super::tx::Tx;
use super::workflow::Graph;
use super::workflow::LiveWorkflow;
use crate::expanded::{Expanded, ExpandedJob};
use crate::hash::{digest, job_hash};
use crate::ids::{JobId, ProfileId, WorkflowId};
use crate::job::{JobEvent, next_state};
use crate::rows::{JobProfile, JobRow, ProfileRow, WorkflowRow};

/// A document to apply, already expanded and validated.
pub struct Apply<'a> {
    /// The document to apply, as the user wrote it.
    pub document: &'a WorkflowDocument,
    /// The jobs and files that the document expands to.
    pub expanded: &'a Expanded,
    /// Owner of a new workflow.
    pub owner: &'a str,
    /// Working directory of the jobs of a new workflow.
    pub working_dir: &'a str,
    /// Only stores the workflow. It is not run in this session unless it already is.
    pub store_only: bool,
}

impl Engine {
    /// Creates or edits the workflow that a document names.
    pub fn apply(&mut self, apply: &Apply<'_>, tx: &mut Tx) -> Result<ApplyResponse, serde_json::Error> {
        let metadata = &apply.document.metadata;
        let document = serde_json::to_string(apply.document)?;
        let existing = self.workflows.named(metadata.namespace(), &metadata.name);
        let (id, outcome, changes) = match existing.map(|workflow| (workflow.id(), workflow.row())) {
            None => {
                let id = self.create(apply, document, tx);
                (id, ApplyOutcome::Created, apply_changes(None, apply.expanded, None))
            }
            Some((id, row)) if row.document == document => {
                (id, ApplyOutcome::Unchanged, self.preview(apply.document, apply.expanded))
            }
            Some((id, _)) => {
                let changes = self.edit(id, apply, document, tx);
                (id, ApplyOutcome::Configured, changes)
            }
        };
        if !apply.store_only {
            self.workflows.session.add(id);
        }
        self.runners.wake();
        let (namespace, name) = (metadata.namespace().to_owned(), metadata.name.clone());
        Ok(ApplyResponse { name, namespace, id: Some(id.0), outcome, changes })
    }

    /// Returns the effects of a document on the jobs of the workflow that it names.
    pub fn preview(&self, document: &WorkflowDocument, expanded: &Expanded) -> JobChanges {
        let existing = self.workflows.named(document.metadata.namespace(), &document.metadata.name);
        let rerun = existing.and_then(|workflow| new_run_policy(workflow, &document.spec));
        apply_changes(existing.map(|workflow| &workflow.graph), expanded, rerun)
    }

    /// Returns the specification that a document would replace.
    pub fn stored_spec(&self, document: &WorkflowDocument) -> Option<&WorkflowSpec> {
        let existing = self.workflows.named(document.metadata.namespace(), &document.metadata.name);
        existing.map(LiveWorkflow::spec)
    }

    /// Returns the stored document of a workflow.
    pub fn stored_document(&self, namespace: &str, name: &str) -> Option<&str> {
        self.workflows.named(namespace, name).map(|workflow| workflow.row().document.as_str())
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
        tx.event(Some(id), EventReason::WorkflowCreated, format!("created with {}", count(jobs.len() as i64, "job")));
        let graph = Graph::new(id, plan.profiles.clone(), &jobs);
        let mut workflow = LiveWorkflow::new(row, Arc::new(spec.clone()), graph);
        workflow.declare_data(apply.expanded, tx);
        let changes = tx.changes.rows();
        changes.profiles.extend(plan.profiles);
        changes.jobs.extend(jobs);
        workflow.create_actions(tx);
        let is_canceled = workflow.is_canceled();
        self.workflows.insert(workflow);
        if is_canceled {
            self.leases().cancel_jobs(id, tx);
        }
        id
    }

    fn edit(&mut self, id: WorkflowId, apply: &Apply<'_>, document: String, tx: &mut Tx) -> JobChanges {
        let Some(old) = self.workflows.take(id) else { return JobChanges::default() };
        let spec = &apply.document.spec;
        let changes = apply_changes(Some(&old.graph), apply.expanded, new_run_policy(&old, spec));
        let mut row = old.row().clone();
        row.document = document;
        row.generation += 1;
        row.digest = digest(apply.expanded);
        let new_run = spec.run_id.filter(|run| *run > row.run);
        // New jobs belong to the new run from the start.
        row.run = new_run.unwrap_or(row.run);
        let known = old.graph.profiles().map(|entry| (entry.complete(), entry.id())).collect();
        let mut plan = PlanBuilder::new(&row, apply.expanded, known);
        let mut rows = plan.rows(Some(&old.graph), tx);
        rows.extend(old.graph.surviving_spawned(&apply.expanded.jobs.iter().map(|job| job.name.as_str()).collect()));
        rows.sort_unstable_by_key(|row| row.id);
        let graph = Graph::new(id, old.graph.profile_rows().chain(plan.profiles.iter().cloned()), &rows);
        let mut workflow = LiveWorkflow::new(row, Arc::new(spec.clone()), graph);
        workflow.inherit(&old);
        workflow.declare_data(apply.expanded, tx);
        workflow.carry_over_actions(Some(&old), tx);
        if let Some(run) = new_run {
            workflow.begin_run(run, tx);
        }
        tx.changes.rows().profiles.extend(plan.profiles);
        workflow.record.save(tx);
        match describe(&changes) {
            Some(text) => tx.event(Some(id), EventReason::WorkflowConfigured, text),
            None => tx.event(Some(id), EventReason::WorkflowUpdated, "the jobs did not change".to_owned()),
        }

        let mut reset = record_changed_jobs(&old.graph, &workflow.graph, rows, tx);
        if new_run.is_some() {
            let policy = spec.rerun_policy.unwrap_or_default();
            let runs_again = |job: &u32| runs_again(policy, workflow.graph.job(*job).state());
            reset.extend(workflow.graph.ordinals().filter(runs_again));
        }
        if new_run.is_some() || overrides_recovery(&old.graph, &workflow.graph) {
            workflow.forget_regenerated(tx);
        }
        let is_canceled = workflow.is_canceled();
        let mut leases = self.leases();
        leases.forget_removed(&old, &workflow, tx);
        leases.workflows.put_back(workflow);
        leases.reset(id, reset, tx);
        if is_canceled {
            leases.cancel_jobs(id, tx);
        }
        changes
    }
}

/// Records the rows of jobs that an edit has changed. Returns the jobs that have to run again.
fn record_changed_jobs(old: &Graph, new: &Graph, rows: Vec<JobRow>, tx: &mut Tx) -> BTreeSet<u32> {
    let mut reset = BTreeSet::new();
    for (job, mut row) in (0..).zip(rows) {
        let before = old.ordinal(row.id);
        let is_redefined =
            before.is_none_or(|job| *old.job(job).hash() != row.hash) || new.drop_removed_parents(job, &mut row);
        if is_redefined {
            reset.insert(job);
        }
        if is_redefined || before.is_some_and(|job| differs(&old.row(job), &row)) {
            tx.changes.job(row);
        }
    }
    reset
}

/// Returns whether an edit has given a job other requirements, labels or schedulers than those that recovery planned allocations for.
fn overrides_recovery(old: &Graph, new: &Graph) -> bool {
    old.ordinals().any(|job| {
        let planned = old.profile(job).recovery_scheduler.as_deref();
        let now = new.ordinal(old.job(job).id()).filter(|_| planned.is_some());
        now.is_some_and(|now| new.profile(now).recovery_scheduler.as_deref() != planned)
    })
}

/// Describes the effects of an edit on the jobs; none if it changes no job.
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
    let (first, word) = parts.next()?;
    let rest = parts.chain((changes.unchanged > 0).then_some((changes.unchanged, "unchanged")));
    let rest: String = rest.map(|(count, word)| format!(", {count} {word}")).collect();
    Some(format!("{} {word}{rest}", count(first, "job")))
}

fn differs(before: &JobRow, after: &JobRow) -> bool {
    before.profile != after.profile || before.priority != after.priority || before.depends_on != after.depends_on
}

/// Returns the policy of the new run that a document requests; none if it requests no new run.
fn new_run_policy(workflow: &LiveWorkflow, spec: &WorkflowSpec) -> Option<RerunPolicy> {
    spec.run_id.filter(|run| *run > workflow.row().run).map(|_| spec.rerun_policy.unwrap_or_default())
}

/// Returns whether a new run resets a job in this state.
fn runs_again(policy: RerunPolicy, state: JobState) -> bool {
    match policy {
        RerunPolicy::All => state != JobState::Disabled,
        RerunPolicy::Incomplete => !matches!(state, JobState::Completed | JobState::Disabled),
        RerunPolicy::Failed => {
            matches!(state, JobState::Failed | JobState::Terminated | JobState::Canceled | JobState::PendingFailed)
        }
    }
}

/// Returns the effects of applying a document on the jobs of a workflow. Without a workflow, all jobs are new.
fn apply_changes(existing: Option<&Graph>, expanded: &Expanded, rerun: Option<RerunPolicy>) -> JobChanges {
    let mut changes = JobChanges::default();
    let Some(old) = existing else {
        for job in &expanded.jobs {
            changes.added.push(&job.name);
        }
        return changes;
    };
    let old_by_name = old.by_name();
    let mut reset = vec![false; expanded.jobs.len()];
    for (index, job) in expanded.jobs.iter().enumerate() {
        let Some(before) = old_by_name.get(job.name.as_str()).copied() else {
            changes.added.push(&job.name);
            reset[index] = true;
            continue;
        };
        let record = old.job(before);
        if *record.hash() != job_hash(expanded, index) {
            changes.changed.push(&job.name);
            reset[index] = true;
        } else if rerun.is_some_and(|policy| runs_again(policy, record.state())) {
            changes.rerun.push(&job.name);
            reset[index] = true;
        }
    }
    let downstream = with_downstream(expanded, &reset);
    for (index, job) in expanded.jobs.iter().enumerate().filter(|(index, _)| !reset[*index]) {
        let before = old_by_name[job.name.as_str()];
        let is_adjusted = !old.complete_profile(before).is_as_declared(&profile_of(expanded, job))
            || old.job(before).priority() != job.priority;
        if downstream[index] {
            changes.downstream.push(&job.name);
        } else if is_adjusted {
            changes.adjusted.push(&job.name);
        } else {
            changes.unchanged += 1;
        }
    }
    let declared: HashMap<&str, bool> =
        expanded.jobs.iter().zip(&downstream).map(|(job, is_reset)| (job.name.as_str(), *is_reset)).collect();
    old.undeclared_changes(&declared, &mut changes);
    changes
}

/// Returns, for each job, whether it is reset or depends on a job that is reset.
fn with_downstream(expanded: &Expanded, reset: &[bool]) -> Vec<bool> {
    let mut children: Vec<Vec<u32>> = vec![Vec::new(); expanded.jobs.len()];
    for (index, job) in expanded.jobs.iter().enumerate() {
        for parent in &job.depends_on {
            children[*parent as usize].push(index as u32);
        }
    }
    let mut reached = reset.to_vec();
    let mut open: Vec<u32> = (0..reset.len() as u32).filter(|job| reset[*job as usize]).collect();
    while let Some(job) = open.pop() {
        for child in &children[job as usize] {
            if !std::mem::replace(&mut reached[*child as usize], true) {
                open.push(*child);
            }
        }
    }
    reached
}

/// Builds the rows of the jobs of a document.
struct PlanBuilder<'a> {
    workflow: WorkflowId,
    run: i32,
    expanded: &'a Expanded,
    known: HashMap<JobProfile, ProfileId>,
    /// Profiles that the workflow does not have yet.
    profiles: Vec<ProfileRow>,
}

impl<'a> PlanBuilder<'a> {
    fn new(row: &WorkflowRow, expanded: &'a Expanded, known: HashMap<JobProfile, ProfileId>) -> Self {
        Self { workflow: row.id, run: row.run, expanded, known, profiles: Vec::new() }
    }

    /// Returns the rows of the jobs, sorted by number. Existing jobs keep their number and state.
    fn rows(&mut self, old: Option<&Graph>, tx: &mut Tx) -> Vec<JobRow> {
        let by_name = old.map(Graph::by_name).unwrap_or_default();
        let before: Vec<Option<u32>> =
            self.expanded.jobs.iter().map(|job| by_name.get(job.name.as_str()).copied()).collect();
        let ids: Vec<JobId> = before
            .iter()
            .map(|before| match (old, before) {
                (Some(old), Some(before)) => old.job(*before).id(),
                _ => tx.next_job(),
            })
            .collect();
        let mut rows: Vec<JobRow> = (0..ids.len()).map(|index| self.new_row(index, &ids, tx)).collect();
        if let Some(old) = old {
            for (index, (row, before)) in rows.iter_mut().zip(&before).enumerate() {
                if let Some(before) = before {
                    self.copy_progress(&self.expanded.jobs[index], old, *before, row);
                }
            }
            rows.sort_unstable_by_key(|row| row.id);
        }
        rows
    }

    /// Copies the state of an existing job. What recovery has given to the job stays as long as its declaration is the same.
    fn copy_progress(&self, job: &ExpandedJob, old: &Graph, before: u32, row: &mut JobRow) {
        let record = old.job(before);
        row.state = record.state();
        row.run = record.run();
        row.attempt = record.attempt();
        row.lease_id = record.lease_id();
        row.runner = record.runner();
        row.started_ms = record.started_ms();
        let entry = old.profile_entry(before);
        let is_recovered = entry.common().declared.is_some() || entry.common().recovery_scheduler.is_some();
        if is_recovered && entry.complete().is_as_declared(&profile_of(self.expanded, job)) {
            row.profile = entry.id();
        }
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

#[cfg(test)]
mod tests {
    use torc_api::api::JobNames;

    use super::*;

    #[test]
    fn description_of_an_edit_lists_only_what_changed() {
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
