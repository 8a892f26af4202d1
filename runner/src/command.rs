//! Conversion of a job's command to a program and its arguments.
//!
//! The shell is left out only where it makes no difference: the command consists of plain words, and the first word is
//! a program. All other commands go to `bash -c`.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};

#[cfg(test)]
mod tests;

/// The part of the environment that changes how bash reads a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShellSetup {
    /// True if bash reads a file before every command (`BASH_ENV`).
    reads_file: bool,
    /// Functions in the environment, e.g. `module` on many clusters.
    functions: BTreeSet<String>,
}

impl ShellSetup {
    /// Reads what bash would find in these variables.
    pub fn of<'a>(environment: impl IntoIterator<Item = (&'a OsStr, &'a OsStr)>) -> Self {
        let mut setup = Self::default();
        for (name, value) in environment {
            setup.add(&name.to_string_lossy(), value);
        }
        setup
    }

    /// Returns the setup with more variables.
    pub fn with<'a>(&self, more: impl IntoIterator<Item = (&'a String, &'a String)>) -> Self {
        let mut setup = self.clone();
        for (name, value) in more {
            setup.add(name, OsStr::new(value));
        }
        setup
    }

    fn add(&mut self, name: &str, value: &OsStr) {
        if name == "BASH_ENV" {
            self.reads_file = !value.is_empty();
        }
        if let Some(function) = name.strip_prefix("BASH_FUNC_") {
            let end = function.find(['%', '(']).unwrap_or(function.len());
            self.functions.insert(function[..end].to_owned());
        }
    }
}

/// Returns the text for the shell. A script of one line precedes the command on the same line, a longer one on lines of
/// its own.
pub fn shell_text(command: &str, invocation_script: Option<&str>) -> String {
    let script = invocation_script.map(str::trim).filter(|script| !script.is_empty());
    match script {
        None => command.to_owned(),
        Some(script) if script.contains('\n') => format!("{script}\n{command}"),
        Some(prefix) => format!("{prefix} {command}"),
    }
}

/// Returns program and arguments for a command.
pub fn argv(command: &str, invocation_script: Option<&str>, shell: &ShellSetup) -> Vec<String> {
    let text = shell_text(command, invocation_script);
    match plain_words(&text, shell) {
        Some(words) => words,
        None => vec!["bash".to_owned(), "-c".to_owned(), text],
    }
}

/// Returns the words of a command, if a shell would only split it at blanks and run it.
fn plain_words(text: &str, shell: &ShellSetup) -> Option<Vec<String>> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./,:+@%=".contains(c) || c == ' ' || c == '\t';
    if shell.reads_file || !text.chars().all(is_plain) {
        return None;
    }
    let words: Vec<String> = text.split_ascii_whitespace().map(str::to_owned).collect();
    let program = words.first()?;
    // `A=1 program` is an assignment, `%1` is a job of the shell, `.` reads a file, and `-x` is an option.
    let is_program = program.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '/' || c == '.' || c == '_')
        && program != "."
        && !program.contains('=')
        && !is_shell_word(program)
        && !shell.functions.contains(program);
    is_program.then_some(words)
}

/// Returns whether a word is a keyword or a builtin of bash. `true` and `false` are left out, because the programs
/// behave the same.
fn is_shell_word(word: &str) -> bool {
    const WORDS: &[&str] = &[
        "alias",
        "bg",
        "bind",
        "break",
        "builtin",
        "caller",
        "case",
        "cd",
        "command",
        "compgen",
        "complete",
        "compopt",
        "continue",
        "coproc",
        "declare",
        "dirs",
        "disown",
        "do",
        "done",
        "echo",
        "elif",
        "else",
        "enable",
        "esac",
        "eval",
        "exec",
        "exit",
        "export",
        "fc",
        "fg",
        "fi",
        "for",
        "function",
        "getopts",
        "hash",
        "help",
        "history",
        "if",
        "in",
        "jobs",
        "kill",
        "let",
        "local",
        "logout",
        "mapfile",
        "popd",
        "printf",
        "pushd",
        "pwd",
        "read",
        "readarray",
        "readonly",
        "return",
        "select",
        "set",
        "shift",
        "shopt",
        "source",
        "suspend",
        "test",
        "then",
        "time",
        "times",
        "trap",
        "type",
        "typeset",
        "ulimit",
        "umask",
        "unalias",
        "unset",
        "until",
        "wait",
        "while",
    ];
    WORDS.binary_search(&word).is_ok()
}

/// Signals that may ask a job to end.
const SIGNALS: [(&str, i32); 6] =
    [("SIGTERM", 15), ("SIGHUP", 1), ("SIGINT", 2), ("SIGKILL", 9), ("SIGUSR1", 10), ("SIGUSR2", 12)];

/// Returns the number of a signal; the prefix `SIG` is optional. Unknown names mean SIGTERM.
pub fn termination_signal(name: Option<&str>) -> i32 {
    let name = name.unwrap_or_default().trim().to_ascii_uppercase();
    let is_meant = |known: &str| known == name || known.strip_prefix("SIG") == Some(name.as_str());
    SIGNALS.into_iter().find(|(known, _)| is_meant(known)).map_or(15, |(_, number)| number)
}

/// Returns the name of a signal.
pub fn signal_name(signal: i32) -> &'static str {
    SIGNALS.into_iter().find(|(_, number)| *number == signal).map_or("SIGTERM", |(name, _)| name)
}

/// Returns the variables with a job's GPUs; none for a job without GPUs.
pub fn device_variables(devices: &[String]) -> Vec<(String, String)> {
    if devices.is_empty() {
        return Vec::new();
    }
    let list = devices.join(",");
    ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "TORC_GPU_VISIBLE_DEVICES"]
        .into_iter()
        .map(|name| (name.to_owned(), list.clone()))
        .collect()
}

/// Returns the environment as pairs, for [`ShellSetup::of`].
pub fn pairs(environment: &[(OsString, OsString)]) -> impl Iterator<Item = (&OsStr, &OsStr)> {
    environment.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))
}
