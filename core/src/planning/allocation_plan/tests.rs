#![allow(clippy::unwrap_used)]

use torc_api::action::{ActionType, TriggerType};
use torc_api::failure::Recovery;
use torc_api::wire::Resources;

use super::super::partition::tests::{GIB, needs as requirements, partition};
use super::*;

const NOW: i64 = 10_000_000;

fn site() -> Vec<PartitionLimits> {
    vec![partition("p", 8, 32, 0, 48), partition("g", 8, 32, 4, 48)]
}

fn kind(ready: i64, waiting: i64) -> ResourceClass {
    ResourceClass { needs: requirements(8, 1, 0, 1, 1), labels: Vec::new(), scheduler: None, ready, waiting }
}

fn needs(kinds: Vec<ResourceClass>) -> WorkflowDemand {
    let open_jobs = kinds.iter().map(|kind| kind.ready + kind.waiting).sum();
    WorkflowDemand {
        workflow: WorkflowId(1),
        name: "w".to_owned(),
        working_dir: "/w".to_owned(),
        cluster: Some("local".to_owned()),
        spec: Arc::new(WorkflowSpec { slurm_cluster: Some("local".to_owned()), ..WorkflowSpec::default() }),
        has_explicit_requests: false,
        is_served: true,
        is_canceled: false,
        finished_ms: None,
        is_suspended: false,
        is_exhausted: false,
        kinds,
        open_jobs,
        allocations: Vec::new(),
        actions: Vec::new(),
        requested: BTreeMap::new(),
    }
}

fn live(id: i64, stage: AllocationStage, runners: usize) -> LiveAllocation {
    let row = AllocationRow {
        id: AllocationId(id),
        workflow: WorkflowId(1),
        cluster: "local".to_owned(),
        partition: Some("p".to_owned()),
        slurm_job_id: Some(id.to_string()),
        nodes: 1,
        cpus: 8,
        memory_bytes: 32 * GIB,
        seconds: 5_400,
        ..AllocationRow::default()
    };
    LiveAllocation { row, stage, runners, idle_polls: 0 }
}

fn full(seconds_left: i64) -> AllocationStage {
    AllocationStage::Running { seconds_left, free: Resources::default(), busy_seconds: seconds_left }
}

fn decide(needs: &WorkflowDemand) -> AllocationPlan {
    plan_allocations(needs, ClusterView { partitions: Some(&site()), account: Some("acct") }, NOW)
}

fn ids(cancel: &[AllocationId]) -> Vec<i64> {
    cancel.iter().map(|id| id.0).collect()
}

/// An allocation that leaves its size to the site gets that of a node of its partition, or of the largest node if it
/// names none.
#[test]
fn what_is_left_to_the_site_is_what_its_nodes_have() {
    let partitions = [partition("p", 8, 32, 2, 48), partition("q", 6, 64, 0, 48)];
    let empty = AllocationStage::Running {
        seconds_left: 9,
        free: Resources { cpus: 0, memory_bytes: 0, gpus: 0, nodes: 2 },
        busy_seconds: 7,
    };
    let mut one = live(1, empty, 0);
    one.row = AllocationRow { cpus: 0, memory_bytes: 0, gpus: 1, nodes: 2, ..one.row };
    for (name, cpus, gib) in [(Some("p"), 8, 32), (Some("q"), 6, 64), (None, 8, 32), (Some("gone"), 8, 32)] {
        one.row.partition = name.map(str::to_owned);
        let found = existing(&one, &partitions);
        assert_eq!((found.shape.cpus, found.shape.memory_bytes, found.shape.gpus), (cpus, gib * GIB, 1), "{name:?}");
        let free = Resources { cpus: 2 * cpus, memory_bytes: 2 * gib * GIB, gpus: 2, nodes: 2 };
        assert_eq!(found.stage, AllocationStage::Running { seconds_left: 9, free, busy_seconds: 7 }, "{name:?}");
    }
    one.row.cpus = 4;
    let said = existing(&one, &partitions);
    assert_eq!((said.shape.cpus, said.stage), (4, empty), "what it says itself counts");
}

// R16
#[test]
fn sized_allocations_use_the_account_of_the_cluster() {
    let plan = decide(&needs(vec![kind(2, 5)]));
    assert_eq!(plan.intend.len(), 2, "jobs that wait are no reason to ask");
    let row = &plan.intend[0];
    assert_eq!((row.partition.as_deref(), row.account.as_deref(), row.cpus), (Some("p"), Some("acct"), 8));
    assert_eq!((row.origin, row.scheduler.as_deref(), row.seconds), (AllocationOrigin::Sizing, None, 5_400));
    assert_eq!(plan.summary.desired, 2);
    let many = WorkflowDemand { is_exhausted: false, ..needs(vec![kind(9, 0)]) };
    assert_eq!(
        (decide(&many).intend.len(), decide(&many).summary.held_back),
        (4, 5),
        "four at once unless said otherwise"
    );
    let more = WorkflowDemand {
        spec: Arc::new(WorkflowSpec {
            max_allocations: Some(6),
            slurm_cluster: Some("local".to_owned()),
            ..WorkflowSpec::default()
        }),
        ..many
    };
    assert_eq!(decide(&more).intend.len(), 6);
}

#[test]
fn nothing_is_asked_for_in_vain() {
    let cases = [
        ("suspended", WorkflowDemand { is_suspended: true, ..needs(vec![kind(2, 0)]) }),
        ("exhausted", WorkflowDemand { is_exhausted: true, ..needs(vec![kind(2, 0)]) }),
        ("not served", WorkflowDemand { is_served: false, ..needs(vec![kind(2, 0)]) }),
        ("canceled", WorkflowDemand { is_canceled: true, ..needs(vec![kind(2, 0)]) }),
        ("finished", WorkflowDemand { finished_ms: Some(NOW), ..needs(vec![kind(2, 0)]) }),
        ("no jobs", needs(vec![])),
    ];
    for (why, needs) in cases {
        assert_eq!(decide(&needs).intend, [], "{why}");
    }
    let unknown = plan_allocations(&needs(vec![kind(2, 0)]), ClusterView::default(), NOW);
    assert_eq!(unknown.intend, [], "partitions are not known yet");
}

#[test]
fn jobs_that_fit_nowhere_are_told_about_when_they_are_ready() {
    let huge = ResourceClass { needs: requirements(99, 1, 0, 1, 1), ..kind(1, 0) };
    let said = decide(&needs(vec![huge.clone()])).summary.unplaced.unwrap();
    assert!(said.contains("99 CPUs on a node are more than any partition has (8)"), "{said}");
    let later = ResourceClass { ready: 0, waiting: 1, ..huge };
    assert_eq!(decide(&needs(vec![later])).summary.unplaced, None, "there is time");
}

#[test]
fn unneeded_allocations_are_canceled_and_give_no_capacity() {
    let waiting = |id| live(id, AllocationStage::Pending, 0);
    let idle = WorkflowDemand { allocations: vec![waiting(1), waiting(2)], ..needs(vec![kind(1, 0)]) };
    assert_eq!(ids(&decide(&idle).cancel), [2], "one job needs one");
    let mut leaving = waiting(1);
    leaving.row.canceled_ms = Some(NOW - 1_000);
    let going = WorkflowDemand { allocations: vec![leaving.clone()], ..needs(vec![kind(1, 0)]) };
    let plan = decide(&going);
    assert_eq!((plan.intend.len(), plan.cancel.len()), (1, 0), "it is being canceled already");
    leaving.row.canceled_ms = Some(NOW - CANCEL_RETRY_INTERVAL_MS);
    let stuck = WorkflowDemand { allocations: vec![leaving], ..needs(vec![]) };
    assert_eq!(ids(&decide(&stuck).cancel), [1], "Slurm did not hear");
}

#[test]
fn pending_allocations_are_canceled_at_the_end() {
    let allocations = vec![live(1, AllocationStage::Pending, 0), live(2, full(900), 1), live(3, full(900), 0)];
    let finished =
        |ago: i64| WorkflowDemand { finished_ms: Some(NOW - ago), allocations: allocations.clone(), ..needs(vec![]) };
    assert_eq!(ids(&decide(&finished(0)).cancel), [1, 3]);
    assert_eq!(ids(&decide(&finished(SHUTDOWN_GRACE_MS)).cancel), [1, 2, 3]);
    let stays = WorkflowSpec { compute_node_ignore_workflow_completion: Some(true), ..WorkflowSpec::default() };
    let stays = WorkflowDemand { spec: Arc::new(stays), ..finished(SHUTDOWN_GRACE_MS) };
    assert_eq!(ids(&decide(&stays).cancel), [1, 3], "its runners were asked to stay");
    let canceled = WorkflowDemand { is_canceled: true, ..finished(0) };
    assert_eq!(ids(&decide(&canceled).cancel), [1, 2, 3]);
    let elsewhere = WorkflowDemand { cluster: None, finished_ms: None, ..finished(0) };
    assert_eq!(ids(&decide(&elsewhere).cancel), [1, 2, 3], "the document is not for Slurm any more");
}

fn action(scheduler: &str, count: i64) -> Action {
    Action {
        trigger_type: TriggerType::OnWorkflowStart,
        action_type: ActionType::ScheduleNodes,
        scheduler: Some(scheduler.to_owned()),
        scheduler_type: None,
        num_allocations: Some(count),
        start_one_worker_per_node: Some(true),
        max_parallel_jobs: Some(7),
        jobs: None,
        job_name_regexes: None,
        commands: None,
        persistent: None,
    }
}

fn scheduled(kinds: Vec<ResourceClass>) -> WorkflowDemand {
    let named = |name: &str| SlurmScheduler {
        name: Some(name.to_owned()),
        account: "own".to_owned(),
        partition: Some("p".to_owned()),
        walltime: Some("02:00:00".to_owned()),
        mem: Some("2000".to_owned()),
        gres: Some("gpu:a100:2,lustre:1".to_owned()),
        nodes: Some(2),
        ..SlurmScheduler::default()
    };
    let spec = WorkflowSpec {
        actions: vec![action("s", 2)],
        slurm_schedulers: vec![named("s"), named("t")],
        ..WorkflowSpec::default()
    };
    WorkflowDemand { spec: Arc::new(spec), has_explicit_requests: true, ..needs(kinds) }
}

fn wanted(is_begun: bool) -> NodeRequest {
    NodeRequest { action: JobId(9), definition: action("s", 2), is_begun }
}

#[test]
fn an_action_gets_what_it_asks_for_less_what_it_has() {
    let ready = WorkflowDemand { actions: vec![wanted(false)], ..scheduled(vec![kind(50, 0)]) };
    let plan = decide(&ready);
    assert_eq!((plan.intend.len(), plan.begin.clone()), (2, vec![JobId(9)]), "no more, however many jobs there are");
    let row = &plan.intend[0];
    assert_eq!((row.scheduler.as_deref(), row.account.as_deref(), row.nodes), (Some("s"), Some("own"), 2));
    assert_eq!((row.seconds, row.memory_bytes, row.gpus), (7_200, 2_000 << 20, 2));
    assert_eq!((row.action, row.origin), (Some(JobId(9)), AllocationOrigin::Action));
    assert!(row.one_worker_per_node && row.max_parallel_jobs == Some(7));
    let mut own = live(1, AllocationStage::Pending, 0);
    own.row.action = Some(JobId(9));
    own.row.scheduler = Some("s".to_owned());
    let again = |count: usize| {
        let allocations = (0..count).map(|_| own.clone()).collect();
        decide(&WorkflowDemand { allocations, ..ready.clone() })
    };
    assert_eq!(again(1).intend.len(), 1);
    assert_eq!((again(2).intend.len(), again(2).executed), (0, vec![JobId(9)]));
    let begun = WorkflowDemand { actions: vec![wanted(true)], ..ready.clone() };
    assert_eq!(decide(&begun).intend, [], "it is written down already");
    let suspended = WorkflowDemand { is_suspended: true, ..ready.clone() };
    assert_eq!(decide(&suspended).intend, []);
    let unknown = NodeRequest { definition: action("x", 1), ..wanted(false) };
    let unknown = decide(&WorkflowDemand { actions: vec![unknown], ..ready });
    assert_eq!(
        (unknown.intend.len(), unknown.summary.refused.as_deref()),
        (0, Some("there is no Slurm scheduler 'x'"))
    );
}

// R16
#[test]
fn ended_allocations_are_replaced_up_to_the_request() {
    let requested = BTreeMap::from([("s".to_owned(), (2, action("s", 2)))]);
    let lost = WorkflowDemand { requested: requested.clone(), ..scheduled(vec![kind(9, 0)]) };
    let plan = decide(&lost);
    assert_eq!(plan.intend.len(), 2);
    assert_eq!((plan.intend[0].origin, plan.intend[0].scheduler.as_deref()), (AllocationOrigin::Recovery, Some("s")));
    let one = decide(&WorkflowDemand { requested: requested.clone(), ..scheduled(vec![kind(1, 0)]) });
    assert_eq!(one.intend.len(), 1, "one job needs one");
    let mut running = live(1, full(7_000), 1);
    running.row.scheduler = Some("s".to_owned());
    let with = |second: LiveAllocation| WorkflowDemand { allocations: vec![running.clone(), second], ..lost.clone() };
    let second = LiveAllocation { runners: 0, ..running.clone() };
    assert_eq!(decide(&with(second.clone())).intend, [], "both are there");
    assert_eq!(decide(&with(LiveAllocation { idle_polls: 2, ..second })).intend.len(), 1, "one of them is of no use");
    let half = WorkflowDemand { allocations: vec![running], ..lost.clone() };
    assert_eq!(decide(&half).intend.len(), 1);
    let mut pending = live(1, AllocationStage::Pending, 0);
    pending.row.scheduler = Some("s".to_owned());
    let enough =
        WorkflowDemand { allocations: vec![pending], requested: requested.clone(), ..scheduled(vec![kind(1, 0)]) };
    assert_eq!(decide(&enough).intend, [], "the job has room in one that waits");
    let with_policy = |policy| {
        let mut spec = WorkflowSpec::clone(&lost.spec);
        spec.recovery = Some(Recovery { policy: Some(policy), ..Recovery::default() });
        decide(&WorkflowDemand { spec: Arc::new(spec), ..lost.clone() }).intend.len()
    };
    assert_eq!(with_policy(RecoveryPolicy::Auto), 2);
    assert_eq!((with_policy(RecoveryPolicy::Never), with_policy(RecoveryPolicy::Manual)), (0, 0));
    for needs in [
        WorkflowDemand { is_exhausted: true, ..lost.clone() },
        WorkflowDemand { is_suspended: true, ..lost.clone() },
        WorkflowDemand { requested: BTreeMap::new(), ..lost.clone() },
        WorkflowDemand { kinds: vec![kind(0, 9)], ..lost.clone() },
    ] {
        assert_eq!(decide(&needs).intend, []);
    }
}

#[test]
fn a_job_with_a_scheduler_brings_that_one_back() {
    let both = BTreeMap::from([("s".to_owned(), (2, action("s", 2))), ("t".to_owned(), (2, action("t", 2)))]);
    let of_t = ResourceClass { scheduler: Some("t".to_owned()), ..kind(1, 0) };
    let plan = decide(&WorkflowDemand { requested: both, ..scheduled(vec![of_t]) });
    assert_eq!(plan.intend.iter().map(|row| row.scheduler.as_deref().unwrap()).collect::<Vec<_>>(), ["t"]);
}

#[test]
fn unneeded_allocations_of_actions_are_canceled() {
    let allocations = vec![live(1, AllocationStage::Pending, 0), live(2, full(900), 1)];
    let busy = WorkflowDemand { allocations: allocations.clone(), open_jobs: 1, ..scheduled(vec![]) };
    assert_eq!(ids(&decide(&busy).cancel), Vec::<i64>::new());
    let done = WorkflowDemand { open_jobs: 0, ..busy };
    assert_eq!(ids(&decide(&done).cancel), [1], "what runs is not cut short");
}

#[test]
fn the_same_question_after_the_answer_has_an_empty_answer() {
    let before = needs(vec![kind(3, 0)]);
    let requested = decide(&before).intend;
    let place = |(id, row): (i64, AllocationRow)| LiveAllocation {
        row: AllocationRow { id: AllocationId(id), workflow: WorkflowId(1), ..row },
        stage: AllocationStage::Pending,
        runners: 0,
        idle_polls: 0,
    };
    let after = WorkflowDemand { allocations: (1..).zip(requested).map(place).collect(), ..before };
    let plan = decide(&after);
    assert_eq!((plan.intend.len(), plan.cancel.len(), plan.summary.desired), (0, 0, 3));
}

// R16
#[test]
fn an_allocation_without_runners_is_no_capacity() {
    let mut left =
        live(1, AllocationStage::Running { seconds_left: 0, free: Resources::default(), busy_seconds: 0 }, 0);
    left.row.status = AllocationStatus::Active;
    left.idle_polls = 2;
    let spec = WorkflowSpec { max_allocations: Some(1), ..WorkflowSpec::default() };
    let wanted = WorkflowDemand { spec: Arc::new(spec), allocations: vec![left.clone()], ..needs(vec![kind(1, 0)]) };
    assert_eq!(decide(&wanted).intend.len(), 1, "Slurm has not noticed yet that it is of no use");
    let unsure = LiveAllocation { idle_polls: 1, ..left.clone() };
    let preempted = WorkflowDemand { allocations: vec![unsure], ..wanted.clone() };
    assert_eq!(decide(&preempted).intend.len(), 0, "it may come back");
    left.runners = 1;
    let occupied = WorkflowDemand { allocations: vec![left], ..wanted };
    assert_eq!(decide(&occupied).intend.len(), 0);
}

#[test]
fn what_an_earlier_plan_asked_for_and_still_waits_is_cancelled() {
    let schedulers = vec![SlurmScheduler { name: Some("new".to_owned()), ..SlurmScheduler::default() }];
    let spec = WorkflowSpec { slurm_schedulers: schedulers, ..WorkflowSpec::default() };
    let of = |id: i64, name: &str, stage: AllocationStage| {
        let mut one = live(id, stage, 0);
        one.row.scheduler = Some(name.to_owned());
        one
    };
    let allocations =
        vec![of(1, "old", AllocationStage::Pending), of(2, "new", AllocationStage::Pending), of(3, "old", full(60))];
    let replanned =
        WorkflowDemand { spec: Arc::new(spec), has_explicit_requests: true, allocations, ..needs(vec![kind(1, 0)]) };
    assert_eq!(ids(&decide(&replanned).cancel), [1], "what runs may finish what it has");
}
