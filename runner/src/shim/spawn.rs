//! Starts processes: resolves environment, program and streams, and reports errors with the exit codes of a shell.
//!
//! `Command` uses `posix_spawn` with the settings that this module makes. Programs are looked up here, because
//! `Command` would fork to look them up in a changed PATH.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::protocol::{Outcome, StartOrder, StartTemplate};

/// The variable that marks all processes of a shim.
pub const SHIM_VARIABLE: &str = "TORC_SHIM";
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A template with its complete environment.
#[derive(Debug)]
pub struct PreparedTemplate {
    /// The template from the agent.
    pub template: StartTemplate,
    environment: Vec<(OsString, OsString)>,
    search_path: OsString,
}

impl PreparedTemplate {
    /// Combines the template's variables with the inherited ones. The shim's mark is never inherited.
    pub fn new(template: StartTemplate, inherited: &[(OsString, OsString)], shim: &str) -> Self {
        let mut environment: HashMap<OsString, OsString> = inherited.iter().cloned().collect();
        for name in &template.unset {
            environment.remove(OsStr::new(name));
        }
        environment.extend(template.env.iter().map(|(name, value)| (name.into(), value.into())));
        environment.insert(SHIM_VARIABLE.into(), shim.into());
        let search_path = environment.get(OsStr::new("PATH")).cloned().unwrap_or_else(|| DEFAULT_PATH.into());
        Self { template, environment: environment.into_iter().collect(), search_path }
    }
}

/// Cache of program lookups.
#[derive(Debug, Default)]
pub struct ProgramCache {
    found: HashMap<(OsString, PathBuf, String), PathBuf>,
}

impl ProgramCache {
    /// Returns the file of a program, as a shell in the template's folder finds it.
    fn find(&mut self, name: &str, prepared: &PreparedTemplate) -> Option<PathBuf> {
        if name.contains('/') {
            return Some(PathBuf::from(name));
        }
        let working_dir = PathBuf::from(&prepared.template.working_dir);
        let place = (prepared.search_path.clone(), working_dir, name.to_owned());
        if let Some(found) = self.found.get(&place).filter(|path| is_executable(path)) {
            return Some(found.clone());
        }
        let found = std::env::split_paths(&prepared.search_path)
            .map(|dir| place.1.join(dir).join(name))
            .find(|path| is_executable(path))?;
        self.found.insert(place, found.clone());
        Some(found)
    }

    /// Starts a job and returns its PID.
    pub fn spawn(
        &mut self,
        prepared: &PreparedTemplate,
        order: &StartOrder,
        outputs: (Stdio, Stdio),
    ) -> Result<i32, Outcome> {
        let Some(name) = order.argv.first() else { return Err(not_started(126, "the command is empty")) };
        let Some(program) = self.find(name, prepared) else {
            return Err(not_started(127, format!("{name}: program not found")));
        };
        let mut command = Command::new(&program);
        command
            .arg0(name)
            .args(&order.argv[1..])
            .env_clear()
            .envs(prepared.environment.iter().map(|(name, value)| (name, value)))
            .envs(order.env.iter().map(|(name, value)| (name, value)))
            .current_dir(&prepared.template.working_dir)
            .stdin(Stdio::null())
            .stdout(outputs.0)
            .stderr(outputs.1)
            .process_group(0);
        match command.spawn() {
            Ok(child) => Ok(i32::try_from(child.id()).unwrap_or(i32::MAX)),
            Err(error) => Err(explain(name, &prepared.template.working_dir, &error)),
        }
    }
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

fn explain(program: &str, working_dir: &str, error: &io::Error) -> Outcome {
    if !Path::new(working_dir).is_dir() {
        return not_started(126, format!("the working folder {working_dir} does not exist"));
    }
    let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
    not_started(code, format!("{program}: {error}"))
}

/// Returns the outcome of a job that never ran.
pub fn not_started(code: i32, message: impl Into<String>) -> Outcome {
    Outcome::NotStarted { code, message: message.into() }
}
