//! What takes no resources: the commands of actions, recovery scripts, and a worker's last commands.

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
        let mut desk = AgentHarness::with(Settings { max_parallel_jobs: by_count, ..settings(1) });
        desk.answer([1, 2]);
        assert_eq!(desk.starts(), [1]);
        desk.started(1).later(Duration::from_millis(200));
        desk.give([task(7, LeaseRole::Action)]);
        assert_eq!(desk.starts(), [7], "the node is full, and it starts all the same");
        let order = desk.order(7);
        assert_eq!((order.role, order.in_turn), (LeaseRole::Action, false));
        let names: Vec<&str> = order.env.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["TORC_RUN_ID", "TORC_ATTEMPT_ID", "TORC_RETURN_CODE"], "an action is no job");
        desk.started(7).ended(7, 0);
        assert_eq!(desk.starts(), Vec::<i64>::new(), "its end makes no room");
        desk.ended(1, 0);
        assert_eq!(desk.starts(), [2]);
    }
}

#[test]
fn a_failed_jobs_gpus_are_free_while_its_script_runs() {
    let mut settings = settings(2);
    settings.capacity.gpus = 1;
    settings.devices = vec!["3".to_owned()];
    let mut desk = AgentHarness::with(settings);
    desk.profile.resources.gpus = 1;
    for round in 0..4 {
        let job = 10 + round;
        desk.answer([job]);
        assert_eq!(desk.order(job).devices, ["3"], "round {round}");
        desk.started(job).ended(job, 1);
        let script = Lease { key: AttemptKey { lease_id: 100 + job, ..key(job) }, ..task(job, LeaseRole::Recovery) };
        desk.give([script.clone()]);
        let order = desk.order(job);
        assert_eq!((order.role, order.devices.len()), (LeaseRole::Recovery, 0));
        assert!(order.env.contains(&("TORC_JOB_ID".to_owned(), job.to_string())));
        desk.handle(Event::Started(script.key, desk.now, 1));
        let over = JobExit { key: script.key, ..ended(job, Outcome::Exited(0), desk.now) };
        desk.handle(Event::Ended(Box::new(over)));
        assert_eq!(desk.sync().want.free.gpus, 1);
    }
}

#[test]
fn they_do_not_count_as_work_ahead() {
    let mut desk = AgentHarness::new(2);
    desk.give([task(7, LeaseRole::Action)]);
    desk.started(7).later(Duration::from_secs(50));
    let want = desk.state.want(desk.now);
    assert_eq!((want.free.cpus, want.ahead, want.limit), (2, 0, 2), "no job has run: nothing is asked for ahead");
}

// J12
#[test]
fn a_workers_last_commands_run_when_nothing_else_does() {
    let mut desk = AgentHarness::new(1);
    desk.answer([1]);
    desk.started(1).handle(Event::Stop);
    assert!(!desk.has_sync() || desk.sync().stopping);
    desk.handle(Event::Ended(Box::new(ended(1, Outcome::Signaled(15), desk.now))));
    assert!(desk.sync().completing && desk.sync().finished.len() == 1 && !desk.sync().leaving);
    desk.give([task(7, LeaseRole::Action)]);
    assert_eq!(desk.starts(), [7]);
    desk.started(7).later(Duration::from_secs(60));
    assert!(desk.exit().is_none() && !desk.sync().completing, "it takes its time");
    desk.ended(7, 0);
    if !desk.has_sync() {
        desk.answer([]);
    }
    assert!(desk.sync().completing && desk.sync().finished.len() == 1);
    desk.give([lease(2)]);
    assert_eq!(desk.starts(), Vec::<i64>::new(), "no jobs any more");
    while !desk.sync().leaving {
        desk.answer([]);
    }
    assert_eq!(desk.sync().returned.len() + desk.sync().finished.len(), 0, "everything was said before");
    desk.answer([]);
    assert_eq!(desk.exit(), Some(Ok(RunnerExit::Stopped)));
}

// J12
#[test]
fn they_are_skipped_offline_and_in_a_hurry() {
    let away = || LinkError::Unreachable("gone".to_owned());
    let mut desk = AgentHarness::new(1);
    desk.fail(away()).handle(Event::Stop);
    desk.later(Duration::from_millis(200));
    assert!(desk.sync().leaving, "offline before it came to that");

    let mut desk = AgentHarness::new(1);
    desk.answer([]).handle(Event::Stop);
    assert!(desk.sync().completing);
    desk.fail(away()).later(Duration::from_millis(200));
    assert!(desk.sync().leaving, "offline meanwhile");

    let mut desk = AgentHarness::new(1);
    desk.answer([]).handle(Event::Stop);
    desk.give([task(7, LeaseRole::Action)]);
    desk.started(7).handle(Event::StopNow);
    assert_eq!(desk.terminated(), [(7, 9, 0)]);
    desk.handle(Event::Ended(Box::new(ended(7, Outcome::Signaled(9), desk.now))));
    if !desk.has_sync() {
        desk.answer([]);
    }
    assert!(desk.sync().leaving);
    assert_eq!(desk.sync().finished[0].cause, Some(Cause::Stopped), "that says nothing about the commands");
}
