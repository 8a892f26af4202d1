//! One end of the shim's socket: lines in, lines out, never blocking.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use crate::clock::BootInstant;
use crate::protocol::{FromShim, ToShim};

/// Somebody who has connected.
pub struct AgentConnection {
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
    /// When it came.
    pub since: BootInstant,
    /// The other side's process.
    pub pid: Option<u32>,
}

/// What reading brought.
pub struct Received {
    /// Whole messages, in order.
    pub messages: Vec<Result<ToShim, String>>,
    /// The other side is still there.
    pub open: bool,
}

impl AgentConnection {
    /// Takes a stream over.
    pub fn new(stream: UnixStream, since: BootInstant) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, input: Vec::new(), output: Vec::new(), since, pid: None })
    }

    /// Whether the other side is a process of our user (or of root, who may do everything anyway).
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

    /// Adds a message to what goes out next.
    pub fn push(&mut self, message: &FromShim) {
        // Nothing in these messages can fail to become JSON: keys are strings and numbers are finite.
        if serde_json::to_writer(&mut self.output, message).is_ok() {
            self.output.push(b'\n');
        }
    }

    /// Writes as much as the other side takes; false when it has gone.
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

    /// Something waits to be written.
    pub fn has_output(&self) -> bool {
        !self.output.is_empty()
    }
}

impl AsFd for AgentConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
