//! The store of a folder, and the server that a command embeds to use it.

mod acquire;
mod advertise;
mod background;
mod link;
pub mod listening;
mod server;
pub mod store_dir;

pub use acquire::{StoreAccess, acquire_or_attach};
pub use background::{bind_to_record, start as start_background};
pub use server::{EmbeddedServer, ServeMode};
