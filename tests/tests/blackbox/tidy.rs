//! The rules of ARCHITECTURE.md: layers, forbidden dependencies, sizes, and complete lists.

mod cycles;
mod words;

use std::fs;

use torc_tests::env::{TestEnv, project_root};

fn sources(folder: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut open = vec![project_root().join(folder)];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(project_root()).unwrap().to_string_lossy().into_owned();
                found.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    assert!(!found.is_empty(), "{folder} has no sources");
    found
}

/// Returns the part of a file before its test module.
fn product(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap()
}

fn is_test(name: &str) -> bool {
    name.ends_with("tests.rs") || name.contains("/tests/")
}

const ALL: [&str; 8] = ["crds", "core", "store", "slurm", "controller", "runner", "cli", "tests"];

#[test]
fn no_file_has_more_than_800_lines() {
    let long: Vec<String> = ALL
        .iter()
        .flat_map(|folder| sources(folder))
        .filter(|(_, text)| text.lines().count() > 800)
        .map(|(name, text)| format!("{name}: {} lines", text.lines().count()))
        .collect();
    assert_eq!(long, Vec::<String>::new());
}

#[test]
fn the_core_does_no_io_and_reads_no_clock() {
    let forbidden = [
        "std::fs",
        "std::env",
        "std::process",
        "std::net",
        "std::thread",
        "SystemTime",
        "Instant::now",
        "Timestamp::now",
    ];
    for folder in ["crds/src", "core/src"] {
        for (name, text) in sources(folder).into_iter().filter(|(name, _)| !is_test(name)) {
            for word in forbidden {
                assert!(!product(&text).contains(word), "{name} names {word}");
            }
        }
    }
}

#[test]
fn dependencies_point_one_way() {
    let forbidden = [
        ("crds", vec!["tokio", "sqlx", "axum", "reqwest", "nix", "torc-core", "torc-store"]),
        ("core", vec!["tokio", "sqlx", "axum", "reqwest", "nix", "kube", "torc-store", "torc-controller"]),
        ("store", vec!["axum", "reqwest", "kube", "torc-controller", "torc-runner"]),
        ("slurm", vec!["sqlx", "axum", "kube", "torc-core", "torc-store", "torc-controller"]),
        ("controller", vec!["sqlx", "torc-runner", "clap"]),
        ("runner", vec!["axum", "kube", "k8s-openapi", "torc-store", "torc-controller", "clap"]),
        ("cli", vec!["sqlx", "axum"]),
    ];
    for (folder, names) in forbidden {
        let manifest = fs::read_to_string(project_root().join(folder).join("Cargo.toml")).unwrap();
        let dependencies = manifest.split("[dependencies]").nth(1).unwrap().split("[dev-dependencies]").next().unwrap();
        for name in names {
            let named = dependencies
                .lines()
                .any(|line| line.starts_with(&format!("{name}.")) || line.starts_with(&format!("{name} ")));
            assert!(!named, "{folder}/Cargo.toml names {name}");
        }
    }
}

/// Only the feature `load` of `torc-api` needs CEL, and the runner loads no documents.
#[test]
fn the_runner_does_not_link_cel() {
    let manifest = |folder: &str| fs::read_to_string(project_root().join(folder).join("Cargo.toml")).unwrap();
    let workspace = manifest("");
    assert!(workspace.contains(r#"torc-api = { path = "crds", default-features = false }"#));
    for folder in ["core", "slurm", "runner"] {
        let text = manifest(folder);
        let dependencies = text.split("[dependencies]").nth(1).unwrap().split("\n[").next().unwrap();
        assert!(dependencies.contains("\ntorc-api.workspace = true\n"), "{folder} needs no features of torc-api");
        assert!(!dependencies.contains("cel"), "{folder} names CEL");
    }
}

#[test]
fn sql_is_in_the_store_and_in_the_files_that_a_runner_writes() {
    let allowed = ["store/", "runner/src/journal", "runner/src/series"];
    for (name, text) in ALL.iter().flat_map(|folder| sources(folder)) {
        let uses = !name.ends_with("tidy.rs") && text.contains("sqlx::");
        assert!(!uses || allowed.iter().any(|place| name.starts_with(place)), "{name} names sqlx");
    }
}

/// Setting the clock must not end a lease, a job or a runner.
#[test]
fn runner_decisions_use_no_wall_clock() {
    for (name, text) in sources("runner/src") {
        let measures = name.starts_with("runner/src/state") || name.starts_with("runner/src/shim");
        for word in ["SystemTime", "wall_ms"] {
            assert!(!(measures && text.contains(word)), "{name} names {word}");
        }
    }
    let clock = fs::read_to_string(project_root().join("runner/src/clock.rs")).unwrap();
    assert!(clock.contains("ClockId::Boottime"), "the runner's clock must advance during suspend");
}

#[test]
fn one_function_changes_states_of_jobs() {
    for folder in ["core/src", "controller/src", "store/src"] {
        for (name, text) in sources(folder).into_iter().filter(|(name, _)| !is_test(name)) {
            let uses = product(&text).matches("next_state(").count();
            let allowed = match name.as_str() {
                "core/src/job.rs" => continue,
                // `Graph::transition`, and the rows of a new workflow.
                "core/src/engine/workflow/graph.rs" | "core/src/engine/apply.rs" => 1,
                _ => 0,
            };
            assert!(uses <= allowed, "{name} calls `next_state`");
        }
    }
    for (name, text) in sources("store/src") {
        let text = text.to_lowercase();
        assert!(!text.contains("case state") && !text.contains("case when state"), "{name} decides a state in SQL");
    }
}

#[test]
fn processes_are_started_in_few_places() {
    let allowed = ["runner/src/shim/", "runner/src/agent/", "slurm/src/exec.rs", "cli/src/"];
    for folder in ["crds/src", "core/src", "store/src", "slurm/src", "controller/src", "runner/src"] {
        for (name, text) in sources(folder).into_iter().filter(|(name, _)| !is_test(name)) {
            let starts = product(&text).contains("Command::new(");
            assert!(!starts || allowed.iter().any(|place| name.starts_with(place)), "{name} starts a process");
        }
    }
}

#[test]
fn nothing_is_left_unfinished() {
    for (name, text) in ALL.iter().flat_map(|folder| sources(folder)) {
        if name.ends_with("tidy.rs") {
            continue;
        }
        for mark in ["todo!(", "unimplemented!(", "TODO", "FIXME", "#[ignore"] {
            assert!(!text.contains(mark), "{name} contains {mark}");
        }
    }
}

/// Every field of the document has a line in its reference.
#[test]
fn the_reference_of_the_document_is_complete() {
    let page = fs::read_to_string(project_root().join("docs/reference/document.md")).unwrap();
    let mut missing = Vec::new();
    for schema in [torc_api::schema::workflow_json_schema(), torc_api::schema::cluster_json_schema()] {
        collect_fields(&schema, &mut |name| {
            if !page.contains(&format!("`{name}`")) {
                missing.push(name.to_owned());
            }
        });
    }
    assert_eq!(missing, Vec::<String>::new(), "add these to docs/reference/document.md");
}

#[test]
fn generated_files_are_current() {
    let env = TestEnv::new();
    let files = [
        ("crds/torc.dev.yaml", "crd print"),
        ("docs/reference/openapi.json", "reference openapi"),
        ("docs/reference/cli.md", "reference cli"),
        ("docs/reference/crds.md", "reference crds"),
        ("docs/reference/environment.md", "reference environment"),
        ("docs/reference/http-routes.md", "reference http"),
    ];
    for (file, line) in files {
        let stored = fs::read_to_string(project_root().join(file)).unwrap();
        assert!(env.torc(line).exits(0).stdout == stored, "{file} is not current: run tests/generate");
    }
}

#[test]
fn every_test_that_the_book_names_exists() {
    let page = fs::read_to_string(project_root().join("docs/design/torc-1.0-defects.md")).unwrap();
    let all: Vec<(String, String)> = ALL.iter().flat_map(|folder| sources(folder)).collect();
    let named: Vec<(&str, &str)> = page.split('`').filter_map(|word| word.split_once(".rs::")).collect();
    assert!(named.len() > 50, "the page names its tests as `file.rs::name`");
    let exists = |(file, name): &(&str, &str)| {
        let (file, function) = (format!("/{file}.rs"), format!("fn {name}("));
        all.iter().any(|(path, text)| path.ends_with(&file) && text.contains(&function))
    };
    let missing: Vec<_> = named.into_iter().filter(|test| !exists(test)).collect();
    assert_eq!(missing, Vec::<(&str, &str)>::new());
}

fn collect_fields(schema: &serde_json::Value, visit: &mut dyn FnMut(&str)) {
    match schema {
        serde_json::Value::Object(map) => {
            for (key, value) in map {
                if let ("properties", Some(fields)) = (key.as_str(), value.as_object()) {
                    fields.keys().for_each(|name| visit(name));
                }
                collect_fields(value, visit);
            }
        }
        serde_json::Value::Array(list) => list.iter().for_each(|value| collect_fields(value, visit)),
        _ => {}
    }
}

/// `cargo run -p torc` works only if the package has a single program.
#[test]
fn the_first_command_of_the_readme_is_unambiguous() {
    let readme = fs::read_to_string(project_root().join("README.md")).unwrap();
    assert!(readme.contains("cargo run --release -p torc -- apply -f docs/examples/diamond.yaml"));
    assert!(project_root().join("docs/examples/diamond.yaml").exists());
    let manifest = fs::read_to_string(project_root().join("cli/Cargo.toml")).unwrap();
    assert_eq!(manifest.matches("[[bin]]").count(), 1, "cli has several programs");
}
