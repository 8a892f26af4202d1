//! Identity of a process. A PID alone is ambiguous: PIDs are reused.

use serde::{Deserialize, Serialize};

use torc_api::wire::ProcessIdentity;

use crate::procfs;

/// A process of this machine, identified by PID, start and boot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessId {
    /// The PID, which the kernel may reuse after the end of the process.
    pub pid: i32,
    /// The start, in ticks since the machine started.
    pub start_ticks: u64,
    /// The boot ID of the machine.
    pub boot_id: String,
}

impl ProcessId {
    /// Returns the identity of this process.
    pub fn own() -> Self {
        let pid = i32::try_from(std::process::id()).unwrap_or_default();
        Self { pid, start_ticks: procfs::start_ticks(pid).unwrap_or_default(), boot_id: procfs::boot_id() }
    }

    /// Returns the identity for a server and for other processes, without the PID.
    pub fn identity(self) -> ProcessIdentity {
        let pid_namespace = procfs::pid_namespace();
        ProcessIdentity { boot_id: self.boot_id, pid_namespace, start_ticks: self.start_ticks }
    }

    /// Returns whether exactly this process still exists.
    pub fn is_alive(&self) -> bool {
        self.boot_id == procfs::boot_id()
            && procfs::start_ticks(self.pid) == Some(self.start_ticks)
            && !procfs::is_zombie(self.pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // J04
    #[test]
    fn a_number_that_is_used_again_is_another_process() {
        let own = ProcessId::own();
        assert!(own.is_alive());
        for other in [
            ProcessId { start_ticks: own.start_ticks + 1, ..own.clone() },
            ProcessId { boot_id: "another".to_owned(), ..own.clone() },
            ProcessId { pid: i32::MAX, ..own },
        ] {
            assert!(!other.is_alive(), "{other:?}");
        }
    }
}
