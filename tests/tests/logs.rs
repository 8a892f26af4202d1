//! Where the output of jobs goes, and how `torc logs` shows it.
#![allow(clippy::unwrap_used)]

use std::fs;

use torc_tests::lab::{Lab, until};

/// The log files by name, sorted; scratch files of a runner at work do not count.
fn logs(lab: &Lab) -> Vec<String> {
    let Ok(entries) = fs::read_dir(lab.path("torc_output/job_stdio")) else { return Vec::new() };
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
fn every_mode_has_its_files() {
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
        let lab = Lab::new();
        let config =
            if mode.is_empty() { String::new() } else { format!("execution_config: {{stdio: {{mode: {mode}}}}}") };
        lab.write("w.yaml", format!("name: w\n{config}\n{TALKERS}"));
        lab.torc("apply -f w.yaml").exits(0);
        let expected: Vec<String> = expected
            .iter()
            .map(|name| {
                let (number, kind) = name.split_once('.').unwrap();
                format!("job_wf1_j{number}_r1_a1.{kind}")
            })
            .collect();
        assert_eq!(logs(&lab), expected, "{mode}");
        if mode == "combined" {
            assert_eq!(lab.lines("torc_output/job_stdio/job_wf1_j1_r1_a1.log"), ["out", "err"]);
        }
        let left = fs::read_dir(lab.path("torc_output/job_stdio")).map_or(0, Iterator::count);
        assert_eq!(left, expected.len(), "{mode}: scratch files were left behind");
    }
}

// J22
#[test]
fn logs_of_what_succeeded_go_when_asked_for() {
    let lab = Lab::new();
    lab.write(
        "w.yaml",
        "
name: w
execution_config: {stdio: {delete_on_success: true}}
jobs:
  - {name: good, command: 'echo good'}
  - {name: bad, command: 'echo bad; exit 1'}
",
    );
    lab.torc("apply -f w.yaml").exits(3);
    assert_eq!(logs(&lab), ["job_wf1_j2_r1_a1.o"]);
    let results = lab.items("get results --job good");
    assert!(results[0].get("stdout").is_none(), "{results:#?}");
}

#[test]
fn logs_go_where_they_are_told_to() {
    let lab = Lab::new();
    lab.write("w.yaml", "name: w\njobs: [{name: a, command: echo hello}]\n");
    lab.torc("apply -f w.yaml --output-dir elsewhere/logs").exits(0);
    assert_eq!(lab.lines("elsewhere/logs/job_stdio/job_wf1_j1_r1_a1.o"), ["hello"]);
    assert_eq!(lab.torc("logs a").exits(0).stdout, "hello\n");
    assert!(!lab.path("torc_output").exists());
}

#[test]
fn streams_and_attempts_are_told_apart() {
    let lab = Lab::new();
    lab.write("w.yaml", "name: w\njobs: [{name: a, command: 'echo out $TORC_ATTEMPT_ID; echo err $TORC_ATTEMPT_ID >&2; exit 1'}, {name: quiet, command: 'true'}]\n");
    lab.torc("apply -f w.yaml").exits(3);
    lab.torc("retry").exits(0);
    lab.torc("run w").exits(3);
    assert_eq!(logs(&lab).len(), 4);
    assert_eq!(lab.torc("logs a --stdout").exits(0).stdout, "out 2\n");
    assert_eq!(lab.torc("logs a --stderr --attempt 1").exits(0).stdout, "err 1\n");
    let both = lab.torc("logs job/a --attempt 1").exits(0).stdout;
    assert!(both.contains("out 1\n") && both.contains("err 1\n") && !both.contains('2'), "{both}");
    assert_eq!(lab.torc("logs quiet").exits(0).says("has no output").stdout, "");
    lab.torc("logs a --attempt 3").exits(5);
    lab.torc("logs nobody").exits(5);
}

#[test]
fn a_new_run_has_logs_of_its_own() {
    let lab = Lab::new();
    lab.write("w.yaml", "name: w\njobs: [{name: a, command: 'echo run $TORC_RUN_ID'}]\n");
    lab.torc("apply -f w.yaml").exits(0);
    lab.torc("retry w --all").exits(0);
    lab.torc("run w").exits(0);
    assert_eq!(logs(&lab), ["job_wf1_j1_r1_a1.o", "job_wf1_j1_r2_a1.o"]);
    assert_eq!(lab.torc("logs a --run 1").exits(0).stdout, "run 1\n");
    assert_eq!(lab.torc("logs a").exits(0).stdout, "run 2\n");
}

#[test]
fn the_end_of_a_log_is_enough() {
    let lab = Lab::new();
    lab.write("w.yaml", "name: w\njobs: [{name: a, command: seq 1 1000}]\n");
    lab.torc("apply -f w.yaml").exits(0);
    assert_eq!(lab.torc("logs a --tail 2").exits(0).stdout, "999\n1000\n");
    assert_eq!(lab.torc("logs a").exits(0).stdout.lines().count(), 1000);
}

#[test]
fn a_running_job_is_followed_to_its_end() {
    let lab = Lab::new();
    lab.write(
        "w.yaml",
        "
name: w
jobs: [{name: a, command: 'echo first; until test -e more; do sleep 0.02; done; echo second; until test -e end; do sleep 0.02; done; echo third'}]
",
    );
    let apply = lab.start("apply -f w.yaml");
    until(
        || lab.path(".torc/torc.db").exists() && lab.torc("get jobs -o json").stdout.contains("\"running\""),
        || "the job runs".to_owned(),
    );
    let follower = lab.start("logs -f a");
    follower.says("first");
    lab.write("more", "");
    follower.says("second");
    lab.write("end", "");
    assert_eq!(follower.finish().exits(0).stdout, "first\nsecond\nthird\n");
    apply.finish().exits(0);
    assert_eq!(logs(&lab), ["job_wf1_j1_r1_a1.o"]);
}

#[test]
fn log_files_can_be_large_and_binary() {
    let lab = Lab::new();
    lab.write(
        "w.yaml",
        "name: w\njobs: [{name: a, command: 'head -c 5000000 /dev/zero; printf \"\\\\377\\\\376\"'}]\n",
    );
    lab.torc("apply -f w.yaml").exits(0);
    let size = fs::metadata(lab.path("torc_output/job_stdio/job_wf1_j1_r1_a1.o")).unwrap().len();
    assert_eq!(size, 5_000_002);
    lab.torc("logs a --tail 1").exits(0);
}

// J22
#[test]
fn packed_logs_are_few_files_and_read_the_same() {
    let lab = Lab::new();
    lab.write(
        "w.yaml",
        "name: w\nexecution_config: {stdio: {mode: packed}}\njobs:\n\
         - {name: 'j_{i}', command: 'echo out {i}; echo err {i} >&2', parameters: {i: '1:60'}}\n\
         - {name: silent, command: 'true'}\n\
         - {name: failed, command: 'echo why >&2; exit 3'}\n",
    );
    lab.torc("apply -f w.yaml").exits(3).says("failed: ExitCode");
    let names = logs(&lab);
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names[0].ends_with(".index") && names[1].ends_with(".pack"), "{names:?}");
    assert_eq!(lab.torc("logs j_17 --stdout").exits(0).stdout, "out 17\n");
    assert_eq!(lab.torc("logs j_17 --stderr").exits(0).stdout, "err 17\n");
    assert_eq!(lab.torc("logs j_17").exits(0).stdout, "out 17\nerr 17\n");
    assert_eq!(lab.torc("logs failed").exits(0).stdout, "why\n");
    lab.torc("logs silent").exits(0).says("no output");
    // Without the index everything is still there, also as files of their own.
    fs::remove_file(lab.path("torc_output/job_stdio").join(&names[0])).unwrap();
    assert_eq!(lab.items("unpack --list").len(), 121);
    lab.torc("unpack --into single").exits(0).says("121 logs");
    assert_eq!(lab.lines("single/job_wf1_j60_r1_a1.o"), ["out 60"]);
    assert_eq!(lab.lines("single/job_wf1_j62_r1_a1.e"), ["why"]);
}

#[test]
fn a_packed_job_can_be_followed_when_it_takes_long() {
    let lab = Lab::new();
    let command = "echo begun; while [ ! -f go ]; do sleep 0.02; done; echo done";
    let config = "execution_config: {stdio: {mode: packed}}";
    lab.write("w.yaml", format!("name: w\n{config}\njobs: [{{name: long, command: '{command}'}}]\n"));
    let torc = lab.start("apply -f w.yaml");
    until(|| lab.torc("logs long").stdout == "begun\n", || torc.stderr());
    lab.write("go", "");
    torc.finish().exits(0);
    assert_eq!(lab.torc("logs long").exits(0).stdout, "begun\ndone\n");
    assert_eq!(logs(&lab).len(), 2, "its own file is gone: {:?}", logs(&lab));
}

#[test]
fn packed_logs_of_what_succeeded_are_not_kept_when_asked_for() {
    let lab = Lab::new();
    lab.write(
        "w.yaml",
        "name: w\nexecution_config: {stdio: {mode: packed, delete_on_success: true}}\njobs:\n\
         - {name: good, command: echo good}\n- {name: bad, command: 'echo bad; exit 1'}\n",
    );
    lab.torc("apply -f w.yaml").exits(3);
    lab.torc("logs good").exits(0).says("no output");
    assert_eq!(lab.torc("logs bad").exits(0).stdout, "bad\n");
    assert_eq!(lab.items("unpack --list").len(), 1);
}

/// A crash in the middle of a record: what came before is read, what is torn is not.
#[test]
fn a_torn_pack_loses_only_its_end() {
    let lab = Lab::new();
    lab.write(
        "w.yaml",
        "name: w\nexecution_config: {stdio: {mode: packed}}\njobs:\n\
         - {name: first, command: echo first}\n- {name: second, command: echo second, depends_on: [first]}\n",
    );
    lab.torc("apply -f w.yaml").exits(0);
    let pack = lab.path("torc_output/job_stdio").join(logs(&lab).pop().unwrap());
    let bytes = fs::read(&pack).unwrap();
    fs::write(&pack, &bytes[..bytes.len() - 4]).unwrap();
    assert_eq!(lab.torc("logs first").exits(0).stdout, "first\n");
    assert_ne!(lab.torc("logs second").code, Some(0));
    assert_eq!(lab.items("unpack --list").len(), 1);
}
