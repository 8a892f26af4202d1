use super::*;

fn check(spec: &str, expected: &[&str]) {
    assert_eq!(all_problems(&envelope(spec), Format::Yaml), expected, "{spec}");
}

#[test]
fn unknown_keys_offer_the_nearest() {
    check(
        "jobs:\n- name: a\n  comand: b\n  depends_on: [c]\n  colour: red\n",
        &[
            "7:5 error spec.jobs[0].command: missing required field `command`",
            "8:5 error spec.jobs[0].comand: unknown field `comand` (did you mean `command`?)",
            "9:5 error spec.jobs[0].depends_on: unknown field `depends_on` (did you mean `dependsOn`?)",
            "10:5 error spec.jobs[0].colour: unknown field `colour`",
        ],
    );
}

#[test]
fn wrong_types_say_what_to_write() {
    let cases = [
        ("suspend: yes", "error spec.suspend: expected true or false, found the text 'yes' (write true)"),
        ("suspend: 1", "error spec.suspend: expected true or false, found the number 1"),
        ("runId: '2'", "error spec.runId: expected an integer, found the text '2' (remove the quotes)"),
        ("runId: 1.5", "error spec.runId: expected an integer, found the number 1.5"),
        ("runId: 0", "error spec.runId: must be at least 1, not 0"),
        ("runId: 3000000000", "error spec.runId: must be at most 2147483647, not 3000000000"),
        ("user: 12", "error spec.user: expected a text, found the number 12 (put it in quotes: \"12\")"),
        ("user: true", "error spec.user: expected a text, found the boolean true (put it in quotes: \"true\")"),
        ("orphanAfter: 30", "error spec.orphanAfter: expected a text, found the number 30 (write 30s, 30m or 30h)"),
        (
            "resourceRequirements: [{name: r, numCpus: 1, memory: 1g, runtime: 30}]",
            "error spec.resourceRequirements[0].runtime: expected a text, found the number 30 (write 30s, 30m or 30h)",
        ),
        ("env: {A: 1}", "error spec.env.A: expected a text, found the number 1 (put it in quotes: \"1\")"),
        ("env: [a]", "error spec.env: expected a mapping, found a list"),
        (
            "jobs: [{name: a, command: b, labels: team}]",
            "error spec.jobs[0].labels: expected a list, found the text 'team' (write [team])",
        ),
        ("jobs: {a: b}", "error spec.jobs: expected a list, found a mapping"),
        ("jobs: [null]", "error spec.jobs[0]: expected a mapping, found nothing"),
        ("jobs: [{name: '', command: b}]", "error spec.jobs[0].name: must not be empty"),
        (
            "stopPolicy: cancel",
            "error spec.stopPolicy: 'cancel' is not one of None, Cancel, Drain (did you mean `Cancel`?)",
        ),
        (
            "files: [{name: a, path: b, stMtime: x}]",
            "error spec.files[0].stMtime: expected a number, found the text 'x'",
        ),
    ];
    for (line, expected) in cases {
        let problems = all_problems(&envelope(line), Format::Yaml);
        assert_eq!(problems.len(), 1, "{line}: {problems:?}");
        assert!(problems[0].ends_with(expected), "{line}: {problems:?}");
    }
}

#[test]
fn values_of_the_author_are_left_alone() {
    let text = envelope(
        "metadata: {some_key: [1, null], Other: {deep_key: yes}}\nparameters: {some_key: 1, list: [a, 1]}\nvariables: {some_var: 5}\nenv: {some_var: x}\nslurmDefaults: {mail-type: END}\nuserData: [{name: d, data: {snake_key: null}}]\n",
    );
    let spec = spec(&text, Format::Yaml);
    assert_eq!(spec.metadata.unwrap()["Other"], serde_json::json!({"deep_key": "yes"}));
    assert_eq!(spec.user_data[0].data, Some(serde_json::json!({"snake_key": null})));
    assert_eq!(spec.slurm_defaults["mail-type"], "END");
}

#[test]
fn null_is_absent() {
    let text =
        envelope("user: null\njobs:\n- {name: a, command: b, dependsOn: null, env: ~, priority: null}\nfiles: null\n");
    let spec = spec(&text, Format::Yaml);
    assert_eq!((spec.user, spec.files.len(), spec.jobs[0].priority), (None, 0, None));
    check("jobs:\n- {name: a, command: null}\n", &["7:5 error spec.jobs[0].command: missing required field `command`"]);
}

#[test]
fn words_that_kubectl_reads_otherwise_are_pointed_out() {
    check(
        "user: on\nenv: {A: no, B: 'no'}\n",
        &[
            "6:9 warning spec.user: kubectl reads the unquoted word on as a boolean (put it in quotes: \"on\")",
            "7:12 warning spec.env.A: kubectl reads the unquoted word no as a boolean (put it in quotes: \"no\")",
        ],
    );
    spec("name: demo\nuser: on\n", Format::Yaml);
}

#[test]
fn envelopes_that_are_wrong() {
    let cases = [
        (
            "kind: Workflow\nspec: {}\n",
            vec![
                "1:1 error apiVersion: missing required field `apiVersion`",
                "1:1 error metadata: missing required field `metadata`",
            ],
        ),
        (
            "apiVersion: torc.dev/v1alpha1\nmetadata: {name: a}\nspec: {}\n",
            vec!["1:1 error kind: missing required field `kind`"],
        ),
        (
            "apiVersion: torc.dev/v1alpha1\nkind: Workflow\nmetadata: {}\nspec: {}\n",
            vec!["3:11 error metadata.name: missing required field `name`"],
        ),
        (
            "apiVersion: torc.dev/v1\nkind: Workflow\n",
            vec!["1:13 error apiVersion: unknown API version 'torc.dev/v1' (write torc.dev/v1alpha1)"],
        ),
        (
            "apiVersion: torc.dev/v1alpha1\nkind: Workflw\n",
            vec!["2:7 error kind: 'Workflw' is not one of Workflow, SlurmCluster (did you mean `Workflow`?)"],
        ),
        (
            "apiVersion: torc.dev/v1alpha1\nkind: Workflow\nmetadata: {name: My_Flow}\nspec: {}\nextra: 1\n",
            vec![
                "3:18 error metadata.name: 'My_Flow' is not a valid name (use lower-case letters, digits, '-' and '.', and begin and end with a letter or digit)",
                "5:1 error extra: unknown field `extra`",
            ],
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(all_problems(text, Format::Yaml), expected, "{text}");
    }
}

#[test]
fn rules_are_looked_at_even_where_the_schema_is_violated() {
    check(
        "jobs:\n- {name: a, command: b, priority: x, resourceRequirements: smal}\n- {name: a, command: [c]}\nresourceRequirements:\n- {name: small, numCpus: 1, memory: lots}\n",
        &[
            "7:37 error spec.jobs[0].priority: expected an integer, found the text 'x'",
            "7:62 error spec.jobs[0].resourceRequirements: there is no set of resource requirements named 'smal' (did you mean 'small'?)",
            "8:12 error spec.jobs[1].name: the name 'a' is used twice (entry 0 of the list has it too)",
            "8:24 error spec.jobs[1].command: expected a text, found a list",
            "10:39 error spec.resourceRequirements[0].memory: 'lots' is not a memory size (write a number and a unit: 512m, 200g, 1.5t)",
        ],
    );
}

#[test]
fn an_unnamed_entry_hides_unknown_references() {
    check(
        "jobs:\n- {name: a, command: b, resourceRequirements: small}\nresourceRequirements:\n- {nmae: small, numCpus: 1, memory: 1g}\n",
        &[
            "9:5 error spec.resourceRequirements[0].name: missing required field `name`",
            "9:6 error spec.resourceRequirements[0].nmae: unknown field `nmae` (did you mean `name`?)",
        ],
    );
}

#[test]
fn only_so_many_problems_are_listed_and_errors_come_first() {
    let jobs: String = (0..50).map(|i| format!("- {{name: j{i}, command: 1}}\n")).collect();
    let options = LoadOptions { max_problems: 10, ..LoadOptions::default() };
    let text = envelope(&format!("user: on\njobs:\n{jobs}"));
    let loaded = load(text.as_bytes(), Some(Format::Yaml), &options);
    assert_eq!(loaded.problems.len(), 11);
    assert!(loaded.problems.iter().all(Problem::is_error));
    assert_eq!(shown(&loaded.problems[10]), "error: 41 more problems are not listed");
}
