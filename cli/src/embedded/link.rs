//! The link of a runner to the engine of the same process, without HTTP.

use torc_api::api::ErrorBody;
use torc_api::error_code::ErrorCode;
use torc_api::token::Grant;
use torc_api::wire::{RegisterRequest, RegisterResponse, SyncRequest, SyncResponse};
use torc_controller::EngineHandle;
use torc_runner::{LinkError, ServerLink};

/// A link to the engine of this process.
pub struct EngineLink {
    engine: EngineHandle,
}

impl EngineLink {
    pub fn new(engine: EngineHandle) -> Self {
        Self { engine }
    }
}

impl ServerLink for EngineLink {
    async fn register(&self, request: &RegisterRequest) -> Result<RegisterResponse, LinkError> {
        self.engine.register(request.clone(), Grant::Admin).await.map_err(|error| translate(*error.body))
    }

    async fn sync(&self, runner: i64, request: &SyncRequest) -> Result<SyncResponse, LinkError> {
        self.engine.sync(runner, request.clone(), Grant::Admin).await.map_err(|error| translate(*error.body))
    }
}

fn translate(body: ErrorBody) -> LinkError {
    match body.code {
        ErrorCode::RunnerNotFound => LinkError::Unknown,
        ErrorCode::Stopped | ErrorCode::StoreUnavailable | ErrorCode::Internal => LinkError::Unreachable(body.message),
        code => LinkError::Refused { code: code.to_string(), message: body.message },
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn engine_errors_become_link_errors() {
        let said = |code: &str| {
            let body = ErrorBody { code: code.to_owned().into(), message: "m".to_owned(), ..ErrorBody::default() };
            translate(body)
        };
        assert!(matches!(said("RunnerNotFound"), LinkError::Unknown));
        for code in ["Stopped", "StoreUnavailable", "Internal"] {
            assert!(matches!(said(code), LinkError::Unreachable(message) if message == "m"), "{code}");
        }
        let refused = said("Forbidden");
        assert!(matches!(refused, LinkError::Refused { code, message } if code == "Forbidden" && message == "m"));
    }
}
