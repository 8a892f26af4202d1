//! Submissions that were cut short: the intention was written down, `sbatch` was called, and then somebody died.
//!
//! Every allocation has a marker that it carries in Slurm, so what became of it can be found out. Only when Slurm has answered that
//! it knows nothing of it, and has had the time to, is it asked for again.

/// So long after the call an allocation must be visible.
pub const GRACE_MS: i64 = 60_000;

/// An allocation whose number in Slurm is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intention<'a> {
    /// Its marker.
    pub marker: &'a str,
    /// How long ago `sbatch` was called for it; none if it certainly was not.
    pub called_ms_ago: Option<i64>,
}

/// What Slurm says about markers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sightings<'a> {
    /// Nothing: it did not answer.
    NoAnswer,
    /// These exist, or have existed: marker and number.
    Found(&'a [(&'a str, &'a str)]),
}

/// What to do about an intention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate<'a> {
    /// It is there, under this number.
    Adopt(&'a str),
    /// It is not there: submit it, under the same marker.
    Submit,
    /// Nobody can say yet.
    Wait,
}

/// Decides about one intention. If there are two of it, the first is ours and the others are to be cancelled (see [`surplus`]).
pub fn decide<'a>(intention: Intention<'_>, sightings: Sightings<'a>) -> Fate<'a> {
    let Some(called_ms_ago) = intention.called_ms_ago else { return Fate::Submit };
    let Sightings::Found(found) = sightings else { return Fate::Wait };
    match found.iter().find(|(marker, _)| *marker == intention.marker) {
        Some((_, number)) => Fate::Adopt(number),
        None if called_ms_ago >= GRACE_MS => Fate::Submit,
        None => Fate::Wait,
    }
}

/// Allocations in Slurm that carry a marker of ours but are not the one that is known under it.
pub fn surplus<'a>(marker: &str, number: &str, sightings: Sightings<'a>) -> Vec<&'a str> {
    let Sightings::Found(found) = sightings else { return Vec::new() };
    found.iter().filter(|(found, other)| *found == marker && *other != number).map(|(_, other)| *other).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_submission_that_was_cut_short_is_found_again_and_never_repeated_on_a_guess() {
        let found = [("torc-wf1-a1", "17"), ("torc-wf1-a2", "18")];
        let known = Sightings::Found(&found);
        let intention = |marker, called_ms_ago| Intention { marker, called_ms_ago };
        let cases = [
            (intention("torc-wf1-a1", Some(0)), known, Fate::Adopt("17")),
            (intention("torc-wf1-a1", Some(GRACE_MS * 9)), known, Fate::Adopt("17")),
            (intention("torc-wf1-a3", Some(GRACE_MS)), known, Fate::Submit),
            (intention("torc-wf1-a3", Some(GRACE_MS - 1)), known, Fate::Wait),
            (intention("torc-wf1-a", Some(GRACE_MS)), known, Fate::Submit),
            (intention("torc-wf1-a3", Some(GRACE_MS * 9)), Sightings::NoAnswer, Fate::Wait),
            (intention("torc-wf1-a3", None), Sightings::NoAnswer, Fate::Submit),
        ];
        for (intention, sightings, expected) in cases {
            assert_eq!(decide(intention, sightings), expected, "{intention:?}");
        }
    }

    #[test]
    fn twins_are_found() {
        let found = [("a", "17"), ("b", "18"), ("a", "19")];
        assert_eq!(surplus("a", "17", Sightings::Found(&found)), ["19"]);
        assert_eq!(surplus("b", "18", Sightings::Found(&found)), Vec::<&str>::new());
        assert_eq!(surplus("a", "17", Sightings::NoAnswer), Vec::<&str>::new());
    }
}
