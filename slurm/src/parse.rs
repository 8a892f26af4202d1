//! Parsers of values that several Slurm commands print.

pub mod amounts;
pub mod fields;
