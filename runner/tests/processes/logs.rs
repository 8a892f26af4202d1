//! Log files of jobs: their places, and the files that remain.

use torc_api::execution::StdioMode;
use torc_api::state::Cause;

use crate::fixture::{RunnerFixture, stdio, wait_until};

pub const TESTS: &[(&str, fn())] = &[
    ("logs::one_file_for_each_stream_that_was_used", one_file_for_each_stream_that_was_used),
    ("logs::modes", modes),
    ("logs::much_output", much_output),
    ("logs::a_running_job_can_be_followed", a_running_job_can_be_followed),
    ("logs::missing_outputs_and_deleted_logs", missing_outputs_and_deleted_logs),
];

// J22
fn one_file_for_each_stream_that_was_used() {
    let fixture = RunnerFixture::new();
    let silent = fixture.add("true");
    let out = fixture.add("echo out");
    let err = fixture.add("echo err >&2");
    let both = fixture.add("echo out; echo err >&2; exit 3");
    fixture.run();
    let log = |job: i64, extension: &str| format!("job_wf7_j{job}_r1_a1.{extension}");
    assert_eq!(fixture.logs(), [log(2, "o"), log(3, "e"), log(4, "e"), log(4, "o")]);
    let path = |name: String| Some(fixture.path(&format!("out/job_stdio/{name}")).display().to_string());
    let paths = |key| (fixture.finished(key).stdout, fixture.finished(key).stderr);
    assert_eq!(paths(&silent), (None, None));
    assert_eq!(paths(&out), (path(log(2, "o")), None));
    assert_eq!(paths(&err), (None, path(log(3, "e"))));
    assert_eq!(paths(&both), (path(log(4, "o")), path(log(4, "e"))));
    assert_eq!(fixture.read("out/job_stdio/job_wf7_j4_r1_a1.o"), "out");
    assert_eq!(fixture.read("out/job_stdio/job_wf7_j4_r1_a1.e"), "err");
}

fn modes() {
    let cases: [(StdioMode, &[&str]); 5] = [
        (StdioMode::Separate, &["e", "o"]),
        (StdioMode::Combined, &["log"]),
        (StdioMode::NoStdout, &["e"]),
        (StdioMode::NoStderr, &["o"]),
        (StdioMode::None, &[]),
    ];
    for (mode, extensions) in cases {
        let fixture = RunnerFixture::new();
        fixture.add_with("echo out; echo err >&2", |profile| profile.stdio = stdio(mode, false));
        fixture.run();
        let expected: Vec<String> = extensions.iter().map(|end| format!("job_wf7_j1_r1_a1.{end}")).collect();
        assert_eq!(fixture.logs(), expected, "{mode:?}");
        if mode == StdioMode::Combined {
            assert_eq!(fixture.read("out/job_stdio/job_wf7_j1_r1_a1.log"), "out\nerr");
        }
    }
}

fn much_output() {
    let fixture = RunnerFixture::new();
    let key = fixture.add("head -c 100000000 /dev/zero");
    fixture.run();
    let path = fixture.finished(&key).stdout.expect("a log");
    assert_eq!(std::fs::metadata(path).expect("a file").len(), 100_000_000);
}

fn a_running_job_can_be_followed() {
    let fixture = RunnerFixture::new();
    fixture.add("echo begun; while [ ! -f go ]; do sleep 0.02; done; echo done");
    fixture.beside(|| {
        wait_until("a log while the job runs", || fixture.read("out/job_stdio/job_wf7_j1_r1_a1.o") == "begun");
        // The silent stream can be followed until the job has ended.
        wait_until("an empty log", || fixture.logs() == ["job_wf7_j1_r1_a1.e", "job_wf7_j1_r1_a1.o"]);
        std::fs::write(fixture.path("go"), "").expect("written");
    });
    assert_eq!(fixture.read("out/job_stdio/job_wf7_j1_r1_a1.o"), "begun\ndone");
    assert_eq!(fixture.logs(), ["job_wf7_j1_r1_a1.o"]);
}

fn missing_outputs_and_deleted_logs() {
    let fixture = RunnerFixture::new();
    let outputs = |files: &[&str]| files.iter().map(|file| (*file).to_owned()).collect::<Vec<_>>();
    let made = fixture.add_with("echo x | tee made", |profile| {
        profile.output_files = outputs(&["made"]);
        profile.stdio = stdio(StdioMode::Separate, true);
    });
    let missing = fixture.add_with("echo y | tee one", |profile| {
        profile.output_files = outputs(&["one", "two.csv"]);
        profile.stdio = stdio(StdioMode::Separate, true);
    });
    let failed = fixture.add_with("exit 4", |profile| profile.output_files = outputs(&["never"]));
    fixture.run();
    assert_eq!((fixture.finished(&made).cause, fixture.finished(&made).stdout), (None, None));
    let finished = fixture.finished(&missing);
    assert_eq!((finished.return_code, finished.cause), (1, Some(Cause::MissingOutput)));
    assert!(finished.message.expect("a message").contains("two.csv"));
    assert!(finished.stdout.is_some());
    assert_eq!((fixture.finished(&failed).return_code, fixture.finished(&failed).cause), (4, Some(Cause::ExitCode)));
    assert_eq!(fixture.logs(), ["job_wf7_j2_r1_a1.o"]);
}
