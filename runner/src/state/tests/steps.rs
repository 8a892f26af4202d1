//! Jobs that become steps of an allocation.

use torc_api::execution::{ExecutionConfig, ExecutionMode};
use torc_slurm::error::SlurmError;
use torc_slurm::sacct::StepAccount;
use torc_slurm::sstat::Sample;

use super::*;
use crate::series::Measurement;

mod accounting;
mod allocation;
mod nodes;
mod time;

fn allocation(nodes: &[&str]) -> Option<StepAllocation> {
    Some(StepAllocation {
        job_id: "77".to_owned(),
        srun: "srun".to_owned(),
        nodes: nodes.iter().map(|name| (*name).to_owned()).collect(),
    })
}

fn set_step_limit(agent: &mut AgentHarness, milliseconds: u64) {
    let step = agent.state.jobs.step_mut(&key(1)).expect("job 1");
    step.limit = Some(Duration::from_millis(milliseconds));
}

fn steps_are_due(agent: &mut AgentHarness, every: u32) -> bool {
    agent.state.steps.measure(&agent.state.jobs, every)
}

/// Returns an agent in an allocation of two nodes, with half an hour left.
fn agent() -> AgentHarness {
    let began = BootInstant(1_000 * SECOND);
    let capacity = Resources { cpus: 8, memory_bytes: 8 << 30, gpus: 0, nodes: 2 };
    AgentHarness::with(AgentSettings {
        capacity,
        allocation: allocation(&["n1", "n2"]),
        time: Some(TimeSpan { began, end: began.plus(Duration::from_secs(1_800)) }),
        ..settings(8)
    })
}

fn line(agent: &AgentHarness) -> String {
    let order = agent.effects.iter().find_map(|effect| match effect {
        Effect::Start(order, _) => Some(order.argv.join(" ")),
        _ => None,
    });
    order.unwrap_or_else(|| panic!("no start in {:?}", agent.effects))
}

// X01, X09, X10, X12, S01, S02, S04, S05
#[test]
fn a_job_in_an_allocation_becomes_a_step() {
    let mut agent = agent();
    agent.profile.resources = Resources { cpus: 2, memory_bytes: 512 << 20, gpus: 0, nodes: 1 };
    agent.answer([1]);
    assert_eq!(
        line(&agent),
        "srun --jobid=77 --ntasks=1 --exact --job-name=wf1_j1_r1_a1 --nodes=1 --cpus-per-task=2 --mem=512M --time=29 \
         --cpu-bind=none --nodelist=n1 bash -c true"
    );
    let (order, _) = order(&agent);
    assert_eq!(order.step_limit_ms, Some(29 * 60_000), "the next agent knows the limit of the step");
}

// X11, X14, S02, S06
#[test]
fn the_workflows_settings_reach_srun() {
    let mut agent = agent();
    agent.profile.unlimited = true;
    agent.profile.execution_config = Some(ExecutionConfig {
        mode: Some(ExecutionMode::Slurm),
        srun_termination_signal: Some("TERM@120".to_owned()),
        enable_cpu_bind: Some(true),
        sigkill_headroom_seconds: Some(300),
        ..ExecutionConfig::default()
    });
    agent.answer([1]);
    assert_eq!(
        line(&agent),
        "srun --jobid=77 --ntasks=1 --exact --job-name=wf1_j1_r1_a1 --nodes=1 --time=25 --signal=TERM@120 --nodelist=n1 \
         bash -c true"
    );
}

/// Returns the first order and its template.
fn order(agent: &AgentHarness) -> (&StartOrder, &StartTemplate) {
    let order = agent.effects.iter().find_map(|effect| match effect {
        Effect::Start(order, template) => Some((&**order, &**template)),
        _ => None,
    });
    order.unwrap_or_else(|| panic!("no start in {:?}", agent.effects))
}

// X04, X09, S04. Slurm sets the visible devices of a step. Inherited options of the allocation are removed.
#[test]
fn what_a_step_finds_in_its_environment() {
    let direct = Some(ExecutionConfig { mode: Some(ExecutionMode::Direct), ..ExecutionConfig::default() });
    let none = Some("none");
    for (config, gpus, devices, gres) in
        [(None, 1, None, None), (None, 0, None, none), (direct.clone(), 1, Some("5"), None), (direct, 0, None, None)]
    {
        let mut agent = AgentHarness::with(AgentSettings {
            capacity: Resources { gpus: 1, ..settings(4).capacity },
            devices: vec!["5".to_owned()],
            allocation: allocation(&[]),
            ..settings(4)
        });
        let in_step = config.is_none();
        agent.profile.execution_config = config;
        agent.profile.resources.gpus = gpus;
        agent.answer([1]);
        let (order, template) = order(&agent);
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
        let mut agent = agent();
        agent.profile.execution_config = Some(config(mode));
        agent.answer([1]);
        agent.started(1).handle(AgentEvent::Stop);
        assert_eq!(agent.terminated(), [(1, signal, 30_000)], "{mode:?}");
    }
}

// X01
#[test]
fn direct_is_direct_also_in_an_allocation() {
    for config in [
        ExecutionConfig { mode: Some(ExecutionMode::Direct), ..ExecutionConfig::default() },
        ExecutionConfig { limit_resources: Some(false), ..ExecutionConfig::default() },
    ] {
        let mut agent = agent();
        agent.profile.execution_config = Some(config);
        agent.answer([1]);
        assert_eq!(line(&agent), "true");
    }
}

// X01
#[test]
fn mode_slurm_without_an_allocation_is_logged() {
    let mut agent = AgentHarness::new(1);
    agent.profile.execution_config =
        Some(ExecutionConfig { mode: Some(ExecutionMode::Slurm), ..ExecutionConfig::default() });
    agent.answer([1]);
    assert_eq!(line(&agent), "true");
    let observed = |effect: &Effect| matches!(effect, Effect::Log(RunnerEvent::Problem { message }) if message.contains("mode slurm"));
    assert!(agent.effects.iter().any(observed), "{:?}", agent.effects);
}

// J06
#[test]
fn direct_jobs_stay_on_the_runners_own_node() {
    let mut agent = agent();
    agent.profile.execution_config =
        Some(ExecutionConfig { mode: Some(ExecutionMode::Direct), ..ExecutionConfig::default() });
    agent.answer(1..=8);
    assert_eq!(agent.starts(), [1, 2, 3, 4], "four CPUs are here, and four on a node where nothing would be started");
    let mut agent = self::agent();
    agent.answer(1..=8);
    assert_eq!(agent.starts(), [1, 2, 3, 4, 5, 6, 7, 8], "steps go to both");
}

// S03
#[test]
fn several_nodes_are_owned_and_told() {
    let mut agent = agent();
    agent.profile.resources.nodes = 2;
    agent.answer([1, 2]);
    let Some(Effect::Start(order, _)) = agent.effects.iter().find(|effect| matches!(effect, Effect::Start(..))) else {
        panic!("no start in {:?}", agent.effects);
    };
    assert!(order.env.contains(&("TORC_NODELIST".to_owned(), "n1,n2".to_owned())), "{:?}", order.env);
    assert_eq!(order.nodes, ["n1", "n2"]);
    assert_eq!(agent.starts(), [1], "nothing beside it");
    assert!(line(&agent).contains(" --overlap ") && line(&agent).contains(" SLURM_NNODES=2 "), "{}", line(&agent));
    let mut agent = self::agent();
    agent.profile.resources.nodes = 2;
    agent.profile.tasks_per_node = Some(2);
    agent.answer([1]);
    assert!(line(&agent).contains(" --ntasks=4 --ntasks-per-node=2 "), "{}", line(&agent));
    assert!(line(&agent).contains(" --nodes=2 "), "{}", line(&agent));
}

// X10, S05
#[test]
fn a_step_needs_a_whole_minute() {
    for (later, starts) in [(1_679_999, 1), (1_680_001, 0)] {
        let mut agent = agent();
        agent.later(Duration::from_millis(later));
        if agent.has_sync() {
            agent.answer([1]);
        }
        assert_eq!(agent.starts().len(), starts, "{later} ms");
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
        let mut agent = agent();
        agent.answer([1]);
        agent.started(1);
        let mut ended = ended(1, Outcome::Exited(code), agent.now);
        ended.started = agent.now.minus(Duration::from_millis(ran_ms));
        set_step_limit(&mut agent, 60_000);
        agent.handle(AgentEvent::Ended(Box::new(ended)));
        let report = &agent.state.reports[&key(1)].finished;
        assert_eq!((report.return_code, report.cause), (reported, cause), "{code} after {ran_ms} ms");
    }
}

#[test]
fn at_the_very_end_srun_is_asked_to_end() {
    let mut agent = agent();
    let began = agent.now;
    agent.answer([1]);
    agent.started(1);
    while agent.terminated().is_empty() {
        if agent.has_sync() {
            agent.answer([]);
        } else {
            agent.until_due();
        }
    }
    assert_eq!(agent.now.since(began), Duration::from_secs(1_800 - 30));
    assert_eq!(agent.terminated(), [(1, 15, 15_000)]);
}

/// Returns the queries to Slurm.
fn queries(agent: &AgentHarness) -> Vec<SlurmQuery> {
    let asked = agent.effects.iter().filter_map(|effect| match effect {
        Effect::QuerySlurm(query) => Some(query.clone()),
        _ => None,
    });
    asked.collect()
}

impl AgentHarness {
    fn slurm_says(&mut self, answer: SlurmAnswer) -> &mut Self {
        self.handle(AgentEvent::SlurmAnswered(Box::new(answer)))
    }

    /// Answers the server until Slurm gets a query, and returns it.
    fn until_asked(&mut self) -> Vec<SlurmQuery> {
        for _ in 0..200 {
            let asked = queries(self);
            if !asked.is_empty() {
                self.effects.clear();
                return asked;
            }
            if self.has_sync() {
                self.answer([]);
            } else {
                self.until_due();
            }
        }
        panic!("Slurm is never asked");
    }

    /// Returns the jobs of the next sync, with code and cause.
    fn reported(&mut self) -> Vec<(i64, i32, Option<Cause>)> {
        if !self.has_sync() {
            self.later(Duration::from_millis(100));
        }
        let finished = self.sync().finished.iter();
        finished.map(|finished| (finished.key.job, finished.return_code, finished.cause)).collect()
    }
}

fn account(job: i64, state: &str, kibibytes: Option<i64>) -> (String, StepAccount) {
    let name = key(job).label();
    let memory = kibibytes.map_or(String::new(), |amount| format!("{amount}K"));
    let steps = torc_slurm::sacct::read_steps(&format!("{name}|{memory}|||||n1|{state}\n"));
    steps.into_iter().next().expect("one step")
}

fn accounts<const N: usize>(found: [(String, StepAccount); N]) -> SlurmAnswer {
    SlurmAnswer::Accounts(Ok(found.into()), Duration::from_millis(20))
}

fn measured(agent: &mut AgentHarness) {
    agent.profile.resource_monitor = Some(torc_api::execution::ResourceMonitor {
        enabled: Some(true),
        sample_interval_seconds: Some(10),
        ..Default::default()
    });
}

/// Returns the queries about running steps.
fn looks(agent: &mut AgentHarness) -> Vec<SlurmQuery> {
    for _ in 0..100 {
        let asked = agent.until_asked();
        match asked.as_slice() {
            [SlurmQuery::TimeLeft] => agent.slurm_says(SlurmAnswer::TimeLeft(None)),
            [SlurmQuery::Preemption] => agent.slurm_says(SlurmAnswer::Preemption(None)),
            _ => return asked,
        };
    }
    panic!("no query about steps");
}

// S07, S08
#[test]
fn one_query_finds_all_new_steps_and_one_measures_them() {
    let mut agent = agent();
    measured(&mut agent);
    agent.answer([1, 2, 3]);
    agent.started(1).started(2).started(3);
    assert_eq!(looks(&mut agent), [SlurmQuery::StepNumbers]);
    let named = |job: i64, number| (key(job).label(), number);
    agent.slurm_says(SlurmAnswer::StepNumbers(vec![named(1, 0), named(2, 1)]));
    let began = agent.now;
    // The third step is looked up five times, 200 ms apart, and is never measured.
    for _ in 0..4 {
        assert_eq!(looks(&mut agent), [SlurmQuery::StepNumbers]);
        agent.slurm_says(SlurmAnswer::StepNumbers(vec![named(1, 0), named(2, 1)]));
    }
    assert_eq!(agent.now.since(began), Duration::from_millis(800));
    assert_eq!(queries(&agent), [SlurmQuery::StepUsage(vec![0, 1])]);
    let sample =
        |step, cpu, mebibytes: i64| Sample { step, cpu_seconds: Some(cpu), memory_bytes: Some(mebibytes << 20) };
    agent.effects.clear();
    agent.slurm_says(SlurmAnswer::StepUsage(agent.now, vec![sample(0, 100.0, 50), sample(1, 1.0, 5)]));
    assert_eq!(looks(&mut agent), [SlurmQuery::StepUsage(vec![0, 1])], "numbers are known from now on");
    let later = agent.now.plus(Duration::from_secs(10));
    agent.now = later;
    agent.slurm_says(SlurmAnswer::StepUsage(later, vec![sample(0, 115.0, 40)]));
    assert_eq!(series(&agent), [], "a summary is all that was asked for");
    agent.ended(1, 0);
    let usage = agent.state.reports[&key(1)].finished.usage.expect("measured");
    assert_eq!(usage.peak_memory_bytes, Some(50 << 20));
    let percent = usage.peak_cpu_percent.expect("two samples");
    assert!((70.0..=150.0).contains(&percent), "{percent}: the difference, and not the average since the start");
    agent.ended(3, 0);
    assert_eq!(agent.state.reports[&key(3)].finished.usage, None);
}

/// Returns the recorded samples of running jobs: job and memory.
fn series(agent: &AgentHarness) -> Vec<(i64, i64)> {
    let records = agent.effects.iter().filter_map(|effect| match effect {
        Effect::Record(records) => Some(records),
        _ => None,
    });
    let samples = records.flatten().filter_map(|record| match &record.measurement {
        Measurement::JobSample { key, point, .. } => Some((key.job, point.memory_bytes)),
        _ => None,
    });
    samples.collect()
}

// S08
#[test]
fn a_time_series_has_every_sample_but_the_first() {
    let mut agent = agent();
    measured(&mut agent);
    let monitor = agent.profile.resource_monitor.as_mut().expect("measured");
    monitor.granularity = Some(torc_api::execution::Granularity::TimeSeries);
    agent.answer([1]);
    agent.started(1);
    assert_eq!(looks(&mut agent), [SlurmQuery::StepNumbers]);
    agent.slurm_says(SlurmAnswer::StepNumbers(vec![(key(1).label(), 4)]));
    let began = agent.now;
    for seconds in 0..3_i64 {
        agent.effects.clear();
        let sample = Sample { step: 4, cpu_seconds: Some(seconds as f64), memory_bytes: Some(seconds << 20) };
        let at = began.plus(Duration::from_secs(seconds.unsigned_abs()));
        agent.slurm_says(SlurmAnswer::StepUsage(at, vec![sample]));
        let expected = if seconds == 0 { vec![] } else { vec![(1, seconds << 20)] };
        assert_eq!(series(&agent), expected, "{seconds}");
    }
}

// S08. Only measured jobs are queried, each at its own interval.
#[test]
fn a_job_that_is_not_measured_costs_no_question() {
    let mut agent = agent();
    let off = torc_api::execution::ResourceMonitor { enabled: Some(false), ..Default::default() };
    agent.profile.resource_monitor = Some(off);
    agent.answer([1]);
    agent.started(1);
    assert!(!steps_are_due(&mut agent, 10));
    let mut agent = self::agent();
    measured(&mut agent);
    agent.answer([1]);
    agent.started(1);
    assert_eq!([5, 10, 20].map(|every| steps_are_due(&mut agent, every)), [false, true, false]);
}

// S09. A step that ends before its first sample costs no query.
#[test]
fn short_steps_are_not_asked_about_while_they_run() {
    let mut agent = agent();
    measured(&mut agent);
    agent.answer([1]);
    agent.started(1).ended(1, 0);
    assert!(matches!(looks(&mut agent).as_slice(), [SlurmQuery::Accounts(_)]));
    // The same holds for one that ends while its number is looked up.
    let mut agent = self::agent();
    measured(&mut agent);
    agent.answer([1]);
    agent.started(1);
    assert_eq!(looks(&mut agent), [SlurmQuery::StepNumbers]);
    agent.ended(1, 0);
    agent.slurm_says(SlurmAnswer::StepNumbers(Vec::new()));
    assert!(matches!(looks(&mut agent).as_slice(), [SlurmQuery::Accounts(_)]));
    // The same holds for a failed one, which is kept until the accounting tells the cause.
    for number in [None, Some(4)] {
        let mut agent = self::agent();
        measured(&mut agent);
        agent.answer([1]);
        agent.started(1);
        assert_eq!(looks(&mut agent), [SlurmQuery::StepNumbers]);
        agent.ended(1, 3);
        let numbers = number.map(|number| (key(1).label(), number));
        agent.slurm_says(SlurmAnswer::StepNumbers(numbers.into_iter().collect()));
        for _ in 0..20 {
            if agent.has_sync() {
                agent.answer([]);
            } else {
                agent.until_due();
            }
            let about_running = |one: &SlurmQuery| matches!(one, SlurmQuery::StepNumbers | SlurmQuery::StepUsage(_));
            assert!(!queries(&agent).iter().any(about_running), "{:?}", queries(&agent));
        }
    }
}

// S10, S11
#[test]
fn a_success_is_reported_at_once_and_its_account_follows() {
    let mut agent = agent();
    agent.answer([1, 2]);
    agent.started(1).started(2);
    for job in [1, 2] {
        agent.ended(job, 0);
        assert_eq!(agent.reported(), [(job, 0, None)]);
        agent.answer([]);
    }
    assert_eq!(agent.until_asked(), [SlurmQuery::Accounts(Vec::new())], "one question about both");
    agent.slurm_says(accounts([account(1, "COMPLETED", Some(10)), account(2, "RUNNING", Some(5))]));
    let asked_at = agent.now;
    if !agent.has_sync() {
        agent.later(Duration::from_millis(100));
    }
    let stats: Vec<(i64, Option<i64>)> =
        agent.sync().slurm_stats.iter().map(|stats| (stats.job, stats.max_rss_bytes)).collect();
    assert_eq!(stats, [(1, Some(10 << 10))]);
    agent.answer([]);
    assert_eq!(agent.until_asked(), [SlurmQuery::Accounts(Vec::new())], "the other is asked about again");
    assert_eq!(agent.now.since(asked_at), Duration::from_secs(5));
    assert_eq!(agent.state.sacct.unreported().len(), 0, "the server has the first");
}

// S10. A failure is looked up at once. A success is batched, and does not join that query.
#[test]
fn only_what_is_due_is_asked_about() {
    let mut agent = agent();
    measured(&mut agent);
    agent.answer([1, 2]);
    agent.started(1).started(2);
    assert_eq!(looks(&mut agent), [SlurmQuery::StepNumbers]);
    agent.slurm_says(SlurmAnswer::StepNumbers(vec![(key(1).label(), 7), (key(2).label(), 8)]));
    agent.slurm_says(SlurmAnswer::StepUsage(agent.now, Vec::new()));
    agent.effects.clear();
    agent.ended(2, 0).ended(1, 3);
    assert_eq!(queries(&agent), [SlurmQuery::Accounts(vec![7])]);
}

// S10, S19
#[test]
fn after_six_tries_the_runner_leaves_without_accounting_data() {
    let mut agent = agent();
    agent.answer([1]);
    agent.started(1).ended(1, 0);
    let complete = || SyncResponse { directive: RunnerDirective::Complete, ..SyncResponse::default() };
    let mut asked = Vec::new();
    while asked.len() < 6 {
        if agent.has_sync() {
            agent.respond(complete());
            assert_eq!(agent.exit(), None, "it waits for the accounting");
        } else if let Some(query) = queries(&agent).pop() {
            if query == SlurmQuery::TimeLeft {
                agent.slurm_says(SlurmAnswer::TimeLeft(None));
                continue;
            }
            asked.push(agent.now);
            let unheard = SlurmError::NoAnswer { reason: "slow".to_owned(), maybe_delivered: true };
            agent.slurm_says(SlurmAnswer::Accounts(Err(unheard), Duration::ZERO));
        } else {
            agent.until_due();
        }
    }
    assert!(asked.windows(2).all(|pair| pair[1].since(pair[0]) == Duration::from_secs(5)), "{asked:?}");
    assert!(agent.state.sacct.is_settled());
    let stats = agent.state.sacct.unreported().values().next().expect("a row without numbers");
    assert_eq!((stats.slurm_job_id.as_deref(), stats.max_rss_bytes), (Some("77"), None));
}

// S10, S19
#[test]
fn numbers_that_will_not_come_keep_no_allocation() {
    let mut agent = agent();
    agent.answer([1]);
    agent.started(1).ended(1, 0);
    let complete = || SyncResponse { directive: RunnerDirective::Complete, ..SyncResponse::default() };
    agent.respond(complete());
    assert!(matches!(looks(&mut agent).as_slice(), [SlurmQuery::Accounts(_)]));
    assert!(!agent.state.sacct.is_settled(), "it waits for a word of the accounting");
    agent.slurm_says(accounts([account(1, "COMPLETED", None)]));
    while !agent.has_sync() {
        agent.until_due();
    }
    assert!(!agent.state.sacct.is_settled(), "there may be more to do, so numbers are waited for");
    agent.respond(complete());
    assert!(agent.state.sacct.is_settled(), "its word is enough");
    let stats = agent.state.sacct.unreported().values().next().expect("a row without numbers");
    assert_eq!((stats.state.as_deref(), stats.max_rss_bytes), (Some("COMPLETED"), None));
}

// X10, X12, X16, S10, S11, S20
#[test]
fn a_failure_waits_for_the_accounting_which_knows_why() {
    let cases = [
        ("OUT_OF_MEMORY", 1, 137, Cause::OutOfMemory),
        ("TIMEOUT", 143, 152, Cause::Timeout),
        ("NODE_FAIL", 1, 1, Cause::NodeFailure),
        ("PREEMPTED", 143, 143, Cause::Preempted),
        ("CANCELLED by 0", 143, 143, Cause::Lost),
        ("FAILED", 3, 3, Cause::ExitCode),
        ("FAILED", 137, 137, Cause::ExitCode),
    ];
    for (state, code, reported, cause) in cases {
        let mut agent = agent();
        agent.answer([1]);
        agent.started(1).ended(1, code);
        assert!(matches!(looks(&mut agent).as_slice(), [SlurmQuery::Accounts(_)]), "{state}");
        assert_eq!(agent.reported(), [], "{state}: not before the accounting has spoken");
        agent.answer([]);
        agent.slurm_says(accounts([account(1, state, Some(10))]));
        assert_eq!(agent.reported(), [(1, reported, Some(cause))], "{state}");
        let finished = &agent.sync().finished[0];
        assert_eq!(finished.slurm_stats.as_ref().and_then(|stats| stats.max_rss_bytes), Some(10 << 10), "{state}");
        assert_eq!(finished.message.is_some(), cause != Cause::ExitCode, "{state}");
    }
}

// S10, S19
#[test]
fn a_state_without_numbers_is_enough_to_report_a_failure() {
    let mut agent = agent();
    agent.answer([1]);
    agent.started(1).ended(1, 1);
    looks(&mut agent);
    agent.slurm_says(accounts([account(1, "FAILED", None)]));
    assert_eq!(agent.reported(), [(1, 1, Some(Cause::ExitCode))]);
    agent.answer([]);
    looks(&mut agent);
    agent.slurm_says(accounts([account(1, "FAILED", Some(7))]));
    agent.later(Duration::from_millis(100));
    assert_eq!(agent.sync().slurm_stats[0].max_rss_bytes, Some(7 << 10), "the numbers follow");
}

// S10, S20. The next attempt's memory depends on the peak.
#[test]
fn out_of_memory_is_reported_with_its_peak_if_that_comes_soon() {
    for peak in [Some(7), None] {
        let mut agent = agent();
        agent.answer([1]);
        agent.started(1).ended(1, 1);
        looks(&mut agent);
        assert_eq!(agent.reported(), []);
        agent.answer([]);
        agent.slurm_says(accounts([account(1, "OUT_OF_MEMORY", None)]));
        assert!(agent.state.jobs.contains_key(&key(1)), "its report waits");
        looks(&mut agent);
        agent.slurm_says(accounts([account(1, "OUT_OF_MEMORY", peak)]));
        assert_eq!(agent.reported(), [(1, 137, Some(Cause::OutOfMemory))], "{peak:?}");
        let found = agent.sync().finished[0].slurm_stats.as_ref().and_then(|stats| stats.max_rss_bytes);
        assert_eq!(found, peak.map(|kib| kib << 10));
    }
}

// S19
#[test]
fn without_an_accounting_nothing_waits_for_it() {
    for trouble in [
        SlurmError::Missing { program: "sacct".to_owned() },
        SlurmError::Refused { message: "Slurm accounting storage is disabled".to_owned() },
        SlurmError::NoAnswer {
            reason: "Could not establish a configuration source".to_owned(),
            maybe_delivered: false,
        },
    ] {
        let mut agent = agent();
        agent.answer([1, 2]);
        agent.started(1).started(2).ended(1, 137);
        looks(&mut agent);
        agent.slurm_says(SlurmAnswer::Accounts(Err(trouble), Duration::ZERO));
        assert_eq!(agent.reported(), [(1, 137, Some(Cause::OutOfMemory))], "the code is all there is");
        agent.answer([]);
        agent.ended(2, 1);
        assert_eq!(agent.reported(), [(2, 1, Some(Cause::ExitCode))], "there is no second query");
    }
}

// S10. Listing a large allocation takes long, so it is done rarely.
#[test]
fn a_slow_accounting_is_asked_rarely() {
    let mut agent = agent();
    agent.answer([1, 2]);
    agent.started(1).started(2).ended(1, 0);
    looks(&mut agent);
    let slow = SlurmAnswer::Accounts(Ok([account(1, "COMPLETED", Some(1))].into()), Duration::from_secs(3));
    agent.slurm_says(slow);
    let answered = agent.now;
    agent.ended(2, 0);
    looks(&mut agent);
    assert_eq!(agent.now.since(answered), Duration::from_secs(30));
}

// J23. Slurm signals steps and the runner at once, in any order.
#[test]
fn a_step_that_died_with_the_allocation_is_not_blamed() {
    let mut agent = agent();
    agent.answer([1, 2]);
    agent.started(1).started(2).ended(1, 143);
    agent.handle(AgentEvent::Stop);
    assert_eq!(agent.terminated(), [(2, 15, 30_000)]);
    assert_eq!(agent.reported(), [(1, 143, Some(Cause::Stopped))]);
    agent.answer([]);
    agent.ended(2, 143);
    assert_eq!(agent.reported(), [(2, 143, Some(Cause::Stopped))], "the runner ended it, so there is no query");
}

fn looks_time(agent: &mut AgentHarness) {
    while agent.until_asked() != [SlurmQuery::TimeLeft] {}
}

// X05. Preemption with a grace time makes the end earlier.
#[test]
fn jobs_of_a_preempted_allocation_have_cause_preempted() {
    for (preempted, cause) in [(Some(true), Cause::Preempted), (Some(false), Cause::Timeout), (None, Cause::Timeout)] {
        let mut agent = agent();
        agent.answer([1, 2]);
        agent.started(1).started(2);
        looks_time(&mut agent);
        agent.slurm_says(SlurmAnswer::TimeLeft(Some(Duration::from_secs(300))));
        assert_eq!(queries(&agent), [SlurmQuery::Preemption]);
        agent.slurm_says(SlurmAnswer::Preemption(preempted));
        assert_eq!(agent.state.work_request(agent.now).limit > 0, preempted != Some(true), "nothing new is begun");
        let observed = agent.now;
        while agent.terminated().is_empty() {
            if agent.has_sync() {
                agent.answer([]);
            } else if queries(&agent).is_empty() {
                agent.until_due();
            } else {
                agent.slurm_says(SlurmAnswer::TimeLeft(None));
            }
        }
        assert_eq!(agent.now.since(observed), Duration::from_secs(270), "what runs has the time that is left");
        agent.ended(1, 143);
        assert_eq!(agent.state.reports[&key(1)].finished.cause, Some(cause), "{preempted:?}");
    }
}

// X05. Slurm signals the steps at once, and the runner later.
#[test]
fn a_step_ended_by_slurm_leads_to_a_query_about_preemption() {
    let mut agent = agent();
    agent.answer([1, 2, 3]);
    agent.started(1).started(2).started(3).ended(1, 143);
    assert_eq!(queries(&agent), [SlurmQuery::Preemption], "and not the accounting before that is known");
    agent.slurm_says(SlurmAnswer::Preemption(Some(true)));
    assert_eq!(agent.state.work_request(agent.now).limit, 0, "nothing new is begun");
    assert!(matches!(queries(&agent).as_slice(), [SlurmQuery::Accounts(_)]), "{:?}", agent.effects);
    agent.slurm_says(accounts([account(1, "CANCELLED by 0", Some(1))]));
    assert_eq!(agent.state.reports[&key(1)].finished.cause, Some(Cause::Preempted));
    // The runner gets its signal at the end of the grace time.
    agent.handle(AgentEvent::Stop);
    assert_eq!(agent.terminated().iter().map(|(job, ..)| *job).collect::<Vec<_>>(), [2, 3]);
    agent.ended(2, 143);
    assert_eq!(agent.state.reports[&key(2)].finished.cause, Some(Cause::Preempted));
}

// J33, S10
#[test]
fn the_journal_has_the_accounting_data_of_a_step() {
    let journalled = |agent: &AgentHarness| -> Vec<Option<i64>> {
        let written = agent.effects.iter().filter_map(|effect| match effect {
            Effect::Journal(results) => Some(results.clone()),
            _ => None,
        });
        let stats = written.flatten().map(|result| result.finished.slurm_stats.and_then(|stats| stats.max_rss_bytes));
        stats.collect()
    };
    let mut agent = agent();
    agent.state.settings.user.server_retry_window = Some(Duration::ZERO);
    agent.answer([1]);
    agent.started(1).later(Duration::from_millis(100));
    agent.fail(LinkError::Unreachable("connection refused".to_owned()));
    assert!(agent.state.session.is_draining());
    agent.ended(1, 0);
    assert_eq!(journalled(&agent), [None], "at once");
    agent.handle(AgentEvent::Journalled(vec![key(1)]));
    assert_eq!(agent.exit(), None, "the accounting has not spoken");
    for _ in 0..50 {
        if queries(&agent).iter().any(|query| matches!(query, SlurmQuery::Accounts(_))) {
            break;
        }
        if agent.has_sync() {
            agent.fail(LinkError::Unreachable("connection refused".to_owned()));
        } else {
            agent.until_due();
        }
    }
    agent.slurm_says(accounts([account(1, "COMPLETED", Some(3))]));
    assert_eq!(journalled(&agent), [Some(3 << 10)], "and again with what it said");
    agent.handle(AgentEvent::Journalled(vec![key(1)]));
    assert_eq!(agent.exit(), Some(Ok(RunnerExit::Drained)));
}
