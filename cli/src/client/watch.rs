//! The stream of server-sent events.

use reqwest::Response;
use torc_api::api::{Event, Workflow};

use super::ClientError;

/// A stream of events and statuses.
#[derive(Debug)]
pub struct EventStream {
    response: Response,
    parser: Parser,
    waiting: std::collections::VecDeque<WatchMessage>,
}

/// A message of the stream.
#[derive(Debug)]
pub enum WatchMessage {
    Event(Event),
    /// The new status of a workflow.
    Status(Box<Workflow>),
}

impl EventStream {
    /// Reads the stream of a response.
    pub fn new(response: Response) -> Self {
        Self { response, parser: Parser::default(), waiting: std::collections::VecDeque::new() }
    }

    /// Returns the next message; the end of the stream is an error.
    pub async fn next(&mut self) -> Result<WatchMessage, ClientError> {
        loop {
            if let Some(message) = self.waiting.pop_front() {
                return Ok(message);
            }
            let chunk = self.response.chunk().await.map_err(|source| ClientError::CutOff { source })?;
            let chunk = chunk.ok_or(ClientError::Closed)?;
            for (kind, data) in self.parser.feed(&chunk) {
                self.waiting.extend(message(&kind, &data)?);
            }
        }
    }
}

fn message(kind: &str, data: &str) -> Result<Option<WatchMessage>, ClientError> {
    let decode = |source| ClientError::Decode { source };
    Ok(match kind {
        "event" => Some(WatchMessage::Event(serde_json::from_str(data).map_err(decode)?)),
        "status" => Some(WatchMessage::Status(Box::new(serde_json::from_str(data).map_err(decode)?))),
        _ => None,
    })
}

/// Assembles lines into messages of (kind, data).
#[derive(Debug, Default)]
struct Parser {
    buffer: Vec<u8>,
    kind: String,
    data: String,
}

impl Parser {
    fn feed(&mut self, chunk: &[u8]) -> Vec<(String, String)> {
        let mut messages = Vec::new();
        self.buffer.extend_from_slice(chunk);
        let mut start = 0;
        while let Some(length) = self.buffer[start..].iter().position(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(&self.buffer[start..start + length]).into_owned();
            start += length + 1;
            messages.extend(self.line(line.trim_end_matches('\r')));
        }
        self.buffer.drain(..start);
        messages
    }

    fn line(&mut self, line: &str) -> Option<(String, String)> {
        if line.is_empty() {
            let message = (std::mem::take(&mut self.kind), std::mem::take(&mut self.data));
            return (!message.1.is_empty()).then_some(message);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.kind),
            "data" => {
                if !self.data.is_empty() {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_parsed_from_chunks_of_any_size() {
        let text = "id: 1\nevent: event\ndata: {\"a\":\ndata: 1}\n\n: keep-alive\n\nevent: status\r\ndata:x\r\n\r\n";
        let expected = [("event".to_owned(), "{\"a\":\n1}".to_owned()), ("status".to_owned(), "x".to_owned())];
        for size in 1..text.len() {
            let mut parser = Parser::default();
            let messages: Vec<_> = text.as_bytes().chunks(size).flat_map(|chunk| parser.feed(chunk)).collect();
            assert_eq!(messages, expected, "chunks of {size}");
        }
    }

    #[test]
    fn messages_of_unknown_kinds_are_ignored() {
        assert!(message("heartbeat", "{").expect("ignored").is_none());
        assert!(message("event", "{").is_err());
    }
}
