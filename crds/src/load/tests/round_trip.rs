//! A document that is written as JSON, in either form, is read back as the same document.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::document::{Metadata, WorkflowDocument};
use crate::job::{FileSpec, JobSpec, UserDataSpec};
use crate::parameters::{ParameterMode, Parameterization};
use crate::resources::ResourceRequirements;
use crate::testing::bare;

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z][a-z0-9_]{0,8}",
        "\\PC{1,12}",
        Just("yes".to_owned()),
        Just("12".to_owned()),
        Just("\n\t\"\\'#: ".to_owned())
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e9..1e9_f64).prop_map(Value::from),
        text().prop_map(Value::from),
        Just(Value::Null),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(text(), inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

fn parameterization() -> impl Strategy<Value = Parameterization> {
    (proptest::collection::btree_map("[a-z]{1,5}", value(), 0..3), proptest::option::of(any::<bool>())).prop_map(
        |(parameters, zip)| Parameterization {
            parameters,
            parameter_mode: zip.map(|zip| if zip { ParameterMode::Zip } else { ParameterMode::Product }),
            ..Parameterization::default()
        },
    )
}

fn job() -> impl Strategy<Value = JobSpec> {
    (
        text(),
        proptest::collection::btree_map("[A-Z_][A-Za-z0-9_]{0,5}", text(), 0..3),
        proptest::collection::vec(text(), 0..3),
        proptest::option::of(0..1_000_000_i64),
        proptest::option::of(any::<bool>()),
        parameterization(),
    )
        .prop_map(|(command, env, depends_on, priority, cancel_on_blocking_job_failure, parameterization)| {
            JobSpec {
                command,
                env,
                depends_on,
                priority,
                cancel_on_blocking_job_failure,
                parameterization,
                ..JobSpec::default()
            }
        })
}

fn workflow() -> impl Strategy<Value = WorkflowSpec> {
    (
        proptest::collection::vec(job(), 0..4),
        proptest::collection::vec((text(), proptest::option::of(0.0..2e9_f64)), 0..3),
        proptest::collection::vec(value(), 0..3),
        proptest::option::of(proptest::collection::btree_map(text(), value(), 0..3)),
        proptest::option::of(1..100_i32),
        proptest::collection::vec(1..64_i64, 0..3),
    )
        .prop_map(|(jobs, files, data, metadata, run_id, cpus)| {
            // Names must be unique, and a list position is.
            let named = |index: usize, job: JobSpec| JobSpec { name: format!("j{index}"), ..job };
            let file = |(index, (path, st_mtime))| FileSpec {
                name: format!("f{index}"),
                path,
                st_mtime,
                ..FileSpec::default()
            };
            let user_data = |(index, data): (usize, Value)| UserDataSpec {
                name: Some(format!("d{index}")),
                data: Some(data).filter(|data| !data.is_null()),
                ..UserDataSpec::default()
            };
            let requirements = |(index, num_cpus)| ResourceRequirements {
                name: format!("r{index}"),
                num_cpus,
                memory: "4g".to_owned(),
                ..ResourceRequirements::default()
            };
            WorkflowSpec {
                jobs: jobs.into_iter().enumerate().map(|(index, job)| named(index, job)).collect(),
                files: files.into_iter().enumerate().map(file).collect(),
                user_data: data.into_iter().enumerate().map(user_data).collect(),
                resource_requirements: cpus.into_iter().enumerate().map(requirements).collect(),
                metadata,
                run_id,
                ..WorkflowSpec::default()
            }
        })
}

/// Returns a mapping in YAML's block style, one key a line, values in JSON, which YAML contains.
fn block_yaml(value: &Value) -> String {
    let lines = value.as_object().unwrap().iter().map(|(key, value)| format!("{}: {value}\n", json!(key)));
    lines.collect()
}

fn read_back(text: &str, format: Format) -> WorkflowSpec {
    let mut loaded = read(text, format);
    assert!(!loaded.has_errors(), "{text}: {:?}", loaded.problems);
    match loaded.documents.remove(0).document {
        Document::Workflow(workflow) => workflow.spec,
        other => panic!("not a workflow: {other:?}"),
    }
}

proptest! {
    #[test]
    fn documents_read_back(spec in workflow()) {
        let metadata = Metadata { name: "test".to_owned(), labels: BTreeMap::new(), ..Metadata::default() };
        let workflow = WorkflowDocument { api_version: crate::API_VERSION.to_owned(), metadata, spec: spec.clone() };
        let full = json!(Document::Workflow(workflow));
        let mut plain = bare(&json!(spec), false);
        plain["name"] = json!("test");
        for (value, format) in [(&full, Format::Json), (&plain, Format::Json5)] {
            prop_assert_eq!(&read_back(&value.to_string(), format), &spec);
            prop_assert_eq!(&read_back(&serde_json::to_string_pretty(value).unwrap(), format), &spec);
            prop_assert_eq!(&read_back(&block_yaml(value), Format::Yaml), &spec);
        }
    }
}
