//! `sbatch`: submission; `scancel`: signals and cancellation.

use crate::call::{CommandSpec, Tool};
use crate::error::SlurmError;
use crate::exec::Answer;
use crate::parse::fields::parse_time;

/// Submits a script on standard input: this needs no file, even behind a command prefix.
pub fn submit(script: &str) -> CommandSpec {
    CommandSpec::new(Tool::Sbatch, ["--parsable"]).reads(script)
}

/// Returns the ID of the submitted job. After an unreadable output, it is unknown whether the job exists.
pub fn read_number(answer: &Answer) -> Result<u64, SlurmError> {
    let lines = answer.text.lines().map(str::trim).filter(|line| !line.is_empty());
    // Sites print greetings before the ID; a federation appends the name of the cluster.
    let mut numbers = lines.filter_map(|line| {
        let word = line.strip_prefix("Submitted batch job ").unwrap_or(line);
        word.split([';', ' ']).next()?.parse::<u64>().ok()
    });
    numbers.next_back().ok_or_else(|| SlurmError::unreadable(Tool::Sbatch, &answer.text))
}

/// Returns the query for the estimated start of a script, without submitting it.
pub fn test(script: &str) -> CommandSpec {
    CommandSpec::new(Tool::Sbatch, ["--test-only"]).reads(script)
}

/// Returns the estimated start in seconds since 1970.
pub fn read_start(answer: &Answer) -> Option<i64> {
    let text =
        [answer.remarks.as_str(), answer.text.as_str()].into_iter().find(|text| text.contains(" to start at "))?;
    parse_time(text.split(" to start at ").nth(1)?.split_whitespace().next()?)
}

/// Sends a signal to the processes of a step such as `12345.7`.
pub fn signal(step: &str, signal: &str) -> CommandSpec {
    CommandSpec::new(Tool::Scancel, ["--signal", signal, step])
}

pub fn cancel<'a>(ids: impl IntoIterator<Item = &'a str>) -> CommandSpec {
    CommandSpec::new(Tool::Scancel, ids)
}

/// Returns success if the jobs are canceled or already gone.
pub fn read_canceled(answer: Result<Answer, SlurmError>) -> Result<(), SlurmError> {
    match answer {
        Ok(_) => Ok(()),
        Err(SlurmError::Refused { message: sentence })
            if sentence
                .split("; ")
                .all(|part| part.contains("Invalid job id") || part.contains("already completing or completed")) =>
        {
            Ok(())
        }
        Err(trouble) => Err(trouble),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str, remarks: &str) -> Answer {
        Answer { text: text.to_owned(), remarks: remarks.to_owned() }
    }

    #[test]
    fn the_number_of_a_submission() {
        let cases = [
            ("15860008\n", 15_860_008),
            ("15860008;lab\n", 15_860_008),
            ("Submitted batch job 7\n", 7),
            ("Submitted batch job 7 on cluster lab\n", 7),
            ("Welcome to the machine\n\n15860008\n", 15_860_008),
        ];
        for (text, number) in cases {
            assert_eq!(read_number(&answer(text, "")), Ok(number), "{text}");
        }
        for text in ["", "Welcome\n", "-7\n"] {
            let trouble = read_number(&answer(text, ""));
            assert!(matches!(trouble, Err(SlurmError::NoAnswer { maybe_delivered: true, .. })), "{text}");
        }
        assert_eq!(submit("#!/bin/sh\n").input.as_deref(), Some("#!/bin/sh\n"));
    }

    #[test]
    fn when_it_would_start() {
        let said = "sbatch: Job 15860025 to start at 2026-11-16T09:50:30 using 4 processors on nodes n[1-4] in partition debug\n";
        assert_eq!(read_start(&answer("", said)), Some(1_794_822_630));
        assert_eq!(read_start(&answer("", "allocation failure: Requested node configuration is not available")), None);
    }

    #[test]
    fn every_call_is_made_literally_so() {
        let cases = [
            (submit("s1"), Tool::Sbatch, vec!["--parsable"], Some("s1")),
            (test("s2"), Tool::Sbatch, vec!["--test-only"], Some("s2")),
            (signal("7.3", "USR1"), Tool::Scancel, vec!["--signal", "USR1", "7.3"], None),
            (cancel(["7", "8"]), Tool::Scancel, vec!["7", "8"], None),
        ];
        for (call, tool, arguments, input) in cases {
            assert_eq!((call.tool, call.input.as_deref()), (tool, input));
            assert_eq!(call.arguments, arguments);
        }
    }

    #[test]
    fn the_last_number_and_the_stream_that_has_the_start() {
        assert_eq!(read_number(&answer("7\n8\nBye\n", "")), Ok(8), "the last line with a number");
        let said = "Job 1 to start at 2026-11-16T09:50:30 using 4 processors";
        assert_eq!(read_start(&answer(said, "")), Some(1_794_822_630), "standard output will do");
        assert_eq!(read_start(&answer("", "Job 1 to start at soon")), None);
    }

    #[test]
    fn what_is_gone_is_cancelled() {
        let refused = |sentence: &str| Err(SlurmError::Refused { message: sentence.to_owned() });
        assert_eq!(read_canceled(Ok(answer("", ""))), Ok(()));
        let gone = "Kill job error on job id 7: Invalid job id specified";
        assert_eq!(read_canceled(refused(gone)), Ok(()));
        let done = "Kill job error on job id 8: Job/step already completing or completed";
        assert_eq!(read_canceled(refused(&format!("{gone}; {done}"))), Ok(()));
        let denied = "Kill job error on job id 7: Access/permission denied";
        assert_eq!(read_canceled(refused(denied)), refused(denied).map(|_: Answer| ()));
        assert!(read_canceled(refused(&format!("{gone}; {denied}"))).is_err(), "one of two is not both");
    }
}
