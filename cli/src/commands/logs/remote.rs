//! Logs on the disk of a runner on another machine, read in chunks through the server.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use torc_api::error_code::ErrorCode;
use torc_api::logs::{LogChunk, LogChunkRequest, LogSyncRequest, MAX_CHUNK_BYTES};
use torc_runner::{HttpLink, LinkError};

use super::{LoggedAttempt, tail};
use crate::client::{Client, ClientError};
use crate::error::CliError;
use crate::output::Printer;

/// Delay before a server that did not answer is called again.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// The position up to which each file was printed.
pub struct RemoteTail {
    lines: Option<usize>,
    offsets: HashMap<PathBuf, i64>,
    printed: bool,
}

impl RemoteTail {
    /// Returns a tail that begins at the last `lines`, or at the start of the log.
    pub fn new(lines: Option<usize>) -> Self {
        Self { lines, offsets: HashMap::new(), printed: false }
    }

    pub fn has_printed(&self) -> bool {
        self.printed
    }

    /// Prints the output since the last call.
    pub(super) async fn print(
        &mut self,
        client: &Client,
        attempt: &LoggedAttempt,
        output: Printer,
    ) -> Result<(), CliError> {
        for file in &attempt.files {
            loop {
                let known = self.offsets.get(file).copied();
                let wanted = LogChunkRequest {
                    id: 0,
                    path: file.to_string_lossy().into_owned(),
                    offset: known.unwrap_or_default(),
                    lines: self.lines.filter(|_| known.is_none()).and_then(|lines| i64::try_from(lines).ok()),
                };
                let chunk = match client.log_chunk(&attempt.workflow, &attempt.job, &wanted).await {
                    Err(error) if ends_with_attempt(attempt, &error) => break,
                    answer => answer?,
                };
                let bytes = chunk.bytes();
                // A log appears when there is output; until then there is no file.
                if !chunk.found || bytes.is_empty() {
                    break;
                }
                output.raw(&bytes)?;
                self.printed = true;
                let read = i64::try_from(bytes.len()).unwrap_or_default();
                self.offsets.insert(file.clone(), chunk.offset.saturating_add(read));
                if bytes.len() < MAX_CHUNK_BYTES {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Returns whether an attempt has ended since the last call without such a file. Its result contains the right files.
fn ends_with_attempt(attempt: &LoggedAttempt, error: &ClientError) -> bool {
    !attempt.ended && matches!(error, ClientError::Answer { body, .. } if body.code == ErrorCode::LogNotFound)
}

/// Sends requested chunks of the logs on this machine to the server, until the runner exits.
pub async fn serve_logs(link: HttpLink, host: String) {
    let mut exchange = LogSyncRequest { host, pieces: Vec::new() };
    loop {
        match link.exchange_logs(&exchange).await {
            Ok(response) => exchange.pieces = response.wanted.iter().map(read).collect(),
            Err(error) => {
                // The client that requested the chunks has timed out by now.
                exchange.pieces.clear();
                if !matches!(error, LinkError::Unreachable(_)) {
                    tracing::debug!("could not fetch log requests: {error}");
                }
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
        }
    }
}

fn read(wanted: &LogChunkRequest) -> LogChunk {
    let offset = u64::try_from(wanted.offset).unwrap_or_default();
    let lines = wanted.lines.and_then(|lines| usize::try_from(lines).ok());
    match tail::chunk(&wanted.path, offset, lines, MAX_CHUNK_BYTES) {
        Ok((start, bytes)) => LogChunk::new(wanted.id, i64::try_from(start).unwrap_or_default(), &bytes),
        Err(_) => LogChunk::missing(wanted.id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_went_with_the_end_of_its_attempt_is_no_error() {
        let answer = |code: &str| ClientError::answer(404, &format!(r#"{{"code": "{code}", "message": "m"}}"#));
        let attempt = |ended: bool| LoggedAttempt {
            job: "j".to_owned(),
            run: 1,
            attempt: 1,
            files: Vec::new(),
            ended,
            workflow: "w".to_owned(),
        };
        assert!(ends_with_attempt(&attempt(false), &answer("LogNotFound")));
        assert!(!ends_with_attempt(&attempt(true), &answer("LogNotFound")), "a result names files that there are");
        assert!(!ends_with_attempt(&attempt(false), &answer("LogGone")), "that is worth telling");
    }
}
