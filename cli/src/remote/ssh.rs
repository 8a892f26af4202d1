//! Calls of ssh.

use std::fs::File;
use std::process::Stdio;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use torc_api::remote::WorkerAddress;

use super::request::{WorkerRequest, WorkerResponse, find_report, find_version};

/// How ssh is called, and what runs at the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ssh {
    /// The program and its first words.
    pub program: Vec<String>,
    /// More options, as `ssh -o` takes them; they win over ours.
    pub options: Vec<String>,
    /// The program `torc` on the workers.
    pub torc: String,
}

/// What keeps a call from asking a person or from waiting for ever.
const OPTIONS: [&str; 6] = [
    "BatchMode=yes",
    "ConnectTimeout=30",
    "StrictHostKeyChecking=accept-new",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=4",
    "LogLevel=ERROR",
];

/// Why a worker did not report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Whether nobody could be talked to at all.
    pub unreachable: bool,
    /// What happened.
    pub reason: String,
    /// What to do about it.
    pub advice: String,
}

impl Ssh {
    /// The words of a call. ssh takes the first of several values of an option, so a person's come before ours.
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

    /// What the shell over there runs, whichever shell that is. The version comes first, for a program that knows no more.
    fn line(&self) -> String {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+~".contains(c);
        let torc = if self.torc.chars().all(is_plain) {
            self.torc.clone()
        } else {
            format!("'{}'", self.torc.replace('\'', r"'\''"))
        };
        format!("{torc} --version; {torc} remote-agent")
    }

    /// Gives a worker an order and waits for its report.
    pub async fn order(&self, worker: &WorkerAddress, order: &WorkerRequest) -> Result<WorkerResponse, Trouble> {
        let called = self.call(worker, order, Stdio::piped()).await?;
        find_report(&called.printed).ok_or_else(|| called.explain(self, worker))
    }

    /// Gives a worker an order whose answer is long: it goes to a file.
    pub async fn fetch(&self, worker: &WorkerAddress, order: &WorkerRequest, to: File) -> Result<(), Trouble> {
        let called = self.call(worker, order, Stdio::from(to)).await?;
        if called.code == Some(0) { Ok(()) } else { Err(called.explain(self, worker)) }
    }

    async fn call(&self, worker: &WorkerAddress, order: &WorkerRequest, stdout: Stdio) -> Result<Called, Trouble> {
        let words = self.words(worker);
        let name = self.program.first().cloned().unwrap_or_default();
        let failed = |error: std::io::Error| Trouble {
            unreachable: true,
            reason: format!("could not run {name}: {error}"),
            advice: "install an SSH client, or name one with TORC_SSH".to_owned(),
        };
        let mut command = Command::new(&name);
        command.args(words.get(1..).unwrap_or_default());
        command.stdin(Stdio::piped()).stdout(stdout).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(failed)?;
        let text = serde_json::to_vec(order).map_err(|error| failed(error.into()))?;
        if let Some(mut stdin) = child.stdin.take() {
            // One that ends early says why in its own words.
            let _ = stdin.write_all(&text).await;
        }
        let ended = child.wait_with_output().await.map_err(failed)?;
        Ok(Called {
            code: ended.status.code(),
            printed: String::from_utf8_lossy(&ended.stdout).into_owned(),
            said: String::from_utf8_lossy(&ended.stderr).into_owned(),
        })
    }
}

/// How a call ended.
struct Called {
    code: Option<i32>,
    printed: String,
    said: String,
}

impl Called {
    fn explain(&self, ssh: &Ssh, worker: &WorkerAddress) -> Trouble {
        explain(self.code, find_version(&self.printed), &self.said, ssh, worker)
    }
}

/// The version of this program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

fn explain(code: Option<i32>, version: Option<&str>, said: &str, ssh: &Ssh, worker: &WorkerAddress) -> Trouble {
    let last = said.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("it said nothing").to_owned();
    match (code, version) {
        (_, Some(version)) if version != VERSION => Trouble {
            unreachable: false,
            reason: format!("torc there is version {version}, and here it is {VERSION}"),
            advice: same_version(),
        },
        (Some(255), None) => Trouble { unreachable: true, advice: advice_of(&last, worker), reason: last },
        (Some(126 | 127), _) => Trouble {
            unreachable: false,
            reason: format!("there is no program `{}` on that machine: {last}", ssh.torc),
            advice: "install torc there in the PATH of a login over SSH, or say where it is with --remote-torc"
                .to_owned(),
        },
        (Some(255) | None, _) => Trouble { unreachable: true, advice: advice_of(&last, worker), reason: last },
        _ => Trouble {
            unreachable: false,
            reason: last,
            advice: format!("try it by hand: ssh {} {} --version", worker.destination(), ssh.torc),
        },
    }
}

/// What to do about different versions.
pub fn same_version() -> String {
    format!("install torc {VERSION} there, or pass --skip-version-check if you know that both understand each other")
}

fn advice_of(said: &str, worker: &WorkerAddress) -> String {
    let port = worker.port.map_or_else(String::new, |port| format!("-p {port} "));
    let destination = worker.destination();
    if said.contains("Permission denied") {
        return format!(
            "ssh has to log in without asking: `ssh-copy-id {port}{destination}`, or add a key to ssh-agent"
        );
    }
    if said.contains("verification failed") {
        return format!(
            "the machine's key is not the one that is known: `ssh-keygen -R {}` if that is right",
            worker.host
        );
    }
    format!("see whether `ssh {port}{destination} true` works")
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
    fn ssh_never_asks_and_a_persons_options_win() {
        let words = ssh("torc").words(&worker("alice@n1:2222")).join(" ");
        let expected = "ssh -F conf -o ConnectTimeout=5 -o BatchMode=yes -o ConnectTimeout=30 \
            -o StrictHostKeyChecking=accept-new -o ServerAliveInterval=15 -o ServerAliveCountMax=4 -o LogLevel=ERROR \
            -T -p 2222 -- alice@n1 torc --version; torc remote-agent";
        assert_eq!(words, expected);
    }

    #[test]
    fn strange_paths_are_quoted_and_a_home_is_not() {
        assert_eq!(ssh("~/bin/torc").line(), "~/bin/torc --version; ~/bin/torc remote-agent");
        assert_eq!(ssh("/a b/it's").line(), r"'/a b/it'\''s' --version; '/a b/it'\''s' remote-agent");
    }

    #[test]
    fn every_trouble_says_what_to_do() {
        let (ssh, worker) = (ssh("torc"), worker("n1"));
        let trouble = |code, version, said| explain(code, version, said, &ssh, &worker);
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
        // A connection that broke in the middle.
        assert!(trouble(Some(255), Some(VERSION), "client_loop: send disconnect: Broken pipe").unreachable);
        assert!(!trouble(Some(1), Some(VERSION), "error: disk full").unreachable);
    }
}
