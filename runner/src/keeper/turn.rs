//! The keeper's loop. One turn: wait, hear the brain, collect children, do what is due, tell the brain in one write.

use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;

use super::connection::Connection;
use super::jobs::Jobs;
use crate::clock::{Moment, now as clock_now};
use crate::protocol::{FromKeeper, Hello, ToKeeper, VERSION};

/// News that nobody waits for are collected for so long: waking the brain for each would cost more than the start of a job.
const COLLECT_NEWS: Duration = Duration::from_millis(2);
/// Who connects has this long to say hello.
const HELLO_WITHIN: Duration = Duration::from_secs(5);

/// A keeper at work.
pub struct Keeper {
    /// What it holds.
    pub jobs: Jobs,
    /// Where brains come.
    pub listener: UnixListener,
    /// What proves a right to talk.
    pub token: String,
    /// Carries a byte for every signal that arrived.
    pub signals: Signals,
    /// How long jobs go on without a brain.
    pub orphan_grace: Duration,
    brain: Option<Connection>,
    callers: Vec<Connection>,
    alone_since: Option<Moment>,
    tell_at: Option<Moment>,
    /// It leaves as soon as nothing runs.
    leaving: bool,
}

/// The readable ends of two pipes that signal handlers write to.
pub struct Signals {
    /// A child has exited.
    pub child: UnixStream,
    /// Somebody wants the keeper to end.
    pub end: UnixStream,
}

/// What woke the keeper.
#[derive(Default)]
struct Woken {
    caller: bool,
    brain: bool,
    child: bool,
    end: bool,
}

impl Keeper {
    /// Ready for its first turn.
    pub fn new(jobs: Jobs, listener: UnixListener, token: String, signals: Signals, orphan_grace: Duration) -> Self {
        let alone_since = Some(clock_now());
        Self {
            jobs,
            listener,
            token,
            signals,
            orphan_grace,
            brain: None,
            callers: Vec::new(),
            alone_since,
            tell_at: None,
            leaving: false,
        }
    }

    /// Works until it may leave, and returns what it held. As long as the connection is kept, the brain knows that the keeper
    /// has not quite left.
    pub fn work(mut self) -> io::Result<(Jobs, Option<Connection>)> {
        loop {
            let woken = self.wait()?;
            self.turn(&woken);
            if self.leaving && self.jobs.is_idle() {
                return Ok((self.jobs, self.brain));
            }
        }
    }

    fn turn(&mut self, woken: &Woken) {
        let now = clock_now();
        if woken.child {
            drain(&mut self.signals.child);
            self.jobs.reap();
        }
        if woken.brain {
            self.hear_brain(now);
        }
        if woken.end {
            drain(&mut self.signals.end);
            self.leave(now);
        }
        // After the brain: one that has just gone makes room for the next.
        self.hear_callers(now, woken.caller);
        self.jobs.on_time(now);
        self.mind_being_alone(now);
        self.tell(now);
    }

    fn wait(&mut self) -> io::Result<Woken> {
        let now = clock_now();
        let hello = self.callers.iter().map(|caller| caller.since.plus(HELLO_WITHIN));
        let alone = self.alone_since.filter(|_| !self.leaving).map(|since| since.plus(self.orphan_grace));
        let due = hello.chain(alone).chain(self.tell_at).chain(self.jobs.next_time(now)).min();
        let timeout = due.map(|due| {
            let left = due.since(now);
            Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() }
        });
        let mut fds = vec![
            PollFd::new(&self.signals.child, PollFlags::IN),
            PollFd::new(&self.signals.end, PollFlags::IN),
            PollFd::new(&self.listener, PollFlags::IN),
        ];
        if let Some(brain) = &self.brain {
            let writing = if brain.has_output() { PollFlags::OUT } else { PollFlags::empty() };
            fds.push(PollFd::from_borrowed_fd(brain.as_fd(), PollFlags::IN | writing));
        }
        fds.extend(self.callers.iter().map(|caller| PollFd::from_borrowed_fd(caller.as_fd(), PollFlags::IN)));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
        let brain = self.brain.is_some() && ready(3);
        let first_caller = if self.brain.is_some() { 4 } else { 3 };
        let caller = ready(2) || (first_caller..fds.len()).any(ready);
        Ok(Woken { child: ready(0), end: ready(1), caller, brain })
    }

    fn hear_brain(&mut self, now: Moment) {
        let Some(brain) = &mut self.brain else { return };
        let received = brain.receive();
        for message in received.messages {
            match message {
                Ok(message) => self.obey(message, now),
                Err(error) => {
                    self.jobs.news.push(FromKeeper::Problem(format!("a message was not understood: {error}")))
                }
            }
        }
        if !received.open {
            self.lose_brain(now);
        }
    }

    fn obey(&mut self, message: ToKeeper, now: Moment) {
        match message {
            ToKeeper::Hello(_) => {}
            ToKeeper::Template(template) => self.jobs.define(template),
            ToKeeper::Start(order) => self.jobs.order(order),
            ToKeeper::Go(key) => self.jobs.go(&key),
            ToKeeper::Revoke(keys) => self.jobs.revoke(&keys),
            ToKeeper::Heartbeat { alive_until } => self.jobs.heartbeat(alive_until),
            ToKeeper::Terminate(termination) => self.jobs.terminate(&termination, now),
            ToKeeper::Note(note) => self.jobs.note(&note),
            ToKeeper::Acknowledge(keys) => self.jobs.acknowledge(&keys),
            ToKeeper::Goodbye if self.jobs.is_idle() => self.leaving = true,
            ToKeeper::Goodbye => self.lose_brain(now),
        }
    }

    fn lose_brain(&mut self, now: Moment) {
        self.brain = None;
        self.tell_at = None;
        self.alone_since = Some(now);
        self.jobs.brain_left();
    }

    fn hear_callers(&mut self, now: Moment, woken: bool) {
        if !woken && self.callers.is_empty() {
            return;
        }
        while let Ok((stream, _)) = self.listener.accept() {
            let caller = Connection::new(stream, now).ok().filter(Connection::is_own_user);
            self.callers.extend(caller);
        }
        for mut caller in std::mem::take(&mut self.callers) {
            let received = caller.receive();
            match received.messages.into_iter().next() {
                Some(Ok(ToKeeper::Hello(hello))) => self.answer_hello(caller, hello),
                Some(_) => {}
                None if received.open && now < caller.since.plus(HELLO_WITHIN) => self.callers.push(caller),
                None => {}
            }
        }
    }

    fn answer_hello(&mut self, mut caller: Connection, hello: Hello) {
        let refusal = if hello.token != self.token {
            Some("the token is wrong".to_owned())
        } else if hello.version.abs_diff(VERSION) > 1 {
            Some(format!("its version {VERSION} and ours {} are too far apart", hello.version))
        } else if self.leaving {
            Some("it is ending its jobs and about to leave".to_owned())
        } else {
            self.brain.as_ref().map(|brain| format!("process {} is connected", brain.pid.unwrap_or_default()))
        };
        if let Some(reason) = refusal {
            caller.say(&FromKeeper::Refused { reason, leaving: self.leaving });
            caller.flush();
            return;
        }
        caller.pid = Some(hello.pid);
        caller.say(&FromKeeper::Welcome { version: VERSION });
        self.jobs.welcome(hello.environment);
        self.brain = Some(caller);
        self.alone_since = None;
    }

    fn mind_being_alone(&mut self, now: Moment) {
        if self.alone_since.is_some_and(|since| since.plus(self.orphan_grace) <= now) {
            self.leave(now);
        }
    }

    fn leave(&mut self, now: Moment) {
        if !self.leaving {
            self.leaving = true;
            self.jobs.brain_left();
            self.jobs.terminate_all(now);
        }
    }

    fn tell(&mut self, now: Moment) {
        if !self.jobs.news.is_empty() && !self.jobs.has_urgent_news() {
            let due = *self.tell_at.get_or_insert(now.plus(COLLECT_NEWS));
            if now < due {
                return;
            }
        }
        self.tell_at = None;
        let news = std::mem::take(&mut self.jobs.news);
        let Some(brain) = &mut self.brain else { return };
        for message in &news {
            brain.say(message);
        }
        if !brain.flush() {
            self.lose_brain(clock_now());
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
    use crate::keeper::notes::{Author, Notes};

    fn keeper(dir: &std::path::Path) -> Keeper {
        let author = Author { keeper: "tests".to_owned(), boot_id: String::new() };
        let jobs = Jobs::new("tests", Notes::create(dir, &author).expect("notes"), Vec::new());
        let listener = UnixListener::bind(dir.join("socket")).expect("a socket");
        let pipe = || UnixStream::pair().expect("a pipe").0;
        let signals = Signals { child: pipe(), end: pipe() };
        Keeper::new(jobs, listener, "secret".to_owned(), signals, Duration::from_secs(60))
    }

    /// What is answered to a hello.
    fn answer(keeper: &mut Keeper, token: &str, version: u32) -> FromKeeper {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let caller = Connection::new(ours, Moment(1)).expect("a connection");
        let hello = Hello { version, token: token.to_owned(), pid: 77, environment: Vec::new() };
        keeper.answer_hello(caller, hello);
        keeper.tell(Moment(u64::MAX));
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
            let mut keeper = keeper(dir.path());
            let said = answer(&mut keeper, token, version);
            match (refused, &said) {
                (None, FromKeeper::Welcome { version }) => assert_eq!(*version, VERSION),
                (Some(why), FromKeeper::Refused { reason, leaving: false }) => {
                    assert!(reason.contains(why), "{reason}")
                }
                _ => panic!("{token} {version}: {said:?}"),
            }
            assert_eq!(keeper.alone_since.is_none(), refused.is_none(), "{token} {version}");
        }
    }

    #[test]
    fn a_second_agent_is_refused_and_so_is_one_that_comes_too_late() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut keeper = keeper(dir.path());
        assert!(matches!(answer(&mut keeper, "secret", VERSION), FromKeeper::Welcome { .. }));
        let second = answer(&mut keeper, "secret", VERSION);
        let FromKeeper::Refused { reason, leaving: false } = second else { panic!("{second:?}") };
        assert!(reason.contains("77"), "{reason}");
        keeper.lose_brain(Moment(5));
        keeper.leave(Moment(6));
        let late = answer(&mut keeper, "secret", VERSION);
        assert!(matches!(late, FromKeeper::Refused { leaving: true, .. }), "{late:?}");
    }

    // A keeper with nothing to do leaves when its agent does; one with jobs waits for another.
    #[test]
    fn a_goodbye_lets_an_idle_keeper_leave() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut keeper = keeper(dir.path());
        answer(&mut keeper, "secret", VERSION);
        assert!(!keeper.leaving);
        keeper.obey(ToKeeper::Goodbye, Moment(5));
        assert!(keeper.leaving && keeper.brain.is_some(), "the agent hears when it has left");
    }

    // J23. A keeper that is alone leaves after its grace, to the microsecond, and not while somebody is there.
    #[test]
    fn a_keeper_that_is_alone_leaves_after_its_grace() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut keeper = keeper(dir.path());
        let began = keeper.alone_since.expect("nobody has come");
        for (after, leaves) in [(59_999_999, false), (60_000_000, true)] {
            keeper.mind_being_alone(Moment(began.0 + after));
            assert_eq!(keeper.leaving, leaves, "{after} µs");
        }
        let dir = tempfile::tempdir().expect("a folder");
        let mut keeper = self::keeper(dir.path());
        answer(&mut keeper, "secret", VERSION);
        keeper.mind_being_alone(Moment(u64::MAX));
        assert!(!keeper.leaving, "somebody is there");
    }

    // P08. A lost agent is not alive, whatever its last heartbeat said.
    #[test]
    fn a_heartbeat_counts_for_the_agent_that_sent_it() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut keeper = keeper(dir.path());
        answer(&mut keeper, "secret", VERSION);
        assert_eq!(keeper.jobs.agent_alive_until(), None);
        keeper.obey(ToKeeper::Heartbeat { alive_until: Moment(9) }, Moment(5));
        assert_eq!(keeper.jobs.agent_alive_until(), Some(Moment(9)));
        keeper.lose_brain(Moment(6));
        assert_eq!(keeper.jobs.agent_alive_until(), None);
    }

    // P03. News that nobody waits for are collected for 2 ms.
    #[test]
    fn news_that_can_wait_are_told_together() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut keeper = keeper(dir.path());
        answer(&mut keeper, "secret", VERSION);
        let key = torc_api::wire::AttemptKey::default();
        keeper.jobs.news.push(FromKeeper::Started { key, at: Moment(1), pid: 2 });
        for (at, told) in [(10_000, false), (11_999, false), (12_000, true)] {
            keeper.tell(Moment(at));
            assert_eq!(keeper.jobs.news.is_empty(), told, "{at} µs");
        }
        keeper.jobs.news.push(FromKeeper::Revoked(key));
        keeper.tell(Moment(20_000));
        assert!(keeper.jobs.news.is_empty(), "somebody waits for this");
    }
}
