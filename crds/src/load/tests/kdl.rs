use serde_json::json;

use super::*;

const EVERYTHING: &str = r##"
// A workflow with everything that a node may stand for.
name "kdl"
description "all of it"
compute_node_wait_for_new_jobs_seconds 30
use_pending_failed #true
parameters { lr "[0.001,0.01]"; n "1:3" }
variables { root "/data" }
slurm_defaults { account "proj"; mail-type "END"; requeue #true }
resource_monitor {
    sample_interval_seconds 2
    jobs { enabled #true; granularity "time_series" }
}
execution_config {
    mode "direct"
    stdio { mode "combined"; delete_on_success #true }
}
resource_requirements "small" { num_cpus 2; memory "4g"; runtime "PT5M" }
failure_handler "retry" {
    rule { exit_codes 10 11; max_retries 2 }
    rule { match_all_exit_codes #true }
}
slurm_scheduler "gpu" { account "proj"; nodes 2 }
file "in" path="{root}/in.csv" st_mtime=1640995200.0
file "out_{n}" { path "{root}/out_{n}"; use_parameters "n" }
user_data "config" { is_ephemeral #true; data "{\"a\": [1, 2]}" }
job "prepare" {
    command "prepare ${files.input.in}"
    invocation_script #"bash "x""#
    cancel_on_blocking_job_failure #false
    resource_requirements "small"
    scheduler "gpu"
    env { MODE "fast" }
}
job "train_{n}" {
    command "train {n}"
    depends_on "prepare"
    depends_on "other" "third"
    depends_on_regexes "^x"
    input_file "in"
    input_file "config_file"
    output_file "out_{n}"
    input_user_data "config"
    failure_handler "retry"
    parameters { n "1:3" }
    parameter_mode "zip"
}
action {
    trigger_type "on_jobs_ready"
    action_type "schedule_nodes"
    job "prepare"
    jobs "a" "b"
    job_name_regex "^train"
    scheduler "gpu"
    scheduler_type "slurm"
}
action {
    trigger_type "on_workflow_start"
    action_type "run_commands"
    command "mkdir out"
    command "date"
}
"##;

#[test]
fn every_kind_of_node() {
    let spec = spec(EVERYTHING, Format::Kdl);
    assert_eq!(spec.compute_node_wait_for_new_jobs_seconds, Some(30));
    assert_eq!(spec.parameters["lr"], "[0.001,0.01]");
    assert_eq!(json!(spec.slurm_defaults), json!({"account": "proj", "mail-type": "END", "requeue": true}));
    assert_eq!(
        json!(spec.resource_monitor),
        json!({"sampleIntervalSeconds": 2, "jobs": {"enabled": true, "granularity": "time_series"}})
    );
    assert_eq!(
        json!(spec.execution_config),
        json!({"mode": "direct", "stdio": {"mode": "combined", "deleteOnSuccess": true}})
    );
    assert_eq!(
        json!(spec.resource_requirements),
        json!([{"name": "small", "numCpus": 2, "memory": "4g", "runtime": "PT5M"}])
    );
    assert_eq!(spec.failure_handlers[0].rules[0].exit_codes, [10, 11]);
    assert_eq!(spec.failure_handlers[0].rules[1].match_all_exit_codes, Some(true));
    assert_eq!(spec.slurm_schedulers[0].nodes, Some(2));
    assert_eq!(spec.files[0].st_mtime, Some(1_640_995_200.0));
    assert_eq!(spec.files[1].path, "{root}/out_{n}");
    assert_eq!(spec.user_data[0].data, Some(json!({"a": [1, 2]})));
    assert_eq!(spec.jobs[0].invocation_script.as_deref(), Some("bash \"x\""));
    assert_eq!(spec.jobs[0].env["MODE"], "fast");
    assert_eq!(spec.jobs[1].depends_on, ["prepare", "other", "third"]);
    assert_eq!(spec.jobs[1].input_files.as_deref(), Some(&["in".to_owned(), "config_file".to_owned()][..]));
    assert_eq!(spec.actions[0].jobs.as_deref().unwrap(), ["prepare", "a", "b"]);
    assert_eq!(spec.actions[0].job_name_regexes.as_deref().unwrap(), ["^train"]);
    assert_eq!(spec.actions[1].commands.as_deref().unwrap(), ["mkdir out", "date"]);
}

#[test]
fn dependencies_that_torc_ignored_count_and_are_told() {
    let text = "name \"x\"\njob \"a\" { command \"b\"; }\njob \"c\" {\n  command \"d\"\n  depends_on_job \"a\"\n  blocked_by_job \"b\"\n}\n";
    assert_eq!(spec_despite_warnings(text, Format::Kdl).jobs[1].depends_on, ["a", "b"]);
    assert_eq!(
        all_problems(text, Format::Kdl),
        [
            "5:3 warning: `depends_on_job` is read as `depends_on`, while Torc 1.0 ignored it",
            "6:3 warning: `blocked_by_job` is read as `depends_on`, while Torc 1.0 ignored it",
        ]
    );
}

#[test]
fn the_first_version_of_kdl_is_read_too() {
    let text = "name \"old\"\njob \"a\" {\n  command r#\"echo \"hi\"\"#\n  cancel_on_blocking_job_failure false\n}\n";
    let spec = spec(text, Format::Kdl);
    assert_eq!(spec.jobs[0].command, "echo \"hi\"");
    assert_eq!(spec.jobs[0].cancel_on_blocking_job_failure, Some(false));
}

#[test]
fn problems_have_places() {
    let text = "name \"x\"\njob \"a\" {\n  comand \"b\"\n  priority \"high\"\n  env { A 1; }\n}\njob \"b\" { command \"c\"; command \"d\"; }\n";
    assert_eq!(
        all_problems(text, Format::Kdl),
        [
            "2:1 error jobs[0].command: missing required field `command`",
            "3:3 warning jobs[0].comand: unknown field `comand` is ignored (did you mean `command`?)",
            "4:12 error jobs[0].priority: expected an integer, found the text 'high'",
            "5:11 error jobs[0].env.A: expected a text, found the number 1 (put it in quotes: \"1\")",
            "7:24 warning: `command` is given twice; the last value is used",
        ]
    );
    let cases = [
        ("name \"x\"\njob \"a\" {\n", "2:9 error: the brace is never closed"),
        ("name \"x", "1:6 error: the text is never closed"),
        ("name \"\\q\"", "1:6 error: the text has an unknown escape sequence"),
        ("name 1x", "1:6 error: '1x' is not a number (put texts in quotes)"),
        ("name #nan", "1:6 error: '#nan' is not a finite number, #true, #false or #null"),
        ("name a]", "1:7 error: expected a value, found ']'"),
        ("name \\ x", "1:8 error: expected the end of the line, found 'x'"),
        ("(t name 1", "1:4 error: expected ')', found 'n'"),
        ("/* a /* b */", "1:1 error: the comment is never closed"),
        ("name \"\"\"a\"\"\"", "1:6 error: the quotes of a text of several lines must be on lines of their own"),
        ("}", "1:1 error: expected a node, found '}'"),
        ("user \"u\"", "1:1 error name: missing required field `name`"),
        ("name (\nt) 1", "1:7 error: expected a type, found '\n'"),
        ("name (t\n) 1", "1:8 error: expected ')', found '\n'"),
        ("name (t)\n1", "1:9 error: expected a value, found '\n'"),
    ];
    for (text, expected) in cases {
        assert_eq!(all_problems(text, Format::Kdl), [expected], "{text}");
    }
}

#[test]
fn values_of_both_versions() {
    let cases = [
        ("12", json!(12)),
        ("-1_000", json!(-1000)),
        ("0xff", json!(255)),
        ("-0b101", json!(-5)),
        ("0o17", json!(15)),
        ("1.5e3", json!(1500.0)),
        ("#true", json!(true)),
        ("false", json!(false)),
        ("#null", json!(null)),
        ("null", json!(null)),
        ("word", json!("word")),
        ("a-b.c", json!("a-b.c")),
        ("(u8)12", json!(12)),
        ("( u8 ) \"x\"", json!("x")),
        ("1 2", json!([1, 2])),
        ("1 /* two */ /-2 3", json!([1, 3])),
        ("1 \\ // more\n  2", json!([1, 2])),
        ("\"\"", json!("")),
        (r#""a\n\"b\"\u{e9}\\""#, json!("a\n\"b\"é\\")),
        ("\"a\\\n   b\"", json!("ab")),
        ("\"two\nlines\"", json!("two\nlines")),
        (r##"r"a\b""##, json!("a\\b")),
        (r###"r#"a"b"#"###, json!("a\"b")),
        (r###"#"a"b\"#"###, json!("a\"b\\")),
        ("\"\"\"\n    a\n      b\n\n    \"\"\"", json!("a\n  b\n")),
        ("#\"\"\"\n  \\n\n  \"\"\"#", json!("\\n")),
    ];
    for (text, expected) in cases {
        let document = format!("name \"demo\"\n/- skipped {{ a }}\nmetadata {{ v {text}\n }}");
        assert_eq!(json!(spec(&document, Format::Kdl).metadata), json!({ "v": expected }), "{text}");
    }
}
