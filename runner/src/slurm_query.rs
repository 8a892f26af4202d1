//! What a runner asks Slurm while its jobs are steps, and what Slurm answers.

use std::collections::HashMap;
use std::time::Duration;

use torc_api::wire::AttemptKey;
use torc_slurm::error::SlurmError;
use torc_slurm::sacct::StepAccount;
use torc_slurm::sstat::Sample;

use crate::clock::BootInstant;

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlurmQuery {
    /// Which number has each step? `sstat` knows numbers only.
    StepNumbers,
    /// What do these steps use?
    StepUsage(Vec<u32>),
    /// What does the accounting say of these steps; of all when there are none.
    Accounts(Vec<u32>),
    /// How much time has the allocation left?
    TimeLeft,
    /// Send a signal to the processes of a step.
    Signal {
        /// The step's number.
        step: u32,
        /// The signal's name.
        signal: String,
    },
    /// Give a step so many minutes from its start.
    Extend {
        /// Whose step.
        key: AttemptKey,
        /// The step's number.
        step: u32,
        /// In total.
        minutes: u64,
    },
    /// Is the allocation being taken away for somebody else?
    Preemption,
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub enum SlurmAnswer {
    /// Numbers of the steps that run, by name; none when Slurm did not answer.
    StepNumbers(Vec<(String, u32)>),
    /// What steps had used at a moment; those that have ended are left out.
    StepUsage(BootInstant, Vec<Sample>),
    /// What the accounting says, by the names of steps, and how long that took to find out.
    Accounts(Result<HashMap<String, StepAccount>, SlurmError>, Duration),
    /// How much time is left; none when Slurm did not say.
    TimeLeft(Option<Duration>),
    /// A signal was sent, or why it could not be.
    Signal(Option<String>),
    /// A step may take so many minutes, or why not.
    Extended(AttemptKey, u64, Option<String>),
    /// Whether somebody else is more important; none when Slurm did not say.
    Preemption(Option<bool>),
}
