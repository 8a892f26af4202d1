//! The order that starts a job: program, variables, devices, nodes, and the step that it becomes.

use std::time::Duration;

use torc_api::wire::{AttemptKey, LeaseRole};
use torc_core::ledger::Reservation;
use torc_slurm::srun::{self, SrunStep};

use super::jobs::LeasedJob;
use super::{AgentSettings, State, milliseconds};
use crate::clock::BootInstant;
use crate::command;
use crate::protocol::StartOrder;

impl State {
    /// Returns the order for a job. A job without a reservation follows another one and takes over its place. Tasks need neither.
    pub(super) fn order(
        &self,
        key: AttemptKey,
        reservation: Option<&Reservation>,
        now: BootInstant,
    ) -> Option<StartOrder> {
        let job = self.jobs.get(&key)?;
        let nodes = reservation.map(|taken| self.settings.node_names(&taken.nodes())).unwrap_or_default();
        let mut env = vec![
            ("TORC_RUN_ID".to_owned(), key.run.to_string()),
            ("TORC_ATTEMPT_ID".to_owned(), key.attempt.to_string()),
        ];
        if job.role != LeaseRole::Action {
            env.push(("TORC_JOB_ID".to_owned(), key.job.to_string()));
            env.push(("TORC_JOB_NAME".to_owned(), job.name.clone()));
        }
        env.extend(job.env.clone());
        if !nodes.is_empty() {
            env.push(("TORC_NODELIST".to_owned(), nodes.join(",")));
        }
        let devices = reservation.map(|taken| self.jobs.ledger().device_names(taken)).unwrap_or_default();
        // Slurm chooses the devices of a step.
        if job.launch.step.is_none() {
            env.extend(command::device_variables(&devices));
        }
        let minutes = step_minutes(job, self.deadlines.end(), now);
        Some(StartOrder {
            key,
            role: job.role,
            name: job.name.clone(),
            template: job.launch.template.id,
            argv: argv(&self.settings, key, job, &nodes, minutes),
            env,
            devices,
            step_limit_ms: minutes.map(|minutes| milliseconds(Duration::from_secs(minutes * 60))),
            nodes,
            class: job.launch.class,
            in_turn: job.role.is_job() && reservation.is_none(),
            until: self.session.lease_until(),
        })
    }
}

fn argv(
    settings: &AgentSettings,
    key: AttemptKey,
    job: &LeasedJob,
    nodes: &[String],
    minutes: Option<u64>,
) -> Vec<String> {
    let script = job.launch.invocation_script.as_deref();
    let (Some(launch), Some(allocation)) = (&job.launch.step, &settings.allocation) else {
        return command::argv(&job.command, script, &job.launch.shell);
    };
    let step = SrunStep {
        allocation: &allocation.job_id,
        name: &key.label(),
        nodes: job.launch.resources().nodes,
        tasks_per_node: launch.tasks_per_node,
        limits: launch.limits,
        minutes,
        signal: launch.signal.as_deref(),
        bind_cpus: launch.bind_cpus,
        node_names: nodes,
    };
    let mut words = vec![allocation.srun.clone()];
    words.extend(srun::arguments(&step, &command::shell_text(&job.command, script)));
    words
}

/// Returns the time limit of a step in minutes; none for other jobs, and where the runner's time has no end.
fn step_minutes(job: &LeasedJob, end: Option<BootInstant>, now: BootInstant) -> Option<u64> {
    job.launch.step.as_ref()?;
    srun::usable_minutes(end?.since(now), job.launch.template.headroom())
}

/// Returns whether there is time for the shortest step, which is one minute.
pub(super) fn has_time_for_step(job: &LeasedJob, end: Option<BootInstant>, now: BootInstant) -> bool {
    job.launch.step.is_none() || end.is_none() || step_minutes(job, end, now).is_some()
}
