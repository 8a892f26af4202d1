//! Resources of this machine, or of the part of it that this process may use. Parsing is pure; only the public
//! functions read.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use torc_slurm::allocation;
use torc_slurm::call::Tool;

use crate::gpus::Gpus;
use crate::mode::StepAllocation;

/// Returns the number of CPUs that this process may use, by affinity and cgroup quota.
pub fn cpus() -> i64 {
    std::thread::available_parallelism().map_or(1, |count| i64::try_from(count.get()).unwrap_or(1))
}

/// Returns the bytes of memory that this process may use: the machine's, or the smallest limit of its cgroups.
pub fn memory() -> i64 {
    let read = |path: String| fs::read_to_string(path).ok();
    let total = read("/proc/meminfo".to_owned()).and_then(|text| total_memory(&text)).unwrap_or(1 << 30);
    let cgroups = read("/proc/self/cgroup".to_owned()).unwrap_or_default();
    let limits = limit_files(&cgroups).into_iter().filter_map(|file| read(file).as_deref().and_then(memory_limit));
    within(total, limits)
}

/// Returns the smallest of an amount and its limits.
fn within(total: i64, limits: impl Iterator<Item = i64>) -> i64 {
    limits.fold(total, i64::min)
}

/// Returns the GPUs that this process may use, as names for `CUDA_VISIBLE_DEVICES`. They come from the environment,
/// else from the driver, else from device files.
pub fn gpus() -> Vec<String> {
    let counted = || Gpus::open().map(|gpus| (0..gpus.count()).map(|number| number.to_string()).collect());
    visible_devices(|name| std::env::var(name).ok()).or_else(counted).unwrap_or_else(|| {
        let names = fs::read_dir(Path::new("/dev"));
        let names = names.into_iter().flatten().flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        device_files(names)
    })
}

/// Returns the Slurm allocation around this process, if there is one.
pub fn current_allocation() -> Option<allocation::CurrentAllocation> {
    allocation::from_environment(|name| std::env::var(name).ok())
}

/// Returns the allocation in which jobs become steps on these nodes; none without an `srun`.
pub fn steps(around: &allocation::CurrentAllocation, nodes: Vec<String>) -> Option<StepAllocation> {
    let is_program =
        |path: &Path| fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0);
    let srun = find_srun(|name| std::env::var(name).ok(), is_program)?;
    Some(StepAllocation { job_id: around.job_id.clone(), srun, nodes })
}

/// Finds `srun`, or the program that replaces it in tests.
fn find_srun(variable: impl Fn(&str) -> Option<String>, is_program: impl Fn(&Path) -> bool) -> Option<String> {
    if let Some(fake) = variable(Tool::Srun.replacement_variable()).filter(|path| !path.is_empty()) {
        return Some(fake);
    }
    let path = variable("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| is_program(&folder.join("srun"))).then(|| "srun".to_owned())
}

/// The nodes of an allocation that one runner uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocationShare {
    /// The node on which it runs.
    OwnNode,
    /// All nodes: the runner starts steps on each of them.
    AllNodes,
}

/// Returns the names of a runner's nodes, its own first; empty for an allocation of one node.
pub fn node_names(around: &allocation::CurrentAllocation, share: AllocationShare) -> Vec<String> {
    let mut nodes = around.nodes.clone();
    if nodes.len() < 2 {
        return Vec::new();
    }
    if let Some(at) = around.node.as_ref().and_then(|own| nodes.iter().position(|node| node == own)) {
        nodes[..=at].rotate_right(1);
    }
    if share == AllocationShare::OwnNode {
        nodes.truncate(1);
    }
    nodes
}

fn total_memory(meminfo: &str) -> Option<i64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse::<i64>().ok()?.checked_mul(1024)
}

/// Returns the files that may hold a memory limit, from the cgroup up to the root, for both versions of cgroups.
fn limit_files(cgroups: &str) -> Vec<String> {
    memory_files(cgroups, "memory.max", "memory.limit_in_bytes")
}

/// Returns the files that count OOM kills, from the cgroup up to the root.
pub(crate) fn memory_event_files(cgroups: &str) -> Vec<String> {
    memory_files(cgroups, "memory.events", "memory.oom_control")
}

/// Returns a file of the memory controller for every cgroup up to the root, by its names in cgroups 2 and 1.
fn memory_files(cgroups: &str, name2: &str, name1: &str) -> Vec<String> {
    let mut files = Vec::new();
    for line in cgroups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else { continue };
        let (root, name) = match controllers {
            "" => ("/sys/fs/cgroup", name2),
            _ if controllers.split(',').any(|one| one == "memory") => ("/sys/fs/cgroup/memory", name1),
            _ => continue,
        };
        let mut path = path.trim_end_matches('/');
        loop {
            files.push(format!("{root}{path}/{name}"));
            match path.rfind('/') {
                Some(end) => path = &path[..end],
                None => break,
            }
        }
    }
    files
}

/// Reads a limit, if there is one: cgroups 2 write `max`, cgroups 1 a huge number.
fn memory_limit(text: &str) -> Option<i64> {
    text.trim().parse::<i64>().ok().filter(|limit| *limit > 0)
}

/// Returns the devices of the first variable that is set; none if no variable is set.
fn visible_devices(variable: impl Fn(&str) -> Option<String>) -> Option<Vec<String>> {
    let names =
        ["CUDA_VISIBLE_DEVICES", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"];
    names.into_iter().find_map(variable).map(|value| device_list(&value))
}

/// Reads `0,2`, `0-3,6` or names. `NoDevFiles`, `-1` and an empty value mean no device.
fn device_list(value: &str) -> Vec<String> {
    let mut devices = Vec::new();
    for part in value.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        if part == "-1" || part == "NoDevFiles" {
            break;
        }
        let range =
            part.split_once('-').and_then(|(from, to)| Some((from.parse::<u16>().ok()?, to.parse::<u16>().ok()?)));
        match range {
            Some((from, to)) => devices.extend((from..=to).map(|number| number.to_string())),
            None => devices.push(part.to_owned()),
        }
    }
    devices
}

fn device_files(names: impl Iterator<Item = String>) -> Vec<String> {
    let number = |name: String| name.strip_prefix("nvidia").and_then(|rest| rest.parse::<u16>().ok());
    let mut numbers: Vec<u16> = names.filter_map(number).collect();
    numbers.sort_unstable();
    numbers.into_iter().map(|number| number.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_something() {
        assert!(cpus() >= 1);
        assert!(memory() > 1 << 20);
    }

    #[test]
    fn reads_meminfo() {
        assert_eq!(total_memory("MemTotal:       16384 kB\nMemFree: 1 kB\n"), Some(16 << 20));
        assert_eq!(total_memory("MemFree: 1 kB\n"), None);
        assert_eq!(total_memory("MemTotal: x kB\n"), None);
    }

    #[test]
    fn looks_for_limits_up_to_the_root() {
        assert_eq!(
            limit_files("0::/user.slice/job_1\n"),
            [
                "/sys/fs/cgroup/user.slice/job_1/memory.max",
                "/sys/fs/cgroup/user.slice/memory.max",
                "/sys/fs/cgroup/memory.max"
            ]
        );
        assert_eq!(
            limit_files("4:cpu,memory:/a\n3:cpuset:/b\nnonsense"),
            ["/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        );
        assert_eq!(limit_files("0::/\n"), ["/sys/fs/cgroup/memory.max"]);
        assert_eq!((memory_limit("max\n"), memory_limit("1024\n"), memory_limit("")), (None, Some(1024), None));
    }

    // J21
    #[test]
    fn devices_come_from_the_environment() {
        type Case<'a> = (&'a [(&'a str, &'a str)], Option<&'a [&'a str]>);
        let cases: [Case<'_>; 10] = [
            (&[("CUDA_VISIBLE_DEVICES", "0,2"), ("SLURM_JOB_GPUS", "7")], Some(&["0", "2"])),
            (&[("CUDA_VISIBLE_DEVICES", "")], Some(&[])),
            (&[("CUDA_VISIBLE_DEVICES", "NoDevFiles")], Some(&[])),
            (&[("CUDA_VISIBLE_DEVICES", "1,-1,2")], Some(&["1"])),
            (&[("CUDA_VISIBLE_DEVICES", "GPU-8932f937,MIG-1")], Some(&["GPU-8932f937", "MIG-1"])),
            (&[("SLURM_STEP_GPUS", "0-2,5"), ("SLURM_JOB_GPUS", "7")], Some(&["0", "1", "2", "5"])),
            (&[("SLURM_JOB_GPUS", " 3 "), ("HIP_VISIBLE_DEVICES", "9")], Some(&["3"])),
            (&[("HIP_VISIBLE_DEVICES", "1"), ("ROCR_VISIBLE_DEVICES", "2")], Some(&["1"])),
            (&[("ROCR_VISIBLE_DEVICES", "2")], Some(&["2"])),
            (&[], None),
        ];
        for (variables, expected) in cases {
            let lookup =
                |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
            let expected = expected.map(|names| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
            assert_eq!(visible_devices(lookup), expected, "{variables:?}");
        }
    }

    // X01, S19, S21
    #[test]
    fn srun_is_looked_for_and_can_be_replaced() {
        let find = |variables: &[(&str, &str)]| {
            let lookup =
                |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
            find_srun(lookup, |path| path == Path::new("/opt/slurm/bin/srun"))
        };
        assert_eq!(find(&[("PATH", "/usr/bin:/opt/slurm/bin")]).as_deref(), Some("srun"));
        assert_eq!(find(&[("PATH", "/usr/bin")]), None);
        assert_eq!(find(&[]), None);
        assert_eq!(find(&[("TORC_FAKE_SRUN", "/tmp/fake"), ("PATH", "/opt/slurm/bin")]).as_deref(), Some("/tmp/fake"));
        assert_eq!(find(&[("TORC_FAKE_SRUN", ""), ("PATH", "/opt/slurm/bin")]).as_deref(), Some("srun"));
    }

    #[test]
    fn the_runners_own_node_comes_first() {
        let found = |node: Option<&str>| allocation::CurrentAllocation {
            nodes: ["n1", "n2", "n3"].map(str::to_owned).into(),
            node: node.map(str::to_owned),
            ..allocation::CurrentAllocation::default()
        };
        let all = |node| node_names(&found(node), AllocationShare::AllNodes);
        assert_eq!(all(Some("n3")), ["n3", "n1", "n2"]);
        assert_eq!(all(Some("n1")), ["n1", "n2", "n3"]);
        assert_eq!(all(Some("else")), ["n1", "n2", "n3"]);
        assert_eq!(all(None), ["n1", "n2", "n3"]);
        assert_eq!(node_names(&found(Some("n2")), AllocationShare::OwnNode), ["n2"]);
        let alone =
            allocation::CurrentAllocation { nodes: vec!["n1".to_owned()], ..allocation::CurrentAllocation::default() };
        assert_eq!(node_names(&alone, AllocationShare::AllNodes), Vec::<String>::new());
    }

    #[test]
    fn devices_come_from_device_files() {
        let names = ["nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm", "sda"].map(str::to_owned);
        assert_eq!(device_files(names.into_iter()), ["2", "10"]);
    }

    // J06
    #[test]
    fn the_smallest_limit_of_memory_counts() {
        for (limits, expected) in [(vec![], 8), (vec![9], 8), (vec![5, 3, 7], 3)] {
            assert_eq!(within(8, limits.iter().copied()), expected, "{limits:?}");
        }
    }
}
