//! What texts must look like to be quantities. `quantity` reads them; CEL can only look at their form, so that a number that is too
//! large is told by the planner.

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

/// What stands for itself only after expansion is looked at then.
macro_rules! template_or {
    ($expression:expr) => {
        concat!("self.contains('{') || ", $expression)
    };
}

/// `200g`, `200Gi`, `512MB`, `1.5G` or a plain number of bytes.
pub(super) const MEMORY: &str = template_or!(r"self.matches(r'^(?i)\s*\d+(\.\d+)?\s*([kmgtp]i?)?b?\s*$')");

/// What is said of another text.
pub(super) const MEMORY_WORDS: &str = r#""'" + self + "' is not a memory size""#;

/// How long something takes.
pub(super) const DURATION: &str = template_or!(duration!());

/// What is said of another text.
pub(super) const DURATION_WORDS: &str = r#"self.matches(r'^\s*\d+\s*$') ? "'" + self + "' is a duration without a unit" : "'" + self + "' is not a duration""#;

/// A duration, or `never`.
pub(super) const ORPHAN_AFTER: &str = concat!("self == 'never' || ", template_or!(duration!()));

/// A duration, or a number of minutes, as Slurm has it.
pub(super) const WALLTIME: &str = template_or!(concat!(r"self.matches(r'^\s*\d+\s*$') || ", duration!()));

/// What is said of another text.
pub(super) const WALLTIME_WORDS: &str = r#""'" + self + "' is not a duration""#;
