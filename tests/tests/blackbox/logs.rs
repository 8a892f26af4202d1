//! Log files of jobs, and `torc logs`.

use std::fs;

use torc_tests::env::{TestEnv, until};

/// Returns the names of the log files, sorted, without the scratch files of a running runner.
fn logs(env: &TestEnv) -> Vec<String> {
    let Ok(entries) = fs::read_dir(env.path("torc_output/job_stdio")) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| !name.starts_with('.'));
    names.sort();
    names
}

const TALKERS: &str = "
jobs:
  - {name: both, command: 'echo out; echo err >&2'}
  - {name: out, command: echo out}
  - {name: err, command: 'echo err >&2'}
  - {name: silent, command: 'true'}
";

#[test]
fn each_stdio_mode_writes_its_files() {
    // J22
    let cases: [(&str, &[&str]); 6] = [
        ("separate", &["1.e", "1.o", "2.o", "3.e"]),
        ("combined", &["1.log", "2.log", "3.log"]),
        ("no_stdout", &["1.e", "3.e"]),
        ("no_stderr", &["1.o", "2.o"]),
        ("none", &[]),
        ("", &["1.e", "1.o", "2.o", "3.e"]),
    ];
    for (mode, expected) in cases {
        let env = TestEnv::new();
        let config =
            if mode.is_empty() { String::new() } else { format!("execution_config: {{stdio: {{mode: {mode}}}}}") };
        env.write("w.yaml", format!("name: w\n{config}\n{TALKERS}"));
        env.torc("apply -f w.yaml").exits(0);
        let expected: Vec<String> = expected
            .iter()
            .map(|name| {
                let (number, kind) = name.split_once('.').unwrap();
                format!("job_wf1_j{number}_r1_a1.{kind}")
            })
            .collect();
        assert_eq!(logs(&env), expected, "{mode}");
        if mode == "combined" {
            assert_eq!(env.lines("torc_output/job_stdio/job_wf1_j1_r1_a1.log"), ["out", "err"]);
        }
        let left = fs::read_dir(env.path("torc_output/job_stdio")).map_or(0, Iterator::count);
        assert_eq!(left, expected.len(), "{mode}: scratch files were left behind");
    }
}

// J22
#[test]
fn delete_on_success_removes_logs() {
    let env = TestEnv::new();
    env.write(
        "w.yaml",
        "
name: w
execution_config: {stdio: {delete_on_success: true}}
jobs:
  - {name: good, command: 'echo good'}
  - {name: bad, command: 'echo bad; exit 1'}
",
    );
    env.torc("apply -f w.yaml").exits(3);
    assert_eq!(logs(&env), ["job_wf1_j2_r1_a1.o"]);
    let results = env.items("get results --job good");
    assert!(results[0].get("stdout").is_none(), "{results:#?}");
}

#[test]
fn logs_are_written_to_output_dir() {
    let env = TestEnv::new();
    env.write("w.yaml", "name: w\njobs: [{name: a, command: echo hello}]\n");
    env.torc("apply -f w.yaml --output-dir elsewhere/logs").exits(0);
    assert_eq!(env.lines("elsewhere/logs/job_stdio/job_wf1_j1_r1_a1.o"), ["hello"]);
    assert_eq!(env.torc("logs a").exits(0).stdout, "hello\n");
    assert!(!env.path("torc_output").exists());
}

#[test]
fn logs_are_selected_by_stream_and_attempt() {
    let env = TestEnv::new();
    env.write("w.yaml", "name: w\njobs: [{name: a, command: 'echo out $TORC_ATTEMPT_ID; echo err $TORC_ATTEMPT_ID >&2; exit 1'}, {name: quiet, command: 'true'}]\n");
    env.torc("apply -f w.yaml").exits(3);
    env.torc("retry").exits(0);
    env.torc("run w").exits(3);
    assert_eq!(logs(&env).len(), 4);
    assert_eq!(env.torc("logs a --stdout").exits(0).stdout, "out 2\n");
    assert_eq!(env.torc("logs a --stderr --attempt 1").exits(0).stdout, "err 1\n");
    let both = env.torc("logs job/a --attempt 1").exits(0).stdout;
    assert!(both.contains("out 1\n") && both.contains("err 1\n") && !both.contains('2'), "{both}");
    assert_eq!(env.torc("logs quiet").exits(0).prints("has no output").stdout, "");
    env.torc("logs a --attempt 3").exits(5);
    env.torc("logs missing").exits(5);
}

#[test]
fn each_run_has_separate_logs() {
    let env = TestEnv::new();
    env.write("w.yaml", "name: w\njobs: [{name: a, command: 'echo run $TORC_RUN_ID'}]\n");
    env.torc("apply -f w.yaml").exits(0);
    env.torc("retry w --all").exits(0);
    env.torc("run w").exits(0);
    assert_eq!(logs(&env), ["job_wf1_j1_r1_a1.o", "job_wf1_j1_r2_a1.o"]);
    assert_eq!(env.torc("logs a --run 1").exits(0).stdout, "run 1\n");
    assert_eq!(env.torc("logs a").exits(0).stdout, "run 2\n");
}

#[test]
fn tail_prints_the_last_lines() {
    let env = TestEnv::new();
    env.write("w.yaml", "name: w\njobs: [{name: a, command: seq 1 1000}]\n");
    env.torc("apply -f w.yaml").exits(0);
    assert_eq!(env.torc("logs a --tail 2").exits(0).stdout, "999\n1000\n");
    assert_eq!(env.torc("logs a").exits(0).stdout.lines().count(), 1000);
}

#[test]
fn a_running_job_is_followed_to_its_end() {
    let env = TestEnv::new();
    env.write(
        "w.yaml",
        "
name: w
jobs: [{name: a, command: 'echo first; until test -e more; do sleep 0.02; done; echo second; until test -e end; do sleep 0.02; done; echo third'}]
",
    );
    let apply = env.start("apply -f w.yaml");
    until(
        || env.path(".torc/torc.db").exists() && env.torc("get jobs -o json").stdout.contains("\"running\""),
        || "the job runs".to_owned(),
    );
    let follower = env.start("logs -f a");
    follower.prints("first");
    env.write("more", "");
    follower.prints("second");
    env.write("end", "");
    assert_eq!(follower.finish().exits(0).stdout, "first\nsecond\nthird\n");
    apply.finish().exits(0);
    assert_eq!(logs(&env), ["job_wf1_j1_r1_a1.o"]);
}

#[test]
fn log_files_can_be_large_and_binary() {
    let env = TestEnv::new();
    env.write(
        "w.yaml",
        "name: w\njobs: [{name: a, command: 'head -c 5000000 /dev/zero; printf \"\\\\377\\\\376\"'}]\n",
    );
    env.torc("apply -f w.yaml").exits(0);
    let size = fs::metadata(env.path("torc_output/job_stdio/job_wf1_j1_r1_a1.o")).unwrap().len();
    assert_eq!(size, 5_000_002);
    env.torc("logs a --tail 1").exits(0);
}

// J22
#[test]
fn packed_logs_are_few_files_and_read_like_others() {
    let env = TestEnv::new();
    env.write(
        "w.yaml",
        "name: w\nexecution_config: {stdio: {mode: packed}}\njobs:\n\
         - {name: 'j_{i}', command: 'echo out {i}; echo err {i} >&2', parameters: {i: '1:60'}}\n\
         - {name: silent, command: 'true'}\n\
         - {name: failed, command: 'echo why >&2; exit 3'}\n",
    );
    env.torc("apply -f w.yaml").exits(3).prints("failed: ExitCode");
    let names = logs(&env);
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names[0].ends_with(".index") && names[1].ends_with(".pack"), "{names:?}");
    assert_eq!(env.torc("logs j_17 --stdout").exits(0).stdout, "out 17\n");
    assert_eq!(env.torc("logs j_17 --stderr").exits(0).stdout, "err 17\n");
    assert_eq!(env.torc("logs j_17").exits(0).stdout, "out 17\nerr 17\n");
    assert_eq!(env.torc("logs failed").exits(0).stdout, "why\n");
    env.torc("logs silent").exits(0).prints("no output");
    // Without the index all output can still be read and unpacked.
    fs::remove_file(env.path("torc_output/job_stdio").join(&names[0])).unwrap();
    assert_eq!(env.items("unpack --list").len(), 121);
    env.torc("unpack --into single").exits(0).prints("121 logs");
    assert_eq!(env.lines("single/job_wf1_j60_r1_a1.o"), ["out 60"]);
    assert_eq!(env.lines("single/job_wf1_j62_r1_a1.e"), ["why"]);
}

#[test]
fn a_long_packed_job_can_be_followed() {
    let env = TestEnv::new();
    let command = "echo begun; while [ ! -f go ]; do sleep 0.02; done; echo done";
    let config = "execution_config: {stdio: {mode: packed}}";
    env.write("w.yaml", format!("name: w\n{config}\njobs: [{{name: long, command: '{command}'}}]\n"));
    let torc = env.start("apply -f w.yaml");
    until(|| env.torc("logs long").stdout == "begun\n", || torc.stderr());
    env.write("go", "");
    torc.finish().exits(0);
    assert_eq!(env.torc("logs long").exits(0).stdout, "begun\ndone\n");
    assert_eq!(logs(&env).len(), 2, "its own file is gone: {:?}", logs(&env));
}

#[test]
fn delete_on_success_drops_packed_logs() {
    let env = TestEnv::new();
    env.write(
        "w.yaml",
        "name: w\nexecution_config: {stdio: {mode: packed, delete_on_success: true}}\njobs:\n\
         - {name: good, command: echo good}\n- {name: bad, command: 'echo bad; exit 1'}\n",
    );
    env.torc("apply -f w.yaml").exits(3);
    env.torc("logs good").exits(0).prints("no output");
    assert_eq!(env.torc("logs bad").exits(0).stdout, "bad\n");
    assert_eq!(env.items("unpack --list").len(), 1);
}

/// After a crash in the middle of a record, all records before it are read.
#[test]
fn a_torn_pack_loses_only_its_end() {
    let env = TestEnv::new();
    env.write(
        "w.yaml",
        "name: w\nexecution_config: {stdio: {mode: packed}}\njobs:\n\
         - {name: first, command: echo first}\n- {name: second, command: echo second, depends_on: [first]}\n",
    );
    env.torc("apply -f w.yaml").exits(0);
    let pack = env.path("torc_output/job_stdio").join(logs(&env).pop().unwrap());
    let bytes = fs::read(&pack).unwrap();
    fs::write(&pack, &bytes[..bytes.len() - 4]).unwrap();
    assert_eq!(env.torc("logs first").exits(0).stdout, "first\n");
    assert_ne!(env.torc("logs second").code, Some(0));
    assert_eq!(env.items("unpack --list").len(), 1);
}

#[test]
fn no_hint_about_an_empty_log_after_printed_text() {
    let env = TestEnv::new();
    env.write("w.yaml", "name: w\njobs: [{name: loud, command: echo hi}, {name: quiet, command: 'true'}]\n");
    env.torc("apply -f w.yaml").exits(0);
    let loud = env.torc("logs loud").exits(0);
    assert_eq!((loud.stdout.as_str(), loud.stderr.as_str()), ("hi\n", ""));
    env.torc("logs quiet").exits(0).prints("attempt 1 of quiet has no output");
}
