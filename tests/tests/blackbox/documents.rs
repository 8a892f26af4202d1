//! The commands, blocks and names of Torc 1.0's documents, run as printed. The table is in `torc_tests::documents`.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::signal::Signal;
use torc_tests::documents::{Block, Command, DOCUMENTS, Given, Literal, Outcome, literals, words};
use torc_tests::env::{Server, TestEnv, binary, project_root};

use crate::planning;

/// Deviations from the expectation, collected so that one run shows all of them.
#[derive(Default)]
struct Deviations(Vec<String>);

impl Deviations {
    fn check(&mut self, what: &str, is_so: bool, found: &str) {
        if !is_so {
            self.0.push(format!("{what}\n{found}"));
        }
    }

    #[track_caller]
    fn expect_none(&self) {
        assert!(self.0.is_empty(), "{} literals differ:\n{}", self.0.len(), self.0.join("\n---\n"));
    }
}

#[test]
fn every_literal_of_the_documents_has_an_outcome() {
    let mut known = BTreeSet::new();
    for (document, literal) in literals() {
        assert!(!literal.outcomes.is_empty(), "{document}: `{}` has no outcome", literal.printed);
        assert!(known.insert((document, literal.printed)), "{document}: `{}` is there twice", literal.printed);
    }
    assert_eq!(DOCUMENTS.len(), 5);
    assert!(DOCUMENTS.iter().all(|(_, literals)| !literals.is_empty()));
}

#[test]
fn every_page_has_the_literal_and_its_equivalent() {
    let mut deviations = Deviations::default();
    for (document, literal) in literals() {
        for outcome in literal.outcomes {
            let Outcome::Page { page, equivalent } = outcome else { continue };
            let text = fs::read_to_string(project_root().join("docs").join(page)).unwrap_or_default();
            for words in [literal.printed, equivalent] {
                deviations.check(&format!("{document}: docs/{page} lacks `{words}`"), text.contains(words), "");
            }
        }
    }
    deviations.expect_none();
}

#[test]
fn every_test_that_the_table_names_exists() {
    let mut sources = Vec::new();
    for folder in ["cli", "controller", "core", "crds", "runner", "slurm", "store", "tests"] {
        collect(&project_root().join(folder), &mut sources);
    }
    let mut deviations = Deviations::default();
    for (document, literal) in literals() {
        for outcome in literal.outcomes {
            let Outcome::Test(test) = outcome else { continue };
            let (file, name) = test.split_once("::").unwrap();
            let function = format!("fn {name}(");
            let is_in = |path: &&PathBuf| path.ends_with(file) && fs::read_to_string(path).unwrap().contains(&function);
            let exists = sources.iter().find(is_in).is_some();
            deviations.check(&format!("{document}: `{}`: there is no test {test}", literal.printed), exists, "");
        }
    }
    deviations.expect_none();
}

fn collect(folder: &Path, sources: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push(path);
        }
    }
}

// J01, J08, J36, J38, R04, R05, R06, R07, R09, R11, R14
#[test]
fn command_lines_run_as_they_are_printed() {
    let mut deviations = Deviations::default();
    for (document, literal) in literals() {
        for outcome in literal.outcomes {
            let Outcome::Command(command) = outcome else { continue };
            if command.given == Given::Workers || command.given.needs_slurm() {
                continue;
            }
            run(document, literal, command, &mut deviations);
        }
    }
    deviations.expect_none();
}

const TWO_JOBS: &str = "\
name: w
jobs:
- {name: a, command: 'true'}
- {name: b, command: 'true', depends_on: [a]}
";

/// A workflow with a scheduler, whose nodes an action requests at the start.
const SCHEDULED: &str = "\
name: w
slurm_schedulers:
- {name: s, account: root, partition: cpu, mem: 1g, walltime: '00:20:00'}
actions:
- {trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: s, scheduler_type: slurm}
jobs:
- {name: a, command: 'true'}
- {name: b, command: 'true', depends_on: [a]}
";

/// Creates the environment of a command line.
fn environment(given: Given) -> TestEnv {
    let env = planning::lab();
    let document = match given {
        Given::Scheduled => SCHEDULED.to_owned(),
        Given::Failed => TWO_JOBS.replace("'true'", "exit 3"),
        _ => TWO_JOBS.to_owned(),
    };
    env.write("w.yaml", document);
    match given {
        Given::Stored | Given::Scheduled => drop(planning::call(&env, "apply -f w.yaml --no-run").run().exits(0)),
        Given::Finished => drop(planning::call(&env, "run w.yaml").run().exits(0)),
        Given::Failed => drop(planning::call(&env, "run w.yaml").run().exits(3)),
        Given::File | Given::Workers | Given::Slurm | Given::Step => {}
    }
    env
}

fn run(document: &str, literal: &Literal, command: &Command, deviations: &mut Deviations) {
    let env = environment(command.given);
    let words = words(literal, command);
    let what = format!("{document}: `{}`", words.join(" "));
    let Some(("torc", arguments)) = words.split_first().map(|(program, rest)| (program.as_str(), rest)) else {
        return deviations.check(&format!("{what}: only `torc` is run"), false, "");
    };
    let outcome = arguments.iter().fold(planning::call(&env, ""), |call, word| call.arg(word)).run();
    let output = format!("{}{}", outcome.stdout, outcome.stderr);
    deviations.check(
        &format!("{what}: {:?} instead of {}", outcome.code, command.exits),
        outcome.code == Some(command.exits),
        &output,
    );
    for words in command.says {
        deviations.check(&format!("{what} lacks `{words}`"), output.contains(words), &output);
    }
}

// J04
#[test]
fn remote_workers_are_started_as_printed() {
    for (_, literal) in literals() {
        for outcome in literal.outcomes {
            let Outcome::Command(command) = outcome else { continue };
            if command.given == Given::Workers {
                on_workers(literal, command);
            }
        }
    }
}

fn on_workers(literal: &Literal, command: &Command) {
    let env = TestEnv::new();
    let server = Server::start(&env);
    env.write("client/w.yaml", TWO_JOBS);
    env.write("client/workers.txt", "localhost\n");
    // The last argument is the command line for the remote shell, as with ssh.
    env.write("client/ssh.sh", "for last; do :; done\nexec sh -c \"$last\"\n");
    let ssh = format!("sh {}", env.text_path("client/ssh.sh"));
    let folder = binary().parent().unwrap().to_owned();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    server.call(&env, "apply -f w.yaml --no-run").run().exits(0);
    let words = words(literal, command);
    let call = words[1..]
        .iter()
        .fold(server.call(&env, ""), |call, word| call.arg(word))
        .env("TORC_SSH", ssh)
        .env("PATH", path);
    let outcome = call.run().exits(command.exits);
    for words in command.says {
        assert!(outcome.stdout.contains(words) || outcome.stderr.contains(words), "{words}: {}", outcome.stderr);
    }
    server.call(&env, "wait w --for condition=Succeeded --timeout 1m").run().exits(0);
    server.process().signal(Signal::SIGTERM);
}

// J09, X01, X06, X13, X14, X15, X17
#[test]
fn blocks_of_documents_run_as_they_are_printed() {
    let mut deviations = Deviations::default();
    for (document, literal) in literals() {
        for outcome in literal.outcomes {
            if let Outcome::Block(block) = outcome {
                run_block(document, literal, block, &mut deviations);
            }
        }
    }
    deviations.expect_none();
}

fn run_block(document: &str, literal: &Literal, block: &Block, deviations: &mut Deviations) {
    let env = TestEnv::new();
    // The document is used as printed. Without a name, it takes that of the file.
    let name = if block.rest.is_empty() { "" } else { "name: w\n" };
    env.write("w.yaml", format!("{name}{}{}", literal.printed, block.rest));
    env.write("my_script.sh", "echo $1 >> ran\n");
    let mut call = env.call(&format!("run w.yaml {}", block.flags));
    if block.is_in_allocation {
        let script = "echo \"$*\" >> calls\nwhile [[ $1 == --* ]]; do shift; done\nexec \"$@\"";
        planning::program(&env, "srun", script);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        call = call.env("SLURM_JOB_ID", "4711").env("SLURM_JOB_END_TIME", (now + 1_830).to_string());
        call = call.env("TORC_FAKE_SRUN", env.path("srun"));
    }
    let outcome = call.run();
    let (log, calls) = (runner_log(&env), env.lines("calls").join("\n"));
    let all = format!("{}{}{log}{calls}", outcome.stdout, outcome.stderr);
    let what = format!("{document}:\n{}", literal.printed);
    deviations.check(
        &format!("{what}: {:?} instead of {}", outcome.code, block.exits),
        outcome.code == Some(block.exits),
        &all,
    );
    for words in block.finds {
        deviations.check(&format!("{what} lacks `{words}`"), all.contains(words), &all);
    }
}

fn runner_log(env: &TestEnv) -> String {
    let entries = fs::read_dir(env.path("torc_output")).into_iter().flatten().flatten();
    let logs = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("job_runner_"));
    logs.map(|entry| fs::read_to_string(entry.path()).unwrap()).collect()
}

// J27, J35, P05
#[test]
fn settings_are_read_as_they_are_printed() {
    let mut deviations = Deviations::default();
    for (document, literal) in literals() {
        for outcome in literal.outcomes {
            let Outcome::Setting(shown) = outcome else { continue };
            let env = TestEnv::new();
            env.write("torc.toml", literal.printed);
            let outcome = env.torc("config show").exits(0);
            let all = format!("{}{}", outcome.stdout, outcome.stderr);
            let is_known = !all.contains("unknown setting");
            deviations.check(&format!("{document}: {}: unknown", literal.printed), is_known, &all);
            for words in *shown {
                deviations.check(
                    &format!("{document}: {} lacks `{words}`", literal.printed),
                    all.contains(words),
                    &all,
                );
            }
        }
    }
    deviations.expect_none();
}

// S17
#[test]
fn routes_without_a_version_name_the_ones_of_today() {
    let env = TestEnv::new();
    let server = Server::start(&env);
    let mut deviations = Deviations::default();
    for (document, literal) in literals() {
        for outcome in literal.outcomes {
            let Outcome::Route(path) = outcome else { continue };
            let answer = request(server.address(), literal.printed);
            let what = format!("{document}: {}", literal.printed);
            deviations.check(&format!("{what} is no 404"), answer.starts_with("HTTP/1.1 404"), &answer);
            deviations.check(&format!("{what} does not name {path}"), answer.contains(path), &answer);
            // The server has the named route: without a token it answers 401 and not 404.
            let today = format!("GET {}", path.replace("{workflow}", "1"));
            let answer = request(server.address(), &today);
            deviations.check(&format!("{today} is not served"), answer.starts_with("HTTP/1.1 401"), &answer);
        }
    }
    deviations.expect_none();
    server.process().signal(Signal::SIGTERM);
}

/// Sends a request without a token and returns the raw response.
fn request(address: &str, line: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "{line} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
