//! Steps that Slurm does not start: the node is quarantined and finally given up, and no job fails for it.

use std::collections::BTreeMap;

use torc_api::wire::FinishedAttempt;

use super::*;
use crate::state::node_health::StepFailure;

/// A runner in an allocation, a server with one job after another, and an accounting with fixed answers.
struct Scene {
    agent: AgentHarness,
    /// The next job that the server grants.
    next: i64,
    /// The accounts of steps.
    known: BTreeMap<i64, (&'static str, Option<i64>)>,
    started: Vec<i64>,
    lines: Vec<String>,
    observed: Vec<String>,
    reported: Vec<(i64, i32, Option<Cause>, Option<String>)>,
    returned: Vec<i64>,
    is_leaving: bool,
    awaited: usize,
}

impl Scene {
    fn new(agent: AgentHarness) -> Self {
        let (known, observed, lines) = (BTreeMap::new(), Vec::new(), Vec::new());
        let (started, reported, returned) = (Vec::new(), Vec::new(), Vec::new());
        Self { agent, next: 1, known, started, lines, observed, reported, returned, is_leaving: false, awaited: 0 }
    }

    fn handle(&mut self, event: AgentEvent) {
        self.agent.handle(event);
        for effect in std::mem::take(&mut self.agent.effects) {
            match effect {
                Effect::Start(order, _) => {
                    self.started.push(order.key.job);
                    self.lines.push(order.argv.join(" "));
                    self.handle(AgentEvent::Started(order.key, self.agent.now, 100));
                }
                Effect::QuerySlurm(query) => self.slurm_answers(&query),
                Effect::Log(RunnerEvent::Problem { message }) => self.observed.push(message),
                Effect::Sync(_, request) => self.server_answers(&request),
                _ => {}
            }
        }
    }

    fn slurm_answers(&mut self, query: &SlurmQuery) {
        let answer = match query {
            SlurmQuery::Accounts(_) => {
                let found = self.known.iter().map(|(job, (state, memory))| account(*job, state, *memory)).collect();
                SlurmAnswer::Accounts(Ok(found), Duration::from_millis(20))
            }
            SlurmQuery::Preemption => SlurmAnswer::Preemption(None),
            _ => SlurmAnswer::TimeLeft(None),
        };
        self.handle(AgentEvent::SlurmAnswered(Box::new(answer)));
    }

    /// Grants one job at a time.
    fn server_answers(&mut self, request: &SyncRequest) {
        let line = |one: &FinishedAttempt| (one.key.job, one.return_code, one.cause, one.message.clone());
        self.reported.extend(request.finished.iter().map(line));
        self.returned.extend(request.returned.iter().map(|key| key.job));
        self.is_leaving |= request.stopping;
        let is_open = request.want.limit > 0 && request.running.is_empty() && request.queued.is_empty();
        let leases = if is_open { vec![lease(self.next)] } else { Vec::new() };
        self.next += i64::from(is_open);
        let profiles = vec![self.agent.profile.clone()];
        let response =
            SyncResponse { sequence: request.sequence, leases, profiles, lease_ms: 120_000, ..SyncResponse::default() };
        // Answers take time, because otherwise both sides would send messages without end.
        self.agent.now = self.agent.now.plus(Duration::from_millis(50));
        self.handle(AgentEvent::Answered(Box::new(response)));
    }

    fn pass(&mut self, seconds: u64) {
        let until = self.agent.now.plus(Duration::from_secs(seconds));
        while self.agent.now < until {
            let due = self.agent.state.wake_at().map_or(until, |due| due.min(until));
            self.agent.now = due.max(self.agent.now.plus(Duration::from_millis(1)));
            self.handle(AgentEvent::Tick);
        }
    }

    /// Waits until the next job has started, and returns it.
    fn until_started(&mut self) -> i64 {
        let next = self.awaited;
        self.awaited += 1;
        for _ in 0..120 {
            if let Some(job) = self.started.get(next) {
                return *job;
            }
            self.pass(1);
        }
        panic!("nothing is started; logged {:?}", self.observed);
    }

    fn end(&mut self, job: i64, code: i32) {
        let failed = JobExit { stderr: Some("err".to_owned()), ..ended(job, Outcome::Exited(code), self.agent.now) };
        self.handle(AgentEvent::Ended(Box::new(failed)));
    }

    /// Lets a node with a dead daemon fail a step.
    fn not_started(&mut self, job: i64) {
        self.known.insert(job, ("CANCELLED", None));
        self.pass(11);
        self.end(job, 233);
        self.pass(1);
    }
}

/// Returns an allocation of one node.
fn on_one_node() -> Scene {
    Scene::new(AgentHarness::with(AgentSettings { allocation: allocation(&["n1"]), ..settings(4) }))
}

#[test]
fn a_step_that_did_not_start_quarantines_its_node() {
    let mut scene = Scene::new(agent());
    assert_eq!(scene.until_started(), 1);
    assert!(scene.lines[0].contains("--nodelist=n1"), "{:?}", scene.lines);
    scene.not_started(1);
    let message = Some("Slurm did not start its step: srun exited with code 233".to_owned());
    assert_eq!(scene.reported, [(1, 233, Some(Cause::Stopped), message)]);
    assert_eq!(scene.observed, ["Slurm does not start steps on node n1: starting nothing there for 10 s"]);
    let second = scene.lines.get(1).expect("the other node is used at once");
    assert!(second.contains("--nodelist=n2"), "{second}");
}

#[test]
fn a_runner_leaves_after_giving_up_its_only_node() {
    let mut scene = on_one_node();
    for (job, rest) in [(1, 10), (2, 30)] {
        assert_eq!(scene.until_started(), job);
        scene.not_started(job);
        assert_eq!(
            scene.observed.pop(),
            Some(format!("Slurm does not start steps on node n1: starting nothing there for {rest} s"))
        );
        scene.pass(rest - 5);
        assert_eq!(scene.started.len(), usize::try_from(job).unwrap_or(0), "it rests");
        assert!(!scene.is_leaving);
    }
    assert_eq!(scene.until_started(), 3);
    scene.not_started(3);
    assert_eq!(scene.observed, ["Slurm does not start steps on node n1: no longer using the node"]);
    scene.pass(5);
    assert!(scene.is_leaving, "it is of no use");
    assert_eq!((scene.started.len(), scene.reported.len()), (3, 3));
}

#[test]
fn a_step_that_starts_makes_up_for_those_that_did_not() {
    let mut scene = on_one_node();
    for job in [1, 3, 5, 7] {
        assert_eq!(scene.until_started(), job);
        scene.not_started(job);
        assert_eq!(
            scene.observed.pop().as_deref(),
            Some("Slurm does not start steps on node n1: starting nothing there for 10 s")
        );
        assert_eq!(scene.until_started(), job + 1);
        scene.known.insert(job + 1, ("COMPLETED", Some(10)));
        scene.end(job + 1, 0);
    }
}

#[test]
fn a_step_that_ran_and_failed_is_the_jobs_own() {
    for (code, state, memory) in [(233, "FAILED", Some(10)), (143, "CANCELLED", None), (3, "FAILED", None)] {
        let mut scene = on_one_node();
        scene.until_started();
        scene.known.insert(1, (state, memory));
        scene.end(1, code);
        scene.pass(1);
        assert_eq!(scene.observed, Vec::<String>::new(), "{code} {state}");
        assert_ne!(scene.reported[0].2, Some(Cause::Stopped), "{code} {state}");
    }
}

#[test]
fn an_absent_slurm_controller_costs_neither_jobs_nor_nodes() {
    let mut scene = on_one_node();
    for job in 1..=5 {
        assert_eq!(scene.until_started(), job);
        scene.pass(9);
        scene.end(job, 1);
        scene.handle(AgentEvent::SrunLogRead(key(job), Some("Unable to session slurm controller".to_owned())));
        scene.pass(6);
        assert_eq!(
            scene.observed.pop().as_deref(),
            Some("Slurm does not start steps on node n1: starting nothing there for 10 s")
        );
        let message = Some("Slurm did not start its step: Unable to session slurm controller".to_owned());
        assert_eq!(scene.reported.pop(), Some((job, 1, Some(Cause::Stopped), message)));
    }
}

#[test]
fn a_step_with_a_number_is_known_to_slurm() {
    // The job itself failed, or its log is about a nested step.
    for (silence, seen) in [(None, None), (Some("Unable to session"), Some(("FAILED", None)))] {
        let mut scene = on_one_node();
        scene.until_started();
        scene.known.extend(seen.map(|seen| (1, seen)));
        scene.end(1, 1);
        scene.handle(AgentEvent::SrunLogRead(key(1), silence.map(str::to_owned)));
        scene.pass(60);
        assert_eq!(scene.reported, [(1, 1, Some(Cause::ExitCode), None)], "{silence:?}");
    }
}

/// Returns an agent on one node, for which Slurm has just failed to start step 1.
fn resting(agent: &mut AgentHarness) -> BootInstant {
    agent.answer([1]);
    agent.started(1);
    agent.now = agent.now.plus(Duration::from_secs(1));
    agent.ended(1, 233);
    fail_step(agent, 1)
}

/// Delivers an account of a step that did not start. Returns the moment.
fn fail_step(agent: &mut AgentHarness, job: i64) -> BootInstant {
    for _ in 0..50 {
        match queries(agent).as_slice() {
            [SlurmQuery::Accounts(_), ..] => {
                agent.slurm_says(accounts([account(job, "CANCELLED", None)]));
                return agent.now;
            }
            [] if agent.has_sync() => agent.answer([]),
            [] => agent.until_due(),
            _ => agent.slurm_says(SlurmAnswer::TimeLeft(None)),
        };
    }
    panic!("the accounting is not asked");
}

// S19. Ten seconds after the first failure, thirty after the second in a row, to the millisecond.
#[test]
fn a_node_rests_for_exactly_its_time() {
    let mut agent = AgentHarness::with(AgentSettings { allocation: allocation(&["n1"]), ..settings(4) });
    let mut noticed = resting(&mut agent);
    for (job, rest_ms) in [(2, 10_000), (3, 30_000)] {
        for (after, in_service) in [(rest_ms - 1, false), (rest_ms, true)] {
            agent.now = noticed.plus(Duration::from_millis(after));
            agent.handle(AgentEvent::Tick);
            assert_eq!(agent.state.jobs.has_node(), in_service, "{after} ms");
            assert!(
                in_service || agent.state.node_health.awaits_node(&agent.state.jobs),
                "{after} ms: it is tried again"
            );
            assert!(!agent.state.node_health.has_lost_all_nodes(&agent.state.jobs));
        }
        while agent.answer([job]).starts() != [job] {
            agent.until_due();
        }
        agent.started(job);
        agent.now = agent.now.plus(Duration::from_secs(1));
        agent.ended(job, 233);
        noticed = fail_step(&mut agent, job);
    }
    agent.now = noticed.plus(Duration::from_secs(3_600));
    agent.handle(AgentEvent::Tick);
    assert!(agent.state.node_health.has_lost_all_nodes(&agent.state.jobs), "the third failure in a row is the last");
    assert!(!agent.state.node_health.awaits_node(&agent.state.jobs), "it is not tried again");
}

// S19. The failure of a step that started before the last failure was noticed does not count again.
#[test]
fn failures_of_one_outage_count_once() {
    for (later_us, observed) in [(0, 0), (1, 1)] {
        let mut agent = AgentHarness::with(AgentSettings { allocation: allocation(&["n1"]), ..settings(4) });
        agent.answer([1, 2]);
        agent.started(1).started(2);
        agent.now = agent.now.plus(Duration::from_secs(1));
        agent.ended(1, 233);
        let noticed = fail_step(&mut agent, 1);
        agent.state.jobs.get_mut(&key(2)).expect("it runs").since = noticed.plus(Duration::from_micros(later_us));
        agent.now = noticed.plus(Duration::from_secs(2));
        let mut effects = Vec::new();
        agent.state.step_not_started(key(2), StepFailure::Node, agent.now, &mut effects);
        let problems = effects.iter().filter(|one| matches!(one, Effect::Log(RunnerEvent::Problem { .. }))).count();
        assert_eq!(problems, observed, "started {later_us} µs after it was noticed");
        let failures = agent.state.node_health.failures(0);
        assert_eq!(failures, Some(1 + observed), "{later_us} µs");
    }
}

// S19. A step with a number is known to Slurm, whatever `srun` wrote.
#[test]
fn a_step_with_a_number_was_asked_for() {
    for (silence, number, never) in
        [(None, None, false), (Some("x"), None, true), (Some("x"), Some(3), false), (None, Some(3), false)]
    {
        let mut agent = agent();
        agent.answer([1]);
        agent.started(1);
        agent.handle(AgentEvent::SrunLogRead(key(1), silence.map(str::to_owned)));
        agent.state.jobs.get_mut(&key(1)).expect("it runs").step.number = number;
        assert_eq!(agent.state.jobs[&key(1)].step.is_unknown_to_slurm(), never, "{silence:?} {number:?}");
    }
}

// S19. Only a step that started after the failure shows that its node is healthy.
#[test]
fn an_older_step_does_not_heal_a_node() {
    for (later_us, heals) in [(0, false), (1, true)] {
        let mut agent = AgentHarness::with(AgentSettings { allocation: allocation(&["n1"]), ..settings(4) });
        agent.answer([1, 2]);
        agent.started(1).started(2);
        agent.now = agent.now.plus(Duration::from_secs(1));
        agent.ended(1, 233);
        let noticed = fail_step(&mut agent, 1);
        let job = agent.state.jobs.get_mut(&key(2)).expect("it runs");
        job.since = noticed.plus(Duration::from_micros(later_us));
        job.step.nodes = vec![0];
        agent.state.node_health.step_started(&mut agent.state.jobs, &key(2));
        assert_eq!((agent.state.jobs.has_node(), agent.state.node_health.is_empty()), (heals, heals), "{later_us} µs");
    }
}
