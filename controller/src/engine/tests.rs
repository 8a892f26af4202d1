#![allow(clippy::unwrap_used)]

mod commands;
mod replay;
mod writer;
