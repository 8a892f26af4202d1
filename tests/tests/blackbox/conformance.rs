//! Every document of `tests/conformance` through `torc validate`. The labs give the same files to a real API server.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use torc_api::rules::{CLUSTER, Rule, WORKFLOW, Words};
use torc_tests::conformance::Case;
use torc_tests::env::{Outcome, TestEnv};

fn validate(case: &Case) -> Outcome {
    TestEnv::new().call("validate -f").arg(&case.path).run()
}

#[test]
fn accepted_documents_are_valid() {
    for case in Case::all("accepted") {
        validate(&case).exits(0).says("is valid");
    }
}

#[test]
fn refused_documents_get_their_message_and_field() {
    for case in Case::all("refused").iter().chain(&Case::all("planned")) {
        validate(case).exits(4).says(case.message("torc")).says(case.field());
    }
}

/// A rule without its two files would be a rule that nobody has tried.
#[test]
fn every_rule_has_a_file_that_keeps_it_and_one_that_breaks_it() {
    let refused = Case::all("refused");
    let names = |cases: &[Case]| cases.iter().map(Case::name).collect::<BTreeSet<_>>();
    let pair = |name: &String| name.replace("-of-53", "-of-52");
    let wanted: BTreeSet<String> = names(&refused).iter().map(pair).collect();
    assert_eq!(names(&Case::all("accepted")), wanted);
    let place = |rule: &Rule| match (rule.place, rule.field) {
        ("", _) => "metadata.name".to_owned(),
        (place, Some(field)) => format!("{place}.{field}"),
        (place, None) => place.to_owned(),
    };
    let of_any_item = |field: &str| field.replace("[0]", "[]").replace("[1]", "[]");
    for rule in WORKFLOW.iter().chain(CLUSTER).filter(|rule| !rule.is_transition()) {
        let breaks = |case: &&Case| {
            of_any_item(case.field()) == place(rule)
                && match rule.words {
                    Words::Fixed(message) => case.message("torc") == message,
                    Words::Expression(_) => true,
                }
        };
        assert!(refused.iter().any(|case| breaks(&case)), "no file breaks `{}` at {}", rule.cel, rule.place);
    }
}

/// etcd would refuse it with words that help nobody.
#[test]
fn what_is_too_large_for_an_object_is_told_with_a_way_out() {
    let env = TestEnv::new();
    let jobs: Vec<Value> =
        (0..20_000).map(|i| json!({"name": format!("job{i}"), "command": format!("echo {i:>20}")})).collect();
    let text = json!({"apiVersion": "torc.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "large"}, "spec": {"jobs": jobs}});
    env.write("w.json", text.to_string());
    env.torc("validate -f w.json").exits(0).says("20000 jobs");
    let refused = env.torc("validate --kubernetes -f w.json").exits(4).says("and 900 are allowed");
    refused.says("`parameters`").says("ConfigMaps");
}
