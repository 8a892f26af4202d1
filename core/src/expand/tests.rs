#![allow(clippy::unwrap_used)]
use proptest::prelude::*;
use serde_json::json;

use super::*;

mod boundaries;
mod properties;

fn spec(value: Value) -> WorkflowSpec {
    serde_json::from_value(value).unwrap()
}

fn expanded(value: Value) -> Expanded {
    match expand(&spec(value), &ExpansionLimits::default()) {
        Ok(expanded) => expanded,
        Err(problems) => panic!("{problems:#?}"),
    }
}

/// Returns each job with the names of what it waits for.
fn edges(expanded: &Expanded) -> Vec<(String, Vec<String>)> {
    let name = |number: &u32| expanded.jobs[*number as usize].name.clone();
    expanded.jobs.iter().map(|job| (job.name.clone(), job.depends_on.iter().map(name).collect())).collect()
}

fn own(pairs: &[(&str, &[&str])]) -> Vec<(String, Vec<String>)> {
    let strings = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    pairs.iter().map(|(job, parents)| ((*job).to_owned(), strings(parents))).collect()
}

/// Returns the field and message of every problem.
fn problems(value: Value) -> Vec<(String, String)> {
    let problems = expand(&spec(value), &ExpansionLimits::default()).unwrap_err();
    problems.into_iter().map(|problem| (problem.field, problem.message)).collect()
}

#[test]
fn a_diamond_through_tokens() {
    let diamond = expanded(json!({
        "files": [
            {"name": "in", "path": "in.json"}, {"name": "left", "path": "l.json"},
            {"name": "right", "path": "r.json"}, {"name": "out", "path": "o.json"},
        ],
        "jobs": [
            {"name": "pre", "command": "pre ${files.input.in} ${files.output.left} ${files.output.right}"},
            {"name": "w1", "command": "work", "inputFiles": ["left"]},
            {"name": "w2", "command": "work", "invocationScript": "setup ${files.input.right}"},
            {"name": "post", "command": "post", "dependsOn": ["w2", "w1"], "outputFiles": ["out"]},
        ],
    }));
    assert_eq!(edges(&diamond), own(&[("pre", &[]), ("w1", &["pre"]), ("w2", &["pre"]), ("post", &["w1", "w2"])]));
    assert_eq!(diamond.jobs[0].command, "pre in.json l.json r.json");
    assert_eq!(diamond.jobs[2].invocation_script.as_deref(), Some("setup r.json"));
    assert_eq!(diamond.jobs[0].requirements, 0);
    assert_eq!(diamond.requirements, [crate::expanded::Requirements::default()]);
}

#[test]
fn a_sweep_with_everything_that_is_replaced() {
    let sweep = expanded(json!({
        "env": {"ALL": "yes", "ONE": "no"},
        "resourceRequirements": [{"name": "big_adam", "numCpus": 4, "memory": "2g", "runtime": "PT30M"}],
        "slurmSchedulers": [{"name": "s_adam", "account": "a"}],
        "files": [{"name": "m_{lr:.4f}", "path": "/m/{lr:.4f}.pt", "parameters": {"lr": [0.0001, 0.01]}}],
        "userData": [{
            "name": "c_{lr}", "data": {"deep": [{"lr": "{lr}"}], "n": 1, "{lr}": 2}, "parameters": {"lr": [0.0001, 0.01]},
        }],
        "jobs": [
            {
                "name": "train_{lr:.4f}_{opt}", "command": "train --lr={lr} {opt} '${user_data.input.c_{lr}}'",
                "invocationScript": "env {opt}", "env": {"ONE": "{opt}", "K_{opt}": "v"},
                "resourceRequirements": "big_{opt}", "scheduler": "s_{opt}", "outputFiles": ["m_{lr:.4f}"],
                "parameters": {"lr": [0.0001, 0.01], "opt": "['adam']"},
            },
            {
                "name": "eval_{lr:.4f}", "command": "eval", "inputFileRegexes": ["^m_{lr:.4f}$"],
                "labels": ["z", "lr_{lr}"], "parameters": {"lr": "[0.0001,0.01]"}, "priority": 3,
            },
            {"name": "all", "command": "sum", "dependsOnRegexes": ["^eval_", "al"], "cancelOnBlockingJobFailure": false},
        ],
    }));
    assert_eq!(
        edges(&sweep),
        own(&[
            ("train_0.0001_adam", &[]),
            ("train_0.0100_adam", &[]),
            ("eval_0.0001", &["train_0.0001_adam"]),
            ("eval_0.0100", &["train_0.0100_adam"]),
            ("all", &["eval_0.0001", "eval_0.0100"]),
        ])
    );
    let train = &sweep.jobs[1];
    assert_eq!(sweep.filled_command(train), r#"train --lr=0.01 adam '{"deep":[{"lr":"0.01"}],"n":1,"{lr}":2}'"#);
    assert_eq!(train.invocation_script.as_deref(), Some("env adam"));
    let env: Vec<_> = train.env.iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(env, ["ALL=yes", "K_{opt}=v", "ONE=adam"]);
    assert_eq!(train.scheduler.as_deref(), Some("s_adam"));
    assert_eq!(train.input_user_data, [1]);
    let needs = &sweep.requirements[train.requirements as usize];
    assert_eq!((needs.num_cpus, needs.memory_bytes, needs.num_gpus), (4, 2 << 30, 0));
    assert_eq!((needs.num_nodes, needs.runtime_seconds), (1, 1_800));
    assert_eq!(sweep.jobs[2].labels, ["lr_0.0001", "z"]);
    assert_eq!((sweep.jobs[2].priority, sweep.jobs[0].priority), (3, 0));
    assert!(train.cancel_on_blocking_job_failure && !sweep.jobs[4].cancel_on_blocking_job_failure);
    assert_eq!(sweep.files[1].path, "/m/0.0100.pt");
}

#[test]
fn tables_and_pools_are_shared() {
    let table = json!({"columns": ["model", "n"], "rows": [["vit", 3], ["cnn", 12]]});
    let shared = expanded(json!({
        "parametersFile": "t.csv", "parameterTable": table,
        "jobs": [
            {"name": "t_{model}_{n:02d}", "command": "t", "useParametersFile": true},
            {"name": "e_{model}", "command": "e", "dependsOn": ["t_{model}_{n:02d}"], "useParametersFile": true},
            {"name": "own_{n}", "command": "e", "parameterTable": {"columns": ["n"], "rows": [[1]]}},
            {"name": "once", "command": "{model}"},
        ],
    }));
    let names: Vec<_> = shared.jobs.iter().map(|job| job.name.as_str()).collect();
    assert_eq!(names, ["t_vit_03", "t_cnn_12", "e_vit", "e_cnn", "own_1", "once"]);
    assert_eq!(shared.jobs[3].depends_on, [1]);
    assert_eq!(shared.jobs[5].command, "{model}");
    let pool = expanded(json!({
        "parameters": {"a": "1:2", "b": "[x]", "c": "7"},
        "env": {"C": "c{c}", "A": "{a}", "B": "{b}"},
        "jobs": [{"name": "j_{a}{b}", "command": "{c}", "useParameters": ["b", "a"]}],
    }));
    let names: Vec<_> = pool.jobs.iter().map(|job| job.name.as_str()).collect();
    assert_eq!(names, ["j_1x", "j_2x"]);
    assert_eq!(pool.jobs[0].command, "{c}");
    let env: Vec<_> = pool.jobs[0].env.values().map(String::as_str).collect();
    assert_eq!(env, ["1:2", "x", "c7"]);
}

#[test]
fn tokens_replace_the_list_of_their_kind() {
    let files = json!([{"name": "a", "path": "A"}, {"name": "b", "path": "B"}, {"name": "c", "path": "C"}]);
    let job = |extra: Value| {
        let mut job = json!({"name": "j", "command": "run"});
        job.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        expanded(json!({"files": files, "jobs": [job]})).jobs.remove(0)
    };
    let table: [(Value, &[u32], &[u32]); 5] = [
        (json!({"inputFiles": ["b", "b"], "outputFiles": ["c"]}), &[1], &[2]),
        (json!({"command": "${files.input.a}", "inputFiles": ["b"], "outputFiles": ["c"]}), &[0], &[2]),
        (json!({"command": "${files.input.a}", "inputFiles": ["unknown"]}), &[0], &[]),
        (json!({"command": "${files.input.a}", "inputFiles": ["b"], "inputFileRegexes": ["c"]}), &[0, 2], &[]),
        (json!({"invocationScript": "${files.input.a}", "inputFiles": ["b"]}), &[0, 1], &[]),
    ];
    for (extra, inputs, outputs) in table {
        let job = job(extra.clone());
        assert_eq!((&job.input_files[..], &job.output_files[..]), (inputs, outputs), "{extra}");
    }
}

#[test]
fn several_writers_are_all_waited_for_and_remarked_upon() {
    let document = json!({
        "parameters": {"lr": "1:2"},
        "files": [{"name": "f", "path": "f"}, {"name": "g", "path": "g"}],
        "jobs": [
            {"name": "w1", "command": "x", "outputFiles": ["f"], "useParameters": ["rl"]},
            {"name": "w2", "command": "x", "outputFiles": ["f"], "inputFiles": ["g"]},
            {"name": "r", "command": "x ${files.input.f}", "inputFiles": ["f", "g"], "parameters": {"x": 1}, "useParameters": ["lr"]},
        ],
    });
    let expanded = expanded(document.clone());
    assert_eq!(edges(&expanded), own(&[("w1", &[]), ("w2", &[]), ("r", &["w1", "w2"])]));
    let warnings = warnings(&spec(document), &expanded);
    assert!(warnings.iter().all(|warning| !warning.is_error()));
    let fields: Vec<_> = warnings.iter().map(|warning| warning.field.as_str()).collect();
    assert_eq!(fields, ["spec.jobs[2].useParameters", "spec.jobs[2].inputFiles", "spec.files"]);
}

// X10, X11
#[test]
fn a_walltime_too_short_for_its_longest_job_is_remarked_upon() {
    let document = |walltime: &str, headroom: i64| {
        json!({
            "executionConfig": {"mode": "slurm", "srunTerminationSignal": "TERM@120", "sigkillHeadroomSeconds": headroom},
            "resourceRequirements": [
                {"name": "short", "numCpus": 1, "memory": "1m", "runtime": "PT1M"},
                {"name": "long", "numCpus": 1, "memory": "1m", "runtime": "PT10M"},
            ],
            "slurmSchedulers": [{"name": "s", "account": "a", "walltime": walltime}, {"name": "t", "account": "a", "walltime": "1m"}],
            "jobs": [
                {"name": "a", "command": "x", "resourceRequirements": "short", "scheduler": "s"},
                {"name": "b", "command": "x", "resourceRequirements": "long", "scheduler": "s"},
                {"name": "c", "command": "x", "resourceRequirements": "long"},
            ],
        })
    };
    let told = |walltime: &str, headroom: i64| {
        let document = document(walltime, headroom);
        let expanded = expanded(document.clone());
        let warnings = warnings(&spec(document), &expanded);
        warnings.iter().map(|one| (one.field.clone(), one.message.clone(), one.hint.clone())).collect::<Vec<_>>()
    };
    assert_eq!(told("15m", 180), [], "10 + 2 + 3 minutes");
    assert_eq!(
        told("14m", 180),
        [(
            "spec.slurmSchedulers[0].walltime".to_owned(),
            "job `b` declares a runtime of 10m, but in a walltime of 14m it gets its first signal after 9m".to_owned(),
            Some("a walltime of at least 19m, or less `sigkillHeadroomSeconds` and warning time".to_owned()),
        )]
    );
    assert_eq!(told("15m", 181).len(), 1);
}

#[test]
fn a_job_that_reads_what_it_writes_does_not_wait_for_itself() {
    let job = json!({"name": "j", "command": "x", "inputFiles": ["f"], "outputFiles": ["f"]});
    let expanded = expanded(json!({"files": [{"name": "f", "path": "f"}], "jobs": [job]}));
    assert!(expanded.jobs[0].depends_on.is_empty());
}

#[test]
fn an_expression_that_also_matches_its_own_job_makes_no_circle() {
    let expanded = expanded(json!({"jobs": [
        {"name": "part_{i}", "command": "x", "parameters": {"i": "1:2"}},
        {"name": "part_all", "command": "x", "dependsOnRegexes": ["^part_"], "dependsOn": ["part_1"]},
    ]}));
    assert_eq!(edges(&expanded), own(&[("part_1", &[]), ("part_2", &[]), ("part_all", &["part_1", "part_2"])]));
}

#[test]
fn every_mistake_is_reported_with_its_field() {
    let found = problems(json!({
        "resourceRequirements": [
            {"name": "small", "numCpus": 1, "memory": "lots", "runtime": "soon"},
            {"name": "small", "numCpus": 1, "memory": "1g"},
            {"name": "default", "numCpus": 1, "memory": "1g"},
        ],
        "files": [{"name": "data", "path": "d"}, {"name": "data", "path": "e"}],
        "jobs": [
            {"name": "prepare", "command": "x", "dependsOn": ["prepar"], "inputFiles": ["dta"], "failureHandler": "h"},
            {"name": "same", "command": "x", "parameters": {"i": "1:3"}, "resourceRequirements": "smal"},
            {"name": "c_{i}", "command": "x", "parameters": {"i": "1:3"}, "dependsOn": ["d_{i}"], "labels": ["a,b", ""]},
            {"name": "r", "command": "x", "dependsOnRegexes": ["^r$", "(", "^nothing"], "outputUserDataRegexes": ["x"]},
            {"name": "s", "command": "x", "scheduler": "nope"},
        ],
        "actions": [
            {"triggerType": "on_jobs_ready", "actionType": "run_commands", "jobs": ["prepar"], "commands": ["x"]},
            {"triggerType": "on_workflow_start", "actionType": "schedule_nodes", "scheduler": "q", "schedulerType": "slurm"},
        ],
    }));
    let fields: std::collections::BTreeSet<_> = found.iter().map(|(field, _)| field.as_str()).collect();
    let expected = [
        "spec.actions[0]",
        "spec.actions[0].jobs[0]",
        "spec.actions[1].scheduler",
        "spec.files[1].name",
        "spec.jobs[0].dependsOn[0]",
        "spec.jobs[0].failureHandler",
        "spec.jobs[0].inputFiles[0]",
        "spec.jobs[1].name",
        "spec.jobs[1].resourceRequirements",
        "spec.jobs[2].dependsOn[0]",
        "spec.jobs[2].labels[0]",
        "spec.jobs[2].labels[1]",
        "spec.jobs[3].dependsOnRegexes[0]",
        "spec.jobs[3].dependsOnRegexes[1]",
        "spec.jobs[3].dependsOnRegexes[2]",
        "spec.jobs[3].outputUserDataRegexes[0]",
        "spec.jobs[4].scheduler",
        "spec.resourceRequirements[0].memory",
        "spec.resourceRequirements[0].runtime",
        "spec.resourceRequirements[1].name",
        "spec.resourceRequirements[2].name",
    ];
    assert_eq!(fields, expected.into());
    let hint = expand(
        &spec(json!({"jobs": [{"name": "prepare", "command": "x", "dependsOn": ["prepar"]}]})),
        &ExpansionLimits::default(),
    );
    assert_eq!(hint.unwrap_err()[0].hint.as_deref(), Some("did you mean `prepare`?"));
}

#[test]
fn bad_parameters_are_reported_together() {
    let found = problems(json!({
        "parameters": {"a": "1:2"}, "parametersFile": "t.csv",
        "jobs": [
            {"name": "j_{i}", "command": "x", "parameters": {"i": "1:2:0"}},
            {"name": "k_{i}", "command": "x", "parameters": {"i": "1:2", "k": "1:3"}, "parameterMode": "zip"},
            {"name": "l", "command": "x", "parametersFile": "missing.csv"},
        ],
        "files": [{"name": "f", "path": "f", "parameters": {"i": "@list.txt"}}],
    }));
    let fields: Vec<_> = found.iter().map(|(field, _)| field.as_str()).collect();
    assert_eq!(
        fields,
        [
            "spec.parametersFile",
            "spec.jobs[0].parameters.i",
            "spec.jobs[1].parameterMode",
            "spec.jobs[2].parametersFile",
            "spec.files[0].parameters.i",
        ]
    );
}

#[test]
fn cycles_are_named_through_files_and_data_too() {
    let found = problems(json!({
        "files": [{"name": "x", "path": "x"}],
        "userData": [{"name": "d"}],
        "jobs": [
            {"name": "a", "command": "x", "outputFiles": ["x"], "inputUserData": ["d"]},
            {"name": "b", "command": "x", "inputFiles": ["x"]},
            {"name": "c", "command": "x", "dependsOn": ["b"], "outputUserData": ["d"]},
        ],
    }));
    let message = "jobs wait for each other: a -> b (through file `x`) -> c -> a (through user data `d`)";
    assert_eq!(found, [("spec.jobs[0]".to_owned(), message.to_owned())]);
}

#[test]
fn every_circle_is_named_and_nothing_hides_another() {
    let found = problems(json!({
        "jobs": [
            {"name": "a", "command": "x", "dependsOn": ["b"]},
            {"name": "b", "command": "x", "dependsOn": ["a"]},
            {"name": "c_{i}", "command": "x", "dependsOn": ["d_{i}"], "parameters": {"i": "1:3"}},
            {"name": "d_{i}", "command": "x", "dependsOn": ["c_{i}", "unknown"], "parameters": {"i": "1:3"}},
            {"name": "e", "command": "x", "parameters": {"i": "1:x"}, "dependsOnRegexes": ["("]},
        ],
    }));
    let fields: Vec<&str> = found.iter().map(|(field, _)| field.as_str()).collect();
    let expected = [
        "spec.jobs[4].parameters.i",
        "spec.jobs[3].dependsOn[1]",
        "spec.jobs[4].dependsOnRegexes[0]",
        "spec.jobs[0]",
        "spec.jobs[2]",
    ];
    assert_eq!(fields, expected, "{found:#?}");
    assert_eq!(found[3].1, "jobs wait for each other: a -> b -> a");
    let rows = "jobs wait for each other: c_1 -> d_1 -> c_1 (and 2 more cycles of jobs of the same entries)";
    assert_eq!(found[4].1, rows);
}

#[test]
fn what_only_follows_from_something_wrong_is_not_told() {
    let document = spec(json!({
        "jobs": [
            {"name": "", "command": "x"},
            {"name": "b", "command": "x", "dependsOn": ["a"], "failureHandler": "unknown"},
        ],
    }));
    let told = |wrong: &[&str]| -> Vec<String> {
        let wrong: Vec<String> = wrong.iter().map(|field| (*field).to_owned()).collect();
        further_problems(&document, &ExpansionLimits::default(), &wrong)
            .into_iter()
            .map(|problem| problem.field)
            .collect()
    };
    assert_eq!(told(&["spec.jobs[0].name"]), ["spec.jobs[1].failureHandler"]);
    assert_eq!(told(&["spec.jobs[0].comand"]), ["spec.jobs[1].dependsOn[0]", "spec.jobs[1].failureHandler"]);
}

#[test]
fn sizes_are_limited_before_memory_is() {
    let limits = ExpansionLimits { max_jobs: 100, max_files: 50, max_dependencies: 1_000 };
    let field = |value: Value| expand(&spec(value), &limits).unwrap_err().remove(0).field;
    let table = [
        (
            json!({"jobs": [{"name": "j_{i}", "command": "x", "parameters": {"i": "1:1000000000000"}}]}),
            "spec.jobs[0].parameters.i",
        ),
        (
            json!({"jobs": [{"name": "j_{i}{k}", "command": "x", "parameters": {"i": "1:99", "k": "1:99"}}]}),
            "spec.jobs[0].parameters",
        ),
        (
            json!({"jobs": [
                {"name": "j_{i}", "command": "x", "parameters": {"i": "1:60"}},
                {"name": "k_{i}", "command": "x", "parameters": {"i": "1:60"}},
            ]}),
            "spec.jobs",
        ),
        (json!({"files": [{"name": "f_{i}", "path": "x", "parameters": {"i": "1:51"}}]}), "spec.files[0].parameters.i"),
        (
            json!({"jobs": [
                {"name": "j_{i}", "command": "x", "parameters": {"i": "1:50"}},
                {"name": "k_{i}", "command": "x", "parameters": {"i": "1:50"}, "dependsOnRegexes": ["^j_"]},
            ]}),
            "spec.jobs",
        ),
        (
            json!({
                "files": [{"name": "f", "path": "f"}],
                "jobs": [
                    {"name": "j_{i}", "command": "x", "parameters": {"i": "1:50"}, "outputFiles": ["f"]},
                    {"name": "k_{i}", "command": "x", "parameters": {"i": "1:50"}, "inputFiles": ["f"]},
                ],
            }),
            "spec.jobs",
        ),
    ];
    for (document, expected) in table {
        assert_eq!(field(document.clone()), expected, "{document}");
    }
}

#[test]
fn identifiers_belong_to_files_that_are_only_read() {
    let document = |ro_crate: bool, identifier: &str, job: Value| {
        json!({
            "enableRoCrate": ro_crate,
            "files": [{"name": "f", "path": "f.csv", "identifier": identifier}, {"name": "g", "path": "g.csv"}],
            "jobs": [job],
        })
    };
    let reader = || json!({"name": "j", "command": "x", "inputFiles": ["f"]});
    assert_eq!(expanded(document(true, "doi:1", reader())).files[0].identifier.as_deref(), Some("doi:1"));
    let table = [
        (document(false, "doi:1", reader()), "needs `enableRoCrate"),
        (document(true, " ", reader()), "blank"),
        (document(true, "#torc-x", reader()), "is reserved by Torc"),
        (document(true, "g.csv", reader()), "the path of file `g`"),
        (document(true, "doi:1", json!({"name": "j", "command": "x"})), "no job reads"),
        (document(true, "doi:1", json!({"name": "j", "command": "x", "outputFiles": ["f"]})), "is the output of a job"),
    ];
    for (document, expected) in table {
        let found = problems(document.clone());
        assert!(found[0].0 == "spec.files[0].identifier" && found[0].1.contains(expected), "{document}: {found:?}");
    }
}

#[test]
fn actions_choose_jobs_by_name_and_expression() {
    let document = json!({
        "jobs": [{"name": "a_{i}", "command": "x", "parameters": {"i": "1:3"}}, {"name": "b", "command": "x"}],
        "actions": [{
            "triggerType": "on_jobs_complete", "actionType": "run_commands", "commands": ["x"],
            "jobs": ["b", "a_2"], "jobNameRegexes": ["^a_[12]$"],
        }],
    });
    let expanded = expanded(document.clone());
    let names: Vec<String> = expanded.jobs.iter().map(|job| job.name.clone()).collect();
    assert_eq!(jobs_of_actions(&spec(document).actions, &names)[0], [0, 1, 3]);
}

#[test]
fn unnamed_data_is_left_out() {
    let expanded = expanded(json!({
        "userData": [{"data": 1}, {"name": "d", "data": null}, {"name": "e", "data": 0, "isEphemeral": true}],
        "jobs": [{"name": "j", "command": "${user_data.input.d} ${user_data.input.e}"}],
    }));
    let names: Vec<_> = expanded.user_data.iter().map(|data| data.name.as_str()).collect();
    assert_eq!(names, ["d", "e"]);
    assert_eq!(expanded.filled_command(&expanded.jobs[0]), "${user_data.input.d} 0");
    assert_eq!(expanded.jobs[0].input_user_data, [0, 1], "a value may come later");
}
