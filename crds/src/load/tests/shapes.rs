//! Values at the limits of their shape and just beyond.

use super::*;

/// Returns whether a specification with one value at a limit is accepted.
fn accepts(spec: &str) -> bool {
    let loaded = read(&envelope(spec), Format::Yaml);
    assert!(
        loaded.problems.iter().all(|problem| problem.message.contains("at ") || problem.message.contains("empty")),
        "{:?}",
        loaded.problems
    );
    loaded.problems.is_empty()
}

#[test]
fn numbers_at_their_limits() {
    let cases = [
        ("runId: 1", None),
        ("runId: 0", Some("6:10 error spec.runId: must be at least 1, not 0")),
        ("runId: 2147483647", None),
        ("runId: 2147483648", Some("6:10 error spec.runId: must be at most 2147483647, not 2147483648")),
        ("jobs: [{name: a, command: x, priority: 1000000000}]", None),
        (
            "jobs: [{name: a, command: x, priority: 1000000001}]",
            Some("6:42 error spec.jobs[0].priority: must be at most 1000000000, not 1000000001"),
        ),
        ("prefetch: {leaseSeconds: 5}", None),
        ("prefetch: {leaseSeconds: 4}", Some("6:28 error spec.prefetch.leaseSeconds: must be at least 5, not 4")),
        ("recovery: {timeout: {increasePercent: 100}}", None),
        (
            "recovery: {timeout: {increasePercent: 99}}",
            Some("6:41 error spec.recovery.timeout.increasePercent: must be at least 100, not 99"),
        ),
        ("recovery: {outOfMemory: {increasePercent: 10000}}", None),
        (
            "recovery: {outOfMemory: {increasePercent: 10001}}",
            Some("6:45 error spec.recovery.outOfMemory.increasePercent: must be at most 10000, not 10001"),
        ),
        ("activeDeadlineSeconds: 1000000000000000", None),
        (
            "activeDeadlineSeconds: 1000000000000001",
            Some("6:26 error spec.activeDeadlineSeconds: must be at most 1000000000000000, not 1000000000000001"),
        ),
        ("runId: 2.0", None),
        ("runId: 2.5", Some("6:10 error spec.runId: expected an integer, found the number 2.5")),
    ];
    for (spec, expected) in cases {
        let expected: Vec<String> = expected.into_iter().map(str::to_owned).collect();
        assert_eq!(all_problems(&envelope(spec), Format::Yaml), expected, "{spec}");
    }
    assert_eq!(spec(&envelope("runId: 2.0"), Format::Yaml).run_id, Some(2));
}

#[test]
fn texts_at_their_limits() {
    assert!(accepts(&format!("user: '{}'", "é".repeat(256))), "characters count, not bytes");
    let text = envelope(&format!("user: '{}'", "é".repeat(257)));
    assert_eq!(all_problems(&text, Format::Yaml), ["6:9 error spec.user: must have at most 256 characters, not 257"]);
    assert!(accepts("managedBy: a"));
    let empty = envelope("managedBy: ''");
    assert_eq!(all_problems(&empty, Format::Yaml), ["6:14 error spec.managedBy: must not be empty"]);
}

#[test]
fn lists_and_maps_at_their_limits() {
    let labels = |count: usize| format!("jobs: [{{name: a, command: b, labels: [{}]}}]", vec!["l"; count].join(", "));
    assert!(accepts(&labels(100)));
    assert_eq!(
        all_problems(&envelope(&labels(101)), Format::Yaml),
        ["6:40 error spec.jobs[0].labels: at most 100 items are allowed, found 101"]
    );
    let variables = |count: usize| {
        let entries: Vec<String> = (0..count).map(|name| format!("v{name}: 1")).collect();
        format!("env: {{}}\nmetadata: {{{}}}", entries.join(", "))
    };
    assert!(accepts(&variables(10_000)));
    assert_eq!(
        all_problems(&envelope(&variables(10_001)), Format::Yaml),
        ["7:13 error spec.metadata: at most 10000 keys are allowed, found 10001"]
    );
}

#[test]
fn a_file_at_its_limits_is_read() {
    let text = "name: a\n# x";
    let limits = |max_bytes: usize| LoadOptions { max_bytes, ..LoadOptions::default() };
    assert!(load(text.as_bytes(), Some(Format::Yaml), &limits(11)).problems.is_empty());
    assert!(load(text.as_bytes(), Some(Format::Yaml), &limits(10)).has_errors());
    let (max_bytes, max_values) = (67_108_864, 6_000_000);
    let expected = LoadOptions { max_bytes, max_depth: 64, max_values, max_problems: 200, default_name: None };
    assert_eq!(LoadOptions::default(), expected);
    // The mapping, the name's value and its key, and the list with its two values.
    let values = |max_values: usize| LoadOptions { max_values, ..LoadOptions::default() };
    for (text, format, count) in [
        ("{\"name\": \"a\", \"labels\": [1, 2]}", Format::Json, 5),
        ("name: a\nlabels: [1, 2]\n", Format::Yaml, 7),
        ("name \"a\"\nlabels 1 2\n", Format::Kdl, 5),
    ] {
        let is_too_much = |max_values: usize| {
            let loaded = load(text.as_bytes(), Some(format), &values(max_values));
            loaded.problems.iter().any(|problem| problem.message.contains(" values"))
        };
        assert!(!is_too_much(count) && is_too_much(count - 1), "{format:?}");
    }
    let message = load(&vec![b' '; (1 << 20) + 1], None, &limits(1 << 20)).problems[0].message.clone();
    assert_eq!(message, "the file has more than 1 MiB, which is the limit");
    let odd = load(&vec![b' '; (1 << 20) + 2], None, &limits((1 << 20) + 1)).problems[0].message.clone();
    assert_eq!(odd, "the file has more than 1048577 bytes, which is the limit");
}

#[test]
fn nesting_at_its_limit_is_read() {
    let limits = |max_depth: usize| LoadOptions { max_depth, ..LoadOptions::default() };
    for (text, format, depth) in [
        ("{\"name\": \"a\", \"metadata\": {\"x\": [[1]]}}", Format::Json, 4),
        ("name: a\nmetadata: {x: [[1]]}\n", Format::Yaml, 4),
        ("name \"a\"\nmetadata {\n x {\n  y 1\n }\n}\n", Format::Kdl, 2),
        ("name: a\nmetadata: {b: &b [[1]], c: *b}\n", Format::Yaml, 4),
        ("name: a\nmetadata: {b: &b 1, c: [*b, 2]}\n", Format::Yaml, 3),
        ("name: a\nmetadata: {b: &b {x: [1]}, c: *b}\n", Format::Yaml, 4),
    ] {
        assert!(load(text.as_bytes(), Some(format), &limits(depth)).problems.is_empty(), "{text} fits");
        let problems = load(text.as_bytes(), Some(format), &limits(depth - 1)).problems;
        let expected = format!("values are nested more than {} deep", depth - 1);
        assert_eq!(problems.first().map(|problem| problem.message.clone()), Some(expected), "{text}");
    }
}

#[test]
fn only_so_many_warnings_are_listed() {
    let unknown = |count: usize| (0..count).map(|at| format!("x{at}z: 1\n")).collect::<String>();
    let options = LoadOptions { max_problems: 3, ..LoadOptions::default() };
    let listed = |text: &str| -> Vec<String> {
        load(text.as_bytes(), Some(Format::Yaml), &options).problems.iter().map(shown).collect()
    };
    assert_eq!(listed(&format!("name: a\n{}", unknown(3))).len(), 3);
    let more = listed(&format!("name: a\n{}", unknown(5)));
    assert_eq!((more.len(), more[3].as_str()), (4, "warning: 2 more problems are not listed"));
    // Two errors and three warnings: the errors, the first warning and the note about the others are listed.
    let mixed = listed(&format!("name: a\n{}user: 1\nproject: 2\n", unknown(3)));
    assert_eq!(
        mixed,
        [
            "2:1 warning x0z: unknown field `x0z` is ignored",
            "5:7 error user: expected a text, found the number 1 (put it in quotes: \"1\")",
            "6:10 error project: expected a text, found the number 2 (put it in quotes: \"2\")",
            "error: 2 more problems are not listed",
        ]
    );
}

#[test]
fn older_names_are_read_as_the_ones_of_today() {
    const RENAMED: [(&str, &str, &str); 11] = [
        ("blocked_by", "[b]", "dependsOn"),
        ("blocked_by_job_names", "[b]", "dependsOn"),
        ("blocked_by_regexes", "['^b']", "dependsOnRegexes"),
        ("blocked_by_job_name_regexes", "['^b']", "dependsOnRegexes"),
        ("input_file_names", "[b]", "inputFiles"),
        ("output_file_names", "[b]", "outputFiles"),
        ("input_user_data_names", "[b]", "inputUserData"),
        ("output_data_names", "[b]", "outputUserData"),
        ("label", "b", "labels"),
        ("resource_requirements_name", "default", "resourceRequirements"),
        ("scheduler_name", "b", "scheduler"),
    ];
    let rest = "files: [{name: b, path: b}]\nuser_data: [{name: b}]\nslurm_schedulers: [{name: b, account: a}]\n";
    for (older, value, name) in RENAMED {
        let text = format!(
            "name: demo\n{rest}jobs:\n- {{name: b, command: x}}\n- {{name: a, command: x, {older}: {value}}}\n"
        );
        let problems = all_problems(&text, Format::Yaml);
        let today = crate::schema::snake_case(name);
        assert_eq!(problems, [format!("7:25 warning jobs[1].{older}: `{older}` is now called `{today}`")]);
        let job = serde_json::to_value(&spec_despite_warnings(&text, Format::Yaml).jobs[1]).unwrap();
        let items = job[name].as_array().map_or_else(|| job[name].clone(), |items| items[0].clone());
        assert_eq!(items.as_str(), Some(value.trim_matches(['[', ']', '\''])), "{older}");
    }
    let both =
        "name: demo\njobs:\n- {name: b, command: x}\n- {name: a, command: x, blocked_by: [c], depends_on: [b]}\n";
    assert_eq!(spec_despite_warnings(both, Format::Yaml).jobs[1].depends_on, ["b"], "the name of today wins");
}
