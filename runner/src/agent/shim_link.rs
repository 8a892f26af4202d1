//! The agent's end of the shim's socket: finds the shim in the state folder or starts one, and sends messages in
//! batches.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use crate::config::{RunnerConfig, RunnerError};
use crate::events::RunnerEvent;
use crate::protocol::{FromShim, Hello, JobExit, ShimJob, StartOrder, StartTemplate, ToShim, VERSION};
use crate::shim::shim_dir::ShimInfo;
use crate::shim::{READY, ShimArgs};

/// Time for a shim to start or to answer; a busy machine may need several seconds.
const SHIM_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval of the connection attempts while an earlier shim exits.
const CONNECT_RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// A connection to a shim.
pub struct ShimLink {
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
    defined: HashSet<u32>,
    /// The shim's process if this agent started it: then the agent must wait for it to avoid a zombie.
    child: Option<Child>,
}

/// The jobs and results that a shim held when the agent connected.
#[derive(Debug, Default)]
pub struct AdoptedState {
    /// True if the shim was already running; false if this agent started it.
    pub found: bool,
    pub running: Vec<ShimJob>,
    pub ended: Vec<JobExit>,
}

/// The result of a connection attempt.
enum ConnectOutcome {
    Accepted(Box<ShimLink>, AdoptedState),
    /// The shim is about to exit.
    Leaving(String),
    Refused(String),
    /// No shim is running.
    Absent,
}

impl ShimLink {
    fn new(stream: UnixStream) -> Self {
        let (input, output) = (Vec::new(), Vec::new());
        Self { stream, input, output, defined: HashSet::new(), child: None }
    }

    /// Connects to the shim in the state folder, or starts one.
    pub async fn open(
        config: &RunnerConfig,
        environment: &[(OsString, OsString)],
        observer: &impl Fn(RunnerEvent),
    ) -> Result<(Self, AdoptedState), RunnerError> {
        let mut child = None;
        let mut is_logged = false;
        let until = Instant::now() + SHIM_TIMEOUT;
        loop {
            match connect(&config.state_dir, environment).await.map_err(RunnerError::TalkToShim)? {
                ConnectOutcome::Accepted(mut link, mut adopted) => {
                    adopted.found = child.is_none();
                    link.child = child;
                    return Ok((*link, adopted));
                }
                ConnectOutcome::Refused(reason) => return Err(RunnerError::ShimRefused(reason)),
                ConnectOutcome::Leaving(reason) => {
                    if !std::mem::replace(&mut is_logged, true) {
                        observer(RunnerEvent::Problem {
                            message: format!("waiting for an earlier shim to exit: {reason}"),
                        });
                    }
                    sleep(CONNECT_RETRY_INTERVAL).await;
                }
                ConnectOutcome::Absent if child.is_some() && Instant::now() > until => {
                    return Err(RunnerError::StartShim("it does not answer".to_owned()));
                }
                // A shim that exits at once lost a race with another one, which is found in the next round.
                ConnectOutcome::Absent => child = start(config).await?,
            }
        }
    }

    /// Adds a message to the next batch.
    pub fn push(&mut self, message: &ToShim) {
        // These messages can always be serialized.
        if serde_json::to_writer(&mut self.output, message).is_ok() {
            self.output.push(b'\n');
        }
    }

    /// Orders a start, and sends the template first if this connection has not used it yet.
    pub fn start(&mut self, order: StartOrder, template: &StartTemplate) {
        if self.defined.insert(template.id) {
            self.push(&ToShim::Template(template.clone()));
        }
        self.push(&ToShim::Start(order));
    }

    pub async fn flush(&mut self) -> io::Result<()> {
        if self.output.is_empty() {
            return Ok(());
        }
        let sent = self.stream.write_all(&self.output).await;
        self.output.clear();
        sent
    }

    /// Waits for messages. Nothing is lost if the future is dropped.
    pub async fn receive(&mut self) -> io::Result<Vec<FromShim>> {
        loop {
            self.input.reserve(64 * 1024);
            if self.stream.read_buf(&mut self.input).await? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let Some(end) = self.input.iter().rposition(|byte| *byte == b'\n') else { continue };
            let lines = self.input[..end].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            // An unknown message of a newer shim is ignored: it cannot be about a job of this agent.
            let messages = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
            self.input.drain(..=end);
            return Ok(messages);
        }
    }

    /// Ends the connection, and waits until the shim has cleaned up.
    pub async fn leave(&mut self) {
        self.push(&ToShim::Goodbye);
        if self.flush().await.is_ok() {
            let gone = async { while self.receive().await.is_ok() {} };
            let _ = timeout(SHIM_TIMEOUT, gone).await;
        }
        if let Some(child) = &mut self.child {
            let _ = timeout(SHIM_TIMEOUT, child.wait()).await;
        }
    }
}

/// Connects to the shim in a folder, if there is one.
async fn connect(dir: &Path, environment: &[(OsString, OsString)]) -> io::Result<ConnectOutcome> {
    let Some(info) = ShimInfo::read(dir).filter(ShimInfo::is_alive) else { return Ok(ConnectOutcome::Absent) };
    let stream = match UnixStream::connect(&info.socket).await {
        Ok(stream) => stream,
        Err(error) => return Ok(ConnectOutcome::Leaving(error.to_string())),
    };
    let mut link = ShimLink::new(stream);
    link.push(&ToShim::Hello(Hello {
        version: VERSION,
        token: info.token,
        pid: std::process::id(),
        environment: environment.to_vec(),
    }));
    if let Err(error) = link.flush().await {
        return Ok(ConnectOutcome::Leaving(error.to_string()));
    }
    match timeout(SHIM_TIMEOUT, handshake(&mut link)).await {
        Ok(Ok(Handshake::Everything(adopted))) => Ok(ConnectOutcome::Accepted(Box::new(link), adopted)),
        Ok(Ok(Handshake::Refused { reason, leaving: true })) => Ok(ConnectOutcome::Leaving(reason)),
        Ok(Ok(Handshake::Refused { reason, leaving: false })) => Ok(ConnectOutcome::Refused(reason)),
        Ok(Err(error)) => Ok(ConnectOutcome::Leaving(error.to_string())),
        Err(_) => Ok(ConnectOutcome::Refused("it does not answer".to_owned())),
    }
}

enum Handshake {
    Everything(AdoptedState),
    Refused { reason: String, leaving: bool },
}

async fn handshake(link: &mut ShimLink) -> io::Result<Handshake> {
    let mut adopted = AdoptedState::default();
    let mut complete = false;
    while !complete {
        for message in link.receive().await? {
            match message {
                FromShim::Refused { reason, leaving } => return Ok(Handshake::Refused { reason, leaving }),
                FromShim::Running(job) => adopted.running.push(*job),
                // This includes a job that ends after the shim has sent its state.
                FromShim::Ended(ended) => adopted.ended.push(ended),
                FromShim::Ready => complete = true,
                _ => {}
            }
        }
    }
    Ok(Handshake::Everything(adopted))
}

/// Starts a shim and waits until it is ready; returns none if another shim already uses the folder.
async fn start(config: &RunnerConfig) -> Result<Option<Child>, RunnerError> {
    let failed = |error: io::Error| RunnerError::StartShim(error.to_string());
    let Some((program, args)) = config.shim_command.split_first() else {
        return Err(RunnerError::StartShim("no command was given".to_owned()));
    };
    let log_path = config.state_dir.join("shim.log");
    let log = File::create(&log_path).map_err(failed)?;
    let shim_args = ShimArgs { dir: config.state_dir.clone(), orphan_grace: config.orphan_grace };
    let mut child = Command::new(program)
        .args(args)
        .args(shim_args.to_args())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .map_err(failed)?;
    let Some(stdout) = child.stdout.take() else { return Ok(Some(child)) };
    let mut lines = BufReader::new(stdout).lines();
    let ready = async {
        while let Ok(Some(line)) = lines.next_line().await {
            if line == READY {
                return true;
            }
        }
        false
    };
    if timeout(SHIM_TIMEOUT, ready).await.unwrap_or(false) {
        return Ok(Some(child));
    }
    if ShimInfo::read(&config.state_dir).is_some_and(|info| info.is_alive()) {
        return Ok(None);
    }
    let said = fs::read_to_string(&log_path).unwrap_or_default();
    Err(RunnerError::StartShim(format!("it ended before it was ready: {}", said.trim())))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use torc_api::wire::AttemptKey;

    use super::*;

    /// Returns a link and the shim's end of it.
    fn pair() -> (ShimLink, UnixStream) {
        let (stream, shim) = UnixStream::pair().unwrap();
        (ShimLink::new(stream), shim)
    }

    fn line(message: &FromShim) -> Vec<u8> {
        let mut line = serde_json::to_vec(message).unwrap();
        line.push(b'\n');
        line
    }

    #[tokio::test]
    async fn messages_are_whole_lines_however_they_arrive() {
        let (mut link, mut shim) = pair();
        let (ready, revoked) = (FromShim::Ready, FromShim::Revoked(AttemptKey { job: 3, ..AttemptKey::default() }));
        let bytes = [line(&revoked), b"\n{\"newer\":1}\n".to_vec(), line(&ready)].concat();
        let (first, rest) = bytes.split_at(5);
        shim.write_all(first).await.unwrap();
        let part = timeout(Duration::from_millis(20), link.receive()).await;
        assert!(part.is_err(), "half a line is no message");
        shim.write_all(rest).await.unwrap();
        let received = link.receive().await.unwrap();
        assert_eq!(received, [revoked, ready], "what is not understood is left out");
        let half = line(&FromShim::Ready);
        shim.write_all(&[line(&FromShim::Ready), half[..3].to_vec()].concat()).await.unwrap();
        assert_eq!(link.receive().await.unwrap(), [FromShim::Ready]);
        shim.write_all(&half[3..]).await.unwrap();
        assert_eq!(link.receive().await.unwrap(), [FromShim::Ready], "the rest of a line is kept for its end");
        drop(shim);
        assert_eq!(link.receive().await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }

    #[tokio::test]
    async fn a_template_goes_before_its_first_use_and_only_then() {
        let (mut link, shim) = pair();
        link.flush().await.unwrap();
        let (one, two) =
            (StartTemplate { id: 1, ..StartTemplate::default() }, StartTemplate { id: 2, ..StartTemplate::default() });
        for template in [&one, &one, &two, &one] {
            link.start(StartOrder::default(), template);
        }
        link.flush().await.unwrap();
        let kinds: Vec<String> = said(link, shim)
            .await
            .into_iter()
            .map(|message| match message {
                ToShim::Template(template) => format!("template {}", template.id),
                ToShim::Start(_) => "start".to_owned(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(kinds, ["template 1", "start", "start", "template 2", "start", "start"]);
    }

    /// Returns the messages that a link has sent.
    async fn said(mut link: ShimLink, shim: UnixStream) -> Vec<ToShim> {
        link.flush().await.unwrap();
        drop(link);
        let mut lines = BufReader::new(shim).lines();
        let mut said = Vec::new();
        while let Some(line) = lines.next_line().await.unwrap() {
            said.push(serde_json::from_str(&line).unwrap());
        }
        said
    }

    #[tokio::test]
    async fn a_shim_is_heard_out_until_it_is_ready() {
        let observed = |messages: Vec<FromShim>| async move {
            let (mut link, mut shim) = pair();
            for message in &messages {
                shim.write_all(&line(message)).await.unwrap();
            }
            drop(shim);
            handshake(&mut link).await
        };
        let ended = || {
            let at = crate::clock::now();
            FromShim::Ended(JobExit::new(AttemptKey::default(), at, at, crate::protocol::Outcome::Exited(0)))
        };
        match observed(vec![ended(), FromShim::Ready, ended()]).await.unwrap() {
            Handshake::Everything(adopted) => assert_eq!((adopted.ended.len(), adopted.found), (2, false)),
            Handshake::Refused { reason, .. } => panic!("{reason}"),
        }
        for leaving in [true, false] {
            let refusal = FromShim::Refused { reason: "no".to_owned(), leaving };
            match observed(vec![ended(), refusal]).await.unwrap() {
                Handshake::Refused { reason, leaving: says } => assert_eq!((reason.as_str(), says), ("no", leaving)),
                Handshake::Everything(adopted) => panic!("{adopted:?}"),
            }
        }
        assert!(observed(vec![ended()]).await.is_err(), "it ended before it was ready");
    }

    #[tokio::test]
    async fn without_a_living_shim_there_is_nothing_to_call() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(connect(folder.path(), &[]).await, Ok(ConnectOutcome::Absent)));
    }

    /// Returns the listener of a place whose shim is this process.
    fn place(folder: &Path) -> tokio::net::UnixListener {
        let socket = folder.join("socket");
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        info(socket).write(folder).unwrap();
        listener
    }

    fn info(socket: std::path::PathBuf) -> ShimInfo {
        let own = crate::process::ProcessId::own();
        ShimInfo {
            pid: own.pid,
            start_ticks: own.start_ticks,
            boot_id: own.boot_id,
            socket,
            token: "secret".to_owned(),
        }
    }

    /// Answers one connection with these messages, and returns the received ones.
    async fn serve(listener: &tokio::net::UnixListener, answer: Vec<FromShim>) -> Vec<ToShim> {
        let (mut stream, _) = listener.accept().await.unwrap();
        for message in &answer {
            stream.write_all(&line(message)).await.unwrap();
        }
        let mut lines = BufReader::new(stream).lines();
        let mut said = Vec::new();
        while let Some(line) = lines.next_line().await.unwrap() {
            said.push(serde_json::from_str(&line).unwrap());
            if said.last() == Some(&ToShim::Goodbye) {
                break;
            }
        }
        said
    }

    fn config(folder: &Path, command: &[&str]) -> RunnerConfig {
        let command = command.iter().map(OsString::from).collect();
        RunnerConfig::new(folder.to_owned(), folder.to_owned(), command)
    }

    #[tokio::test]
    async fn a_shim_that_is_found_is_greeted_and_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let listener = place(folder.path());
        let order = StartOrder { name: "held".to_owned(), ..StartOrder::default() };
        let held = FromShim::Running(Box::new(ShimJob { order, ..ShimJob::default() }));
        let environment = vec![(OsString::from("A"), OsString::from("1"))];
        let (config, observed) = (config(folder.path(), &["no-such-program"]), std::cell::Cell::new(0));
        let observer = |_| observed.set(observed.get() + 1);
        let agent = async {
            let (mut link, adopted) = ShimLink::open(&config, &environment, &observer).await.unwrap();
            assert!(adopted.found && link.child.is_none(), "it was there before");
            assert_eq!(adopted.running.iter().map(|job| job.order.name.as_str()).collect::<Vec<_>>(), ["held"]);
            link.leave().await;
        };
        let (said, ()) = tokio::join!(serve(&listener, vec![held, FromShim::Ready]), agent);
        let hello = Hello {
            version: VERSION,
            token: "secret".to_owned(),
            pid: std::process::id(),
            environment: environment.clone(),
        };
        assert_eq!((said, observed.get()), (vec![ToShim::Hello(hello), ToShim::Goodbye], 0));
    }

    #[tokio::test]
    async fn a_refusal_is_an_error_and_a_leaving_shim_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let listener = place(folder.path());
        let refusal = |leaving| vec![FromShim::Refused { reason: "busy".to_owned(), leaving }];
        let problems = std::cell::RefCell::new(Vec::new());
        let observer = |event| problems.borrow_mut().push(event);
        let config = config(folder.path(), &["no-such-program"]);
        let shim = async {
            serve(&listener, refusal(true)).await;
            serve(&listener, refusal(true)).await;
            // A shim that closes the connection before it is ready is about to exit.
            drop(listener.accept().await.unwrap());
            serve(&listener, refusal(false)).await
        };
        let agent = async { ShimLink::open(&config, &[], &observer).await.map(|_| ()) };
        let (_, opened) = tokio::join!(shim, agent);
        assert!(matches!(opened, Err(RunnerError::ShimRefused(reason)) if reason == "busy"));
        let problems = problems.into_inner();
        assert_eq!(problems.len(), 1, "the wait is logged once: {problems:?}");
    }

    #[tokio::test]
    async fn data_of_a_dead_process_is_no_shim() {
        let folder = tempfile::tempdir().unwrap();
        let dead = ShimInfo { start_ticks: 1, ..info(folder.path().join("socket")) };
        dead.write(folder.path()).unwrap();
        assert!(matches!(connect(folder.path(), &[]).await, Ok(ConnectOutcome::Absent)));
        // The process is alive without a listener, so it is about to exit.
        info(folder.path().join("socket")).write(folder.path()).unwrap();
        assert!(matches!(connect(folder.path(), &[]).await, Ok(ConnectOutcome::Leaving(_))));
    }

    #[tokio::test]
    async fn a_shim_is_started_with_its_folder_and_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let script = format!("echo \"$@\" >{}/args; echo; echo ready", folder.path().display());
        let started = start(&config(folder.path(), &["sh", "-c", &script, "shim"])).await.unwrap();
        assert!(started.expect("a child of ours").wait().await.unwrap().success());
        let args = fs::read_to_string(folder.path().join("args")).unwrap();
        assert_eq!(args, format!("--dir {} --orphan-grace-ms 60000\n", folder.path().display()));
        let failed = |command: &'static [&'static str]| {
            let config = config(folder.path(), command);
            async move { start(&config).await.map(|_| ()).unwrap_err().to_string() }
        };
        let ended = "cannot start the shim: it ended before it was ready: no room";
        assert_eq!(failed(&["sh", "-c", "echo not ready; echo ' no room ' >&2"]).await, ended);
        assert_eq!(failed(&[]).await, "cannot start the shim: no command was given");
        assert!(failed(&["no-such-program-here"]).await.starts_with("cannot start the shim: "));
    }

    /// Another shim took the folder while this one was starting.
    #[tokio::test]
    async fn a_shim_that_lost_the_race_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        info(folder.path().join("socket")).write(folder.path()).unwrap();
        assert!(matches!(start(&config(folder.path(), &["true"])).await, Ok(None)));
    }
}
