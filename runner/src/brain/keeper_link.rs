//! The brain's end of the keeper's socket: finds the keeper of a place, starts one where there is none, talks in batches.

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

use crate::clock::Moment;
use crate::config::{RunnerConfig, RunnerError};
use crate::events::RunnerEvent;
use crate::keeper::place::Card;
use crate::keeper::{KeeperArgs, READY};
use crate::protocol::{Ended, FromKeeper, HEARTBEAT_VERSION, HeldJob, Hello, StartOrder, Template, ToKeeper, VERSION};

/// How long a keeper may take to start, or to answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between looks at a keeper that is about to leave.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A keeper, connected.
pub struct KeeperLink {
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
    defined: HashSet<u32>,
    /// The version of the shim's messages.
    version: u32,
    /// Present if this process started it: then it has to be collected.
    child: Option<Child>,
}

/// What a keeper held when it was found.
#[derive(Debug, Default)]
pub struct Takeover {
    /// It was there before this process came.
    pub found: bool,
    pub running: Vec<HeldJob>,
    pub ended: Vec<Ended>,
}

/// What became of a call.
enum Called {
    Accepted(Box<KeeperLink>, Takeover),
    /// It will be gone soon.
    Leaving(String),
    Refused(String),
    /// Nobody is there.
    Absent,
}

impl KeeperLink {
    fn new(stream: UnixStream) -> Self {
        let (input, output) = (Vec::new(), Vec::new());
        Self { stream, input, output, defined: HashSet::new(), version: 0, child: None }
    }

    /// Takes over the keeper of the place, or starts one.
    pub async fn open(
        config: &RunnerConfig,
        environment: &[(OsString, OsString)],
        observer: &impl Fn(RunnerEvent),
    ) -> Result<(Self, Takeover), RunnerError> {
        let mut child = None;
        let mut told = false;
        let until = Instant::now() + PATIENCE;
        loop {
            match call(&config.state_dir, environment).await.map_err(RunnerError::TalkToKeeper)? {
                Called::Accepted(mut link, mut takeover) => {
                    takeover.found = child.is_none();
                    link.child = child;
                    return Ok((*link, takeover));
                }
                Called::Refused(reason) => return Err(RunnerError::KeeperRefused(reason)),
                Called::Leaving(reason) => {
                    if !std::mem::replace(&mut told, true) {
                        observer(RunnerEvent::Problem { message: format!("waiting for an earlier keeper: {reason}") });
                    }
                    sleep(LOOK_AGAIN).await;
                }
                Called::Absent if child.is_some() && Instant::now() > until => {
                    return Err(RunnerError::StartKeeper("it does not answer".to_owned()));
                }
                // One that exits at once lost a race with another: that one is found in the next round.
                Called::Absent => child = start(config).await?,
            }
        }
    }

    /// Adds a message to what goes out next.
    pub fn say(&mut self, message: &ToKeeper) {
        // Nothing in these messages can fail to become JSON.
        if serde_json::to_writer(&mut self.output, message).is_ok() {
            self.output.push(b'\n');
        }
    }

    /// Orders a start; its template goes before the first that uses it.
    pub fn start(&mut self, order: StartOrder, template: &Template) {
        if self.defined.insert(template.id) {
            self.say(&ToKeeper::Template(template.clone()));
        }
        self.say(&ToKeeper::Start(order));
    }

    /// Tells the shim that the agent is alive. One of an earlier version would not understand it, and needs none.
    pub fn heartbeat(&mut self, alive_until: Moment) {
        if self.version >= HEARTBEAT_VERSION {
            self.say(&ToKeeper::Heartbeat { alive_until });
        }
    }

    /// Sends what was said.
    pub async fn flush(&mut self) -> io::Result<()> {
        if self.output.is_empty() {
            return Ok(());
        }
        let sent = self.stream.write_all(&self.output).await;
        self.output.clear();
        sent
    }

    /// Waits for messages. Nothing is lost when the wait is given up.
    pub async fn receive(&mut self) -> io::Result<Vec<FromKeeper>> {
        loop {
            self.input.reserve(64 * 1024);
            if self.stream.read_buf(&mut self.input).await? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let Some(end) = self.input.iter().rposition(|byte| *byte == b'\n') else { continue };
            let lines = self.input[..end].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            // A message of a newer version that is not understood is left out: it cannot be about a job of ours.
            let messages = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
            self.input.drain(..=end);
            return Ok(messages);
        }
    }

    /// Says goodbye, and waits until the keeper has cleaned up.
    pub async fn leave(&mut self) {
        self.say(&ToKeeper::Goodbye);
        if self.flush().await.is_ok() {
            let gone = async { while self.receive().await.is_ok() {} };
            let _ = timeout(PATIENCE, gone).await;
        }
        if let Some(child) = &mut self.child {
            let _ = timeout(PATIENCE, child.wait()).await;
        }
    }
}

/// Calls the keeper of a place, if there is one.
async fn call(dir: &Path, environment: &[(OsString, OsString)]) -> io::Result<Called> {
    let Some(card) = Card::read(dir).filter(Card::is_alive) else { return Ok(Called::Absent) };
    let stream = match UnixStream::connect(&card.socket).await {
        Ok(stream) => stream,
        Err(error) => return Ok(Called::Leaving(error.to_string())),
    };
    let mut link = KeeperLink::new(stream);
    link.say(&ToKeeper::Hello(Hello {
        version: VERSION,
        token: card.token,
        pid: std::process::id(),
        environment: environment.to_vec(),
    }));
    if let Err(error) = link.flush().await {
        return Ok(Called::Leaving(error.to_string()));
    }
    match timeout(PATIENCE, hear_out(&mut link)).await {
        Ok(Ok(Heard::Everything(takeover))) => Ok(Called::Accepted(Box::new(link), takeover)),
        Ok(Ok(Heard::Refused { reason, leaving: true })) => Ok(Called::Leaving(reason)),
        Ok(Ok(Heard::Refused { reason, leaving: false })) => Ok(Called::Refused(reason)),
        Ok(Err(error)) => Ok(Called::Leaving(error.to_string())),
        Err(_) => Ok(Called::Refused("it does not answer".to_owned())),
    }
}

enum Heard {
    Everything(Takeover),
    Refused { reason: String, leaving: bool },
}

async fn hear_out(link: &mut KeeperLink) -> io::Result<Heard> {
    let mut takeover = Takeover::default();
    let mut complete = false;
    while !complete {
        for message in link.receive().await? {
            match message {
                FromKeeper::Welcome { version } => link.version = version,
                FromKeeper::Refused { reason, leaving } => return Ok(Heard::Refused { reason, leaving }),
                FromKeeper::Running(held) => takeover.running.push(held),
                // Also one that ended in this very moment, after everything had been told.
                FromKeeper::Ended(ended) => takeover.ended.push(ended),
                FromKeeper::Ready => complete = true,
                _ => {}
            }
        }
    }
    Ok(Heard::Everything(takeover))
}

/// Starts a keeper and waits until it can be called; none if another one has the place.
async fn start(config: &RunnerConfig) -> Result<Option<Child>, RunnerError> {
    let failed = |error: io::Error| RunnerError::StartKeeper(error.to_string());
    let Some((program, args)) = config.keeper_command.split_first() else {
        return Err(RunnerError::StartKeeper("no command was given".to_owned()));
    };
    let log_path = config.state_dir.join("keeper.log");
    let log = File::create(&log_path).map_err(failed)?;
    let keeper_args = KeeperArgs { dir: config.state_dir.clone(), orphan_grace: config.orphan_grace };
    let mut child = Command::new(program)
        .args(args)
        .args(keeper_args.to_args())
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
    if timeout(PATIENCE, ready).await.unwrap_or(false) {
        return Ok(Some(child));
    }
    if Card::read(&config.state_dir).is_some_and(|card| card.is_alive()) {
        return Ok(None);
    }
    let said = fs::read_to_string(&log_path).unwrap_or_default();
    Err(RunnerError::StartKeeper(format!("it ended before it was ready: {}", said.trim())))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use torc_api::wire::AttemptKey;

    use super::*;

    /// A link, and the end of its keeper.
    fn pair() -> (KeeperLink, UnixStream) {
        let (stream, keeper) = UnixStream::pair().unwrap();
        (KeeperLink::new(stream), keeper)
    }

    fn line(message: &FromKeeper) -> Vec<u8> {
        let mut line = serde_json::to_vec(message).unwrap();
        line.push(b'\n');
        line
    }

    #[tokio::test]
    async fn messages_are_whole_lines_however_they_arrive() {
        let (mut link, mut keeper) = pair();
        let (ready, revoked) = (FromKeeper::Ready, FromKeeper::Revoked(AttemptKey { job: 3, ..AttemptKey::default() }));
        let bytes = [line(&revoked), b"\n{\"newer\":1}\n".to_vec(), line(&ready)].concat();
        let (first, rest) = bytes.split_at(5);
        keeper.write_all(first).await.unwrap();
        let part = timeout(Duration::from_millis(20), link.receive()).await;
        assert!(part.is_err(), "half a line is no message");
        keeper.write_all(rest).await.unwrap();
        let received = link.receive().await.unwrap();
        assert_eq!(received, [revoked, ready], "what is not understood is left out");
        let half = line(&FromKeeper::Ready);
        keeper.write_all(&[line(&FromKeeper::Ready), half[..3].to_vec()].concat()).await.unwrap();
        assert_eq!(link.receive().await.unwrap(), [FromKeeper::Ready]);
        keeper.write_all(&half[3..]).await.unwrap();
        assert_eq!(link.receive().await.unwrap(), [FromKeeper::Ready], "the rest of a line is kept for its end");
        drop(keeper);
        assert_eq!(link.receive().await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }

    #[tokio::test]
    async fn a_template_goes_before_its_first_use_and_only_then() {
        let (mut link, keeper) = pair();
        link.flush().await.unwrap();
        let (one, two) = (Template { id: 1, ..Template::default() }, Template { id: 2, ..Template::default() });
        for template in [&one, &one, &two, &one] {
            link.start(StartOrder::default(), template);
        }
        link.flush().await.unwrap();
        let kinds: Vec<String> = said(link, keeper)
            .await
            .into_iter()
            .map(|message| match message {
                ToKeeper::Template(template) => format!("template {}", template.id),
                ToKeeper::Start(_) => "start".to_owned(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(kinds, ["template 1", "start", "start", "template 2", "start", "start"]);
    }

    /// Returns the messages that a link has sent.
    async fn said(mut link: KeeperLink, shim: UnixStream) -> Vec<ToKeeper> {
        link.flush().await.unwrap();
        drop(link);
        let mut lines = BufReader::new(shim).lines();
        let mut said = Vec::new();
        while let Some(line) = lines.next_line().await.unwrap() {
            said.push(serde_json::from_str(&line).unwrap());
        }
        said
    }

    // P08. A shim of the version before would report every heartbeat as a message that it does not understand.
    #[tokio::test]
    async fn a_heartbeat_goes_only_to_a_shim_that_understands_it() {
        let heartbeat = ToKeeper::Heartbeat { alive_until: Moment(5) };
        for (version, expected) in [(2, vec![]), (3, vec![heartbeat.clone()]), (4, vec![heartbeat])] {
            let (mut link, mut shim) = pair();
            for message in [FromKeeper::Welcome { version }, FromKeeper::Ready] {
                shim.write_all(&line(&message)).await.unwrap();
            }
            assert!(matches!(hear_out(&mut link).await, Ok(Heard::Everything(_))));
            link.heartbeat(Moment(5));
            assert_eq!(said(link, shim).await, expected, "version {version}");
        }
    }

    #[tokio::test]
    async fn a_keeper_is_heard_out_until_it_is_ready() {
        let told = |messages: Vec<FromKeeper>| async move {
            let (mut link, mut keeper) = pair();
            for message in &messages {
                keeper.write_all(&line(message)).await.unwrap();
            }
            drop(keeper);
            hear_out(&mut link).await
        };
        let ended = || {
            let at = crate::clock::now();
            FromKeeper::Ended(Ended::of(AttemptKey::default(), "j", (at, at), crate::protocol::Outcome::Exited(0)))
        };
        match told(vec![ended(), FromKeeper::Ready, ended()]).await.unwrap() {
            Heard::Everything(takeover) => assert_eq!((takeover.ended.len(), takeover.found), (2, false)),
            Heard::Refused { reason, .. } => panic!("{reason}"),
        }
        for leaving in [true, false] {
            let refusal = FromKeeper::Refused { reason: "no".to_owned(), leaving };
            match told(vec![ended(), refusal]).await.unwrap() {
                Heard::Refused { reason, leaving: says } => assert_eq!((reason.as_str(), says), ("no", leaving)),
                Heard::Everything(takeover) => panic!("{takeover:?}"),
            }
        }
        assert!(told(vec![ended()]).await.is_err(), "it ended before it was ready");
    }

    #[tokio::test]
    async fn without_a_living_keeper_there_is_nothing_to_call() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(call(folder.path(), &[]).await, Ok(Called::Absent)));
    }

    /// A place whose keeper is this process and listens at the socket that is returned.
    fn place(folder: &Path) -> tokio::net::UnixListener {
        let socket = folder.join("socket");
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        card(socket).write(folder).unwrap();
        listener
    }

    fn card(socket: std::path::PathBuf) -> Card {
        let own = crate::process::ProcessMark::own();
        Card { pid: own.pid, start_ticks: own.start_ticks, boot_id: own.boot_id, socket, token: "secret".to_owned() }
    }

    /// Answers one caller with these messages; returns what the caller said until it left.
    async fn serve(listener: &tokio::net::UnixListener, answer: Vec<FromKeeper>) -> Vec<ToKeeper> {
        let (mut stream, _) = listener.accept().await.unwrap();
        for message in &answer {
            stream.write_all(&line(message)).await.unwrap();
        }
        let mut lines = BufReader::new(stream).lines();
        let mut said = Vec::new();
        while let Some(line) = lines.next_line().await.unwrap() {
            said.push(serde_json::from_str(&line).unwrap());
            if said.last() == Some(&ToKeeper::Goodbye) {
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
    async fn a_keeper_that_is_found_is_greeted_and_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let listener = place(folder.path());
        let held = FromKeeper::Running(HeldJob { name: "held".to_owned(), ..HeldJob::default() });
        let environment = vec![(OsString::from("A"), OsString::from("1"))];
        let (config, told) = (config(folder.path(), &["no-such-program"]), std::cell::Cell::new(0));
        let observer = |_| told.set(told.get() + 1);
        let brain = async {
            let (mut link, takeover) = KeeperLink::open(&config, &environment, &observer).await.unwrap();
            assert!(takeover.found && link.child.is_none(), "it was there before");
            assert_eq!(takeover.running.iter().map(|job| job.name.as_str()).collect::<Vec<_>>(), ["held"]);
            link.leave().await;
        };
        let (said, ()) = tokio::join!(serve(&listener, vec![held, FromKeeper::Ready]), brain);
        let hello = Hello {
            version: VERSION,
            token: "secret".to_owned(),
            pid: std::process::id(),
            environment: environment.clone(),
        };
        assert_eq!((said, told.get()), (vec![ToKeeper::Hello(hello), ToKeeper::Goodbye], 0));
    }

    #[tokio::test]
    async fn a_refusal_is_an_error_and_a_leaving_keeper_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let listener = place(folder.path());
        let refusal = |leaving| vec![FromKeeper::Refused { reason: "busy".to_owned(), leaving }];
        let problems = std::cell::RefCell::new(Vec::new());
        let observer = |event| problems.borrow_mut().push(event);
        let config = config(folder.path(), &["no-such-program"]);
        let keeper = async {
            serve(&listener, refusal(true)).await;
            serve(&listener, refusal(true)).await;
            // One that hangs up before it is ready is leaving, too.
            drop(listener.accept().await.unwrap());
            serve(&listener, refusal(false)).await
        };
        let brain = async { KeeperLink::open(&config, &[], &observer).await.map(|_| ()) };
        let (_, opened) = tokio::join!(keeper, brain);
        assert!(matches!(opened, Err(RunnerError::KeeperRefused(reason)) if reason == "busy"));
        let problems = problems.into_inner();
        assert_eq!(problems.len(), 1, "the wait is told once: {problems:?}");
    }

    #[tokio::test]
    async fn a_card_of_a_dead_process_is_no_keeper() {
        let folder = tempfile::tempdir().unwrap();
        let dead = Card { start_ticks: 1, ..card(folder.path().join("socket")) };
        dead.write(folder.path()).unwrap();
        assert!(matches!(call(folder.path(), &[]).await, Ok(Called::Absent)));
        // Its process lives, and nobody listens: it is on its way out.
        card(folder.path().join("socket")).write(folder.path()).unwrap();
        assert!(matches!(call(folder.path(), &[]).await, Ok(Called::Leaving(_))));
    }

    #[tokio::test]
    async fn a_keeper_is_started_with_its_folder_and_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let script = format!("echo \"$@\" >{}/args; echo; echo ready", folder.path().display());
        let started = start(&config(folder.path(), &["sh", "-c", &script, "keeper"])).await.unwrap();
        assert!(started.expect("a child of ours").wait().await.unwrap().success());
        let args = fs::read_to_string(folder.path().join("args")).unwrap();
        assert_eq!(args, format!("--dir {} --orphan-grace-ms 60000\n", folder.path().display()));
        let failed = |command: &'static [&'static str]| {
            let config = config(folder.path(), command);
            async move { start(&config).await.map(|_| ()).unwrap_err().to_string() }
        };
        let ended = "cannot start the keeper: it ended before it was ready: no room";
        assert_eq!(failed(&["sh", "-c", "echo not ready; echo ' no room ' >&2"]).await, ended);
        assert_eq!(failed(&[]).await, "cannot start the keeper: no command was given");
        assert!(failed(&["no-such-program-here"]).await.starts_with("cannot start the keeper: "));
    }

    /// Another keeper got the place while this one was starting.
    #[tokio::test]
    async fn a_keeper_that_lost_the_race_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        card(folder.path().join("socket")).write(folder.path()).unwrap();
        assert!(matches!(start(&config(folder.path(), &["true"])).await, Ok(None)));
    }
}
