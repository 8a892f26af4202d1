//! Access to `/proc`: start times, children and environments of processes.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::clock::BootInstant;

/// Returns the boot ID, which changes with every start of the machine.
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// Returns the PID namespace of this process. PIDs of another namespace are not valid here.
pub fn pid_namespace() -> String {
    fs::read_link("/proc/self/ns/pid").map(|link| link.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Returns the arguments of a process; none if they are not readable.
pub fn arguments(pid: i32) -> Vec<Vec<u8>> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect()
}

/// Returns the start of a process, in ticks since the machine started. PID and start identify a process.
pub fn start_ticks(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    field_after_name(&stat, 19)?.parse().ok()
}

/// Converts a moment to ticks.
pub fn ticks(moment: BootInstant) -> u64 {
    moment.0 / (1_000_000 / rustix::param::clock_ticks_per_second().max(1))
}

/// Returns whether a process has exited and waits to be collected. A missing process counts as exited.
pub fn is_zombie(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    field_after_name(&stat, 0).is_none_or(|state| state == "Z" || state == "X")
}

/// Returns a field of a stat line, counted from the end of the name, which may contain brackets and blanks.
pub fn field_after_name(stat: &str, index: usize) -> Option<&str> {
    stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace().nth(index)
}

/// Returns the peak memory of this process.
pub fn own_peak_memory() -> Option<u64> {
    kilobytes(&fs::read_to_string("/proc/self/status").ok()?, "VmHWM:")
}

/// Returns the bytes in a line such as `VmHWM:    1234 kB`.
pub fn kilobytes(text: &str, label: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(label))?;
    line.split_ascii_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the environment with which a process was started, as `NAME=value` entries; empty if it is not readable.
pub fn environment(pid: i32) -> Vec<u8> {
    fs::read(format!("/proc/{pid}/environ")).unwrap_or_default()
}

/// Returns a variable of an environment.
pub fn variable<'a>(environment: &'a [u8], name: &str) -> Option<&'a str> {
    let mut entries = environment.split(|byte| *byte == 0);
    let value = entries.find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
    std::str::from_utf8(value).ok()
}

/// Returns the PIDs of all processes of the machine.
pub fn processes() -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The list of this process's children, kept open so that reading it is cheap.
pub struct Children {
    /// One file for each thread; empty where the kernel does not have them.
    lists: Vec<File>,
    buffer: Vec<u8>,
}

impl Children {
    /// Opens the lists of this process's current threads.
    pub fn open() -> Self {
        let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let paths: Vec<PathBuf> = tasks.map(|task| task.path().join("children")).collect();
        let lists: io::Result<Vec<File>> = paths.iter().map(File::open).collect();
        Self { lists: lists.unwrap_or_default(), buffer: vec![0; 64 * 1024] }
    }

    /// Returns the PIDs of all children, including those that wait to be collected.
    pub fn list(&mut self) -> Vec<i32> {
        if self.lists.is_empty() {
            let own = std::process::id().to_string();
            let is_own = |pid: &i32| {
                let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                field_after_name(&stat, 1) == Some(own.as_str())
            };
            return processes().into_iter().filter(is_own).collect();
        }
        let mut children = Vec::new();
        for list in &self.lists {
            let mut text = Vec::new();
            while let Ok(read @ 1..) = list.read_at(&mut self.buffer, text.len() as u64) {
                text.extend_from_slice(&self.buffer[..read]);
            }
            let numbers = text
                .split(|byte| *byte == b' ')
                .filter_map(|number| std::str::from_utf8(number).ok()?.parse::<i32>().ok());
            children.extend(numbers);
        }
        children
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_from_the_end_of_the_name() {
        let stat = "12 (a (b) c) S 7 12 12 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 1 1";
        assert_eq!(field_after_name(stat, 0), Some("S"));
        assert_eq!(field_after_name(stat, 1), Some("7"));
        assert_eq!(field_after_name(stat, 19), Some("4711"));
        assert_eq!(field_after_name("nonsense", 0), None);
        assert_eq!(field_after_name("1 (x)", 0), None);
    }

    #[test]
    fn variables_of_an_environment() {
        let block = b"A=1\0AB=2\0EMPTY=\0BAD=\xff\0";
        let cases = [("A", Some("1")), ("AB", Some("2")), ("EMPTY", Some("")), ("BAD", None), ("B", None)];
        for (name, value) in cases {
            assert_eq!(variable(block, name), value, "{name}");
        }
    }

    #[test]
    fn lines_with_amounts() {
        let text = "VmPeak:  9 kB\nVmHWM:\t    12 kB\nPss:  x kB\n";
        let cases = [("VmHWM:", Some(12 << 10)), ("Pss:", None), ("VmRSS:", None)];
        for (label, bytes) in cases {
            assert_eq!(kilobytes(text, label), bytes, "{label}");
        }
    }

    #[test]
    fn this_process_has_a_start() {
        let own = i32::try_from(std::process::id()).expect("fits");
        let started = start_ticks(own).expect("alive");
        assert!(started <= ticks(crate::clock::now()));
        assert!(!is_zombie(own));
        assert_eq!(start_ticks(i32::MAX), None);
        assert!(!boot_id().is_empty());
    }
}
