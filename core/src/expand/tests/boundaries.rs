//! Tests of limits, identifiers, warnings and references at their boundaries.

use super::*;
use crate::expanded::Requirements;

/// Returns the fields of all problems within these limits; none if there are none.
fn wrong_fields(document: Value, limits: &ExpansionLimits) -> Vec<String> {
    let problems = expand(&spec(document), limits).err().unwrap_or_default();
    problems.into_iter().map(|problem| problem.field).collect()
}

#[test]
fn as_many_entries_as_the_limit_are_fine() {
    let limits = ExpansionLimits { max_jobs: 4, max_files: 3, max_dependencies: 100 };
    let two = |list: &str, first: i64, second: i64| {
        let entry = |name: &str, rows: i64| {
            let mut entry = json!({"name": format!("{name}_{{i}}"), "parameters": {"i": format!("1:{rows}")}});
            let field = if list == "jobs" { "command" } else { "path" };
            if list != "userData" {
                entry[field] = json!("x");
            }
            entry
        };
        json!({list: [entry("a", first), entry("b", second)]})
    };
    for (list, most) in [("jobs", 4), ("files", 3), ("userData", 3)] {
        for (rows, expected) in [(most - 1, vec![]), (most, vec![]), (most + 1, vec![format!("spec.{list}")])] {
            assert_eq!(wrong_fields(two(list, 1, rows - 1), &limits), expected, "{rows} {list}");
        }
    }
}

#[test]
fn as_many_dependencies_as_the_limit_are_fine() {
    let named = |parents: i64| {
        json!({"jobs": [
            {"name": "a_{i}", "command": "x", "parameters": {"i": format!("1:{parents}")}},
            {"name": "b_{i}", "command": "x", "parameters": {"i": "1:2"}, "dependsOnRegexes": ["^a_"]},
        ]})
    };
    let implied = |parents: i64| {
        json!({
            "files": [{"name": "f", "path": "f"}],
            "jobs": [
                {"name": "a_{i}", "command": "x", "parameters": {"i": format!("1:{parents}")}, "outputFiles": ["f"]},
                {"name": "b_{i}", "command": "x", "parameters": {"i": "1:2"}, "inputFiles": ["f"]},
            ],
        })
    };
    let limits = ExpansionLimits { max_dependencies: 6, ..ExpansionLimits::default() };
    for (parents, expected) in [(2, vec![]), (3, vec![]), (4, vec!["spec.jobs".to_owned()])] {
        assert_eq!(wrong_fields(named(parents), &limits), expected, "2 x {parents} named");
        assert_eq!(wrong_fields(implied(parents), &limits), expected, "2 x {parents} implied");
    }
}

#[test]
fn identifiers_are_unique_and_not_those_of_torc() {
    let document = |files: Value| {
        json!({
            "enableRoCrate": true,
            "files": files,
            "jobs": [{"name": "j", "command": "x", "inputFileRegexes": ["."]}],
        })
    };
    let one = |identifier: &str| document(json!([{"name": "f", "path": "f.csv", "identifier": identifier}]));
    for reserved in ["#torc-x", "#software-x", "#job-1", "ro-crate-metadata.json", "./"] {
        let found = problems(one(reserved));
        assert_eq!(found, [("spec.files[0].identifier".to_owned(), format!("`{reserved}` is reserved by Torc"))]);
    }
    for allowed in ["f.csv", "doi:1", "torc-x", "./x"] {
        assert_eq!(expanded(one(allowed)).files[0].identifier.as_deref(), Some(allowed));
    }
    let same = document(json!([
        {"name": "f_{i}", "path": "{i}.csv", "parameters": {"i": "1:2"}},
        {"name": "g", "path": "g.csv", "identifier": "doi:1"},
        {"name": "h", "path": "h.csv", "identifier": "doi:1"},
    ]));
    let message = "files `g` and `h` have the same identifier `doi:1`".to_owned();
    assert_eq!(problems(same), [("spec.files[2].identifier".to_owned(), message)]);
}

#[test]
fn a_recorded_file_needs_no_reader() {
    let document = |mtime: Value| {
        json!({
            "enableRoCrate": true,
            "files": [{"name": "f", "path": "f", "identifier": "doi:1", "stMtime": mtime}],
            "jobs": [{"name": "j", "command": "x"}],
        })
    };
    assert_eq!(expanded(document(json!(1.5))).files.len(), 1);
    assert!(problems(document(json!(null)))[0].1.contains("no job reads"));
}

#[test]
fn actions_may_name_schedulers_that_exist() {
    let action = |kind: &str, of: &str, name: &str| json!({"triggerType": "on_workflow_start", "actionType": kind, "schedulerType": of, "scheduler": name});
    let fields = |action: Value| {
        let schedulers = json!([{"name": "fast", "account": "a"}, {"name": "slow", "account": "a"}]);
        let document =
            json!({"slurmSchedulers": schedulers, "jobs": [{"name": "j", "command": "x"}], "actions": [action]});
        wrong_fields(document, &ExpansionLimits::default())
    };
    for name in ["fast", "slow"] {
        assert_eq!(fields(action("schedule_nodes", "slurm", name)), Vec::<String>::new(), "{name}");
    }
    assert_eq!(fields(action("schedule_nodes", "slurm", "other")), ["spec.actions[0].scheduler"]);
    assert_eq!(fields(action("schedule_nodes", "local", "other")), Vec::<String>::new(), "only Slurm has schedulers");
    assert_eq!(fields(action("run_commands", "slurm", "other")), Vec::<String>::new(), "it asks for no nodes");
    let mut expression = action("run_commands", "slurm", "fast");
    expression["jobNameRegexes"] = json!(["(", "j"]);
    assert_eq!(fields(expression.clone()), ["spec.actions[0].jobNameRegexes[0]"]);
    expression["jobNameRegexes"] = json!(["nothing"]);
    assert_eq!(fields(expression), ["spec.actions[0]"]);
}

#[test]
fn labels_and_schedulers_exclude_each_other() {
    let fields = |extra: Value| {
        let mut job = json!({"name": "j", "command": "x"});
        job.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let document = json!({"slurmSchedulers": [{"name": "s", "account": "a"}], "jobs": [job]});
        wrong_fields(document, &ExpansionLimits::default())
    };
    assert_eq!(fields(json!({"scheduler": "s"})), Vec::<String>::new());
    assert_eq!(fields(json!({"labels": ["a b"]})), Vec::<String>::new());
    assert_eq!(fields(json!({"scheduler": "s", "labels": ["a"]})), ["spec.jobs[0].labels"]);
    assert_eq!(fields(json!({"scheduler": "t", "labels": ["a"]})), ["spec.jobs[0].scheduler"]);
    assert_eq!(fields(json!({"labels": [" a", "a ", "b"]})), ["spec.jobs[0].labels[0]", "spec.jobs[0].labels[1]"]);
}

#[test]
fn an_expression_for_files_is_not_about_the_jobs_own_number() {
    let expanded = expanded(json!({
        "files": [{"name": "a", "path": "a"}, {"name": "b", "path": "b"}],
        "userData": [{"name": "a"}, {"name": "b"}],
        "jobs": [{
            "name": "j", "command": "x", "inputFileRegexes": ["^a$"], "outputFileRegexes": ["b"],
            "inputUserDataRegexes": ["b"], "outputUserDataRegexes": ["a"],
        }],
    }));
    let job = &expanded.jobs[0];
    assert_eq!((&job.input_files[..], &job.output_files[..]), (&[0][..], &[1][..]));
    assert_eq!((&job.input_user_data[..], &job.output_user_data[..]), (&[1][..], &[0][..]));
}

#[test]
fn the_first_requirements_of_a_name_count() {
    let named = |name: &str| Requirements { name: name.to_owned(), ..Requirements::default() };
    let all = [named("a"), named("b"), named("a")];
    let found = Symbols::by_name(&all);
    assert_eq!((found.get("a"), found.get("b"), found.get("c")), (Some(&0), Some(&1), None));
}

#[test]
fn warnings_name_the_entry_and_the_list() {
    let both = json!({"parameters": {"x": 1}, "useParameters": ["p"]});
    let with = |base: Value| {
        let mut entry = base;
        entry.as_object_mut().unwrap().extend(both.as_object().unwrap().clone());
        entry
    };
    let document = json!({
        "parameters": {"p": 1},
        "files": [{"name": "f", "path": "f"}, with(json!({"name": "g", "path": "g"})), {"name": "h", "path": "h"}],
        "userData": [with(json!({"name": "d"})), {"name": "e"}],
        "jobs": [
            {"name": "a", "command": "${files.output.g}", "outputFiles": ["g", "h"]},
            {"name": "b", "command": "${user_data.input.d}", "inputUserData": ["e"], "outputFiles": ["g", "f"]},
            {"name": "c", "command": "${user_data.output.e} ${files.input.f}", "outputUserData": ["d"], "inputFiles": ["f"]},
            {"name": "k", "command": "${files.input.h}", "inputFiles": ["{f}"]},
        ],
    });
    let expanded = expanded(document.clone());
    let told: Vec<(String, String)> =
        warnings(&spec(document), &expanded).into_iter().map(|one| (one.field, one.message)).collect();
    let lost = |token: &str, name: &str| {
        format!("the command names `${{{token}…}}`, which replaces this list; `{name}` is ignored")
    };
    let own = "the entry has its own `parameters`, so `useParameters` has no effect".to_owned();
    let expected = [
        ("spec.files[1].useParameters".to_owned(), own.clone()),
        ("spec.userData[0].useParameters".to_owned(), own),
        ("spec.jobs[0].outputFiles".to_owned(), lost("files.output.", "h")),
        ("spec.jobs[1].inputUserData".to_owned(), lost("user_data.input.", "e")),
        ("spec.jobs[2].outputUserData".to_owned(), lost("user_data.output.", "d")),
        ("spec.files".to_owned(), "file `g` is written by `a` and by `b`".to_owned()),
    ];
    assert_eq!(told, expected);
}

#[test]
fn parts_of_a_document_can_be_expanded_alone() {
    let document = |range: &str| {
        spec(json!({
            "variables": {"dir": "/d"},
            "files": [{"name": "f_{i}", "path": "{dir}/{i}", "parameters": {"i": range}}, {"name": "g", "path": "g"}],
            "jobs": [
                {"name": "a", "command": "x"},
                {"name": "b_{i}", "command": "x", "parameters": {"i": range}},
                {"name": "c", "command": "x"},
            ],
        }))
    };
    let limits = ExpansionLimits::default();
    let paths: Vec<String> =
        expand_files(&document("1:2"), &limits).unwrap().into_iter().map(|file| file.path).collect();
    assert_eq!(paths, ["/d/1", "/d/2", "g"]);
    assert_eq!(entries_of_jobs(&document("1:2"), &limits).unwrap(), [0, 1, 1, 2]);
    assert_eq!(expand_files(&document("1:x"), &limits).unwrap_err().len(), 2);
    assert_eq!(entries_of_jobs(&document("1:x"), &limits).unwrap_err().len(), 2);
}

#[test]
fn names_that_occur_twice_say_where() {
    let found = problems(json!({"jobs": [
        {"name": "a", "command": "x"},
        {"name": "b", "command": "x", "parameters": {"i": "1:2"}},
        {"name": "a", "command": "x"},
    ]}));
    let expected = [
        ("spec.jobs[1].name", "several rows of this entry have the name `b`"),
        ("spec.jobs[2].name", "the name `a` is already used by spec.jobs[0]"),
    ];
    let expected: Vec<_> = expected.iter().map(|(field, text)| ((*field).to_owned(), (*text).to_owned())).collect();
    assert_eq!(found, expected);
}
