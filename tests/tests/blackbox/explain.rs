//! `torc explain`: why a job is not running, why it ran again, why it failed.

use serde_json::Value;
use torc_tests::env::{TestEnv, text, until};

fn explain(env: &TestEnv, job: &str) -> Value {
    env.json(&format!("explain job/{job} -w w"))
}

fn reason(explanation: &Value) -> String {
    text(&explanation["reasons"][0], "reason")
}

#[test]
fn explain_names_the_reasons_why_jobs_wait() {
    let env = TestEnv::new();
    env.write(
        "w.yaml",
        "
name: w
resource_requirements:
- {name: huge, num_cpus: 999, memory: 1g}
jobs:
- {name: bad, command: 'echo it broke >&2; exit 3'}
- {name: after_bad, command: 'true', depends_on: [bad]}
- {name: big, command: 'true', resource_requirements: huge}
- {name: after_big, command: 'true', depends_on: [big]}
- {name: labelled, command: 'true', labels: [special]}
",
    );
    env.torc("apply -f w.yaml --detach").exits(0);
    until(|| env.states("w")["after_bad"] == "canceled", || format!("{:?}", env.states("w")));
    let big = explain(&env, "big");
    assert_eq!(reason(&big), "Capacity");
    assert!(text(&big["reasons"][0], "message").contains("the largest"), "{big:#}");
    assert_eq!(reason(&explain(&env, "labelled")), "Label");
    let waiting = explain(&env, "after_big");
    assert_eq!((reason(&waiting), text(&waiting["reasons"][0]["jobs"][0], "job")), ("Dependency".into(), "big".into()));
    assert_eq!(reason(&explain(&env, "after_bad")), "DependencyFailed");
    let bad = explain(&env, "bad");
    assert_eq!((reason(&bad), bad["attempts"][0]["returnCode"].as_i64()), ("Failed".into(), Some(3)));
    assert_eq!(bad["attempts"][0]["stderrTail"][0], "it broke");
    env.torc("explain job/bad").exits(0).prints("| it broke").prints("torc retry w --job bad");
    env.torc("explain workflow/w").exits(0).prints("1 job: failed (bad)");
    env.torc("explain job/missing").exits(5);
    env.torc("suspend w").exits(0);
    assert_eq!(reason(&explain(&env, "big")), "Suspended");
}

#[test]
fn explain_names_the_reason_for_another_attempt() {
    let env = TestEnv::new();
    env.write(
        "w.yaml",
        "
name: w
failure_handlers:
- {name: h, rules: [{exit_codes: [7], max_retries: 2}]}
jobs:
- {name: a, command: 'echo x >> tries; [ $(wc -l < tries) -ge 2 ] || exit 7', failure_handler: h}
",
    );
    env.torc("apply -f w.yaml").exits(0);
    let explanation = explain(&env, "a");
    assert_eq!((reason(&explanation), explanation["attempts"].as_array().unwrap().len()), ("Completed".into(), 2));
    assert!(text(&explanation["attempts"][0], "then").contains("a failure handler"), "{explanation:#}");
    assert_eq!(explanation["attempts"][1]["then"], Value::Null);
    assert_eq!(env.torc("explain job/a").exits(0).stdout.matches("→").count(), 1);
}

#[test]
fn explain_names_a_missing_runner() {
    let env = TestEnv::new();
    env.write("w.yaml", "name: w\njobs:\n- {name: a, command: 'true'}\n");
    env.torc("apply -f w.yaml --no-run").exits(0);
    assert_eq!(reason(&explain(&env, "a")), "NoRunner");
    env.torc("explain a").exits(0).prints("torc run w");
}
