//! Regular expressions for texts that are quantities. `quantity` parses them. CEL checks only the form, so the
//! planner reports numbers that are too large.

macro_rules! unit {
    ($letter:literal) => {
        concat!(r"(\d+(\.\d+)?", $letter, ")?")
    };
}

/// `PT4H`, `4h30m` or `1-02:00:00`.
macro_rules! duration {
    () => {
        concat!(
            r"self.matches(r'^(?i)\s*p",
            unit!("y"),
            unit!("m"),
            unit!("w"),
            unit!("d"),
            "(t",
            unit!("h"),
            unit!("m"),
            unit!("s"),
            r")?\s*$') && !self.matches(r'(?i)[pt]\s*$')",
            r" || self.matches(r'^\s*(\d{1,18}-\d{1,18}(:\d{1,18}){0,2}|\d{1,18}(:\d{1,18}){1,2})\s*$')",
            " || self.trim() != '' && self.replace(' ', '').matches(r'^(?i)",
            unit!("w"),
            unit!("d"),
            unit!("h"),
            unit!("m"),
            unit!("s"),
            "$')"
        )
    };
}

/// Templates are checked after expansion.
macro_rules! template_or {
    ($expression:expr) => {
        concat!("self.contains('{') || ", $expression)
    };
}

/// `200g`, `200Gi`, `512MB`, `1.5G` or a plain number of bytes.
pub(super) const MEMORY: &str = template_or!(r"self.matches(r'^(?i)\s*\d+(\.\d+)?\s*([kmgtp]i?)?b?\s*$')");

/// The message for a text that is not an amount of memory.
pub(super) const MEMORY_WORDS: &str = r#""'" + self + "' is not a memory size""#;

/// A duration such as `PT4H`, `4h30m` or `1-02:00:00`, or a template.
pub(super) const DURATION: &str = template_or!(duration!());

/// The message for a text that is not a duration.
pub(super) const DURATION_WORDS: &str = r#"self.matches(r'^\s*\d+\s*$') ? "'" + self + "' is a duration without a unit" : "'" + self + "' is not a duration""#;

/// A duration, or `never`.
pub(super) const ORPHAN_AFTER: &str = concat!("self == 'never' || ", template_or!(duration!()));

/// A duration, or a number of minutes, as Slurm has it.
pub(super) const WALLTIME: &str = template_or!(concat!(r"self.matches(r'^\s*\d+\s*$') || ", duration!()));

/// The message for a text that is not a walltime.
pub(super) const WALLTIME_WORDS: &str = r#""'" + self + "' is not a duration""#;
