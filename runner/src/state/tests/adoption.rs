//! Jobs and results of an earlier agent, as the shim describes them.

use torc_api::execution::MonitorPlan;
use torc_api::wire::LeaseRole;

use super::*;
use crate::protocol::StartTemplate;
use crate::state::jobs::EndingOrder;

/// Returns a job that the shim holds; no two fields have the same value.
fn held(agent: &AgentHarness) -> ShimJob {
    ShimJob {
        order: StartOrder {
            key: AttemptKey { workflow: 3, job: 14, run: 15, attempt: 9, lease_id: 26 },
            role: LeaseRole::Job,
            name: "held".to_owned(),
            devices: vec!["5".to_owned()],
            nodes: vec!["n2".to_owned()],
            step_limit_ms: Some(932_000),
            ..StartOrder::default()
        },
        started: agent.now.minus(Duration::from_secs(535)),
        pid: 897,
        is_warned: true,
        template: StartTemplate {
            working_dir: "/held".to_owned(),
            resources: Resources { cpus: 2, memory_bytes: 38, gpus: 1, nodes: 1 },
            runtime_seconds: 46,
            signal: 12,
            lead_ms: 4_000,
            headroom_ms: 33_000,
            ..StartTemplate::default()
        },
        ending: None,
    }
}

fn two_nodes() -> AgentSettings {
    AgentSettings {
        capacity: Resources { cpus: 8, memory_bytes: 1_000, gpus: 4, nodes: 2 },
        devices: vec!["4".to_owned(), "5".to_owned()],
        allocation: Some(StepAllocation {
            job_id: "77".to_owned(),
            srun: "srun".to_owned(),
            nodes: vec!["n1".to_owned(), "n2".to_owned()],
        }),
        ..settings(8)
    }
}

// J21, J39. After a restart of the agent.
#[test]
fn a_job_that_is_taken_over_is_as_it_was() {
    let mut agent = AgentHarness::with(two_nodes());
    let held = held(&agent);
    agent.handle(AgentEvent::Adopted(Box::new(held.clone())));
    let job = &agent.state.jobs[&held.order.key];
    assert_eq!((job.role, job.name.as_str(), job.pid), (LeaseRole::Job, "held", 897));
    assert_eq!((job.since, job.start_known), (held.started, true));
    assert_eq!((job.devices.clone(), job.ending), (held.order.devices.clone(), None));
    assert_eq!((job.step.limit, job.step.is_warned), (Some(Duration::from_secs(932)), true));
    assert_eq!(*job.launch.template, held.template);
    assert_eq!(job.reservation.as_ref().map(|taken| taken.nodes()), Some(vec![1]), "it is on the second node");
    let free = agent.state.jobs.ledger().free();
    assert_eq!((free.cpus, free.memory_bytes, free.gpus), (6, 962, 3));
    agent.later(Duration::from_millis(100));
    let running = agent.sync().running.clone();
    assert_eq!((running[0].key, running[0].elapsed_ms), (held.order.key, 535_100));
    // The next job gets the other device of that node.
    agent.profile.resources = Resources { cpus: 1, memory_bytes: 1, gpus: 2, nodes: 1 };
    agent.answer([1]);
    let nodes: Vec<Vec<String>> = agent
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Start(order, _) => Some(order.nodes.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(nodes, [["n1"]], "both devices are free on the first node only");
    // It is ended by the values of its template.
    agent.handle(AgentEvent::Stop);
    assert!(agent.terminated().contains(&(14, 12, 4_000)), "{:?}", agent.terminated());
}

// J23. An end that the earlier agent ordered.
#[test]
fn an_end_that_was_ordered_before_still_counts() {
    let mut agent = AgentHarness::with(two_nodes());
    let since = agent.now.minus(Duration::from_secs(1));
    let held = ShimJob { ending: Some((StopReason::Canceled, since)), ..held(&agent) };
    agent.handle(AgentEvent::Adopted(Box::new(held.clone())));
    assert_eq!(agent.state.jobs[&held.order.key].ending, Some(EndingOrder { why: StopReason::Canceled, at: since }));
    agent.handle(AgentEvent::StopNow);
    let kills: Vec<StopReason> = agent
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Terminate(order) if order.signal == 9 => Some(order.why),
            _ => None,
        })
        .collect();
    assert_eq!(kills, [StopReason::Canceled], "the first reason counts");
}

#[test]
fn an_adopted_task_takes_no_resources() {
    for role in [LeaseRole::Action, LeaseRole::Recovery] {
        let mut agent = AgentHarness::with(two_nodes());
        let mut held = held(&agent);
        held.order.role = role;
        agent.handle(AgentEvent::Adopted(Box::new(held.clone())));
        assert_eq!(agent.state.jobs.ledger().free(), agent.state.jobs.ledger().capacity(), "{role:?}");
        assert_eq!((agent.state.jobs.active_jobs().count(), agent.state.job_counts()), (0, (1, 0)), "{role:?}");
        assert_eq!(agent.state.jobs[&held.order.key].launch.class, u32::MAX, "{role:?}");
    }
}

#[test]
fn a_node_without_a_known_name_is_the_first() {
    let agent = AgentHarness::with(two_nodes());
    let numbers = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        agent.state.settings.node_indexes(&names)
    };
    assert_eq!(numbers(&["n2"]), [1]);
    assert_eq!(numbers(&["n2", "n1"]), [1, 0]);
    assert_eq!(numbers(&["n3"]), [0]);
    assert_eq!(numbers(&[]), [0]);
}

// J16, J33. An undelivered result of a job that is unknown to this agent.
#[test]
fn a_result_of_an_earlier_agent_is_reported_completely() {
    let mut agent = AgentHarness::new(4);
    let key = AttemptKey { workflow: 3, job: 14, run: 15, attempt: 9, lease_id: 26 };
    let template = StartTemplate {
        working_dir: "/held".to_owned(),
        timeout_exit_code: 101,
        output_files: vec!["out".to_owned()],
        monitor: MonitorPlan::default(),
        ..StartTemplate::default()
    };
    let result = |outcome, ending| JobExit {
        ending,
        stdout: Some("o".to_owned()),
        stderr: Some("e".to_owned()),
        job: Some(Box::new(ShimJob {
            order: StartOrder { key, name: "held".to_owned(), ..StartOrder::default() },
            template: template.clone(),
            started: BootInstant(900 * SECOND),
            ..ShimJob::default()
        })),
        ..JobExit::new(key, BootInstant(900 * SECOND), BootInstant(907 * SECOND), outcome)
    };
    agent.handle(AgentEvent::Ended(Box::new(result(Outcome::Signaled(9), Some(StopReason::Timeout)))));
    let report = agent.state.reports[&key].clone();
    assert_eq!((report.name.as_str(), report.ended), ("held", BootInstant(907 * SECOND)));
    let finished = report.finished;
    assert_eq!((finished.key, finished.return_code, finished.cause), (key, 101, Some(Cause::Timeout)));
    assert_eq!((finished.stdout.as_deref(), finished.stderr.as_deref()), (Some("o"), Some("e")));
    assert_eq!(finished.duration_ms, 7_000);
    assert!(agent.state.jobs.is_empty() && agent.state.jobs.active_count() == 0);
    assert_eq!(agent.state.jobs.ledger().free(), agent.state.jobs.ledger().capacity());
    // Shims send a result to every agent until it is acknowledged.
    agent.handle(AgentEvent::Ended(Box::new(result(Outcome::Exited(0), None))));
    assert_eq!(agent.state.reports[&key].finished.return_code, 101, "the first word counts");

    let mut agent = AgentHarness::new(4);
    agent.handle(AgentEvent::Ended(Box::new(result(Outcome::Exited(0), None))));
    let check = agent.effects.iter().find_map(|effect| match effect {
        Effect::CheckOutputs(_, check) => Some((check.working_dir.clone(), check.files.clone(), check.elapsed)),
        _ => None,
    });
    let elapsed = Duration::from_secs(100);
    assert_eq!(check, Some((PathBuf::from("/held"), vec!["out".to_owned()], elapsed)), "since its start");
}

// J33. Two attempts of one job are two results.
#[test]
fn attempts_of_one_job_are_kept_apart() {
    let mut agent = AgentHarness::new(4);
    let of = |attempt, run| AttemptKey { workflow: 3, job: 14, run, attempt, lease_id: 26 };
    for (attempt, run, code) in [(1, 1, 11), (2, 1, 12), (1, 2, 13)] {
        let over = JobExit::new(of(attempt, run), agent.now, agent.now, Outcome::Exited(code));
        agent.handle(AgentEvent::Ended(Box::new(over)));
    }
    let codes: Vec<_> = agent.state.reports.iter().map(|(key, one)| (*key, one.finished.return_code)).collect();
    assert_eq!(codes.len(), 3);
    for (attempt, run, code) in [(1, 1, 11), (2, 1, 12), (1, 2, 13)] {
        assert!(codes.contains(&(of(attempt, run), code)), "{codes:?}");
    }
}
