//! From a job to the order that starts it: program, variables, devices, nodes, and the step it becomes.

use std::time::Duration;

use torc_api::wire::{AttemptKey, LeaseRole};
use torc_core::ledger::Reservation;
use torc_slurm::srun::{self, SrunStep};

use super::jobs::Job;
use super::{State, milliseconds};
use crate::clock::BootInstant;
use crate::command;
use crate::protocol::StartOrder;

impl State {
    /// The order for a job; one without a reservation follows another and takes over its place. What takes no resources needs
    /// neither.
    pub(super) fn order(
        &self,
        key: AttemptKey,
        reservation: Option<&Reservation>,
        now: BootInstant,
    ) -> Option<StartOrder> {
        let job = self.jobs.get(&key)?;
        let nodes = reservation.map(|taken| self.node_names(taken)).unwrap_or_default();
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
        // The devices of a step are Slurm's to choose.
        if job.launch.step.is_none() {
            env.extend(command::device_variables(&devices));
        }
        let minutes = self.step_minutes(job, now);
        Some(StartOrder {
            key,
            role: job.role,
            name: job.name.clone(),
            template: job.launch.template.id,
            argv: self.argv(key, job, &nodes, minutes),
            env,
            devices,
            step_limit_ms: minutes.map(|minutes| milliseconds(Duration::from_secs(minutes * 60))),
            nodes,
            class: job.launch.class,
            in_turn: job.role.is_job() && reservation.is_none(),
            until: self.session.lease_until(),
        })
    }

    fn argv(&self, key: AttemptKey, job: &Job, nodes: &[String], minutes: Option<u64>) -> Vec<String> {
        let script = job.launch.invocation_script.as_deref();
        let (Some(launch), Some(allocation)) = (&job.launch.step, &self.settings.allocation) else {
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

    /// How many minutes a step may have; absent for other jobs, and where time has no end.
    fn step_minutes(&self, job: &Job, now: BootInstant) -> Option<u64> {
        job.launch.step.as_ref()?;
        let end = self.deadlines.end()?;
        srun::usable_minutes(end.since(now), job.launch.template.headroom())
    }

    /// A step needs a whole minute.
    pub(super) fn has_time_for_step(&self, job: &Job, now: BootInstant) -> bool {
        job.launch.step.is_none() || self.deadlines.end().is_none() || self.step_minutes(job, now).is_some()
    }

    /// The nodes of a reservation by name; none where there is only one to choose from.
    fn node_names(&self, reservation: &Reservation) -> Vec<String> {
        let known = self.settings.allocation.as_ref().map_or(&[][..], |allocation| &allocation.nodes);
        reservation.nodes().into_iter().filter_map(|at| known.get(at).cloned()).collect()
    }

    /// Where nodes of these names are; the first when nothing is said.
    pub(super) fn node_numbers(&self, names: &[String]) -> Vec<usize> {
        let known = self.settings.allocation.as_ref().map_or(&[][..], |allocation| &allocation.nodes);
        let found: Vec<usize> = names.iter().filter_map(|name| known.iter().position(|known| known == name)).collect();
        if found.is_empty() { vec![0] } else { found }
    }
}
