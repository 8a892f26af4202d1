//! The allocation of the current process, from Slurm's environment variables.

use crate::call::{CommandSpec, Tool};

/// An allocation, as far as the environment describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CurrentAllocation {
    /// The Slurm job ID.
    pub job_id: String,
    /// All nodes, in Slurm's order.
    pub nodes: Vec<String>,
    /// The node of this process.
    pub node: Option<String>,
    /// CPUs on this node.
    pub cpus: Option<i64>,
    /// CPUs of the node that has the fewest: nodes of one allocation may differ.
    pub least_cpus: Option<i64>,
    /// Bytes of memory on this node.
    pub memory_bytes: Option<i64>,
    /// GPUs on this node, by number.
    pub gpus: Option<i64>,
    /// The end, in seconds since 1970.
    pub end_time: Option<i64>,
}

/// Reads the allocation from the environment; `None` outside of one.
pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Option<CurrentAllocation> {
    let text = |name: &str| variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
    let number = |name: &str| text(name).and_then(|value| value.parse::<i64>().ok()).filter(|number| *number > 0);
    let job_id = text("SLURM_JOB_ID")?;
    let cpus = number("SLURM_CPUS_ON_NODE");
    let list = text("SLURM_JOB_NODELIST").or_else(|| text("SLURM_NODELIST"));
    let per_cpu = || Some(number("SLURM_MEM_PER_CPU")?.saturating_mul(cpus?));
    let gpus = number("SLURM_GPUS_ON_NODE")
        .or_else(|| text("SLURM_STEP_GPUS").or_else(|| text("SLURM_JOB_GPUS")).map(|list| count(&list)));
    Some(CurrentAllocation {
        job_id,
        nodes: list.map(|list| node_names(&list)).unwrap_or_default(),
        node: text("SLURMD_NODENAME"),
        cpus,
        least_cpus: text("SLURM_JOB_CPUS_PER_NODE").and_then(|list| min_count(&list)),
        memory_bytes: number("SLURM_MEM_PER_NODE").or_else(per_cpu).map(|mebibytes| mebibytes.saturating_mul(1 << 20)),
        gpus,
        end_time: number("SLURM_JOB_END_TIME"),
    })
}

/// Returns the smallest number of a list such as `72(x2),36`.
fn min_count(list: &str) -> Option<i64> {
    let numbers = list.split(',').map(|part| part.split('(').next().unwrap_or_default().trim().parse::<i64>().ok());
    numbers.collect::<Option<Vec<i64>>>()?.into_iter().min()
}

/// Counts the devices of a list such as `0-2,5`.
fn count(list: &str) -> i64 {
    let parts = list.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.map(|part| range(part).map_or(1, |(from, to, _)| i64::from(to - from) + 1)).sum()
}

/// Returns the first and last number of `3-12`, and the number of digits.
fn range(text: &str) -> Option<(u32, u32, usize)> {
    let (from, to) = text.split_once('-')?;
    let (first, last) = (from.parse::<u32>().ok()?, to.parse::<u32>().ok()?);
    (first <= last).then_some((first, last, from.len()))
}

/// Maximum number of nodes of a list: more is a mistake.
const MAX_NODES: usize = 100_000;

/// Returns the names of a list such as `n[1-3,7],login` or `rack[01-02]-gpu[1-2]`. Unreadable parts stay as they are.
pub fn node_names(list: &str) -> Vec<String> {
    let mut names = Vec::new();
    for part in split_outside_brackets(list) {
        expand(part, &mut names);
        if names.len() > MAX_NODES {
            names.truncate(MAX_NODES);
            break;
        }
    }
    names
}

fn split_outside_brackets(list: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_i32, 0);
    for (at, letter) in list.char_indices() {
        match letter {
            '[' => depth += 1,
            ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[start..]);
    parts.into_iter().map(str::trim).filter(|part| !part.is_empty()).collect()
}

/// Expands the first bracket, and the others recursively.
fn expand(part: &str, names: &mut Vec<String>) {
    let bracket = part.find('[').and_then(|open| Some((open, open + part[open..].find(']')?)));
    let Some((open, close)) = bracket else { return names.push(part.to_owned()) };
    let (before, rest) = (&part[..open], &part[close + 1..]);
    for item in part[open + 1..close].split(',').map(str::trim) {
        let (first, last, width) = range(item).unwrap_or((0, 0, 0));
        for number in first..=last {
            if names.len() > MAX_NODES {
                return;
            }
            let middle = if width == 0 { item.to_owned() } else { format!("{number:0width$}") };
            expand(&format!("{before}{middle}{rest}"), names);
        }
    }
}

/// Returns the query for the remaining time of a job. Only newer versions of Slurm set it in the environment.
pub fn time_left_query(job_id: &str) -> CommandSpec {
    CommandSpec::new(Tool::Squeue, ["-h", "-j", job_id, "-o", "%L"])
}

/// Returns the remaining seconds from the output of `squeue -h -o %L`: `1-02:03:04`, `59:30`, `45`; `None` for `UNLIMITED`.
pub fn time_left(squeue: &str) -> Option<u64> {
    let text = squeue.trim();
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (days.parse::<u64>().ok()?, clock),
        None => (0, text),
    };
    let parts: Vec<u64> = clock.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let (hours, minutes, seconds) = match parts.as_slice() {
        [hours, minutes, seconds] => (*hours, *minutes, *seconds),
        [minutes, seconds] => (0, *minutes, *seconds),
        [seconds] => (0, 0, *seconds),
        _ => return None,
    };
    days.checked_mul(24)?
        .checked_add(hours)?
        .checked_mul(60)?
        .checked_add(minutes)?
        .checked_mul(60)?
        .checked_add(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Option<CurrentAllocation> {
        from_environment(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    // J02
    #[test]
    fn the_environment_of_an_allocation() {
        assert_eq!(read(&[("SLURM_CPUS_ON_NODE", "4")]), None);
        assert_eq!(read(&[("SLURM_JOB_ID", " ")]), None);
        let bare = CurrentAllocation { job_id: "7".to_owned(), ..CurrentAllocation::default() };
        assert_eq!(read(&[("SLURM_JOB_ID", "7"), ("SLURM_CPUS_ON_NODE", "many")]), Some(bare));
        let full = read(&[
            ("SLURM_JOB_ID", "12345"),
            ("SLURM_JOB_NODELIST", "n[1-2]"),
            ("SLURMD_NODENAME", "n1"),
            ("SLURM_CPUS_ON_NODE", "4"),
            ("SLURM_JOB_CPUS_PER_NODE", "4(x3),2,8(x2)"),
            ("SLURM_MEM_PER_NODE", "4000"),
            ("SLURM_GPUS_ON_NODE", "2"),
            ("SLURM_JOB_END_TIME", "1800000000"),
        ]);
        let expected = CurrentAllocation {
            job_id: "12345".to_owned(),
            nodes: vec!["n1".to_owned(), "n2".to_owned()],
            node: Some("n1".to_owned()),
            cpus: Some(4),
            least_cpus: Some(2),
            memory_bytes: Some(4_000 << 20),
            gpus: Some(2),
            end_time: Some(1_800_000_000),
        };
        assert_eq!(full, Some(expected));
        let per_cpu = read(&[("SLURM_JOB_ID", "1"), ("SLURM_CPUS_ON_NODE", "8"), ("SLURM_MEM_PER_CPU", "1024")]);
        assert_eq!(per_cpu.and_then(|found| found.memory_bytes), Some(8 << 30));
        let listed = read(&[("SLURM_JOB_ID", "1"), ("SLURM_JOB_GPUS", "0-2,5")]);
        assert_eq!(listed.and_then(|found| found.gpus), Some(4));
    }

    #[test]
    fn each_variable_and_what_stands_in_for_it() {
        let with = |variables: &[(&str, &str)]| {
            let all: Vec<(&str, &str)> = [("SLURM_JOB_ID", "1")].into_iter().chain(variables.iter().copied()).collect();
            read(&all).expect("an allocation")
        };
        assert_eq!(with(&[("SLURM_NODELIST", "a,b")]).nodes, ["a", "b"]);
        assert_eq!(with(&[("SLURM_NODELIST", "a"), ("SLURM_JOB_NODELIST", "b")]).nodes, ["b"]);
        let memory = |variables: &[(&str, &str)]| with(variables).memory_bytes;
        assert_eq!(memory(&[("SLURM_MEM_PER_CPU", "3")]), None, "CPUs are not known");
        assert_eq!(memory(&[("SLURM_MEM_PER_CPU", "3"), ("SLURM_CPUS_ON_NODE", "5")]), Some(15 << 20));
        assert_eq!(
            memory(&[("SLURM_MEM_PER_CPU", "3"), ("SLURM_CPUS_ON_NODE", "5"), ("SLURM_MEM_PER_NODE", "7")]),
            Some(7 << 20)
        );
        assert_eq!(memory(&[("SLURM_MEM_PER_NODE", "0"), ("SLURM_CPUS_ON_NODE", "5")]), None, "0 is all there is");
        let gpus = |variables: &[(&str, &str)]| with(variables).gpus;
        assert_eq!(gpus(&[("SLURM_STEP_GPUS", "0,1"), ("SLURM_JOB_GPUS", "0-7")]), Some(2));
        assert_eq!(gpus(&[("SLURM_JOB_GPUS", "0-7")]), Some(8));
        assert_eq!(gpus(&[("SLURM_GPUS_ON_NODE", "3"), ("SLURM_STEP_GPUS", "0,1")]), Some(3));
        assert_eq!(gpus(&[]), None);
        let least = with(&[("SLURM_CPUS_ON_NODE", "1"), ("SLURM_MEM_PER_NODE", "1"), ("SLURM_GPUS_ON_NODE", "1")]);
        assert_eq!((least.cpus, least.memory_bytes, least.gpus), (Some(1), Some(1 << 20), Some(1)));
        assert_eq!(with(&[("SLURM_CPUS_ON_NODE", "0")]).cpus, None);
        let other =
            with(&[("SLURMD_NODENAME", " n4 "), ("SLURM_JOB_END_TIME", "-5"), ("SLURM_JOB_CPUS_PER_NODE", "8,x")]);
        assert_eq!((other.node.as_deref(), other.end_time, other.least_cpus), (Some("n4"), None, None));
        assert_eq!(with(&[("SLURM_JOB_CPUS_PER_NODE", "72(x2),36")]).least_cpus, Some(36));
    }

    #[test]
    fn time_left_in_every_form() {
        let cases = [
            ("45", Some(45)),
            ("1:00", Some(60)),
            ("1:00:00", Some(3_600)),
            ("1-00:00:00", Some(86_400)),
            ("2-03:04", Some(2 * 86_400 + 184)),
            ("1:2:3:4", None),
            ("-1", None),
            ("1-", None),
            ("18446744073709551615-00:00:00", None),
        ];
        for (text, left) in cases {
            assert_eq!(time_left(text), left, "{text:?}");
        }
    }

    #[test]
    fn lists_of_nodes() {
        let cases: [(&str, &[&str]); 9] = [
            ("n1", &["n1"]),
            ("n[1-3]", &["n1", "n2", "n3"]),
            ("n[1-2,7],login", &["n1", "n2", "n7", "login"]),
            ("node[008-010]", &["node008", "node009", "node010"]),
            ("r[1-2]c[1-2]", &["r1c1", "r1c2", "r2c1", "r2c2"]),
            ("", &[]),
            ("n[1-", &["n[1-"]),
            ("n[3-1]", &["n3-1"]),
            ("a-b,c-d", &["a-b", "c-d"]),
        ];
        for (list, expected) in cases {
            assert_eq!(node_names(list), expected, "{list}");
        }
        assert_eq!(node_names("n[1-4000000000]").len(), MAX_NODES, "a mistake does not take the memory");
    }

    // J02
    #[test]
    fn how_much_time_is_left() {
        assert_eq!(time_left_query("7").arguments, ["-h", "-j", "7", "-o", "%L"]);
        let cases = [
            ("1-02:03:04\n", Some(93_784)),
            ("02:03:04", Some(7_384)),
            ("59:30", Some(3_570)),
            ("UNLIMITED", None),
            ("NOT_SET", None),
            ("", None),
            ("INVALID", None),
        ];
        for (text, left) in cases {
            assert_eq!(time_left(text), left, "{text:?}");
        }
    }
}
