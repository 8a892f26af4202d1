//! Transfers chunks of logs from a runner's disk through the server.
//!
//! The runner makes the calls: each brings the requested chunks and waits for the next requests.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The largest number of bytes in one chunk.
pub const MAX_CHUNK_BYTES: usize = 1 << 20;

/// A request for a chunk of a log file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogChunkRequest {
    /// The number of the request, which its chunk repeats.
    pub id: i64,
    /// The path of the file, as the runner reported it.
    pub path: String,
    /// The offset in bytes.
    #[serde(default)]
    pub offset: i64,
    /// The number of last lines to return; absent for all content from the offset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<i64>,
}

/// A chunk of a log file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogChunk {
    /// The number of the request.
    pub id: i64,
    /// The file exists; if not, the content is empty.
    pub found: bool,
    /// The offset in bytes.
    pub offset: i64,
    /// The content in base64; empty at the end of the file.
    pub content: String,
}

impl LogChunk {
    /// Creates a chunk with these bytes.
    pub fn new(id: i64, offset: i64, bytes: &[u8]) -> Self {
        Self { id, found: true, offset, content: STANDARD.encode(bytes) }
    }

    /// Creates the answer for a file that does not exist.
    pub fn missing(id: i64) -> Self {
        Self { id, ..Self::default() }
    }

    /// Returns the decoded bytes; none if they are not valid base64.
    pub fn bytes(&self) -> Vec<u8> {
        STANDARD.decode(&self.content).unwrap_or_default()
    }
}

/// `POST /v1/logs`: a runner sends the requested chunks and waits for the next requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogSyncRequest {
    /// The host that the files are on.
    pub host: String,
    /// The chunks that the previous response requested.
    #[serde(default)]
    pub pieces: Vec<LogChunk>,
}

/// The chunks that the server requests from a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogSyncResponse {
    /// The requested chunks; none if no request came in time.
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
