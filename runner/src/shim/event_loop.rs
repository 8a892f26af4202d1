//! The shim's event loop. Each turn waits, reads the agent's messages, collects children, does what is due, and sends
//! all answers in one write.

use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;

use super::connection::AgentConnection;
use super::jobs::JobTable;
use crate::clock::{BootInstant, now as clock_now};
use crate::protocol::{FromShim, Hello, ToShim, VERSION};

/// Time for which messages that need no answer are collected: waking the agent for each of them would cost more than
/// starting a job.
const MESSAGE_BATCH_DELAY: Duration = Duration::from_millis(2);
/// Time for a new connection to send its hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// A running shim with its jobs, its socket and the connected agent.
pub struct Shim {
    /// All jobs of the shim.
    pub jobs: JobTable,
    /// The socket for agents.
    pub listener: UnixListener,
    /// The token that authenticates agents.
    pub token: String,
    /// The pipes that signal handlers write to.
    pub signals: Signals,
    /// Time without an agent after which the shim ends its jobs.
    pub orphan_grace: Duration,
    agent: Option<AgentConnection>,
    callers: Vec<AgentConnection>,
    alone_since: Option<BootInstant>,
    send_at: Option<BootInstant>,
    /// True if the shim exits as soon as no job runs.
    leaving: bool,
}

/// The read ends of the two pipes that signal handlers write to.
pub struct Signals {
    /// Gets a byte for SIGCHLD.
    pub child: UnixStream,
    /// Gets a byte for each signal that ends the shim.
    pub end: UnixStream,
}

/// The descriptors that are ready.
#[derive(Default)]
struct ReadyInputs {
    caller: bool,
    agent: bool,
    child: bool,
    end: bool,
}

impl Shim {
    /// Creates a shim that is ready for its first turn.
    pub fn new(
        jobs: JobTable,
        listener: UnixListener,
        token: String,
        signals: Signals,
        orphan_grace: Duration,
    ) -> Self {
        let alone_since = Some(clock_now());
        Self {
            jobs,
            listener,
            token,
            signals,
            orphan_grace,
            agent: None,
            callers: Vec::new(),
            alone_since,
            send_at: None,
            leaving: false,
        }
    }

    /// Runs until the shim may exit, and returns its jobs and the agent's connection. The caller closes the connection
    /// after its cleanup, because the agent waits for that.
    pub fn work(mut self) -> io::Result<(JobTable, Option<AgentConnection>)> {
        loop {
            let woken = self.wait()?;
            self.run_once(&woken);
            if self.leaving && self.jobs.is_idle() {
                return Ok((self.jobs, self.agent));
            }
        }
    }

    fn run_once(&mut self, woken: &ReadyInputs) {
        let now = clock_now();
        if woken.child {
            drain(&mut self.signals.child);
            self.jobs.reap();
        }
        if woken.agent {
            self.read_agent(now);
        }
        if woken.end {
            drain(&mut self.signals.end);
            self.leave(now);
        }
        // New connections come after the agent's messages: an agent that has just left makes room for the next.
        self.read_callers(now, woken.caller);
        self.jobs.on_time(now);
        self.check_orphaned(now);
        self.send_messages(now);
    }

    fn wait(&mut self) -> io::Result<ReadyInputs> {
        let now = clock_now();
        let hello = self.callers.iter().map(|caller| caller.since.plus(HELLO_TIMEOUT));
        let alone = self.alone_since.filter(|_| !self.leaving).map(|since| since.plus(self.orphan_grace));
        let due = hello.chain(alone).chain(self.send_at).chain(self.jobs.next_time(now)).min();
        let timeout = due.map(|due| {
            let left = due.since(now);
            Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() }
        });
        let mut fds = vec![
            PollFd::new(&self.signals.child, PollFlags::IN),
            PollFd::new(&self.signals.end, PollFlags::IN),
            PollFd::new(&self.listener, PollFlags::IN),
        ];
        if let Some(agent) = &self.agent {
            let writing = if agent.has_output() { PollFlags::OUT } else { PollFlags::empty() };
            fds.push(PollFd::from_borrowed_fd(agent.as_fd(), PollFlags::IN | writing));
        }
        fds.extend(self.callers.iter().map(|caller| PollFd::from_borrowed_fd(caller.as_fd(), PollFlags::IN)));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
        let agent = self.agent.is_some() && ready(3);
        let first_caller = if self.agent.is_some() { 4 } else { 3 };
        let caller = ready(2) || (first_caller..fds.len()).any(ready);
        Ok(ReadyInputs { child: ready(0), end: ready(1), caller, agent })
    }

    fn read_agent(&mut self, now: BootInstant) {
        let Some(agent) = &mut self.agent else { return };
        let received = agent.receive();
        for message in received.messages {
            match message {
                Ok(message) => self.execute(message, now),
                Err(error) => self
                    .jobs
                    .outbox
                    .push(FromShim::Problem(format!("the shim cannot read a message of the agent: {error}"))),
            }
        }
        if !received.open {
            self.drop_agent(now);
        }
    }

    fn execute(&mut self, message: ToShim, now: BootInstant) {
        match message {
            ToShim::Hello(_) => {}
            ToShim::Template(template) => self.jobs.define(template),
            ToShim::Start(order) => self.jobs.order(order),
            ToShim::StartNow(key) => self.jobs.start_now(&key),
            ToShim::Revoke(keys) => self.jobs.revoke(&keys),
            ToShim::Heartbeat { alive_until } => self.jobs.heartbeat(alive_until),
            ToShim::Terminate(termination) => self.jobs.terminate(&termination, now),
            ToShim::RecordStep(record) => self.jobs.record(&record),
            ToShim::Acknowledge(keys) => self.jobs.acknowledge(&keys),
            ToShim::Goodbye if self.jobs.is_idle() => self.leaving = true,
            ToShim::Goodbye => self.drop_agent(now),
        }
    }

    fn drop_agent(&mut self, now: BootInstant) {
        self.agent = None;
        self.send_at = None;
        self.alone_since = Some(now);
        self.jobs.agent_left();
    }

    fn read_callers(&mut self, now: BootInstant, woken: bool) {
        if !woken && self.callers.is_empty() {
            return;
        }
        while let Ok((stream, _)) = self.listener.accept() {
            let caller = AgentConnection::new(stream, now).ok().filter(AgentConnection::is_own_user);
            self.callers.extend(caller);
        }
        for mut caller in std::mem::take(&mut self.callers) {
            let received = caller.receive();
            match received.messages.into_iter().next() {
                Some(Ok(ToShim::Hello(hello))) => self.answer_hello(caller, hello),
                Some(_) => {}
                None if received.open && now < caller.since.plus(HELLO_TIMEOUT) => self.callers.push(caller),
                None => {}
            }
        }
    }

    fn answer_hello(&mut self, mut caller: AgentConnection, hello: Hello) {
        let refusal = if hello.token != self.token {
            Some("the token is wrong".to_owned())
        } else if hello.version.abs_diff(VERSION) > 1 {
            Some(format!("protocol version {} of the agent and {VERSION} of the shim are too far apart", hello.version))
        } else if self.leaving {
            Some("the shim ends its jobs and is about to exit".to_owned())
        } else {
            self.agent
                .as_ref()
                .map(|agent| format!("the agent with process ID {} is connected", agent.pid.unwrap_or_default()))
        };
        if let Some(reason) = refusal {
            caller.push(&FromShim::Refused { reason, leaving: self.leaving });
            caller.flush();
            return;
        }
        caller.pid = Some(hello.pid);
        caller.push(&FromShim::Welcome { version: VERSION });
        self.jobs.welcome(hello.environment);
        self.agent = Some(caller);
        self.alone_since = None;
    }

    fn check_orphaned(&mut self, now: BootInstant) {
        if self.alone_since.is_some_and(|since| since.plus(self.orphan_grace) <= now) {
            self.leave(now);
        }
    }

    fn leave(&mut self, now: BootInstant) {
        if !self.leaving {
            self.leaving = true;
            self.jobs.agent_left();
            self.jobs.terminate_all(now);
        }
    }

    fn send_messages(&mut self, now: BootInstant) {
        if !self.jobs.outbox.is_empty() && !self.jobs.has_urgent_messages() {
            let due = *self.send_at.get_or_insert(now.plus(MESSAGE_BATCH_DELAY));
            if now < due {
                return;
            }
        }
        self.send_at = None;
        let outbox = std::mem::take(&mut self.jobs.outbox);
        let Some(agent) = &mut self.agent else { return };
        for message in &outbox {
            agent.push(message);
        }
        if !agent.flush() {
            self.drop_agent(clock_now());
        }
    }
}

fn drain(pipe: &mut UnixStream) {
    let mut buffer = [0; 256];
    loop {
        match pipe.read(&mut buffer) {
            Ok(read) if read == buffer.len() => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufRead as _;

    use super::*;
    use crate::shim::start_log::{StartLog, StartLogHeader};

    fn shim(dir: &std::path::Path) -> Shim {
        let header = StartLogHeader { shim: "tests".to_owned(), boot_id: String::new() };
        let jobs = JobTable::new("tests", StartLog::create(dir, &header).expect("start_log"), Vec::new());
        let listener = UnixListener::bind(dir.join("socket")).expect("a socket");
        let pipe = || UnixStream::pair().expect("a pipe").0;
        let signals = Signals { child: pipe(), end: pipe() };
        Shim::new(jobs, listener, "secret".to_owned(), signals, Duration::from_secs(60))
    }

    /// Returns the answer to a hello.
    fn answer(shim: &mut Shim, token: &str, version: u32) -> FromShim {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let caller = AgentConnection::new(ours, BootInstant(1)).expect("a connection");
        let hello = Hello { version, token: token.to_owned(), pid: 77, environment: Vec::new() };
        shim.answer_hello(caller, hello);
        shim.send_messages(BootInstant(u64::MAX));
        let mut line = String::new();
        io::BufReader::new(theirs).read_line(&mut line).expect("an answer");
        serde_json::from_str(&line).expect("a message")
    }

    #[test]
    fn who_is_let_in() {
        let cases = [
            ("secret", VERSION, None),
            ("secret", VERSION + 1, None),
            ("secret", VERSION - 1, None),
            ("secret", VERSION + 2, Some("too far apart")),
            ("wrong", VERSION, Some("token")),
        ];
        for (token, version, refused) in cases {
            let dir = tempfile::tempdir().expect("a folder");
            let mut shim = shim(dir.path());
            let said = answer(&mut shim, token, version);
            match (refused, &said) {
                (None, FromShim::Welcome { version }) => assert_eq!(*version, VERSION),
                (Some(why), FromShim::Refused { reason, leaving: false }) => {
                    assert!(reason.contains(why), "{reason}")
                }
                _ => panic!("{token} {version}: {said:?}"),
            }
            assert_eq!(shim.alone_since.is_none(), refused.is_none(), "{token} {version}");
        }
    }

    #[test]
    fn a_second_agent_is_refused_and_so_is_one_that_comes_too_late() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut shim = shim(dir.path());
        assert!(matches!(answer(&mut shim, "secret", VERSION), FromShim::Welcome { .. }));
        let second = answer(&mut shim, "secret", VERSION);
        let FromShim::Refused { reason, leaving: false } = second else { panic!("{second:?}") };
        assert!(reason.contains("77"), "{reason}");
        shim.drop_agent(BootInstant(5));
        shim.leave(BootInstant(6));
        let late = answer(&mut shim, "secret", VERSION);
        assert!(matches!(late, FromShim::Refused { leaving: true, .. }), "{late:?}");
    }

    // An idle shim exits with its agent; one with jobs waits for another agent.
    #[test]
    fn a_goodbye_lets_an_idle_shim_leave() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut shim = shim(dir.path());
        answer(&mut shim, "secret", VERSION);
        assert!(!shim.leaving);
        shim.execute(ToShim::Goodbye, BootInstant(5));
        assert!(shim.leaving && shim.agent.is_some(), "the agent notices the exit");
    }

    // J23. A shim without an agent exits after its grace, to the microsecond.
    #[test]
    fn a_shim_that_is_alone_leaves_after_its_grace() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut shim = shim(dir.path());
        let began = shim.alone_since.expect("no agent is connected");
        for (after, leaves) in [(59_999_999, false), (60_000_000, true)] {
            shim.check_orphaned(BootInstant(began.0 + after));
            assert_eq!(shim.leaving, leaves, "{after} µs");
        }
        let dir = tempfile::tempdir().expect("a folder");
        let mut shim = self::shim(dir.path());
        answer(&mut shim, "secret", VERSION);
        shim.check_orphaned(BootInstant(u64::MAX));
        assert!(!shim.leaving, "an agent is connected");
    }

    // P08. After a lost connection the agent's last heartbeat does not count.
    #[test]
    fn a_heartbeat_counts_for_the_agent_that_sent_it() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut shim = shim(dir.path());
        answer(&mut shim, "secret", VERSION);
        assert_eq!(shim.jobs.agent_alive_until(), None);
        shim.execute(ToShim::Heartbeat { alive_until: BootInstant(9) }, BootInstant(5));
        assert_eq!(shim.jobs.agent_alive_until(), Some(BootInstant(9)));
        shim.drop_agent(BootInstant(6));
        assert_eq!(shim.jobs.agent_alive_until(), None);
    }

    // P03. Messages that need no answer are batched for 2 ms.
    #[test]
    fn messages_that_can_wait_are_sent_together() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut shim = shim(dir.path());
        answer(&mut shim, "secret", VERSION);
        let key = torc_api::wire::AttemptKey::default();
        shim.jobs.outbox.push(FromShim::Started { key, at: BootInstant(1), pid: 2 });
        for (at, observed) in [(10_000, false), (11_999, false), (12_000, true)] {
            shim.send_messages(BootInstant(at));
            assert_eq!(shim.jobs.outbox.is_empty(), observed, "{at} µs");
        }
        shim.jobs.outbox.push(FromShim::Revoked(key));
        shim.send_messages(BootInstant(20_000));
        assert!(shim.jobs.outbox.is_empty(), "this message needs an answer");
    }
}
