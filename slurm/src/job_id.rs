//! IDs of jobs and steps, as Slurm writes them: `17`, `17_3`, `17_[4-9%2]`, `17+1`, `17.0`, `17.batch`.

use std::fmt;
use std::str::FromStr;

/// A job, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId {
    /// The number that `sbatch` printed.
    pub number: u64,
    /// The part of the job.
    pub part: JobPart,
}

/// A part of a job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobPart {
    Whole,
    /// A task of an array.
    Task(u32),
    /// Pending tasks of an array, as Slurm lists them.
    Tasks(String),
    /// A component of a heterogeneous job.
    Component(u32),
}

/// A step of a job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepId {
    pub job: JobId,
    pub step: StepName,
}

/// The name of a step within its job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StepName {
    /// A step of `srun`.
    Number(u32),
    /// The batch script, `extern` or `interactive`.
    Named(String),
}

/// A text that is not a Slurm ID.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not the number of a Slurm job")]
pub struct NotANumber {
    text: String,
}

impl JobId {
    /// Returns the ID of a whole job.
    pub const fn whole(number: u64) -> Self {
        Self { number, part: JobPart::Whole }
    }
}

impl FromStr for JobId {
    type Err = NotANumber;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_job(text.trim()).ok_or_else(|| NotANumber { text: text.to_owned() })
    }
}

impl FromStr for StepId {
    type Err = NotANumber;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_step(text.trim()).ok_or_else(|| NotANumber { text: text.to_owned() })
    }
}

fn parse_job(text: &str) -> Option<JobId> {
    if let Some((number, task)) = text.split_once('_') {
        let part = match task.strip_prefix('[') {
            Some(tasks) => JobPart::Tasks(tasks.strip_suffix(']').unwrap_or(tasks).to_owned()),
            None => JobPart::Task(digits(task)?),
        };
        return Some(JobId { number: digits(number)?, part });
    }
    if let Some((number, component)) = text.split_once('+') {
        return Some(JobId { number: digits(number)?, part: JobPart::Component(digits(component)?) });
    }
    Some(JobId::whole(digits(text)?))
}

fn parse_step(text: &str) -> Option<StepId> {
    let (job, step) = text.split_once('.')?;
    // The ID of a step of a heterogeneous job ends with its component: `17.0+1`.
    let step = step.split_once('+').map_or(step, |(step, _)| step);
    let step = match digits(step) {
        Some(number) => StepName::Number(number),
        None if !step.is_empty() && step.chars().all(|c| c.is_ascii_lowercase()) => StepName::Named(step.to_owned()),
        None => return None,
    };
    Some(StepId { job: parse_job(job)?, step })
}

fn digits<N: FromStr>(text: &str) -> Option<N> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.number)?;
        match &self.part {
            JobPart::Whole => Ok(()),
            JobPart::Task(task) => write!(f, "_{task}"),
            JobPart::Tasks(tasks) => write!(f, "_[{tasks}]"),
            JobPart::Component(component) => write!(f, "+{component}"),
        }
    }
}

impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.step {
            StepName::Number(number) => write!(f, "{}.{number}", self.job),
            StepName::Named(name) => write!(f, "{}.{name}", self.job),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_and_their_parts() {
        let cases = [
            ("15860000", JobPart::Whole),
            ("15860000_3", JobPart::Task(3)),
            ("15860000_[4-9%2]", JobPart::Tasks("4-9%2".to_owned())),
            ("15860000+1", JobPart::Component(1)),
        ];
        for (text, part) in cases {
            let id = JobId { number: 15_860_000, part };
            assert_eq!(text.parse::<JobId>().as_ref(), Ok(&id));
            assert_eq!(id.to_string(), text);
        }
        assert_eq!(" 7\n".parse(), Ok(JobId::whole(7)));
        for text in ["", "x", "7_", "7_x", "7+", "-7", "7.0", "7_1_2", "99999999999999999999", "+7"] {
            assert!(text.parse::<JobId>().is_err(), "{text}");
        }
    }

    #[test]
    fn steps_and_their_names() {
        let step = |text: &str| text.parse::<StepId>().map(|id| (id.job.to_string(), id.step));
        assert_eq!(step("7.0"), Ok(("7".to_owned(), StepName::Number(0))));
        assert_eq!(step("7.batch"), Ok(("7".to_owned(), StepName::Named("batch".to_owned()))));
        assert_eq!(step("7.extern"), Ok(("7".to_owned(), StepName::Named("extern".to_owned()))));
        assert_eq!(step("7_2.12"), Ok(("7_2".to_owned(), StepName::Number(12))));
        assert_eq!(step("7+1.0"), Ok(("7+1".to_owned(), StepName::Number(0))));
        assert_eq!(step("7.0+1"), Ok(("7".to_owned(), StepName::Number(0))));
        for text in ["7", "7.", ".0", "7.0.0", "7.x y", "a.0"] {
            assert!(step(text).is_err(), "{text}");
        }
    }
}
