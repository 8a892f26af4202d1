//! Exit codes with a meaning of their own.

/// An attempt that was lost without a result.
pub const LOST: i32 = -128;
/// A job that was killed, usually for its memory: 128 + SIGKILL.
pub const KILLED: i32 = 137;
/// A job that was asked to end: 128 + SIGTERM.
pub const TERMINATED: i32 = 143;
/// A job that was ended because its time was over.
pub const TIMED_OUT: i32 = 152;
