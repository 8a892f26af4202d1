//! Runs Slurm's commands. This is the only module that starts processes.
//!
//! Every call ends with an answer, a refusal, or its timeout. Calls do not block threads, so a slow one delays no other.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

use crate::call::{CommandSpec, Tool};
use crate::error::{ProgramEnd, SlurmError, error_of};
use crate::retry::RetrySchedule;

/// Maximum size of an answer; a longer one counts as incomplete. A queue of 100,000 jobs prints about 20 MB.
const MAX_ANSWER_BYTES: u64 = 256 << 20;
/// Maximum size of the standard error that is kept.
const MAX_STDERR_BYTES: u64 = 64 << 10;

/// Timeout for writing a small file.
const FILE_WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// A Slurm and the command prefix that leads to it.
#[derive(Clone, Debug, Default)]
pub struct Slurm {
    prefix: Vec<String>,
    replaced: Vec<(Tool, String)>,
}

/// The standard output and standard error of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub text: String,
    /// Its standard error: `sbatch --test-only` answers there, and `sstat` complains about steps that have ended.
    pub remarks: String,
}

impl Slurm {
    /// Returns the Slurm of this machine, or the one behind a command prefix such as `ssh login1`.
    pub fn new(prefix: &[String]) -> Self {
        Self { prefix: prefix.to_vec(), replaced: Vec::new() }
    }

    /// Replaces Slurm's programs where `TORC_FAKE_SQUEUE` and the like are set.
    pub fn replaced_by(mut self, variable: impl Fn(&str) -> Option<String>) -> Self {
        let replacement =
            |tool: Tool| Some((tool, variable(tool.replacement_variable()).filter(|path| !path.is_empty())?));
        self.replaced = Tool::ALL.into_iter().filter_map(replacement).collect();
        self
    }

    /// Returns the program that is run for a tool.
    pub fn program(&self, tool: Tool) -> &str {
        self.replaced.iter().find(|(replaced, _)| *replaced == tool).map_or(tool.name(), |(_, program)| program)
    }

    /// Makes a call once, without repetition.
    pub async fn ask(&self, call: &CommandSpec) -> Result<Answer, SlurmError> {
        let program = self.program(call.tool);
        let mut child = self.spawn(call, program)?;
        let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let outcome = tokio::time::timeout(call.timeout, communicate(&mut child, call.input.as_deref())).await;
        let no_answer = |reason: String| SlurmError::NoAnswer { reason, maybe_delivered: true };
        let ended = match outcome {
            Ok(ended) => ended.map_err(|error| no_answer(format!("{program}: {error}"))),
            Err(_) => Err(no_answer(format!("{program} took longer than {} s", call.timeout.as_secs_f32()))),
        };
        if ended.is_err() {
            end(&mut child, group).await;
        }
        let (status, text, remarks) = ended?;
        let through_ssh = self.prefix.first().is_some_and(|word| word.rsplit('/').next() == Some("ssh"));
        match error_of(program, end_of(status), &text, &remarks, through_ssh) {
            None => Ok(Answer { text, remarks }),
            Some(trouble) => Err(trouble),
        }
    }

    /// Makes a call and repeats it while Slurm does not answer and a repetition is harmless.
    pub async fn query_with_retries(&self, call: &CommandSpec, schedule: RetrySchedule) -> Result<Answer, SlurmError> {
        let mut failed = 0;
        loop {
            let trouble = match self.ask(call).await {
                Ok(answer) => return Ok(answer),
                Err(trouble) => trouble,
            };
            failed += 1;
            match schedule.delay_after(failed) {
                Some(delay) if trouble.may_be_repeated(call.tool.is_read_only()) => tokio::time::sleep(delay).await,
                _ => return Err(trouble),
            }
        }
    }

    /// Writes a file on the machine of Slurm's commands, readable only by its owner.
    pub async fn write_file(&self, path: &str, content: &str) -> Result<(), SlurmError> {
        // The file is renamed when it is complete: a runner that starts meanwhile must not read half of it.
        let script =
            "umask 077 && mkdir -p -- \"$(dirname -- \"$1\")\" && cat >\"$1.new\" && mv -f -- \"$1.new\" \"$1\"";
        self.run_shell(script, path, Some(content)).await
    }

    /// Creates a folder and its parents on the machine of Slurm's commands.
    pub async fn make_folder(&self, path: &str) -> Result<(), SlurmError> {
        self.run_shell("mkdir -p -- \"$1\"", path, None).await
    }

    /// Removes a file on the machine of Slurm's commands.
    pub async fn remove_file(&self, path: &str) -> Result<(), SlurmError> {
        self.run_shell("rm -f -- \"$1\"", path, None).await
    }

    async fn run_shell(&self, script: &str, path: &str, input: Option<&str>) -> Result<(), SlurmError> {
        let arguments = ["-c", script, "sh", path].map(str::to_owned).to_vec();
        let call =
            CommandSpec { tool: Tool::Shell, arguments, input: input.map(str::to_owned), timeout: FILE_WRITE_TIMEOUT };
        self.ask(&call).await.map(drop)
    }

    /// Returns the command of a call, in a process group of its own.
    fn command(&self, call: &CommandSpec, program: &str) -> Command {
        let invocation = call.invocation(&self.prefix, program);
        let mut command = Command::new(&invocation.program);
        command.args(&invocation.arguments).envs(invocation.set).process_group(0).kill_on_drop(true);
        for name in &invocation.unset {
            command.env_remove(name);
        }
        let stdin = if call.input.is_some() { Stdio::piped() } else { Stdio::null() };
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn spawn(&self, call: &CommandSpec, program: &str) -> Result<Child, SlurmError> {
        let mut command = self.command(call, program);
        let started = command.as_std().get_program().to_string_lossy().into_owned();
        command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => {
                SlurmError::Missing { program: started.clone() }
            }
            _ => SlurmError::NoAnswer { reason: format!("{started}: {error}"), maybe_delivered: false },
        })
    }
}

/// Writes the standard input and reads the output until the program ends.
async fn communicate(child: &mut Child, input: Option<&str>) -> io::Result<(ExitStatus, String, String)> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let talk = async {
        if let (Some(mut stdin), Some(input)) = (stdin, input) {
            // A program may close its standard input early; its output has the result.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
    };
    let listen = async {
        let (text, remarks) = tokio::join!(read(stdout, MAX_ANSWER_BYTES), read(stderr, MAX_STDERR_BYTES));
        let (text, whole) = text?;
        if !whole {
            return Err(io::Error::other("the output is too long"));
        }
        Ok((child.wait().await?, text, remarks?.0))
    };
    let ((), heard) = tokio::join!(talk, listen);
    heard
}

/// Reads to the end, keeps the first bytes, and returns whether these are all.
async fn read(source: Option<impl AsyncRead + Unpin>, max_delay: u64) -> io::Result<(String, bool)> {
    let Some(mut source) = source else { return Ok((String::new(), true)) };
    let mut bytes = Vec::new();
    (&mut source).take(max_delay).read_to_end(&mut bytes).await?;
    let rest = tokio::io::copy(&mut source, &mut tokio::io::sink()).await?;
    Ok((String::from_utf8_lossy(&bytes).into_owned(), rest == 0))
}

/// Kills a program and all processes that it started.
async fn end(child: &mut Child, group: Option<Pid>) {
    if let Some(group) = group {
        // The group may have ended already.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = tokio::time::timeout(Duration::from_secs(5), child.wait()).await;
}

fn end_of(status: ExitStatus) -> ProgramEnd {
    match (status.code(), status.signal()) {
        (Some(code), _) => ProgramEnd::Code(code),
        (None, _) => ProgramEnd::Signal,
    }
}

#[cfg(test)]
mod tests;
