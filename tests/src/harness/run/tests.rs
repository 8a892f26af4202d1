//! Tests of the harness on a shell script that behaves like a test binary.

use std::os::unix::fs::PermissionsExt as _;

use super::super::catalog::{Binary, list_tests};
use super::*;

/// A binary with one test for each outcome.
const SCRIPT: &str = r#"#!/bin/sh
if [ "$1" = --list ]; then printf '%s: test\n' good bad hangs leaves skips absent where; exit; fi
[ "$1" = absent ] && { echo "running 0 tests"; exit; }
echo "running 1 test"
case $1 in
  bad) echo "assertion failed"; exit 101 ;;
  hangs) sleep 1000 & wait ;;
  leaves) setsid sleep 1000 & ;;
  skips) echo "test skips ... skipped (needs root)" ;;
  where) echo "$HOME $TMPDIR $XDG_RUNTIME_DIR ${SECRET_OF_THE_USER-unset}" ;;
esac
"#;

fn binary(folder: &Path) -> Binary {
    let executable = folder.join("suite");
    fs::write(&executable, SCRIPT).expect("a script");
    fs::set_permissions(&executable, Permissions::from_mode(0o755)).expect("a script that can be run");
    Binary { package: "p".to_owned(), target: "suite".to_owned(), executable, package_folder: folder.to_owned() }
}

#[test]
fn every_test_has_the_outcome_of_its_own_process() {
    let folder = TempDir::new().expect("a folder");
    let tests = list_tests(&binary(folder.path())).expect("names");
    assert_eq!(tests.len(), 7);
    let limits = Limits { jobs: 3, test_timeout: Duration::from_secs(2) };
    let runner = Runner::new(limits, "torc".into(), false).expect("a runner");
    let mut seen = 0;
    let results = runner.run(&tests, |_| seen += 1);
    assert_eq!((seen, results.len()), (7, 7));
    let of = |name: &str| results.iter().find(|result| result.test.name == name).expect("a result");
    assert_eq!(of("good").outcome, Outcome::Passed);
    assert_eq!(of("skips").outcome, Outcome::Skipped("needs root".to_owned()));
    let reason = |name: &str| match &of(name).outcome {
        Outcome::Failed(reason) => reason.clone(),
        other => panic!("{name} is {other:?}"),
    };
    assert_eq!(reason("bad"), "exit status: 101");
    assert!(of("bad").output.contains("assertion failed"));
    assert_eq!(reason("hangs"), "hung: killed by the harness after 2 s");
    assert_eq!(reason("leaves"), "processes left behind: sleep 1000");
    assert_eq!(reason("absent"), "the binary did not run the test");
    let own = runner.folder.path();
    let place = of("where").output.lines().nth(1).expect("a line").to_owned();
    let number = tests.iter().position(|test| test.name == "where").expect("a test");
    let folder = own.join(number.to_string());
    let shown = |part: &str| folder.join(part).display().to_string();
    assert_eq!(place, format!("{} {} {} unset", shown("home"), shown("tmp"), shown("run")));
    for test in &tests {
        let id = own.join(tests.iter().position(|other| other == test).expect("a test").to_string());
        let left = crate::env::marked_processes(HARNESS_MARK, &id.to_string_lossy());
        assert!(left.is_empty(), "{} left {left:?}", test.name);
    }
}

#[test]
fn a_test_that_waits_for_its_turn_is_not_hung() {
    let start = Instant::now();
    let after = |seconds| start + Duration::from_secs(seconds);
    let mut watchdog = Watchdog { timeout: Duration::from_secs(120), start, turns_taken: 0 };
    assert!(!watchdog.is_expired(after(120)) && watchdog.is_expired(after(121)));
    assert!(!watchdog.is_hung(after(121), 1), "it got its turn after it started");
    assert!(!watchdog.is_expired(after(241)) && watchdog.is_expired(after(242)));
    assert!(watchdog.is_hung(after(242), 1), "it had its turn for the whole time");
}
