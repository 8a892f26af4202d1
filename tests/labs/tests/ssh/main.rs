//! Workers on machines that are reached over SSH.
#![allow(clippy::unwrap_used)]

mod remote;
