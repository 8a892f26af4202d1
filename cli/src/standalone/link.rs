//! A runner in the same process reaches the engine without HTTP.

use torc_api::token::Grant;
use torc_api::wire::{RegisterRequest, RegisterResponse, SyncRequest, SyncResponse};
use torc_controller::{Engine, EngineError};
use torc_runner::{LinkError, ServerLink};

/// The way from a runner to the engine of this process.
pub struct EngineLink {
    engine: Engine,
}

impl EngineLink {
    /// A way to an engine.
    pub fn new(engine: Engine) -> Self {
        Self { engine }
    }
}

impl ServerLink for EngineLink {
    async fn register(&self, request: &RegisterRequest) -> Result<RegisterResponse, LinkError> {
        self.engine.register(request.clone(), Grant::Admin).await.map_err(translate)
    }

    async fn sync(&self, runner: i64, request: &SyncRequest) -> Result<SyncResponse, LinkError> {
        self.engine.sync(runner, request.clone(), Grant::Admin).await.map_err(translate)
    }
}

fn translate(error: EngineError) -> LinkError {
    let body = error.body;
    match body.code.as_str() {
        "RunnerNotFound" => LinkError::Unknown,
        "Stopped" | "StoreUnavailable" | "Internal" => LinkError::Unreachable(body.message),
        _ => LinkError::Refused { code: body.code, message: body.message },
    }
}
