//! The caller of a request.

use torc_api::token::Grant;

/// A caller whose token was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The rights of the token.
    pub grant: Grant,
    /// The caller's name, as messages and the audit log show it.
    pub name: String,
}
