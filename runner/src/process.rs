//! Which process is meant: its number alone would soon be another one's.

use serde::{Deserialize, Serialize};

use torc_api::wire::ProcessIdentity;

use crate::procfs;

/// Names a process of this machine for good.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessId {
    /// Its number.
    pub pid: i32,
    /// When it started, in ticks since the machine did.
    pub start_ticks: u64,
    /// Which start of the machine that was.
    pub boot_id: String,
}

impl ProcessId {
    /// The process that asks.
    pub fn own() -> Self {
        let pid = i32::try_from(std::process::id()).unwrap_or_default();
        Self { pid, start_ticks: procfs::start_ticks(pid).unwrap_or_default(), boot_id: procfs::boot_id() }
    }

    /// The process as a server and other processes of its machine know it, beside its PID.
    pub fn identity(self) -> ProcessIdentity {
        let pid_namespace = procfs::pid_namespace();
        ProcessIdentity { boot_id: self.boot_id, pid_namespace, start_ticks: self.start_ticks }
    }

    /// Whether exactly this process is still there.
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
