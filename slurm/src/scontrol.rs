//! `scontrol`: details of one job, all partitions.

use torc_api::slurm::SlurmState;

use crate::call::{CommandSpec, Tool};
use crate::job_id::JobId;
use crate::parse::fields::{Limit, limit, pairs, parse_time, value};
use crate::state::meaning;

/// A job with details that `squeue` does not print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScontrolJob {
    /// The ID; for a task of an array or a component, the ID of that part.
    pub id: JobId,
    pub state: SlurmState,
    /// The reason why it waits or has ended.
    pub reason: Option<String>,
    /// The number of requeues.
    pub restarts: i64,
    /// The start or estimated start, in seconds since 1970.
    pub start: Option<i64>,
    /// The latest possible end, in seconds since 1970.
    pub end: Option<i64>,
    pub time_limit: Option<Limit>,
    /// The time at which Slurm decided to preempt it, in seconds since 1970.
    pub preempted: Option<i64>,
    /// The nodes, as Slurm lists them.
    pub node_list: Option<String>,
}

/// Returns the query for a job.
pub fn job(id: &str) -> CommandSpec {
    CommandSpec::new(Tool::Scontrol, ["-o", "show", "job", id])
}

/// Sets the time limit of a step such as `12345.7` in minutes from its start. Its owner may do so within the limit of the job.
pub fn extend_step(step: &str, minutes: u64) -> CommandSpec {
    CommandSpec::new(Tool::Scontrol, ["update", &format!("StepId={step}"), &format!("TimeLimit={minutes}")])
}

/// Parses the jobs: an array or a heterogeneous job has several.
pub fn read_jobs(text: &str) -> Vec<ScontrolJob> {
    text.lines().filter_map(read_job).collect()
}

fn read_job(line: &str) -> Option<ScontrolJob> {
    let pairs = pairs(line);
    let text = |key: &str| value(&pairs, key);
    Some(ScontrolJob {
        id: text("JobId")?.parse().ok()?,
        state: meaning(text("JobState")?),
        // Only `scontrol` prints underscores for blanks.
        reason: text("Reason").map(|reason| reason.replace('_', " ")),
        restarts: text("Restarts").and_then(|count| count.parse().ok()).unwrap_or(0),
        start: text("StartTime").and_then(parse_time),
        end: text("EndTime").and_then(parse_time),
        time_limit: text("TimeLimit").and_then(limit),
        preempted: text("PreemptTime").and_then(parse_time),
        node_list: text("NodeList").map(str::to_owned),
    })
}

/// The limits of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionRules {
    pub name: String,
    /// `true` if it accepts jobs.
    pub is_up: bool,
    /// `true` if it is hidden or for administrators only.
    pub is_special: bool,
    /// `true` if a node belongs to one job at a time.
    pub is_exclusive: bool,
    /// The maximum time limit.
    pub max_time: Option<Limit>,
    /// The maximum number of nodes of a job; `None` for no limit.
    pub max_nodes: Option<i64>,
    /// The maximum memory of a job on a node in MiB; `None` for no limit.
    pub max_memory_mb: Option<i64>,
    /// The number of nodes.
    pub nodes: Option<i64>,
}

/// Returns the query for all partitions.
pub fn partitions() -> CommandSpec {
    CommandSpec::new(Tool::Scontrol, ["-a", "-o", "show", "partition"])
}

/// Parses the partitions, in Slurm's order.
pub fn read_partitions(text: &str) -> Vec<PartitionRules> {
    text.lines().filter_map(read_partition).collect()
}

fn read_partition(line: &str) -> Option<PartitionRules> {
    let pairs = pairs(line);
    let text = |key: &str| value(&pairs, key);
    let number = |key: &str| text(key).and_then(|count| count.parse::<i64>().ok());
    let yes = |key: &str| text(key) == Some("YES");
    Some(PartitionRules {
        name: text("PartitionName")?.to_owned(),
        is_up: text("State").is_none_or(|state| state == "UP"),
        is_special: yes("RootOnly") || yes("Hidden"),
        is_exclusive: text("OverSubscribe") == Some("EXCLUSIVE"),
        max_time: text("MaxTime").and_then(limit),
        max_nodes: number("MaxNodes"),
        max_memory_mb: number("MaxMemPerNode"),
        nodes: number("TotalNodes"),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    // Output of Slurm 22.05.
    #[test]
    fn jobs() {
        let text = "\
JobId=15860000 JobName=ok UserId=root(0) JobState=RUNNING Reason=None Dependency=(null) Requeue=1 Restarts=2 ExitCode=0:0 \
RunTime=00:00:04 TimeLimit=1-02:00:00 StartTime=2026-11-16T09:45:30 EndTime=2026-11-17T11:45:30 Deadline=N/A PreemptTime=2026-11-16T09:46:30 NodeList=n[1-4] \
BatchHost=n1 Command=/tmp/my script.sh WorkDir=/tmp Power= 
JobId=15860015 ArrayJobId=15860002 ArrayTaskId=1 JobName=array JobState=PENDING Reason=ReqNodeNotAvail,_UnavailableNodes:n4 \
Restarts=0 TimeLimit=UNLIMITED StartTime=Unknown EndTime=Unknown PreemptTime=None NodeList= NumNodes=1
";
        let jobs = read_jobs(text);
        assert_eq!(jobs.len(), 2);
        let first = &jobs[0];
        assert_eq!((first.id.clone(), first.state, first.restarts), (JobId::whole(15_860_000), SlurmState::Running, 2));
        assert_eq!((first.reason.as_deref(), first.node_list.as_deref()), (None, Some("n[1-4]")));
        assert_eq!((first.start, first.time_limit), (Some(1_794_822_330), Some(Limit::Seconds(93_600))));
        let second = &jobs[1];
        assert_eq!((first.preempted, second.preempted), (Some(1_794_822_390), None));
        assert_eq!(second.reason.as_deref(), Some("ReqNodeNotAvail, UnavailableNodes:n4"));
        assert_eq!((second.start, second.end, second.time_limit), (None, None, Some(Limit::Unlimited)));
        assert_eq!(read_jobs("No jobs in the system\n"), []);
    }

    #[test]
    fn every_key_of_a_job_has_its_field() {
        let line = "JobId=17 JobState=PENDING Reason=Not_now Restarts=3 TimeLimit=00:04:05 StartTime=2026-11-16T09:45:30 \
                    EndTime=2026-11-16T09:45:31 PreemptTime=2026-11-16T09:45:32 NodeList=n[6-7]";
        let expected = ScontrolJob {
            id: JobId::whole(17),
            state: SlurmState::Pending,
            reason: Some("Not now".to_owned()),
            restarts: 3,
            start: Some(1_794_822_330),
            end: Some(1_794_822_331),
            time_limit: Some(Limit::Seconds(245)),
            preempted: Some(1_794_822_332),
            node_list: Some("n[6-7]".to_owned()),
        };
        assert_eq!(read_jobs(line), [expected]);
        let bare = read_jobs("JobId=17 JobState=RUNNING");
        assert_eq!((bare[0].restarts, bare[0].start, &bare[0].reason), (0, None, &None));
    }

    #[test]
    fn every_question_is_asked_literally_so() {
        let cases = [
            (job("17"), vec!["-o", "show", "job", "17"]),
            (extend_step("17.3", 42), vec!["update", "StepId=17.3", "TimeLimit=42"]),
            (partitions(), vec!["-a", "-o", "show", "partition"]),
            (crate::sinfo::nodes(), vec!["-h", "-e", "-a", "-o", "%R|%D|%c|%m|%G|%T"]),
        ];
        for ((call, expected), tool) in
            cases.into_iter().zip([Tool::Scontrol, Tool::Scontrol, Tool::Scontrol, Tool::Sinfo])
        {
            assert_eq!((call.tool, call.arguments), (tool, expected.into_iter().map(str::to_owned).collect()));
        }
    }

    #[test]
    fn each_flag_of_a_partition_counts_by_itself() {
        let read = |rest: &str| {
            let found = read_partitions(&format!("PartitionName=p {rest}\n")).remove(0);
            (found.is_up, found.is_special, found.is_exclusive)
        };
        let cases = [
            ("State=UP RootOnly=NO Hidden=NO OverSubscribe=NO", (true, false, false)),
            ("RootOnly=YES", (true, true, false)),
            ("Hidden=YES", (true, true, false)),
            ("State=DOWN", (false, false, false)),
            ("State=INACTIVE", (false, false, false)),
            ("OverSubscribe=EXCLUSIVE", (true, false, true)),
            ("OverSubscribe=FORCE:4", (true, false, false)),
        ];
        for (rest, expected) in cases {
            assert_eq!(read(rest), expected, "{rest}");
        }
    }

    #[test]
    fn partitions_and_their_rules() {
        let text = "\
PartitionName=debug AllowGroups=ALL Default=YES QoS=N/A DefaultTime=NONE Hidden=NO MaxNodes=UNLIMITED MaxTime=UNLIMITED \
MinNodes=0 Nodes=n[1-4] RootOnly=NO OverSubscribe=NO State=UP TotalCPUs=16 TotalNodes=4 MaxMemPerNode=UNLIMITED
PartitionName=big Hidden=YES MaxNodes=2 MaxTime=2-00:00:00 RootOnly=NO OverSubscribe=EXCLUSIVE State=DRAIN TotalNodes=8 \
MaxMemPerNode=120000
";
        let found = read_partitions(text);
        let debug = PartitionRules {
            name: "debug".to_owned(),
            is_up: true,
            is_special: false,
            is_exclusive: false,
            max_time: Some(Limit::Unlimited),
            max_nodes: None,
            max_memory_mb: None,
            nodes: Some(4),
        };
        let big = PartitionRules {
            name: "big".to_owned(),
            is_up: false,
            is_special: true,
            is_exclusive: true,
            max_time: Some(Limit::Seconds(172_800)),
            max_nodes: Some(2),
            max_memory_mb: Some(120_000),
            nodes: Some(8),
        };
        assert_eq!(found, [debug, big]);
    }
}
