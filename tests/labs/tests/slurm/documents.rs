//! The command lines of Torc 1.0's documents that need a real Slurm, run as printed. The table is in `torc_tests::documents`.

use torc_tests::documents::{Command, Given, Literal, Outcome, literals, words};
use torc_tests::env::{text, until};
use torc_tests::labs::slurm::{SlurmLab, wait_for};

use crate::recovery::HEAD;
use crate::slurm_env::SlurmEnv;

/// Returns the command lines of the table for this environment.
fn commands(given: Given) -> Vec<(&'static Literal, &'static Command)> {
    let of = |literal: &'static Literal| {
        literal.outcomes.iter().filter_map(move |outcome| match outcome {
            Outcome::Command(command) if command.given == given => Some((literal, command)),
            _ => None,
        })
    };
    literals().flat_map(|(_, literal)| of(literal)).collect()
}

const JOBS: &str = "\
jobs:
- {name: a, command: 'sleep 600', resource_requirements: small}
- {name: b, command: 'true', resource_requirements: small, depends_on: [a]}
";

// R08, R09, R10, R11, R14
#[test]
fn schedulers_are_regenerated_as_printed() {
    let commands = commands(Given::Slurm);
    assert!(!commands.is_empty());
    for (literal, command) in commands {
        let login = SlurmEnv::new(SlurmLab::shared("documents"));
        login.env.write("w.yaml", format!("{HEAD}{JOBS}"));
        login.torc("apply -f w.yaml --no-run").exits(0);
        let words = words(literal, command);
        let call = words[1..].iter().fold(login.call(""), |call, word| call.arg(word));
        let outcome = call.run().exits(command.exits);
        for words in command.says {
            assert!(outcome.stdout.contains(words) || outcome.stderr.contains(words), "{words}: {}", outcome.stdout);
        }
        if literal.printed.ends_with("--submit") {
            until(|| !login.slurm_jobs(SlurmEnv::is_live).is_empty(), || "nothing was submitted".to_owned());
        }
        login.torc("cancel w").exits(0);
        until(|| login.slurm_jobs(SlurmEnv::is_live).is_empty(), || format!("{:#?}", login.items("get allocations w")));
    }
}

// S01, S07, S08, S10
#[test]
fn slurm_queries_work_as_printed() {
    let commands = commands(Given::Step);
    assert_eq!(commands.len(), 3, "squeue, sstat and sacct");
    let login = SlurmEnv::new(SlurmLab::shared("documents"));
    login.env.write("w.yaml", format!("{HEAD}{JOBS}"));
    login.torc("submit w.yaml").exits(0);
    let is_running = || login.items("get jobs w").iter().any(|job| text(job, "status") == "running");
    until(is_running, || format!("{:#?}", login.items("get jobs w")));
    let job = login.slurm_jobs(SlurmEnv::is_live).remove(0);
    for (literal, command) in commands {
        let words: Vec<String> = words(literal, command)
            .iter()
            .map(|word| word.replace("{job}", &job).trim_matches('"').to_owned())
            .collect();
        let arguments: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        // The accounting lists a step a moment after its start.
        let printed = || login.slurm.command(&words[0], &arguments);
        let is_there =
            |printed: &String| command.says.iter().all(|words| printed.contains(&words.replace("{job}", &job)));
        wait_for(literal.printed, || Some(printed()).filter(is_there));
    }
    login.torc("cancel w").exits(0);
    until(|| login.slurm_jobs(SlurmEnv::is_live).is_empty(), || "the allocation does not go".to_owned());
}
