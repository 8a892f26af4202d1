//! Collection of children together with the kernel's counters of their resources.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use wait4::ResourceUsage;

use crate::clock::BootInstant;
use crate::procfs;
use crate::protocol::{Outcome, Rusage};

/// A child that has exited and was collected.
pub struct ReapedChild {
    /// The PID, which may be reused from now on.
    pub pid: i32,
    pub outcome: Outcome,
    /// Resources of the child and of the descendants that it collected.
    pub rusage: Option<ResourceUsage>,
}

/// Collects a child that has exited, if there is one.
pub fn collect() -> Option<ReapedChild> {
    loop {
        // The PID comes first, because only `wait4` with a PID returns the counters.
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        match waitid(Id::All, flags) {
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return None,
            Ok(status) => return with_counts(status.pid()?.as_raw()),
            Err(Errno::EINTR) => {}
            // A signal without a name, e.g. a real-time signal, ended the child.
            Err(_) => return without_counts(),
        }
    }
}

fn with_counts(pid: i32) -> Option<ReapedChild> {
    let collected = wait4::try_wait4_pid(pid.unsigned_abs()).ok()??;
    let outcome = match (collected.status.code(), collected.status.signal()) {
        (Some(code), _) => Outcome::Exited(code),
        (None, signal) => Outcome::Signaled(signal.unwrap_or_default()),
    };
    Some(ReapedChild { pid, outcome, rusage: Some(collected.rusage) })
}

fn without_counts() -> Option<ReapedChild> {
    let (pid, status) = rustix::process::wait(rustix::process::WaitOptions::NOHANG).ok()??;
    let outcome = match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Outcome::Exited(code),
        (None, signal) => Outcome::Signaled(signal.unwrap_or_default()),
    };
    Some(ReapedChild { pid: pid.as_raw_nonzero().get(), outcome, rusage: None })
}

/// The peak memory of the shim itself.
///
/// Until a child executes its program, it shares the shim's memory, and the kernel counts that as the child's. A peak
/// of a child below the shim's own therefore does not describe the job.
#[derive(Default)]
pub struct OwnPeak {
    bytes: u64,
    read_at: Option<BootInstant>,
}

/// Interval at which the shim's own peak is read.
const PEAK_READ_INTERVAL: Duration = Duration::from_secs(1);
/// Tolerance of the comparison: the kernel counts pages in batches for each CPU, and the shim may have grown since the
/// last read.
const PEAK_TOLERANCE_BYTES: u64 = 1 << 20;

impl OwnPeak {
    /// Converts the kernel's counters of a child. The peak is absent unless it exceeds the shim's own.
    pub fn rusage(&mut self, rusage: Option<&ResourceUsage>, now: BootInstant) -> Rusage {
        let Some(rusage) = rusage else { return Rusage::default() };
        let cpu = rusage.utime + rusage.stime;
        Rusage {
            cpu_us: u64::try_from(cpu.as_micros()).unwrap_or(u64::MAX),
            peak_memory_bytes: self.is_exceeded_by(rusage.maxrss, now).then_some(rusage.maxrss),
        }
    }

    fn is_exceeded_by(&mut self, bytes: u64, now: BootInstant) -> bool {
        // The shim's peak only rises, so most children are decided by the known value.
        if bytes > self.bytes.saturating_add(PEAK_TOLERANCE_BYTES)
            && self.read_at.is_none_or(|at| at.plus(PEAK_READ_INTERVAL) < now)
        {
            self.bytes = procfs::own_peak_memory().unwrap_or(u64::MAX);
            self.read_at = Some(now);
        }
        bytes > self.bytes.saturating_add(PEAK_TOLERANCE_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_below_the_shims_own_says_nothing() {
        let mut own = OwnPeak { bytes: 10 << 20, read_at: Some(BootInstant(0)) };
        let rusage =
            |maxrss| ResourceUsage { utime: Duration::from_micros(3), stime: Duration::from_micros(4), maxrss };
        let of = |own: &mut OwnPeak, maxrss| own.rusage(Some(&rusage(maxrss)), BootInstant(0));
        assert_eq!(of(&mut own, 11 << 20), Rusage { cpu_us: 7, peak_memory_bytes: None });
        assert_eq!(of(&mut own, 12 << 20), Rusage { cpu_us: 7, peak_memory_bytes: Some(12 << 20) });
    }

    #[test]
    fn the_own_peak_is_looked_at_when_it_matters() {
        let mut own = OwnPeak::default();
        assert!(!own.is_exceeded_by(1, BootInstant(0)));
        assert_eq!(own.read_at, None);
        assert!(own.is_exceeded_by(1 << 50, BootInstant(0)));
        assert!(own.bytes > 1 << 19 && own.read_at == Some(BootInstant(0)));
    }
}
