//! The one function that decides every move of a job.

use torc_api::state::JobState;

/// Something that happens to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobEvent {
    /// It becomes part of a run and still waits for `unmet` jobs.
    Planned {
        /// The number of unfinished dependencies.
        unmet: u32,
    },
    /// The last job it waited for has ended.
    DependenciesMet,
    /// A dependency failed, and the job has `cancelOnBlockingJobFailure`.
    DependencyFailed,
    /// It was leased to a runner.
    Granted,
    /// Its runner says that it runs. Also accepted from `Ready`: a lease that had run out was started all the same.
    Started,
    /// Its lease ended without a start: given back, run out, or not known to its runner.
    LeaseEnded,
    /// An attempt ended, with this decision.
    Ended(Ending),
    /// Its recovery script has succeeded.
    Recovered,
    /// The user canceled it.
    Canceled,
    /// The user excluded it.
    Disabled,
    /// It has to run again, from wherever it is.
    Reset {
        /// The number of unfinished dependencies.
        unmet: u32,
    },
}

/// The decision after the end of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The job succeeded, so its dependents can start.
    Completed,
    /// It failed for good.
    Failed,
    /// It was ended by a deadline, for good.
    Terminated,
    /// It was ended because the user canceled it.
    Canceled,
    /// The job becomes ready again for another attempt.
    Retry,
    /// Its recovery script runs before it is retried.
    Recover,
    /// It needs a manual decision.
    PendingFailed,
}

/// An event that makes no sense in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a job that is {state} cannot take {event:?}")]
pub struct InvalidTransition {
    /// The state of the job.
    pub state: JobState,
    /// The event that is not allowed in this state.
    pub event: JobEvent,
}

/// Returns the state after an event, or an error for a transition that is not allowed.
pub fn next_state(state: JobState, event: JobEvent) -> Result<JobState, InvalidTransition> {
    use JobEvent as E;
    use JobState as S;
    let next = match (state, event) {
        (S::Uninitialized, E::Planned { unmet }) | (_, E::Reset { unmet }) => waiting(unmet),
        (S::Blocked, E::DependenciesMet) => S::Ready,
        (S::Blocked, E::DependencyFailed) => S::Canceled,
        (S::Ready, E::Granted) => S::Leased,
        (S::Ready | S::Leased, E::Started) => S::Running,
        (S::Leased, E::LeaseEnded) => S::Ready,
        // From `Ready`: the report of an expired lease arrives before another attempt has started.
        (S::Ready | S::Leased | S::Running, E::Ended(ending)) => ended(ending),
        (S::Recovering, E::Recovered) => S::Ready,
        // Its script failed, so the decision on the attempt is final.
        (S::Recovering, E::Ended(ending @ (Ending::Failed | Ending::Terminated))) => ended(ending),
        // The user has decided that it has failed.
        (S::PendingFailed, E::Ended(ending @ (Ending::Failed | Ending::Terminated))) => ended(ending),
        (S::Uninitialized | S::Blocked | S::Ready | S::Leased | S::PendingFailed | S::Recovering, E::Canceled) => {
            S::Canceled
        }
        (S::Uninitialized | S::Blocked | S::Ready, E::Disabled) => S::Disabled,
        (state, event) => return Err(InvalidTransition { state, event }),
    };
    Ok(next)
}

const fn waiting(unmet: u32) -> JobState {
    if unmet == 0 { JobState::Ready } else { JobState::Blocked }
}

const fn ended(ending: Ending) -> JobState {
    match ending {
        Ending::Completed => JobState::Completed,
        Ending::Failed => JobState::Failed,
        Ending::Terminated => JobState::Terminated,
        Ending::Canceled => JobState::Canceled,
        Ending::Retry => JobState::Ready,
        Ending::Recover => JobState::Recovering,
        Ending::PendingFailed => JobState::PendingFailed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [JobEvent; 18] = [
        JobEvent::Planned { unmet: 0 },
        JobEvent::Planned { unmet: 2 },
        JobEvent::DependenciesMet,
        JobEvent::DependencyFailed,
        JobEvent::Granted,
        JobEvent::Started,
        JobEvent::LeaseEnded,
        JobEvent::Ended(Ending::Completed),
        JobEvent::Ended(Ending::Failed),
        JobEvent::Ended(Ending::Terminated),
        JobEvent::Ended(Ending::Canceled),
        JobEvent::Ended(Ending::Retry),
        JobEvent::Ended(Ending::PendingFailed),
        JobEvent::Ended(Ending::Recover),
        JobEvent::Recovered,
        JobEvent::Canceled,
        JobEvent::Disabled,
        JobEvent::Reset { unmet: 1 },
    ];

    /// The whole table, one line a state: a letter for the next state, `.` for an illegal move.
    #[test]
    fn every_move_is_written_down() {
        let letter = |state: JobState| match state {
            JobState::Uninitialized => 'u',
            JobState::Blocked => 'b',
            JobState::Ready => 'r',
            JobState::Leased => 'l',
            JobState::Running => 'R',
            JobState::Completed => 'c',
            JobState::Failed => 'f',
            JobState::Canceled => 'x',
            JobState::Terminated => 't',
            JobState::Disabled => 'd',
            JobState::PendingFailed => 'p',
            JobState::Recovering => 'v',
        };
        let table: Vec<String> = JobState::ALL
            .iter()
            .copied()
            .map(|state| {
                let row: String =
                    EVENTS.into_iter().map(|event| next_state(state, event).map_or('.', letter)).collect();
                format!("{row} {state}")
            })
            .collect();
        assert_eq!(
            table,
            [
                "rb.............xdb uninitialized",
                "..rx...........xdb blocked",
                "....lR.cftxrpv.xdb ready",
                ".....Rrcftxrpv.x.b leased",
                ".......cftxrpv...b running",
                ".................b completed",
                ".................b failed",
                ".................b canceled",
                ".................b terminated",
                ".................b disabled",
                "........ft.....x.b pending_failed",
                "........ft....rx.b recovering",
            ]
        );
    }
}
