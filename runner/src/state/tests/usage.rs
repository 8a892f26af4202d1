//! Samples of jobs and of the node, and the enforcement of memory limits.

use torc_api::execution::{ExecutionConfig, ExecutionMode, Granularity, MonitorScope, ResourceMonitor};
use torc_api::wire::FinishedAttempt;

use super::*;
use crate::monitor::{JobSample, NodeSample};
use crate::protocol::{Rusage, StartTemplate};
use crate::series::{DataPoint, Measurement, MeasurementRecord, NodePoint};

const MIB: i64 = 1 << 20;

/// Returns a job of 100 MiB that is measured every second.
fn measured() -> Profile {
    let monitor = ResourceMonitor { sample_interval_seconds: Some(1), ..ResourceMonitor::default() };
    let mut profile = profile(1);
    profile.resources.memory_bytes = 100 * MIB;
    profile.resource_monitor = Some(monitor);
    profile
}

/// Returns an agent where job 1 runs with this profile.
fn running(profile: Profile) -> AgentHarness {
    let mut agent = AgentHarness::new(1);
    agent.profile = profile;
    agent.answer([1]).started(1);
    agent
}

impl AgentHarness {
    fn ordered(&self) -> Vec<&SampleOrder> {
        let orders = self.effects.iter().filter_map(|effect| match effect {
            Effect::Sample(order) => Some(order),
            _ => None,
        });
        orders.collect()
    }

    /// Lets a second pass, and delivers a sample of job 1.
    fn sample(&mut self, memory_bytes: i64, cpu_us: u64) -> &mut Self {
        self.later(Duration::from_secs(1));
        assert_eq!(self.ordered().len(), 1, "{:?}", self.effects);
        let jobs = vec![(key(1), JobSample { memory_bytes, cpu_us, processes: 1 })];
        self.handle(AgentEvent::Sampled(Box::new(Samples { at: self.now, jobs, ..Samples::default() })))
    }

    fn finish(&mut self, outcome: Outcome, rusage: Option<Rusage>) -> &mut Self {
        let ended = JobExit { rusage, ..ended(1, outcome, self.now) };
        self.handle(AgentEvent::Ended(Box::new(ended)))
    }

    fn observed(&self) -> Vec<RunnerEvent> {
        let observed = self.effects.iter().filter_map(|effect| match effect {
            Effect::Log(event) => Some(event.clone()),
            _ => None,
        });
        observed.collect()
    }

    fn recorded(&self) -> Vec<Measurement> {
        let records = self.effects.iter().filter_map(|effect| match effect {
            Effect::Record(records) => Some(records.clone()),
            _ => None,
        });
        records.flatten().map(|record: MeasurementRecord| record.measurement).collect()
    }

    fn report(&self) -> FinishedAttempt {
        self.state.reports[&key(1)].finished.clone()
    }
}

// J17, X02, X18
#[test]
fn a_job_with_too_much_memory_is_killed_at_once() {
    let mut agent = running(measured());
    agent.sample(100 * MIB, 0);
    assert_eq!(agent.terminated(), [], "the limit itself is allowed");
    agent.sample(101 * MIB, 0);
    assert_eq!(agent.terminated(), [(1, 9, 0)]);
    let violation =
        RunnerEvent::OomViolation { key: key(1), pid: 100, memory_bytes: 101 * MIB, limit_bytes: 100 * MIB };
    assert_eq!(agent.observed(), [violation, RunnerEvent::OomKill { key: key(1) }]);
    agent.sample(102 * MIB, 0);
    assert_eq!((agent.terminated(), agent.observed()), (vec![], vec![]), "it is observed once");
    agent.finish(Outcome::Signaled(9), Some(Rusage::default()));
    let report = agent.report();
    assert_eq!((report.return_code, report.cause), (137, Some(Cause::OutOfMemory)));
    assert_eq!(report.message.as_deref(), Some("exceeded its memory limit: used 101.0 MiB of 100.0 MiB"));
    assert_eq!(report.usage.and_then(|usage| usage.peak_memory_bytes), Some(102 * MIB));
    assert_eq!(agent.state.jobs.ledger().free().cpus, 1, "its place is free");
}

/// A call that takes minutes delays neither samples nor kills.
#[test]
fn a_job_is_killed_for_memory_during_and_after_a_failed_call() {
    let mut agent = running(measured());
    agent.sample(50 * MIB, 0);
    assert!(agent.state.session.sequence() > 1, "a call is under way");
    agent.sample(101 * MIB, 0);
    assert_eq!(agent.terminated(), [(1, 9, 0)]);
    let mut agent = running(measured());
    agent.sample(50 * MIB, 0).fail(LinkError::Unreachable("x".to_owned()));
    agent.sample(101 * MIB, 0);
    assert_eq!(agent.terminated(), [(1, 9, 0)]);
}

// X02
#[test]
fn the_exit_code_is_the_documents() {
    let mut profile = measured();
    profile.execution_config = Some(ExecutionConfig { oom_exit_code: Some(99), ..ExecutionConfig::default() });
    let mut agent = running(profile);
    agent.sample(200 * MIB, 0).finish(Outcome::Signaled(9), None);
    assert_eq!((agent.report().return_code, agent.report().cause), (99, Some(Cause::OutOfMemory)));
}

#[test]
fn a_job_that_was_quicker_than_its_killer_has_its_own_result() {
    for (code, cause) in [(0, None), (3, Some(Cause::ExitCode))] {
        let mut agent = running(measured());
        agent.sample(200 * MIB, 0).finish(Outcome::Exited(code), None);
        assert_eq!((agent.report().return_code, agent.report().cause), (code, cause));
    }
}

// X07, X15
#[test]
fn memory_is_enforced_only_if_every_condition_holds() {
    let config = |change: fn(&mut ExecutionConfig)| {
        let mut config = ExecutionConfig::default();
        change(&mut config);
        Profile { execution_config: Some(config), ..measured() }
    };
    let limit = |profile: &Profile| usage_stats::memory_limit(profile);
    assert_eq!(limit(&measured()), Some(100 * MIB));
    assert_eq!(limit(&config(|config| config.mode = Some(ExecutionMode::Direct))), Some(100 * MIB));
    assert_eq!(limit(&config(|config| config.limit_resources = Some(false))), None, "limits are off");
    assert_eq!(limit(&Profile { unlimited: true, ..measured() }), None, "nothing was declared");
    let mut unmeasured = measured();
    unmeasured.resource_monitor.as_mut().expect("set").enabled = Some(false);
    assert_eq!(limit(&unmeasured), None, "jobs are not measured");

    let mut agent = running(config(|config| config.limit_resources = Some(false)));
    agent.sample(900 * MIB, 0);
    assert_eq!(agent.terminated(), []);
    let mut agent = running(unmeasured);
    agent.later(Duration::from_secs(3_600));
    assert_eq!(agent.ordered(), Vec::<&SampleOrder>::new());
}

/// The process of a step is `srun`: its memory is not the job's, and Slurm enforces limits.
#[test]
fn steps_are_not_measured_here() {
    let allocation = StepAllocation { job_id: "7".to_owned(), srun: "srun".to_owned(), nodes: vec!["n1".to_owned()] };
    let mut agent = AgentHarness::with(AgentSettings { allocation: Some(allocation), ..settings(1) });
    agent.profile = measured();
    agent.answer([1]).started(1).later(Duration::from_secs(60));
    assert_eq!(agent.state.job_counts(), (1, 0));
    assert_eq!(agent.ordered(), Vec::<&SampleOrder>::new());
    assert_eq!(agent.state.jobs[&key(1)].launch.template.memory_limit_bytes, None);
    agent.finish(Outcome::Exited(0), Some(Rusage { cpu_us: 1, peak_memory_bytes: Some(1) }));
    assert_eq!(agent.report().usage, None);
}

// X08
#[test]
fn samples_are_taken_at_the_interval_and_only_while_jobs_run() {
    let mut agent = running(Profile { resource_monitor: None, ..measured() });
    agent.later(Duration::from_millis(9_999));
    assert_eq!(agent.ordered().len(), 0);
    agent.later(Duration::from_millis(1));
    let probe = crate::monitor::JobProbe { key: key(1), pid: 100, limit_bytes: Some(100 * MIB) };
    assert_eq!(agent.ordered(), [&SampleOrder { probes: vec![probe], ..SampleOrder::default() }]);
    agent.later(Duration::from_secs(10));
    assert_eq!(agent.ordered().len(), 0, "the answer is still being waited for");
    let now = agent.now;
    agent.handle(AgentEvent::Sampled(Box::new(Samples { at: now, ..Samples::default() })));
    agent.later(Duration::from_secs(10));
    assert_eq!(agent.ordered().len(), 1);
    agent.handle(AgentEvent::Sampled(Box::default())).finish(Outcome::Exited(0), None);
    agent.later(Duration::from_secs(10));
    assert_eq!(agent.ordered().len(), 0);
    assert!(agent.state.usage.is_idle(), "nothing wakes a runner that has nothing to measure");
}

#[test]
fn a_taken_over_job_is_measured_and_limited_too() {
    let mut agent = AgentHarness::new(1);
    let template = StartTemplate { memory_limit_bytes: Some(MIB), ..StartTemplate::default() };
    let held = ShimJob { pid: 7, template, ..shim_job(1, agent.now) };
    agent.handle(AgentEvent::Adopted(Box::new(held))).later(Duration::from_secs(10));
    assert_eq!(agent.ordered()[0].probes[0].pid, 7);
    let jobs = vec![(key(1), JobSample { memory_bytes: 2 * MIB, cpu_us: 0, processes: 1 })];
    agent.handle(AgentEvent::Sampled(Box::new(Samples { at: agent.now, jobs, ..Samples::default() })));
    assert_eq!(agent.terminated(), [(1, 9, 0)]);
}

#[test]
fn peaks_and_averages() {
    let mut agent = running(measured());
    agent.sample(10 * MIB, 500_000).sample(30 * MIB, 2_500_000).sample(20 * MIB, 2_600_000);
    agent.later(Duration::from_secs(1));
    let rusage = Rusage { cpu_us: 3_000_000, peak_memory_bytes: Some(25 << 20) };
    let started = agent.now.minus(Duration::from_secs(4));
    let ended = JobExit { rusage: Some(rusage), started, ..ended(1, Outcome::Exited(0), agent.now) };
    agent.handle(AgentEvent::Ended(Box::new(ended)));
    let usage = agent.report().usage.expect("measured");
    assert_eq!((usage.peak_memory_bytes, usage.average_memory_bytes), (Some(30 * MIB), Some(20 * MIB)));
    assert_eq!((usage.peak_cpu_percent, usage.average_cpu_percent), (Some(200.0), Some(75.0)));
}

#[test]
fn a_short_job_has_what_the_system_counted() {
    let of = |rusage| {
        let mut agent = running(measured());
        let started = agent.now;
        agent.later(Duration::from_millis(100));
        let ended = JobExit { rusage, started, ..ended(1, Outcome::Exited(0), agent.now) };
        agent.handle(AgentEvent::Ended(Box::new(ended)));
        agent.report().usage
    };
    let usage = of(Some(Rusage { cpu_us: 50_000, peak_memory_bytes: Some(9) })).expect("counted");
    assert_eq!((usage.peak_memory_bytes, usage.average_memory_bytes), (Some(9), None));
    assert_eq!((usage.peak_cpu_percent, usage.average_cpu_percent), (Some(50.0), Some(50.0)));
    let unknown = of(Some(Rusage::default())).expect("counted");
    assert_eq!((unknown.peak_memory_bytes, unknown.average_cpu_percent), (None, Some(0.0)));
    assert_eq!(of(None), None);
}

#[test]
fn a_kill_by_the_kernel_is_told_from_others() {
    let at_limit = Some(Rusage { cpu_us: 0, peak_memory_bytes: Some(96 << 20) });
    let cases = [
        (Outcome::Signaled(9), None, 0, (137, Cause::ExitCode), "kill -9 by another process"),
        (Outcome::Signaled(9), None, 1, (137, Cause::OutOfMemory), "the kernel has counted one more"),
        (Outcome::Exited(137), None, 1, (137, Cause::OutOfMemory), "a shell reports the signal of its child"),
        (Outcome::Signaled(9), at_limit, 0, (137, Cause::OutOfMemory), "it was at its limit"),
    ];
    for (outcome, rusage, kills, expected, why) in cases {
        let mut agent = running(measured());
        agent.finish(outcome, rusage);
        let asked =
            agent.effects.iter().any(|effect| matches!(effect, Effect::CheckOutputs(_, check) if check.oom_kills));
        assert!(asked, "{why}");
        agent.handle(AgentEvent::OutputsChecked(
            key(1),
            OutputFindings { oom_kills: Some(kills), ..OutputFindings::default() },
        ));
        let report = agent.report();
        assert_eq!((report.return_code, report.cause), (expected.0, Some(expected.1)), "{why}");
    }
    let mut agent = running(measured());
    agent.finish(Outcome::Exited(1), at_limit);
    assert_eq!(agent.report().cause, Some(Cause::ExitCode), "it was not killed");
}

#[test]
fn samples_are_kept_where_the_workflow_wants_them() {
    let mut profile = measured();
    profile.resource_monitor.as_mut().expect("set").granularity = Some(Granularity::TimeSeries);
    let mut agent = running(profile);
    agent.sample(5 * MIB, 250_000);
    let point = DataPoint { cpu_percent: 25.0, memory_bytes: 5 * MIB, processes: 1, ..DataPoint::default() };
    assert_eq!(agent.recorded(), [Measurement::JobSample { key: key(1), at: agent.now, point }]);
    agent.finish(Outcome::Exited(3), Some(Rusage::default()));
    let recorded = agent.recorded();
    let [Measurement::Job(row)] = recorded.as_slice() else { panic!("{recorded:?}") };
    assert_eq!((row.name.as_str(), row.return_code, row.cause), ("job1", 3, Some(Cause::ExitCode)));
    assert_eq!((row.started, row.ended), (agent.now.minus(Duration::from_secs(1)), agent.now));
    assert_eq!((row.usage.peak_memory_bytes, row.memory_limit_bytes), (Some(5 * MIB), Some(100 * MIB)));

    let mut agent = running(measured());
    agent.sample(5 * MIB, 0);
    assert_eq!(agent.recorded(), []);
    agent.finish(Outcome::Exited(0), None);
    assert_eq!(agent.recorded(), [], "a summary is in the result, and nowhere else");
}

#[test]
fn a_node_is_measured_for_those_who_want_it() {
    let scope = |cpu| MonitorScope {
        enabled: Some(true),
        granularity: Some(Granularity::TimeSeries),
        cpu: Some(cpu),
        memory: None,
    };
    for cpu in [true, false] {
        let mut profile = measured();
        let monitor = profile.resource_monitor.as_mut().expect("set");
        (monitor.enabled, monitor.compute_node) = (Some(false), Some(scope(cpu)));
        let mut agent = running(profile);
        let sample = |agent: &mut AgentHarness, busy_ticks, all_ticks, memory_bytes| {
            agent.later(Duration::from_secs(1));
            assert_eq!(agent.ordered(), [&SampleOrder { node: true, ..SampleOrder::default() }]);
            let node = NodeSample { busy_ticks, all_ticks, memory_bytes, total_memory_bytes: 90 };
            agent.handle(AgentEvent::Sampled(Box::new(Samples {
                at: agent.now,
                node: Some(node),
                ..Samples::default()
            })));
            let recorded = agent.recorded();
            let [Measurement::NodeSample { point, .. }] = recorded.as_slice() else { panic!("{recorded:?}") };
            *point
        };
        let point = |cpu_percent: Option<f64>, memory_bytes| NodePoint {
            cpu_percent: cpu_percent.filter(|_| cpu),
            memory_bytes: Some(memory_bytes),
            total_memory_bytes: Some(90),
            ..NodePoint::default()
        };
        assert_eq!(sample(&mut agent, 100, 1_000, 50), point(None, 50), "nothing to compare with yet");
        assert_eq!(sample(&mut agent, 150, 1_200, 70), point(Some(25.0), 70));
        agent.finish(Outcome::Exited(0), None);
        assert_eq!(sample(&mut agent, 300, 1_400, 60), point(Some(75.0), 60), "an idle node is measured too");
        agent.handle(AgentEvent::Stop).later(Duration::from_secs(15));
        let recorded = agent.recorded();
        let [Measurement::Node(summary)] = recorded.as_slice() else { panic!("{recorded:?}") };
        assert_eq!((summary.samples, summary.peak_memory_bytes, summary.average_memory_bytes), (3, Some(70), Some(60)));
        let percents = (summary.peak_cpu_percent, summary.average_cpu_percent);
        assert_eq!(percents, if cpu { (Some(75.0), Some(50.0)) } else { (None, None) });
    }
}

// X02. A job with 95 percent of its limit in use counts as out of memory.
#[test]
fn a_kill_at_95_percent_of_the_limit_is_out_of_memory() {
    let limit = 100 * MIB.unsigned_abs();
    for (peak, cause) in [(limit * 95 / 100, Cause::OutOfMemory), (limit * 95 / 100 - 1, Cause::ExitCode)] {
        let mut profile = measured();
        profile.execution_config = Some(ExecutionConfig { oom_exit_code: Some(99), ..ExecutionConfig::default() });
        let mut agent = running(profile);
        agent.finish(Outcome::Signaled(9), Some(Rusage { cpu_us: 0, peak_memory_bytes: Some(peak) }));
        agent.handle(AgentEvent::OutputsChecked(
            key(1),
            OutputFindings { oom_kills: Some(0), ..OutputFindings::default() },
        ));
        let report = agent.report();
        let code = if cause == Cause::OutOfMemory { 99 } else { 137 };
        assert_eq!((report.return_code, report.cause), (code, Some(cause)), "{peak}");
    }
}

// X02. Kills from before the job do not count.
#[test]
fn only_kills_since_the_last_look_count() {
    let mut agent = AgentHarness::with(AgentSettings { oom_kills: 7, ..settings(4) });
    agent.profile = measured();
    agent.answer(1..=4);
    for (job, kills, cause) in
        [(1, 7, Cause::ExitCode), (2, 8, Cause::OutOfMemory), (3, 8, Cause::ExitCode), (4, 10, Cause::OutOfMemory)]
    {
        agent.started(job);
        agent.handle(AgentEvent::Ended(Box::new(ended(job, Outcome::Signaled(9), agent.now))));
        agent.handle(AgentEvent::OutputsChecked(
            key(job),
            OutputFindings { oom_kills: Some(kills), ..OutputFindings::default() },
        ));
        assert_eq!(agent.state.reports[&key(job)].finished.cause, Some(cause), "{kills} kills");
    }
}

// X02. To the byte, with a readable message.
#[test]
fn one_byte_more_than_the_limit_is_too_much() {
    for (bytes, killed) in [(100 * MIB - 1, false), (100 * MIB, false), (100 * MIB + 1, true)] {
        let mut agent = running(measured());
        agent.sample(bytes, 0);
        assert_eq!(!agent.terminated().is_empty(), killed, "{bytes} bytes");
    }
    for (limit, used, shown) in [
        (1023 * MIB, 1024 * MIB, "exceeded its memory limit: used 1.0 GiB of 1023.0 MiB"),
        (2560 * MIB, 2816 * MIB, "exceeded its memory limit: used 2.8 GiB of 2.5 GiB"),
    ] {
        let mut profile = measured();
        profile.resources.memory_bytes = limit;
        let mut agent = AgentHarness::with(AgentSettings {
            capacity: Resources { cpus: 1, memory_bytes: 1 << 40, gpus: 0, nodes: 1 },
            ..settings(1)
        });
        agent.profile = profile;
        agent.answer([1]).started(1);
        agent.sample(used, 0).finish(Outcome::Signaled(9), None);
        assert_eq!(agent.report().message.as_deref(), Some(shown));
    }
}

// X08. Jobs with other intervals are measured at theirs.
#[test]
fn each_interval_has_its_own_samples() {
    let every = |seconds| {
        let monitor = ResourceMonitor { sample_interval_seconds: Some(seconds), ..ResourceMonitor::default() };
        Profile { resource_monitor: Some(monitor), ..profile(1) }
    };
    let mut agent = AgentHarness::new(2);
    let leases = vec![lease(1), Lease { profile: 1, ..lease(2) }];
    let sequence = agent.state.session.sequence();
    let response = SyncResponse {
        sequence,
        leases,
        profiles: vec![every(3), every(4)],
        lease_ms: 120_000,
        ..SyncResponse::default()
    };
    agent.handle(AgentEvent::Answered(Box::new(response)));
    let began = agent.now;
    agent.handle(AgentEvent::Started(key(1), began, 101)).handle(AgentEvent::Started(key(2), began, 102));
    let mut seen = Vec::new();
    for second in 1..=12 {
        agent.now = began.plus(Duration::from_secs(second));
        agent.handle(AgentEvent::Tick);
        let probed: Vec<i32> =
            agent.ordered().iter().flat_map(|order| order.probes.iter().map(|probe| probe.pid)).collect();
        if !probed.is_empty() {
            seen.push((second, probed));
            agent.handle(AgentEvent::Sampled(Box::new(Samples { at: agent.now, ..Samples::default() })));
        }
    }
    let (one, two) = (vec![101], vec![102]);
    let both = vec![101, 102];
    let expected = [(3, one.clone()), (4, two.clone()), (6, one.clone()), (8, two), (9, one), (12, both)];
    assert_eq!(seen, expected);
}

// X08. The runner wakes up for the next sample.
#[test]
fn the_next_sample_wakes_the_runner() {
    let mut agent = running(Profile { resource_monitor: None, ..measured() });
    let began = agent.now;
    agent.state.session.drain(BootInstant(u64::MAX));
    agent.handle(AgentEvent::Tick);
    assert!(agent.state.wake_at().is_some_and(|due| due <= began.plus(Duration::from_secs(10))));
}

// J21. A job's GPUs are those it was given; the node's are all of the runner's.
#[test]
fn gpu_use_is_counted_for_the_job_and_for_the_node() {
    use crate::gpus::GpuSample;
    let mut profile = measured();
    profile.resources.gpus = 1;
    let monitor = profile.resource_monitor.as_mut().expect("set");
    monitor.granularity = Some(Granularity::TimeSeries);
    monitor.compute_node = Some(MonitorScope {
        enabled: Some(true),
        granularity: Some(Granularity::TimeSeries),
        ..MonitorScope::default()
    });
    let devices = vec!["0".to_owned(), "1".to_owned()];
    let mut agent = AgentHarness::with(AgentSettings { devices, ..settings(1) });
    agent.profile = profile;
    agent.answer([1]).started(1);
    assert_eq!(agent.state.jobs[&key(1)].devices, ["0"]);
    let gpu = |index, busy_percent, memory_bytes| GpuSample {
        index,
        uuid: format!("GPU-{index}"),
        busy_percent,
        memory_bytes,
        total_memory_bytes: 1_000,
    };
    for (busy, memory) in [(40, 300), (60, 100)] {
        agent.later(Duration::from_secs(1));
        assert!(agent.ordered()[0].gpus, "GPUs are to be measured");
        let samples = Samples {
            at: agent.now,
            jobs: vec![(key(1), JobSample { memory_bytes: MIB, cpu_us: 0, processes: 3 })],
            node: Some(NodeSample { busy_ticks: 1, all_ticks: 2, memory_bytes: 3, total_memory_bytes: 4 }),
            gpus: vec![gpu(0, busy, memory), gpu(1, 10, 7), gpu(2, 99, 900)],
        };
        agent.handle(AgentEvent::Sampled(Box::new(samples)));
        let recorded = agent.recorded();
        let [Measurement::NodeSample { point: node, .. }, Measurement::JobSample { point, .. }] = recorded.as_slice()
        else {
            panic!("{recorded:?}")
        };
        assert_eq!((point.gpu_percent, point.gpu_memory_bytes), (Some(f64::from(busy)), Some(memory)));
        assert_eq!(point.processes, 3);
        assert_eq!(node.gpu_percent, Some(f64::from(busy + 10) / 2.0), "in percent of both");
        assert_eq!((node.gpu_memory_bytes, node.total_gpu_memory_bytes), (Some(memory + 7), Some(2_000)));
    }
    agent.finish(Outcome::Exited(0), Some(Rusage::default()));
    let usage = agent.report().usage.expect("measured");
    assert_eq!((usage.peak_gpu_percent, usage.average_gpu_percent), (Some(60.0), Some(50.0)));
    assert_eq!(usage.peak_gpu_memory_bytes, Some(300));
}

// S12. The larger of the sampled and the counted peak.
#[test]
fn the_peak_is_the_larger_of_samples_and_counts() {
    for (sampled, counted, peak) in [(10, Some(25), 25), (30, Some(25), 30), (30, None, 30)] {
        let mut agent = running(measured());
        let counted = counted.map(|mebibytes: u64| mebibytes << 20);
        agent
            .sample(sampled * MIB, 0)
            .finish(Outcome::Exited(0), Some(Rusage { cpu_us: 0, peak_memory_bytes: counted }));
        let usage = agent.report().usage.expect("measured");
        assert_eq!(usage.peak_memory_bytes, Some(peak * MIB), "{sampled} {counted:?}");
    }
}
