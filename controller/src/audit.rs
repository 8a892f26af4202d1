//! Who does what: a request's deed travels with its task, so that whatever it changes is written down with its author in the
//! same transaction.

use std::sync::{Arc, Mutex, PoisonError};

use torc_api::token::Scope;
use torc_core::ids::Now;
use torc_core::rows::AuditRow;

use crate::engine::{EngineError, ErrorKind};
use crate::http::Caller;

tokio::task_local! {
    static DEED: Deed;
}

/// What somebody is about to do.
#[derive(Clone)]
pub(crate) struct Deed {
    who: String,
    scope: Scope,
    verb: &'static str,
    object: Arc<Mutex<String>>,
}

impl Deed {
    pub fn new(caller: &Caller, verb: &'static str, object: String) -> Self {
        let scope = caller.grant.scope();
        Self { who: caller.name.clone(), scope, verb, object: Arc::new(Mutex::new(object)) }
    }

    /// What is written down of it. What runners and jobs do is their work, and is on record as such: of them only their coming is
    /// noted, and what they were refused.
    pub fn row(&self, error: Option<&EngineError>, now: Now) -> Option<AuditRow> {
        let refused = error.is_some_and(|error| error.kind == ErrorKind::Forbidden);
        if self.scope == Scope::Runner && self.verb != "register" && !refused {
            return None;
        }
        Some(AuditRow {
            time_ms: now.wall_ms,
            who: self.who.clone(),
            scope: self.scope.name().to_owned(),
            verb: self.verb.to_owned(),
            object: self.object.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            outcome: error.map_or_else(|| "ok".to_owned(), |error| error.body.code.clone()),
        })
    }
}

/// Does something as somebody's deed.
pub(crate) async fn during<T>(deed: Deed, doing: impl Future<Output = T>) -> T {
    DEED.scope(deed, doing).await
}

/// Says what the present deed is done to, where its path does not.
pub(crate) fn speaks_of(object: String) {
    // Nobody listens to what this process does by itself.
    let _ = DEED.try_with(|deed| *deed.object.lock().unwrap_or_else(PoisonError::into_inner) = object);
}

/// The present deed.
pub(crate) fn present() -> Option<Deed> {
    DEED.try_with(Clone::clone).ok()
}
