//! All of Torc's SQL: keeps what the core decided, and gives it back.
//!
//! One process owns a store and one connection writes to it, a group of changes in one durable transaction. Readers have
//! connections of their own, except where the file system has no shared memory.
//!
//! Deliberately absent: decisions. No statement here chooses a job's next state or who gets it.

mod backup;
mod bulk;
mod connection;
mod error;
mod filesystem;
mod gc;
mod leadership;
mod load;
mod open;
mod packed;
mod query;
mod records;
mod remote;
mod store;
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
