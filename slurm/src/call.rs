//! The specification of a call of a Slurm command.

use std::time::Duration;

use crate::shell;

/// A program of Slurm, or the shell beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tool {
    /// `srun`, which starts a step.
    Srun,
    /// `sacct`, which lists jobs and steps that have ended.
    Sacct,
    /// `sstat`, which lists the usage of running steps.
    Sstat,
    /// `squeue`, which lists pending and running jobs.
    Squeue,
    /// `sbatch`, which submits jobs.
    Sbatch,
    /// `scancel`, which cancels jobs.
    Scancel,
    /// `sinfo`, which lists partitions and nodes.
    Sinfo,
    /// `scontrol`, which shows any object in detail.
    Scontrol,
    /// A shell on the machine of Slurm's commands, for files.
    Shell,
}

impl Tool {
    pub const ALL: [Self; 8] =
        [Self::Srun, Self::Sacct, Self::Sstat, Self::Squeue, Self::Sbatch, Self::Scancel, Self::Sinfo, Self::Scontrol];

    /// Returns the name of the program.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Srun => "srun",
            Self::Sacct => "sacct",
            Self::Sstat => "sstat",
            Self::Squeue => "squeue",
            Self::Sbatch => "sbatch",
            Self::Scancel => "scancel",
            Self::Sinfo => "sinfo",
            Self::Scontrol => "scontrol",
            Self::Shell => "sh",
        }
    }

    /// Returns the variable that names a replacement of the program, for tests.
    pub const fn replacement_variable(self) -> &'static str {
        match self {
            Self::Srun => "TORC_FAKE_SRUN",
            Self::Sacct => "TORC_FAKE_SACCT",
            Self::Sstat => "TORC_FAKE_SSTAT",
            Self::Squeue => "TORC_FAKE_SQUEUE",
            Self::Sbatch => "TORC_FAKE_SBATCH",
            Self::Scancel => "TORC_FAKE_SCANCEL",
            Self::Sinfo => "TORC_FAKE_SINFO",
            Self::Scontrol => "TORC_FAKE_SCONTROL",
            Self::Shell => "TORC_FAKE_SHELL",
        }
    }

    /// Returns the variables with which users change defaults of the program. They are cleared, so that its output can be parsed.
    const fn cleared_env(self) -> &'static [&'static str] {
        match self {
            Self::Squeue => &[
                "SQUEUE_ACCOUNT",
                "SQUEUE_ARRAY",
                "SQUEUE_ARRAY_UNIQUE",
                "SQUEUE_FORMAT",
                "SQUEUE_FORMAT2",
                "SQUEUE_LICENSES",
                "SQUEUE_NAMES",
                "SQUEUE_PARTITION",
                "SQUEUE_QOS",
                "SQUEUE_SORT",
                "SQUEUE_STATES",
                "SQUEUE_USERS",
                "SLURM_CLUSTERS",
            ],
            Self::Sacct => &["SACCT_FEDERATION", "SACCT_FORMAT", "SACCT_LOCAL", "SLURM_CLUSTERS"],
            Self::Sinfo => &["SINFO_FORMAT", "SINFO_PARTITION", "SINFO_SORT", "SLURM_CLUSTERS"],
            Self::Scancel => &[
                "SCANCEL_ACCOUNT",
                "SCANCEL_BATCH",
                "SCANCEL_FULL",
                "SCANCEL_INTERACTIVE",
                "SCANCEL_NAME",
                "SCANCEL_PARTITION",
                "SCANCEL_QOS",
                "SCANCEL_STATE",
                "SCANCEL_USER",
                "SCANCEL_VERBOSE",
                "SCANCEL_WCKEY",
                "SLURM_CLUSTERS",
            ],
            // These would override the options of a batch script.
            Self::Sbatch => &[
                "SBATCH_ACCOUNT",
                "SBATCH_ARRAY_INX",
                "SBATCH_CONSTRAINT",
                "SBATCH_EXCLUSIVE",
                "SBATCH_EXPORT",
                "SBATCH_GPUS",
                "SBATCH_GPUS_PER_NODE",
                "SBATCH_GRES",
                "SBATCH_JOB_NAME",
                "SBATCH_MEM_PER_CPU",
                "SBATCH_MEM_PER_GPU",
                "SBATCH_MEM_PER_NODE",
                "SBATCH_NO_REQUEUE",
                "SBATCH_OUTPUT",
                "SBATCH_PARTITION",
                "SBATCH_QOS",
                "SBATCH_REQUEUE",
                "SBATCH_RESERVATION",
                "SBATCH_TIMELIMIT",
                "SBATCH_WAIT",
                "SLURM_CLUSTERS",
            ],
            Self::Srun | Self::Sstat | Self::Scontrol | Self::Shell => &[],
        }
    }

    /// Returns the variables that make the output parsable: times in UTC, in the usual form. `sbatch` and `srun` get none, because
    /// the job would inherit them.
    const fn fixed_env(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Sbatch | Self::Srun | Self::Shell => &[],
            _ => &[("TZ", "UTC"), ("SLURM_TIME_FORMAT", "standard")],
        }
    }

    /// Returns whether a call may be repeated, because a second execution has no further effect.
    pub const fn is_read_only(self) -> bool {
        !matches!(self, Self::Sbatch | Self::Srun)
    }
}

/// A call of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandSpec {
    pub tool: Tool,
    pub arguments: Vec<String>,
    pub input: Option<String>,
    pub timeout: Duration,
}

/// The default timeout. A Slurm whose controller is away fails after ten seconds.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

impl CommandSpec {
    /// Returns a call with these arguments.
    pub fn new<'a>(tool: Tool, arguments: impl IntoIterator<Item = &'a str>) -> Self {
        let arguments = arguments.into_iter().map(str::to_owned).collect();
        Self { tool, arguments, input: None, timeout: DEFAULT_TIMEOUT }
    }

    pub fn arg(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Sets the text for the standard input.
    pub fn reads(mut self, input: impl Into<String>) -> Self {
        self.input = Some(input.into());
        self
    }

    pub fn within(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Returns the program, its arguments and its environment. `prefix` is the command that leads to Slurm, such as `ssh login1`.
    pub fn invocation(&self, prefix: &[String], program: &str) -> Invocation {
        let unset: Vec<String> = self.tool.cleared_env().iter().map(|name| (*name).to_owned()).collect();
        // A test submits nothing, so no job inherits the environment.
        let is_test = self.tool == Tool::Sbatch && self.arguments.iter().any(|word| word == "--test-only");
        let fixed = if is_test { Tool::Squeue.fixed_env() } else { self.tool.fixed_env() };
        let set: Vec<(String, String)> =
            fixed.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mut words = vec![program.to_owned()];
        words.extend(self.arguments.iter().cloned());
        let Some((first, rest)) = prefix.split_first() else {
            let arguments = words.split_off(1);
            return Invocation { program: program.to_owned(), arguments, unset, set };
        };
        // A prefix does not pass on the environment, so `env` sets it on the other side.
        let mut far = vec!["env".to_owned()];
        far.extend(unset.iter().flat_map(|name| ["-u".to_owned(), name.clone()]));
        far.extend(set.iter().map(|(name, value)| format!("{name}={value}")));
        far.extend(words);
        // ssh joins its arguments with blanks and passes them to a remote shell; other programs pass them on unchanged.
        if first.rsplit('/').next() == Some("ssh") {
            far = far.iter().map(|word| shell::quote(word)).collect();
        }
        let arguments = rest.iter().cloned().chain(far).collect();
        Invocation { program: first.clone(), arguments, unset: Vec::new(), set: Vec::new() }
    }
}

/// The program, arguments and environment of a process to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    pub program: String,
    pub arguments: Vec<String>,
    pub unset: Vec<String>,
    pub set: Vec<(String, String)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn a_prefix_leads_to_slurm_and_ssh_needs_quotes() {
        let call = CommandSpec::new(Tool::Sstat, ["-o", "%i|%j"]);
        let here = call.invocation(&[], "/opt/slurm/sstat");
        assert_eq!((here.program.as_str(), here.arguments), ("/opt/slurm/sstat", words(&["-o", "%i|%j"])));
        assert!(here.set.contains(&("TZ".to_owned(), "UTC".to_owned())));

        let far = call.invocation(&words(&["/usr/bin/ssh", "-q", "login1"]), "sstat");
        assert_eq!(far.program, "/usr/bin/ssh");
        let said = ["-q", "login1", "env", "TZ=UTC", "SLURM_TIME_FORMAT=standard", "sstat", "-o", "'%i|%j'"];
        assert_eq!(far.arguments, words(&said));
        assert!(far.set.is_empty() && far.unset.is_empty());

        let inside = call.invocation(&words(&["podman", "exec", "slurm"]), "sstat");
        assert_eq!(inside.arguments.last().map(String::as_str), Some("%i|%j"));
    }

    #[test]
    fn variables_of_a_user_do_not_change_our_calls() {
        let here = CommandSpec::new(Tool::Squeue, []).invocation(&[], "squeue");
        assert!(here.unset.contains(&"SQUEUE_USERS".to_owned()));
        let far = CommandSpec::new(Tool::Squeue, []).invocation(&words(&["ssh", "login1"]), "squeue");
        let text = far.arguments.join(" ");
        assert!(
            text.contains("-u SQUEUE_USERS") && text.ends_with("TZ=UTC SLURM_TIME_FORMAT=standard squeue"),
            "{text}"
        );
        // A batch job inherits the environment of sbatch.
        let sbatch = CommandSpec::new(Tool::Sbatch, []).invocation(&[], "sbatch");
        let test = CommandSpec::new(Tool::Sbatch, ["--test-only"]).invocation(&[], "sbatch");
        assert!(!test.set.is_empty());
        assert!(sbatch.set.is_empty() && sbatch.unset.contains(&"SBATCH_PARTITION".to_owned()));
    }

    #[test]
    fn only_a_submission_and_a_step_are_not_repeated() {
        let cases = [
            (Tool::Srun, "srun", false),
            (Tool::Sacct, "sacct", true),
            (Tool::Sstat, "sstat", true),
            (Tool::Squeue, "squeue", true),
            (Tool::Sbatch, "sbatch", false),
            (Tool::Scancel, "scancel", true),
            (Tool::Sinfo, "sinfo", true),
            (Tool::Scontrol, "scontrol", true),
            (Tool::Shell, "sh", true),
        ];
        for (tool, name, is_read_only) in cases {
            assert_eq!((tool.name(), tool.is_read_only()), (name, is_read_only));
        }
        assert_eq!(Tool::ALL.to_vec(), cases[..8].iter().map(|(tool, ..)| *tool).collect::<Vec<Tool>>());
    }

    #[test]
    fn a_call_has_a_minute_unless_said_otherwise() {
        let call = CommandSpec::new(Tool::Sinfo, ["a"]).arg("b").reads("text");
        let expected = CommandSpec {
            tool: Tool::Sinfo,
            arguments: words(&["a", "b"]),
            input: Some("text".to_owned()),
            timeout: Duration::from_secs(60),
        };
        assert_eq!(call, expected);
        assert_eq!(call.within(Duration::from_secs(7)).timeout, Duration::from_secs(7));
    }

    /// The variables that each program must not see, and those that it gets.
    #[test]
    fn the_environment_of_every_program() {
        let utc = ["TZ=UTC", "SLURM_TIME_FORMAT=standard"];
        let squeue = "ACCOUNT ARRAY ARRAY_UNIQUE FORMAT FORMAT2 LICENSES NAMES PARTITION QOS SORT STATES USERS";
        let scancel = "ACCOUNT BATCH FULL INTERACTIVE NAME PARTITION QOS STATE USER VERBOSE WCKEY";
        let sbatch = "ACCOUNT ARRAY_INX CONSTRAINT EXCLUSIVE EXPORT GPUS GPUS_PER_NODE GRES JOB_NAME MEM_PER_CPU MEM_PER_GPU \
                      MEM_PER_NODE NO_REQUEUE OUTPUT PARTITION QOS REQUEUE RESERVATION TIMELIMIT WAIT";
        let cases = [
            (Tool::Srun, "", &[][..]),
            (Tool::Sacct, "FEDERATION FORMAT LOCAL", &utc[..]),
            (Tool::Sstat, "", &utc[..]),
            (Tool::Squeue, squeue, &utc[..]),
            (Tool::Sbatch, sbatch, &[][..]),
            (Tool::Scancel, scancel, &utc[..]),
            (Tool::Sinfo, "FORMAT PARTITION SORT", &utc[..]),
            (Tool::Scontrol, "", &utc[..]),
            (Tool::Shell, "", &[][..]),
        ];
        for (tool, unset, set) in cases {
            let made = CommandSpec::new(tool, []).invocation(&[], "x");
            let prefix = tool.name().to_uppercase();
            let mut names: Vec<String> = unset.split_whitespace().map(|name| format!("{prefix}_{name}")).collect();
            names.extend((!unset.is_empty()).then(|| "SLURM_CLUSTERS".to_owned()));
            assert_eq!(made.unset, names, "{prefix}");
            let given: Vec<String> = made.set.iter().map(|(name, value)| format!("{name}={value}")).collect();
            assert_eq!(given, set, "{prefix}");
        }
        let test = CommandSpec::new(Tool::Sbatch, ["--test-only"]).invocation(&[], "x");
        assert_eq!(
            test.set,
            [("TZ", "UTC"), ("SLURM_TIME_FORMAT", "standard")].map(|(a, b)| (a.to_owned(), b.to_owned()))
        );
    }

    #[test]
    fn only_ssh_gets_quotes() {
        let call = CommandSpec::new(Tool::Scontrol, ["a b"]);
        for (prefix, last) in
            [("ssh", "'a b'"), ("/usr/bin/ssh", "'a b'"), ("ssh-wrapper", "a b"), ("/ssh/podman", "a b")]
        {
            let made = call.invocation(&words(&[prefix, "to"]), "prog");
            assert_eq!(made.program, prefix);
            let expected = words(&["to", "env", "TZ=UTC", "SLURM_TIME_FORMAT=standard", "prog", last]);
            assert_eq!((made.arguments, made.set, made.unset), (expected, vec![], vec![]), "{prefix}");
        }
    }

    // S21
    #[test]
    fn every_program_can_be_replaced() {
        for tool in Tool::ALL {
            assert_eq!(tool.replacement_variable(), format!("TORC_FAKE_{}", tool.name().to_uppercase()));
        }
    }
}
