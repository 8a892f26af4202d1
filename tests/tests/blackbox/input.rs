//! Invalid input: an error with file, line, column and field, its exit code, and no change.

use std::fs::File;
use std::io::{BufWriter, Write as _};

use serde_json::Value;
use torc_tests::env::TestEnv;

/// Returns the errors of `torc plan` for an invalid file, and asserts that every command that reads documents prints the same.
fn refused(env: &TestEnv, file: &str) -> String {
    let plan = env.torc(&format!("plan -f {file}")).exits(4);
    assert_eq!(plan.stdout, "", "nothing is printed on standard output");
    for verb in ["apply", "validate", "diff"] {
        let other = env.torc(&format!("{verb} -f {file}")).exits(4);
        assert_eq!(errors(&other.stderr), errors(&plan.stderr), "{verb}");
    }
    assert!(!env.path("torc_output").exists(), "something was run");
    plan.stderr
}

#[test]
fn schema_problems_do_not_hide_problems_of_jobs() {
    let env = TestEnv::new();
    env.write(
        "bad.yaml",
        "\
apiVersion: torc.dev/v1alpha1
kind: Workflow
metadata: {name: bad}
spec:
  jobs:
    - {name: a, comand: 'true'}
    - {name: b, command: 'true', dependsOn: [missing]}
    - {name: c, command: 'true', dependsOn: [d]}
    - {name: d, command: 'true', dependsOn: [c]}
    - {name: e, command: 'true', dependsOnRegexes: ['[']}
    - {name: f, command: 'true', dependsOn: [g]}
    - {name: g, command: 'true', dependsOn: [f]}
---
name: other
jobs:
  - {name: x, command: 'true', depends_on: [y]}
",
    );
    let printed = refused(&env, "bad.yaml");
    expect(
        &printed,
        &[
            "error: 7 problems in bad.yaml",
            "bad.yaml:6:17: error: unknown field `comand` (spec.jobs[0].comand)",
            "bad.yaml:7:46: error: job `b` refers to job `missing`, which does not exist (spec.jobs[1].dependsOn[0])",
            "bad.yaml:8:7: error: jobs wait for each other: c -> d -> c (spec.jobs[2])",
            "bad.yaml:11:7: error: jobs wait for each other: f -> g -> f (spec.jobs[5])",
            "bad.yaml:16:45: error: job `x` refers to job `y`, which does not exist (jobs[0].depends_on[0])",
        ],
    );
    assert!(printed.contains("not a regular expression"), "{printed}");
}

#[test]
fn consequential_problems_are_not_reported() {
    let env = TestEnv::new();
    env.write(
        "bad.yaml",
        "\
apiVersion: torc.dev/v1alpha1
kind: Workflow
metadata: {name: bad}
spec:
  jobs:
    - {nmae: a, command: 'true'}
    - {name: b, command: 'true', dependsOn: [a]}
    - {name: 'c_{i}', command: 'true', parametres: {i: '1:2'}}
    - {name: d, command: 'true', dependsOn: [c_1]}
",
    );
    expect(&refused(&env, "bad.yaml"), &["error: 3 problems in bad.yaml"]);
}

#[test]
fn one_invalid_document_of_several_stops_all() {
    let env = TestEnv::new();
    env.write(
        "two.yaml",
        "name: one\njobs: [{name: a, command: 'true'}]\n---\nname: two\njobs: [{name: b, command: x, depends_on: [c]}]\n",
    );
    env.torc("apply -f two.yaml").exits(4).prints("which does not exist");
    assert!(!env.path(".torc").exists(), "the first was stored");
}

fn errors(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.contains("error:")).collect()
}

#[track_caller]
fn expect(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|found| found.trim() == *line), "`{line}` is missing:\n{text}");
    }
}

#[test]
fn all_problems_are_reported_at_once_with_positions() {
    let env = TestEnv::new();
    env.write(
        "bad.yaml",
        "\
apiVersion: torc.dev/v1alpha1
kind: Workflow
metadata: {name: bad}
spec:
  nmae: x
  jobs:
    - {name: a, comand: 'true'}
    - name: b
      command: [1, 2]
      priority: high
    - {name: b, command: 'true', dependsOn: c}
    - {name: d, command: 'true', resourceRequirements: small}
",
    );
    expect(
        &refused(&env, "bad.yaml"),
        &[
            "error: 8 problems in bad.yaml",
            "bad.yaml:5:3: error: unknown field `nmae` (spec.nmae)",
            "bad.yaml:7:7: error: missing required field `command` (spec.jobs[0].command)",
            "bad.yaml:7:17: error: unknown field `comand` (spec.jobs[0].comand)",
            "hint: did you mean `command`?",
            "bad.yaml:9:16: error: expected a text, found a list (spec.jobs[1].command)",
            "bad.yaml:10:17: error: expected an integer, found the text 'high' (spec.jobs[1].priority)",
            "bad.yaml:11:14: error: the name 'b' is used twice (spec.jobs[2].name)",
            "bad.yaml:11:45: error: expected a list, found the text 'c' (spec.jobs[2].dependsOn)",
            "bad.yaml:12:56: error: there is no set of resource requirements named 'small' (spec.jobs[3].resourceRequirements)",
        ],
    );
}

#[test]
fn problems_are_printed_as_json() {
    let env = TestEnv::new();
    env.write("bad.yaml", "name: bad\njobs:\n  - {name: a, command: 5.5.5, priority: x}\n");
    let outcome = env.torc("plan -f bad.yaml -o json").exits(4);
    let printed: Value = serde_json::from_str(&outcome.stderr).unwrap();
    let error = &printed["error"];
    assert_eq!((error["code"].as_str(), error["exitCode"].as_i64()), (Some("InvalidInput"), Some(4)));
    let problem = &error["problems"][0];
    assert_eq!(problem["file"], "bad.yaml");
    assert_eq!((problem["line"].as_i64(), problem["column"].as_i64()), (Some(3), Some(41)));
    assert_eq!(problem["field"], "jobs[0].priority");
}

#[test]
fn an_unknown_key_of_a_bare_file_is_a_warning() {
    let env = TestEnv::new();
    env.write("w.yaml", "name: w\njobs:\n  - {name: a, command: 'true', comment: hello, prioritty: 3}\n");
    let outcome = env.torc("plan -f w.yaml -o json").exits(0);
    assert_eq!(outcome.json()["jobs"][0]["priority"], 0);
    expect(&outcome.stderr, &["w.yaml:3:48: warning: unknown field `prioritty` is ignored (jobs[0].prioritty)"]);
    expect(&outcome.stderr, &["hint: did you mean `priority`?"]);
}

#[test]
fn problems_of_all_files_are_reported_together() {
    let env = TestEnv::new();
    env.write("one.yaml", "name: one\njobs: [{name: a}]\n");
    env.write("two.json", "{\"name\": \"two\", \"jobs\": [\n");
    let outcome = env.torc("apply -f one.yaml two.json").exits(4).prints("one.yaml:2:8: error: missing required field");
    assert!(outcome.stderr.contains("two.json:"), "{}", outcome.stderr);
    assert!(!env.path(".torc").exists(), "a store was made for nothing");
}

#[test]
fn dependencies_must_exist() {
    let env = TestEnv::new();
    env.write(
        "w.yaml",
        "
name: w
jobs:
  - {name: first, command: 'true'}
  - {name: second, command: 'true', depends_on: [frist]}
  - {name: third, command: 'true', depends_on_regexes: ['((']}
  - {name: fourth, command: 'true', input_files: [nothing]}
",
    );
    let text = refused(&env, "w.yaml");
    for words in ["w.yaml:5:", "frist", "w.yaml:6:", "((", "w.yaml:7:", "nothing"] {
        assert!(text.contains(words), "`{words}` is missing:\n{text}");
    }
}

#[test]
fn cycles_are_named_in_full() {
    let cases = [
        (
            "jobs:
  - {name: a, command: 'true', depends_on: [c]}
  - {name: b, command: 'true', depends_on: [a]}
  - {name: c, command: 'true', depends_on: [b]}
  - {name: aside, command: 'true', depends_on: [c]}
",
            "a -> b -> c -> a",
        ),
        (
            "files: [{name: f, path: f.txt}, {name: g, path: g.txt}]
jobs:
  - {name: a, command: 'cp ${files.input.g} ${files.output.f}'}
  - {name: b, command: 'cp ${files.input.f} ${files.output.g}'}
",
            "a -> b (through file `f`) -> a (through file `g`)",
        ),
        (
            "user_data: [{name: u}, {name: v}]
jobs:
  - {name: a, command: 'true', input_user_data: [v], output_user_data: [u]}
  - {name: b, command: 'true', input_user_data: [u], output_user_data: [v]}
",
            "a -> b (through user data `u`) -> a (through user data `v`)",
        ),
        (
            "files: [{name: f, path: f.txt}]
jobs:
  - {name: a, command: 'echo > ${files.output.f}', depends_on: [b]}
  - {name: b, command: 'cat ${files.input.f}'}
",
            "a -> b (through file `f`) -> a",
        ),
        ("jobs: [{name: me, command: 'true', depends_on: [me]}]\n", "me"),
    ];
    for (jobs, cycle) in cases {
        let env = TestEnv::new();
        env.write("w.yaml", format!("name: w\n{jobs}"));
        let text = refused(&env, "w.yaml");
        assert!(text.contains(cycle) && text.contains("w.yaml:"), "`{cycle}` is missing:\n{text}");
    }
}

#[test]
fn duplicate_names_are_refused() {
    let env = TestEnv::new();
    env.write(
        "w.yaml",
        "name: w\nparameters: {i: '1:2'}\njobs: [{name: same, command: 'echo {i}', use_parameters: [i]}]\n",
    );
    let text = refused(&env, "w.yaml");
    assert!(text.contains("same"), "{text}");
    env.write("one.yaml", "name: w\njobs: [{name: a, command: 'true'}]\n");
    env.torc("apply -f one.yaml one.yaml").exits(4).prints("workflow `w` is also in one.yaml");
}

#[test]
fn files_without_a_document_are_refused() {
    let env = TestEnv::new();
    env.write("empty.yaml", "");
    env.write("comment.yaml", "# nothing\n---\n");
    env.write("text.yaml", "just some words\n");
    env.write("list.json", "[1, 2]");
    env.write("noise.kdl", "}}}{{{");
    let binary: Vec<u8> = (0..100_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    env.write("binary.yaml", &binary);
    env.write("binary.json", &binary);
    env.write("zip.yaml", [0x1f, 0x8b, 8, 0, 0, 0]);
    env.write("deep.json", "[".repeat(1_000_000));
    for file in [
        "empty.yaml",
        "comment.yaml",
        "text.yaml",
        "list.json",
        "noise.kdl",
        "binary.yaml",
        "binary.json",
        "zip.yaml",
        "deep.json",
    ] {
        let text = env.torc(&format!("apply -f {file}")).exits(4).stderr;
        assert!(text.contains(&format!("{file}:")), "{text}");
        assert!(text.len() < 2_000, "{file}: the error is too long");
    }
    assert!(!env.path(".torc").exists());
}

#[test]
fn missing_paths_are_refused() {
    let env = TestEnv::new();
    env.write("folder/readme.txt", "");
    env.torc("apply -f none.yaml").exits(5).prints("file none.yaml does not exist");
    env.torc("apply -f folder").exits(4).prints("folder contains no .yaml");
    env.call("apply -f -").run().exits(4);
    env.torc("apply").exits(2);
    env.torc("frobnicate").exits(2);
    assert!(!env.path(".torc").exists());
}

#[test]
fn a_hundred_megabytes_of_garbage_are_refused() {
    let env = TestEnv::new();
    let mut file = BufWriter::new(File::create(env.path("garbage.yaml")).unwrap());
    let line = b"{[(: \"x\" - - : [ } &* lines that mean nothing at all, and many of them\n";
    for _ in 0..(100 << 20) / line.len() {
        file.write_all(line).unwrap();
    }
    drop(file);
    for name in ["garbage.json", "garbage.kdl", "garbage.json5"] {
        std::fs::hard_link(env.path("garbage.yaml"), env.path(name)).unwrap();
    }
    for name in ["garbage.yaml", "garbage.json", "garbage.kdl", "garbage.json5"] {
        let text = env.torc(&format!("apply -f {name}")).exits(4).stderr;
        assert!(text.contains(&format!("{name}: error: ")) && text.len() < 2_000, "{text}");
    }
    assert!(!env.path(".torc").exists());
}

#[test]
fn exploding_aliases_are_refused() {
    let env = TestEnv::new();
    let mut text = "name: w\nvariables:\n  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..10 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        text.push_str(&format!("  a{level}: &a{level} [{aliases}]\n"));
    }
    env.write("w.yaml", text);
    env.torc("plan -f w.yaml").exits(4).prints("aliases make this document too large");
}

#[test]
fn more_jobs_than_allowed_are_refused() {
    let env = TestEnv::new();
    env.write("w.yaml", "name: w\nparameters: {a: '1:3000', b: '1:3000'}\njobs: [{name: 'j_{a}_{b}', command: 'true', use_parameters: [a, b]}]\n");
    env.torc("plan -f w.yaml").exits(4).prints("more than 1000000");
    env.write(
        "small.yaml",
        "name: w\nparameters: {a: '1:30'}\njobs: [{name: 'j_{a}', command: 'true', use_parameters: [a]}]\n",
    );
    env.write("torc.toml", "[server]\nmax_jobs = 20\n");
    env.torc("apply -f small.yaml").exits(4).prints("20");
}

#[test]
fn an_invalid_edit_changes_nothing() {
    let env = TestEnv::new();
    env.write("w.yaml", "name: w\njobs: [{name: a, command: 'true'}]\n");
    env.torc("apply -f w.yaml").exits(0);
    let before = (env.items("get jobs"), env.items("get results"));
    env.write(
        "w.yaml",
        "name: w\njobs: [{name: a, command: 'true', depends_on: [b]}, {name: b, command: 'true', depends_on: [a]}]\n",
    );
    env.torc("apply -f w.yaml").exits(4).prints("a -> b");
    assert_eq!((env.items("get jobs"), env.items("get results")), before);
}

#[test]
fn invalid_settings_are_refused_with_their_origin() {
    let env = TestEnv::new();
    env.write("w.yaml", "name: w\njobs: [{name: a, command: 'true'}]\n");
    env.torc("apply -f w.yaml --memory lots").exits(4).prints("lots");
    env.call("apply -f w.yaml").env("TORC_RUN_NUM_CPUS", "many").run().exits(4).prints("TORC_RUN_NUM_CPUS");
    env.write("torc.toml", "[client.run]\nnum_cpus = \"x\"\n");
    env.torc("apply -f w.yaml").exits(4).prints("torc.toml");
    env.write("torc.toml", "[[[");
    env.torc("get jobs").exits(4).prints("torc.toml");
}
