//! Leases that their jobs no longer go by, but that a runner may still act upon.
//!
//! One that was taken away, by an edit, a retry or a cancellation, is *ending*: its runner is told to end it in every answer,
//! and nothing newer of its job starts before it has. One that was *given up* is waited for by nobody, because its runner
//! is silent or knows nothing of it. If it turns up all the same it counts, as long as nothing newer has started.
//!
//! Actions and recovery scripts are taken away in the same manner: an action that is set off again waits for the end of its
//! earlier commands, and a job that runs anew for the end of its script.

use std::collections::BTreeSet;

use torc_api::state::{Cause, JobState};
use torc_api::wire::{AttemptKey, FinishedAttempt, LeaseRole};

use super::State;
use super::attempt::{cause_of, lost_attempt};
use super::errands::ErrandId;
use super::record::Recorder;
use super::runner::{EndingLease, HeldErrand, Runner};
use super::workflow::Workflow;
use crate::ids::{JobId, Now, RunnerId, WorkflowId};
use crate::job::JobEvent;
use crate::rows::{StrayFate, StrayLease};

impl State {
    /// Takes a job's lease from its runner, which may have started it, and its recovery script likewise. Until that has ended,
    /// the job waits for it as for a job that it depends on.
    pub(super) fn take_away(&mut self, workflow_id: WorkflowId, job: u32, recorder: &mut Recorder) {
        self.take_recovery_away(workflow_id, job, recorder);
        let Some(workflow) = self.workflows.get_mut(&workflow_id) else { return };
        let Some(lease) = workflow.present_lease(job, StrayFate::Ending) else { return };
        let Some(runner) = self.runners.get_mut(&lease.runner) else { return };
        let granted_in = runner.held.remove(&lease.job).map_or(0, |holding| holding.granted_in);
        runner.ending.insert(lease.epoch, EndingLease { lease, granted_in });
        workflow.await_end(job);
        recorder.stray(lease);
    }

    /// Takes the recovery script of a job from its runner: the job runs anew without it.
    fn take_recovery_away(&mut self, id: WorkflowId, job: u32, recorder: &mut Recorder) {
        let Some(workflow) = self.workflows.get(&id) else { return };
        let number = workflow.jobs[job as usize].id;
        let Some(holder) = workflow.recoveries.get(number).and_then(|row| row.errand.runner) else { return };
        self.take_errand_away(holder, ErrandId { workflow: id, number, role: LeaseRole::Recovery }, recorder);
    }

    /// Takes those actions from their runners that were set back meanwhile.
    pub(super) fn take_actions_away(&mut self, id: WorkflowId, recorder: &mut Recorder) {
        let Some(workflow) = self.workflows.get(&id) else { return };
        let is_set_back = |errand: &ErrandId, held: &HeldErrand| {
            errand.workflow == id && errand.role == LeaseRole::Action && !workflow.is_present_errand(*errand, &held.key)
        };
        let of_runner = |(runner, of): (&RunnerId, &Runner)| -> Vec<(RunnerId, ErrandId)> {
            let set_back = of.errands.iter().filter(|(errand, held)| is_set_back(errand, held));
            set_back.map(|(errand, _)| (*runner, *errand)).collect()
        };
        let mut set_back: Vec<(RunnerId, ErrandId)> = self.runners.iter().flat_map(of_runner).collect();
        set_back.sort_unstable();
        for (runner, errand) in set_back {
            self.take_errand_away(runner, errand, recorder);
        }
    }

    fn take_errand_away(&mut self, holder: RunnerId, errand: ErrandId, recorder: &mut Recorder) {
        let Some(workflow) = self.workflows.get_mut(&errand.workflow) else { return };
        let Some(runner) = self.runners.get_mut(&holder) else { return };
        let Some(HeldErrand { key, granted_in }) = runner.errands.remove(&errand) else { return };
        let lease = StrayLease {
            epoch: key.epoch,
            workflow: errand.workflow,
            job: errand.number,
            run: key.run,
            attempt: key.attempt,
            runner: holder,
            started_ms: None,
            fate: StrayFate::Ending,
            role: errand.role,
        };
        if workflow.has_what_waits_for(&lease) {
            runner.ending.insert(lease.epoch, EndingLease { lease, granted_in });
            workflow.await_end_of(&lease);
            recorder.stray(lease);
        }
    }

    /// A lease that was being ended is over. With a report, or when it had started, that is written down: as cancelled,
    /// whatever came of it, because it was no longer wanted.
    pub(super) fn end_stray(
        &mut self,
        lease: StrayLease,
        report: Result<&FinishedAttempt, &str>,
        (recorder, now): (&mut Recorder, Now),
    ) {
        recorder.stray_gone(lease.epoch);
        self.news += 1;
        let Some(workflow) = self.workflows.get_mut(&lease.workflow) else { return };
        if lease.role == LeaseRole::Action {
            return workflow.end_awaited_action(lease.job);
        }
        let Some(job) = workflow.ordinal(lease.job) else { return };
        if lease.role == LeaseRole::Recovery {
            return workflow.end_awaited(job, recorder);
        }
        let finished = match report {
            Ok(finished) => Some(finished.clone()),
            Err(why) => lease.started_ms.map(|started| lost_attempt(AttemptKey::default(), Some(started), why, now)),
        };
        if let Some(finished) = finished {
            let message = finished.message.clone().or_else(|| Some("it was no longer wanted".to_owned()));
            let finished = FinishedAttempt { message, ..finished };
            let outcome = (JobState::Canceled, Some(Cause::Canceled));
            let (attempt, runner) = ((lease.run, lease.attempt), Some(lease.runner));
            recorder.result(workflow.result_row(job, attempt, &finished, outcome, runner, now));
        }
        workflow.end_awaited(job, recorder);
    }

    /// The end of a lease that was being ended, if it is one.
    pub(super) fn take_stray(&mut self, id: RunnerId, key: &AttemptKey) -> Option<StrayLease> {
        let ending = &mut self.runners.get_mut(&id)?.ending;
        let same = |ending: &&EndingLease| ending.lease.job.0 == key.job && ending.lease.run == key.run;
        ending.get(&key.epoch).filter(same)?;
        ending.remove(&key.epoch).map(|ending| ending.lease)
    }

    /// Everything that a runner was ending is over: it is gone, or so silent that nobody waits for it.
    pub(super) fn end_all_strays(&mut self, id: RunnerId, why: &str, (recorder, now): (&mut Recorder, Now)) {
        let Some(runner) = self.runners.get_mut(&id) else { return };
        for (_, ending) in std::mem::take(&mut runner.ending) {
            self.end_stray(ending.lease, Err(why), (recorder, now));
        }
    }

    /// Jobs that are no longer there wait for nothing.
    pub(super) fn drop_strays(&mut self, gone: impl Fn(&StrayLease) -> bool, recorder: &mut Recorder) {
        for runner in self.runners.values_mut() {
            runner.ending.retain(|epoch, ending| {
                let is_gone = gone(&ending.lease);
                if is_gone {
                    recorder.stray_gone(*epoch);
                }
                !is_gone
            });
        }
    }

    /// A new run has let go of what some leases were of.
    pub(super) fn drop_forgotten_strays(&mut self, id: WorkflowId, recorder: &mut Recorder) {
        let Some(workflow) = self.workflows.get(&id) else { return };
        let leases = self.runners.values().flat_map(|runner| runner.ending.values().map(|ending| ending.lease));
        let forgotten = |lease: &StrayLease| lease.workflow == id && !workflow.has_what_waits_for(lease);
        let forgotten: BTreeSet<i64> = leases.filter(forgotten).map(|lease| lease.epoch).collect();
        self.drop_strays(|lease| forgotten.contains(&lease.epoch), recorder);
    }

    /// A lease that was given up turns up again. It counts if nothing newer has started; a newer promise is taken back then.
    /// Its number may be taken, by the record of its loss or by that promise: the job then goes on under the next free one.
    pub(super) fn revive(
        &mut self,
        (workflow_id, job): (WorkflowId, u32),
        epoch: i64,
        recorder: &mut Recorder,
    ) -> bool {
        let Some(workflow) = self.workflows.get(&workflow_id) else { return false };
        let record = &workflow.jobs[job as usize];
        let is_unstarted = matches!(record.state, JobState::Ready | JobState::Leased);
        if !is_unstarted || !workflow.was_given_up(job, epoch) {
            return false;
        }
        let promised = record.state == JobState::Leased;
        if promised {
            self.take_away(workflow_id, job, recorder);
        }
        let Some(workflow) = self.workflows.get_mut(&workflow_id) else { return false };
        if promised {
            workflow.jobs[job as usize].attempt += 1;
            let _ = workflow.step(job, JobEvent::LeaseEnded, recorder);
        }
        workflow.jobs[job as usize].epoch = epoch;
        workflow.forget_given_up(job, recorder);
        true
    }

    /// A job that has failed because its attempt was lost turns out to have succeeded: it is as if it ran again, with
    /// everything that depends on it, and this is its result. Another failure changes nothing.
    pub(super) fn undo_loss(
        &mut self,
        (workflow_id, job): (WorkflowId, u32),
        finished: &FinishedAttempt,
        recorder: &mut Recorder,
    ) -> bool {
        let is_canceled = self.workflows.get(&workflow_id).is_none_or(Workflow::is_canceled);
        if is_canceled || cause_of(finished).is_some() {
            return false;
        }
        self.reset(workflow_id, BTreeSet::from([job]), recorder);
        let Some(workflow) = self.workflows.get_mut(&workflow_id) else { return false };
        workflow.jobs[job as usize].epoch = finished.key.epoch;
        workflow.jobs[job as usize].state == JobState::Ready
    }
}

impl Workflow {
    fn present_lease(&self, job: u32, fate: StrayFate) -> Option<StrayLease> {
        let record = &self.jobs[job as usize];
        Some(StrayLease {
            epoch: record.epoch,
            workflow: self.row.id,
            job: record.id,
            run: record.run,
            attempt: record.attempt,
            runner: record.runner?,
            started_ms: record.started_ms,
            fate,
            role: LeaseRole::Job,
        })
    }

    /// What would wait for the end of this lease is still there.
    pub(super) fn has_what_waits_for(&self, lease: &StrayLease) -> bool {
        match lease.role {
            LeaseRole::Action => self.actions.find(lease.job).is_some(),
            LeaseRole::Job | LeaseRole::Recovery => self.ordinal(lease.job).is_some(),
        }
    }

    /// One more lease has to end, before what it is a lease of goes on.
    pub(super) fn await_end_of(&mut self, lease: &StrayLease) {
        if lease.role == LeaseRole::Action {
            *self.ending_actions.entry(lease.job).or_default() += 1;
        } else if let Some(job) = self.ordinal(lease.job) {
            self.await_end(job);
        }
    }

    fn end_awaited_action(&mut self, action: JobId) {
        if let Some(count) = self.ending_actions.get_mut(&action) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.ending_actions.remove(&action);
            }
        }
    }

    /// One more lease of the job has to end before it is ready.
    pub(super) fn await_end(&mut self, job: u32) {
        let record = &mut self.jobs[job as usize];
        record.ending += 1;
        record.unmet += 1;
        self.ending += 1;
    }

    fn end_awaited(&mut self, job: u32, recorder: &mut Recorder) {
        let record = &mut self.jobs[job as usize];
        record.ending = record.ending.saturating_sub(1);
        record.unmet = record.unmet.saturating_sub(1);
        self.ending = self.ending.saturating_sub(1);
        if record.state == JobState::Blocked && record.unmet == 0 {
            // The state was checked, so this is always legal.
            let _ = self.step(job, JobEvent::DependenciesMet, recorder);
        }
    }

    /// The job's present lease, before it is given up.
    pub(super) fn lease_to_give_up(&self, job: u32) -> Option<StrayLease> {
        self.present_lease(job, StrayFate::GivenUp)
    }

    /// Remembers a lease of whose runner nothing is known.
    pub(super) fn remember_given_up(&mut self, lease: StrayLease, recorder: &mut Recorder) {
        self.given_up.entry(lease.job).or_default().push(lease);
        recorder.stray(lease);
    }

    pub(super) fn was_given_up(&self, job: u32, epoch: i64) -> bool {
        let leases = self.given_up.get(&self.jobs[job as usize].id);
        leases.is_some_and(|leases| leases.iter().any(|lease| lease.epoch == epoch))
    }

    /// Whether the number of the job's present attempt may be in use by somebody of whom nothing is known.
    pub(super) fn number_is_in_doubt(&self, job: u32) -> bool {
        let record = &self.jobs[job as usize];
        let leases = self.given_up.get(&record.id);
        leases.is_some_and(|leases| leases.iter().any(|lease| lease.attempt == record.attempt))
    }

    /// What was given up does not count any more: something newer has started or ended, or the job is to run anew.
    pub(super) fn forget_given_up(&mut self, job: u32, recorder: &mut Recorder) {
        for lease in self.given_up.remove(&self.jobs[job as usize].id).unwrap_or_default() {
            recorder.stray_gone(lease.epoch);
        }
    }

    /// A lease that was given up is in its runner's books again.
    pub(super) fn is_back(&mut self, job: u32, epoch: i64, recorder: &mut Recorder) {
        let id = self.jobs[job as usize].id;
        let Some(leases) = self.given_up.get_mut(&id) else { return };
        leases.retain(|lease| lease.epoch != epoch);
        recorder.stray_gone(epoch);
        if leases.is_empty() {
            self.given_up.remove(&id);
        }
    }
}
