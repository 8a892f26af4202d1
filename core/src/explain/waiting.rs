//! Explains why a ready job does not run, by a comparison with every runner and allocation.

use torc_api::explain::{Reason, ReasonKind};
use torc_api::quantity::{format_duration, format_memory};
use torc_api::termination::EndMargin;
use torc_api::wire::Resources;

use crate::class::{JobClass, RunnerView};
use crate::expanded::Requirements;

/// A runner that serves the workflow.
#[derive(Clone, Debug, PartialEq)]
pub struct ServingRunner<'a> {
    /// Host name of its machine.
    pub host: &'a str,
    /// Its capacity, labels and remaining time.
    pub view: RunnerView<'a>,
    /// The time that it has left when the workflow's jobs get their first signal.
    pub end: EndMargin,
    /// It has sent nothing for longer than a lease.
    pub is_silent: bool,
}

/// The Slurm allocations of a workflow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlurmFacts<'a> {
    /// The workflow runs in allocations.
    pub is_used: bool,
    /// Names of the allocations that are running.
    pub active: Vec<String>,
    /// Allocations that have not started.
    pub pending: Vec<WaitingAllocation>,
    /// The reason why no allocation can be submitted.
    pub unplaced: Option<&'a str>,
    /// Slurm's text when it refused the latest submission.
    pub refused: Option<&'a str>,
    /// The error of a Slurm that does not answer.
    pub unreachable: Option<&'a str>,
    /// The number of ready jobs that wait because `maxAllocations` is reached.
    pub held_back: i64,
    /// Too many consecutive allocations have ended without a finished job.
    pub is_exhausted: bool,
}

/// An allocation that has not started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitingAllocation {
    /// The name in Torc, e.g. `torc-wf1-a1`.
    pub name: String,
    /// Slurm's number, once it has one.
    pub slurm_job_id: Option<String>,
    /// Slurm's reason for which it waits.
    pub reason: Option<String>,
    /// The start that Slurm estimates, in RFC 3339.
    pub estimated_start: Option<String>,
}

/// Returns the reasons why a ready job does not run.
pub fn ready_reasons(class: &JobClass, runners: &[ServingRunner<'_>], slurm: &SlurmFacts<'_>) -> Vec<Reason> {
    let live: Vec<&ServingRunner<'_>> = runners.iter().filter(|runner| !runner.is_silent).collect();
    let could = |runner: &&&ServingRunner<'_>| class.matches(&runner.view, runner.end);
    let able = live.iter().filter(could).count();
    if able > 0 {
        let runners = if able == 1 {
            "the runner that could run it is".to_owned()
        } else {
            format!("all {able} runners that could run it are")
        };
        let message = format!("it waits for its turn: {runners} busy with jobs that come before it");
        return vec![Reason::new(ReasonKind::Busy, message)];
    }
    let mut reasons = slurm_wait_reasons(slurm);
    reasons.extend(mismatch(class, &live));
    if let (true, true, Some(first)) = (reasons.is_empty(), runners.is_empty(), slurm.active.first()) {
        let message =
            format!("its allocation {first} is running but accepts no jobs: it has just started, or is about to end");
        let allocations = slurm.active.clone();
        reasons.push(Reason { allocations, ..Reason::new(ReasonKind::Busy, message) });
    }
    if reasons.is_empty() {
        let silent = runners.len();
        let message = match (silent, slurm.is_used) {
            (0, true) => "no allocation of its workflow is running, and none has been submitted yet".to_owned(),
            (0, false) => "no runner serves its workflow".to_owned(),
            (1, _) => "the only runner of its workflow is silent".to_owned(),
            (count, _) => format!("all {count} runners of its workflow are silent"),
        };
        let kind = if silent == 0 && slurm.is_used { ReasonKind::NoAllocation } else { ReasonKind::NoRunner };
        reasons.push(Reason::new(kind, message));
    }
    reasons
}

fn slurm_wait_reasons(slurm: &SlurmFacts<'_>) -> Vec<Reason> {
    let mut reasons = Vec::new();
    if let Some(sentence) = slurm.unreachable {
        reasons.push(Reason::new(ReasonKind::SlurmUnreachable, format!("Slurm does not answer: {sentence}")));
    }
    if let Some(sentence) = slurm.refused {
        reasons.push(Reason::new(
            ReasonKind::AllocationRefused,
            format!("Slurm refused an allocation for it: {sentence}"),
        ));
    }
    if let Some(sentence) = slurm.unplaced {
        reasons.push(Reason::new(ReasonKind::NoPartition, format!("no allocation can be requested: {sentence}")));
    }
    if slurm.is_exhausted {
        let message = "several allocations in a row ended without a finished job, so no more are submitted";
        reasons.push(Reason::new(ReasonKind::AllocationsFruitless, message));
    }
    let waiting: Vec<&WaitingAllocation> = slurm.pending.iter().filter(|one| one.slurm_job_id.is_some()).collect();
    if let Some(first) = waiting.first() {
        let allocations = waiting.iter().map(|one| one.name.clone()).collect();
        reasons
            .push(Reason { allocations, ..Reason::new(ReasonKind::AllocationPending, pending(first, waiting.len())) });
    } else if slurm.held_back > 0 && reasons.is_empty() {
        let message = "the limit of concurrent allocations is reached (`maxAllocations`); it waits for one of them";
        reasons.push(Reason::new(ReasonKind::AllocationLimit, message));
    }
    reasons
}

fn pending(first: &WaitingAllocation, count: usize) -> String {
    let number = first.slurm_job_id.as_deref().unwrap_or_default();
    let others = if count > 1 { format!(" (and {} more)", count - 1) } else { String::new() };
    let why = first.reason.as_ref().map_or_else(|| "no reason given".to_owned(), |reason| format!("reason {reason}"));
    let when = first.estimated_start.as_ref().map_or(String::new(), |time| format!(", expected to start at {time}"));
    format!("its allocation {}, Slurm job {number}{others}, waits in Slurm's queue: {why}{when}", first.name)
}

/// Returns the property that all runners lack: labels first, then size, then time.
fn mismatch(class: &JobClass, runners: &[&ServingRunner<'_>]) -> Option<Reason> {
    if runners.is_empty() {
        return None;
    }
    let labels_match = |runner: &&&ServingRunner<'_>| {
        class.labels.is_empty() == runner.view.labels.is_empty()
            && class.labels.iter().all(|label| runner.view.labels.contains(label))
    };
    let labelled: Vec<&ServingRunner<'_>> = runners.iter().filter(labels_match).copied().collect();
    if labelled.is_empty() {
        let message = match class.labels.as_slice() {
            [] => {
                "every runner of its workflow has labels, and runners with labels only run jobs with labels".to_owned()
            }
            [label] => format!("no runner has its label `{label}`"),
            several => format!("no runner has all of its labels ({})", several.join(", ")),
        };
        return Some(Reason::new(ReasonKind::Label, message));
    }
    let fits = |runner: &&&ServingRunner<'_>| {
        class.matches(&RunnerView { remaining_seconds: None, ..runner.view.clone() }, runner.end)
    };
    let fitting: Vec<&ServingRunner<'_>> = labelled.iter().filter(fits).copied().collect();
    if fitting.is_empty() {
        return Some(too_big(&class.requirements, &labelled));
    }
    let usable = |runner: &&ServingRunner<'_>| Some(runner.end.usable_seconds(runner.view.remaining_seconds?));
    let most = fitting.iter().filter_map(|runner| Some((usable(runner)?, *runner))).max_by_key(|(usable, _)| *usable);
    most.map(|(usable, runner)| Reason::new(ReasonKind::TimeLeft, too_late(&class.requirements, usable, runner)))
}

/// Describes the part of a runner's remaining time that a job can use.
fn too_late(needs: &Requirements, usable_seconds: i64, runner: &ServingRunner<'_>) -> String {
    let left = format_duration(runner.view.remaining_seconds.unwrap_or(0).max(0));
    let EndMargin { headroom_seconds, notice_seconds, .. } = runner.end;
    let reserved = format_duration(headroom_seconds.saturating_add(notice_seconds));
    format!(
        "it needs {}, but no runner has enough time left: the most is {} before its first signal, on {} ({left} left, of which \
         {reserved} are for the signal and the headroom)",
        format_duration(needs.runtime_seconds),
        format_duration(usable_seconds.max(0)),
        runner.host,
    )
}

fn too_big(needs: &Requirements, runners: &[&ServingRunner<'_>]) -> Reason {
    let size = |runner: &&&ServingRunner<'_>| {
        let Resources { cpus, memory_bytes, gpus, nodes } = runner.view.capacity;
        (nodes, gpus, cpus, memory_bytes)
    };
    let biggest = runners.iter().max_by_key(size);
    let has = biggest.map_or_else(String::new, |runner| {
        format!("; the largest, on {}, has {}", runner.host, resources(&runner.view.capacity))
    });
    let message = format!("it needs {}, but no runner is large enough{has}", requirements(needs));
    Reason::new(ReasonKind::Capacity, message)
}

fn requirements(needs: &Requirements) -> String {
    listed(needs.num_nodes, needs.num_cpus, needs.memory_bytes, needs.num_gpus)
}

fn resources(capacity: &Resources) -> String {
    let nodes = capacity.nodes.max(1);
    listed(nodes, capacity.cpus / nodes, capacity.memory_bytes / nodes, capacity.gpus / nodes)
}

/// Rounds bytes for readers: to whole GiB for large amounts, to whole MiB for smaller ones.
fn rounded(bytes: i64) -> i64 {
    let unit = if bytes >= 10 << 30 { 1 << 30 } else { 1 << 20 };
    if bytes < unit { bytes } else { bytes / unit * unit }
}

fn listed(nodes: i64, cpus: i64, memory: i64, gpus: i64) -> String {
    let many = |count: i64, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    let mut parts = vec![many(cpus, "CPU"), format!("{} of memory", format_memory(rounded(memory)))];
    if gpus > 0 {
        parts.push(many(gpus, "GPU"));
    }
    let all = parts.join(", ");
    if nodes > 1 { format!("{} with {all} each", many(nodes, "node")) } else { all }
}
