//! `torc plan -o json`: the exact jobs of a document, without a store.

use serde_json::{Value, json};
use torc_tests::env::TestEnv;

fn plan(env: &TestEnv, file: &str) -> Value {
    env.json(&format!("plan -f {file}"))
}

/// Returns a planned job without requirements.
fn job(name: &str, command: &str, depends_on: &[&str]) -> Value {
    json!({
        "name": name,
        "command": command,
        "priority": 0,
        "dependsOn": depends_on,
        "ready": depends_on.is_empty(),
        "resources": { "numCpus": 1, "memoryBytes": 1 << 20, "numGpus": 0, "numNodes": 1, "runtimeSeconds": 60 },
    })
}

/// Asserts the plan of a bare file in YAML.
#[track_caller]
fn check(text: &str, expected: &[Value]) {
    let env = TestEnv::new();
    env.write("w.yaml", format!("name: w\n{text}"));
    assert_eq!(plan(&env, "w.yaml"), json!({ "workflow": "w", "jobs": expected }), "{text}");
}

#[test]
fn resources_and_priorities() {
    let env = TestEnv::new();
    env.write(
        "w.yaml",
        "
name: My Workflow
resource_requirements:
  - {name: big, num_cpus: 8, num_gpus: 2, num_nodes: 3, memory: 1.5g, runtime: P0DT1H30M}
  - {name: least, num_cpus: 2, memory: 512m}
jobs:
  - {name: a, command: run a, priority: 7, resource_requirements: big}
  - {name: b, command: run b, resource_requirements: least}
",
    );
    let expected = json!({
        "workflow": "My Workflow",
        "jobs": [
            {
                "name": "a",
                "command": "run a",
                "priority": 7,
                "dependsOn": [],
                "ready": true,
                "resources": { "numCpus": 8, "memoryBytes": 1_610_612_736_i64, "numGpus": 2, "numNodes": 3, "runtimeSeconds": 5400 },
            },
            {
                "name": "b",
                "command": "run b",
                "priority": 0,
                "dependsOn": [],
                "ready": true,
                "resources": { "numCpus": 2, "memoryBytes": 512 << 20, "numGpus": 0, "numNodes": 1, "runtimeSeconds": 3600 },
            },
        ],
    });
    assert_eq!(plan(&env, "w.yaml"), expected);
    assert!(!env.path(".torc").exists());
}

#[test]
fn products_ranges_and_formats() {
    check(
        "
parameters: {rate: [0.1, 0.25], i: '1:2'}
jobs:
  - {name: 'train_{i:03d}_{rate:.2f}', command: 'train {i} {rate}', use_parameters: [i, rate]}
  - {name: compare, command: compare, depends_on_regexes: ['^train_001_']}
",
        &[
            job("train_001_0.10", "train 1 0.1", &[]),
            job("train_001_0.25", "train 1 0.25", &[]),
            job("train_002_0.10", "train 2 0.1", &[]),
            job("train_002_0.25", "train 2 0.25", &[]),
            job("compare", "compare", &["train_001_0.10", "train_001_0.25"]),
        ],
    );
    check(
        "
jobs:
  - {name: 'down_{i}', command: 'x', parameters: {i: '4:0:-2'}}
  - {name: 'float_{x:.1f}', command: 'x', parameters: {x: '0.0:1.0:0.5'}}
",
        &[
            job("down_4", "x", &[]),
            job("down_2", "x", &[]),
            job("down_0", "x", &[]),
            job("float_0.0", "x", &[]),
            job("float_0.5", "x", &[]),
            job("float_1.0", "x", &[]),
        ],
    );
}

#[test]
fn zipped_parameters_and_dependencies_by_parameter() {
    check(
        "
jobs:
  - {name: 'make_{site}', command: 'make {site} {year}', parameters: {site: [north, south], year: [2020, 2021]}, parameter_mode: zip}
  - {name: 'check_{site}', command: 'check {site}', depends_on: ['make_{site}'], parameters: {site: [north, south]}}
",
        &[
            job("make_north", "make north 2020", &[]),
            job("make_south", "make south 2021", &[]),
            job("check_north", "check north", &["make_north"]),
            job("check_south", "check south", &["make_south"]),
        ],
    );
}

#[test]
fn a_local_parameter_wins_over_the_shared_one() {
    check(
        "
parameters: {i: '1:100', unused: [a, b]}
jobs:
  - {name: 'j_{i}', command: 'x', use_parameters: [i], parameters: {i: [5]}}
",
        &[job("j_5", "x", &[])],
    );
}

#[test]
fn variables_are_replaced_and_shell_variables_kept() {
    check(
        "
variables: {tool: /opt/tool, level: 3}
jobs:
  - {name: a, command: '{tool} -O{level} ${HOME} $1'}
",
        &[job("a", "/opt/tool -O3 ${HOME} $1", &[])],
    );
}

#[test]
fn files_and_data_order_jobs() {
    check(
        "
files: [{name: raw, path: data/raw.csv}, {name: clean, path: data/clean.csv}, {name: given, path: given.txt}]
user_data: [{name: settings, data: {depth: 3}}, {name: score}]
jobs:
  - {name: report, command: 'report ${files.input.clean}', input_user_data: [score]}
  - {name: clean, command: 'clean ${files.input.raw} ${files.input.given} > ${files.output.clean}'}
  - {name: fetch, command: 'fetch > ${files.output.raw}'}
  - {name: judge, command: 'judge ${user_data.input.settings}', input_files: [clean], output_user_data: [score], depends_on: [fetch]}
",
        &[
            job("report", "report data/clean.csv", &["clean", "judge"]),
            job("clean", "clean data/raw.csv given.txt > data/clean.csv", &["fetch"]),
            job("fetch", "fetch > data/raw.csv", &[]),
            job("judge", "judge {\"depth\":3}", &["clean", "fetch"]),
        ],
    );
}

#[test]
fn files_by_parameter_and_by_expression() {
    check(
        "
parameters: {i: '1:2'}
files: [{name: 'part_{i}', path: 'part_{i}.txt', use_parameters: [i]}]
jobs:
  - {name: 'write_{i}', command: 'w ${files.output.part_{i}}', use_parameters: [i]}
  - {name: gather, command: gather, input_file_regexes: ['^part_[0-9]+$']}
",
        &[
            job("write_1", "w part_1.txt", &[]),
            job("write_2", "w part_2.txt", &[]),
            job("gather", "gather", &["write_1", "write_2"]),
        ],
    );
}

#[test]
fn tables_give_a_job_for_each_row() {
    let env = TestEnv::new();
    env.write("sites.csv", "site,year\nnorth,2020\n\"south, east\",2021\n");
    env.write("sites.jsonl", "{\"site\": \"north\", \"year\": 2020}\n{\"site\": \"south, east\", \"year\": 2021}\n");
    env.write("sites.json", "[{\"site\": \"north\", \"year\": 2020}, {\"site\": \"south, east\", \"year\": 2021}]");
    env.write("names.txt", "# names\nada\n\ngrace\n");
    let expected = json!({
        "workflow": "w",
        "jobs": [job("j_2020", "run 'north'", &[]), job("j_2021", "run 'south, east'", &[])],
    });
    for table in ["sites.csv", "sites.jsonl", "sites.json"] {
        let entry = "name: 'j_{year}'\n    command: \"run '{site}'\"";
        env.write("w.yaml", format!("name: w\njobs:\n  - {entry}\n    parameters_file: {table}\n"));
        assert_eq!(plan(&env, "w.yaml"), expected, "{table}");
        env.write(
            "w.yaml",
            format!("name: w\nparameters_file: {table}\njobs:\n  - {entry}\n    use_parameters_file: true\n"),
        );
        assert_eq!(plan(&env, "w.yaml"), expected, "{table}, shared");
    }
    env.write(
        "w.yaml",
        "name: w\njobs: [{name: 'hi_{who}', command: 'hello {who}', parameters: {who: '@names.txt'}}]\n",
    );
    let expected = [job("hi_ada", "hello ada", &[]), job("hi_grace", "hello grace", &[])];
    assert_eq!(plan(&env, "w.yaml")["jobs"], json!(expected));
}

#[test]
fn invalid_tables_are_refused() {
    let env = TestEnv::new();
    env.write("w.yaml", "name: w\njobs: [{name: 'j_{a}', command: 'x {b}', parameters_file: t.csv}]\n");
    env.torc("plan -f w.yaml").exits(4).prints("t.csv");
    for (table, words) in [("a,b\n1,\n", "t.csv"), ("a,b\n1,2,3\n", "t.csv"), ("", "t.csv")] {
        env.write("t.csv", table);
        env.torc("plan -f w.yaml").exits(4).prints(words);
    }
}

const YAML: &str = "
name: same
resource_requirements: [{name: small, num_cpus: 2, memory: 1g, runtime: PT5M}]
files: [{name: out, path: out.txt}]
jobs:
  - {name: 'part_{i:02d}', command: 'echo {i}', resource_requirements: small, parameters: {i: '1:2'}}
  - {name: write, command: 'cat > ${files.output.out}', depends_on_regexes: ['^part_'], priority: 4}
  - {name: read, command: 'cat ${files.input.out}'}
";

const JSON5: &str = r"
// The same document in JSON5.
{
  name: 'same',
  resource_requirements: [{name: 'small', num_cpus: 2, memory: '1g', runtime: 'PT5M'}],
  files: [{name: 'out', path: 'out.txt'}],
  jobs: [
    {name: 'part_{i:02d}', command: 'echo {i}', resource_requirements: 'small', parameters: {i: '1:2'}},
    {name: 'write', command: 'cat > ${files.output.out}', depends_on_regexes: ['^part_'], priority: 4},
    {name: 'read', command: 'cat ${files.input.out}',},
  ],
}
";

const KDL: &str = r#"
// The same document in KDL.
name "same"
resource_requirements "small" {
    num_cpus 2
    memory "1g"
    runtime "PT5M"
}
file "out" path="out.txt"
job "part_{i:02d}" {
    command "echo {i}"
    resource_requirements "small"
    parameters {
        i "1:2"
    }
}
job "write" {
    command "cat > ${files.output.out}"
    depends_on_regexes "^part_"
    priority 4
}
job "read" {
    command "cat ${files.input.out}"
}
"#;

const ENVELOPE: &str = "
apiVersion: torc.dev/v1alpha1
kind: Workflow
metadata: {name: same}
spec:
  resourceRequirements: [{name: small, numCpus: 2, memory: 1Gi, runtime: 5m}]
  files: [{name: out, path: out.txt}]
  jobs:
    - {name: 'part_{i:02d}', command: 'echo {i}', resourceRequirements: small, parameters: {i: '1:2'}}
    - {name: write, command: 'cat > ${files.output.out}', dependsOnRegexes: ['^part_'], priority: 4}
    - {name: read, command: 'cat ${files.input.out}'}
";

#[test]
fn every_format_and_both_forms_give_the_same_plan() {
    let env = TestEnv::new();
    env.write("w.yaml", YAML);
    env.write("w.json5", JSON5);
    env.write("w.kdl", KDL);
    env.write("envelope.yaml", ENVELOPE);
    let mut plain: Value = json!({
        "name": "same",
        "resource_requirements": [{"name": "small", "num_cpus": 2, "memory": "1g", "runtime": "PT5M"}],
        "files": [{"name": "out", "path": "out.txt"}],
        "jobs": [
            {"name": "part_{i:02d}", "command": "echo {i}", "resource_requirements": "small", "parameters": {"i": "1:2"}},
            {"name": "write", "command": "cat > ${files.output.out}", "depends_on_regexes": ["^part_"], "priority": 4},
            {"name": "read", "command": "cat ${files.input.out}"},
        ],
    });
    env.write("w.json", plain.to_string());
    let expected = env.torc("plan -f w.yaml -o json").exits(0).stdout;
    let names: Vec<Value> = serde_json::from_str::<Value>(&expected).unwrap()["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| job["name"].clone())
        .collect();
    assert_eq!(names, ["part_01", "part_02", "write", "read"]);
    for file in ["w.json5", "w.kdl", "w.json", "envelope.yaml"] {
        assert_eq!(env.torc(&format!("plan -f {file} -o json")).exits(0).stdout, expected, "{file}");
    }
    for text in [YAML, JSON5, KDL, ENVELOPE] {
        assert_eq!(env.call("plan -f - -o json").stdin(text).run().exits(0).stdout, expected, "{text}");
    }
    plain["name"] = json!("other");
    env.write("other.json", plain.to_string());
    assert_ne!(env.torc("plan -f other.json -o json").exits(0).stdout, expected);
}

#[test]
fn the_same_document_gives_the_same_bytes() {
    let env = TestEnv::new();
    env.write(
        "w.yaml",
        "
name: w
parameters: {zeta: '1:4', alpha: [x, y], mid: '0.0:1.0:0.25'}
files: [{name: 'f_{zeta}', path: 'f_{zeta}', use_parameters: [zeta]}]
jobs:
  - {name: 'make_{zeta}', command: 'm ${files.output.f_{zeta}}', use_parameters: [zeta]}
  - {name: 'use_{zeta}_{alpha}_{mid}', command: 'u ${files.input.f_{zeta}}', use_parameters: [mid, zeta, alpha]}
  - {name: end, command: end, depends_on_regexes: ['use_.*_x_', 'use_4']}
",
    );
    let first = env.torc("plan -f w.yaml -o json").exits(0).stdout;
    assert_eq!(serde_json::from_str::<Value>(&first).unwrap()["jobs"].as_array().unwrap().len(), 45);
    for _ in 0..3 {
        assert_eq!(env.torc("plan -f w.yaml -o json").exits(0).stdout, first);
    }
}

#[test]
fn the_stored_jobs_equal_the_plan() {
    let env = TestEnv::new();
    env.write("w.yaml", YAML);
    let planned = plan(&env, "w.yaml");
    env.torc("apply -f w.yaml --no-run").exits(0);
    let stored = env.items("get jobs");
    let planned = planned["jobs"].as_array().unwrap();
    assert_eq!(stored.len(), planned.len());
    for (stored, planned) in stored.iter().zip(planned) {
        for field in ["name", "command", "priority", "resources"] {
            assert_eq!(stored[field], planned[field]);
        }
        assert_eq!(stored["status"] == "ready", planned["ready"] == true, "{stored:#}");
    }
}

#[test]
fn several_documents_give_several_plans() {
    let env = TestEnv::new();
    env.write("w.yaml", "name: one\njobs: [{name: a, command: x}]\n---\nname: two\njobs: [{name: b, command: x}]\n");
    let plans = plan(&env, "w.yaml");
    assert_eq!((&plans["items"][0]["workflow"], &plans["items"][1]["workflow"]), (&json!("one"), &json!("two")));
}
