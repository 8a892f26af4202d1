//! `sacct`: the ends of jobs and steps, and their usage.

use std::collections::HashMap;

use torc_api::slurm::SlurmState;
use torc_api::slurm_stats::SlurmStats;
use torc_api::wire::AttemptKey;

use crate::call::{CommandSpec, Tool};
use crate::error::SlurmError;
use crate::job_id::JobId;
use crate::parse::amounts::{cpu_seconds, memory_bytes};
use crate::parse::fields::{parse_time, present_value};
use crate::state::meaning;

const JOB_FIELDS: &str = "--format=JobID,State,ExitCode,Start,End,NodeList,JobName";
const STEP_FIELDS: &str = "--format=JobName,MaxRSS,MaxVMSize,MaxDiskRead,MaxDiskWrite,AveCPU,NodeList,State";

/// A job in the accounting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedJob {
    pub id: JobId,
    /// The state as Slurm prints it.
    pub state_text: String,
    pub state: SlurmState,
    /// The exit code and the signal.
    pub exit: Option<(i32, i32)>,
    /// The start, in seconds since 1970.
    pub start: Option<i64>,
    /// The end, in seconds since 1970.
    pub end: Option<i64>,
    /// The nodes, as Slurm lists them.
    pub node_list: Option<String>,
    pub name: String,
}

/// Returns the query for jobs without their steps. Of a requeued job, it returns the last record.
pub fn jobs<'a>(ids: impl IntoIterator<Item = &'a str>) -> CommandSpec {
    let ids = ids.into_iter().collect::<Vec<&str>>().join(",");
    CommandSpec::new(Tool::Sacct, ["-X", "-a", "-P", "-n", JOB_FIELDS, "-j"]).arg(ids)
}

/// Returns the query for all starts of jobs, the latest last.
pub fn all_starts<'a>(ids: impl IntoIterator<Item = &'a str>) -> CommandSpec {
    let ids = ids.into_iter().collect::<Vec<&str>>().join(",");
    CommandSpec::new(Tool::Sacct, ["-X", "-D", "-a", "-P", "-n", JOB_FIELDS, "-j"]).arg(ids)
}

/// Returns the query for jobs with these names that existed at or after a time such as `2026-11-16T09:45:30` (UTC).
pub fn jobs_named<'a>(names: impl IntoIterator<Item = &'a str>, since: &str) -> CommandSpec {
    let names = names.into_iter().collect::<Vec<&str>>().join(",");
    CommandSpec::new(Tool::Sacct, ["-X", "-a", "-P", "-n", JOB_FIELDS, "-S", since]).arg(format!("--name={names}"))
}

/// Parses the jobs. A line that cannot be parsed makes the whole output invalid.
pub fn read_jobs(text: &str) -> Result<Vec<RecordedJob>, SlurmError> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| read_job(line).ok_or_else(|| SlurmError::unreadable(Tool::Sacct, line))).collect()
}

fn read_job(line: &str) -> Option<RecordedJob> {
    let fields: Vec<&str> = line.splitn(7, '|').collect();
    let [id, state, exit, start, end, node_list, name] = fields.as_slice() else { return None };
    Some(RecordedJob {
        id: id.parse().ok()?,
        state_text: (*state).to_owned(),
        state: meaning(state),
        exit: exit.split_once(':').and_then(|(code, signal)| Some((code.parse().ok()?, signal.parse().ok()?))),
        start: parse_time(start),
        end: parse_time(end),
        node_list: present_value(node_list).map(str::to_owned),
        name: (*name).to_owned(),
    })
}

/// The accounting of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepAccount {
    pub name: String,
    /// The largest memory of a task.
    pub max_rss_bytes: Option<i64>,
    /// The largest virtual memory of a task.
    pub max_vm_size_bytes: Option<i64>,
    pub max_disk_read_bytes: Option<i64>,
    pub max_disk_write_bytes: Option<i64>,
    /// Average CPU time of a task.
    pub ave_cpu_seconds: Option<f64>,
    /// The nodes, as Slurm lists them.
    pub node_list: Option<String>,
    /// The state as Slurm prints it; empty if the query did not include it.
    pub state_text: String,
    pub state: SlurmState,
}

impl StepAccount {
    /// Returns whether memory or CPU time was measured.
    pub fn has_numbers(&self) -> bool {
        self.max_rss_bytes.is_some() || self.ave_cpu_seconds.is_some()
    }

    /// Returns the accounting of an attempt for the store.
    pub fn stats(&self, key: AttemptKey, allocation: &str) -> SlurmStats {
        SlurmStats {
            workflow: key.workflow,
            job: key.job,
            run: key.run,
            attempt: key.attempt,
            slurm_job_id: Some(allocation.to_owned()),
            step: Some(self.name.clone()),
            max_rss_bytes: self.max_rss_bytes,
            max_vm_size_bytes: self.max_vm_size_bytes,
            max_disk_read_bytes: self.max_disk_read_bytes,
            max_disk_write_bytes: self.max_disk_write_bytes,
            ave_cpu_seconds: self.ave_cpu_seconds,
            node_list: self.node_list.clone(),
            state: present_value(&self.state_text).map(str::to_owned),
        }
    }
}

/// Returns the query for the steps of a job. With `numbers` it is limited to those steps, so that its cost does not grow with the
/// number of steps of the allocation.
pub fn steps(job: &str, numbers: &[u32]) -> CommandSpec {
    let which = match numbers {
        [] => job.to_owned(),
        _ => numbers.iter().map(|number| format!("{job}.{number}")).collect::<Vec<String>>().join(","),
    };
    CommandSpec::new(Tool::Sacct, ["-j", &which, STEP_FIELDS, "-P", "-n"])
}

/// Returns the steps by name. Names are compared here, because `sacct --name` depends on the version. Of a requeued allocation,
/// the last record of a step counts.
pub fn read_steps(text: &str) -> HashMap<String, StepAccount> {
    text.lines().filter_map(read_step).map(|account| (account.name.clone(), account)).collect()
}

fn read_step(line: &str) -> Option<StepAccount> {
    let fields: Vec<&str> = line.trim().split('|').collect();
    let (fields, state) = match fields.as_slice() {
        [fields @ .., state] if fields.len() == 7 => (fields, *state),
        fields => (fields, ""),
    };
    let [name, rss, vm, read, written, cpu, nodes] = fields else { return None };
    Some(StepAccount {
        name: (*name).to_owned(),
        max_rss_bytes: memory_bytes(rss),
        max_vm_size_bytes: memory_bytes(vm),
        max_disk_read_bytes: memory_bytes(read),
        max_disk_write_bytes: memory_bytes(written),
        ave_cpu_seconds: cpu_seconds(cpu),
        node_list: present_value(nodes).map(str::to_owned),
        state_text: state.to_owned(),
        state: meaning(state),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    // Output of Slurm 22.05.
    const JOBS: &str = "\
15860003|CANCELLED by 0|0:0|2026-11-16T09:45:35|2026-11-16T09:45:56|n[1-4]|big
15860004+1|CANCELLED by 1000|0:0|None|2026-11-16T09:45:56|None assigned|het
15860017|TIMEOUT|0:0|2026-11-16T09:45:58|2026-11-16T09:51:17|n1|spin
15860019|PREEMPTED|0:15|2026-11-16T09:45:57|2026-11-16T09:46:01|n3|precut
15860020|NODE_FAIL|0:0|2026-11-16T09:45:57|2026-11-16T09:47:33|n4|nf
15860021|PENDING|0:0|Unknown|Unknown|None assigned|rq
15860023|DEADLINE|1:0|2026-11-16T09:45:57|2026-11-16T09:45:57|None assigned|dl
15860002_1|COMPLETED|0:0|2026-11-16T09:45:30|2026-11-16T09:45:34|n2|array
15860001|FAILED|1:0|2026-11-16T09:45:30|2026-11-16T09:45:31|n1|a|b
";

    #[test]
    fn jobs_of_the_accounting() {
        use SlurmState::*;
        let jobs = read_jobs(JOBS).unwrap();
        let states: Vec<SlurmState> = jobs.iter().map(|job| job.state).collect();
        let expected = [Cancelled, Cancelled, Timeout, Preempted, NodeFailure, Pending, Deadline, Completed, Failed];
        assert_eq!(states, expected);
        assert_eq!((jobs[0].start, jobs[0].end), (Some(1_794_822_335), Some(1_794_822_356)));
        assert_eq!((jobs[1].start, jobs[1].node_list.as_deref()), (None, None));
        assert_eq!((jobs[3].exit, jobs[6].exit), (Some((0, 15)), Some((1, 0))));
        assert_eq!((jobs[5].end, jobs[4].node_list.as_deref()), (None, Some("n4")));
        assert_eq!((jobs[8].name.as_str(), jobs[0].state_text.as_str()), ("a|b", "CANCELLED by 0"));
        assert_eq!(read_jobs("\n"), Ok(Vec::new()));
        assert!(matches!(read_jobs("7|COMPLETED\n"), Err(SlurmError::NoAnswer { .. })), "half a line is no answer");
    }

    const STEPS: &str = "\
ok||||||n1|COMPLETED
batch|21652K|438112K|0.05M|0.00M|00:00:00|n1|COMPLETED
extern||||||n1|COMPLETED
wf1_j2_r1_a1|1684K|145288K|0.01M|2M|00:01:30|n1|COMPLETED
wf1_j1_r1_a1|3288K|145288K|0.01M|0.00M|1-00:00:01|n[1-2]|TIMEOUT
wf1_j3_r1_a1|2976K|145288K|0|0.00M|00:00:00|n1|OUT_OF_MEMORY
wf1_j4_r1_a1||||||n1|CANCELLED by 0
wf1_j6_r1_a1|||||00:00:07|n1|COMPLETED
wf1_j5_r1_a1|100K|||||n1|FAILED
wf1_j5_r1_a1|200K|||||n2|COMPLETED
";

    // S10, S11
    #[test]
    fn a_step_is_found_by_its_name_with_its_six_fields() {
        let steps = read_steps(STEPS);
        let expected = StepAccount {
            name: "wf1_j2_r1_a1".to_owned(),
            max_rss_bytes: Some(1_684 << 10),
            max_vm_size_bytes: Some(145_288 << 10),
            max_disk_read_bytes: Some(10_485),
            max_disk_write_bytes: Some(2 << 20),
            ave_cpu_seconds: Some(90.0),
            node_list: Some("n1".to_owned()),
            state_text: "COMPLETED".to_owned(),
            state: SlurmState::Completed,
        };
        assert_eq!(steps["wf1_j2_r1_a1"], expected);
        assert_eq!(steps["wf1_j1_r1_a1"].state, SlurmState::Timeout);
        assert_eq!(steps["wf1_j3_r1_a1"].state, SlurmState::OutOfMemory);
        assert!(steps["wf1_j6_r1_a1"].has_numbers(), "either of memory and CPU will do");
        assert_eq!(steps["wf1_j5_r1_a1"].max_rss_bytes, Some(200 << 10), "the last of a name counts");
        assert!(!steps.contains_key("wf1_j2_r1_a"), "names are compared whole");
        let canceled = &steps["wf1_j4_r1_a1"];
        assert_eq!((canceled.state, canceled.has_numbers()), (SlurmState::Cancelled, false));
        assert_eq!(read_steps("").len(), 0);
    }

    // S11
    #[test]
    fn an_account_without_a_state_and_one_for_the_store() {
        let steps = read_steps("wf1_j2_r3_a4|1M|2M|3M|4M|00:00:05|n[1-2]\n");
        let account = &steps["wf1_j2_r3_a4"];
        assert_eq!((account.state, account.max_rss_bytes), (SlurmState::Unknown, Some(1 << 20)));
        let key = AttemptKey { workflow: 1, job: 2, run: 3, attempt: 4, lease_id: 9 };
        let expected = SlurmStats {
            workflow: 1,
            job: 2,
            run: 3,
            attempt: 4,
            slurm_job_id: Some("77".to_owned()),
            step: Some("wf1_j2_r3_a4".to_owned()),
            max_rss_bytes: Some(1 << 20),
            max_vm_size_bytes: Some(2 << 20),
            max_disk_read_bytes: Some(3 << 20),
            max_disk_write_bytes: Some(4 << 20),
            ave_cpu_seconds: Some(5.0),
            node_list: Some("n[1-2]".to_owned()),
            state: None,
        };
        assert_eq!(account.stats(key, "77"), expected);
    }

    #[test]
    fn every_column_of_a_job_has_its_field() {
        let text = "17_3|NODE_FAIL|4:9|2026-11-16T09:45:35|2026-11-16T09:45:56|n[1-4]|big\n";
        let expected = RecordedJob {
            id: JobId { number: 17, part: crate::job_id::JobPart::Task(3) },
            state_text: "NODE_FAIL".to_owned(),
            state: SlurmState::NodeFailure,
            exit: Some((4, 9)),
            start: Some(1_794_822_335),
            end: Some(1_794_822_356),
            node_list: Some("n[1-4]".to_owned()),
            name: "big".to_owned(),
        };
        assert_eq!(read_jobs(text), Ok(vec![expected]));
        for exit in ["", "4", "x:9", "4:x"] {
            let jobs = read_jobs(&text.replace("4:9", exit)).unwrap();
            assert_eq!(jobs[0].exit, None, "{exit:?}");
        }
        assert!(
            read_jobs(&format!("{text}x|COMPLETED|0:0|None|None|n1|a\n")).is_err(),
            "one unreadable line is no answer"
        );
    }

    // S11
    #[test]
    fn every_column_of_a_step_has_its_field() {
        let steps = read_steps("s|1K|2K|3K|4K|00:00:05|n6|TIMEOUT\n");
        let expected = StepAccount {
            name: "s".to_owned(),
            max_rss_bytes: Some(1_024),
            max_vm_size_bytes: Some(2_048),
            max_disk_read_bytes: Some(3_072),
            max_disk_write_bytes: Some(4_096),
            ave_cpu_seconds: Some(5.0),
            node_list: Some("n6".to_owned()),
            state_text: "TIMEOUT".to_owned(),
            state: SlurmState::Timeout,
        };
        assert_eq!(steps["s"], expected);
        let key = AttemptKey { workflow: 1, job: 2, run: 3, attempt: 4, lease_id: 5 };
        assert_eq!(expected.stats(key, "77").state.as_deref(), Some("TIMEOUT"));
        assert_eq!(read_steps("s|1K|2K\n").len(), 0, "too few columns");
        assert_eq!(read_steps("s|1K|2K|3K|4K|00:00:05|n6|TIMEOUT|more\n").len(), 0, "too many columns");
        let only_memory = read_steps("s|1K|||||n6|FAILED\n");
        assert!(only_memory["s"].has_numbers());
        let only_disk = read_steps("s||2K|3K|4K||n6|FAILED\n");
        assert!(!only_disk["s"].has_numbers());
    }

    // S10, S11
    #[test]
    fn every_question_is_asked_literally_so() {
        let jobs_format = "--format=JobID,State,ExitCode,Start,End,NodeList,JobName";
        let steps_format = "--format=JobName,MaxRSS,MaxVMSize,MaxDiskRead,MaxDiskWrite,AveCPU,NodeList,State";
        let cases = [
            (jobs(["1", "2"]), vec!["-X", "-a", "-P", "-n", jobs_format, "-j", "1,2"]),
            (all_starts(["1", "2"]), vec!["-X", "-D", "-a", "-P", "-n", jobs_format, "-j", "1,2"]),
            (
                jobs_named(["a", "b"], "2026-11-16T09:45:30"),
                vec!["-X", "-a", "-P", "-n", jobs_format, "-S", "2026-11-16T09:45:30", "--name=a,b"],
            ),
            (steps("12", &[]), vec!["-j", "12", steps_format, "-P", "-n"]),
            (steps("12", &[3, 4]), vec!["-j", "12.3,12.4", steps_format, "-P", "-n"]),
        ];
        for (call, expected) in cases {
            assert_eq!((call.tool, call.arguments), (Tool::Sacct, expected.into_iter().map(str::to_owned).collect()));
        }
    }

    // S10
    #[test]
    fn a_question_names_the_steps_it_is_about() {
        assert_eq!(steps("12345", &[]).arguments, ["-j", "12345", STEP_FIELDS, "-P", "-n"]);
        assert_eq!(steps("12345", &[2, 7]).arguments[1], "12345.2,12345.7");
        assert!(!steps("12345", &[]).arguments.iter().any(|word| word.contains("--name")));
        assert_eq!(jobs(["1", "2"]).arguments.last().unwrap(), "1,2");
    }
}
