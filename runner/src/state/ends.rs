//! The end of jobs: why they are ended, what they are reported with, and who gets their place.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use torc_api::state::Cause;
use torc_api::termination::StepWarning;
use torc_api::wire::{AttemptKey, FileStat, FinishedAttempt, Usage};

use super::deadlines::kill_time;
use super::jobs::{Inputs, Job, Stage};
use super::reports::Report;
use super::sacct_queue::ASKED_TO_END;
use super::{Effect, Findings, OutputCheck, State, milliseconds, usage};
use crate::clock::BootInstant;
use crate::command::termination_signal;
use crate::config::RunnerExit;
use crate::events::RunnerEvent;
use crate::link::LinkError;
use crate::protocol::{JobExit, Outcome, ShimJob, StopReason, Termination};

/// The exit code of an attempt that nobody knows anything about.
const LOST: i32 = -128;
/// The exit code of an attempt that was not begun, as a shell says it.
const NOT_STARTED: i32 = 126;
/// The exit code of an `srun` that has a complaint.
const SRUN_FAILED: i32 = 1;
/// What a shell adds to the number of a signal that has ended a job.
const SIGNALED: i32 = 128;
/// The exit code of a step that Slurm killed: 128 + SIGKILL.
const KILLED: i32 = 137;

impl State {
    /// A job has ended, and nothing of it is left.
    pub(super) fn ended(&mut self, mut ended: JobExit, now: BootInstant, effects: &mut Vec<Effect>) {
        if self.reports.contains_key(&ended.key) {
            return;
        }
        if !self.jobs.contains_key(&ended.key) {
            let unknown = || Box::new(ShimJob { started: ended.started, ..ShimJob::default() });
            let mut job = ended.job.take().unwrap_or_else(unknown);
            job.order.key = ended.key;
            self.adopted(*job, now);
        }
        let key = ended.key;
        let was_running = self.jobs.get(&key).is_some_and(|job| job.stage == Stage::Running);
        let found_inputs = self.jobs.end(key, ended.successor);
        let Some(job) = self.jobs.get(&key) else { return };
        if !was_running && !matches!(ended.outcome, Outcome::NotStarted { .. }) {
            effects.push(Effect::Log(RunnerEvent::Started { key, name: job.name.clone() }));
        }
        let age = ended.age_ms.map(Duration::from_millis);
        let report = Report {
            older: age.unwrap_or_default(),
            ..Report::new(&job.name, finished(job, &ended), if age.is_some() { now } else { ended.ended })
        };
        if job.role.is_job() && !matches!(ended.outcome, Outcome::NotStarted { .. }) {
            self.throughput.job_ended(ended.ended.since(ended.started));
        }
        let template = &job.launch.template;
        let (inputs, forgotten_inputs) = match found_inputs {
            Inputs::Found(found) => (found, Vec::new()),
            Inputs::Awaited | Inputs::Unknown => (Vec::new(), template.input_files.clone()),
        };
        let check = OutputCheck {
            working_dir: PathBuf::from(&job.launch.template.working_dir),
            files: template.output_files.clone(),
            inputs,
            forgotten_inputs,
            elapsed: age.map_or(now.since(ended.started), |age| age + ended.ended.since(ended.started)),
            hash_large_files: template.hash_large_files,
            delete: match job.launch.template.delete_on_success {
                true => [&ended.stdout, &ended.stderr].into_iter().flatten().cloned().collect(),
                false => Vec::new(),
            },
            oom_kills: usage::may_be_out_of_memory(&report.finished),
        };
        let has_files = template.has_files();
        let srun_log =
            ended.stderr.as_ref().or(ended.stdout.as_ref()).filter(|_| report.finished.return_code == SRUN_FAILED);
        let succeeded = report.finished.cause.is_none();
        let is_step = template.in_step && !matches!(ended.outcome, Outcome::NotStarted { .. });
        // What was ended from here needs no explanation.
        let is_unexplained = !succeeded && ending_of(job, &ended).is_none();
        if is_unexplained && report.finished.return_code == ASKED_TO_END {
            self.suspect_preemption(now);
        }
        self.reports.add(report);
        if is_step && succeeded {
            self.step_begun(key);
        }
        if is_step && self.open_account(key, ended.ended, is_unexplained, now) {
            effects.extend(srun_log.map(|log| Effect::ReadSrun(key, log.clone())));
            return;
        }
        if check.oom_kills || succeeded && (has_files || !check.delete.is_empty()) {
            effects.push(Effect::CheckOutputs(key, Box::new(check)));
        } else {
            self.close(key, now, effects);
        }
    }

    /// The files that a job reads were looked for. Without one of them it fails before it has started.
    pub(super) fn looked(
        &mut self,
        key: AttemptKey,
        found: Result<Vec<FileStat>, String>,
        now: BootInstant,
        effects: &mut Vec<Effect>,
    ) {
        let Some(job) = self.jobs.get(&key).filter(|job| job.inputs == Inputs::Awaited) else { return };
        let missing = match found {
            Ok(found) => return self.jobs.set_inputs(&key, found),
            Err(missing) => missing,
        };
        let finished = FinishedAttempt {
            key,
            return_code: NOT_STARTED,
            cause: Some(Cause::StartFailed),
            message: Some(format!("the input file {missing} does not exist")),
            ..FinishedAttempt::default()
        };
        let report = Report::new(&job.name, finished, now);
        self.reports.add(report);
        self.close(key, now, effects);
    }

    /// A job's output files were looked for.
    pub(super) fn checked(&mut self, key: AttemptKey, findings: Findings, now: BootInstant, effects: &mut Vec<Effect>) {
        if let Some(kills) = findings.oom_kills {
            self.blame_memory(key, kills);
        }
        if let Some(finished) = self.reports.finished_mut(&key) {
            if let Some(missing) = findings.missing {
                finished.return_code = 1;
                finished.cause = Some(Cause::MissingOutput);
                finished.message = Some(format!("the output file {missing} does not exist"));
            }
            finished.files = findings.files;
            if findings.logs_deleted {
                finished.stdout = None;
                finished.stderr = None;
            }
        }
        self.close(key, now, effects);
    }

    /// The report is complete: the job is only a result from now on.
    pub(super) fn close(&mut self, key: AttemptKey, now: BootInstant, effects: &mut Vec<Effect>) {
        let (Some(job), Some(report)) = (self.jobs.remove(&key), self.reports.get(&key)) else { return };
        self.session.mark_dirty(now);
        let record = usage::record_of(key, &job, report);
        let finished = (report.finished.return_code, report.finished.cause);
        if let Some(record) = record {
            self.note_record(key, &record);
            effects.push(Effect::Record(vec![record]));
        }
        effects.push(Effect::Log(RunnerEvent::Finished {
            key,
            name: job.name,
            return_code: finished.0,
            cause: finished.1,
        }));
    }

    /// The shim was killed, and its successor has ended what it left.
    pub(super) fn shim_lost(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        self.forget_handed();
        self.heartbeat.reset();
        for key in self.jobs.active_keys() {
            self.jobs.end(key, None);
            let Some(job) = self.jobs.get(&key) else { continue };
            let finished = FinishedAttempt {
                key,
                return_code: LOST,
                cause: Some(Cause::Lost),
                duration_ms: milliseconds(now.since(job.since)),
                message: Some("the process that kept it was killed".to_owned()),
                ..FinishedAttempt::default()
            };
            self.reports.add(Report::new(&job.name, finished, now));
            self.close(key, now, effects);
        }
    }

    /// What the shim was to start in turn may have been started, and nobody knows. Neither running it again under its number nor
    /// giving it back would be right. So the runner comes to the server as its own successor in an empty place: what it does not
    /// name then is given to another runner under the next number.
    fn forget_handed(&mut self) {
        if self.jobs.remove_handed() {
            self.session.reset();
        }
    }

    /// Begins to end: no new work, waiting leases go back, running jobs are asked to end.
    pub(super) fn end_with(
        &mut self,
        exit: Result<RunnerExit, LinkError>,
        now: BootInstant,
        effects: &mut Vec<Effect>,
    ) {
        if !self.lifecycle.is_serving() {
            return;
        }
        self.give_up_accounts(exit == Ok(RunnerExit::Stopped), now, effects);
        self.lifecycle.end(exit);
        self.let_go(self.jobs.unstarted(), None, now, effects);
        let running = self.jobs.active_keys();
        self.terminate_all(&running, self.end_by_order(), now, effects);
    }

    /// There is no time for what belongs to the end, either.
    pub(super) fn hurry(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        self.end_with(Ok(RunnerExit::Stopped), now, effects);
        self.lifecycle.skip_worker_actions();
        for key in self.jobs.active_keys() {
            self.jobs.set_ending(&key, StopReason::Stopped, now);
        }
        self.kill_all(effects);
    }

    /// No more patience with anything that runs.
    pub(super) fn kill_all(&mut self, effects: &mut Vec<Effect>) {
        effects.extend(self.jobs.active().map(|(key, job)| {
            let why = job.ending.map_or(StopReason::Stopped, |ending| ending.why);
            Effect::Terminate(Termination { key, why, signal: 9, lead_ms: 0 })
        }));
    }

    /// Asks jobs to end, and says so: how many of each workflow, then one by one, then how long they have.
    pub(super) fn terminate_all(
        &mut self,
        keys: &[AttemptKey],
        why: StopReason,
        now: BootInstant,
        effects: &mut Vec<Effect>,
    ) {
        let mut counts: BTreeMap<i64, usize> = BTreeMap::new();
        for key in keys.iter().filter(|key| self.jobs.contains_key(key)) {
            *counts.entry(key.workflow).or_default() += 1;
        }
        let tell = |(workflow, count)| Effect::Log(RunnerEvent::Terminating { workflow, count });
        effects.extend(counts.into_iter().map(tell));
        let leads: Vec<Duration> = keys.iter().filter_map(|key| self.terminate(*key, why, now, effects)).collect();
        if let Some(lead) = leads.into_iter().max().filter(|lead| !lead.is_zero()) {
            effects.push(Effect::Log(RunnerEvent::Waiting { lead }));
        }
    }

    /// Asks a job to end; the first reason counts. Says how long it has.
    pub(super) fn terminate(
        &mut self,
        key: AttemptKey,
        why: StopReason,
        now: BootInstant,
        effects: &mut Vec<Effect>,
    ) -> Option<Duration> {
        let end = self.deadlines.end();
        self.jobs.set_ending(&key, why, now);
        let job = self.jobs.get(&key)?;
        let template = &job.launch.template;
        // However late the signal is, SIGKILL comes in time.
        let left = end.map(|end| kill_time(template, end).since(now));
        let lead = left.map_or(template.lead(), |left| left.min(template.lead()));
        effects.push(Effect::Log(RunnerEvent::Signaled { key, signal: template.signal }));
        effects.push(Effect::Terminate(Termination { key, why, signal: template.signal, lead_ms: milliseconds(lead) }));
        Some(lead)
    }

    /// Ends a job at once.
    pub(super) fn kill(&mut self, key: AttemptKey, why: StopReason, now: BootInstant, effects: &mut Vec<Effect>) {
        if !self.jobs.contains_key(&key) {
            return;
        }
        self.jobs.set_ending(&key, why, now);
        effects.push(Effect::Terminate(Termination { key, why, signal: 9, lead_ms: 0 }));
    }

    /// The server says that these are not to run.
    pub(super) fn cancel(&mut self, keys: &[AttemptKey], now: BootInstant, effects: &mut Vec<Effect>) {
        self.let_go(keys.to_vec(), Some(StopReason::Canceled), now, effects);
        let runs = |job: &Job| {
            matches!(job.stage, Stage::Starting | Stage::Running) && job.ending.is_none_or(|ending| ending.at == now)
        };
        let running: Vec<AttemptKey> =
            keys.iter().filter(|key| self.jobs.get(key).is_some_and(runs)).copied().collect();
        self.terminate_all(&running, StopReason::Canceled, now, effects);
    }
}

/// Why it was ended from here; none for one that has ended by itself, or had before it was asked to.
fn ending_of(job: &Job, ended: &JobExit) -> Option<StopReason> {
    let ending = job.ending.filter(|ending| ending.at <= ended.ended).map(|ending| ending.why);
    ending.or(ended.ending)
}

/// What an attempt is reported with.
fn finished(job: &Job, ended: &JobExit) -> FinishedAttempt {
    let ending = ending_of(job, ended);
    let template = &job.launch.template;
    let mut return_code = ended.outcome.return_code();
    let (cause, message) = match (&ended.outcome, ending) {
        (Outcome::NotStarted { message, .. }, _) => (Some(Cause::StartFailed), Some(message.clone())),
        (_, Some(StopReason::Timeout)) if return_code == 0 => (None, None),
        // SIGKILL cannot be survived: whoever exits by itself has been quicker.
        (Outcome::Exited(0), Some(StopReason::OutOfMemory)) => (None, None),
        (Outcome::Exited(_), Some(StopReason::OutOfMemory)) => (Some(Cause::ExitCode), None),
        (_, Some(StopReason::OutOfMemory)) => (Some(Cause::OutOfMemory), job.usage.excess(template)),
        (_, Some(why)) => (Some(why.cause()), None),
        (_, None) if return_code == 0 => (None, None),
        (_, None) if template.in_step => (Some(step_cause(return_code, job, ended)), None),
        (_, None) => (Some(Cause::ExitCode), None),
    };
    match cause {
        Some(Cause::Timeout) => return_code = template.timeout_exit_code,
        Some(Cause::OutOfMemory) if !template.in_step => return_code = template.oom_exit_code,
        _ => {}
    }
    FinishedAttempt {
        key: ended.key,
        return_code,
        cause,
        duration_ms: milliseconds(ended.ended.since(ended.started)),
        ended_ms_ago: 0,
        stdout: ended.stdout.clone(),
        stderr: ended.stderr.clone(),
        usage: match template.in_step {
            true => Some(job.step.meter.usage()).filter(|usage| *usage != Usage::default()),
            false => job.usage.usage(ended),
        },
        message,
        files: Vec::new(),
        slurm_stats: None,
    }
}

/// Slurm ends a step in the second that its time is over, by a clock that is not ours.
const SECOND_OF_THE_END: Duration = Duration::from_secs(1);

/// Why a step failed that nobody here had asked to end. Slurm kills a step that takes too much memory, and one whose time is over;
/// `srun` says neither in its exit code.
///
/// A job that dies of the signal that warns it of the end has run out of time, too: whoever wants to go on catches it.
fn step_cause(return_code: i32, job: &Job, ended: &JobExit) -> Cause {
    let ran = ended.ended.since(ended.started) + SECOND_OF_THE_END;
    let limit = job.step.limit;
    let signal = job.launch.template.warning.as_deref();
    let is_killed_by = |warning: &StepWarning| {
        let number = warning.signal.parse().unwrap_or_else(|_| termination_signal(Some(&warning.signal)));
        return_code == SIGNALED + number
    };
    let warning = signal.and_then(StepWarning::parse).filter(is_killed_by);
    let before = warning.map_or(Duration::ZERO, |warning| warning.before);
    if limit.is_some_and(|limit| ran >= limit.saturating_sub(before)) {
        Cause::Timeout
    } else if return_code == KILLED {
        Cause::OutOfMemory
    } else {
        Cause::ExitCode
    }
}
