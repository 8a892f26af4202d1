//! Tasks, which take no resources: commands of actions, recovery scripts, and the last commands of a worker.

use torc_api::wire::LeaseRole;

use super::*;

fn task(job: i64, role: LeaseRole) -> Lease {
    let env = [("TORC_RETURN_CODE".to_owned(), "7".to_owned())].into();
    Lease { role, env, command: "set -e\necho".to_owned(), ..lease(job) }
}

impl AgentHarness {
    fn give(&mut self, leases: impl IntoIterator<Item = Lease>) -> &mut Self {
        self.respond(SyncResponse { leases: leases.into_iter().collect(), ..SyncResponse::default() })
    }

    fn order(&self, job: i64) -> &StartOrder {
        let of = |effect: &'_ Effect| matches!(effect, Effect::Start(order, _) if order.key.job == job);
        match self.effects.iter().find(|effect| of(effect)) {
            Some(Effect::Start(order, _)) => order,
            _ => panic!("job {job} is not started in {:?}", self.effects),
        }
    }
}

#[test]
fn they_start_at_once_on_a_full_node() {
    for by_count in [None, Some(1)] {
        let mut agent = AgentHarness::with(AgentSettings {
            user: RunnerSettings { max_parallel_jobs: by_count, ..user() },
            ..settings(1)
        });
        agent.answer([1, 2]);
        assert_eq!(agent.starts(), [1]);
        agent.started(1).later(Duration::from_millis(200));
        agent.give([task(7, LeaseRole::Action)]);
        assert_eq!(agent.starts(), [7], "the node is full, and it starts all the same");
        let order = agent.order(7);
        assert_eq!((order.role, order.in_turn), (LeaseRole::Action, false));
        let names: Vec<&str> = order.env.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["TORC_RUN_ID", "TORC_ATTEMPT_ID", "TORC_RETURN_CODE"], "an action is no job");
        agent.started(7).ended(7, 0);
        assert_eq!(agent.starts(), Vec::<i64>::new(), "its end makes no room");
        agent.ended(1, 0);
        assert_eq!(agent.starts(), [2]);
    }
}

#[test]
fn a_failed_jobs_gpus_are_free_while_its_script_runs() {
    let mut settings = settings(2);
    settings.capacity.gpus = 1;
    settings.devices = vec!["3".to_owned()];
    let mut agent = AgentHarness::with(settings);
    agent.profile.resources.gpus = 1;
    for round in 0..4 {
        let job = 10 + round;
        agent.answer([job]);
        assert_eq!(agent.order(job).devices, ["3"], "round {round}");
        agent.started(job).ended(job, 1);
        let script = Lease { key: AttemptKey { lease_id: 100 + job, ..key(job) }, ..task(job, LeaseRole::Recovery) };
        agent.give([script.clone()]);
        let order = agent.order(job);
        assert_eq!((order.role, order.devices.len()), (LeaseRole::Recovery, 0));
        assert!(order.env.contains(&("TORC_JOB_ID".to_owned(), job.to_string())));
        agent.handle(AgentEvent::Started(script.key, agent.now, 1));
        let over = JobExit { key: script.key, ..ended(job, Outcome::Exited(0), agent.now) };
        agent.handle(AgentEvent::Ended(Box::new(over)));
        assert_eq!(agent.sync().want.free.gpus, 1);
    }
}

#[test]
fn they_do_not_count_as_work_ahead() {
    let mut agent = AgentHarness::new(2);
    agent.give([task(7, LeaseRole::Action)]);
    agent.started(7).later(Duration::from_secs(50));
    let want = agent.state.work_request(agent.now);
    assert_eq!((want.free.cpus, want.ahead, want.limit), (2, 0, 2), "no job has run: nothing is asked for ahead");
}

// J12
#[test]
fn a_workers_last_commands_run_when_nothing_else_does() {
    let mut agent = AgentHarness::new(1);
    agent.answer([1]);
    agent.started(1).handle(AgentEvent::Stop);
    assert!(!agent.has_sync() || agent.sync().stopping);
    agent.handle(AgentEvent::Ended(Box::new(ended(1, Outcome::Signaled(15), agent.now))));
    assert!(agent.sync().completing && agent.sync().finished.len() == 1 && !agent.sync().leaving);
    agent.give([task(7, LeaseRole::Action)]);
    assert_eq!(agent.starts(), [7]);
    agent.started(7).later(Duration::from_secs(60));
    assert!(agent.exit().is_none() && !agent.sync().completing, "it takes its time");
    agent.ended(7, 0);
    if !agent.has_sync() {
        agent.answer([]);
    }
    assert!(agent.sync().completing && agent.sync().finished.len() == 1);
    agent.give([lease(2)]);
    assert_eq!(agent.starts(), Vec::<i64>::new(), "no jobs any more");
    while !agent.sync().leaving {
        agent.answer([]);
    }
    assert_eq!(agent.sync().returned.len() + agent.sync().finished.len(), 0, "everything was said before");
    agent.answer([]);
    assert_eq!(agent.exit(), Some(Ok(RunnerExit::Stopped)));
}

// J12
#[test]
fn they_are_skipped_offline_and_in_a_hurry() {
    let away = || LinkError::Unreachable("gone".to_owned());
    let mut agent = AgentHarness::new(1);
    agent.fail(away()).handle(AgentEvent::Stop);
    agent.later(Duration::from_millis(200));
    assert!(agent.sync().leaving, "offline before it came to that");

    let mut agent = AgentHarness::new(1);
    agent.answer([]).handle(AgentEvent::Stop);
    assert!(agent.sync().completing);
    agent.fail(away()).later(Duration::from_millis(200));
    assert!(agent.sync().leaving, "offline meanwhile");

    let mut agent = AgentHarness::new(1);
    agent.answer([]).handle(AgentEvent::Stop);
    agent.give([task(7, LeaseRole::Action)]);
    agent.started(7).handle(AgentEvent::StopNow);
    assert_eq!(agent.terminated(), [(7, 9, 0)]);
    agent.handle(AgentEvent::Ended(Box::new(ended(7, Outcome::Signaled(9), agent.now))));
    if !agent.has_sync() {
        agent.answer([]);
    }
    assert!(agent.sync().leaving);
    assert_eq!(agent.sync().finished[0].cause, Some(Cause::Stopped), "that says nothing about the commands");
}
