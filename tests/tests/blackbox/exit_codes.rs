//! The exit code of every command in every situation that determines it: one table, each cell a real call.

mod cluster;
mod interrupted;
mod table;
mod workers;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use table::{CELLS, CODES, Cell, DISK, HIDDEN, INTERRUPTED, LOCAL, ROWS, SLURM, WORDS};
use torc_tests::env::{Call, Outcome, Server, TestEnv, project_root};

use super::planning;

/// A URL on which no process listens.
const DEAD_URL: &str = "http://127.0.0.1:1";

/// Files that the cells name: documents that succeed, fail, wait for ever, differ, or are invalid.
const FILES: [(&str, &str); 16] = [
    ("w.yaml", "name: w\njobs:\n  - name: a\n    command: echo hi\n"),
    ("changed.yaml", "name: w\njobs: [{name: a, command: echo other}]\n"),
    ("fail.yaml", "name: fail\njobs: [{name: a, command: exit 7}]\n"),
    ("held.yaml", "name: held\njobs: [{name: a, command: 'true', labels: [elsewhere]}]\n"),
    ("stopped.yaml", "name: stopped\njobs: [{name: a, command: 'true', labels: [elsewhere]}]\n"),
    (
        "gate.yaml",
        "name: gate\njobs: [{name: a, command: 'echo on >> started; until test -e go; do sleep 0.05; done'}]\n",
    ),
    (
        "slurm.yaml",
        "name: large\nslurm_cluster: local\nslurm_schedulers: [{name: s, account: a}]\njobs: [{name: a, command: 'true', labels: [elsewhere]}]\n",
    ),
    (
        "needs.yaml",
        "name: needs\nfiles: [{name: f, path: nothere}]\njobs: [{name: a, command: 'true', input_files: [f], labels: [elsewhere]}]\n",
    ),
    ("pending.yaml", "name: pending\nuse_pending_failed: true\njobs: [{name: a, command: exit 1}]\n"),
    ("bad.yaml", "name: bad\njobs: [{name: a}]\n"),
    ("bad.toml", "partitions = [\n"),
    ("workers.txt", "n1\n"),
    ("bad.txt", "one two three\n"),
    ("text", "text\n"),
    ("signed", "torc1.not.signed\n"),
    ("folder/file", ""),
];

/// Writes the files into a folder of the environment.
fn with_files(env: &TestEnv, folder: &str) {
    for (name, content) in FILES {
        env.write(&format!("./{folder}/{name}"), content);
    }
}

/// Creates an environment with a folder `alone` that has the files and no store.
fn alone() -> TestEnv {
    let env = TestEnv::new();
    with_files(&env, "alone");
    env
}

/// Prepares a call in a folder, without Slurm's commands even if they are installed.
fn call_in(env: &TestEnv, folder: &str, line: &str) -> Call {
    without_slurm(env.call(line)).folder(env.path(folder))
}

fn without_slurm(call: Call) -> Call {
    ["SRUN", "SQUEUE", "SBATCH", "SCANCEL", "SACCT", "SINFO", "SCONTROL", "SSTAT"]
        .into_iter()
        .fold(call, |call, tool| call.env(&format!("TORC_FAKE_{tool}"), "/nowhere/tool"))
}

/// Starts a server that runs jobs itself, and creates a folder `client` with the files.
fn served() -> (TestEnv, Server) {
    let env = TestEnv::new();
    with_files(&env, "client");
    let line = "server --database data/lab.db -o json --bind 127.0.0.1:0 --with-runner --num-cpus 4";
    let server = Server::from_call(&env, without_slurm(env.call(line)));
    (env, server)
}

fn admin(env: &TestEnv, server: &Server, line: &str) -> Call {
    without_slurm(server.call(env, line))
}

/// Returns the commands of a line without its arguments, e.g. `workflows status` of `workflows status w`.
fn command_of(line: &str) -> String {
    let known = CODES.iter().map(|(command, _)| *command);
    let found = known.filter(|command| line == *command || line.starts_with(&format!("{command} ")));
    found.max_by_key(|command| command.len()).unwrap_or_else(|| panic!("no row for `{line}`")).to_owned()
}

/// Collects all cells with another exit code, so that one run shows all of them.
#[derive(Default)]
struct Deviations(Vec<String>);

impl Deviations {
    fn check(&mut self, what: &str, outcome: &Outcome, expected: i32) {
        if outcome.code != Some(expected) {
            let printed = outcome.stderr.lines().last().unwrap_or_default();
            self.0.push(format!("{what}: expected {expected}, found {:?}: {printed}", outcome.code));
        }
    }

    /// Checks a call that prints JSON: an error contains the exit code and its name.
    fn check_json(&mut self, what: &str, outcome: &Outcome, expected: i32) {
        self.check(what, outcome, expected);
        let is_error = ![0, 9, 130].contains(&expected) && outcome.stdout.is_empty();
        if !is_error {
            return;
        }
        let line = outcome.stderr.lines().find(|line| line.starts_with('{')).unwrap_or_default();
        let error = serde_json::from_str::<Value>(line).unwrap_or_default()["error"].take();
        let word = WORDS.iter().find(|(code, _)| *code == expected).map(|(_, word)| *word);
        if error["exitCode"] != expected || error["code"].as_str() != word {
            self.0.push(format!("{what}: the JSON does not say {expected} {word:?}: {}", outcome.stderr));
        }
    }

    #[track_caller]
    fn expect_none(&self) {
        assert!(self.0.is_empty(), "{} cells differ:\n{}", self.0.len(), self.0.join("\n"));
    }
}

#[test]
fn every_command_of_the_program_has_a_row() {
    let page = TestEnv::new().torc("reference cli").exits(0).stdout;
    let all: BTreeSet<&str> = page.lines().filter_map(|line| line.strip_prefix("## torc ")).collect();
    let is_group = |command: &str| all.iter().any(|other| other.starts_with(&format!("{command} ")));
    let leaves: BTreeSet<&str> = all.iter().copied().filter(|command| !is_group(command)).collect();
    assert!(leaves.len() > 80, "the page lists {} commands: {leaves:?}", leaves.len());
    let rows: BTreeSet<&str> =
        CODES.iter().map(|(command, _)| *command).filter(|name| !HIDDEN.contains(name)).collect();
    assert_eq!(rows, leaves, "the rows differ from the commands of the program");
}

#[test]
fn every_pinned_code_is_produced_by_a_call() {
    let mut produced: BTreeMap<String, BTreeSet<i32>> = BTreeMap::new();
    let mut add = |line: &str, code: i32| {
        produced.entry(command_of(line)).or_default().insert(code);
    };
    for (line, columns) in ROWS {
        if line.contains("{w}") {
            add(line, 5);
        }
        let line = line.replace("{w}", "w");
        add(&line, 2);
        add(&line, 4);
        columns.iter().for_each(|code| add(&line, *code));
    }
    for Cell(line, code) in [CELLS, LOCAL, DISK, SLURM, cluster::CELLS, workers::CELLS].into_iter().flatten() {
        add(line, *code);
    }
    for line in INTERRUPTED {
        add(line, 130);
    }
    add("shim", 1);
    add("server", 0);
    let expected: BTreeMap<String, BTreeSet<i32>> =
        CODES.iter().map(|(command, codes)| ((*command).to_owned(), codes.iter().copied().collect())).collect();
    for (command, codes) in &expected {
        assert_eq!(
            produced.get(command),
            Some(codes),
            "the calls of `torc {command}` exit with other codes than its row"
        );
    }
    assert_eq!(produced.len(), expected.len());
}

/// The page of the book, the generated page and this table list the same codes.
#[test]
fn the_pages_list_the_same_codes() {
    let rows = |text: &str| -> Vec<(i32, String)> {
        let cells = |line: &str| -> Option<(i32, String)> {
            let [code, word, _] = line.strip_prefix("| ")?.split(" | ").collect::<Vec<_>>().try_into().ok()?;
            Some((code.parse().ok()?, word.trim_matches('`').to_owned()))
        };
        text.lines().filter_map(cells).collect()
    };
    let expected: Vec<(i32, String)> = WORDS.iter().map(|(code, word)| (*code, (*word).to_owned())).collect();
    let book = std::fs::read_to_string(project_root().join("docs/reference/exit-codes.md")).unwrap();
    assert_eq!(rows(&book), expected, "docs/reference/exit-codes.md");
    assert_eq!(rows(&TestEnv::new().torc("reference cli").exits(0).stdout), expected, "torc reference cli");
}

#[test]
fn a_wrong_flag_exits_with_2_and_a_wrong_setting_with_4() {
    let env = alone();
    let mut deviations = Deviations::default();
    for (line, _) in ROWS {
        let line = line.replace("{w}", "w");
        let wrong = call_in(&env, "alone", &line).arg("--no-such-flag").run();
        deviations.check(&format!("{line} --no-such-flag"), &wrong, 2);
        let setting = call_in(&env, "alone", &line).env("TORC_FORMAT", "xml").run();
        deviations.check(&format!("TORC_FORMAT=xml {line}"), &setting, 4);
    }
    deviations.check("no command", &env.torc(""), 2);
    for line in ["--help", "--version", "apply --help", "workflows --help", "remote run --help"] {
        deviations.check(line, &env.torc(line), 0);
    }
    deviations.check("shim", &env.torc("shim"), 1);
    deviations.expect_none();
}

#[test]
fn without_a_store_each_command_exits_as_pinned() {
    let mut deviations = Deviations::default();
    for (line, [alone_code, ..]) in ROWS {
        // A new environment for each call, because some calls create a store.
        let env = alone();
        let line = line.replace("{w}", "w");
        let outcome = call_in(&env, "alone", &line).env("TORC_FORMAT", "json").run();
        deviations.check_json(&line, &outcome, *alone_code);
        let makes_a_store = ["apply -f w.yaml", "apply -f fail.yaml --wait", "run w.yaml", "exec -c true"]
            .contains(&line.as_str())
            || line.starts_with("workflows create-slurm");
        if env.path("alone/.torc").exists() != makes_a_store {
            deviations.0.push(format!("{line}: a store was made: {}", !makes_a_store));
        }
    }
    deviations.expect_none();
}

#[test]
fn without_its_server_each_command_exits_as_pinned() {
    let env = alone();
    let mut deviations = Deviations::default();
    for (line, [_, dead, ..]) in ROWS {
        let line = line.replace("{w}", "w");
        let call = call_in(&env, "alone", &line).env("TORC_API_URL", DEAD_URL).env("TORC_FORMAT", "json");
        deviations.check_json(&line, &call.run(), *dead);
    }
    deviations.expect_none();
}

#[test]
fn without_a_token_each_command_exits_as_pinned() {
    let (env, server) = served();
    with_files(&env, "stranger");
    admin(&env, &server, "apply -f w.yaml --wait").run().exits(0);
    let mut deviations = Deviations::default();
    for (line, [_, _, stranger, _]) in ROWS {
        let line = line.replace("{w}", "w");
        let call = call_in(&env, "stranger", &line).env("TORC_API_URL", &server.url).env("TORC_FORMAT", "json");
        deviations.check_json(&line, &call.run(), *stranger);
    }
    deviations.expect_none();
}

#[test]
fn commands_exit_with_5_for_a_missing_workflow() {
    let (env, server) = served();
    admin(&env, &server, "apply -f w.yaml --wait").run().exits(0);
    let mut deviations = Deviations::default();
    let named = ROWS.iter().map(|(line, _)| *line).filter(|line| line.contains("{w}"));
    for line in named.map(|line| line.replace("{w}", "ghost")) {
        let outcome = admin(&env, &server, &line).env("TORC_FORMAT", "json").run();
        deviations.check_json(&line, &outcome, 5);
        if !outcome.stderr.contains("\"hint\":") {
            deviations.0.push(format!("{line}: it is not printed what there is: {}", outcome.stderr));
        }
    }
    deviations.expect_none();
}

#[test]
fn with_a_server_each_command_exits_as_pinned() {
    let (env, server) = served();
    for file in ["w.yaml", "fail.yaml"] {
        admin(&env, &server, &format!("apply -f {file} --wait")).run();
    }
    let mut deviations = Deviations::default();
    for (line, [.., code]) in ROWS {
        let line = line.replace("{w}", "w");
        deviations.check(&line, &admin(&env, &server, &line).run(), *code);
    }
    deviations.expect_none();
}

#[test]
fn each_outcome_with_a_server_has_its_code() {
    let (env, server) = served();
    env.write("client/journals/offline_journal/offline_results_wf1_r1_n1.db", "no journal");
    let mut deviations = Deviations::default();
    for Cell(line, code) in CELLS {
        deviations.check(line, &admin(&env, &server, line).run(), *code);
    }
    // A token without the right of a runner, and one that may only read.
    server.create_token(&env, "metrics", "--scope metrics");
    server.create_token(&env, "viewer", "--scope viewer");
    for (token, line) in
        [("metrics", "runner w"), ("metrics", "run w"), ("viewer", "cancel w"), ("viewer", "apply -f w.yaml")]
    {
        let outcome = without_slurm(server.call(&env, line)).env("TORC_TOKEN_FILE", env.path(token)).run();
        deviations.check(&format!("{token}: {line}"), &outcome, 7);
    }
    deviations.expect_none();
}

#[test]
fn each_outcome_in_a_folder_has_its_code() {
    let env = TestEnv::new();
    with_files(&env, "local");
    let mut deviations = Deviations::default();
    for Cell(line, code) in LOCAL {
        deviations.check(line, &call_in(&env, "local", line).run(), *code);
    }
    deviations.expect_none();
}

#[test]
fn an_unusable_store_path_exits_with_1() {
    let env = alone();
    env.write("alone/.torc", "no folder");
    let mut deviations = Deviations::default();
    for Cell(line, code) in DISK {
        deviations.check(line, &call_in(&env, "alone", line).run(), *code);
    }
    deviations.expect_none();
}

#[test]
fn each_response_of_slurm_has_its_code() {
    let env = planning::lab();
    with_files(&env, "");
    planning::program(&env, "silent", "echo 'Unable to contact slurm controller (connect failure)' >&2; exit 1");
    planning::program(&env, "refusing", "echo 'Access/permission denied' >&2; exit 1");
    let mut deviations = Deviations::default();
    for Cell(line, code) in SLURM {
        let call = planning::call(&env, line);
        let call = match code {
            6 => call.env("TORC_FAKE_SCONTROL", env.path("silent")),
            7 => call.env("TORC_FAKE_SCONTROL", env.path("refusing")),
            _ => call,
        };
        deviations.check(line, &call.run(), *code);
    }
    deviations.expect_none();
}

/// `torc spawn`, which only a running job can call.
#[test]
fn a_job_that_spawns_jobs_exits_as_pinned() {
    let env = TestEnv::new();
    let torc = torc_tests::env::binary();
    env.write("more.yaml", "jobs: [{name: 'next', command: 'true'}]\n");
    env.write("wrong.yaml", "jobs: [{name: 'next'}]\n");
    let script = format!(
        "TORC='{}'\nfor line in '--lineage l -f more.yaml' '--lineage l -f wrong.yaml' '--lineage l -f none.yaml' '--lineage l'; do\n\
         $TORC spawn $line; echo $? >> codes\ndone\n",
        torc.display()
    );
    planning::program(&env, "spawner", &script);
    env.write("loop.yaml", "name: loop\njobs: [{name: first, command: ./spawner}]\n");
    env.torc("apply -f loop.yaml").exits(0);
    assert_eq!(env.lines("codes"), ["0", "4", "5", "2"], "jobs, an invalid file, a missing file, no file");
    assert_eq!(env.states("loop").len(), 2);
}
