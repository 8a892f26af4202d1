//! The arguments of `srun` that make a job a step of its allocation.
//!
//! A step is named after the attempt, so that its accounting can be found. It gets the remaining time of the allocation
//! and not the declared runtime: a job that takes longer than expected does no harm.

use std::time::Duration;

const MIB: i64 = 1 << 20;

/// Variables of an allocation that `srun` reads as options, and that would change those of a step: with `SLURM_GPUS_PER_NODE=2`,
/// `--gpus=1` gets two.
pub const INHERITED_OPTIONS: [&str; 20] = [
    "SLURM_CPUS_PER_GPU",
    "SLURM_CPUS_PER_TASK",
    "SLURM_DISTRIBUTION",
    "SLURM_EXCLUSIVE",
    "SLURM_GPUS",
    "SLURM_GPUS_PER_NODE",
    "SLURM_GPUS_PER_SOCKET",
    "SLURM_GPUS_PER_TASK",
    "SLURM_GRES",
    "SLURM_MEM_PER_CPU",
    "SLURM_MEM_PER_GPU",
    "SLURM_MEM_PER_NODE",
    "SLURM_NPROCS",
    "SLURM_NTASKS",
    "SLURM_NTASKS_PER_CORE",
    "SLURM_NTASKS_PER_GPU",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_NTASKS_PER_SOCKET",
    "SLURM_THREADS_PER_CORE",
    "SLURM_TRES_PER_TASK",
];

/// The variable that keeps a step from taking every GPU of its allocation. Without it, a step that requests no GPU gets all, and
/// jobs that need one wait.
pub const NO_GPUS: (&str, &str) = ("SLURM_STEP_GRES", "none");

/// A job that becomes a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SrunStep<'a> {
    /// The Slurm job ID of the allocation.
    pub allocation: &'a str,
    /// The name of the step, such as `wf42_j7_r1_a1`.
    pub name: &'a str,
    /// The number of nodes that the job owns.
    pub nodes: i64,
    /// Tasks on each node that `srun` starts, if the command itself is the parallel program.
    pub tasks_per_node: Option<i32>,
    /// Resources of the job on each node; `None` for a job that declares none.
    pub limits: Option<StepLimits>,
    /// The time limit in minutes; `None` in an allocation without an end.
    pub minutes: Option<u64>,
    /// The early signal, such as `TERM@120`.
    pub signal: Option<&'a str>,
    /// `true` if Slurm binds CPUs.
    pub bind_cpus: bool,
    /// The nodes of the job; empty leaves the choice to Slurm.
    pub node_names: &'a [String],
}

/// Resources of a job on each node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepLimits {
    pub cpus: i64,
    pub memory_bytes: i64,
    pub gpus: i64,
}

impl SrunStep<'_> {
    /// Returns whether the job is one task that starts others, for example with `mpirun`, on nodes that it owns.
    fn leads_others(&self) -> bool {
        self.nodes > 1 && self.tasks_per_node.is_none()
    }

    fn nodes(&self) -> i64 {
        if self.leads_others() { 1 } else { self.nodes.max(1) }
    }

    fn names(&self) -> &[String] {
        let shown = if self.leads_others() { self.node_names.len().min(1) } else { self.node_names.len() };
        &self.node_names[..shown]
    }
}

/// Returns all arguments of `srun`: its options, then `bash -c` and the command.
///
/// Slurm reduces `--nodes=2 --ntasks=1` to one node. A job of several nodes therefore starts once, on its first node, in an
/// overlapping step: all nodes stay free for its own `srun` or `mpirun`.
pub fn arguments(step: &SrunStep<'_>, command: &str) -> Vec<String> {
    let mut words = vec![format!("--jobid={}", step.allocation)];
    match step.tasks_per_node {
        Some(tasks) => {
            let tasks = i64::from(tasks.max(1));
            words.push(format!("--ntasks={}", tasks.saturating_mul(step.nodes())));
            words.push(format!("--ntasks-per-node={tasks}"));
        }
        None => words.push("--ntasks=1".to_owned()),
    }
    words.push(if step.leads_others() { "--overlap" } else { "--exact" }.to_owned());
    words.push(format!("--job-name={}", step.name));
    words.push(format!("--nodes={}", step.nodes()));
    if let Some(limits) = step.limits {
        let tasks = i64::from(step.tasks_per_node.unwrap_or(1).max(1));
        words.push(format!("--cpus-per-task={}", (limits.cpus / tasks).max(1)));
        words.push(format!("--mem={}M", mebibytes(limits.memory_bytes)));
        if limits.gpus > 0 {
            words.push(format!("--gpus={}", limits.gpus.saturating_mul(step.nodes())));
        }
    }
    words.extend(step.minutes.map(|minutes| format!("--time={minutes}")));
    words.extend(step.signal.map(|signal| format!("--signal={signal}")));
    if !step.bind_cpus {
        words.push("--cpu-bind=none".to_owned());
    }
    if !step.names().is_empty() {
        words.push(format!("--nodelist={}", step.names().join(",")));
    }
    if step.leads_others() {
        words.push("env".to_owned());
        words.extend(all_nodes(step).into_iter().map(|(name, value)| format!("{name}={value}")));
    }
    words.extend(["bash".to_owned(), "-c".to_owned(), command.to_owned()]);
    words
}

/// Returns the variables with which the job's own `srun` uses all nodes of the job and not only that of the step.
fn all_nodes(step: &SrunStep<'_>) -> Vec<(&'static str, String)> {
    let count = step.nodes.to_string();
    let mut variables: Vec<(&str, String)> = ["SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_NTASKS", "SLURM_NPROCS"]
        .map(|name| (name, count.clone()))
        .into();
    if !step.node_names.is_empty() {
        let names = step.node_names.join(",");
        variables.extend(["SLURM_NODELIST", "SLURM_JOB_NODELIST"].map(|name| (name, names.clone())));
    }
    variables
}

/// Returns memory in MiB, at least 1: 0 means "all memory" to Slurm.
fn mebibytes(bytes: i64) -> i64 {
    (bytes.max(0) / MIB + i64::from(bytes % MIB > 0)).max(1)
}

/// Returns the time limit of a step in minutes: it must end `headroom` before the allocation. `None` if less than one minute is
/// left, because Slurm has no shorter limit.
pub fn usable_minutes(remaining: Duration, headroom: Duration) -> Option<u64> {
    Some(remaining.saturating_sub(headroom).as_secs() / 60).filter(|minutes| *minutes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: i64 = 1 << 30;

    fn line(step: &SrunStep<'_>) -> String {
        arguments(step, "python work.py --fast").join(" ")
    }

    fn step<'a>() -> SrunStep<'a> {
        SrunStep {
            allocation: "12345",
            name: "wf42_j7_r1_a1",
            nodes: 1,
            limits: Some(StepLimits { cpus: 4, memory_bytes: 2 * GIB, gpus: 1 }),
            minutes: Some(57),
            signal: Some("TERM@120"),
            ..SrunStep::default()
        }
    }

    // X09, X12, X14, S01, S02, S03, S04, S05, S06
    #[test]
    fn the_whole_line() {
        let two = ["n1".to_owned(), "n2".to_owned()];
        let cases: [(&str, SrunStep<'_>, &str); 9] = [
            (
                "everything that the document shows",
                step(),
                "--jobid=12345 --ntasks=1 --exact --job-name=wf42_j7_r1_a1 --nodes=1 --cpus-per-task=4 --mem=2048M --gpus=1 \
                 --time=57 --signal=TERM@120 --cpu-bind=none bash -c python work.py --fast",
            ),
            (
                "CPU binding is Slurm's",
                SrunStep { bind_cpus: true, signal: None, ..step() },
                "--jobid=12345 --ntasks=1 --exact --job-name=wf42_j7_r1_a1 --nodes=1 --cpus-per-task=4 --mem=2048M --gpus=1 \
                 --time=57 bash -c python work.py --fast",
            ),
            (
                "no GPU, no end, a chosen node",
                SrunStep {
                    limits: Some(StepLimits { cpus: 1, memory_bytes: MIB + 1, gpus: 0 }),
                    minutes: None,
                    signal: None,
                    node_names: &two[1..],
                    ..step()
                },
                "--jobid=12345 --ntasks=1 --exact --job-name=wf42_j7_r1_a1 --nodes=1 --cpus-per-task=1 --mem=2M \
                 --cpu-bind=none --nodelist=n2 bash -c python work.py --fast",
            ),
            (
                "a job that declared nothing has no limits",
                SrunStep { limits: None, signal: None, ..step() },
                "--jobid=12345 --ntasks=1 --exact --job-name=wf42_j7_r1_a1 --nodes=1 --time=57 --cpu-bind=none \
                 bash -c python work.py --fast",
            ),
            (
                "one node where nothing is said",
                SrunStep { nodes: 0, limits: None, signal: None, ..step() },
                "--jobid=12345 --ntasks=1 --exact --job-name=wf42_j7_r1_a1 --nodes=1 --time=57 --cpu-bind=none \
                 bash -c python work.py --fast",
            ),
            (
                "several nodes: once, on the first, with room for the others",
                SrunStep { nodes: 2, node_names: &two, signal: None, ..step() },
                "--jobid=12345 --ntasks=1 --overlap --job-name=wf42_j7_r1_a1 --nodes=1 --cpus-per-task=4 --mem=2048M --gpus=1 \
                 --time=57 --cpu-bind=none --nodelist=n1 env SLURM_NNODES=2 SLURM_JOB_NUM_NODES=2 SLURM_NTASKS=2 \
                 SLURM_NPROCS=2 SLURM_NODELIST=n1,n2 SLURM_JOB_NODELIST=n1,n2 bash -c python work.py --fast",
            ),
            (
                "several nodes without names",
                SrunStep { nodes: 2, signal: None, minutes: None, limits: None, ..step() },
                "--jobid=12345 --ntasks=1 --overlap --job-name=wf42_j7_r1_a1 --nodes=1 --cpu-bind=none env SLURM_NNODES=2 \
                 SLURM_JOB_NUM_NODES=2 SLURM_NTASKS=2 SLURM_NPROCS=2 bash -c python work.py --fast",
            ),
            (
                "the command is the parallel program",
                SrunStep { nodes: 2, tasks_per_node: Some(2), node_names: &two, signal: None, ..step() },
                "--jobid=12345 --ntasks=4 --ntasks-per-node=2 --exact --job-name=wf42_j7_r1_a1 --nodes=2 --cpus-per-task=2 \
                 --mem=2048M --gpus=2 --time=57 --cpu-bind=none --nodelist=n1,n2 bash -c python work.py --fast",
            ),
            (
                "more tasks than CPUs on one node",
                SrunStep { tasks_per_node: Some(8), signal: None, ..step() },
                "--jobid=12345 --ntasks=8 --ntasks-per-node=8 --exact --job-name=wf42_j7_r1_a1 --nodes=1 --cpus-per-task=1 \
                 --mem=2048M --gpus=1 --time=57 --cpu-bind=none bash -c python work.py --fast",
            ),
        ];
        for (why, step, expected) in cases {
            assert_eq!(line(&step), expected, "{why}");
        }
    }

    #[test]
    fn the_command_stays_one_word() {
        let words = arguments(&step(), "echo \"a b\" | wc -c; exit 3");
        assert_eq!(words[words.len() - 3..], ["bash", "-c", "echo \"a b\" | wc -c; exit 3"]);
    }

    // X10, S05
    #[test]
    fn minutes_are_whole_and_leave_the_headroom() {
        let cases = [
            (3_600, 60, Some(59)),
            (3_659, 60, Some(59)),
            (3_660, 60, Some(60)),
            (600, 180, Some(7)),
            (120, 60, Some(1)),
            (119, 60, None),
            (60, 0, Some(1)),
            (59, 0, None),
            (30, 60, None),
            (0, 0, None),
        ];
        for (remaining, headroom, minutes) in cases {
            let usable = usable_minutes(Duration::from_secs(remaining), Duration::from_secs(headroom));
            assert_eq!(usable, minutes, "{remaining} s left, {headroom} s headroom");
        }
        assert_eq!(usable_minutes(Duration::from_millis(119_999), Duration::from_secs(60)), None);
    }

    /// The variables in alphabetical order.
    #[test]
    fn options_that_a_step_does_not_inherit() {
        let expected = "CPUS_PER_GPU CPUS_PER_TASK DISTRIBUTION EXCLUSIVE GPUS GPUS_PER_NODE GPUS_PER_SOCKET GPUS_PER_TASK GRES \
                        MEM_PER_CPU MEM_PER_GPU MEM_PER_NODE NPROCS NTASKS NTASKS_PER_CORE NTASKS_PER_GPU NTASKS_PER_NODE \
                        NTASKS_PER_SOCKET THREADS_PER_CORE TRES_PER_TASK";
        let names: Vec<String> = expected.split_whitespace().map(|name| format!("SLURM_{name}")).collect();
        assert_eq!(INHERITED_OPTIONS.to_vec(), names);
        assert_eq!(NO_GPUS, ("SLURM_STEP_GRES", "none"));
    }

    // S03, S04, X12
    #[test]
    fn limits_are_divided_among_tasks_and_multiplied_by_nodes() {
        let three = ["a".to_owned(), "b".to_owned(), "c".to_owned()];
        let limits = Some(StepLimits { cpus: 9, memory_bytes: 5 * MIB, gpus: 2 });
        let of = |step: &SrunStep<'_>| {
            let line = line(step);
            let words = line.split(' ').take_while(|word| *word != "bash" && *word != "env");
            words.filter(|word| !word.starts_with("--job")).map(str::to_owned).collect::<Vec<String>>().join(" ")
        };
        let several = SrunStep { nodes: 3, tasks_per_node: Some(4), limits, node_names: &three, ..SrunStep::default() };
        assert_eq!(
            of(&several),
            "--ntasks=12 --ntasks-per-node=4 --exact --nodes=3 --cpus-per-task=2 --mem=5M --gpus=6 --cpu-bind=none --nodelist=a,b,c"
        );
        let none = SrunStep { nodes: 1, tasks_per_node: Some(0), limits, bind_cpus: true, ..SrunStep::default() };
        assert_eq!(of(&none), "--ntasks=1 --ntasks-per-node=1 --exact --nodes=1 --cpus-per-task=9 --mem=5M --gpus=2");
        let leader = SrunStep { nodes: 3, limits, node_names: &three, bind_cpus: true, ..SrunStep::default() };
        assert_eq!(of(&leader), "--ntasks=1 --overlap --nodes=1 --cpus-per-task=9 --mem=5M --gpus=2 --nodelist=a");
        assert!(line(&leader).contains(
            "env SLURM_NNODES=3 SLURM_JOB_NUM_NODES=3 SLURM_NTASKS=3 SLURM_NPROCS=3 SLURM_NODELIST=a,b,c SLURM_JOB_NODELIST=a,b,c bash"
        ));
        let one = SrunStep { nodes: 1, node_names: &three[..2], bind_cpus: true, ..SrunStep::default() };
        assert_eq!(of(&one), "--ntasks=1 --exact --nodes=1 --nodelist=a,b");
    }

    #[test]
    fn memory_is_rounded_up() {
        let cases = [(0, 1), (1, 1), (MIB, 1), (MIB + 1, 2), (2 * GIB, 2_048), (-5, 1)];
        for (bytes, expected) in cases {
            assert_eq!(mebibytes(bytes), expected, "{bytes}");
        }
    }
}
