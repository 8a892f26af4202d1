//! All of Torc's SQL: stores the decisions of the core and loads them again.
//!
//! One process owns a store and one connection writes to it, a group of changes in one durable transaction. Reads use other
//! connections, except where the file system has no shared memory.
//!
//! No statement here decides about the state of a job or who gets it.

mod backup;
mod bulk;
mod connection;
mod error;
mod filesystem;
mod gc;
mod leadership;
mod load;
mod open;
mod query;
mod records;
mod remote;
mod store;
mod varint;
mod write;

pub use backup::{BackupInfo, verify};
pub use error::StoreError;
pub use gc::GcReport;
pub use leadership::Leader;
pub use open::{OpenOptions, last_leader};
pub use query::events::EventView;
pub use query::jobs::JobView;
pub use query::results::{FAILED_STATES, ResultView};
pub use store::Store;
