//! Log files of jobs: their places, and the files that remain.

use torc_api::execution::StdioMode;
use torc_api::state::Cause;

use crate::place::{Place, stdio, wait_until};

pub const TESTS: &[(&str, fn())] = &[
    ("logs::one_file_for_each_stream_that_was_used", one_file_for_each_stream_that_was_used),
    ("logs::modes", modes),
    ("logs::much_output", much_output),
    ("logs::a_running_job_can_be_followed", a_running_job_can_be_followed),
    ("logs::missing_outputs_and_deleted_logs", missing_outputs_and_deleted_logs),
];

// J22
fn one_file_for_each_stream_that_was_used() {
    let place = Place::new();
    let silent = place.add("true");
    let out = place.add("echo out");
    let err = place.add("echo err >&2");
    let both = place.add("echo out; echo err >&2; exit 3");
    place.run();
    let log = |job: i64, extension: &str| format!("job_wf7_j{job}_r1_a1.{extension}");
    assert_eq!(place.logs(), [log(2, "o"), log(3, "e"), log(4, "e"), log(4, "o")]);
    let path = |name: String| Some(place.path(&format!("out/job_stdio/{name}")).display().to_string());
    let paths = |key| (place.finished(key).stdout, place.finished(key).stderr);
    assert_eq!(paths(&silent), (None, None));
    assert_eq!(paths(&out), (path(log(2, "o")), None));
    assert_eq!(paths(&err), (None, path(log(3, "e"))));
    assert_eq!(paths(&both), (path(log(4, "o")), path(log(4, "e"))));
    assert_eq!(place.read("out/job_stdio/job_wf7_j4_r1_a1.o"), "out");
    assert_eq!(place.read("out/job_stdio/job_wf7_j4_r1_a1.e"), "err");
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
        let place = Place::new();
        place.add_with("echo out; echo err >&2", |profile| profile.stdio = stdio(mode, false));
        place.run();
        let expected: Vec<String> = extensions.iter().map(|end| format!("job_wf7_j1_r1_a1.{end}")).collect();
        assert_eq!(place.logs(), expected, "{mode:?}");
        if mode == StdioMode::Combined {
            assert_eq!(place.read("out/job_stdio/job_wf7_j1_r1_a1.log"), "out\nerr");
        }
    }
}

fn much_output() {
    let place = Place::new();
    let key = place.add("head -c 100000000 /dev/zero");
    place.run();
    let path = place.finished(&key).stdout.expect("a log");
    assert_eq!(std::fs::metadata(path).expect("a file").len(), 100_000_000);
}

fn a_running_job_can_be_followed() {
    let place = Place::new();
    place.add("echo begun; while [ ! -f go ]; do sleep 0.02; done; echo done");
    place.beside(|| {
        wait_until("a log while the job runs", || place.read("out/job_stdio/job_wf7_j1_r1_a1.o") == "begun");
        // The silent stream can be followed until the job has ended.
        wait_until("an empty log", || place.logs() == ["job_wf7_j1_r1_a1.e", "job_wf7_j1_r1_a1.o"]);
        std::fs::write(place.path("go"), "").expect("written");
    });
    assert_eq!(place.read("out/job_stdio/job_wf7_j1_r1_a1.o"), "begun\ndone");
    assert_eq!(place.logs(), ["job_wf7_j1_r1_a1.o"]);
}

fn missing_outputs_and_deleted_logs() {
    let place = Place::new();
    let outputs = |files: &[&str]| files.iter().map(|file| (*file).to_owned()).collect::<Vec<_>>();
    let made = place.add_with("echo x | tee made", |profile| {
        profile.output_files = outputs(&["made"]);
        profile.stdio = stdio(StdioMode::Separate, true);
    });
    let missing = place.add_with("echo y | tee one", |profile| {
        profile.output_files = outputs(&["one", "two.csv"]);
        profile.stdio = stdio(StdioMode::Separate, true);
    });
    let failed = place.add_with("exit 4", |profile| profile.output_files = outputs(&["never"]));
    place.run();
    assert_eq!((place.finished(&made).cause, place.finished(&made).stdout), (None, None));
    let finished = place.finished(&missing);
    assert_eq!((finished.return_code, finished.cause), (1, Some(Cause::MissingOutput)));
    assert!(finished.message.expect("a message").contains("two.csv"));
    assert!(finished.stdout.is_some());
    assert_eq!((place.finished(&failed).return_code, place.finished(&failed).cause), (4, Some(Cause::ExitCode)));
    assert_eq!(place.logs(), ["job_wf7_j2_r1_a1.o"]);
}
