//! Queries of a runner to Slurm, and Slurm's answers.

use std::collections::HashMap;
use std::time::Duration;

use torc_api::wire::AttemptKey;
use torc_slurm::error::SlurmError;
use torc_slurm::sacct::StepAccount;
use torc_slurm::sstat::Sample;

use crate::clock::BootInstant;

/// A query about the runner's allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlurmQuery {
    /// The numbers of all running steps. `sstat` needs them.
    StepNumbers,
    /// The usage of these steps.
    StepUsage(Vec<u32>),
    /// The accounting data of these steps; of all steps if the list is empty.
    Accounts(Vec<u32>),
    /// The remaining time of the allocation.
    TimeLeft,
    /// Sends a signal to the processes of a step.
    Signal { step: u32, signal: String },
    /// Changes the time limit of a step.
    Extend {
        /// The attempt that the step runs.
        key: AttemptKey,
        step: u32,
        /// The new limit, counted from the start of the step.
        minutes: u64,
    },
    /// True if Slurm preempts the allocation.
    Preemption,
}

/// The answer to a [`SlurmQuery`].
#[derive(Clone, Debug, PartialEq)]
pub enum SlurmAnswer {
    /// Numbers of running steps by name; empty if Slurm did not answer.
    StepNumbers(Vec<(String, u32)>),
    /// The usage of running steps at a moment.
    StepUsage(BootInstant, Vec<Sample>),
    /// Accounting data by step name, and the duration of the query.
    Accounts(Result<HashMap<String, StepAccount>, SlurmError>, Duration),
    /// The remaining time; none if Slurm did not answer.
    TimeLeft(Option<Duration>),
    /// The error if the signal was not sent.
    Signal(Option<String>),
    /// The new limit of a step in minutes, or the error.
    Extended(AttemptKey, Result<u64, String>),
    /// True if Slurm preempts the allocation; none if Slurm did not answer.
    Preemption(Option<bool>),
}
