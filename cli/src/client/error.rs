//! Errors of requests to a server.

use torc_api::api::ErrorBody;

use super::trust_error::TrustError;
use crate::error::{CliError, ExitStatus};

/// The error of a request to a server.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The URL cannot be used.
    #[error("'{url}' is not a server URL: {reason}")]
    Url { url: String, reason: String },
    /// The HTTP client cannot be set up.
    #[error("could not set up the HTTP client")]
    Build {
        #[source]
        source: reqwest::Error,
    },
    /// The trusted certificates cannot be used.
    #[error("could not load the trusted certificates: {reason}")]
    Trust { reason: String },
    /// The server's certificate was not accepted, so the token was not sent.
    #[error("the server at {url} is not trusted: {}", trust_error.reason)]
    Untrusted { url: String, trust_error: TrustError },
    /// The server did not answer.
    #[error("could not reach the server at {url}")]
    Unreachable {
        url: String,
        #[source]
        source: reqwest::Error,
    },
    /// The response ended early.
    #[error("the server's response was cut off")]
    CutOff {
        #[source]
        source: reqwest::Error,
    },
    /// The stream of events ended.
    #[error("the server closed the connection")]
    Closed,
    /// A followed workflow was deleted.
    #[error("workflow {id} was deleted")]
    Deleted { id: i64 },
    /// The response does not have the expected form.
    #[error("could not parse the server's response")]
    Decode {
        #[source]
        source: serde_json::Error,
    },
    /// The server answered with an error.
    #[error("{}", body.message)]
    Answer {
        /// The status code of the HTTP response.
        status: u16,
        body: Box<ErrorBody>,
    },
}

impl ClientError {
    /// Creates the error of a response with an error status.
    pub fn answer(status: u16, text: &str) -> Self {
        let body = serde_json::from_str(text).unwrap_or_else(|_| {
            let said = text.trim();
            let message = if said.is_empty() || said.len() > 500 {
                format!("the server answered with status {status}")
            } else {
                format!("the server answered with status {status}: {said}")
            };
            ErrorBody { code: "Unknown".to_owned().into(), message, ..ErrorBody::default() }
        });
        Self::Answer { status, body: Box::new(body) }
    }

    /// Creates the error of a request without a response.
    pub fn unanswered(url: String, source: reqwest::Error) -> Self {
        match TrustError::of(&source) {
            Some(trust_error) => Self::Untrusted { url, trust_error },
            None => Self::Unreachable { url, source },
        }
    }

    /// Returns whether there was no response, as opposed to an error response.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::CutOff { .. } | Self::Closed)
    }

    /// Returns whether the requested object does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Answer { status: 404, .. } | Self::Deleted { .. })
    }

    /// Returns whether the request conflicts with the current state.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Answer { status: 409, .. })
    }

    fn kind(&self) -> ExitStatus {
        match self {
            Self::Unreachable { .. } | Self::CutOff { .. } | Self::Closed => ExitStatus::Unreachable,
            Self::Url { .. } | Self::Trust { .. } => ExitStatus::InvalidInput,
            Self::Untrusted { .. } => ExitStatus::Refused,
            Self::Deleted { .. } => ExitStatus::NotFound,
            Self::Build { .. } | Self::Decode { .. } => ExitStatus::Unexpected,
            Self::Answer { status, .. } => match status {
                400 | 413 | 422 => ExitStatus::InvalidInput,
                401 | 403 | 409 => ExitStatus::Refused,
                404 => ExitStatus::NotFound,
                502..=504 => ExitStatus::Unreachable,
                _ => ExitStatus::Unexpected,
            },
        }
    }
}

/// Returns the innermost cause; the outer ones only say that a request failed.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> Self {
        let mut command = Self::new(error.kind(), error.to_string());
        match error {
            ClientError::Answer { status, body } => {
                command.hints.extend(body.hint.clone());
                if status == 401 && command.hints.is_empty() {
                    command = command.hint("name the server's token with --token-file, TORC_TOKEN_FILE or TORC_TOKEN");
                }
                for problem in &body.problems {
                    let field = if problem.field.is_empty() { String::new() } else { format!("{}: ", problem.field) };
                    command.lines.push(format!("  {field}{}", problem.message));
                }
                if !body.problems.is_empty() {
                    command.details = serde_json::to_value(&body.problems).ok().map(Box::new);
                }
            }
            ClientError::Unreachable { source, .. } => {
                command = command
                    .because(root_cause(&source))
                    .hint("check that the server is running and that its URL is right (--url, TORC_API_URL)");
            }
            ClientError::Build { source } | ClientError::CutOff { source } => command = command.because(source),
            ClientError::Decode { source } => command = command.because(source),
            ClientError::Untrusted { trust_error, .. } => command = command.hint(trust_error.hint),
            ClientError::Trust { .. } => command = command.hint("see --ca-cert, --certificate-sha256 and --token-file"),
            ClientError::Url { .. } | ClientError::Closed | ClientError::Deleted { .. } => {}
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_statuses_have_their_kind() {
        for (status, kind) in [
            (400, ExitStatus::InvalidInput),
            (401, ExitStatus::Refused),
            (403, ExitStatus::Refused),
            (404, ExitStatus::NotFound),
            (409, ExitStatus::Refused),
            (422, ExitStatus::InvalidInput),
            (500, ExitStatus::Unexpected),
            (503, ExitStatus::Unreachable),
        ] {
            assert_eq!(CliError::from(ClientError::answer(status, "")).kind, kind, "{status}");
        }
        assert_eq!(CliError::from(ClientError::Closed).kind, ExitStatus::Unreachable);
    }

    #[test]
    fn message_problems_and_hint_of_the_server_are_kept() {
        let text = r#"{"code":"Invalid","message":"the document is wrong","hint":"mend it",
            "problems":[{"severity":"Error","field":"spec.jobs","message":"a cycle"}]}"#;
        let error = CliError::from(ClientError::answer(422, text));
        assert_eq!(error.message, "the document is wrong");
        assert_eq!(error.lines, ["  spec.jobs: a cycle"]);
        assert_eq!(error.hints, ["mend it"]);
        let odd = CliError::from(ClientError::answer(502, "<html>"));
        assert_eq!(odd.message, "the server answered with status 502: <html>");
    }

    #[test]
    fn every_http_status_has_its_exit_code() {
        for (status, code) in [
            (400, 4),
            (401, 7),
            (402, 1),
            (403, 7),
            (404, 5),
            (405, 1),
            (408, 1),
            (409, 7),
            (410, 1),
            (412, 1),
            (413, 4),
            (414, 1),
            (415, 1),
            (421, 1),
            (422, 4),
            (423, 1),
            (429, 1),
            (500, 1),
            (501, 1),
            (502, 6),
            (503, 6),
            (504, 6),
            (505, 1),
        ] {
            let error = ClientError::answer(status, "");
            assert_eq!(error.is_not_found(), status == 404, "{status}");
            assert!(!error.is_unreachable(), "there was a response: {status}");
            assert_eq!(CliError::from(error).kind.code(), code, "{status}");
        }
    }

    #[test]
    fn every_client_error_has_its_exit_code_and_hint() {
        torc_controller::tls::install_cryptography();
        let no_json = || serde_json::from_str::<u8>("x").expect_err("no number");
        let text = String::new;
        let trust_error = TrustError { reason: "r".to_owned(), hint: "advice" };
        let request = || reqwest::Client::new().get("http://").build().expect_err("no host");
        for (error, code, unreachable, missing, hint) in [
            (ClientError::Url { url: text(), reason: text() }, 4, false, false, None),
            (ClientError::Build { source: request() }, 1, false, false, None),
            (ClientError::Trust { reason: text() }, 4, false, false, Some("see --ca-cert")),
            (ClientError::Untrusted { url: text(), trust_error }, 7, false, false, Some("advice")),
            (
                ClientError::Unreachable { url: text(), source: request() },
                6,
                true,
                false,
                Some("check that the server is running"),
            ),
            (ClientError::CutOff { source: request() }, 6, true, false, None),
            (ClientError::Closed, 6, true, false, None),
            (ClientError::Deleted { id: 7 }, 5, false, true, None),
            (ClientError::Decode { source: no_json() }, 1, false, false, None),
        ] {
            assert_eq!((error.is_unreachable(), error.is_not_found()), (unreachable, missing), "{error:?}");
            let name = format!("{error:?}");
            let command = CliError::from(error);
            assert_eq!(command.kind.code(), code, "{name}");
            let found = command.hints.first().map(String::as_str);
            assert!(
                hint.map_or(found.is_none(), |words| found.is_some_and(|found| found.contains(words))),
                "{name}: {found:?}"
            );
        }
    }

    #[test]
    fn only_a_missing_token_is_hinted_at() {
        let hints = |status, text: &str| CliError::from(ClientError::answer(status, text)).hints;
        assert!(hints(401, "")[0].contains("--token-file"));
        assert_eq!(hints(401, r#"{"code":"c","message":"m","hint":"own"}"#), ["own"]);
        assert_eq!(hints(403, ""), Vec::<String>::new());
    }

    #[test]
    fn a_long_response_is_not_repeated() {
        let message = |length: usize| CliError::from(ClientError::answer(500, &"x".repeat(length))).message;
        assert_eq!(message(500).len(), "the server answered with status 500: ".len() + 500);
        for length in [0, 501] {
            assert_eq!(message(length), "the server answered with status 500");
        }
        let error = CliError::from(ClientError::answer(
            422,
            r#"{"code":"c","message":"m","problems":[{"severity":"Error","field":"","message":"p"}]}"#,
        ));
        assert_eq!(error.lines, ["  p"]);
        assert_eq!(error.details.expect("problems")[0]["message"], "p");
    }
}
