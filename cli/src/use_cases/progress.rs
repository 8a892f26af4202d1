//! Live progress on standard error: bars on a terminal, plain lines otherwise.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use torc_api::api::Workflow;
use torc_api::condition::{Condition, ConditionStatus, ConditionType};
use torc_api::status::JobCounts;

use crate::output::{Printer, human};
use crate::workflow_phase::has_condition;

/// Shortest interval between two plain lines of a workflow.
const LINE_INTERVAL: Duration = Duration::from_secs(1);

/// Shows the progress of workflows.
pub struct Progress {
    output: Printer,
    bars: Option<MultiProgress>,
    shown: BTreeMap<i64, WorkflowProgress>,
}

struct WorkflowProgress {
    bar: Option<ProgressBar>,
    line: String,
    last: Option<Instant>,
    stalled: bool,
}

impl Progress {
    /// Returns a display with bars on a terminal and lines otherwise.
    pub fn new(output: Printer) -> Self {
        let bars =
            std::io::stderr().is_terminal().then(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr()));
        Self { output, bars, shown: BTreeMap::new() }
    }

    /// Shows the latest status of a workflow.
    pub fn update(&mut self, workflow: &Workflow) {
        let bars = &self.bars;
        let shown = self.shown.entry(workflow.id).or_insert_with(|| WorkflowProgress {
            bar: bars.as_ref().map(|bars| bars.add(new_bar(&workflow.name))),
            line: String::new(),
            last: None,
            stalled: false,
        });
        let jobs = &workflow.status.jobs;
        let stalled = has_condition(workflow, ConditionType::Stalled);
        if let Some(bar) = &shown.bar {
            bar.set_length(u64::try_from(jobs.total).unwrap_or(0));
            bar.set_position(u64::try_from(jobs.settled()).unwrap_or(0));
            bar.set_message(activity(workflow));
        } else {
            let line = format!("{}: {}/{} done{}", workflow.name, jobs.settled(), jobs.total, suffix(workflow));
            let due = shown.last.is_none_or(|last| last.elapsed() >= LINE_INTERVAL);
            if due && line != shown.line {
                self.output.progress(&line);
                shown.line = line;
                shown.last = Some(Instant::now());
            }
        }
        if stalled && !shown.stalled {
            let text = stall_text(workflow);
            self.line(&text);
        }
        if let Some(shown) = self.shown.get_mut(&workflow.id) {
            shown.stalled = stalled;
        }
    }

    /// Prints a line above the bars.
    pub fn line(&self, text: &str) {
        match &self.bars {
            Some(bars) => bars.suspend(|| self.output.progress(text)),
            None => self.output.progress(text),
        }
    }

    /// Removes the bars, so that the summary replaces them.
    pub fn finish(&mut self) {
        for shown in self.shown.values() {
            if let Some(bar) = &shown.bar {
                bar.finish_and_clear();
            }
        }
        self.shown.clear();
    }
}

fn new_bar(name: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix:.bold} {wide_bar:.cyan/dim} {pos}/{len} {msg} [{elapsed}]")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(0).with_style(style).with_prefix(name.to_owned());
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

fn stall_text(workflow: &Workflow) -> String {
    let condition = workflow.status.conditions.iter().find(|condition| condition.holds(ConditionType::Stalled));
    let words = condition
        .map_or("", |condition| if condition.message.is_empty() { &condition.reason } else { &condition.message });
    format!("{}: stalled: {words}", workflow.name)
}

fn suffix(workflow: &Workflow) -> String {
    let text = activity(workflow);
    if text.is_empty() { text } else { format!(", {text}") }
}

/// Describes the jobs and the allocations of a workflow.
fn activity(workflow: &Workflow) -> String {
    let parts = [describe(&workflow.status.jobs), allocations(workflow)];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

/// Describes the allocations, and why pending ones wait.
pub fn allocations(workflow: &Workflow) -> String {
    let Some(counts) = workflow.status.allocations else { return String::new() };
    let is_ready = |condition: &&Condition| condition.type_ == ConditionType::AllocationsReady.as_str();
    let ready = workflow.status.conditions.iter().find(is_ready);
    let reason = ready.filter(|one| one.status == ConditionStatus::False && !one.message.is_empty());
    let reason = reason.map_or(String::new(), |condition| format!(" ({})", condition.message));
    match (counts.active, counts.pending) {
        (0, 0) if reason.is_empty() => String::new(),
        (0, 0) => format!("no allocation{reason}"),
        (0, pending) => format!("{} pending{reason}", human::count(pending, "allocation")),
        (active, 0) => format!("{} active", human::count(active, "allocation")),
        (active, pending) => format!("{} active, {pending} pending{reason}", human::count(active, "allocation")),
    }
}

/// Describes the running and failed jobs.
fn describe(jobs: &JobCounts) -> String {
    let ended_badly = jobs.failed + jobs.terminated;
    [
        (jobs.running, "running"),
        (ended_badly, "failed"),
        (jobs.canceled, "canceled"),
        (jobs.recovering, "recovering"),
        (jobs.pending_failed, "needing a decision"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, word)| format!("{count} {word}"))
    .collect::<Vec<_>>()
    .join(", ")
}

#[cfg(test)]
mod tests {
    use torc_api::status::AllocationCounts;

    use super::*;

    #[test]
    fn counts_are_described() {
        let jobs = JobCounts { running: 2, failed: 1, terminated: 1, canceled: 3, ..JobCounts::default() };
        assert_eq!(describe(&jobs), "2 running, 2 failed, 3 canceled");
        let mut workflow = crate::workflow_phase::tests::workflow(JobCounts::default(), &[]);
        assert_eq!(suffix(&workflow), "");
        let counts = |pending, active| AllocationCounts { pending, active, ..AllocationCounts::default() };
        workflow.status.jobs.running = 2;
        workflow.status.allocations = Some(counts(1, 2));
        assert_eq!(suffix(&workflow), ", 2 running, 2 allocations active, 1 pending");
        workflow.status.jobs.running = 0;
        workflow.status.allocations = Some(counts(1, 0));
        workflow.status.conditions = vec![Condition {
            type_: "AllocationsReady".to_owned(),
            status: ConditionStatus::False,
            reason: "WaitingForSlurm".to_owned(),
            message: "Resources".to_owned(),
            last_transition_time: String::new(),
            observed_generation: None,
        }];
        assert_eq!(suffix(&workflow), ", 1 allocation pending (Resources)");
    }

    #[test]
    fn allocations_are_counted_by_what_they_do() {
        let mut workflow = crate::workflow_phase::tests::workflow(JobCounts::default(), &[]);
        assert_eq!(allocations(&workflow), "");
        let condition = |status: ConditionStatus| Condition {
            type_: "AllocationsReady".to_owned(),
            status,
            reason: "R".to_owned(),
            message: "why".to_owned(),
            last_transition_time: String::new(),
            observed_generation: None,
        };
        for (pending, active, status, expected) in [
            (0, 0, ConditionStatus::True, ""),
            (0, 0, ConditionStatus::False, "no allocation (why)"),
            (2, 0, ConditionStatus::False, "2 allocations pending (why)"),
            (2, 0, ConditionStatus::True, "2 allocations pending"),
            (0, 1, ConditionStatus::False, "1 allocation active"),
            (3, 2, ConditionStatus::False, "2 allocations active, 3 pending (why)"),
        ] {
            workflow.status.allocations = Some(AllocationCounts { desired: 9, pending, active, finished: 8 });
            workflow.status.conditions = vec![condition(status)];
            assert_eq!(allocations(&workflow), expected, "{pending} {active} {status}");
        }
    }

    #[test]
    fn every_count_has_its_word() {
        let jobs = JobCounts {
            running: 1,
            failed: 2,
            terminated: 3,
            canceled: 4,
            recovering: 5,
            pending_failed: 6,
            ready: 7,
            ..JobCounts::default()
        };
        assert_eq!(describe(&jobs), "1 running, 5 failed, 4 canceled, 5 recovering, 6 needing a decision");
        let mut workflow = crate::workflow_phase::tests::workflow(JobCounts::default(), &["Stalled"]);
        assert_eq!(stall_text(&workflow), "w: stalled: Because");
        workflow.status.conditions[0].message = "no room".to_owned();
        assert_eq!(stall_text(&workflow), "w: stalled: no room");
    }
}
