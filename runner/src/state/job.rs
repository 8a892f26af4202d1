//! What a runner knows about one attempt.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use torc_api::wire::{FileSeen, FinishedAttempt, LeaseRole};
use torc_core::ledger::Reservation;
use torc_core::urgency::Urgency;

use super::profiles::LaunchProfile;
use super::steps::StepState;
use super::usage::UsageStats;
use crate::clock::BootInstant;
use crate::protocol::Ending;

/// An attempt that the runner holds.
#[derive(Debug)]
pub(super) struct Job {
    pub role: LeaseRole,
    pub name: String,
    pub command: String,
    /// Variables of this one alone.
    pub env: BTreeMap<String, String>,
    pub launch: Arc<LaunchProfile>,
    /// Decides which of the leases that wait starts first.
    pub urgency: Urgency,
    pub stage: Stage,
    /// Taken from the ledger; absent while it waits, and for one that is to follow another.
    pub reservation: Option<Reservation>,
    /// When it came, later when it started.
    pub since: BootInstant,
    /// The server knows that it has started.
    pub start_known: bool,
    pub ending: Option<(Ending, BootInstant)>,
    pub inputs: Inputs,
    /// Its first process, once it has started.
    pub pid: i32,
    pub usage: UsageStats,
    /// What Slurm has said of its step.
    pub step: StepState,
    /// GPUs it uses, once it has started.
    pub devices: Vec<String>,
}

/// What is known about the files that a job reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Inputs {
    /// They are being looked for; it cannot start before.
    Awaited,
    /// As found before its start.
    Found(Vec<FileSeen>),
    /// An earlier agent looked for them.
    Unknown,
}

/// Where an attempt stands in its runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// In the queue.
    Queued,
    /// At the shim, to follow another job of its class.
    Handed,
    /// At the shim, which was told not to start it.
    Recalled,
    /// The shim was told to start it.
    Starting,
    Running,
    /// Ended; its output files are being looked for.
    Checking,
}

impl Stage {
    /// The attempt counts as started.
    pub fn is_started(self) -> bool {
        matches!(self, Self::Starting | Self::Running | Self::Checking)
    }
}

/// An attempt that ended, until the server has it.
#[derive(Clone, Debug)]
pub(super) struct Report {
    /// The job's name.
    pub name: String,
    pub finished: FinishedAttempt,
    pub ended: BootInstant,
    /// How much older it is: one that was read from a file may be from before this machine started.
    pub older: Duration,
    pub kept: Kept,
}

impl Report {
    pub fn new(name: &str, finished: FinishedAttempt, ended: BootInstant) -> Self {
        Self { name: name.to_owned(), finished, ended, older: Duration::ZERO, kept: Kept::No }
    }
}

/// Where a report is safe from the end of this process and its shim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// Nowhere yet.
    No,
    /// In the journal.
    Journal,
}
