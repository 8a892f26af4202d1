#![allow(clippy::unwrap_used)]

use super::*;
use crate::testing::{all_problems, envelope, read, shown};
use crate::workflow::WorkflowSpec;

mod bare;
mod documents;
mod formats;
mod kdl;
mod limits;
mod problems;
mod round_trip;
mod shapes;
mod tokens;

/// Returns the one workflow of a file without problems.
fn spec(text: &str, format: Format) -> WorkflowSpec {
    assert_eq!(all_problems(text, format), Vec::<String>::new(), "{text}");
    spec_despite_warnings(text, format)
}

/// Returns the one workflow of a file.
fn spec_despite_warnings(text: &str, format: Format) -> WorkflowSpec {
    let mut loaded = read(text, format);
    assert_eq!(loaded.documents.len(), 1, "{text}");
    match loaded.documents.remove(0).document {
        Document::Workflow(workflow) => workflow.spec,
        other => panic!("not a workflow: {other:?}"),
    }
}

#[test]
fn extensions_name_formats() {
    let cases = [
        ("a.yaml", Some(Format::Yaml)),
        ("dir.d/a.YML", Some(Format::Yaml)),
        ("a.json", Some(Format::Json)),
        ("a.b.json5", Some(Format::Json5)),
        ("a.kdl", Some(Format::Kdl)),
        ("a", None),
        ("dir.yaml/a", None),
        ("a.toml", None),
    ];
    for (path, format) in cases {
        assert_eq!(Format::from_path(path), format, "{path}");
    }
}

#[test]
fn fields_have_places() {
    let text = "name: demo\nvariables:\n  a_b: x\njobs:\n  - name: one\n    command: echo\n    depends_on: [two]\n  - {name: two, command: echo}\n";
    let loaded = read(text, Format::Yaml);
    let positions = &loaded.documents[0].positions;
    let cases = [
        ("spec.jobs", (4, 1)),
        ("spec.jobs[0]", (5, 5)),
        ("spec.jobs[0].command", (6, 14)),
        ("spec.jobs[0].dependsOn", (7, 5)),
        ("spec.jobs[0].dependsOn[0]", (7, 18)),
        ("spec.jobs[1].command", (8, 26)),
        ("spec.jobs[1].priority", (8, 5)),
        ("spec.jobs[9].command", (4, 1)),
        ("metadata.name", (1, 7)),
        ("spec.variables.a_b", (3, 8)),
        ("spec.nothing.at.all", (1, 1)),
        ("", (1, 1)),
    ];
    for (field, (line, column)) in cases {
        assert_eq!(positions.of(field), Some(Position { line, column }), "{field}");
    }
    let written = [
        ("spec.jobs[0].dependsOn[0]", "jobs[0].depends_on[0]"),
        ("spec.jobs[1].tasksPerNode", "jobs[1].tasks_per_node"),
        ("metadata.name", "name"),
        ("spec.variables.a_b", "variables.a_b"),
    ];
    for (field, expected) in written {
        assert_eq!(positions.as_written(field), expected);
    }
    let located = loaded.documents[0].locate(Problem::error("spec.jobs[1].dependsOn", "cycle"));
    assert_eq!(shown(&located), "8:5 error jobs[1].depends_on: cycle");
}
