use clap::Parser as _;
use torc_api::api::JobResources;
use torc_api::wire::Usage;

use super::*;

#[derive(Debug, clap::Parser)]
struct Line {
    #[command(flatten)]
    logs: LogsArgs,
}

fn args(line: &str) -> LogsArgs {
    Line::try_parse_from(format!("logs {line}").split_whitespace()).expect("parses").logs
}

fn job(status: JobState, attempt: i32) -> Job {
    Job {
        id: 7,
        workflow: "w".to_owned(),
        name: "j".to_owned(),
        status,
        run_id: 1,
        attempt,
        command: String::new(),
        priority: 0,
        resources: JobResources::default(),
        depends_on: Vec::new(),
        waiting_for: 0,
        labels: Vec::new(),
        node: None,
        runner: None,
        in_doubt: false,
        start_time: None,
        origin: None,
        lineage: None,
    }
}

fn result(run_id: i32, attempt: i32) -> JobResult {
    JobResult {
        workflow: "w".to_owned(),
        job: "j".to_owned(),
        job_id: 7,
        run_id,
        attempt,
        status: JobState::Failed,
        return_code: Some(1),
        cause: None,
        message: None,
        start_time: None,
        end_time: String::new(),
        duration_seconds: 0.0,
        node: None,
        runner: None,
        stdout: Some("/l/o".to_owned()),
        stderr: Some("/l/e".to_owned()),
        usage: Usage::default(),
    }
}

#[test]
fn the_latest_attempt_unless_told_otherwise() {
    let results = [result(1, 1), result(1, 2), result(2, 1)];
    let settled = job(JobState::Failed, 1);
    let running = Job { run_id: 2, ..job(JobState::Running, 2) };
    for (line, job, expected) in [
        ("j", &settled, Some((2, 1))),
        ("j", &running, Some((2, 2))),
        ("j --attempt 1", &running, Some((2, 1))),
        ("j --run 1", &running, Some((1, 2))),
        ("j --run 1 --attempt 1", &running, Some((1, 1))),
        ("j --attempt 9", &running, None),
    ] {
        assert_eq!(choose(&args(line), job, &results), expected, "{line}");
    }
    assert_eq!(choose(&args("j"), &job(JobState::Ready, 1), &[]), None);
}

#[test]
fn streams_are_chosen() {
    let files = |line: &str| of_result(&args(line), "w".to_owned(), &result(1, 1)).files;
    assert_eq!(files("j"), [PathBuf::from("/l/o"), PathBuf::from("/l/e")]);
    assert_eq!(files("j --stdout"), [PathBuf::from("/l/o")]);
    assert_eq!(files("j --stderr"), [PathBuf::from("/l/e")]);
    let combined = JobResult { stderr: Some("/l/o".to_owned()), ..result(1, 1) };
    assert_eq!(of_result(&args("j"), "w".to_owned(), &combined).files, [PathBuf::from("/l/o")]);
}

#[test]
fn logs_of_a_running_job() {
    let files = live_files(&args("j --stderr"), "/out", 3, &job(JobState::Running, 2));
    let expected = ["/out/job_stdio/job_wf3_j7_r1_a2.e", "/out/job_stdio/job_wf3_j7_r1_a2.log"];
    assert_eq!(files, expected.map(PathBuf::from));
}

#[test]
fn both_streams_and_the_combined_one_of_a_running_job() {
    let files = |line: &str| live_files(&args(line), "/out", 3, &job(JobState::Running, 2));
    let all = ["o", "e", "log"].map(|end| PathBuf::from(format!("/out/job_stdio/job_wf3_j7_r1_a2.{end}")));
    assert_eq!(files("j"), all);
    assert_eq!(files("j --stdout"), [all[0].clone(), all[2].clone()]);
    let message = |line: &str| never_ran(&args(line), &job(JobState::Blocked, 1)).message;
    assert_eq!(message("j"), "job `j` has not run: it is blocked");
    assert_eq!(message("j --attempt 4"), "attempt 4 of job `j` has not run");
    let found = of_result(&args("j"), "w".to_owned(), &result(5, 6));
    assert_eq!(
        (found.run, found.attempt, found.ended, found.workflow.as_str(), found.job.as_str()),
        (5, 6, true, "w", "j")
    );
    assert_eq!((LOCAL_READ_INTERVAL.as_millis(), REMOTE_READ_INTERVAL.as_secs()), (200, 1));
}
