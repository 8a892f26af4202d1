//! Output of jobs on the disk of a runner that others do not see: pieces of it, asked for through the server.
//!
//! Nobody calls a runner, so it calls: it brings the pieces that it was asked for, and waits until others are wanted.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// No piece is longer.
pub const LONGEST_PIECE: usize = 1 << 20;

/// A piece of a file that somebody wants to see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogChunkRequest {
    /// Its number.
    pub id: i64,
    /// The file, as the runner named it.
    pub path: String,
    /// Where it begins.
    #[serde(default)]
    pub offset: i64,
    /// Only the last lines, if there is anything before them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<i64>,
}

/// A piece of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogChunk {
    /// The number that it was asked for by.
    pub id: i64,
    /// Whether there is such a file.
    pub found: bool,
    /// Where the piece begins.
    pub offset: i64,
    /// What is there, in base64; empty at the end of the file.
    pub content: String,
}

impl LogChunk {
    /// A piece with these bytes.
    pub fn new(id: i64, offset: i64, bytes: &[u8]) -> Self {
        Self { id, found: true, offset, content: STANDARD.encode(bytes) }
    }

    /// There is no such file.
    pub fn missing(id: i64) -> Self {
        Self { id, ..Self::default() }
    }

    /// Its bytes; none if somebody has spoilt them.
    pub fn bytes(&self) -> Vec<u8> {
        STANDARD.decode(&self.content).unwrap_or_default()
    }
}

/// `POST /v1/logs`: a runner brings what it was asked for, and waits until more is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogSyncRequest {
    /// The host whose disk it is.
    pub host: String,
    /// What it brings.
    #[serde(default)]
    pub pieces: Vec<LogChunk>,
}

/// The answer: what is wanted, or nothing after a while.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogSyncResponse {
    /// The pieces.
    pub wanted: Vec<LogChunkRequest>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_every_kind_travel() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(LogChunk::new(1, 0, &bytes).bytes(), bytes);
        assert_eq!(LogChunk::missing(1).bytes(), Vec::<u8>::new());
        assert_eq!(LogChunk { content: "?".to_owned(), ..LogChunk::default() }.bytes(), Vec::<u8>::new());
    }
}
