//! Measures jobs and the node on a thread of its own, so that a slow `/proc` blocks nothing else. The agent's state
//! decides when to measure and how to react.

use std::collections::HashMap;
use std::fs;
use std::sync::mpsc::{Receiver, Sender, channel};

use torc_api::wire::AttemptKey;

use crate::clock::{self, BootInstant};
use crate::detect;
use crate::gpus::{GpuSample, Gpus};
use crate::procfs;
use crate::shim::spawn::SHIM_VARIABLE;
use tree::Process;

mod node;
mod tree;

/// An order to take samples of jobs, the node and the GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampleOrder {
    /// The jobs to measure.
    pub probes: Vec<JobProbe>,
    /// True if the node is measured, too.
    pub node: bool,
    /// True if the GPUs are measured, too.
    pub gpus: bool,
}

/// A job to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobProbe {
    pub key: AttemptKey,
    pub pid: i32,
    /// The memory limit. A job of several processes is measured exactly only above it.
    pub limit_bytes: Option<i64>,
}

/// The samples of one order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples {
    pub at: BootInstant,
    /// Samples of the jobs that still run.
    pub jobs: Vec<(AttemptKey, JobSample)>,
    /// The sample of the node, if ordered.
    pub node: Option<NodeSample>,
    /// Samples of the GPUs, if ordered and available.
    pub gpus: Vec<GpuSample>,
}

/// The counters of a node at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeSample {
    /// Busy time of all CPUs since the start, in ticks.
    pub busy_ticks: u64,
    /// Total time of all CPUs since the start, in ticks.
    pub all_ticks: u64,
    /// Used memory: the total minus what the kernel reports as available.
    pub memory_bytes: i64,
    pub total_memory_bytes: i64,
}

/// The usage of a job's processes at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobSample {
    /// Memory of all processes.
    pub memory_bytes: i64,
    /// CPU time since the job's start, including ended processes.
    pub cpu_us: u64,
    pub processes: u32,
}

/// The measuring thread. It ends when this is dropped.
pub struct Sampler {
    orders: Sender<SampleOrder>,
}

impl Sampler {
    /// Starts the thread; `send` gets the samples.
    pub fn start(send: impl Fn(Samples) + Send + 'static) -> std::io::Result<Self> {
        let (orders, incoming) = channel();
        std::thread::Builder::new().name("sampler".to_owned()).spawn(move || work(&incoming, send))?;
        Ok(Self { orders })
    }

    pub fn order(&self, order: SampleOrder) {
        // The thread lives as long as its sender.
        let _ = self.orders.send(order);
    }
}

fn work(orders: &Receiver<SampleOrder>, send: impl Fn(Samples)) {
    // The library is opened on first use: most machines have no GPU, and most runners of other machines get none.
    let mut gpus = None;
    while let Ok(order) = orders.recv() {
        let measure = |gpus: &Option<Gpus>| gpus.as_ref().map(Gpus::samples).unwrap_or_default();
        let measured = if order.gpus { measure(gpus.get_or_insert_with(Gpus::open)) } else { Vec::new() };
        send(Samples { gpus: measured, ..take(&order) });
    }
}

/// Takes all samples except those of GPUs.
fn take(order: &SampleOrder) -> Samples {
    let node = order.node.then(node::read).flatten();
    if order.probes.is_empty() {
        return Samples { at: clock::now(), node, ..Samples::default() };
    }
    let processes: Vec<Process> = procfs::processes().into_iter().filter_map(Process::read).collect();
    let at = clock::now();
    let leaders: HashMap<i32, usize> = order.probes.iter().enumerate().map(|(at, probe)| (probe.pid, at)).collect();
    let owners = tree::owners(&processes, &leaders, |pid| marked(pid, &order.probes));
    let mut members: Vec<Vec<&Process>> = vec![Vec::new(); order.probes.len()];
    for (process, owner) in processes.iter().zip(owners) {
        owner.into_iter().for_each(|owner| members[owner].push(process));
    }
    let there = order.probes.iter().zip(members).filter(|(_, members)| !members.is_empty());
    let jobs = there.map(|(probe, members)| (probe.key, measure(&members, probe.limit_bytes))).collect();
    Samples { at, jobs, node, ..Samples::default() }
}

fn measure(members: &[&Process], limit: Option<i64>) -> JobSample {
    let resident = members.iter().map(|process| process.resident_bytes).sum();
    // Resident memory counts shared pages once for each process, which is good enough for statistics. Before a job is
    // killed, its memory is counted exactly, which is too slow for every sample.
    let is_doubtful = members.len() > 1 && limit.is_some_and(|limit| resident > limit);
    let shared_fairly = || members.iter().map(|process| proportional(process)).sum();
    JobSample {
        memory_bytes: if is_doubtful { shared_fairly() } else { resident },
        cpu_us: members.iter().map(|process| process.cpu_us).sum(),
        processes: u32::try_from(members.len()).unwrap_or(u32::MAX),
    }
}

/// Returns the proportional set size (PSS) of a process, or its resident memory if the PSS is not readable.
fn proportional(process: &Process) -> i64 {
    let text = fs::read_to_string(format!("/proc/{}/smaps_rollup", process.pid)).unwrap_or_default();
    let bytes = procfs::kilobytes(&text, "Pss:").and_then(|bytes| i64::try_from(bytes).ok());
    bytes.unwrap_or(process.resident_bytes)
}

/// Returns the index of the job that an orphaned process belongs to, by the variables in its environment.
fn marked(pid: i32, probes: &[JobProbe]) -> Option<usize> {
    let environment = procfs::environment(pid);
    procfs::variable(&environment, SHIM_VARIABLE)?;
    let number = |name: &str| procfs::variable(&environment, name)?.parse::<i64>().ok();
    let (workflow, job) = (number("TORC_WORKFLOW_ID")?, number("TORC_JOB_ID")?);
    let (run, attempt) = (number("TORC_RUN_ID")?, number("TORC_ATTEMPT_ID")?);
    probes.iter().position(|JobProbe { key, .. }| {
        (key.workflow, key.job, i64::from(key.run), i64::from(key.attempt)) == (workflow, job, run, attempt)
    })
}

/// Returns the number of processes that the kernel has killed for lack of memory: in this cgroup, or on this machine
/// where cgroups do not count them.
pub fn oom_kills() -> u64 {
    let read = |path: &str| fs::read_to_string(path).ok();
    let cgroups = detect::memory_event_files(&read("/proc/self/cgroup").unwrap_or_default());
    let files = cgroups.iter().map(String::as_str).chain(["/proc/vmstat"]);
    files.filter_map(read).find_map(|text| counter(&text, "oom_kill")).unwrap_or_default()
}

fn counter(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_measured() {
        let pid = i32::try_from(std::process::id()).expect("fits");
        let key = AttemptKey { job: 3, ..AttemptKey::default() };
        let gone = AttemptKey { job: 4, ..AttemptKey::default() };
        let probe = |key, pid| JobProbe { key, pid, limit_bytes: None };
        let samples =
            take(&SampleOrder { probes: vec![probe(key, pid), probe(gone, i32::MAX)], node: true, gpus: false });
        let [(measured, sample)] = samples.jobs.as_slice() else { panic!("{samples:?}") };
        assert_eq!(*measured, key);
        assert!(samples.node.is_some_and(|node| node.memory_bytes < node.total_memory_bytes));
        assert!(sample.memory_bytes > 1 << 20 && sample.processes >= 1, "{sample:?}");
    }

    #[test]
    fn the_kernels_counters() {
        let text = "oom 7\noom_kill 3\noom_kill_group 9\n";
        assert_eq!((counter(text, "oom_kill"), counter(text, "oom_reaper")), (Some(3), None));
    }

    // X02. Shared memory is counted in parts only where a job would otherwise be killed.
    #[test]
    fn memory_is_looked_at_closely_near_the_limit_only() {
        let own = i32::try_from(std::process::id()).expect("fits");
        let huge = 1 << 50;
        let process = |pid, resident_bytes| Process { pid, resident_bytes, cpu_us: 7, ..Process::default() };
        let (first, second) = (process(own, huge), process(i32::MAX, 5));
        let of = |members: &[&Process], limit| measure(members, limit).memory_bytes;
        assert_eq!(of(&[&first, &second], None), huge + 5, "no limit");
        assert_eq!(of(&[&first, &second], Some(huge + 5)), huge + 5, "at the limit");
        let close = of(&[&first, &second], Some(huge + 4));
        assert!(close > 5 && close < huge, "above the limit: {close}");
        assert_eq!(of(&[&first], Some(1)), huge, "a single process shares no pages with its job");
        let sample = measure(&[&first, &second], None);
        assert_eq!((sample.cpu_us, sample.processes), (14, 2));
    }
}
