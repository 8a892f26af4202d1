//! Slurm's names for the states of a job, short and long, and their meanings.

use torc_api::slurm::SlurmState;

/// Returns the meaning of a state, as `squeue` (`R`, `RUNNING`) or `sacct` (`CANCELLED by 1000`, `CANCELLED+`) prints it.
pub fn meaning(text: &str) -> SlurmState {
    let word = text.split([' ', ',']).next().unwrap_or_default().trim_end_matches('+').to_ascii_uppercase();
    match word.as_str() {
        // Configuring: the nodes are allocated and boot.
        "PD" | "PENDING" | "CF" | "CONFIGURING" => SlurmState::Pending,
        // Processes may be alive in all of these states: completing, resizing, signaling, stage-out.
        "R" | "RUNNING" | "CG" | "COMPLETING" | "RS" | "RESIZING" | "SI" | "SIGNALING" | "SO" | "STAGE_OUT" => {
            SlurmState::Running
        }
        // Stopped jobs keep their CPUs and suspended jobs have lent them; both have stopped processes.
        "S" | "SUSPENDED" | "ST" | "STOPPED" => SlurmState::Suspended,
        // Held jobs stay in the queue until they are released.
        "RQ" | "REQUEUED" | "RH" | "REQUEUE_HOLD" | "RF" | "REQUEUE_FED" | "RD" | "RESV_DEL_HOLD" | "SE"
        | "SPECIAL_EXIT" => SlurmState::ComingBack,
        "PR" | "PREEMPTED" => SlurmState::Preempted,
        "NF" | "NODE_FAIL" | "LF" | "LAUNCH_FAILED" | "RECONFIG_FAIL" => SlurmState::NodeFailure,
        "BF" | "BOOT_FAIL" => SlurmState::BootFailure,
        "OOM" | "OUT_OF_MEMORY" | "OUT_OF_ME" => SlurmState::OutOfMemory,
        "DL" | "DEADLINE" => SlurmState::Deadline,
        "TO" | "TIMEOUT" => SlurmState::Timeout,
        "CA" | "CANCELLED" => SlurmState::Cancelled,
        "CD" | "COMPLETED" => SlurmState::Completed,
        "F" | "FAILED" => SlurmState::Failed,
        // `REVOKED`: another cluster of a federation runs the job, and this one does not know its state.
        _ => SlurmState::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_of_slurm_means_something() {
        use SlurmState::*;
        let cases = [
            ("BF", "BOOT_FAIL", BootFailure),
            ("CA", "CANCELLED", Cancelled),
            ("CD", "COMPLETED", Completed),
            ("CF", "CONFIGURING", Pending),
            ("CG", "COMPLETING", Running),
            ("DL", "DEADLINE", Deadline),
            ("F", "FAILED", Failed),
            ("LF", "LAUNCH_FAILED", NodeFailure),
            ("NF", "NODE_FAIL", NodeFailure),
            ("OOM", "OUT_OF_MEMORY", OutOfMemory),
            ("PD", "PENDING", Pending),
            ("PR", "PREEMPTED", Preempted),
            ("R", "RUNNING", Running),
            ("RD", "RESV_DEL_HOLD", ComingBack),
            ("RF", "REQUEUE_FED", ComingBack),
            ("RH", "REQUEUE_HOLD", ComingBack),
            ("RQ", "REQUEUED", ComingBack),
            ("RS", "RESIZING", Running),
            ("RV", "REVOKED", Unknown),
            ("S", "SUSPENDED", Suspended),
            ("SE", "SPECIAL_EXIT", ComingBack),
            ("SI", "SIGNALING", Running),
            ("SO", "STAGE_OUT", Running),
            ("ST", "STOPPED", Suspended),
            ("TO", "TIMEOUT", Timeout),
        ];
        for (short, long, expected) in cases {
            assert_eq!(meaning(short), expected, "{short}");
            assert_eq!(meaning(long), expected, "{long}");
            assert_eq!(meaning(&format!("{long}+")), expected, "{long}+");
            assert_eq!(meaning(&long.to_lowercase()), expected, "{long}");
        }
    }

    #[test]
    fn newer_and_shortened_names() {
        assert_eq!(meaning("RECONFIG_FAIL"), SlurmState::NodeFailure);
        assert_eq!(meaning("OUT_OF_ME"), SlurmState::OutOfMemory);
        assert_eq!(meaning("RUNNING by 7"), SlurmState::Running);
        assert_eq!(meaning("TIMEOUT,RUNNING"), SlurmState::Timeout);
        for unknown in ["RUN", "P", "C", "OO", "+", " RUNNING"] {
            assert_eq!(meaning(unknown), SlurmState::Unknown, "{unknown}");
        }
    }

    #[test]
    fn sacct_suffixes_and_unknown_states_are_read() {
        let cases = [
            ("CANCELLED by 1000", SlurmState::Cancelled),
            ("CANCELLED by 0", SlurmState::Cancelled),
            ("NODE_FAIL by root", SlurmState::NodeFailure),
            ("COMPLETED,STAGE_OUT", SlurmState::Completed),
            ("OUT_OF_ME+", SlurmState::OutOfMemory),
            ("", SlurmState::Unknown),
            ("Invalid", SlurmState::Unknown),
            ("QUANTUM", SlurmState::Unknown),
        ];
        for (text, expected) in cases {
            assert_eq!(meaning(text), expected, "{text:?}");
        }
    }
}
