//! Starts of jobs: exit code, environment, folder, devices, and failed starts.

use std::time::Duration;

use torc_api::state::Cause;
use torc_runner::RunnerExit;

use crate::fixture::RunnerFixture;

pub const TESTS: &[(&str, fn())] = &[
    ("starts::exit_codes", exit_codes),
    ("starts::environment", environment),
    ("starts::devices_are_exclusive", devices_are_exclusive),
    ("starts::what_cannot_be_started", what_cannot_be_started),
    ("starts::never_more_at_once_than_fit", never_more_at_once_than_fit),
    ("starts::many_short_jobs", many_short_jobs),
    ("starts::an_end_is_noticed_without_looking", an_end_is_noticed_without_looking),
    ("starts::queue_strategy_ignores_requirements", queue_strategy_ignores_requirements),
];

fn exit_codes() {
    let fixture = RunnerFixture::new();
    let cases = [
        ("true", 0, None),
        ("false", 1, Some(Cause::ExitCode)),
        ("exit 42", 42, Some(Cause::ExitCode)),
        ("kill -KILL $$", 137, Some(Cause::ExitCode)),
        ("kill -TERM $$", 143, Some(Cause::ExitCode)),
        ("kill -34 $$", 162, Some(Cause::ExitCode)),
        ("no_such_command_here; exit 5", 5, Some(Cause::ExitCode)),
        ("cat | grep -q x", 1, Some(Cause::ExitCode)),
    ];
    let keys: Vec<_> = cases.iter().map(|(command, ..)| fixture.add(command)).collect();
    assert_eq!(fixture.run(), RunnerExit::Complete);
    for (key, (command, code, cause)) in keys.iter().zip(cases) {
        let finished = fixture.finished(key);
        assert_eq!((finished.return_code, finished.cause), (code, cause), "{command}");
    }
    assert!(fixture.server.buffer().left);
    assert_eq!(fixture.shim_files(), Vec::<String>::new());
}

fn environment() {
    let fixture = RunnerFixture::new();
    let names = "TORC_WORKFLOW_ID TORC_RUN_ID TORC_JOB_ID TORC_JOB_NAME TORC_ATTEMPT_ID TORC_API_URL MINE PATH_SEEN";
    let show = format!(
        "for name in {names}; do echo $name=${{!name}}; done > shown; pwd >> shown; wc -c < /dev/stdin >> shown"
    );
    fixture.add_with(&show, |profile| {
        profile.env.insert("MINE".to_owned(), "a b".to_owned());
        profile.env.insert("TORC_JOB_ID".to_owned(), "999".to_owned());
        profile.invocation_script = Some("export PATH_SEEN=1\n# several lines\n".to_owned());
    });
    let mut config = fixture.config();
    config.api_url = Some("http://here".to_owned());
    fixture.run_with(config).expect("a runner that works");
    let expected = format!(
        "TORC_WORKFLOW_ID=7\nTORC_RUN_ID=1\nTORC_JOB_ID=1\nTORC_JOB_NAME=job1\nTORC_ATTEMPT_ID=1\nTORC_API_URL=http://here\n\
         MINE=a b\nPATH_SEEN=1\n{}\n0",
        fixture.path("").display().to_string().trim_end_matches('/')
    );
    assert_eq!(fixture.read("shown"), expected);
}

// J21, X04
fn devices_are_exclusive() {
    let fixture = RunnerFixture::new();
    let wait_for_all = "echo $CUDA_VISIBLE_DEVICES $TORC_GPU_VISIBLE_DEVICES > gpu_$TORC_JOB_ID; \
                        while [ $(ls gpu_? | wc -l) -lt 2 ]; do sleep 0.01; done";
    for _ in 0..2 {
        fixture.add_with(wait_for_all, |profile| profile.resources.gpus = 2);
    }
    let mut config = fixture.config();
    config.gpu_devices = ["3", "5", "7", "9"].map(str::to_owned).to_vec();
    fixture.run_with(config).expect("a runner that works");
    let mut seen = [fixture.read("gpu_1"), fixture.read("gpu_2")];
    seen.sort();
    assert_eq!(seen, ["3,5 3,5", "7,9 7,9"]);
}

fn what_cannot_be_started() {
    let fixture = RunnerFixture::new();
    std::fs::write(fixture.path("not_a_program"), "").expect("written");
    let missing = fixture.add("no_such_program_here --flag");
    let missing_path = fixture.add("./no/such/program");
    let forbidden = fixture.add("./not_a_program");
    let no_folder = fixture.add_with("true", |profile| profile.working_dir = "/no/such/folder".to_owned());
    let too_long = fixture.add(&format!("true {}", "x".repeat(200_000)));
    let fine = fixture.add("true");
    fixture.run();
    let cases = [
        (missing, 127, "no_such_program_here"),
        (missing_path, 127, "./no/such/program"),
        (forbidden, 126, "./not_a_program"),
        (no_folder, 126, "/no/such/folder"),
        (too_long, 126, "true"),
    ];
    for (key, code, named) in cases {
        let finished = fixture.finished(&key);
        assert_eq!((finished.return_code, finished.cause), (code, Some(Cause::StartFailed)), "{named}");
        assert!(finished.message.as_deref().is_some_and(|message| message.contains(named)), "{:?}", finished.message);
    }
    assert_eq!(fixture.finished(&fine).cause, None);
}

// J06, J39
fn never_more_at_once_than_fit() {
    let fixture = RunnerFixture::new();
    let count = "mkdir running_$TORC_JOB_ID; ls -d running_* | wc -l >> counts; rmdir running_$TORC_JOB_ID";
    for _ in 0..40 {
        fixture.add_with(count, |profile| profile.resources.cpus = 2);
    }
    fixture.run();
    let counts = fixture.read("counts");
    assert_eq!(counts.lines().count(), 40);
    assert!(counts.lines().all(|count| count == "1" || count == "2"), "{counts}");
}

fn many_short_jobs() {
    let fixture = RunnerFixture::new();
    let keys: Vec<_> = (0..300).map(|_| fixture.add("true")).collect();
    fixture.run();
    assert!(keys.iter().all(|key| fixture.finished(key).return_code == 0));
    assert_eq!(fixture.logs(), Vec::<String>::new(), "silent jobs leave no file");
    let syncs = fixture.server.buffer().syncs;
    assert!(syncs < 150, "{syncs} syncs for 300 jobs");
}

// J05. A runner that polled every second would see each job end after more than a second.
fn an_end_is_noticed_without_looking() {
    let fixture = RunnerFixture::new();
    let keys: Vec<_> = (0..8).map(|_| fixture.add_with("sleep 0.3", |profile| profile.resources.cpus = 4)).collect();
    let mut config = fixture.config();
    config.settings.poll_interval = Duration::from_secs(3_600);
    assert_eq!(fixture.run_with(config).expect("a runner that works"), RunnerExit::Complete);
    let shortest = keys.iter().map(|key| fixture.finished(key).duration_ms).min();
    assert!(shortest < Some(900), "{shortest:?} ms");
}

// J08
fn queue_strategy_ignores_requirements() {
    let fixture = RunnerFixture::new();
    let meet = "touch here_$TORC_JOB_ID; while [ $(ls here_? | wc -l) -lt 6 ]; do sleep 0.01; done";
    for _ in 0..6 {
        fixture.add_with(meet, |profile| profile.resources.cpus = 1_000);
    }
    let mut config = fixture.config();
    config.settings.max_parallel_jobs = Some(6);
    assert_eq!(fixture.run_with(config).expect("a runner that works"), RunnerExit::Complete);
}
