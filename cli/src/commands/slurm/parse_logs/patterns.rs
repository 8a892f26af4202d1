//! Lines that are known to tell of something that went wrong.

use serde::Serialize;

/// What a line tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Kind {
    /// Too much memory.
    OutOfMemory,
    /// Its time was over.
    TimeLimit,
    /// A node failed.
    NodeFailure,
    /// Somebody else was more important.
    Preempted,
    /// Somebody cancelled it.
    Cancelled,
    /// Slurm could not start a step, or not reach something.
    Slurm,
    /// No room on a disk.
    DiskFull,
    /// A program or a file is not there, or may not be used.
    Missing,
    /// A program crashed.
    Crash,
    /// A parallel program gave up.
    Mpi,
    /// A GPU had a problem.
    Gpu,
    /// A Python program ended with an error.
    Python,
    /// Somebody could not be reached.
    Network,
}

impl Kind {
    /// It is a reason for a failure, and not only worth knowing.
    pub const fn is_error(self) -> bool {
        !matches!(self, Self::Cancelled | Self::Preempted)
    }

    /// The name in lists.
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

/// Texts in lines, in lower case, and what they tell of. The first that fits counts, so the more special come first.
const PATTERNS: [(&str, Kind); 44] = [
    ("cuda out of memory", Kind::Gpu),
    ("cuda error", Kind::Gpu),
    ("cuda_error", Kind::Gpu),
    ("nvml", Kind::Gpu),
    ("xid ", Kind::Gpu),
    ("oom-kill", Kind::OutOfMemory),
    ("oom_kill", Kind::OutOfMemory),
    ("out of memory", Kind::OutOfMemory),
    ("out-of-memory", Kind::OutOfMemory),
    ("oom violation", Kind::OutOfMemory),
    ("std::bad_alloc", Kind::OutOfMemory),
    ("memoryerror", Kind::OutOfMemory),
    ("cannot allocate memory", Kind::OutOfMemory),
    ("due to time limit", Kind::TimeLimit),
    ("time limit exhausted", Kind::TimeLimit),
    ("due to node failure", Kind::NodeFailure),
    ("node failure", Kind::NodeFailure),
    ("node_fail", Kind::NodeFailure),
    ("due to preemption", Kind::Preempted),
    ("due to job requeue", Kind::Preempted),
    ("*** job", Kind::Cancelled),
    ("*** step", Kind::Cancelled),
    ("unable to create step", Kind::Slurm),
    ("job step creation temporarily disabled", Kind::Slurm),
    ("requested node configuration is not available", Kind::Slurm),
    ("unable to contact slurm controller", Kind::Slurm),
    ("slurm_load_jobs error", Kind::Slurm),
    ("invalid account or account/partition", Kind::Slurm),
    ("socket timed out on send/recv", Kind::Slurm),
    ("no space left on device", Kind::DiskFull),
    ("disk quota exceeded", Kind::DiskFull),
    ("command not found", Kind::Missing),
    ("no such file or directory", Kind::Missing),
    ("permission denied", Kind::Missing),
    ("segmentation fault", Kind::Crash),
    ("bus error", Kind::Crash),
    ("core dumped", Kind::Crash),
    ("illegal instruction", Kind::Crash),
    ("mpi_abort", Kind::Mpi),
    ("pmix error", Kind::Mpi),
    ("modulenotfounderror", Kind::Python),
    ("traceback (most recent call last)", Kind::Python),
    ("connection refused", Kind::Network),
    ("connection timed out", Kind::Network),
];

/// Longer lines are cut.
const LONGEST_LINE: usize = 300;
/// More lines of one kind in a file say nothing new.
const MOST_OF_A_KIND: usize = 20;

/// The lines of a text that tell of something, with their numbers.
pub fn findings(text: &str) -> Vec<(Kind, usize, String)> {
    let mut found: Vec<(Kind, usize, String)> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let small = line.to_lowercase();
        let Some((_, kind)) = PATTERNS.iter().find(|(pattern, _)| small.contains(pattern)) else { continue };
        if found.iter().filter(|(known, ..)| known == kind).count() < MOST_OF_A_KIND {
            found.push((*kind, at + 1, line.trim().chars().take(LONGEST_LINE).collect()));
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
                Some(Kind::OutOfMemory),
            ),
            ("srun: error: n3: task 0: Out Of Memory", Some(Kind::OutOfMemory)),
            (
                "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-16T09:51:17 DUE TO TIME LIMIT ***",
                Some(Kind::TimeLimit),
            ),
            (
                "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-16T09:51:17 DUE TO NODE FAILURE ***",
                Some(Kind::NodeFailure),
            ),
            (
                "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-16T09:51:17 DUE TO PREEMPTION ***",
                Some(Kind::Preempted),
            ),
            ("slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-16T09:51:17 ***", Some(Kind::Cancelled)),
            (
                "srun: error: Unable to create step for job 7: Memory required by task is not available",
                Some(Kind::Slurm),
            ),
            ("bash: line 1: nosuch: command not found", Some(Kind::Missing)),
            ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate", Some(Kind::Gpu)),
            ("Traceback (most recent call last):", Some(Kind::Python)),
            ("cp: error writing 'x': No space left on device", Some(Kind::DiskFull)),
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
        assert_eq!((found.len(), found[0].2.chars().count()), (MOST_OF_A_KIND, LONGEST_LINE));
    }

    /// Every pattern, and what it tells of; the more special come first.
    #[test]
    fn every_pattern_has_its_kind() {
        for (pattern, kind) in PATTERNS {
            assert_eq!(pattern, pattern.to_lowercase(), "compared with lines in lower case");
            let first = findings(&pattern.to_uppercase()).first().map(|(found, ..)| *found);
            assert_eq!(first, Some(kind), "{pattern}");
        }
        let kinds = [
            (Kind::OutOfMemory, "OutOfMemory", true),
            (Kind::TimeLimit, "TimeLimit", true),
            (Kind::NodeFailure, "NodeFailure", true),
            (Kind::Preempted, "Preempted", false),
            (Kind::Cancelled, "Cancelled", false),
            (Kind::Slurm, "Slurm", true),
            (Kind::DiskFull, "DiskFull", true),
            (Kind::Missing, "Missing", true),
            (Kind::Crash, "Crash", true),
            (Kind::Mpi, "Mpi", true),
            (Kind::Gpu, "Gpu", true),
            (Kind::Python, "Python", true),
            (Kind::Network, "Network", true),
        ];
        for (kind, name, is_error) in kinds {
            assert_eq!((kind.name(), kind.is_error()), (name, is_error));
            assert_eq!(serde_json::json!(kind), name);
        }
        for (line, kind) in [
            ("mpi_abort was called", Kind::Mpi),
            ("ConnectionError: [Errno 111] Connection refused", Kind::Network),
            ("NVML: driver", Kind::Gpu),
            ("ModuleNotFoundError: No module", Kind::Python),
            ("Bus error (core dumped)", Kind::Crash),
            ("Disk quota exceeded", Kind::DiskFull),
        ] {
            assert_eq!(findings(line)[0].0, kind, "{line}");
        }
    }
}
