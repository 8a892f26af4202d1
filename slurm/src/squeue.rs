//! `squeue`: pending, running and just ended jobs, and the IDs of steps.

use torc_api::slurm::SlurmState;

use crate::call::{CommandSpec, Tool};
use crate::error::SlurmError;
use crate::exec::Answer;
use crate::job_id::{JobId, StepId, StepName};
use crate::parse::fields::{Limit, limit, parse_time, present_value};
use crate::state::meaning;

/// The fields of a line. Fields with arbitrary text come last.
const FORMAT: &str = "%i|%T|%P|%D|%S|%e|%L|%N|%k|%j|%r";

/// A job in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedJob {
    pub id: JobId,
    /// The state as Slurm prints it.
    pub state_text: String,
    pub state: SlurmState,
    pub partition: Option<String>,
    /// The number of nodes.
    pub nodes: Option<i64>,
    /// The start or estimated start, in seconds since 1970.
    pub start: Option<i64>,
    /// The latest possible end, in seconds since 1970.
    pub end: Option<i64>,
    pub left: Option<Limit>,
    /// The nodes, as Slurm lists them.
    pub node_list: Option<String>,
    pub comment: Option<String>,
    pub name: String,
    /// The reason why it waits.
    pub reason: Option<String>,
}

/// Returns the query for these jobs, of all users and in all states.
pub fn jobs<'a>(ids: impl IntoIterator<Item = &'a str>) -> CommandSpec {
    let ids = ids.into_iter().collect::<Vec<&str>>().join(",");
    CommandSpec::new(Tool::Squeue, ["-h", "-a", "-t", "all", "-o", FORMAT, "-j"]).arg(ids)
}

/// Returns the query for jobs with these names.
pub fn jobs_named<'a>(names: impl IntoIterator<Item = &'a str>) -> CommandSpec {
    let names = names.into_iter().collect::<Vec<&str>>().join(",");
    CommandSpec::new(Tool::Squeue, ["-h", "-a", "-t", "all", "-o", FORMAT]).arg(format!("--name={names}"))
}

/// Returns the query for all pending and running jobs of a partition.
pub fn jobs_of_partition(partition: &str) -> CommandSpec {
    CommandSpec::new(Tool::Squeue, ["-h", "-a", "-o", FORMAT, "-p", partition])
}

/// Parses the jobs. Slurm no longer knows a queried job that is not among them. A line that cannot be parsed makes the whole
/// output invalid, because it might be about any job.
pub fn read_jobs(answer: Result<Answer, SlurmError>) -> Result<Vec<QueuedJob>, SlurmError> {
    let text = match answer {
        Ok(answer) => answer.text,
        // For a single unknown job, squeue fails; among several, it leaves it out.
        Err(SlurmError::Refused { message: sentence }) if sentence.contains("Invalid job id specified") => {
            return Ok(Vec::new());
        }
        Err(trouble) => return Err(trouble),
    };
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| read_job(line).ok_or_else(|| SlurmError::unreadable(Tool::Squeue, line))).collect()
}

fn read_job(line: &str) -> Option<QueuedJob> {
    let fields: Vec<&str> = line.trim().splitn(11, '|').collect();
    let [id, state, partition, nodes, start, end, left, node_list, comment, name, reason] = fields.as_slice() else {
        return None;
    };
    let own = |text: &str| present_value(text).map(str::to_owned);
    Some(QueuedJob {
        id: id.parse().ok()?,
        state_text: (*state).to_owned(),
        state: meaning(state),
        partition: own(partition),
        nodes: nodes.parse().ok(),
        start: parse_time(start),
        end: parse_time(end),
        left: limit(left),
        node_list: own(node_list),
        comment: own(comment),
        name: (*name).to_owned(),
        reason: own(reason),
    })
}

/// Returns the query for the steps of a job: one short line for each, as there may be thousands.
pub fn steps(job: &str) -> CommandSpec {
    CommandSpec::new(Tool::Squeue, ["--steps", "-h", "-o", "%i|%j", "-j", job])
}

/// Returns the numbers of steps by name, without the batch script and the like.
pub fn read_steps(text: &str) -> Vec<(String, u32)> {
    let read = |line: &str| {
        let (id, name) = line.trim().split_once('|')?;
        match id.parse::<StepId>().ok()?.step {
            StepName::Number(number) => Some((name.to_owned(), number)),
            StepName::Named(_) => None,
        }
    };
    text.lines().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::job_id::JobPart;

    fn answer(text: &str) -> Result<Answer, SlurmError> {
        Ok(Answer { text: text.to_owned(), remarks: String::new() })
    }

    // Output of Slurm 22.05.
    const QUEUE: &str = "\
15860003|PENDING|debug|4|2026-11-16T09:50:30|2026-11-17T11:50:30|1-02:00:00||(null)|big|Resources
15860004+1|PENDING|debug|1|N/A|N/A|2:00||a b|het|Resources
15860008|PENDING|debug|1|2026-11-16T10:45:30|NONE|UNLIMITED||(null)|begin|BeginTime
15860000|RUNNING|debug|1|2026-11-16T09:45:30|2026-11-16T09:50:30|4:57|n1|torc-wf1-3|ok|None
15860002_3|RUNNING|debug|1|2026-11-16T09:45:30|2026-11-16T09:46:30|0:57|n4|(null)|array|None
15860021|PENDING|debug|1|N/A|N/A|UNLIMITED||(null)|rq|ReqNodeNotAvail, UnavailableNodes:n4
15860019|PREEMPTED|cut|1|2026-11-16T09:45:57|2026-11-16T09:46:01|3:59:56|n3|(null)|precut|None
15860024|TELEPORTED|short|2|N/A|N/A|INVALID|n[2-3]|(null)|wf|x|None
";

    #[test]
    fn the_queue() {
        let jobs = read_jobs(answer(QUEUE)).unwrap();
        assert_eq!(jobs.len(), 8);
        let big = &jobs[0];
        assert_eq!((big.state, big.nodes, big.reason.as_deref()), (SlurmState::Pending, Some(4), Some("Resources")));
        assert_eq!((big.start, big.left), (Some(1_794_822_630), Some(Limit::Seconds(93_600))));
        assert_eq!((big.node_list.as_deref(), big.comment.as_deref()), (None, None));
        assert_eq!(jobs[1].id.part, JobPart::Component(1));
        assert_eq!((jobs[1].start, jobs[1].comment.as_deref()), (None, Some("a b")));
        assert_eq!((jobs[2].end, jobs[2].left), (None, Some(Limit::Unlimited)));
        let ok = &jobs[3];
        assert_eq!((ok.state, ok.node_list.as_deref(), ok.reason.as_deref()), (SlurmState::Running, Some("n1"), None));
        assert_eq!((ok.comment.as_deref(), ok.name.as_str()), (Some("torc-wf1-3"), "ok"));
        assert_eq!(jobs[4].id.part, JobPart::Task(3));
        assert_eq!(jobs[5].reason.as_deref(), Some("ReqNodeNotAvail, UnavailableNodes:n4"));
        assert_eq!(jobs[6].state, SlurmState::Preempted);
        assert_eq!((jobs[7].state, jobs[7].state_text.as_str()), (SlurmState::Unknown, "TELEPORTED"));
    }

    #[test]
    fn an_unknown_job_is_an_empty_answer_and_other_errors_fail() {
        assert_eq!(read_jobs(answer("")), Ok(Vec::new()));
        let forgotten = SlurmError::Refused { message: "slurm_load_jobs error: Invalid job id specified".to_owned() };
        assert_eq!(read_jobs(Err(forgotten)), Ok(Vec::new()));
        let other = SlurmError::Refused { message: "Invalid user".to_owned() };
        assert_eq!(read_jobs(Err(other.clone())), Err(other));
        let away = SlurmError::NoAnswer { reason: "Socket timed out".to_owned(), maybe_delivered: true };
        assert_eq!(read_jobs(Err(away.clone())), Err(away));
        for line in ["slurm is resting", "7|RUNNING|debug", "x|RUNNING|debug|1|N/A|N/A|1:00|n1|c|name|None"] {
            let text = format!("{QUEUE}{line}\n");
            assert!(matches!(read_jobs(answer(&text)), Err(SlurmError::NoAnswer { .. })), "{line}");
        }
    }

    #[test]
    fn the_questions() {
        assert_eq!(jobs(["7", "8"]).arguments, ["-h", "-a", "-t", "all", "-o", FORMAT, "-j", "7,8"]);
        assert_eq!(jobs_named(["a", "b"]).arguments.last().unwrap(), "--name=a,b");
    }

    #[test]
    fn every_column_has_its_field() {
        let line = "17+2|SUSPENDED|part|3|2026-11-16T09:45:30|2026-11-16T09:50:30|4:57|n[5-7]|comment|name|reason";
        let expected = QueuedJob {
            id: JobId { number: 17, part: JobPart::Component(2) },
            state_text: "SUSPENDED".to_owned(),
            state: SlurmState::Suspended,
            partition: Some("part".to_owned()),
            nodes: Some(3),
            start: Some(1_794_822_330),
            end: Some(1_794_822_630),
            left: Some(Limit::Seconds(297)),
            node_list: Some("n[5-7]".to_owned()),
            comment: Some("comment".to_owned()),
            name: "name".to_owned(),
            reason: Some("reason".to_owned()),
        };
        assert_eq!(read_jobs(answer(line)), Ok(vec![expected]));
        let nothing = read_jobs(answer("17|RUNNING|(null)|x|N/A|NONE|NOT_SET||(null)|n|None")).unwrap();
        let found = &nothing[0];
        assert_eq!((&found.partition, found.nodes, found.left, &found.reason), (&None, None, None, &None));
    }

    #[test]
    fn every_question_is_asked_literally_so() {
        let format = "%i|%T|%P|%D|%S|%e|%L|%N|%k|%j|%r";
        let cases = [
            (jobs(["7", "8"]), vec!["-h", "-a", "-t", "all", "-o", format, "-j", "7,8"]),
            (jobs_named(["a", "b"]), vec!["-h", "-a", "-t", "all", "-o", format, "--name=a,b"]),
            (jobs_of_partition("p"), vec!["-h", "-a", "-o", format, "-p", "p"]),
            (steps("7"), vec!["--steps", "-h", "-o", "%i|%j", "-j", "7"]),
            (crate::allocation::time_left_query("7"), vec!["-h", "-j", "7", "-o", "%L"]),
        ];
        for (call, expected) in cases {
            assert_eq!((call.tool, call.arguments), (Tool::Squeue, expected.into_iter().map(str::to_owned).collect()));
        }
    }

    // S07
    #[test]
    fn the_number_of_a_step() {
        let text = "15860000.0|wf1_j2_r1_a1\n15860000.12|wf1_j1_r1_a1\n15860000.batch|batch\n15860000.extern|extern\n\
                    15860002_3.1|wf2_j1_r1_a1\nsomething else\n";
        let steps_found = read_steps(text);
        assert_eq!(steps_found.len(), 3);
        assert_eq!(steps_found[1], ("wf1_j1_r1_a1".to_owned(), 12));
        assert_eq!(read_steps("7.3|a|b\n"), [("a|b".to_owned(), 3)], "a name may contain a bar");
        assert_eq!(steps("12345").arguments, ["--steps", "-h", "-o", "%i|%j", "-j", "12345"]);
    }
}
