//! Tests of the rules that decide where a job may run.

use torc_api::termination::EndMargin;

use super::*;

const GIB: i64 = 1 << 30;

fn class(cpus: i64, gpus: i64, gib: i64, nodes: i64) -> JobClass {
    JobClass {
        requirements: Requirements {
            num_cpus: cpus,
            num_gpus: gpus,
            memory_bytes: gib * GIB,
            num_nodes: nodes,
            runtime_seconds: 600,
            ..Requirements::default()
        },
        labels: Vec::new(),
        scheduler: None,
    }
}

/// The last two minutes are not for jobs.
const END: EndMargin = EndMargin { headroom_seconds: 90, notice_seconds: 30, in_step: false };

/// Returns a runner of so many nodes with 8 CPUs, 2 GPUs and 64 GiB each.
fn runner(nodes: i64) -> RunnerView<'static> {
    let capacity = Resources { cpus: 8 * nodes, gpus: 2 * nodes, memory_bytes: 64 * GIB * nodes, nodes };
    RunnerView { capacity, labels: &[], scheduler: None, remaining_seconds: None, by_count: false }
}

#[test]
fn a_job_must_fit_a_node_of_the_empty_runner() {
    let table = [
        (class(8, 2, 64, 1), 1, true),
        (class(9, 0, 1, 1), 1, false),
        (class(1, 3, 1, 1), 1, false),
        (class(1, 0, 65, 1), 1, false),
        (class(9, 0, 1, 1), 4, false),
        (class(8, 2, 64, 4), 4, true),
        (class(1, 0, 1, 5), 4, false),
        (class(1, 0, 1, 2), 1, false),
    ];
    for (class, nodes, expected) in table {
        assert_eq!(class.matches(&runner(nodes), END), expected, "{class:?} on {nodes}");
    }
    // A runner that does not say how many nodes it has is one.
    let mut one = runner(1);
    one.capacity.nodes = 0;
    assert!(class(8, 2, 64, 1).matches(&one, END));
}

#[test]
fn the_queue_strategy_looks_at_labels_only() {
    let counting = RunnerView { by_count: true, remaining_seconds: Some(121), ..runner(1) };
    assert!(class(100, 100, 1_000, 9).matches(&counting, END));
    let late = RunnerView { remaining_seconds: Some(120), ..counting.clone() };
    assert!(!class(1, 0, 1, 1).matches(&late, END), "nothing starts after its first signal");
    let labelled = JobClass { labels: vec!["a".to_owned()], ..class(1, 0, 1, 1) };
    assert!(!labelled.matches(&counting, END));
}

#[test]
fn unlabelled_goes_to_unlabelled_and_labels_must_all_be_there() {
    let table: [(&[&str], &[&str], bool); 7] = [
        (&[], &[], true),
        (&[], &["a"], false),
        (&["a"], &[], false),
        (&["a"], &["a"], true),
        (&["a"], &["a", "b"], true),
        (&["a", "b"], &["a"], false),
        (&["c"], &["a", "b"], false),
    ];
    for (wanted, present, expected) in table {
        let owned = |labels: &[&str]| labels.iter().map(|label| (*label).to_owned()).collect::<Vec<_>>();
        let class = JobClass { labels: owned(wanted), ..class(1, 0, 1, 1) };
        let labels = owned(present);
        assert_eq!(
            class.matches(&RunnerView { labels: &labels, ..runner(1) }, END),
            expected,
            "{wanted:?} on {present:?}"
        );
    }
}

#[test]
fn a_job_may_be_short_of_a_minute_before_its_first_signal() {
    for (left, expected) in [(None, true), (Some(720), true), (Some(660), true), (Some(659), false), (Some(0), false)] {
        let runner = RunnerView { remaining_seconds: left, ..runner(1) };
        assert_eq!(class(1, 0, 1, 1).matches(&runner, END), expected, "{left:?}");
    }
}

#[test]
fn a_scheduler_is_preferred_and_not_required() {
    let bound = JobClass { scheduler: Some("gpu".to_owned()), ..class(1, 0, 1, 1) };
    for (scheduler, expected) in [(Some("gpu"), true), (Some("cpu"), false), (None, false)] {
        let runner = RunnerView { scheduler, ..runner(1) };
        assert_eq!(bound.prefers(&runner), expected);
        assert!(bound.matches(&runner, END));
        assert!(class(1, 0, 1, 1).prefers(&runner), "a job without a scheduler goes anywhere");
    }
}

#[test]
fn a_job_of_several_nodes_owns_them_whole() {
    let capacity = runner(4).capacity;
    assert_eq!(class(1, 0, 1, 1).demand(&capacity), Resources { cpus: 1, gpus: 0, memory_bytes: GIB, nodes: 0 });
    let two = Resources { cpus: 16, gpus: 4, memory_bytes: 128 * GIB, nodes: 2 };
    assert_eq!(class(1, 0, 1, 2).demand(&capacity), two);
    assert!(fits(&capacity, &two));
    let left = minus(&capacity, &two);
    assert!(fits(&left, &two));
    assert!(!fits(&minus(&left, &two), &class(1, 0, 1, 1).demand(&capacity)), "whole nodes leave nothing for others");
}

// J39, P07
#[test]
fn everything_that_is_demanded_must_be_free_and_is_taken_away() {
    let free = Resources { cpus: 4, memory_bytes: 4, gpus: 4, nodes: 4 };
    let changes: [fn(&mut Resources) -> &mut i64; 4] = [
        |resources| &mut resources.cpus,
        |resources| &mut resources.memory_bytes,
        |resources| &mut resources.gpus,
        |resources| &mut resources.nodes,
    ];
    for field in changes {
        let mut demand = Resources::default();
        *field(&mut demand) = 4;
        assert!(fits(&free, &demand), "{demand:?}");
        *field(&mut demand) = 5;
        assert!(!fits(&free, &demand), "{demand:?}");
        *field(&mut demand) = 3;
        let mut left = free;
        *field(&mut left) = 1;
        assert_eq!(minus(&free, &demand), left);
    }
}
