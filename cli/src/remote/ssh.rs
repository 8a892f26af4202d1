//! Calls `ssh` to send requests to workers.

use std::fs::File;
use std::process::Stdio;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use torc_api::remote::WorkerAddress;

use super::request::{WorkerRequest, WorkerResponse, find_report, find_version};

/// The SSH command and the program on the workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ssh {
    /// The SSH program with arguments.
    pub program: Vec<String>,
    /// Options of the user for `ssh -o`; they take precedence over [`OPTIONS`].
    pub options: Vec<String>,
    /// The path of `torc` on the workers.
    pub torc: String,
}

/// Default options: no prompts, and no endless waits.
const OPTIONS: [&str; 6] = [
    "BatchMode=yes",
    "ConnectTimeout=30",
    "StrictHostKeyChecking=accept-new",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=4",
    "LogLevel=ERROR",
];

/// The error of a worker without a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerError {
    /// True if SSH could not connect.
    pub unreachable: bool,
    pub reason: String,
    pub advice: String,
}

impl Ssh {
    /// Returns the command line. ssh uses the first value of an option, so options of the user precede the defaults.
    fn words(&self, worker: &WorkerAddress) -> Vec<String> {
        let mut words = self.program.clone();
        for option in self.options.iter().map(String::as_str).chain(OPTIONS) {
            words.extend(["-o".to_owned(), option.to_owned()]);
        }
        words.push("-T".to_owned());
        if let Some(port) = worker.port {
            words.extend(["-p".to_owned(), port.to_string()]);
        }
        words.extend(["--".to_owned(), worker.destination(), self.line()]);
        words
    }

    /// Returns the command for the remote shell, whichever shell it is. It prints the version first, because an older `torc` may not know
    /// `remote-agent`.
    fn line(&self) -> String {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+~".contains(c);
        let torc = if self.torc.chars().all(is_plain) {
            self.torc.clone()
        } else {
            format!("'{}'", self.torc.replace('\'', r"'\''"))
        };
        format!("{torc} --version; {torc} remote-agent")
    }

    /// Sends a request to a worker and waits for its response.
    pub async fn send(&self, worker: &WorkerAddress, request: &WorkerRequest) -> Result<WorkerResponse, WorkerError> {
        let output = self.call(worker, request, Stdio::piped()).await?;
        find_report(&output.printed).ok_or_else(|| output.explain(self, worker))
    }

    /// Sends a request to a worker and writes its output to a file.
    pub async fn fetch(&self, worker: &WorkerAddress, request: &WorkerRequest, to: File) -> Result<(), WorkerError> {
        let output = self.call(worker, request, Stdio::from(to)).await?;
        if output.code == Some(0) { Ok(()) } else { Err(output.explain(self, worker)) }
    }

    async fn call(
        &self,
        worker: &WorkerAddress,
        request: &WorkerRequest,
        stdout: Stdio,
    ) -> Result<CallOutput, WorkerError> {
        let words = self.words(worker);
        let name = self.program.first().cloned().unwrap_or_default();
        let failed = |error: std::io::Error| WorkerError {
            unreachable: true,
            reason: format!("could not run {name}: {error}"),
            advice: "install an SSH client, or set TORC_SSH to one".to_owned(),
        };
        let mut command = Command::new(&name);
        command.args(words.get(1..).unwrap_or_default());
        command.stdin(Stdio::piped()).stdout(stdout).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(failed)?;
        let text = serde_json::to_vec(request).map_err(|error| failed(error.into()))?;
        if let Some(mut stdin) = child.stdin.take() {
            // If ssh exits early, its own message explains the error.
            let _ = stdin.write_all(&text).await;
        }
        let ended = child.wait_with_output().await.map_err(failed)?;
        Ok(CallOutput {
            code: ended.status.code(),
            printed: String::from_utf8_lossy(&ended.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&ended.stderr).into_owned(),
        })
    }
}

/// The exit code and the output of a call.
struct CallOutput {
    code: Option<i32>,
    printed: String,
    stderr: String,
}

impl CallOutput {
    fn explain(&self, ssh: &Ssh, worker: &WorkerAddress) -> WorkerError {
        explain(self.code, find_version(&self.printed), &self.stderr, ssh, worker)
    }
}

/// The version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

fn explain(code: Option<i32>, version: Option<&str>, stderr: &str, ssh: &Ssh, worker: &WorkerAddress) -> WorkerError {
    let last = stderr.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("it printed nothing").to_owned();
    match (code, version) {
        (_, Some(version)) if version != VERSION => WorkerError {
            unreachable: false,
            reason: format!("torc on that machine has version {version}, this torc has version {VERSION}"),
            advice: same_version(),
        },
        (Some(255), None) => WorkerError { unreachable: true, advice: connection_advice(&last, worker), reason: last },
        (Some(126 | 127), _) => WorkerError {
            unreachable: false,
            reason: format!("the program `{}` does not exist on that machine: {last}", ssh.torc),
            advice: "install torc in the PATH of SSH logins there, or name its path with --remote-torc".to_owned(),
        },
        (Some(255) | None, _) => {
            WorkerError { unreachable: true, advice: connection_advice(&last, worker), reason: last }
        }
        _ => WorkerError {
            unreachable: false,
            reason: last,
            advice: format!("test it with `ssh {} {} --version`", worker.destination(), ssh.torc),
        },
    }
}

/// Returns the advice for different versions.
pub fn same_version() -> String {
    format!("install torc {VERSION} there, or pass --skip-version-check if both versions are compatible")
}

fn connection_advice(stderr: &str, worker: &WorkerAddress) -> String {
    let port = worker.port.map_or_else(String::new, |port| format!("-p {port} "));
    let destination = worker.destination();
    if stderr.contains("Permission denied") {
        return format!(
            "ssh must log in without a password: run `ssh-copy-id {port}{destination}`, or add a key to ssh-agent"
        );
    }
    if stderr.contains("verification failed") {
        return format!("the machine's host key has changed: run `ssh-keygen -R {}` if that is expected", worker.host);
    }
    format!("check whether `ssh {port}{destination} true` works")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ssh(torc: &str) -> Ssh {
        let program = ["ssh", "-F", "conf"].map(str::to_owned).to_vec();
        Ssh { program, options: vec!["ConnectTimeout=5".to_owned()], torc: torc.to_owned() }
    }

    fn worker(text: &str) -> WorkerAddress {
        text.parse().expect("an address")
    }

    // J04
    #[test]
    fn ssh_never_prompts_and_options_of_the_user_come_first() {
        let words = ssh("torc").words(&worker("alice@n1:2222")).join(" ");
        let expected = "ssh -F conf -o ConnectTimeout=5 -o BatchMode=yes -o ConnectTimeout=30 \
            -o StrictHostKeyChecking=accept-new -o ServerAliveInterval=15 -o ServerAliveCountMax=4 -o LogLevel=ERROR \
            -T -p 2222 -- alice@n1 torc --version; torc remote-agent";
        assert_eq!(words, expected);
    }

    #[test]
    fn paths_are_quoted_except_for_the_home_folder() {
        assert_eq!(ssh("~/bin/torc").line(), "~/bin/torc --version; ~/bin/torc remote-agent");
        assert_eq!(ssh("/a b/it's").line(), r"'/a b/it'\''s' --version; '/a b/it'\''s' remote-agent");
    }

    #[test]
    fn every_error_has_advice() {
        let (ssh, worker) = (ssh("torc"), worker("n1"));
        let trouble = |code, version, stderr| explain(code, version, stderr, &ssh, &worker);
        let denied = trouble(Some(255), None, "alice@n1: Permission denied (publickey).\n");
        assert!(denied.unreachable && denied.advice.contains("ssh-copy-id n1"), "{denied:?}");
        let refused = trouble(Some(255), None, "ssh: connect to host n1 port 22: Connection refused\n");
        assert!(refused.unreachable && refused.advice.contains("ssh n1 true"), "{refused:?}");
        let changed = trouble(Some(255), None, "Host key verification failed.");
        assert!(changed.advice.contains("ssh-keygen -R n1"), "{changed:?}");
        let missing = trouble(Some(127), None, "bash: line 1: torc: command not found");
        assert!(!missing.unreachable && missing.advice.contains("--remote-torc"), "{missing:?}");
        let old = trouble(Some(2), Some("0.0.1"), "error: unrecognized subcommand 'remote-agent'");
        assert!(!old.unreachable && old.reason.contains("version 0.0.1"), "{old:?}");
        // A connection that broke during the call.
        assert!(trouble(Some(255), Some(VERSION), "client_loop: send disconnect: Broken pipe").unreachable);
        assert!(!trouble(Some(1), Some(VERSION), "error: disk full").unreachable);
    }
}
