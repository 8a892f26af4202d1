//! Errors of calls, recognized by the output of the program.
//!
//! The important distinction: Slurm refused the call, or it did not answer. Nothing may be concluded from a missing answer.

use thiserror::Error;

use crate::call::Tool;

/// The reason why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SlurmError {
    /// The program does not exist here.
    #[error("{program} is not installed here")]
    Missing { program: String },
    /// Slurm did not answer, so the state is unknown.
    #[error("Slurm did not answer: {reason}")]
    NoAnswer {
        reason: String,
        /// `true` if Slurm may have executed the call.
        maybe_delivered: bool,
    },
    /// Slurm refused the call.
    #[error("Slurm refused: {message}")]
    Refused { message: String },
}

impl SlurmError {
    /// Returns the error of an answer that cannot be parsed: it counts as no answer.
    pub fn unreadable(tool: Tool, line: &str) -> Self {
        let reason = format!("{} printed an unexpected line: {line:?}", tool.name());
        Self::NoAnswer { reason, maybe_delivered: true }
    }

    /// Returns whether the call may be repeated: it had no effect, or only reads.
    pub const fn may_be_repeated(&self, is_read_only: bool) -> bool {
        match self {
            Self::NoAnswer { maybe_delivered, .. } => is_read_only || !*maybe_delivered,
            Self::Missing { .. } | Self::Refused { .. } => false,
        }
    }
}

/// The end of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramEnd {
    Code(i32),
    Signal,
}

/// Messages of a program that did not reach Slurm.
const NOT_REACHED: [&str; 14] = [
    "unable to contact slurm controller",
    "connection refused",
    "connect failure",
    "connection timed out",
    "no route to host",
    "network is unreachable",
    "host is down",
    "could not resolve hostname",
    "unable to resolve",
    "could not establish a configuration source",
    "slurm backup controller in standby mode",
    "slurm temporarily unable to accept job",
    "munge encode failed",
    "permission denied (publickey",
];

/// Messages of a Slurm that may have executed the call but did not answer.
const NO_ANSWER_MESSAGES: [&str; 16] = [
    "socket timed out",
    "zero bytes were transmitted or received",
    "message receive failure",
    "message send failure",
    "communication connection failure",
    "communications shutdown failure",
    "connection reset",
    "connection closed",
    "broken pipe",
    "transport endpoint is not connected",
    "resource temporarily unavailable",
    "problem talking to the database",
    "unable to connect to database",
    "slurm_persist_conn_open",
    "slurmdbd is not responding",
    "invalid authentication credential",
];

/// Returns the error of an answer, if there is one. `through_ssh` means that the exit code may be that of ssh.
pub fn error_of(program: &str, end: ProgramEnd, stdout: &str, stderr: &str, through_ssh: bool) -> Option<SlurmError> {
    let said = stderr.to_lowercase();
    let reached = !NOT_REACHED.iter().any(|sentence| said.contains(sentence));
    let heard = !NO_ANSWER_MESSAGES.iter().any(|sentence| said.contains(sentence));
    let silent = !(reached && heard);
    match end {
        // Some versions of sacct print an error of the database and exit with 0.
        ProgramEnd::Code(0) if !silent || !stdout.trim().is_empty() => None,
        ProgramEnd::Code(126 | 127) if !silent => Some(SlurmError::Missing { program: program.to_owned() }),
        ProgramEnd::Code(255) if through_ssh && !silent => Some(no_answer(stderr, true)),
        ProgramEnd::Signal => {
            Some(SlurmError::NoAnswer { reason: format!("{program} was killed"), maybe_delivered: true })
        }
        ProgramEnd::Code(_) if silent => Some(no_answer(stderr, reached || !heard)),
        ProgramEnd::Code(code) => {
            let message = message_of(stderr).or_else(|| message_of(stdout));
            Some(SlurmError::Refused {
                message: message.unwrap_or_else(|| format!("{program} exited with code {code}")),
            })
        }
    }
}

fn no_answer(stderr: &str, maybe_delivered: bool) -> SlurmError {
    let reason = message_of(stderr).unwrap_or_else(|| "the connection was lost".to_owned());
    SlurmError::NoAnswer { reason, maybe_delivered }
}

/// Returns an error message without the name of the program, as in `sbatch: error: Batch job submission failed: …`, on one line.
fn message_of(text: &str) -> Option<String> {
    let lines = text.lines().map(strip_program_name).filter(|line| !line.is_empty());
    let said = lines.collect::<Vec<&str>>().join("; ");
    (!said.is_empty()).then_some(said)
}

fn strip_program_name(line: &str) -> &str {
    let line = line.trim();
    let Some((speaker, rest)) = line.split_once(": ") else { return line };
    let is_speaker =
        !speaker.contains(' ') && speaker.starts_with('s') && speaker.chars().all(|c| c.is_ascii_lowercase());
    if !is_speaker {
        return line;
    }
    rest.strip_prefix("error: ").unwrap_or(rest).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(sentence: &str) -> Option<SlurmError> {
        Some(SlurmError::Refused { message: sentence.to_owned() })
    }

    // Every text was printed by a real Slurm or a real ssh.
    #[test]
    fn no_answer_is_not_a_refusal() {
        let not_reached = [
            "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n",
            "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)\n",
            "slurm_load_partitions: Unable to contact slurm controller (connect failure)",
            "scancel: error: Kill job error on job id 15860017: Unable to contact slurm controller (connect failure)",
            "ssh: connect to host login1 port 22: Connection refused",
            "ssh: Could not resolve hostname login9: Name or service not known",
            "root@login1: Permission denied (publickey,password).",
            "sbatch: error: Munge encode failed: Failed to access \"/run/munge/munge.socket.2\": No such file or directory",
        ];
        for text in not_reached {
            for code in [1, 8, 255] {
                let trouble = error_of("squeue", ProgramEnd::Code(code), "", text, true);
                assert!(
                    matches!(trouble, Some(SlurmError::NoAnswer { maybe_delivered: false, .. })),
                    "{text}: {trouble:?}"
                );
            }
        }
        let not_heard = [
            "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
            "slurm_load_jobs error: Zero Bytes were transmitted or received",
            "sacct: error: slurm_persist_conn_open_without_init: failed to open persistent connection to \
             host:127.0.0.1:15861: Connection refused\nsacct: error: Sending PersistInit msg: Connection refused\n\
             sacct: error: Problem talking to the database: Connection refused\n",
            "client_loop: send disconnect: Broken pipe",
            "Connection reset by peer",
        ];
        for text in not_heard {
            let trouble = error_of("squeue", ProgramEnd::Code(1), "", text, false);
            assert!(matches!(trouble, Some(SlurmError::NoAnswer { maybe_delivered: true, .. })), "{text}: {trouble:?}");
        }
        let killed = error_of("squeue", ProgramEnd::Signal, "1|R\n", "", false);
        assert!(matches!(killed, Some(SlurmError::NoAnswer { .. })), "a killed program's answer may be half of it");
        let lost = error_of("squeue", ProgramEnd::Code(255), "", "", true);
        assert!(matches!(lost, Some(SlurmError::NoAnswer { maybe_delivered: true, .. })));
    }

    /// Each of these messages alone decides whether the call may have been executed.
    const NOT_REACHED_MESSAGES: [&str; 14] = [
        "Unable to contact slurm controller",
        "Connection refused",
        "connect failure",
        "Connection timed out",
        "No route to host",
        "Network is unreachable",
        "Host is down",
        "Could not resolve hostname",
        "Unable to resolve",
        "Could not establish a configuration source",
        "Slurm backup controller in standby mode",
        "Slurm temporarily unable to accept job",
        "Munge encode failed",
        "Permission denied (publickey)",
    ];
    const NO_ANSWER_EXAMPLES: [&str; 16] = [
        "Socket timed out",
        "Zero Bytes were transmitted or received",
        "Message receive failure",
        "Message send failure",
        "Communication connection failure",
        "Communications shutdown failure",
        "Connection reset",
        "Connection closed",
        "Broken pipe",
        "Transport endpoint is not connected",
        "Resource temporarily unavailable",
        "Problem talking to the database",
        "Unable to connect to database",
        "slurm_persist_conn_open",
        "slurmdbd is not responding",
        "Invalid authentication credential",
    ];

    #[test]
    fn each_sentence_alone_says_whether_slurm_may_have_heard() {
        let cases = NOT_REACHED_MESSAGES
            .map(|text| (text, false))
            .into_iter()
            .chain(NO_ANSWER_EXAMPLES.map(|text| (text, true)));
        for (text, maybe_delivered) in cases {
            let expected = Some(SlurmError::NoAnswer { reason: format!("{text}!"), maybe_delivered });
            for code in [1, 126, 127, 255] {
                assert_eq!(
                    error_of("squeue", ProgramEnd::Code(code), "", &format!("squeue: error: {text}!"), false),
                    expected
                );
            }
            assert_eq!(
                error_of("squeue", ProgramEnd::Code(0), " \n", &format!("{text}!"), false),
                expected,
                "nothing was printed"
            );
            assert_eq!(
                error_of("squeue", ProgramEnd::Code(0), "x", &format!("{text}!"), false),
                None,
                "an answer was printed"
            );
            let refused = error_of("squeue", ProgramEnd::Code(1), text, "no", false);
            assert_eq!(refused, Some(SlurmError::Refused { message: "no".to_owned() }), "only complaints count");
        }
    }

    #[test]
    fn codes_and_what_they_say() {
        let missing = Some(SlurmError::Missing { program: "sstat".to_owned() });
        let lost = Some(SlurmError::NoAnswer { reason: "the connection was lost".to_owned(), maybe_delivered: true });
        let said = Some(SlurmError::NoAnswer { reason: "kex failed".to_owned(), maybe_delivered: true });
        let killed = Some(SlurmError::NoAnswer { reason: "sstat was killed".to_owned(), maybe_delivered: true });
        let cases = [
            (ProgramEnd::Code(0), "", false, None),
            (ProgramEnd::Code(126), "", false, missing.clone()),
            (ProgramEnd::Code(127), "x", true, missing),
            (ProgramEnd::Code(255), "", true, lost),
            (ProgramEnd::Code(255), "kex failed", true, said),
            (ProgramEnd::Code(255), "", false, refused("sstat exited with code 255")),
            (ProgramEnd::Code(254), "", true, refused("sstat exited with code 254")),
            (ProgramEnd::Signal, "Connection refused", true, killed),
        ];
        for (end, stderr, through_ssh, expected) in cases {
            assert_eq!(error_of("sstat", end, "", stderr, through_ssh), expected, "{end:?} {stderr}");
        }
        let both =
            error_of("sacct", ProgramEnd::Code(1), "", "Connection refused\nProblem talking to the database", false);
        assert!(matches!(both, Some(SlurmError::NoAnswer { maybe_delivered: true, .. })), "{both:?}");
        assert_eq!(
            SlurmError::unreadable(Tool::Sinfo, "a\tb"),
            SlurmError::NoAnswer {
                reason: "sinfo printed an unexpected line: \"a\\tb\"".to_owned(),
                maybe_delivered: true
            }
        );
    }

    #[test]
    fn only_the_name_of_a_program_is_taken_off() {
        let cases = [
            ("sbatch: error: no", "no"),
            ("sbatch: no", "no"),
            (" srun: error:  no ", "no"),
            ("slurm_load_jobs error: no", "slurm_load_jobs error: no"),
            ("bash: no", "bash: no"),
            ("Sbatch: no", "Sbatch: no"),
            ("no", "no"),
            ("a\n\nb", "a; b"),
        ];
        for (text, expected) in cases {
            assert_eq!(error_of("x", ProgramEnd::Code(1), "", text, false), refused(expected), "{text:?}");
        }
        assert_eq!(error_of("x", ProgramEnd::Code(1), "on stdout", "on stderr", false), refused("on stderr"));
        assert_eq!(error_of("x", ProgramEnd::Code(1), "on stdout", " ", false), refused("on stdout"));
        let texts = [
            (SlurmError::Missing { program: "p".to_owned() }, "p is not installed here"),
            (SlurmError::NoAnswer { reason: "r".to_owned(), maybe_delivered: true }, "Slurm did not answer: r"),
            (SlurmError::Refused { message: "s".to_owned() }, "Slurm refused: s"),
        ];
        for (trouble, text) in texts {
            assert_eq!(trouble.to_string(), text);
        }
    }

    #[test]
    fn a_refusal_keeps_slurms_words() {
        let nope = "sbatch: error: invalid partition specified: nope\n\
                    sbatch: error: Batch job submission failed: Invalid partition name specified\n";
        let said = "invalid partition specified: nope; Batch job submission failed: Invalid partition name specified";
        assert_eq!(error_of("sbatch", ProgramEnd::Code(1), "", nope, false), refused(said));
        let field = "sacct: error: Invalid field requested: \"bogus\"\n";
        assert_eq!(
            error_of("sacct", ProgramEnd::Code(1), "", field, false),
            refused("Invalid field requested: \"bogus\"")
        );
        assert_eq!(error_of("sinfo", ProgramEnd::Code(3), "", "", false), refused("sinfo exited with code 3"));
        let ping = "Slurmctld(primary) at vm is DOWN\n";
        assert_eq!(
            error_of("scontrol", ProgramEnd::Code(1), ping, "", false),
            refused("Slurmctld(primary) at vm is DOWN")
        );
    }

    #[test]
    fn an_answer_is_an_answer() {
        assert_eq!(error_of("squeue", ProgramEnd::Code(0), "", "", false), None);
        let partly =
            "sstat: error: StepId=15860017.9 not found running.\nsstat: error: couldn't get steps for job 999\n";
        assert_eq!(error_of("sstat", ProgramEnd::Code(0), "15860017.0|00:00:00|1580K\n", partly, false), None);
        let content =
            error_of("sacct", ProgramEnd::Code(0), "\n", "sacct: error: Problem talking to the database", false);
        assert!(matches!(content, Some(SlurmError::NoAnswer { .. })));
    }

    // S19
    #[test]
    fn a_missing_program_is_told_apart() {
        let missing = Some(SlurmError::Missing { program: "sstat".to_owned() });
        assert_eq!(
            error_of("sstat", ProgramEnd::Code(127), "", "env: 'sstat': No such file or directory\n", false),
            missing
        );
        assert_eq!(
            error_of("sstat", ProgramEnd::Code(127), "", "bash: line 1: sstat: command not found\n", true),
            missing
        );
    }

    #[test]
    fn only_what_certainly_had_no_effect_is_repeated() {
        let unheard = SlurmError::NoAnswer { reason: String::new(), maybe_delivered: true };
        let unreached = SlurmError::NoAnswer { reason: String::new(), maybe_delivered: false };
        assert!(unheard.may_be_repeated(true) && !unheard.may_be_repeated(false));
        assert!(unreached.may_be_repeated(true) && unreached.may_be_repeated(false));
        assert!(!SlurmError::Refused { message: String::new() }.may_be_repeated(true));
        assert!(!SlurmError::Missing { program: String::new() }.may_be_repeated(true));
    }
}
