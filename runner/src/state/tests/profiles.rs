//! Conversion of profiles to the shim's templates: every field, with a value of its own.

use std::collections::BTreeMap;

use torc_api::execution::{
    ExecutionConfig, ExecutionMode, Granularity, MonitorScope, ResourceMonitor, Stdio, StdioMode,
};
use torc_api::wire::LeaseRole;

use super::*;
use crate::protocol::StartTemplate;

fn in_allocation() -> Option<StepAllocation> {
    Some(StepAllocation { job_id: "77".to_owned(), srun: "/bin/srun".to_owned(), nodes: vec!["n1".to_owned()] })
}

/// Returns a profile in which every field differs from its default and from other fields.
fn full(mode: ExecutionMode) -> Profile {
    Profile {
        resources: Resources { cpus: 3, memory_bytes: 5 << 20, gpus: 0, nodes: 0 },
        runtime_seconds: 71,
        unlimited: false,
        workflow_name: "w".to_owned(),
        working_dir: "/work".to_owned(),
        env: BTreeMap::from([("OWN".to_owned(), "1".to_owned()), ("TORC_WORKFLOW_ID".to_owned(), "9".to_owned())]),
        invocation_script: Some("nice -n 3".to_owned()),
        stdio: None,
        input_files: vec!["in".to_owned()],
        hash_large_files: true,
        output_files: vec!["out".to_owned()],
        execution_config: Some(ExecutionConfig {
            mode: Some(mode),
            sigkill_headroom_seconds: Some(17),
            timeout_exit_code: Some(101),
            staggered_start: None,
            stdio: Some(Stdio { mode: Some(StdioMode::Combined), delete_on_success: Some(true) }),
            limit_resources: None,
            termination_signal: Some("SIGUSR1".to_owned()),
            sigterm_lead_seconds: Some(13),
            oom_exit_code: Some(102),
            srun_termination_signal: Some("INT@40".to_owned()),
            enable_cpu_bind: Some(true),
            srun_mpi: None,
            enforce_runtime: Some(true),
        }),
        resource_monitor: Some(ResourceMonitor {
            sample_interval_seconds: Some(4),
            flush_interval_seconds: Some(6),
            generate_plots: Some(true),
            jobs: Some(MonitorScope {
                enabled: Some(true),
                granularity: Some(Granularity::TimeSeries),
                ..MonitorScope::default()
            }),
            ..ResourceMonitor::default()
        }),
        tasks_per_node: Some(2),
    }
}

fn started(settings: AgentSettings, profile: Profile, lease: Lease) -> (StartOrder, StartTemplate) {
    let mut agent = AgentHarness::with(settings);
    agent.profile = profile;
    let key = lease.key;
    agent.respond(SyncResponse { leases: vec![lease], ..SyncResponse::default() });
    if agent.starts().is_empty() {
        agent.handle(AgentEvent::InputsChecked(key, Ok(Vec::new())));
    }
    let found = agent.effects.iter().find_map(|effect| match effect {
        Effect::Start(order, template) => Some(((**order).clone(), (**template).clone())),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("no start in {:?}", agent.effects))
}

fn with_server() -> AgentSettings {
    AgentSettings {
        api_url: Some("http://server".to_owned()),
        server_file: Some("/state/server.json".to_owned()),
        ..settings(8)
    }
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

// X02, X05, X06, X08, X16, X17, J22
#[test]
fn every_field_of_a_profile_reaches_the_shim() {
    let profile = full(ExecutionMode::Direct);
    let monitor = profile.resource_monitor.clone().expect("set").plan();
    let (order, template) = started(with_server(), profile, lease(4));
    let expected = StartTemplate {
        id: 1,
        working_dir: "/work".to_owned(),
        env: pairs(&[
            ("OWN", "1"),
            ("TORC_WORKFLOW_ID", "9"),
            ("TORC_API_URL", "http://server"),
            ("TORC_TOKEN_FILE", "/state/tokens/wf1"),
            ("TORC_SERVER_FILE", "/state/server.json"),
            ("TORC_WORKFLOW_ID", "1"),
            ("TORC_OUTPUT_DIR", "/out"),
            ("TORC_WORKFLOW_SUBMISSION_DIR", "/work"),
        ]),
        unset: vec!["TORC_TOKEN".to_owned()],
        log_dir: "/out/job_stdio".to_owned(),
        stdio: StdioMode::Combined,
        resources: Resources { cpus: 3, memory_bytes: 5 << 20, gpus: 0, nodes: 1 },
        runtime_seconds: 71,
        enforce_runtime: true,
        input_files: vec!["in".to_owned()],
        output_files: vec!["out".to_owned()],
        hash_large_files: true,
        delete_on_success: true,
        signal: 10,
        lead_ms: 13_000,
        headroom_ms: 17_000,
        timeout_exit_code: 101,
        in_step: false,
        warning: None,
        monitor,
        memory_limit_bytes: Some(5 << 20),
        oom_exit_code: 102,
    };
    assert_eq!(template, expected);
    assert_eq!(order.argv, ["nice", "-n", "3", "true"]);
}

// X06
#[test]
fn a_profile_that_says_nothing_has_the_defaults() {
    let bare = Profile { runtime_seconds: 1, resources: profile(2).resources, ..Profile::default() };
    let (order, template) = started(settings(4), bare, lease(4));
    let expected = StartTemplate {
        resources: profile(2).resources,
        runtime_seconds: 1,
        memory_limit_bytes: Some(1 << 20),
        env: template.env.clone(),
        ..StartTemplate { id: 1, ..template.clone() }
    };
    assert_eq!(template, expected);
    let StartTemplate { signal, lead_ms, headroom_ms, timeout_exit_code, oom_exit_code, .. } = template;
    let defaults = (signal, lead_ms, headroom_ms, timeout_exit_code, oom_exit_code);
    assert_eq!(defaults, (15, 30_000, 60_000, 152, 137), "SIGTERM, 30 s, 60 s, 152, 137");
    assert_eq!((template.stdio, template.working_dir.as_str()), (StdioMode::Separate, "/here"));
    let names: Vec<&str> = template.env.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["TORC_WORKFLOW_ID", "TORC_OUTPUT_DIR", "TORC_WORKFLOW_SUBMISSION_DIR"], "there is no server");
    assert_eq!(order.argv, ["true"]);
}

// X09, X11, X12, S01, S02, S04, S06
#[test]
fn a_step_differs_from_a_direct_job_in_these_fields() {
    let settings = AgentSettings { allocation: in_allocation(), ..with_server() };
    let (order, step) = started(settings, full(ExecutionMode::Slurm), lease(4));
    let (_, direct) = started(with_server(), full(ExecutionMode::Direct), lease(4));
    let expected = StartTemplate {
        in_step: true,
        signal: 15,
        warning: Some("INT@40".to_owned()),
        memory_limit_bytes: None,
        env: step.env.clone(),
        unset: step.unset.clone(),
        ..direct.clone()
    };
    assert_eq!(step, expected, "Slurm limits memory; srun ends its step on SIGTERM");
    let added: Vec<_> = step.env.iter().filter(|pair| !direct.env.contains(pair)).cloned().collect();
    assert_eq!(added, pairs(&[("SLURM_STEP_GRES", "none")]), "a step without GPUs has none");
    assert!(step.unset.len() > 1 && step.unset[0] == "TORC_TOKEN", "{:?}", step.unset);
    assert_eq!(
        order.argv.join(" "),
        "/bin/srun --jobid=77 --ntasks=2 --ntasks-per-node=2 --exact --job-name=wf1_j4_r1_a1 --nodes=1 \
         --cpus-per-task=1 --mem=5M --signal=INT@40 --nodelist=n1 bash -c nice -n 3 true"
    );
    assert_eq!(order.step_limit_ms, None, "time has no end here");
}

// J22. The job's setting for its outputs overrides the workflow's.
#[test]
fn the_stdio_of_a_job_counts_before_its_workflows() {
    let own = Stdio { mode: Some(StdioMode::NoStderr), delete_on_success: None };
    let profile = Profile { stdio: Some(own), ..full(ExecutionMode::Direct) };
    let (_, template) = started(settings(4), profile, lease(4));
    assert_eq!((template.stdio, template.delete_on_success), (StdioMode::NoStderr, false));
}

// X04, X05
#[test]
fn an_auxiliary_task_has_no_resources_and_short_timeouts() {
    let cases = [
        ((13, 17), (5_000, 10_000), "never longer than these"),
        ((2, 3), (2_000, 3_000), "what the workflow says, where that is shorter"),
        ((5, 10), (5_000, 10_000), "just these"),
    ];
    for ((lead, headroom), expected, why) in cases {
        let mut profile = full(ExecutionMode::Slurm);
        let config = profile.execution_config.as_mut().expect("set");
        (config.sigterm_lead_seconds, config.sigkill_headroom_seconds) = (Some(lead), Some(headroom));
        let settings = AgentSettings { allocation: in_allocation(), ..with_server() };
        let task = Lease { role: LeaseRole::Recovery, ..lease_of(4) };
        let (order, template) = started(settings, profile, task);
        assert_eq!((template.lead_ms, template.headroom_ms), expected, "{why}");
        assert_eq!((template.resources, template.in_step, template.signal), (Resources::default(), false, 10), "{why}");
        assert_eq!(order.argv, ["true"], "{why}: neither a step nor behind the script");
        assert_eq!((order.role, order.class, order.in_turn), (LeaseRole::Recovery, u32::MAX, false), "{why}");
    }
}

fn lease_of(job: i64) -> Lease {
    lease(job)
}

#[test]
fn equal_profiles_share_a_template_and_others_do_not() {
    let launch = |state: &mut State, workflow, profile: &Profile| {
        let settings = state.settings.clone();
        let launch = state.profiles.of(workflow, profile, &settings);
        (launch.template.id, launch.class)
    };
    let mut agent = AgentHarness::new(4);
    let state = &mut agent.state;
    let other_name = Profile { working_dir: "/else".to_owned(), ..profile(1) };
    assert_eq!(launch(state, 1, &profile(1)), (1, 0));
    assert_eq!(launch(state, 1, &profile(1)), (1, 0), "the same");
    assert_eq!(launch(state, 2, &profile(1)), (2, 0), "another workflow, the same resources");
    assert_eq!(launch(state, 1, &other_name), (3, 0), "another folder, the same resources");
    assert_eq!(launch(state, 1, &profile(2)), (4, 1), "other resources");
    assert_eq!(launch(state, 1, &profile(1)), (1, 0), "still the first");
    let settings = state.settings.clone();
    let task = state.profiles.of_task(1, &profile(1), &settings);
    assert_eq!((task.template.id, task.class), (5, u32::MAX), "an task is no job");
    assert_eq!(state.profiles.of_task(1, &profile(1), &settings).template.id, 5);
    assert_eq!(state.profiles.of_task(2, &profile(1), &settings).template.id, 6);
}

// S04. Steps may run on any node, so no local job follows them.
#[test]
fn steps_and_direct_jobs_are_of_different_classes() {
    let mut agent = AgentHarness::with(AgentSettings { allocation: in_allocation(), ..settings(4) });
    let settings = agent.state.settings.clone();
    let mut class = |mode| {
        let config = ExecutionConfig { mode: Some(mode), ..ExecutionConfig::default() };
        let profile = Profile { execution_config: Some(config), ..profile(1) };
        agent.state.profiles.of(1, &profile, &settings).class
    };
    assert_eq!([class(ExecutionMode::Slurm), class(ExecutionMode::Direct), class(ExecutionMode::Auto)], [0, 1, 0]);
}

// X01, X15, X18. The log has one line about each new workflow.
#[test]
fn a_workflow_is_introduced_once_with_mode_and_limits() {
    use ExecutionMode::{Auto, Direct, Slurm};
    let cases = [
        (false, None, None, "Direct", true, 0),
        (false, Some(Direct), Some(false), "Direct", false, 0),
        (false, Some(Slurm), None, "Direct", true, 1),
        (true, Some(Auto), None, "Slurm", true, 0),
        (true, Some(Auto), Some(false), "Direct", false, 0),
        (true, Some(Slurm), None, "Slurm", true, 0),
        (true, Some(Direct), Some(true), "Direct", true, 0),
    ];
    for (is_in_allocation, mode, limit_resources, shown, limits, problems) in cases {
        let allocation = in_allocation().filter(|_| is_in_allocation);
        let mut agent = AgentHarness::with(AgentSettings { allocation, ..settings(6) });
        let config = ExecutionConfig { mode, limit_resources, ..ExecutionConfig::default() };
        agent.profile.execution_config = Some(config);
        let of = |workflow, job| Lease { key: AttemptKey { workflow, run: 40, ..key(job) }, ..lease_of(job) };
        let mut seen = Vec::new();
        let mut observed = 0;
        for leases in [vec![of(7, 1), of(7, 2)], vec![of(7, 3)], vec![of(8, 4)]] {
            while !agent.has_sync() {
                agent.until_due();
            }
            agent.respond(SyncResponse { leases, ..SyncResponse::default() });
            for effect in &agent.effects {
                match effect {
                    Effect::Log(RunnerEvent::Serving { workflow, run, mode, limit_resources, capacity }) => {
                        seen.push((*workflow, *run, mode.to_string(), *limit_resources, capacity.cpus));
                    }
                    Effect::Log(RunnerEvent::Problem { .. }) => observed += 1,
                    _ => {}
                }
            }
        }
        let line = |workflow| (workflow, 40, shown.to_owned(), limits, 6);
        assert_eq!(seen, [line(7), line(8)], "{is_in_allocation} {mode:?} {limit_resources:?}");
        assert_eq!(observed, problems * 2, "{is_in_allocation} {mode:?}: once for each workflow");
    }
}
