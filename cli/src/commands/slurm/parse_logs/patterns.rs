//! Patterns of known errors in log lines.

use serde::Serialize;

/// A kind of error in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum LogErrorKind {
    /// A memory limit was exceeded.
    OutOfMemory,
    /// A time limit was exceeded.
    TimeLimit,
    /// A node of the allocation failed.
    NodeFailure,
    /// Slurm preempted the allocation.
    Preempted,
    /// The allocation or step was canceled.
    Cancelled,
    /// Slurm could not start a step or reach its controller.
    Slurm,
    /// A disk or quota is full.
    DiskFull,
    /// A program or file is missing or not accessible.
    Missing,
    /// A program crashed, e.g. by a segmentation fault.
    Crash,
    /// An MPI program aborted.
    Mpi,
    /// A GPU reported an error.
    Gpu,
    /// A Python program raised an exception.
    Python,
    /// A network connection failed.
    Network,
}

impl LogErrorKind {
    /// Returns whether the kind is an error and not only a warning.
    pub const fn is_error(self) -> bool {
        !matches!(self, Self::Cancelled | Self::Preempted)
    }

    /// Returns the name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OutOfMemory => "OutOfMemory",
            Self::TimeLimit => "TimeLimit",
            Self::NodeFailure => "NodeFailure",
            Self::Preempted => "Preempted",
            Self::Cancelled => "Cancelled",
            Self::Slurm => "Slurm",
            Self::DiskFull => "DiskFull",
            Self::Missing => "Missing",
            Self::Crash => "Crash",
            Self::Mpi => "Mpi",
            Self::Gpu => "Gpu",
            Self::Python => "Python",
            Self::Network => "Network",
        }
    }
}

/// Lower-case texts and their kinds. The first match counts, so specific texts come first.
const PATTERNS: [(&str, LogErrorKind); 44] = [
    ("cuda out of memory", LogErrorKind::Gpu),
    ("cuda error", LogErrorKind::Gpu),
    ("cuda_error", LogErrorKind::Gpu),
    ("nvml", LogErrorKind::Gpu),
    ("xid ", LogErrorKind::Gpu),
    ("oom-kill", LogErrorKind::OutOfMemory),
    ("oom_kill", LogErrorKind::OutOfMemory),
    ("out of memory", LogErrorKind::OutOfMemory),
    ("out-of-memory", LogErrorKind::OutOfMemory),
    ("oom violation", LogErrorKind::OutOfMemory),
    ("std::bad_alloc", LogErrorKind::OutOfMemory),
    ("memoryerror", LogErrorKind::OutOfMemory),
    ("cannot allocate memory", LogErrorKind::OutOfMemory),
    ("due to time limit", LogErrorKind::TimeLimit),
    ("time limit exhausted", LogErrorKind::TimeLimit),
    ("due to node failure", LogErrorKind::NodeFailure),
    ("node failure", LogErrorKind::NodeFailure),
    ("node_fail", LogErrorKind::NodeFailure),
    ("due to preemption", LogErrorKind::Preempted),
    ("due to job requeue", LogErrorKind::Preempted),
    ("*** job", LogErrorKind::Cancelled),
    ("*** step", LogErrorKind::Cancelled),
    ("unable to create step", LogErrorKind::Slurm),
    ("job step creation temporarily disabled", LogErrorKind::Slurm),
    ("requested node configuration is not available", LogErrorKind::Slurm),
    ("unable to contact slurm controller", LogErrorKind::Slurm),
    ("slurm_load_jobs error", LogErrorKind::Slurm),
    ("invalid account or account/partition", LogErrorKind::Slurm),
    ("socket timed out on send/recv", LogErrorKind::Slurm),
    ("no space left on device", LogErrorKind::DiskFull),
    ("disk quota exceeded", LogErrorKind::DiskFull),
    ("command not found", LogErrorKind::Missing),
    ("no such file or directory", LogErrorKind::Missing),
    ("permission denied", LogErrorKind::Missing),
    ("segmentation fault", LogErrorKind::Crash),
    ("bus error", LogErrorKind::Crash),
    ("core dumped", LogErrorKind::Crash),
    ("illegal instruction", LogErrorKind::Crash),
    ("mpi_abort", LogErrorKind::Mpi),
    ("pmix error", LogErrorKind::Mpi),
    ("modulenotfounderror", LogErrorKind::Python),
    ("traceback (most recent call last)", LogErrorKind::Python),
    ("connection refused", LogErrorKind::Network),
    ("connection timed out", LogErrorKind::Network),
];

/// Number of characters after which a line is cut.
const MAX_LINE_CHARS: usize = 300;
/// Number of lines of one kind that are reported per file.
const MAX_LINES_PER_KIND: usize = 20;

/// Returns the lines with known errors and their line numbers.
pub fn findings(text: &str) -> Vec<(LogErrorKind, usize, String)> {
    let mut found: Vec<(LogErrorKind, usize, String)> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let small = line.to_lowercase();
        let Some((_, kind)) = PATTERNS.iter().find(|(pattern, _)| small.contains(pattern)) else { continue };
        if found.iter().filter(|(known, ..)| known == kind).count() < MAX_LINES_PER_KIND {
            found.push((*kind, at + 1, line.trim().chars().take(MAX_LINE_CHARS).collect()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    // As Slurm 22.05, bash and Python print them.
    #[test]
    fn lines_that_are_known() {
        let cases = [
            (
                "slurmstepd-n3: error: Detected 1 oom-kill event(s) in StepId=26180000.10. Some of",
                Some(LogErrorKind::OutOfMemory),
            ),
            ("srun: error: n3: task 0: Out Of Memory", Some(LogErrorKind::OutOfMemory)),
            (
                "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-16T09:51:17 DUE TO TIME LIMIT ***",
                Some(LogErrorKind::TimeLimit),
            ),
            (
                "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-16T09:51:17 DUE TO NODE FAILURE ***",
                Some(LogErrorKind::NodeFailure),
            ),
            (
                "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-16T09:51:17 DUE TO PREEMPTION ***",
                Some(LogErrorKind::Preempted),
            ),
            ("slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-16T09:51:17 ***", Some(LogErrorKind::Cancelled)),
            (
                "srun: error: Unable to create step for job 7: Memory required by task is not available",
                Some(LogErrorKind::Slurm),
            ),
            ("bash: line 1: nosuch: command not found", Some(LogErrorKind::Missing)),
            ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate", Some(LogErrorKind::Gpu)),
            ("Traceback (most recent call last):", Some(LogErrorKind::Python)),
            ("cp: error writing 'x': No space left on device", Some(LogErrorKind::DiskFull)),
            ("everything is fine", None),
        ];
        for (line, expected) in cases {
            let found = findings(&format!("one\n{line}\n"));
            assert_eq!(found.first().map(|(kind, at, _)| (*kind, *at)), expected.map(|kind| (kind, 2)), "{line}");
        }
    }

    #[test]
    fn repetitions_and_long_lines_are_cut() {
        let text = format!("{}\n", "permission denied ".repeat(100)).repeat(50);
        let found = findings(&text);
        assert_eq!((found.len(), found[0].2.chars().count()), (MAX_LINES_PER_KIND, MAX_LINE_CHARS));
    }

    #[test]
    fn every_pattern_has_its_kind() {
        for (pattern, kind) in PATTERNS {
            assert_eq!(pattern, pattern.to_lowercase(), "compared with lines in lower case");
            let first = findings(&pattern.to_uppercase()).first().map(|(found, ..)| *found);
            assert_eq!(first, Some(kind), "{pattern}");
        }
        let kinds = [
            (LogErrorKind::OutOfMemory, "OutOfMemory", true),
            (LogErrorKind::TimeLimit, "TimeLimit", true),
            (LogErrorKind::NodeFailure, "NodeFailure", true),
            (LogErrorKind::Preempted, "Preempted", false),
            (LogErrorKind::Cancelled, "Cancelled", false),
            (LogErrorKind::Slurm, "Slurm", true),
            (LogErrorKind::DiskFull, "DiskFull", true),
            (LogErrorKind::Missing, "Missing", true),
            (LogErrorKind::Crash, "Crash", true),
            (LogErrorKind::Mpi, "Mpi", true),
            (LogErrorKind::Gpu, "Gpu", true),
            (LogErrorKind::Python, "Python", true),
            (LogErrorKind::Network, "Network", true),
        ];
        for (kind, name, is_error) in kinds {
            assert_eq!((kind.name(), kind.is_error()), (name, is_error));
            assert_eq!(serde_json::json!(kind), name);
        }
        for (line, kind) in [
            ("mpi_abort was called", LogErrorKind::Mpi),
            ("ConnectionError: [Errno 111] Connection refused", LogErrorKind::Network),
            ("NVML: driver", LogErrorKind::Gpu),
            ("ModuleNotFoundError: No module", LogErrorKind::Python),
            ("Bus error (core dumped)", LogErrorKind::Crash),
            ("Disk quota exceeded", LogErrorKind::DiskFull),
        ] {
            assert_eq!(findings(line)[0].0, kind, "{line}");
        }
    }
}
