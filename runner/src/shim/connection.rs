//! The shim's end of its socket: non-blocking, one message per line.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use crate::clock::BootInstant;
use crate::protocol::{FromShim, ToShim};

/// A connection to the agent, or to a process that has not sent its hello yet.
pub struct AgentConnection {
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
    /// The moment of the connection.
    pub since: BootInstant,
    /// The PID from the hello; absent before it.
    pub pid: Option<u32>,
}

/// The result of a read.
pub struct Received {
    /// Complete messages, in order.
    pub messages: Vec<Result<ToShim, String>>,
    /// True if the connection is still open.
    pub open: bool,
}

impl AgentConnection {
    /// Creates a connection from a stream.
    pub fn new(stream: UnixStream, since: BootInstant) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, input: Vec::new(), output: Vec::new(), since, pid: None })
    }

    /// Returns whether the other side belongs to this user or to root.
    pub fn is_own_user(&self) -> bool {
        let own = rustix::process::getuid();
        rustix::net::sockopt::socket_peercred(&self.stream).is_ok_and(|peer| peer.uid == own || peer.uid.is_root())
    }

    /// Reads everything that has arrived.
    pub fn receive(&mut self) -> Received {
        let mut buffer = [0; 64 * 1024];
        let open = loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => break false,
                Ok(read) => self.input.extend_from_slice(&buffer[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break error.kind() == ErrorKind::WouldBlock,
            }
        };
        let end = self.input.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let lines = self.input[..end].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let messages = lines.map(|line| serde_json::from_slice(line).map_err(|error| error.to_string())).collect();
        self.input.drain(..end);
        Received { messages, open }
    }

    /// Adds a message to the output.
    pub fn push(&mut self, message: &FromShim) {
        // These messages can always be serialized: keys are strings and numbers are finite.
        if serde_json::to_writer(&mut self.output, message).is_ok() {
            self.output.push(b'\n');
        }
    }

    /// Writes as much as the other side accepts. Returns false if the connection is closed.
    pub fn flush(&mut self) -> bool {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(written) => drop(self.output.drain(..written)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
        true
    }

    /// Returns whether output waits to be written.
    pub fn has_output(&self) -> bool {
        !self.output.is_empty()
    }
}

impl AsFd for AgentConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
