//! Jobs that become steps of an allocation.

use torc_api::execution::{ExecutionConfig, ExecutionMode};

use super::*;

fn allocation(nodes: &[&str]) -> Option<Allocation> {
    Some(Allocation {
        job_id: "77".to_owned(),
        srun: "srun".to_owned(),
        nodes: nodes.iter().map(|name| (*name).to_owned()).collect(),
    })
}

/// A desk in an allocation of two nodes, with half an hour left.
fn desk() -> Desk {
    let began = Moment(1_000 * SECOND);
    let capacity = Resources { cpus: 8, memory_bytes: 8 << 30, gpus: 0, nodes: 2 };
    Desk::with(Settings {
        capacity,
        allocation: allocation(&["n1", "n2"]),
        time: Some((began, began.plus(Duration::from_secs(1_800)))),
        ..settings(8)
    })
}

fn line(desk: &Desk) -> String {
    let order = desk.effects.iter().find_map(|effect| match effect {
        Effect::Start(order, _) => Some(order.argv.join(" ")),
        _ => None,
    });
    order.unwrap_or_else(|| panic!("no start in {:?}", desk.effects))
}

// X01, X09, X10, X12, S01, S04, S05
#[test]
fn a_job_in_an_allocation_becomes_a_step() {
    let mut desk = desk();
    desk.profile.resources = Resources { cpus: 2, memory_bytes: 512 << 20, gpus: 0, nodes: 1 };
    desk.answer([1]);
    assert_eq!(
        line(&desk),
        "srun --jobid=77 --ntasks=1 --exact --job-name=wf1_j1_r1_a1 --nodes=1 --cpus-per-task=2 --mem=512M --time=29 \
         --cpu-bind=none --nodelist=n1 bash -c true"
    );
}

// X11, X14, S02, S06
#[test]
fn the_workflows_settings_reach_srun() {
    let mut desk = desk();
    desk.profile.unlimited = true;
    desk.profile.execution_config = Some(ExecutionConfig {
        mode: Some(ExecutionMode::Slurm),
        srun_termination_signal: Some("TERM@120".to_owned()),
        enable_cpu_bind: Some(true),
        sigkill_headroom_seconds: Some(300),
        ..ExecutionConfig::default()
    });
    desk.answer([1]);
    assert_eq!(
        line(&desk),
        "srun --jobid=77 --ntasks=1 --exact --job-name=wf1_j1_r1_a1 --nodes=1 --time=25 --signal=TERM@120 --nodelist=n1 \
         bash -c true"
    );
}

/// The first order, and what it has in common with others.
fn order(desk: &Desk) -> (&StartOrder, &Template) {
    let order = desk.effects.iter().find_map(|effect| match effect {
        Effect::Start(order, template) => Some((&**order, &**template)),
        _ => None,
    });
    order.unwrap_or_else(|| panic!("no start in {:?}", desk.effects))
}

// X04, X09. Inside a step Slurm says which devices are visible; what the allocation's own options would add is taken away.
#[test]
fn what_a_step_finds_in_its_environment() {
    let direct = Some(ExecutionConfig { mode: Some(ExecutionMode::Direct), ..ExecutionConfig::default() });
    let none = Some("none");
    for (config, gpus, devices, gres) in
        [(None, 1, None, None), (None, 0, None, none), (direct.clone(), 1, Some("5"), None), (direct, 0, None, None)]
    {
        let mut desk = Desk::with(Settings {
            capacity: Resources { gpus: 1, ..settings(4).capacity },
            devices: vec!["5".to_owned()],
            allocation: allocation(&[]),
            ..settings(4)
        });
        let in_step = config.is_none();
        desk.profile.execution_config = config;
        desk.profile.resources.gpus = gpus;
        desk.answer([1]);
        let (order, template) = order(&desk);
        let value = |env: &[(String, String)], name: &str| env.iter().find(|(known, _)| known == name).cloned();
        let seen = |env, name| value(env, name).map(|(_, value)| value);
        assert_eq!(seen(&order.env, "CUDA_VISIBLE_DEVICES").as_deref(), devices, "in a step: {in_step}, {gpus}");
        assert_eq!(seen(&template.env, "SLURM_STEP_GRES").as_deref(), gres, "in a step: {in_step}, {gpus}");
        for name in ["SLURM_CPUS_PER_TASK", "SLURM_MEM_PER_NODE", "SLURM_GPUS_PER_NODE"] {
            assert_eq!(template.unset.contains(&name.to_owned()), in_step, "{name} in a step: {in_step}");
        }
    }
}

// X11, X17. The early warning of a step is Slurm's; `srun` itself ends its step on SIGTERM.
#[test]
fn a_step_is_asked_to_end_by_sigterm_whatever_direct_jobs_get() {
    let config = |mode| ExecutionConfig {
        mode: Some(mode),
        termination_signal: Some("SIGINT".to_owned()),
        ..ExecutionConfig::default()
    };
    for (mode, signal) in [(ExecutionMode::Auto, 15), (ExecutionMode::Direct, 2)] {
        let mut desk = desk();
        desk.profile.execution_config = Some(config(mode));
        desk.answer([1]);
        desk.started(1).handle(Event::Stop);
        assert_eq!(desk.terminated(), [(1, signal, 30_000)], "{mode:?}");
    }
}

// X01
#[test]
fn direct_is_direct_also_in_an_allocation() {
    for config in [
        ExecutionConfig { mode: Some(ExecutionMode::Direct), ..ExecutionConfig::default() },
        ExecutionConfig { limit_resources: Some(false), ..ExecutionConfig::default() },
    ] {
        let mut desk = desk();
        desk.profile.execution_config = Some(config);
        desk.answer([1]);
        assert_eq!(line(&desk), "true");
    }
}

// X01
#[test]
fn a_workflow_that_asks_for_steps_where_there_are_none_is_told_of() {
    let mut desk = Desk::new(1);
    desk.profile.execution_config =
        Some(ExecutionConfig { mode: Some(ExecutionMode::Slurm), ..ExecutionConfig::default() });
    desk.answer([1]);
    assert_eq!(line(&desk), "true");
    let told = |effect: &Effect| matches!(effect, Effect::Tell(RunnerEvent::Problem { message }) if message.contains("mode slurm"));
    assert!(desk.effects.iter().any(told), "{:?}", desk.effects);
}

// J06
#[test]
fn direct_jobs_stay_on_the_runners_own_node() {
    let mut desk = desk();
    desk.profile.execution_config =
        Some(ExecutionConfig { mode: Some(ExecutionMode::Direct), ..ExecutionConfig::default() });
    desk.answer(1..=8);
    assert_eq!(desk.starts(), [1, 2, 3, 4], "four CPUs are here, and four on a node where nothing would be started");
    let mut desk = self::desk();
    desk.answer(1..=8);
    assert_eq!(desk.starts(), [1, 2, 3, 4, 5, 6, 7, 8], "steps go to both");
}

// S03
#[test]
fn several_nodes_are_owned_and_told() {
    let mut desk = desk();
    desk.profile.resources.nodes = 2;
    desk.answer([1, 2]);
    let Some(Effect::Start(order, _)) = desk.effects.iter().find(|effect| matches!(effect, Effect::Start(..))) else {
        panic!("no start in {:?}", desk.effects);
    };
    assert!(order.env.contains(&("TORC_NODELIST".to_owned(), "n1,n2".to_owned())), "{:?}", order.env);
    assert_eq!(order.nodes, ["n1", "n2"]);
    assert_eq!(desk.starts(), [1], "nothing beside it");
}

// X10, S05
#[test]
fn a_step_needs_a_whole_minute() {
    for (later, starts) in [(1_679_999, 1), (1_680_001, 0)] {
        let mut desk = desk();
        desk.later(Duration::from_millis(later));
        if desk.has_sync() {
            desk.answer([1]);
        }
        assert_eq!(desk.starts().len(), starts, "{later} ms");
    }
}

// X10, X12, X16
#[test]
fn what_slurm_did_is_told_from_time_and_code() {
    let minute = 60_000;
    let cases = [
        (0, minute, 0, None),
        (1, minute - 2_000, 1, Some(Cause::ExitCode)),
        (137, minute - 2_000, 137, Some(Cause::OutOfMemory)),
        (143, minute, 152, Some(Cause::Timeout)),
        (137, minute + 30_000, 152, Some(Cause::Timeout)),
        (143, minute - 2_000, 143, Some(Cause::ExitCode)),
    ];
    for (code, ran_ms, reported, cause) in cases {
        let mut desk = desk();
        desk.answer([1]);
        desk.started(1);
        let mut ended = ended(1, Outcome::Exited(code), desk.now);
        ended.started = desk.now.minus(Duration::from_millis(ran_ms));
        ended.step_limit_ms = Some(60_000);
        desk.handle(Event::Ended(Box::new(ended)));
        let report = &desk.state.reports[&key(1)].finished;
        assert_eq!((report.return_code, report.cause), (reported, cause), "{code} after {ran_ms} ms");
    }
}

#[test]
fn at_the_very_end_srun_is_asked_to_end() {
    let mut desk = desk();
    let began = desk.now;
    desk.answer([1]);
    desk.started(1);
    while desk.terminated().is_empty() {
        if desk.has_sync() {
            desk.answer([]);
        } else {
            desk.until_due();
        }
    }
    assert_eq!(desk.now.since(began), Duration::from_secs(1_800 - 30));
    assert_eq!(desk.terminated(), [(1, 15, 15_000)]);
}
