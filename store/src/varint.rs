//! Lists of job numbers as bytes: differences in variable-length integers, one to three bytes an entry.
//!
//! There is no version byte: a changed encoding is a migration.

use torc_api::state::JobState;
use torc_core::ids::JobId;

/// Encodes job numbers, in their order.
pub(crate) fn encode_jobs(jobs: &[JobId]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(jobs.len() * 2);
    let mut previous = 0;
    for job in jobs {
        append_difference(previous, job.0, &mut bytes);
        previous = job.0;
    }
    bytes
}

/// Decodes the bytes of [`encode_jobs`]; `None` for invalid bytes.
pub(crate) fn decode_jobs(bytes: &[u8]) -> Option<Vec<JobId>> {
    let mut jobs = Vec::with_capacity(bytes.iter().filter(|byte| *byte & CONTINUATION_BIT == 0).count());
    let mut rest = bytes;
    let mut previous = 0;
    while !rest.is_empty() {
        previous = take_difference(previous, &mut rest)?;
        jobs.push(JobId(previous));
    }
    Some(jobs)
}

/// Encodes job transitions: (job, attempt, state).
pub(crate) fn encode_transitions(moves: &[(JobId, i32, JobState)]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(moves.len() * 3);
    let mut previous = 0;
    for (job, attempt, state) in moves {
        append_difference(previous, job.0, &mut bytes);
        append_varint(zigzag(i64::from(*attempt)), &mut bytes);
        bytes.push(state.code());
        previous = job.0;
    }
    bytes
}

/// Decodes the bytes of [`encode_transitions`]; `None` for invalid bytes.
pub(crate) fn decode_transitions(bytes: &[u8]) -> Option<Vec<(JobId, i32, JobState)>> {
    let mut moves = Vec::new();
    let mut rest = bytes;
    let mut previous = 0;
    while !rest.is_empty() {
        previous = take_difference(previous, &mut rest)?;
        let attempt = i32::try_from(unzigzag(take_varint(&mut rest)?)).ok()?;
        let (state, tail) = rest.split_first()?;
        rest = tail;
        moves.push((JobId(previous), attempt, JobState::from_code(*state)?));
    }
    Some(moves)
}

/// Set in every byte of an integer but the last.
const CONTINUATION_BIT: u8 = 0x80;

fn append_difference(previous: i64, number: i64, bytes: &mut Vec<u8>) {
    append_varint(zigzag(number.wrapping_sub(previous)), bytes);
}

fn take_difference(previous: i64, rest: &mut &[u8]) -> Option<i64> {
    Some(previous.wrapping_add(unzigzag(take_varint(rest)?)))
}

/// Maps small numbers of either sign to small numbers.
fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

fn append_varint(mut number: u64, bytes: &mut Vec<u8>) {
    while number >= u64::from(CONTINUATION_BIT) {
        bytes.push(number.to_le_bytes()[0] | CONTINUATION_BIT);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
}

fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (byte, tail) = rest.split_first()?;
        *rest = tail;
        number |= u64::from(byte & !CONTINUATION_BIT) << shift;
        if byte & CONTINUATION_BIT == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn neighbours_take_a_byte_each() {
        let jobs: Vec<JobId> = (1_000_000..1_000_010).map(JobId).collect();
        assert_eq!(encode_jobs(&jobs).len(), 3 + 9);
    }

    /// Files of earlier versions must stay readable.
    #[test]
    fn the_packing_is_that_of_files_on_disks() {
        // Differences 1, 1, 298, -295 and -69, doubled; negative ones minus one.
        let jobs = [1, 2, 300, 5, -64].map(JobId);
        assert_eq!(encode_jobs(&jobs), [2, 2, 0xd4, 0x04, 0xcd, 0x04, 0x89, 0x01]);
        let moves =
            [(JobId(7), 2, JobState::Failed), (JobId(6), -1, JobState::Recovering), (JobId(70), 64, JobState::Ready)];
        assert_eq!(encode_transitions(&moves), [14, 4, 6, 1, 1, 11, 0x80, 0x01, 0x80, 0x01, 2]);
    }

    #[test]
    fn bytes_that_are_no_list_are_refused() {
        for bytes in [&[0x80][..], &[0xff; 11], &[1, 0x80]] {
            assert_eq!(decode_jobs(bytes), None, "{bytes:?}");
        }
        for bytes in [&[2][..], &[2, 2], &[2, 2, 12]] {
            assert_eq!(decode_transitions(bytes), None, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn jobs_come_back_as_they_were(numbers in proptest::collection::vec(any::<i64>(), 0..50)) {
            let jobs: Vec<JobId> = numbers.into_iter().map(JobId).collect();
            prop_assert_eq!(decode_jobs(&encode_jobs(&jobs)), Some(jobs));
        }

        #[test]
        fn moves_come_back_as_they_were(raw in proptest::collection::vec((any::<i64>(), any::<i32>(), 0..12u8), 0..50)) {
            let moves: Vec<_> =
                raw.into_iter().map(|(job, attempt, state)| (JobId(job), attempt, JobState::from_code(state).unwrap())).collect();
            prop_assert_eq!(decode_transitions(&encode_transitions(&moves)), Some(moves));
        }
    }
}
