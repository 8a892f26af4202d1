use serde_json::json;

use super::*;

#[test]
fn every_format_gives_the_same_document() {
    let yaml = "name: demo\nenv: {A: x}\njobs:\n- name: a\n  command: echo a\n  priority: 3\n- name: b\n  command: 'echo b'\n  depends_on:\n  - a\n";
    let json = r#"{"name": "demo", "env": {"A": "x"}, "jobs": [
        {"name": "a", "command": "echo a", "priority": 3}, {"name": "b", "command": "echo b", "depends_on": ["a"]}]}"#;
    let json5 = "// a comment\n{name: 'demo', env: {A: 'x'}, /* more */ jobs: [\n{name: 'a', command: 'echo \\\na', priority: +3,}, {name: \"b\", command: \"echo b\", depends_on: ['a'],},],}";
    let kdl = "name \"demo\"\nenv { A \"x\"; }\njob \"a\" priority=3 {\n  command \"echo a\"\n}\njob \"b\" {\n  command \"echo b\"\n  depends_on \"a\"\n}\n";
    let expected = spec(yaml, Format::Yaml);
    assert_eq!(expected.jobs.len(), 2);
    for (text, format) in [(json, Format::Json), (json, Format::Yaml), (json5, Format::Json5), (kdl, Format::Kdl)] {
        assert_eq!(spec(text, format), expected, "{format:?}");
    }
    for text in [yaml, json, json5, kdl] {
        let guessed = load(text.as_bytes(), None, &LoadOptions::default());
        assert!(guessed.problems.is_empty(), "{text}: {:?}", guessed.problems);
    }
}

#[test]
fn a_file_with_warnings_is_guessed_by_its_format_too() {
    let guessed = |text: &str| {
        let loaded = load(text.as_bytes(), None, &LoadOptions::default());
        (loaded.documents.len(), loaded.problems.iter().map(shown).collect::<Vec<_>>())
    };
    let twice = "name \"x\"\njob \"b\" { command \"c\"; command \"d\"; }\n";
    assert_eq!(guessed(twice), (1, vec!["2:24 warning: `command` is given twice; the last value is used".to_owned()]));
    // Neither YAML nor KDL: the problem is reported as one of YAML, which most files are.
    let (documents, problems) = guessed("name: [a\n");
    assert_eq!(documents, 0);
    assert!(problems[0].contains(" error"), "{problems:?}");
    let unnamed = guessed("job \"b\" { command \"c\"; }\n");
    assert_eq!(unnamed.0, 0, "a KDL file has a name: {unnamed:?}");
}

#[test]
fn both_forms_give_the_same_specification() {
    let bare = "name: test\njobs:\n- {name: a, command: x, use_parameters: [p], resource_requirements: small}\nparameters: {p: '1:3'}\nresource_requirements: [{name: small, num_cpus: 2, memory: 4g}]\n";
    let full = envelope(
        "jobs:\n- {name: a, command: x, useParameters: [p], resourceRequirements: small}\nparameters: {p: '1:3'}\nresourceRequirements: [{name: small, numCpus: 2, memory: 4g}]\n",
    );
    assert_eq!(spec(bare, Format::Yaml), spec(&full, Format::Yaml));
    assert!(read(bare, Format::Yaml).documents[0].bare);
    assert!(!read(&full, Format::Yaml).documents[0].bare);
}

#[test]
fn several_documents_in_one_file() {
    let text = format!(
        "# nothing\n---\n---\n{}---\nname: second\njobs: []\n---\napiVersion: v1\nkind: ConfigMap\n---\napiVersion: torc.dev/v1alpha1\nkind: SlurmCluster\nmetadata: {{name: kestrel}}\nspec: {{commandPrefix: [ssh, login]}}\n",
        envelope("jobs: []")
    );
    let loaded = read(&text, Format::Yaml);
    assert_eq!(
        loaded.problems.iter().map(shown).collect::<Vec<_>>(),
        ["14:13 warning apiVersion: the API version 'v1' is not Torc's, so the document is ignored"]
    );
    assert_eq!(loaded.documents.len(), 3);
    assert!(matches!(loaded.documents[2].document, Document::SlurmCluster(_)));
    assert!(!loaded.has_errors());
}

#[test]
fn what_a_server_adds_is_read_back() {
    let text = "apiVersion: torc.dev/v1alpha1\nkind: Workflow\nmetadata: {name: a, namespace: lab, uid: u, generation: 3, creationTimestamp: '2026-01-01T00:00:00Z', managedFields: [{x: 1}]}\nspec: {jobs: []}\nstatus: {runId: 1, anything: [1]}\n";
    spec(text, Format::Yaml);
    let added = "creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers generateName generation managedFields \
                 ownerReferences resourceVersion uid";
    for name in added.split_whitespace() {
        let text =
            format!("apiVersion: torc.dev/v1alpha1\nkind: Workflow\nmetadata: {{name: a, {name}: x}}\nspec: {{}}\n");
        spec(&text, Format::Yaml);
    }
    let other = "apiVersion: torc.dev/v1alpha1\nkind: Workflow\nmetadata: {name: a, selfLink: x}\nspec: {}\n";
    assert_eq!(all_problems(other, Format::Yaml), ["3:21 error metadata.selfLink: unknown field `selfLink`"]);
}

#[test]
fn yaml_anchors_merges_and_tags() {
    let text = "name: demo\nmetadata:\n  base: &base {command: run, priority: 1, env: {A: a}}\n  other: &other {priority: 2, labels: [x]}\njobs:\n- name: &n a\n  <<: *base\n- name: b\n  <<: [*base, *other]\n  priority: 9\n- name: !!str 12\n  command: *n\n";
    let spec = spec(text, Format::Yaml);
    assert_eq!((spec.jobs[0].command.as_str(), spec.jobs[0].priority), ("run", Some(1)));
    assert_eq!((spec.jobs[1].command.as_str(), spec.jobs[1].priority), ("run", Some(9)));
    assert_eq!(spec.jobs[1].labels, ["x"]);
    assert_eq!((spec.jobs[2].name.as_str(), spec.jobs[2].command.as_str()), ("12", "a"));
}

#[test]
fn yaml_scalars_follow_the_core_schema() {
    let cases = [
        ("~", json!(null)),
        ("", json!(null)),
        ("Null", json!(null)),
        ("true", json!(true)),
        ("False", json!(false)),
        ("yes", json!("yes")),
        ("12", json!(12)),
        ("-12", json!(-12)),
        ("+12", json!(12)),
        ("012", json!(12)),
        ("0x1F", json!(31)),
        ("0o17", json!(15)),
        ("18446744073709551615", json!(18_446_744_073_709_551_615_u64)),
        ("-9223372036854775808", json!(i64::MIN)),
        ("1.5", json!(1.5)),
        (".5", json!(0.5)),
        ("1e3", json!(1000.0)),
        ("-1.5E-2", json!(-0.015)),
        ("1.2.3", json!("1.2.3")),
        ("1_000", json!("1_000")),
        ("04:00:00", json!("04:00:00")),
        ("2024-01-15", json!("2024-01-15")),
        ("1:100", json!("1:100")),
        ("'12'", json!("12")),
        ("\"a\\tb\"", json!("a\tb")),
        ("!!str true", json!("true")),
        ("!!int '7'", json!(7)),
        ("!!float 7", json!(7)),
        ("! 12", json!("12")),
    ];
    for (text, expected) in cases {
        let document = format!("name: demo\nuser_data:\n- name: d\n  data:\n    v: {text}\n");
        assert_eq!(spec(&document, Format::Yaml).user_data[0].data, Some(json!({ "v": expected })), "{text}");
    }
}

#[test]
fn yaml_block_texts_keep_their_lines() {
    let text =
        "name: demo\njobs:\n- name: a\n  command: |\n    one\n      two\n- name: b\n  command: >-\n    one\n    two\n";
    let spec = spec(text, Format::Yaml);
    assert_eq!(spec.jobs[0].command, "one\n  two\n");
    assert_eq!(spec.jobs[1].command, "one two");
}

#[test]
fn json5_values() {
    let cases = [
        ("0x1f", json!(31)),
        ("-0x1f", json!(-31)),
        (".5", json!(0.5)),
        ("5.", json!(5.0)),
        ("+5", json!(5)),
        ("-5e2", json!(-500.0)),
        ("18446744073709551615", json!(18_446_744_073_709_551_615_u64)),
        ("-9223372036854775808", json!(i64::MIN)),
        ("123456789012345678901234567890", json!(1.2345678901234568e29)),
        (r#""a\u00e9\ud83d\ude00\n\x41""#, json!("aé😀\nA")),
        (r"'it\'s'", json!("it's")),
        (r#""\/""#, json!("/")),
        ("null", json!(null)),
        ("[1,]", json!([1])),
        ("{'a b': {}, $x: 1,}", json!({"a b": {}, "$x": 1})),
    ];
    for (text, expected) in cases {
        let document = format!("{{name: 'demo', user_data: [{{name: 'd', data: {{v: {text}}}}}]}}");
        assert_eq!(spec(&document, Format::Json5).user_data[0].data, Some(json!({ "v": expected })), "{text}");
    }
}

#[test]
fn json_that_is_wrong_says_where() {
    let cases = [
        ("{\"name\": \"a\"", "1:13 error: expected ',' or '}', but the document ends"),
        ("{\n  \"name\" \"a\"}", "2:10 error: expected ':', found '\"'"),
        ("{\"name\": abc}", "1:10 error: unexpected 'abc' (put texts in quotes)"),
        ("{\"name\": \"a\n\"}", "1:12 error: a line ends inside a text; write \\n"),
        ("{\"name\": \"a", "1:10 error: the text is never closed"),
        ("{\"name\": \"\\u12\"}", "1:11 error: not an escape sequence"),
        ("{\"name\": 01}", "1:10 error: '01' is not a number"),
        ("{\"name\": NaN}", "1:10 error: NaN is not a finite number"),
        ("{\"name\": 1e999}", "1:10 error: '1e999' is not a number"),
        ("{} {}", "1:4 error: unexpected '{' after the end of the document"),
        ("[1 2]", "1:4 error: expected ',' or ']', found '2'"),
        ("{a: 1, \"a\": 2}", "1:8 error: the key `a` occurs twice (it is also on line 1)"),
        ("{é: 'ü', é: 1}", "1:10 error: the key `é` occurs twice (it is also on line 1)"),
        ("/* open", "1:1 error: the comment is never closed"),
        ("", "1:1 error: the document ends too early"),
        ("[]", "1:1 error: expected a mapping at the top of the document, found a list"),
    ];
    for (text, expected) in cases {
        assert_eq!(all_problems(text, Format::Json), [expected], "{text}");
    }
}

#[test]
fn yaml_that_is_wrong_says_where() {
    let cases = [
        ("name: a\nname: b\n", "2:1 error: the key `name` occurs twice (it is also on line 1)"),
        (
            "name: a\n? [x]\n: y\n",
            "2:3 error: a key must be a text (put it in quotes if it begins with a bracket or a brace)",
        ),
        ("name: !mine a\n", "1:7 error: the tag `!mine` has no meaning here"),
        ("name: !!int abc\n", "1:7 error: 'abc' is not a !!int"),
        ("name: .inf\n", "1:7 error: .inf is not a finite number; put it in quotes if it is a text"),
        ("a: &a [*a]\n", "1:8 error: an alias refers to a value that contains it"),
        ("name: a\n<<: 5\n", "2:5 error: `<<` merges mappings, not the number 5"),
        ("just words\n", "1:1 error: expected a mapping at the top of the document, found the text 'just words'"),
        ("", "error: the file holds no document"),
        ("# only a comment\n---\n", "error: the file holds no document"),
    ];
    for (text, expected) in cases {
        assert_eq!(all_problems(text, Format::Yaml), [expected], "{text}");
    }
    let unclosed = all_problems("name: [a\njobs: b\n", Format::Yaml);
    assert_eq!(unclosed.len(), 1);
    assert!(unclosed[0].contains("error: not YAML: "), "{unclosed:?}");
}
