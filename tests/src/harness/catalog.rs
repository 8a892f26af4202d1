//! The test binaries that cargo has built, and the tests in them.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

/// A test binary that cargo has built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binary {
    pub package: String,
    /// The name of the target within its package.
    pub target: String,
    pub executable: PathBuf,
    /// The folder in which cargo starts its tests.
    pub package_folder: PathBuf,
}

/// One test of a binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Test {
    pub binary: Binary,
    /// Its path within the binary, as libtest prints it.
    pub name: String,
}

impl Test {
    /// Returns the name in the summary, which `--exact` takes.
    pub fn full_name(&self) -> String {
        format!("{} {}", self.binary.target, self.name)
    }
}

#[derive(Deserialize)]
struct Message {
    reason: String,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Reads the output of `cargo test --no-run --message-format json`.
pub fn parse_binaries(messages: &str) -> Result<Vec<Binary>> {
    let mut binaries = Vec::new();
    for line in messages.lines().filter(|line| line.starts_with('{')) {
        let message: Message =
            serde_json::from_str(line).with_context(|| format!("cannot parse a message of cargo: {line}"))?;
        binaries.extend(binary(message));
    }
    ensure!(!binaries.is_empty(), "cargo has built no test binary");
    Ok(binaries)
}

fn binary(message: Message) -> Option<Binary> {
    let is_test = message.reason == "compiler-artifact" && message.profile?.test;
    let (target, executable) = (message.target?, message.executable?);
    let package_folder = message.manifest_path?.parent()?.to_owned();
    let manifest = std::fs::read_to_string(package_folder.join("Cargo.toml")).ok()?;
    let package = manifest.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'))?.to_owned();
    is_test.then_some(Binary { package, target: target.name, executable, package_folder })
}

/// Returns the tests that a binary lists.
pub fn list_tests(binary: &Binary) -> Result<Vec<Test>> {
    let output = Command::new(&binary.executable).args(["--list", "--format", "terse"]).output();
    let output = output.with_context(|| format!("{} --list", binary.executable.display()))?;
    ensure!(output.status.success(), "{} --list: {}", binary.executable.display(), output.status);
    let names = String::from_utf8_lossy(&output.stdout);
    let names = names.lines().filter_map(|line| line.strip_suffix(": test"));
    Ok(names.map(|name| Test { binary: binary.clone(), name: name.to_owned() }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_test_binaries_are_taken_from_the_messages_of_cargo() {
        let here = env!("CARGO_MANIFEST_DIR");
        let message = |kind: &str, name: &str, is_test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"{here}/Cargo.toml","target":{{"name":"{name}","kind":["{kind}"]}},"profile":{{"test":{is_test}}},"executable":{executable}}}"#
            )
        };
        let messages = [
            message("lib", "torc_tests", false, "null"),
            message("lib", "torc_tests", true, r#""/t/deps/torc_tests-1""#),
            message("bin", "torc-bench", false, r#""/t/torc-bench""#),
            message("bin", "torc-bench", true, r#""/t/deps/torc_bench-2""#),
            "   Compiling something".to_owned(),
            message("test", "blackbox", true, r#""/t/deps/blackbox-3""#),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let found = parse_binaries(&messages.join("\n")).expect("messages");
        let found: Vec<(&str, &str, &str)> = found
            .iter()
            .map(|binary| {
                (binary.package.as_str(), binary.target.as_str(), binary.executable.to_str().expect("a path"))
            })
            .collect();
        assert_eq!(
            found,
            [
                ("torc-tests", "torc_tests", "/t/deps/torc_tests-1"),
                ("torc-tests", "torc-bench", "/t/deps/torc_bench-2"),
                ("torc-tests", "blackbox", "/t/deps/blackbox-3"),
            ]
        );
        assert!(parse_binaries(r#"{"reason":"build-finished","success":true}"#).is_err(), "no binary is an error");
    }
}
