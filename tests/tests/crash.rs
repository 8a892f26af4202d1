//! `kill -9` of `torc apply` at any moment, then the same command again: nothing is lost, nothing that finished runs twice, and
//! no process is left over.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use torc_tests::lab::{Lab, eventually, kill, until};

/// Sixty jobs in six layers; each waits for three of the layer before, and writes down its start and its end.
fn layers() -> String {
    let mut text = "name: layers\njobs:\n".to_owned();
    for layer in 0..6 {
        for column in 0..10 {
            let name = format!("j{layer}_{column}");
            text.push_str(&format!("  - name: {name}\n    command: 'echo start {name} >> journal; sleep 0.02; echo end {name} >> journal'\n"));
            if layer > 0 {
                let before: Vec<String> =
                    (0..3).map(|step| format!("j{}_{}", layer - 1, (column + step * 3) % 10)).collect();
                text.push_str(&format!("    depends_on: [{}]\n", before.join(", ")));
            }
        }
    }
    text
}

/// Small pseudo-random numbers; the seed is printed, so that a failure can be looked into.
struct Dice(u64);

impl Dice {
    fn new() -> Self {
        let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64 | 1;
        Self(seed)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn count(lab: &Lab, word: &str) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for line in lab.lines("journal") {
        if let Some(name) = line.strip_prefix(word) {
            *counts.entry(name.trim().to_owned()).or_default() += 1;
        }
    }
    counts
}

#[test]
fn killed_at_random_moments_every_job_runs_exactly_once() {
    let lab = Lab::new();
    lab.write("w.yaml", layers());
    let mut dice = Dice::new();
    let seed = dice.0;
    for _ in 0..8 {
        let target = lab.lines("journal").len() + usize::try_from(dice.below(18)).unwrap();
        let mut torc = lab.start("apply -f w.yaml --num-cpus 3");
        until(
            || torc.has_ended() || lab.lines("journal").len() >= target,
            || format!("seed {seed}: no progress to line {target}"),
        );
        if torc.has_ended() {
            break;
        }
        torc.kill();
    }
    lab.torc("apply -f w.yaml --num-cpus 3").exits(0);
    lab.expect_nothing_left();
    for word in ["start", "end"] {
        let counts = count(&lab, word);
        assert_eq!(counts.len(), 60, "seed {seed}");
        // The keeper lived through all of it, so no exit code was lost.
        assert!(counts.values().all(|times| *times == 1), "seed {seed}: more than one {word}: {counts:?}");
    }
    let attempts = lab.attempts("");
    assert_eq!(attempts.len(), 60, "seed {seed}");
    assert!(attempts.iter().all(|attempt| attempt.ends_with(" 1 completed")), "seed {seed}: {attempts:?}");
    order_was_kept(&lab);
}

/// Whoever waits for others started after they ended.
fn order_was_kept(lab: &Lab) {
    let journal = lab.lines("journal");
    let at = |line: String| journal.iter().position(|found| *found == line).unwrap();
    for layer in 1..6 {
        for column in 0..10 {
            for step in 0..3 {
                let end = at(format!("end j{}_{}", layer - 1, (column + step * 3) % 10));
                assert!(end < at(format!("start j{layer}_{column}")), "{journal:?}");
            }
        }
    }
}

#[test]
fn killed_in_its_first_moments_it_starts_anew() {
    let lab = Lab::new();
    lab.write("w.yaml", layers());
    let signs = [
        ".torc",
        ".torc/lock",
        ".torc/token",
        ".torc/torc.db",
        ".torc/server.json",
        ".torc/runner",
        ".torc/runner/keeper.json",
    ];
    for sign in signs {
        let mut torc = lab.start("apply -f w.yaml");
        until(|| torc.has_ended() || lab.path(sign).exists(), || format!("no {sign}"));
        torc.kill();
    }
    lab.torc("apply -f w.yaml").exits(0);
    lab.expect_nothing_left();
    let counts = count(&lab, "start");
    assert!(counts.len() == 60 && counts.values().all(|times| *times == 1), "{counts:?}");
}

#[test]
fn a_job_that_ends_while_nobody_looks_keeps_its_exit_code() {
    let lab = Lab::new();
    lab.write(
        "w.yaml",
        "
name: w
jobs:
  - {name: good, command: 'echo good >> started; until test -e go; do sleep 0.02; done; echo done; touch good_ended'}
  - {name: bad, command: 'echo bad >> started; until test -e go; do sleep 0.02; done; touch bad_ended; exit 42'}
",
    );
    let first = lab.start("apply -f w.yaml --num-cpus 2");
    until(|| lab.lines("started").len() == 2, || "both jobs start".to_owned());
    first.kill();
    lab.write("go", "");
    until(|| lab.path("good_ended").exists() && lab.path("bad_ended").exists(), || "both jobs end".to_owned());
    lab.torc("apply -f w.yaml").exits(3);
    assert_eq!(lab.lines("started").len(), 2);
    let results = lab.items("get results");
    let code = |job: &str| results.iter().find(|result| result["job"] == job).unwrap()["returnCode"].as_i64();
    assert_eq!((results.len(), code("good"), code("bad")), (2, Some(0), Some(42)));
    lab.torc("logs good").exits(0).says("done");
    lab.expect_nothing_left();
}

#[test]
fn without_its_keeper_an_attempt_is_lost_and_made_again() {
    let lab = Lab::new();
    lab.write(
        "w.yaml",
        "
name: w
jobs:
  - {name: long, command: 'echo $TORC_ATTEMPT_ID >> started; sh -c \"until test -e go; do sleep 0.02; done\" & wait'}
  - {name: after, command: 'true', depends_on: [long]}
",
    );
    let first = lab.start("apply -f w.yaml");
    until(|| lab.lines("started").len() == 1, || "the job starts".to_owned());
    until(|| lab.states("")["long"] == "running", || "its start is known".to_owned());
    let keeper =
        eventually("a keeper", || lab.processes().into_iter().find(|process| process.command.contains(" keeper ")));
    // In this order: a brain whose keeper dies starts another one.
    first.kill();
    kill(keeper.pid);
    until(|| !lab.processes().iter().any(|process| process.pid == keeper.pid), || "the keeper dies".to_owned());
    let orphans = lab.processes();
    assert!(!orphans.is_empty(), "the job lives without its keeper");

    let second = lab.start("apply -f w.yaml");
    until(|| lab.lines("started").len() == 2, || "a second attempt".to_owned());
    let living = lab.processes();
    let lives = |pid: i32| living.iter().any(|process| process.pid == pid);
    assert!(!orphans.iter().any(|orphan| lives(orphan.pid)), "two attempts at once: {orphans:#?} {living:#?}");
    lab.write("go", "");
    second.finish().exits(0);
    assert_eq!(lab.attempts(""), ["after 1 completed", "long 1 failed", "long 2 completed"]);
    let results = lab.items("get results --failed");
    assert_eq!((results[0]["cause"].as_str(), results[0]["returnCode"].as_i64()), (Some("Lost"), Some(-128)));
    assert_eq!(lab.lines("started"), ["1", "2"]);
    lab.expect_nothing_left();
}

#[test]
fn brain_and_keeper_killed_again_and_again_lose_no_finished_job() {
    let lab = Lab::new();
    lab.write("w.yaml", layers());
    let mut dice = Dice::new();
    let seed = dice.0;
    for _ in 0..2 {
        let target = lab.lines("journal").len() + 1 + usize::try_from(dice.below(30)).unwrap();
        let mut torc = lab.start("apply -f w.yaml --num-cpus 3");
        until(
            || torc.has_ended() || lab.lines("journal").len() >= target,
            || format!("seed {seed}: no progress to line {target}"),
        );
        let done: Vec<String> = lab.attempts("").into_iter().filter(|attempt| attempt.ends_with("completed")).collect();
        lab.kill_all(" keeper ");
        torc.kill();
        let kept = lab.attempts("");
        assert!(done.iter().all(|attempt| kept.contains(attempt)), "seed {seed}: {done:?} became {kept:?}");
    }
    lab.torc("apply -f w.yaml --num-cpus 3").exits(0);
    lab.expect_nothing_left();
    let completed = lab.attempts("").into_iter().filter(|attempt| attempt.ends_with("completed")).count();
    assert_eq!(completed, 60, "seed {seed}");
    order_was_kept(&lab);
}
