//! Resolves submissions that a crash interrupted between the call of `sbatch` and its record.
//!
//! Every allocation has a marker that it carries in Slurm, so Slurm can be asked about it. It is submitted again only
//! after Slurm has answered that it does not know the marker, and a grace period has passed.

/// The time after `sbatch` within which an allocation appears in Slurm's answers, in milliseconds.
pub const SUBMISSION_GRACE_MS: i64 = 60_000;

/// An allocation whose number in Slurm is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingSubmission<'a> {
    /// The unique text that the allocation carries in Slurm.
    pub marker: &'a str,
    /// Milliseconds since the call of `sbatch`; none if `sbatch` was certainly not called.
    pub called_ms_ago: Option<i64>,
}

/// Slurm's answer about markers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlurmLookup<'a> {
    /// Slurm did not answer.
    NoAnswer,
    /// The allocations that exist or have existed: marker and Slurm job number.
    Found(&'a [(&'a str, &'a str)]),
}

/// The action to take for an interrupted submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution<'a> {
    /// Slurm has it under this job number.
    Adopt(&'a str),
    /// Slurm does not know it: submit it again with the same marker.
    Submit,
    /// Slurm may still report it: ask again later.
    Wait,
}

/// Decides about one submission. If Slurm has several with its marker, the first one is kept, and the others are
/// canceled (see [`duplicates`]).
pub fn decide<'a>(submission: PendingSubmission<'_>, lookup: SlurmLookup<'a>) -> Resolution<'a> {
    let Some(called_ms_ago) = submission.called_ms_ago else { return Resolution::Submit };
    let SlurmLookup::Found(found) = lookup else { return Resolution::Wait };
    match found.iter().find(|(marker, _)| *marker == submission.marker) {
        Some((_, number)) => Resolution::Adopt(number),
        None if called_ms_ago >= SUBMISSION_GRACE_MS => Resolution::Submit,
        None => Resolution::Wait,
    }
}

/// Returns the other Slurm jobs that carry the marker of the allocation whose job is `number`.
pub fn duplicates<'a>(marker: &str, number: &str, lookup: SlurmLookup<'a>) -> Vec<&'a str> {
    let SlurmLookup::Found(found) = lookup else { return Vec::new() };
    found.iter().filter(|(found, other)| *found == marker && *other != number).map(|(_, other)| *other).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_submission_is_found_before_a_repeat() {
        let found = [("torc-wf1-a1", "17"), ("torc-wf1-a2", "18")];
        let known = SlurmLookup::Found(&found);
        let submission = |marker, called_ms_ago| PendingSubmission { marker, called_ms_ago };
        let cases = [
            (submission("torc-wf1-a1", Some(0)), known, Resolution::Adopt("17")),
            (submission("torc-wf1-a1", Some(SUBMISSION_GRACE_MS * 9)), known, Resolution::Adopt("17")),
            (submission("torc-wf1-a3", Some(SUBMISSION_GRACE_MS)), known, Resolution::Submit),
            (submission("torc-wf1-a3", Some(SUBMISSION_GRACE_MS - 1)), known, Resolution::Wait),
            (submission("torc-wf1-a", Some(SUBMISSION_GRACE_MS)), known, Resolution::Submit),
            (submission("torc-wf1-a3", Some(SUBMISSION_GRACE_MS * 9)), SlurmLookup::NoAnswer, Resolution::Wait),
            (submission("torc-wf1-a3", None), SlurmLookup::NoAnswer, Resolution::Submit),
        ];
        for (submission, lookup, expected) in cases {
            assert_eq!(decide(submission, lookup), expected, "{submission:?}");
        }
    }

    #[test]
    fn twins_are_found() {
        let found = [("a", "17"), ("b", "18"), ("a", "19")];
        assert_eq!(duplicates("a", "17", SlurmLookup::Found(&found)), ["19"]);
        assert_eq!(duplicates("b", "18", SlurmLookup::Found(&found)), Vec::<&str>::new());
        assert_eq!(duplicates("a", "17", SlurmLookup::NoAnswer), Vec::<&str>::new());
    }
}
