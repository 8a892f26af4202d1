//! Every document of `tests/conformance` through `torc validate`. The labs send the same files to a real API server.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use torc_api::rules::{CLUSTER, MessageExpr, Rule, WORKFLOW};
use torc_tests::conformance::Case;
use torc_tests::env::{Outcome, TestEnv};

fn validate(case: &Case) -> Outcome {
    TestEnv::new().call("validate -f").arg(&case.path).run()
}

#[test]
fn accepted_documents_are_valid() {
    for case in Case::all("accepted") {
        validate(&case).exits(0).prints("is valid");
    }
}

#[test]
fn refused_documents_get_their_message_and_field() {
    for case in Case::all("refused").iter().chain(&Case::all("planned")) {
        validate(case).exits(4).prints(case.message("torc")).prints(case.field());
    }
}

#[test]
fn every_rule_has_an_accepted_and_a_refused_file() {
    let refused = Case::all("refused");
    let names = |cases: &[Case]| cases.iter().map(Case::name).collect::<BTreeSet<_>>();
    let pair = |name: &String| name.replace("-of-53", "-of-52");
    let wanted: BTreeSet<String> = names(&refused).iter().map(pair).collect();
    assert_eq!(names(&Case::all("accepted")), wanted);
    let field_of = |rule: &Rule| match (rule.path, rule.field) {
        ("", _) => "metadata.name".to_owned(),
        (path, Some(field)) => format!("{path}.{field}"),
        (path, None) => path.to_owned(),
    };
    let of_any_item = |field: &str| field.replace("[0]", "[]").replace("[1]", "[]");
    for rule in WORKFLOW.iter().chain(CLUSTER).filter(|rule| !rule.is_transition()) {
        let breaks = |case: &&Case| {
            of_any_item(case.field()) == field_of(rule)
                && match rule.message {
                    MessageExpr::Fixed(message) => case.message("torc") == message,
                    MessageExpr::Expression(_) => true,
                }
        };
        assert!(refused.iter().any(|case| breaks(&case)), "no file breaks `{}` at {}", rule.cel, rule.path);
    }
}

/// Without this check, etcd would refuse the object with a message that does not name the document.
#[test]
fn a_document_too_large_for_an_object_has_a_hint() {
    let env = TestEnv::new();
    let jobs: Vec<Value> =
        (0..20_000).map(|i| json!({"name": format!("job{i}"), "command": format!("echo {i:>20}")})).collect();
    let text = json!({"apiVersion": "torc.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "large"}, "spec": {"jobs": jobs}});
    env.write("w.json", text.to_string());
    env.torc("validate -f w.json").exits(0).prints("20000 jobs");
    let refused = env.torc("validate --kubernetes -f w.json").exits(4).prints("the limit is 900 KiB");
    refused.prints("`parameters`").prints("ConfigMaps");
}
