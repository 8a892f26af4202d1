//! The jobs of a workflow: states, dependencies, profiles, ready queues and counts.
//!
//! Jobs are referred to by their ordinal, the index in the order of their numbers. Only this module writes the fields of a job.

mod edges;
mod job;
mod profile;
mod profiles;
mod spawned;

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use torc_api::state::JobState;
use torc_api::status::JobCounts;
use torc_api::wire::AttemptKey;

pub(in crate::engine) use job::JobRecord;
pub(in crate::engine) use profile::ProfileEntry;

use edges::Edges;
use job::TextRange;
use profiles::Profiles;

use crate::class::JobClass;
use crate::engine::tx::Tx;
use crate::expanded::Requirements;
use crate::ids::{JobId, ProfileId, RunnerId, WorkflowId};
use crate::job::{InvalidTransition, JobEvent, next_state};
use crate::matching::{ReadyQueue, ResourcesInUse};
use crate::rows::{JobProfile, JobRow, ProfileRow};
use crate::urgency::downstream_seconds;

/// The jobs of a workflow.
pub(in crate::engine) struct Graph {
    workflow: WorkflowId,
    /// Jobs, sorted by number.
    jobs: Vec<JobRecord>,
    /// The names and commands of all jobs.
    text: String,
    edges: Edges,
    profiles: Profiles,
    /// The ready jobs of each class.
    queues: Vec<ReadyQueue>,
    counts: JobCounts,
    /// Resources of leased and running jobs.
    usage: ResourcesInUse,
}

/// The state of a job before and after an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct StateChange {
    pub before: JobState,
    pub after: JobState,
}

/// The state and the definition of a job.
pub struct JobDetail<'a> {
    /// Name of the job.
    pub name: &'a str,
    /// The part of its definition that jobs share, without paths of files.
    pub profile: &'a JobProfile,
    /// State of the job.
    pub state: JobState,
    /// Number of the current attempt.
    pub attempt: i32,
    /// Names of its direct dependencies, sorted.
    pub depends_on: Vec<&'a str>,
    /// Number of dependencies and revoked leases that have not ended.
    pub unmet: u32,
    /// The runner of the started attempt is silent.
    pub unconfirmed: bool,
}

impl Graph {
    /// Builds the graph from rows that are sorted by number. Unknown dependencies are left out.
    pub fn new(workflow: WorkflowId, profiles: impl IntoIterator<Item = ProfileRow>, jobs: &[JobRow]) -> Self {
        let mut graph = Self {
            workflow,
            jobs: Vec::with_capacity(jobs.len()),
            text: String::with_capacity(jobs.iter().map(|job| job.name.len() + job.command.len()).sum()),
            edges: Edges::default(),
            profiles: Profiles::default(),
            queues: Vec::new(),
            counts: JobCounts::default(),
            usage: ResourcesInUse::default(),
        };
        let mut indices = HashMap::new();
        for row in profiles {
            indices.insert(row.id, graph.add_profile(row.id, row.profile));
        }
        for job in jobs {
            graph.add_record(job, indices.get(&job.profile).copied().unwrap_or_default());
        }
        let edges = jobs.iter().map(|job| job.depends_on.len()).sum();
        graph.edges = Edges::new(jobs.iter().map(|job| graph.ordinals_of(&job.depends_on)), jobs.len(), edges);
        graph.update_downstream_times();
        for ordinal in graph.ordinals() {
            graph.jobs[ordinal as usize].unmet = graph.count_unmet(ordinal);
            graph.enqueue(ordinal);
            graph.count_usage(ordinal, 1);
        }
        graph
    }

    /// Returns a copy without some of the jobs. The remaining jobs have new ordinals.
    pub fn without(&self, removed: &BTreeSet<u32>) -> Self {
        let kept = self.ordinals().filter(|job| !removed.contains(job));
        let rows: Vec<JobRow> = kept.map(|job| self.row(job)).collect();
        let mut graph = Self::new(self.workflow, self.profiles.rows(self.workflow), &rows);
        graph.profiles.copy_scaled(&self.profiles);
        graph
    }

    /// Adds jobs whose numbers are higher than all present ones and whose profiles are new. Returns their ordinals.
    pub fn append(&mut self, profiles: Vec<ProfileRow>, jobs: &[JobRow]) -> BTreeSet<u32> {
        let first = self.len();
        let added: HashMap<ProfileId, u32> =
            profiles.into_iter().map(|row| (row.id, self.add_profile(row.id, row.profile))).collect();
        for job in jobs {
            self.add_record(job, added.get(&job.profile).copied().unwrap_or_default());
        }
        let mut edges = std::mem::take(&mut self.edges);
        edges.append(jobs.iter().map(|job| self.ordinals_of(&job.depends_on)));
        self.edges = edges;
        self.update_downstream_times();
        (first..self.len()).collect()
    }

    fn add_profile(&mut self, id: ProfileId, profile: JobProfile) -> u32 {
        let index = self.profiles.add(id, profile);
        self.queues.resize_with(self.profiles.classes().len(), ReadyQueue::default);
        index
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

    fn add_text(&mut self, text: &str) -> TextRange {
        let start = self.text.len() as u32;
        self.text.push_str(text);
        TextRange { start, length: text.len() as u32 }
    }

    fn ordinals_of(&self, ids: &[JobId]) -> impl Iterator<Item = u32> {
        ids.iter().filter_map(|id| self.ordinal(*id))
    }

    /// Computes the longest chain of dependents of each job. Ready jobs whose chain has changed move in their queues.
    fn update_downstream_times(&mut self) {
        let runtime = |job: u32| self.profile(job).requirements.runtime_seconds;
        let (parents, children) = (|job: u32| self.edges.parents(job), |job: u32| self.edges.children(job));
        let paths = downstream_seconds(self.len(), parents, children, runtime);
        for (job, path) in (0..).zip(paths) {
            if self.jobs[job as usize].downstream_seconds != path {
                self.dequeue(job);
                self.jobs[job as usize].downstream_seconds = path;
                self.enqueue(job);
            }
        }
    }

    /// Returns the number of jobs.
    pub fn len(&self) -> u32 {
        self.jobs.len() as u32
    }

    pub fn ordinals(&self) -> Range<u32> {
        0..self.len()
    }

    pub fn job(&self, ordinal: u32) -> &JobRecord {
        &self.jobs[ordinal as usize]
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &JobRecord)> {
        (0..).zip(&self.jobs)
    }

    pub fn counts(&self) -> &JobCounts {
        &self.counts
    }

    /// Returns the resources of leased and running jobs.
    pub fn usage(&self) -> ResourcesInUse {
        self.usage
    }

    /// Returns whether no job is left to run.
    pub fn is_settled(&self) -> bool {
        self.counts.settled() == self.counts.total
    }

    /// Returns the ordinal of a job. Numbers are sorted, and mostly without gaps.
    pub fn ordinal(&self, id: JobId) -> Option<u32> {
        let first = self.jobs.first()?.id.0;
        let guess = usize::try_from(id.0.checked_sub(first)?).ok()?;
        if self.jobs.get(guess).is_some_and(|job| job.id == id) {
            return Some(guess as u32);
        }
        self.jobs.binary_search_by_key(&id, |job| job.id).ok().map(|index| index as u32)
    }

    pub fn state_of(&self, id: JobId) -> Option<JobState> {
        self.ordinal(id).map(|job| self.job(job).state)
    }

    /// Returns a job by name or number. Numbers are tried if no job has that name.
    pub fn find(&self, reference: &str) -> Option<u32> {
        let by_name = self.ordinals().find(|job| self.name(*job) == reference);
        by_name.or_else(|| self.by_number(reference))
    }

    fn by_number(&self, reference: &str) -> Option<u32> {
        self.ordinal(JobId(reference.parse().ok()?))
    }

    /// Returns jobs by name or number, or the first reference that names none.
    pub fn find_all<'r>(&self, references: &'r [String]) -> Result<BTreeSet<u32>, &'r str> {
        let by_name = self.by_name();
        let find = |reference: &'r String| {
            let named = by_name.get(reference.as_str()).copied();
            named.or_else(|| self.by_number(reference)).ok_or(reference.as_str())
        };
        references.iter().map(find).collect()
    }

    pub fn by_name(&self) -> HashMap<&str, u32> {
        self.ordinals().map(|job| (self.name(job), job)).collect()
    }

    pub fn name(&self, job: u32) -> &str {
        self.slice(self.job(job).name)
    }

    pub fn command(&self, job: u32) -> &str {
        self.slice(self.job(job).command)
    }

    fn slice(&self, text: TextRange) -> &str {
        &self.text[text.start as usize..(text.start + text.length) as usize]
    }

    pub fn parents(&self, job: u32) -> &[u32] {
        self.edges.parents(job)
    }

    pub fn children(&self, job: u32) -> &[u32] {
        self.edges.children(job)
    }

    /// Returns the jobs and everything that depends on them, directly or not.
    pub fn with_descendants(&self, jobs: &BTreeSet<u32>) -> BTreeSet<u32> {
        let reached = self.edges.descendants(jobs.iter().copied());
        (0..).zip(reached).filter(|(_, is_reached)| *is_reached).map(|(job, _)| job).collect()
    }

    pub fn profile_entry(&self, job: u32) -> &ProfileEntry {
        self.profiles.get(self.job(job).profile)
    }

    /// Returns the profile of a job without paths of files.
    pub fn profile(&self, job: u32) -> &JobProfile {
        self.profile_entry(job).common()
    }

    /// Returns the profile of a job with paths of files.
    pub fn complete_profile(&self, job: u32) -> JobProfile {
        self.profile_entry(job).complete()
    }

    /// Returns the profile with an index, with paths of files.
    pub fn profile_at(&self, index: u32) -> JobProfile {
        self.profiles.get(index).complete()
    }

    pub fn profiles(&self) -> impl Iterator<Item = &ProfileEntry> {
        self.profiles.iter()
    }

    pub fn profile_rows(&self) -> impl Iterator<Item = ProfileRow> {
        self.profiles.rows(self.workflow)
    }

    /// Returns the index of the class of a job.
    pub fn class_index(&self, job: u32) -> u32 {
        self.profile_entry(job).class()
    }

    pub fn class_of(&self, job: u32) -> Option<&JobClass> {
        self.class(self.class_index(job))
    }

    pub fn class(&self, index: u32) -> Option<&JobClass> {
        self.profiles.classes().get_index(index as usize)
    }

    /// Returns the classes in the order of their indices.
    pub fn classes(&self) -> impl ExactSizeIterator<Item = &JobClass> {
        self.profiles.classes().iter()
    }

    /// Returns the classes that have ready jobs, with the queues of these.
    pub fn ready_queues(&self) -> impl Iterator<Item = (&JobClass, &ReadyQueue)> {
        self.classes().zip(&self.queues).filter(|(_, queue)| !queue.is_empty())
    }

    /// Returns the key of the current attempt and its latest lease.
    pub fn key(&self, job: u32) -> AttemptKey {
        let record = self.job(job);
        AttemptKey {
            workflow: self.workflow.0,
            job: record.id.0,
            run: record.run,
            attempt: record.attempt,
            lease_id: record.lease_id,
        }
    }

    pub fn detail(&self, job: u32) -> JobDetail<'_> {
        let record = self.job(job);
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

    /// Returns the complete row of a job, for changes of more than its state.
    pub fn row(&self, job: u32) -> JobRow {
        let record = self.job(job);
        JobRow {
            id: record.id,
            workflow: self.workflow,
            name: self.name(job).to_owned(),
            command: self.command(job).to_owned(),
            profile: self.profile_entry(job).id(),
            priority: record.priority,
            hash: record.hash,
            depends_on: self.parents(job).iter().map(|parent| self.job(*parent).id).collect(),
            state: record.state,
            run: record.run,
            attempt: record.attempt,
            lease_id: record.lease_id,
            runner: record.runner,
            started_ms: record.started_ms,
        }
    }

    /// Returns the number of parents and of revoked leases of a job that have not ended. A failed parent has ended: it counts as met for
    /// a job that is not canceled because of it.
    pub fn count_unmet(&self, job: u32) -> u32 {
        let open = self.parents(job).iter().filter(|parent| !self.job(**parent).state.is_complete()).count();
        open as u32 + u32::from(self.job(job).ending)
    }

    /// Applies an event to a job by the transition function, and updates counts and queues.
    pub fn transition(&mut self, job: u32, event: JobEvent, tx: &mut Tx) -> Result<StateChange, InvalidTransition> {
        let before = self.job(job).state;
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
        let update = record.update();
        self.enqueue(job);
        self.count_usage(job, 1);
        tx.changes.moved(self.workflow, update);
        Ok(StateChange { before, after })
    }

    /// Assigns a new lease to a runner. `new_attempt`: the current attempt may have started without a report, so its number is not used again.
    pub fn assign_lease(&mut self, job: u32, runner: RunnerId, lease_id: i64, new_attempt: bool) {
        let record = &mut self.jobs[job as usize];
        record.attempt += i32::from(new_attempt);
        record.lease_id = lease_id;
        record.runner = Some(runner);
    }

    /// Makes an earlier lease the current one again. `new_attempt`: the number of the current attempt is in use by a newer lease.
    pub fn restore_lease(&mut self, job: u32, lease_id: i64, new_attempt: bool) {
        let record = &mut self.jobs[job as usize];
        record.attempt += i32::from(new_attempt);
        record.lease_id = lease_id;
    }

    /// Names the runner that holds the current lease of a job that is about to be leased or started.
    pub fn set_runner(&mut self, job: u32, runner: RunnerId, started_ms: Option<i64>) {
        let record = &mut self.jobs[job as usize];
        record.runner = Some(runner);
        record.started_ms = started_ms;
    }

    /// Transfers the current lease to the successor of its runner.
    pub fn transfer(&mut self, job: u32, runner: RunnerId, tx: &mut Tx) {
        let record = &mut self.jobs[job as usize];
        record.runner = Some(runner);
        record.unconfirmed = false;
        tx.changes.updated(record.update());
    }

    /// Ends the current attempt. The next one has no lease yet.
    pub fn next_attempt(&mut self, job: u32) {
        let record = &mut self.jobs[job as usize];
        record.attempt += 1;
        record.lease_id = 0;
        record.moves = 0;
    }

    /// Moves a job to a run, where it has no attempt yet.
    pub fn begin_run(&mut self, job: u32, run: i32) {
        let record = &mut self.jobs[job as usize];
        record.run = run;
        record.attempt = 1;
        record.lease_id = 0;
    }

    /// Records whether the runner of a started attempt is silent.
    pub fn set_unconfirmed(&mut self, job: u32, unconfirmed: bool) {
        self.jobs[job as usize].unconfirmed = unconfirmed;
    }

    /// Counts a request to return the current lease to another runner.
    pub fn count_move(&mut self, job: u32) {
        self.jobs[job as usize].moves += 1;
    }

    /// Lets a job wait for the end of one more revoked lease.
    pub fn await_lease_end(&mut self, job: u32) {
        let record = &mut self.jobs[job as usize];
        record.ending += 1;
        record.unmet += 1;
    }

    /// Counts the end of a revoked lease. Returns whether the job is blocked by nothing else.
    pub fn lease_ended(&mut self, job: u32) -> bool {
        let record = &mut self.jobs[job as usize];
        record.ending = record.ending.saturating_sub(1);
        record.unmet = record.unmet.saturating_sub(1);
        record.state == JobState::Blocked && record.unmet == 0
    }

    /// Counts the end of a parent. If the job is blocked, returns the number of parents and revoked leases that have
    /// not ended.
    pub fn parent_ended(&mut self, job: u32) -> Option<u32> {
        let record = &mut self.jobs[job as usize];
        record.unmet = record.unmet.saturating_sub(1);
        (record.state == JobState::Blocked).then_some(record.unmet)
    }

    /// Gives one job other requirements. The profile keeps the declared ones.
    pub fn set_requirements(&mut self, job: u32, requirements: &Requirements, tx: &mut Tx) {
        let current = self.job(job).profile;
        let index = match self.profiles.scaled(current, requirements) {
            Some(index) => index,
            None => {
                let mut profile = self.complete_profile(job);
                profile.declared.get_or_insert_with(|| Box::new(profile.requirements.clone()));
                profile.requirements = requirements.clone();
                let index = self.create_profile(profile, tx);
                self.profiles.set_scaled(current, requirements.clone(), index);
                index
            }
        };
        self.set_profile(job, index, tx);
    }

    /// Binds jobs to a scheduler that recovery has planned, or to none.
    pub fn set_recovery_scheduler(
        &mut self,
        jobs: impl IntoIterator<Item = u32>,
        scheduler: Option<&str>,
        tx: &mut Tx,
    ) {
        let mut created: HashMap<u32, u32> = HashMap::new();
        for job in jobs {
            let current = self.job(job).profile;
            let index = match created.get(&current) {
                Some(index) => *index,
                None => {
                    let mut profile = self.complete_profile(job);
                    profile.recovery_scheduler = scheduler.map(str::to_owned);
                    let index = self.create_profile(profile, tx);
                    created.insert(current, index);
                    index
                }
            };
            self.set_profile(job, index, tx);
        }
    }

    fn create_profile(&mut self, profile: JobProfile, tx: &mut Tx) -> u32 {
        let id = tx.next_profile();
        tx.changes.rows().profiles.push(ProfileRow { id, workflow: self.workflow, profile: profile.clone() });
        self.add_profile(id, profile)
    }

    /// Gives a job another profile and moves it to the queue of its new class.
    fn set_profile(&mut self, job: u32, profile: u32, tx: &mut Tx) {
        self.dequeue(job);
        self.count_usage(job, -1);
        self.jobs[job as usize].profile = profile;
        self.enqueue(job);
        self.count_usage(job, 1);
        tx.changes.job(self.row(job));
    }

    fn enqueue(&mut self, job: u32) {
        let record = self.job(job);
        if record.state == JobState::Ready {
            let (class, entry) = (self.class_index(job), record.ready_job(job));
            self.queues[class as usize].insert(entry);
        }
    }

    fn dequeue(&mut self, job: u32) {
        let record = self.job(job);
        if record.state == JobState::Ready {
            let (class, entry) = (self.class_index(job), record.ready_job(job));
            self.queues[class as usize].remove(entry);
        }
    }

    /// Adds the resources of a job to the usage, `times` times, if a runner holds it.
    fn count_usage(&mut self, job: u32, times: i64) {
        if self.job(job).state.is_held() {
            let requirements = &self.profiles.get(self.jobs[job as usize].profile).common().requirements;
            self.usage.add(requirements, times);
        }
    }

    /// Returns the queue of each class.
    #[cfg(test)]
    pub fn queues(&self) -> &[ReadyQueue] {
        &self.queues
    }

    /// Forgets what is not stored, as a restart does.
    #[cfg(test)]
    pub fn forget_unstored(&mut self) {
        self.profiles.forget_scaled();
        for record in &mut self.jobs {
            record.unconfirmed = false;
            record.moves = 0;
        }
    }
}
