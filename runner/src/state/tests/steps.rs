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
