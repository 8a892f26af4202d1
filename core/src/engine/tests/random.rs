//! Random workflows and histories: no job is lost, runs twice or never ends.

use proptest::prelude::*;
use torc_api::action::{Action, TriggerType};
use torc_api::failure::{FailureHandler, FailureRule, Recovery, RecoveryPolicy};
use torc_api::workflow::WorkflowSpec;

use super::actions::commands;
use super::history::{History, Step, labels};
use super::model::check_end;
use super::plan::{Plan, PlannedJob, job, needs};

/// Jobs whose numbers are independent of the order of their dependencies.
pub fn plans() -> impl Strategy<Value = Plan> {
    let job = (any::<u32>(), any::<u32>(), -2..3i64, prop::collection::vec(any::<u16>(), 0..4));
    (prop::collection::vec(job, 1..40), any::<u32>(), 0..5u8, any::<bool>()).prop_map(
        |(jobs, order, policy, pending)| {
            let mut jobs: Vec<PlannedJob> = jobs
                .into_iter()
                .enumerate()
                .map(|(index, (class, flags, priority, parents))| planned(index, class, flags, priority, &parents))
                .collect();
            let middle = order as usize % jobs.len();
            jobs.rotate_left(middle);
            if order & 1 << 20 != 0 {
                jobs.reverse();
            }
            let policies =
                [None, None, Some(RecoveryPolicy::Auto), Some(RecoveryPolicy::Manual), Some(RecoveryPolicy::Never)];
            let recovery =
                policies[policy as usize].map(|policy| Recovery { policy: Some(policy), ..Recovery::default() });
            let spec = WorkflowSpec {
                recovery,
                use_pending_failed: (pending && policy == 0).then_some(true),
                orphan_after: (order & 1 << 21 != 0).then(|| "never".to_owned()),
                actions: actions(order >> 22),
                failure_handlers: vec![handler()],
                ..WorkflowSpec::default()
            };
            Plan { jobs, spec, ..Plan::new([]) }
        },
    )
}

/// Returns actions for a random set of triggers.
fn actions(how: u32) -> Vec<Action> {
    use TriggerType::{
        OnJobsComplete, OnJobsReady, OnWorkerComplete, OnWorkerStart, OnWorkflowComplete, OnWorkflowStart,
    };
    let all = [OnWorkflowStart, OnWorkerStart, OnJobsReady, OnJobsComplete, OnWorkflowComplete, OnWorkerComplete];
    let chosen = |(bit, trigger): (usize, TriggerType)| {
        let regexes = trigger.is_of_jobs().then(|| vec!["[02468]$".to_owned()]);
        (how >> bit & 1 == 1).then(|| Action { job_name_regexes: regexes, ..commands(trigger, "x") })
    };
    all.into_iter().enumerate().filter_map(chosen).collect()
}

/// Returns a handler whose script recovers from exit code 1, twice.
fn handler() -> FailureHandler {
    let rule = FailureRule {
        exit_codes: vec![1],
        recovery_script: Some("mend".to_owned()),
        max_retries: Some(2),
        ..FailureRule::default()
    };
    FailureHandler { name: "mend".to_owned(), rules: vec![rule] }
}

fn planned(index: usize, class: u32, flags: u32, priority: i64, parents: &[u16]) -> PlannedJob {
    let mut after: Vec<String> =
        parents.iter().filter(|_| index > 0).map(|parent| format!("j{}", *parent as usize % index)).collect();
    after.sort();
    after.dedup();
    PlannedJob {
        after,
        needs: needs(1 + i64::from(class % 4), i64::from(class >> 2 & 1), 1 + i64::from(class >> 3 & 3)),
        labels: labels(class >> 5),
        cancel_on_failure: !flags.is_multiple_of(3),
        handler: (flags >> 8).is_multiple_of(4).then(|| "mend".to_owned()),
        priority,
        ..job(&format!("j{index}"))
    }
}

pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec((0..100u8, any::<u32>(), any::<u32>()), 0..160)
}

proptest! {
    // Each history is restored after every step, so a case takes a tenth of a second without optimization.
    #![proptest_config(ProptestConfig { cases: 80, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_history_ends_as_its_results_say(plan in plans(), recruits in prop::collection::vec(any::<u32>(), 1..4), steps in steps(), tail in any::<u64>()) {
        let mut history = History::new(plan);
        for how in recruits {
            history.step((95, 0, how));
        }
        for step in steps {
            history.step(step);
        }
        history.clear_the_way();
        let mut seed = tail;
        history.work_off(|| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Ends that are the fault of the runner are left out, because they are retried without limit.
            let how = (seed >> 33) as u32;
            if how % 16 == 3 { how + 8 } else { how }
        });
        check_end(&history);
    }
}
