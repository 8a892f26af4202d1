//! One live workflow: a small record for each job, edges as flat arrays, queues of what is ready.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use indexmap::IndexSet;
use torc_api::document::WorkflowDocument;
use torc_api::state::{Cause, JobState};
use torc_api::status::{FailureSample, JobCounts};
use torc_api::termination::EndMargin;
use torc_api::wire::AttemptKey;
use torc_api::workflow::{StopPolicy, WorkflowSpec};

use super::action_list::Actions;
use super::allocation_list::Allocations;
use super::detached_leases::DetachedLeases;
use super::failures::Failures;
use super::profile::ProfileEntry;
use super::recovery_scripts::Recoveries;
use super::tx::Tx;
use super::user_data::Data;
use crate::class::Class;
use crate::expanded::Requirements;
use crate::ids::{JobId, ProfileId, RunnerId, WorkflowId};
use crate::job::{InvalidTransition, JobEvent, next_state};
use crate::matching::{ReadyJob, ReadyQueue, Usage};
use crate::rows::{JobProfile, JobRow, JobUpdate, ProfileRow, Regenerated, ResultRow, WorkflowRow};
use crate::urgency::downstream_seconds;

pub(super) struct Workflow {
    pub row: WorkflowRow,
    pub spec: Arc<WorkflowSpec>,
    pub jobs: Vec<JobRecord>,
    text: String,
    parents: Edges,
    children: Edges,
    pub profiles: Vec<ProfileEntry>,
    /// What profiles share.
    common_profiles: HashSet<Arc<JobProfile>>,
    pub classes: IndexSet<Class>,
    /// One queue a class.
    pub queues: Vec<ReadyQueue>,
    pub counts: JobCounts,
    /// Resources of leased and running jobs.
    pub usage: Usage,
    pub failures: Failures,
    /// Values that jobs exchange.
    pub data: Data,
    /// Profiles with other requirements than the document's, by the profile before and the new requirements: jobs that change alike
    /// share one.
    pub scaled_profiles: HashMap<(u32, Requirements), u32>,
    pub leases: DetachedLeases,
    pub actions: Actions,
    /// Schedulers that recovery has made.
    pub regenerated: Vec<Regenerated>,
    /// The document with them, as far as Slurm is concerned.
    pub spec_with_regenerated: Option<Arc<WorkflowSpec>>,
    pub recoveries: Recoveries,
    pub allocations: Allocations,
}

/// What is kept of a job that may be one of a million.
#[derive(Clone, Debug)]
pub(super) struct JobRecord {
    pub id: JobId,
    pub priority: i64,
    pub lease_id: i64,
    pub runner: Option<RunnerId>,
    pub started_ms: Option<i64>,
    pub hash: [u8; 32],
    pub run: i32,
    pub attempt: i32,
    /// How many jobs it waits for, and how many of its own leases that are being ended.
    pub unmet: u32,
    /// Index into the workflow's profiles.
    pub profile: u32,
    /// Declared runtimes along the longest chain of jobs that waits for it.
    pub downstream_seconds: u32,
    pub state: JobState,
    /// How many of its leases are being ended.
    pub ending: u8,
    /// Its runner is silent: whether it still runs is not known.
    pub unconfirmed: bool,
    /// Number of times that the present attempt was asked back for another runner.
    pub moves: u8,
    name: Text,
    command: Text,
}

impl JobRecord {
    /// The present attempt is over. The next one has had no lease yet.
    pub fn next_attempt(&mut self) {
        self.attempt += 1;
        self.lease_id = 0;
        self.moves = 0;
    }

    /// Returns the entry of the job, which is the `ordinal`-th, in the queue of its class.
    fn ready_job(&self, ordinal: u32) -> ReadyJob {
        ReadyJob::new(self.priority, self.downstream_seconds, ordinal)
    }
}

#[derive(Clone, Copy, Debug)]
struct Text {
    start: u32,
    length: u32,
}

/// Edges as two flat arrays: those of job n are `targets[offsets[n]..offsets[n + 1]]`.
#[derive(Default)]
struct Edges {
    offsets: Vec<u32>,
    targets: Vec<u32>,
}

impl Edges {
    fn of(&self, job: u32) -> &[u32] {
        let job = job as usize;
        &self.targets[self.offsets[job] as usize..self.offsets[job + 1] as usize]
    }
}

/// Everything there is to say about a job.
pub struct JobDetail<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it has in common with others; paths of files are left out.
    pub profile: &'a JobProfile,
    /// Where it stands.
    pub state: JobState,
    /// Current attempt.
    pub attempt: i32,
    /// Names of the jobs it depends on, sorted.
    pub depends_on: Vec<&'a str>,
    /// How many of them have not ended.
    pub unmet: u32,
    /// Its runner is silent.
    pub unconfirmed: bool,
}

impl Workflow {
    /// Returns the state of a job, if it is there.
    pub fn state_of(&self, id: JobId) -> Option<JobState> {
        self.ordinal(id).map(|job| self.jobs[job as usize].state)
    }

    /// Builds the live form of stored rows. `jobs` must be sorted by number; unknown dependencies are left out.
    pub fn build(
        row: WorkflowRow,
        spec: Arc<WorkflowSpec>,
        profiles: impl IntoIterator<Item = ProfileRow>,
        jobs: &[JobRow],
    ) -> Self {
        let mut workflow = Self {
            row,
            spec,
            jobs: Vec::with_capacity(jobs.len()),
            text: String::with_capacity(jobs.iter().map(|job| job.name.len() + job.command.len()).sum()),
            parents: Edges::default(),
            children: Edges::default(),
            profiles: Vec::new(),
            common_profiles: HashSet::new(),
            classes: IndexSet::new(),
            queues: Vec::new(),
            counts: JobCounts::default(),
            usage: Usage::default(),
            failures: Failures::default(),
            data: Data::default(),
            scaled_profiles: HashMap::new(),
            leases: DetachedLeases::default(),
            actions: Actions::default(),
            regenerated: Vec::new(),
            spec_with_regenerated: None,
            recoveries: Recoveries::default(),
            allocations: Allocations::default(),
        };
        workflow.load_regenerated();
        let mut profile_index = HashMap::new();
        for profile in profiles {
            profile_index.insert(profile.id, workflow.add_profile(profile.id, profile.profile));
        }
        for job in jobs {
            let profile = profile_index.get(&job.profile).copied().unwrap_or_default();
            workflow.add_record(job, profile);
        }
        workflow.connect(jobs);
        workflow.measure_paths();
        for ordinal in 0..workflow.jobs.len() as u32 {
            workflow.jobs[ordinal as usize].unmet = workflow.count_unmet(ordinal);
            workflow.enqueue(ordinal);
            workflow.count_usage(ordinal, 1);
        }
        workflow
    }

    /// Returns the margin before the end of a runner's time in which its jobs get their first signal.
    pub fn end_margin(&self, in_allocation: bool) -> EndMargin {
        EndMargin::of(self.spec.execution_config.as_ref(), in_allocation)
    }

    /// Adds a profile, and its class if that is new.
    pub fn add_profile(&mut self, id: ProfileId, profile: JobProfile) -> u32 {
        let (class, is_new) = self.classes.insert_full(Class::of(&profile));
        if is_new {
            self.queues.push(ReadyQueue::default());
        }
        self.profiles.push(ProfileEntry::new(id, class as u32, profile, &mut self.common_profiles));
        self.profiles.len() as u32 - 1
    }

    fn add_record(&mut self, job: &JobRow, profile: u32) {
        let name = self.add_text(&job.name);
        let command = self.add_text(&job.command);
        self.counts.add(job.state, 1);
        self.jobs.push(JobRecord {
            id: job.id,
            priority: job.priority,
            lease_id: job.lease_id,
            runner: job.runner,
            started_ms: job.started_ms,
            hash: job.hash,
            run: job.run,
            attempt: job.attempt,
            unmet: 0,
            profile,
            downstream_seconds: 0,
            state: job.state,
            ending: 0,
            unconfirmed: false,
            moves: 0,
            name,
            command,
        });
    }

    /// Adds jobs with higher numbers than all that are there; their profiles are new. Returns where they are.
    pub fn append(&mut self, profiles: Vec<ProfileRow>, jobs: &[JobRow]) -> BTreeSet<u32> {
        let first = self.jobs.len() as u32;
        let added: HashMap<ProfileId, u32> =
            profiles.into_iter().map(|row| (row.id, self.add_profile(row.id, row.profile))).collect();
        for job in jobs {
            self.add_record(job, added.get(&job.profile).copied().unwrap_or_default());
        }
        for job in jobs {
            let parents: Vec<u32> = job.depends_on.iter().filter_map(|id| self.ordinal(*id)).collect();
            self.parents.targets.extend(parents);
            self.parents.offsets.push(self.parents.targets.len() as u32);
        }
        self.connect_children();
        self.measure_paths();
        self.renew_gates();
        (first..self.jobs.len() as u32).collect()
    }

    fn add_text(&mut self, text: &str) -> Text {
        let start = self.text.len() as u32;
        self.text.push_str(text);
        Text { start, length: text.len() as u32 }
    }

    fn connect(&mut self, jobs: &[JobRow]) {
        let mut offsets = Vec::with_capacity(jobs.len() + 1);
        let mut targets = Vec::with_capacity(jobs.iter().map(|job| job.depends_on.len()).sum());
        offsets.push(0);
        for job in jobs {
            for parent in job.depends_on.iter().filter_map(|id| self.ordinal(*id)) {
                targets.push(parent);
            }
            offsets.push(targets.len() as u32);
        }
        self.parents = Edges { offsets, targets };
        self.connect_children();
    }

    /// Turns the edges round.
    fn connect_children(&mut self) {
        let mut degrees = vec![0u32; self.jobs.len() + 1];
        for parent in &self.parents.targets {
            degrees[*parent as usize + 1] += 1;
        }
        for job in 1..degrees.len() {
            degrees[job] += degrees[job - 1];
        }
        let mut next = degrees.clone();
        let mut targets = vec![0u32; self.parents.targets.len()];
        for job in 0..self.jobs.len() as u32 {
            for parent in self.parents.of(job) {
                targets[next[*parent as usize] as usize] = job;
                next[*parent as usize] += 1;
            }
        }
        self.children = Edges { offsets: degrees, targets };
    }

    /// Computes the paths below all jobs. Ready jobs whose path has changed move in their queues.
    fn measure_paths(&mut self) {
        let runtime = |job: u32| self.profile(job).requirements.runtime_seconds;
        let count = self.jobs.len() as u32;
        let paths = downstream_seconds(count, |job| self.parents.of(job), |job| self.children.of(job), runtime);
        for (job, path) in (0..count).zip(paths) {
            if self.jobs[job as usize].downstream_seconds != path {
                self.dequeue(job);
                self.jobs[job as usize].downstream_seconds = path;
                self.enqueue(job);
            }
        }
    }

    pub fn id(&self) -> WorkflowId {
        self.row.id
    }

    pub fn parents(&self, job: u32) -> &[u32] {
        self.parents.of(job)
    }

    pub fn children(&self, job: u32) -> &[u32] {
        self.children.of(job)
    }

    /// The index of a job. Numbers are sorted, and mostly without holes.
    pub fn ordinal(&self, id: JobId) -> Option<u32> {
        let first = self.jobs.first()?.id.0;
        let guess = usize::try_from(id.0.checked_sub(first)?).ok()?;
        if self.jobs.get(guess).is_some_and(|job| job.id == id) {
            return Some(guess as u32);
        }
        self.jobs.binary_search_by_key(&id, |job| job.id).ok().map(|index| index as u32)
    }

    /// A job by name or number. Numbers are tried when no job has that name.
    pub fn find(&self, reference: &str) -> Option<u32> {
        let by_name = (0..self.jobs.len() as u32).find(|job| self.name(*job) == reference);
        by_name.or_else(|| self.by_number(reference))
    }

    pub fn by_number(&self, reference: &str) -> Option<u32> {
        self.ordinal(JobId(reference.parse().ok()?))
    }

    pub fn name(&self, job: u32) -> &str {
        self.slice(self.jobs[job as usize].name)
    }

    pub fn command(&self, job: u32) -> &str {
        self.slice(self.jobs[job as usize].command)
    }

    fn slice(&self, text: Text) -> &str {
        &self.text[text.start as usize..(text.start + text.length) as usize]
    }

    /// What the job has in common with others; paths of files are left out.
    pub fn profile(&self, job: u32) -> &JobProfile {
        self.profiles[self.jobs[job as usize].profile as usize].common()
    }

    pub fn whole_profile(&self, job: u32) -> JobProfile {
        self.profiles[self.jobs[job as usize].profile as usize].whole()
    }

    /// The index of a job's class.
    pub fn class_index(&self, job: u32) -> Option<u32> {
        Some(self.profiles.get(self.jobs[job as usize].profile as usize)?.class)
    }

    /// What decides where a job may run.
    pub fn class_of(&self, job: u32) -> Option<&Class> {
        let profile = self.profiles.get(self.jobs[job as usize].profile as usize)?;
        self.classes.get_index(profile.class as usize)
    }

    pub fn key(&self, job: u32) -> AttemptKey {
        let record = &self.jobs[job as usize];
        AttemptKey {
            workflow: self.row.id.0,
            job: record.id.0,
            run: record.run,
            attempt: record.attempt,
            lease_id: record.lease_id,
        }
    }

    pub fn detail(&self, job: u32) -> JobDetail<'_> {
        let record = &self.jobs[job as usize];
        let mut depends_on: Vec<&str> = self.parents(job).iter().map(|parent| self.name(*parent)).collect();
        depends_on.sort_unstable();
        JobDetail {
            name: self.name(job),
            profile: self.profile(job),
            state: record.state,
            attempt: record.attempt,
            depends_on,
            unmet: record.unmet,
            unconfirmed: record.unconfirmed,
        }
    }

    pub fn is_suspended(&self) -> bool {
        self.row.suspended
            || self.spec.suspend == Some(true)
            || self.spec.stop_policy == Some(StopPolicy::Drain)
            || self.is_managed_by_other()
    }

    /// Another controller looks after it.
    pub fn is_managed_by_other(&self) -> bool {
        self.spec.is_managed_by_other()
    }

    pub fn is_canceled(&self) -> bool {
        self.row.canceled || self.spec.stop_policy == Some(StopPolicy::Cancel)
    }

    /// The job runs, and a person wants it ended.
    pub fn should_terminate(&self, job: u32) -> bool {
        self.is_canceled() && self.jobs[job as usize].state == JobState::Running
    }

    /// Everything has ended or was left out.
    pub fn is_settled(&self) -> bool {
        self.counts.settled() == self.counts.total
    }

    /// How many jobs this one still waits for, and how many of its own leases that are being ended. A failed job counts as met
    /// for one that does not ask to be cancelled.
    pub fn count_unmet(&self, job: u32) -> u32 {
        let open = self.parents(job).iter().filter(|parent| !self.jobs[**parent as usize].state.is_complete()).count();
        open as u32 + u32::from(self.jobs[job as usize].ending)
    }

    /// Moves a job, through the one function that decides, and keeps counters and queues in step.
    pub fn transition(&mut self, job: u32, event: JobEvent, tx: &mut Tx) -> Result<JobState, InvalidTransition> {
        let record = &self.jobs[job as usize];
        let before = record.state;
        let after = next_state(before, event)?;
        self.dequeue(job);
        self.count_usage(job, -1);
        self.counts.add(before, -1);
        self.counts.add(after, 1);
        let record = &mut self.jobs[job as usize];
        record.state = after;
        if !after.is_held() {
            record.runner = None;
            record.started_ms = None;
            record.unconfirmed = false;
        }
        if let JobEvent::Reset { unmet } | JobEvent::Planned { unmet } = event {
            record.unmet = unmet;
        }
        self.enqueue(job);
        self.count_usage(job, 1);
        self.actions.job_moved(job, before, after);
        let record = &self.jobs[job as usize];
        self.failures.job_moved(record.id, record.state);
        if before == JobState::Recovering && self.recoveries.remove(self.jobs[job as usize].id).is_some() {
            tx.changes.recovery_ended(self.jobs[job as usize].id);
        }
        tx.changes.moved(self.row.id, self.update(job));
        Ok(after)
    }

    pub fn update(&self, job: u32) -> JobUpdate {
        let record = &self.jobs[job as usize];
        JobUpdate {
            id: record.id,
            state: record.state,
            run: record.run,
            attempt: record.attempt,
            lease_id: record.lease_id,
            runner: record.runner,
            started_ms: record.started_ms,
        }
    }

    /// The whole row of a job, for the rare case that more than its state changed.
    pub fn job_row(&self, job: u32) -> JobRow {
        let record = &self.jobs[job as usize];
        JobRow {
            id: record.id,
            workflow: self.row.id,
            name: self.name(job).to_owned(),
            command: self.command(job).to_owned(),
            profile: self.profiles[record.profile as usize].id,
            priority: record.priority,
            hash: record.hash,
            depends_on: self.parents(job).iter().map(|parent| self.jobs[*parent as usize].id).collect(),
            state: record.state,
            run: record.run,
            attempt: record.attempt,
            lease_id: record.lease_id,
            runner: record.runner,
            started_ms: record.started_ms,
        }
    }

    /// Gives a job another profile; it moves to the queue of its new class.
    pub fn set_profile(&mut self, job: u32, profile: u32) {
        self.dequeue(job);
        self.count_usage(job, -1);
        self.jobs[job as usize].profile = profile;
        self.enqueue(job);
        self.count_usage(job, 1);
    }

    fn enqueue(&mut self, job: u32) {
        let record = &self.jobs[job as usize];
        if record.state == JobState::Ready {
            let class = self.profiles[record.profile as usize].class;
            self.queues[class as usize].insert(record.ready_job(job));
        }
    }

    /// Adds a job to what is in use, `times` times, if a runner has it.
    fn count_usage(&mut self, job: u32, times: i64) {
        let record = &self.jobs[job as usize];
        if record.state.is_held() {
            let needs = &self.profiles[record.profile as usize].common().requirements;
            self.usage.add(needs, times);
        }
    }

    fn dequeue(&mut self, job: u32) {
        let record = &self.jobs[job as usize];
        if record.state == JobState::Ready {
            let class = self.profiles[record.profile as usize].class;
            self.queues[class as usize].remove(record.ready_job(job));
        }
    }

    /// Begins a new run; what was remembered of the one before is history.
    pub fn begin_run(&mut self, run: i32, tx: &mut Tx) {
        self.row.run = run;
        self.row.started_ms = None;
        self.row.completed_ms = None;
        // Whoever asks for a new run wants it to run.
        self.row.canceled = false;
        self.row.expired = false;
        self.failures.begin_run();
        self.begin_run_of_actions(tx);
    }

    /// Keeps a sample of an attempt that failed in this run. That a runner was stopped says nothing about the job.
    pub fn remember_failure(&mut self, result: &ResultRow) {
        let (Some(job), Some(cause)) = (self.ordinal(result.job), result.cause) else { return };
        if result.run != self.row.run || matches!(cause, Cause::Stopped | Cause::Canceled) {
            return;
        }
        let sample = FailureSample {
            job: self.name(job).to_owned(),
            attempt: result.attempt,
            return_code: Some(result.return_code),
            cause,
            time: crate::time::rfc3339(result.ended_ms),
        };
        self.failures.remember(result.ended_ms, result.job, sample);
    }
}

/// Reads a stored document.
pub(super) fn read_spec(document: &str) -> Result<Arc<WorkflowSpec>, serde_json::Error> {
    let document: WorkflowDocument = serde_json::from_str(document)?;
    Ok(Arc::new(document.spec))
}
