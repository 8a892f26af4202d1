//! The end of jobs: why they are ended, and what is reported.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use torc_api::state::Cause;
use torc_api::termination::StepWarning;
use torc_api::wire::{AttemptKey, FileStat, FinishedAttempt, Usage};

use super::jobs::{Inputs, JobStage, Jobs, LeasedJob};
use super::reports::PendingReport;
use super::sacct_queue::TERMINATED;
use super::{Effect, OutputCheck, OutputFindings, State, milliseconds, usage};
use crate::clock::BootInstant;
use crate::command::termination_signal;
use crate::config::RunnerExit;
use crate::events::RunnerEvent;
use crate::link::LinkError;
use crate::protocol::{JobExit, Outcome, ShimJob, StopReason, Termination};

/// The return code of an attempt whose exit code is lost, as in Torc 1.0.
const LOST: i32 = -128;
/// The return code of an attempt that could not start, as in a shell.
const NOT_STARTED: i32 = 126;
/// The exit code of `srun` after an error of its own.
const SRUN_FAILED: i32 = 1;
/// The offset of a signal number in a return code, as in a shell.
const SIGNALED: i32 = 128;
/// The exit code of a step that Slurm killed: 128 + SIGKILL.
const KILLED: i32 = 137;

impl State {
    /// Handles the end of a job, and completes its report as far as possible.
    pub(super) fn ended(&mut self, mut exit: JobExit, now: BootInstant, effects: &mut Vec<Effect>) {
        let key = exit.key;
        if self.reports.contains_key(&key) {
            return;
        }
        if !self.jobs.contains_key(&key) {
            let unknown = || Box::new(ShimJob { started: exit.started, ..ShimJob::default() });
            let mut job = exit.job.take().unwrap_or_else(unknown);
            job.order.key = key;
            self.adopted(*job, now);
        }
        let was_running = self.jobs.get(&key).is_some_and(|job| job.stage == JobStage::Running);
        let inputs = self.jobs.end(key, exit.successor);
        let Some(job) = self.jobs.get(&key) else { return };
        let has_run = !matches!(exit.outcome, Outcome::NotStarted { .. });
        if !was_running && has_run {
            effects.push(Effect::Log(RunnerEvent::Started { key, name: job.name.clone() }));
        }
        let age = exit.age_ms.map(Duration::from_millis);
        let report = PendingReport {
            older: age.unwrap_or_default(),
            ..PendingReport::new(&job.name, finished(job, &exit), if age.is_some() { now } else { exit.ended })
        };
        if job.role.is_job() && has_run {
            self.throughput.job_ended(exit.ended.since(exit.started));
        }
        let (return_code, succeeded) = (report.finished.return_code, report.finished.cause.is_none());
        let oom_kills = usage::may_be_out_of_memory(&report.finished);
        let check = OutputCheck { oom_kills, ..output_check(job, &exit, inputs, now) };
        let needs_check = oom_kills || succeeded && (job.launch.template.has_files() || !check.delete.is_empty());
        let is_step = job.launch.template.in_step && has_run;
        let step_number = job.step.number;
        // A job that this runner ended needs no explanation.
        let is_unexplained = !succeeded && ending_of(job, &exit).is_none();
        if is_unexplained && return_code == TERMINATED {
            self.allocation.suspect_preemption(now);
        }
        self.reports.add(report);
        if is_step && succeeded {
            self.node_health.step_started(&mut self.jobs, &key);
        }
        let has_accounting = is_step && self.settings.allocation.is_some();
        if has_accounting && self.sacct.add(key, step_number, exit.ended, is_unexplained, now) {
            let log = exit.stderr.or(exit.stdout).filter(|_| return_code == SRUN_FAILED);
            effects.extend(log.map(|log| Effect::ReadSrunLog(key, log)));
        } else if needs_check {
            effects.push(Effect::CheckOutputs(key, Box::new(check)));
        } else {
            self.finish_report(key, now, effects);
        }
    }

    /// Handles the check of a job's input files. A job without one of them fails before its start.
    pub(super) fn inputs_checked(
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
            message: Some(format!("input file {missing} does not exist")),
            ..FinishedAttempt::default()
        };
        let report = PendingReport::new(&job.name, finished, now);
        self.reports.add(report);
        self.finish_report(key, now, effects);
    }

    /// Handles the check of a job's output files, which completes its report.
    pub(super) fn outputs_checked(
        &mut self,
        key: AttemptKey,
        findings: OutputFindings,
        now: BootInstant,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(kills) = findings.oom_kills {
            self.apply_oom_kills(key, kills);
        }
        if let Some(finished) = self.reports.finished_mut(&key) {
            if let Some(missing) = findings.missing {
                finished.return_code = 1;
                finished.cause = Some(Cause::MissingOutput);
                finished.message = Some(format!("output file {missing} does not exist"));
            }
            finished.files = findings.files;
            if findings.logs_deleted {
                finished.stdout = None;
                finished.stderr = None;
            }
        }
        self.finish_report(key, now, effects);
    }

    /// Completes a report: from now on the runner holds only the result.
    pub(super) fn finish_report(&mut self, key: AttemptKey, now: BootInstant, effects: &mut Vec<Effect>) {
        let (Some(job), Some(report)) = (self.jobs.remove(&key), self.reports.get(&key)) else { return };
        self.session.mark_dirty(now);
        let record = usage::record_of(key, &job, report);
        let finished = (report.finished.return_code, report.finished.cause);
        if let Some(record) = record {
            self.sacct.keep_until_complete(key, &record);
            effects.push(Effect::Record(vec![record]));
        }
        effects.push(Effect::Log(RunnerEvent::Finished {
            key,
            name: job.name,
            return_code: finished.0,
            cause: finished.1,
        }));
    }

    /// Handles the loss of a shim that was killed. Its successor has killed the jobs.
    pub(super) fn shim_lost(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        if self.jobs.remove_handed() {
            // The old shim may have started these jobs, so the runner can neither start nor return them. It registers
            // again without naming them: the server then grants the jobs again, under the next attempt number.
            self.session.reset();
        }
        self.heartbeat.reset();
        for key in self.jobs.active_keys() {
            self.jobs.end(key, None);
            let Some(job) = self.jobs.get(&key) else { continue };
            let finished = FinishedAttempt {
                key,
                return_code: LOST,
                cause: Some(Cause::Lost),
                duration_ms: milliseconds(now.since(job.since)),
                message: Some("the shim that held the job was killed".to_owned()),
                ..FinishedAttempt::default()
            };
            self.reports.add(PendingReport::new(&job.name, finished, now));
            self.finish_report(key, now, effects);
        }
    }

    /// Begins the end: no new work, waiting leases return, running jobs are asked to end.
    pub(super) fn begin_end(
        &mut self,
        exit: Result<RunnerExit, LinkError>,
        now: BootInstant,
        effects: &mut Vec<Effect>,
    ) {
        if !self.lifecycle.is_serving() {
            return;
        }
        self.release_held_reports(exit == Ok(RunnerExit::Stopped), now, effects);
        self.lifecycle.end(exit);
        self.release(self.jobs.unstarted(), None, now, effects);
        let running = self.jobs.active_keys();
        self.terminate_all(&running, self.allocation.stop_reason(), now, effects);
    }

    /// Stops at once: kills running jobs, and skips the actions of a worker's end.
    pub(super) fn stop_now(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        self.begin_end(Ok(RunnerExit::Stopped), now, effects);
        self.lifecycle.skip_worker_actions();
        for key in self.jobs.active_keys() {
            self.jobs.set_ending(&key, StopReason::Stopped, now);
        }
        effects.extend(kill_all(&self.jobs));
    }

    /// Asks jobs to end, and logs their number for each workflow and the longest lead.
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
        let events = counts.into_iter().map(|(workflow, count)| RunnerEvent::Terminating { workflow, count });
        effects.extend(events.map(Effect::Log));
        let leads: Vec<Duration> = keys.iter().filter_map(|key| self.terminate(*key, why, now, effects)).collect();
        if let Some(lead) = leads.into_iter().max().filter(|lead| !lead.is_zero()) {
            effects.push(Effect::Log(RunnerEvent::Waiting { lead }));
        }
    }

    /// Asks a job to end; the first reason counts. Returns its lead.
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
        // A late signal shortens the lead, so that SIGKILL is in time.
        let left = end.map(|end| template.kill_time(end).since(now));
        let lead = left.map_or(template.lead(), |left| left.min(template.lead()));
        effects.push(Effect::Log(RunnerEvent::Signaled { key, signal: template.signal }));
        effects.push(Effect::Terminate(Termination { key, why, signal: template.signal, lead_ms: milliseconds(lead) }));
        Some(lead)
    }

    pub(super) fn kill(&mut self, key: AttemptKey, why: StopReason, now: BootInstant, effects: &mut Vec<Effect>) {
        if !self.jobs.contains_key(&key) {
            return;
        }
        self.jobs.set_ending(&key, why, now);
        effects.push(Effect::Terminate(Termination { key, why, signal: 9, lead_ms: 0 }));
    }

    /// Ends or drops jobs that the server canceled.
    pub(super) fn cancel(&mut self, keys: &[AttemptKey], now: BootInstant, effects: &mut Vec<Effect>) {
        self.release(keys.to_vec(), Some(StopReason::Canceled), now, effects);
        let runs = |job: &LeasedJob| {
            matches!(job.stage, JobStage::Starting | JobStage::Running)
                && job.ending.is_none_or(|ending| ending.at == now)
        };
        let running: Vec<AttemptKey> =
            keys.iter().filter(|key| self.jobs.get(key).is_some_and(runs)).copied().collect();
        self.terminate_all(&running, StopReason::Canceled, now, effects);
    }
}

/// Returns the check of the files of a job that has ended.
fn output_check(job: &LeasedJob, exit: &JobExit, inputs: Inputs, now: BootInstant) -> OutputCheck {
    let template = &job.launch.template;
    let (inputs, forgotten_inputs) = match inputs {
        Inputs::Found(found) => (found, Vec::new()),
        Inputs::Awaited | Inputs::Unknown => (Vec::new(), template.input_files.clone()),
    };
    let age = exit.age_ms.map(Duration::from_millis);
    OutputCheck {
        working_dir: PathBuf::from(&template.working_dir),
        files: template.output_files.clone(),
        inputs,
        forgotten_inputs,
        elapsed: age.map_or(now.since(exit.started), |age| age + exit.ended.since(exit.started)),
        hash_large_files: template.hash_large_files,
        delete: match template.delete_on_success {
            true => [&exit.stdout, &exit.stderr].into_iter().flatten().cloned().collect(),
            false => Vec::new(),
        },
        oom_kills: false,
    }
}

/// Returns the orders that kill all running jobs.
pub(super) fn kill_all(jobs: &Jobs) -> Vec<Effect> {
    let orders = jobs.active().map(|(key, job)| {
        let why = job.ending.map_or(StopReason::Stopped, |ending| ending.why);
        Effect::Terminate(Termination { key, why, signal: 9, lead_ms: 0 })
    });
    orders.collect()
}

/// Returns the reason for which the runner ended a job; none for a job that exited by itself or before the signal.
fn ending_of(job: &LeasedJob, exit: &JobExit) -> Option<StopReason> {
    let ending = job.ending.filter(|ending| ending.at <= exit.ended).map(|ending| ending.why);
    ending.or(exit.ending)
}

/// Returns the result of an attempt.
fn finished(job: &LeasedJob, exit: &JobExit) -> FinishedAttempt {
    let ending = ending_of(job, exit);
    let template = &job.launch.template;
    let mut return_code = exit.outcome.return_code();
    let (cause, message) = match (&exit.outcome, ending) {
        (Outcome::NotStarted { message, .. }, _) => (Some(Cause::StartFailed), Some(message.clone())),
        (_, Some(StopReason::Timeout)) if return_code == 0 => (None, None),
        // A job with an exit code has exited before SIGKILL.
        (Outcome::Exited(0), Some(StopReason::OutOfMemory)) => (None, None),
        (Outcome::Exited(_), Some(StopReason::OutOfMemory)) => (Some(Cause::ExitCode), None),
        (_, Some(StopReason::OutOfMemory)) => (Some(Cause::OutOfMemory), job.usage.violation_message(template)),
        (_, Some(why)) => (Some(why.cause()), None),
        (_, None) if return_code == 0 => (None, None),
        (_, None) if template.in_step => (Some(step_cause(return_code, job, exit)), None),
        (_, None) => (Some(Cause::ExitCode), None),
    };
    match cause {
        Some(Cause::Timeout) => return_code = template.timeout_exit_code,
        Some(Cause::OutOfMemory) if !template.in_step => return_code = template.oom_exit_code,
        _ => {}
    }
    FinishedAttempt {
        key: exit.key,
        return_code,
        cause,
        duration_ms: milliseconds(exit.ended.since(exit.started)),
        ended_ms_ago: 0,
        stdout: exit.stdout.clone(),
        stderr: exit.stderr.clone(),
        usage: match template.in_step {
            true => Some(job.step.meter.usage()).filter(|usage| *usage != Usage::default()),
            false => job.usage.usage(exit),
        },
        message,
        files: Vec::new(),
        slurm_stats: None,
    }
}

/// Tolerance of a step's time limit: Slurm counts whole seconds, by another clock.
const STEP_LIMIT_TOLERANCE: Duration = Duration::from_secs(1);

/// Returns why a step failed that this runner did not end. Slurm kills a step that exceeds its memory or time limit, and `srun` reports
/// neither in its exit code.
///
/// A step that its early warning kills has run out of time, too.
fn step_cause(return_code: i32, job: &LeasedJob, exit: &JobExit) -> Cause {
    let ran = exit.ended.since(exit.started) + STEP_LIMIT_TOLERANCE;
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
