//! `kill -9` of `torc apply` at random moments, then the same command again: no result is lost, no completed job runs twice, and
//! no process survives.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use torc_tests::env::{TestEnv, eventually, kill, until};

/// Returns sixty jobs in six layers. Each one depends on three jobs of the layer before and logs its start and its end.
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

/// Pseudo-random numbers. Failures print the seed.
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

fn count(env: &TestEnv, word: &str) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for line in env.lines("journal") {
        if let Some(name) = line.strip_prefix(word) {
            *counts.entry(name.trim().to_owned()).or_default() += 1;
        }
    }
    counts
}

#[test]
fn killed_at_random_moments_every_job_runs_exactly_once() {
    let env = TestEnv::new();
    env.write("w.yaml", layers());
    let mut dice = Dice::new();
    let seed = dice.0;
    for _ in 0..8 {
        let target = env.lines("journal").len() + usize::try_from(dice.below(18)).unwrap();
        let mut torc = env.start("apply -f w.yaml --num-cpus 3");
        until(
            || torc.has_ended() || env.lines("journal").len() >= target,
            || format!("seed {seed}: no progress to line {target}"),
        );
        if torc.has_ended() {
            break;
        }
        torc.kill();
    }
    env.torc("apply -f w.yaml --num-cpus 3").exits(0);
    env.expect_nothing_left();
    for word in ["start", "end"] {
        let counts = count(&env, word);
        assert_eq!(counts.len(), 60, "seed {seed}");
        // The shim was never killed, so no exit code was lost.
        assert!(counts.values().all(|times| *times == 1), "seed {seed}: more than one {word}: {counts:?}");
    }
    let attempts = env.attempts("");
    assert_eq!(attempts.len(), 60, "seed {seed}");
    assert!(attempts.iter().all(|attempt| attempt.ends_with(" 1 completed")), "seed {seed}: {attempts:?}");
    order_was_kept(&env);
}

/// Asserts that every job started after its dependencies had ended.
fn order_was_kept(env: &TestEnv) {
    let journal = env.lines("journal");
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
fn apply_killed_at_its_start_can_be_repeated() {
    let env = TestEnv::new();
    env.write("w.yaml", layers());
    let signs = [
        ".torc",
        ".torc/lock",
        ".torc/token",
        ".torc/torc.db",
        ".torc/server.json",
        ".torc/runner",
        ".torc/runner/shim.json",
    ];
    for sign in signs {
        let mut torc = env.start("apply -f w.yaml");
        until(|| torc.has_ended() || env.path(sign).exists(), || format!("no {sign}"));
        torc.kill();
    }
    env.torc("apply -f w.yaml").exits(0);
    env.expect_nothing_left();
    let counts = count(&env, "start");
    assert!(counts.len() == 60 && counts.values().all(|times| *times == 1), "{counts:?}");
}

#[test]
fn a_job_that_ends_without_an_agent_keeps_its_exit_code() {
    let env = TestEnv::new();
    env.write(
        "w.yaml",
        "
name: w
jobs:
  - {name: good, command: 'echo good >> started; until test -e go; do sleep 0.02; done; echo done; touch good_ended'}
  - {name: bad, command: 'echo bad >> started; until test -e go; do sleep 0.02; done; touch bad_ended; exit 42'}
",
    );
    let first = env.start("apply -f w.yaml --num-cpus 2");
    until(|| env.lines("started").len() == 2, || "both jobs start".to_owned());
    first.kill();
    env.write("go", "");
    until(|| env.path("good_ended").exists() && env.path("bad_ended").exists(), || "both jobs end".to_owned());
    env.torc("apply -f w.yaml").exits(3);
    assert_eq!(env.lines("started").len(), 2);
    let results = env.items("get results");
    let code = |job: &str| results.iter().find(|result| result["job"] == job).unwrap()["returnCode"].as_i64();
    assert_eq!((results.len(), code("good"), code("bad")), (2, Some(0), Some(42)));
    env.torc("logs good").exits(0).prints("done");
    env.expect_nothing_left();
}

#[test]
fn an_attempt_without_its_shim_is_lost_and_repeated() {
    let env = TestEnv::new();
    env.write(
        "w.yaml",
        "
name: w
jobs:
  - {name: long, command: 'echo $TORC_ATTEMPT_ID >> started; sh -c \"until test -e go; do sleep 0.02; done\" & wait'}
  - {name: after, command: 'true', depends_on: [long]}
",
    );
    let first = env.start("apply -f w.yaml");
    until(|| env.lines("started").len() == 1, || "the job starts".to_owned());
    until(|| env.states("")["long"] == "running", || "its start is known".to_owned());
    let shim = eventually("a shim", || env.processes().into_iter().find(|process| process.command.contains(" shim ")));
    // The agent is killed first, because an agent whose shim dies starts another one.
    first.kill();
    kill(shim.pid);
    until(|| !env.processes().iter().any(|process| process.pid == shim.pid), || "the shim dies".to_owned());
    let orphans = env.processes();
    assert!(!orphans.is_empty(), "the job is alive without its shim");

    let second = env.start("apply -f w.yaml");
    until(|| env.lines("started").len() == 2, || "a second attempt".to_owned());
    let living = env.processes();
    let lives = |pid: i32| living.iter().any(|process| process.pid == pid);
    assert!(!orphans.iter().any(|orphan| lives(orphan.pid)), "two attempts at once: {orphans:#?} {living:#?}");
    env.write("go", "");
    second.finish().exits(0);
    assert_eq!(env.attempts(""), ["after 1 completed", "long 1 failed", "long 2 completed"]);
    let results = env.items("get results --failed");
    assert_eq!((results[0]["cause"].as_str(), results[0]["returnCode"].as_i64()), (Some("Lost"), Some(-128)));
    assert_eq!(env.lines("started"), ["1", "2"]);
    env.expect_nothing_left();
}

#[test]
fn killing_agent_and_shim_repeatedly_loses_no_result() {
    let env = TestEnv::new();
    env.write("w.yaml", layers());
    let mut dice = Dice::new();
    let seed = dice.0;
    for _ in 0..2 {
        let target = env.lines("journal").len() + 1 + usize::try_from(dice.below(30)).unwrap();
        let mut torc = env.start("apply -f w.yaml --num-cpus 3");
        until(
            || torc.has_ended() || env.lines("journal").len() >= target,
            || format!("seed {seed}: no progress to line {target}"),
        );
        let done: Vec<String> = env.attempts("").into_iter().filter(|attempt| attempt.ends_with("completed")).collect();
        env.kill_all(" shim ");
        torc.kill();
        let kept = env.attempts("");
        assert!(done.iter().all(|attempt| kept.contains(attempt)), "seed {seed}: {done:?} became {kept:?}");
    }
    env.torc("apply -f w.yaml --num-cpus 3").exits(0);
    env.expect_nothing_left();
    let completed = env.attempts("").into_iter().filter(|attempt| attempt.ends_with("completed")).count();
    assert_eq!(completed, 60, "seed {seed}");
    order_was_kept(&env);
}
