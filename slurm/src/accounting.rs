//! The full accounting of allocations and steps, for billing and for finding faults.

use torc_api::slurm::SlurmState;

use crate::call::{CommandSpec, Tool};
use crate::error::SlurmError;
use crate::parse::amounts::{cpu_seconds, memory_bytes};
use crate::parse::fields::{parse_time, present_value};
use crate::state::meaning;

const FIELDS: &str =
    "--format=JobID,State,ExitCode,Start,End,ElapsedRaw,NNodes,AllocCPUS,CPUTimeRAW,TotalCPU,MaxRSS,NodeList,JobName";

/// An allocation, or a step of one.
#[derive(Clone, Debug, PartialEq)]
pub struct AccountingRecord {
    /// Slurm's ID, such as `12345` or `12345.7`.
    pub id: String,
    pub name: String,
    /// The state as Slurm prints it.
    pub state_text: String,
    pub state: SlurmState,
    /// The exit code and the signal, as Slurm prints them: `1:0`.
    pub exit_code: String,
    /// The start, in seconds since 1970.
    pub start: Option<i64>,
    /// The end, in seconds since 1970.
    pub end: Option<i64>,
    pub elapsed_seconds: i64,
    /// The number of nodes.
    pub nodes: i64,
    /// The number of CPUs.
    pub cpus: i64,
    /// Allocated CPU time: CPUs times seconds.
    pub cpu_seconds: i64,
    pub used_cpu_seconds: Option<f64>,
    /// The largest memory of a task; only for steps.
    pub max_rss_bytes: Option<i64>,
    /// The nodes, as Slurm lists them.
    pub node_list: Option<String>,
}

impl AccountingRecord {
    /// Returns whether this is an allocation and not a step.
    pub fn is_allocation(&self) -> bool {
        !self.id.contains('.')
    }
}

/// Returns the query for allocations and their steps, including earlier starts of requeued allocations.
pub fn ask<'a>(ids: impl IntoIterator<Item = &'a str>) -> CommandSpec {
    let ids = ids.into_iter().collect::<Vec<&str>>().join(",");
    CommandSpec::new(Tool::Sacct, ["-a", "-D", "-P", "-n", FIELDS, "-j"]).arg(ids)
}

/// Parses the output. A line that cannot be parsed makes all of it invalid.
pub fn read(text: &str) -> Result<Vec<AccountingRecord>, SlurmError> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| read_line(line).ok_or_else(|| SlurmError::unreadable(Tool::Sacct, line))).collect()
}

fn read_line(line: &str) -> Option<AccountingRecord> {
    let fields: Vec<&str> = line.splitn(13, '|').collect();
    let [id, state, exit, start, end, elapsed, nodes, cpus, cpu, used, memory, node_list, name] = fields.as_slice()
    else {
        return None;
    };
    let number = |text: &str| text.trim().parse::<i64>().unwrap_or(0);
    Some(AccountingRecord {
        id: (*id).to_owned(),
        name: (*name).to_owned(),
        state_text: (*state).to_owned(),
        state: meaning(state),
        exit_code: (*exit).to_owned(),
        start: parse_time(start),
        end: parse_time(end),
        elapsed_seconds: number(elapsed),
        nodes: number(nodes),
        cpus: number(cpus),
        cpu_seconds: number(cpu),
        used_cpu_seconds: cpu_seconds(used),
        max_rss_bytes: memory_bytes(memory),
        node_list: present_value(node_list).map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    // As Slurm 22.05 prints them.
    const TEXT: &str = "\
26180000|COMPLETED|0:0|2026-11-16T13:35:23|2026-11-16T13:35:36|13|4|8|104|00:02.519||n[1-4]|run.sh
26180000.batch|COMPLETED|0:0|2026-11-16T13:35:23|2026-11-16T13:35:36|13|1|2|26|00:00.211|98120K|n1|batch
26180000.10|OUT_OF_MEMORY|0:125|2026-11-16T13:35:24|2026-11-16T13:35:25|1|1|1|1|00:00.109|3104K|n3|wf1_j10_r1_a1
26180001|RUNNING|0:0|2026-11-16T13:36:00|Unknown|5|1|2|10|00:00:00||n1|a|b
";

    #[test]
    fn allocations_and_their_steps() {
        let records = read(TEXT).unwrap();
        let first = &records[0];
        assert_eq!((first.id.as_str(), first.nodes, first.cpus, first.cpu_seconds), ("26180000", 4, 8, 104));
        assert_eq!((first.elapsed_seconds, first.used_cpu_seconds), (13, Some(2.519)));
        let allocations: Vec<bool> = records.iter().map(AccountingRecord::is_allocation).collect();
        assert_eq!(allocations, [true, false, false, true]);
        assert_eq!((records[2].state, records[2].exit_code.as_str()), (SlurmState::OutOfMemory, "0:125"));
        assert_eq!(records[2].max_rss_bytes, Some(3_104 << 10));
        assert_eq!((records[3].name.as_str(), records[3].end), ("a|b", None));
        assert_eq!(read("\n"), Ok(Vec::new()));
        assert!(read("7|COMPLETED\n").is_err(), "half a line is no answer");
    }

    #[test]
    fn every_column_has_its_field() {
        let text = "17.4|PREEMPTED|5:6|2026-11-16T13:35:23|2026-11-16T13:35:36|7|8|9|10|00:11.500|12K|n[13-14]|name\n";
        let expected = AccountingRecord {
            id: "17.4".to_owned(),
            name: "name".to_owned(),
            state_text: "PREEMPTED".to_owned(),
            state: SlurmState::Preempted,
            exit_code: "5:6".to_owned(),
            start: Some(1_794_836_123),
            end: Some(1_794_836_136),
            elapsed_seconds: 7,
            nodes: 8,
            cpus: 9,
            cpu_seconds: 10,
            used_cpu_seconds: Some(11.5),
            max_rss_bytes: Some(12_288),
            node_list: Some("n[13-14]".to_owned()),
        };
        assert_eq!(read(text), Ok(vec![expected]));
        let fields = "--format=JobID,State,ExitCode,Start,End,ElapsedRaw,NNodes,AllocCPUS,CPUTimeRAW,TotalCPU,MaxRSS,NodeList,JobName";
        let call = ask(["1", "2"]);
        assert_eq!(
            (call.tool, call.arguments.as_slice()),
            (Tool::Sacct, &["-a", "-D", "-P", "-n", fields, "-j", "1,2"].map(str::to_owned)[..])
        );
    }

    #[test]
    fn the_question() {
        let call = ask(["1", "2"]);
        assert_eq!(call.arguments.last().unwrap(), "1,2");
        assert!(call.arguments.contains(&"-D".to_owned()), "a requeued allocation has cost more than once");
    }
}
