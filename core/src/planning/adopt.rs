//!
//! Resolves submissions that a crash interrupted between the call of `sbatch` and its record.
//!
//! Every allocation has a marker that it carries in Slurm, so Slurm can be asked about it. It is submitted again only
//! after Slurm has answered that it does not know the marker, and a grace period has passed.

/// The time after `sbatch` within which an allocation appears in Slurm's answers, in milliseconds.
pub const GRACE_MS: i64 = 60_000;

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
    /// Nothing: it did not answer.
    NoAnswer,
    /// These exist, or have existed: marker and number.
    Found(&'a [(&'a str, &'a str)]),
}

/// The action to take for an interrupted submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution<'a> {
    /// It is there, under this number.
    Adopt(&'a str),
    /// It is not there: submit it, under the same marker.
    Submit,
    /// Its fate is not known yet.
    Wait,
}

/// Decides about one submission. If Slurm has several with its marker, the first one is kept, and the others are
/// canceled (see [`surplus`]).
pub fn decide<'a>(intention: PendingSubmission<'_>, sightings: SlurmLookup<'a>) -> Resolution<'a> {
    let Some(called_ms_ago) = intention.called_ms_ago else { return Resolution::Submit };
    let SlurmLookup::Found(found) = sightings else { return Resolution::Wait };
    match found.iter().find(|(marker, _)| *marker == intention.marker) {
        Some((_, number)) => Resolution::Adopt(number),
        None if called_ms_ago >= GRACE_MS => Resolution::Submit,
        None => Resolution::Wait,
    }
}

/// Allocations in Slurm that carry a marker of ours but are not the one that is known under it.
pub fn surplus<'a>(marker: &str, number: &str, sightings: SlurmLookup<'a>) -> Vec<&'a str> {
    let SlurmLookup::Found(found) = sightings else { return Vec::new() };
    found.iter().filter(|(found, other)| *found == marker && *other != number).map(|(_, other)| *other).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_submission_is_found_before_a_repeat() {
        let found = [("torc-wf1-a1", "17"), ("torc-wf1-a2", "18")];
        let known = SlurmLookup::Found(&found);
        let intention = |marker, called_ms_ago| PendingSubmission { marker, called_ms_ago };
        let cases = [
            (intention("torc-wf1-a1", Some(0)), known, Resolution::Adopt("17")),
            (intention("torc-wf1-a1", Some(GRACE_MS * 9)), known, Resolution::Adopt("17")),
            (intention("torc-wf1-a3", Some(GRACE_MS)), known, Resolution::Submit),
            (intention("torc-wf1-a3", Some(GRACE_MS - 1)), known, Resolution::Wait),
            (intention("torc-wf1-a", Some(GRACE_MS)), known, Resolution::Submit),
            (intention("torc-wf1-a3", Some(GRACE_MS * 9)), SlurmLookup::NoAnswer, Resolution::Wait),
            (intention("torc-wf1-a3", None), SlurmLookup::NoAnswer, Resolution::Submit),
        ];
        for (intention, sightings, expected) in cases {
            assert_eq!(decide(intention, sightings), expected, "{intention:?}");
        }
    }

    #[test]
    fn twins_are_found() {
        let found = [("a", "17"), ("b", "18"), ("a", "19")];
        assert_eq!(surplus("a", "17", SlurmLookup::Found(&found)), ["19"]);
        assert_eq!(surplus("b", "18", SlurmLookup::Found(&found)), Vec::<&str>::new());
        assert_eq!(surplus("a", "17", SlurmLookup::NoAnswer), Vec::<&str>::new());
    }
}
