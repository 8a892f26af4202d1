//! Rules of `kind: Workflow`.

use super::Rule;
use super::quantities::{DURATION, DURATION_WORDS, MEMORY, MEMORY_WORDS, ORPHAN_AFTER, WALLTIME, WALLTIME_WORDS};

const OWN_AND_SHARED_TABLE: &str = "use either its own parameters file or the workflow's, not both";
const NOT_BOTH_TABLES: &str = "!has(self.parametersFile) || !has(self.useParametersFile) || !self.useParametersFile";
const MODES: &str = "remove it, or use mode auto, which accepts the keys of both";
const ONE_WORD: &str = "self.contains('{') || self.matches('^[A-Za-z0-9+_.@:-]+$')";
const ONE_WORD_WORDS: &str = r#""'" + self + "' is not a single word""#;

/// All rules, in the order of the document.
pub const WORKFLOW: &[Rule] = &[
    NAME,
    Rule::new("spec", "self.runId >= oldSelf.runId", "must not decrease")
    .field("runId")
    .hint("a higher number runs the workflow again"),
    Rule::new(
        "spec",
        "!has(oldSelf.stopPolicy) || oldSelf.stopPolicy != 'Cancel' || (has(self.stopPolicy) && self.stopPolicy == 'Cancel') \
         || self.runId > oldSelf.runId",
        "a canceled workflow continues only with a higher `runId`",
    )
    .field("stopPolicy"),
    Rule::new(
        "spec",
        "has(self.managedBy) == has(oldSelf.managedBy) && (!has(self.managedBy) || self.managedBy == oldSelf.managedBy)",
        "must not change",
    )
    .field("managedBy"),
    Rule::new(
        "spec.jobs[]",
        "!has(self.scheduler) || !has(self.labels) || size(self.labels) == 0",
        "a job has either labels or a scheduler, not both",
    )
    .field("labels")
    .hint("a job of a scheduler runs in that scheduler's allocations"),
    Rule::new("spec.jobs[]", NOT_BOTH_TABLES, OWN_AND_SHARED_TABLE).field("parametersFile"),
    Rule::new("spec.files[]", NOT_BOTH_TABLES, OWN_AND_SHARED_TABLE).field("parametersFile"),
    Rule::new("spec.userData[]", NOT_BOTH_TABLES, OWN_AND_SHARED_TABLE).field("parametersFile"),
    Rule::new("spec.resourceRequirements[]", "self.name != 'default'", "'default' is reserved")
        .field("name")
        .hint("jobs without resource requirements use it"),
    Rule::with_message_expression("spec.resourceRequirements[].memory", MEMORY, MEMORY_WORDS).parsed(),
    Rule::with_message_expression("spec.resourceRequirements[].runtime", DURATION, DURATION_WORDS).parsed(),
    Rule::with_message_expression("spec.slurmSchedulers[].walltime", WALLTIME, WALLTIME_WORDS).parsed(),
    Rule::with_message_expression("spec.slurmSchedulers[].mem", MEMORY, MEMORY_WORDS).parsed(),
    Rule::with_message_expression("spec.slurmSchedulers[].tmp", MEMORY, MEMORY_WORDS).parsed(),
    Rule::new("spec.failureHandlers[]", "size(self.rules) > 0", "a failure handler needs at least one rule")
        .field("rules")
        .tolerated(),
    Rule::new(
        "spec.failureHandlers[].rules[]",
        "(has(self.exitCodes) && size(self.exitCodes) > 0) || (has(self.causes) && size(self.causes) > 0) \
         || (has(self.matchAllExitCodes) && self.matchAllExitCodes)",
        "the rule never applies",
    )
    .hint("list exit codes or causes, or match all exit codes")
    .tolerated(),
    Rule::new(
        "spec.failureHandlers[].rules[]",
        "!has(self.exitCodes) || !(0 in self.exitCodes)",
        "exit code 0 is a success and never handled",
    )
    .field("exitCodes")
    .tolerated(),
    Rule::new(
        "spec.actions[]",
        "self.actionType != 'run_commands' || (has(self.commands) && size(self.commands) > 0)",
        "`run_commands` needs commands",
    )
    .field("commands"),
    Rule::new(
        "spec.actions[]",
        "self.actionType != 'schedule_nodes' || (has(self.scheduler) && size(self.scheduler) > 0)",
        "`schedule_nodes` needs a scheduler",
    )
    .field("scheduler"),
    Rule::with_message_expression(
        "spec.actions[]",
        "self.actionType != 'schedule_nodes' || !has(self.schedulerType) || self.schedulerType in ['slurm', 'local']",
        r#""'" + self.schedulerType + "' is not one of slurm, local""#,
    )
    .field("schedulerType")
    .tolerated(),
    Rule::new(
        "spec.actions[]",
        "!(self.triggerType in ['on_jobs_ready', 'on_jobs_complete']) || (has(self.jobs) && size(self.jobs) > 0) \
         || (has(self.jobNameRegexes) && size(self.jobNameRegexes) > 0)",
        "the trigger needs jobs",
    )
    .field("jobs")
    .hint("list jobs or regular expressions for them")
    .tolerated(),
    of_slurm_mode("srunTerminationSignal", "!has(self.srunTerminationSignal) || !has(self.mode) || self.mode != 'direct'"),
    of_slurm_mode("enableCpuBind", "!has(self.enableCpuBind) || !has(self.mode) || self.mode != 'direct'"),
    of_direct_mode("terminationSignal", "!has(self.terminationSignal) || !has(self.mode) || self.mode != 'slurm'"),
    of_direct_mode("sigtermLeadSeconds", "!has(self.sigtermLeadSeconds) || !has(self.mode) || self.mode != 'slurm'"),
    of_direct_mode("oomExitCode", "!has(self.oomExitCode) || !has(self.mode) || self.mode != 'slurm'"),
    of_direct_mode("srunMpi", "!has(self.srunMpi) || !has(self.mode) || self.mode != 'slurm'"),
    Rule::new(
        "spec.executionConfig",
        "!has(self.limitResources) || self.limitResources || !has(self.mode) || self.mode != 'slurm'",
        "false is not supported in slurm mode",
    )
    .field("limitResources")
    .hint("use mode direct to run jobs without limits inside an allocation"),
    Rule::with_message_expression(
        "spec.executionConfig.terminationSignal",
        "self.contains('{') || self.matches('^(?i)(SIG)?(TERM|INT|USR1|USR2|HUP|KILL)$')",
        r#""'" + self + "' is not one of TERM, INT, USR1, USR2, HUP, KILL""#,
    )
    .hint("the prefix SIG is allowed")
    .tolerated(),
    Rule::with_message_expression("spec.executionConfig.srunTerminationSignal", ONE_WORD, ONE_WORD_WORDS),
    Rule::with_message_expression("spec.executionConfig.srunMpi", ONE_WORD, ONE_WORD_WORDS),
    Rule::new(
        "spec.prefetch",
        "!has(self.refillThreshold) || !has(self.maxQueued) || self.refillThreshold <= self.maxQueued",
        "must not be more than `maxQueued`",
    )
    .field("refillThreshold"),
    Rule::with_message_expression("spec.orphanAfter", ORPHAN_AFTER, DURATION_WORDS).parsed(),
    Rule::with_message_expression("spec.slurmCluster", "self.trim() != ''", r#""'" + self + "' is not a name""#),
];

/// Limits the name, which becomes part of names that Slurm and Kubernetes limit.
pub(super) const NAME: Rule =
    Rule::new("", "size(self.metadata.name) <= 52", "`metadata.name` must have at most 52 characters");

const fn of_slurm_mode(field: &'static str, cel: &'static str) -> Rule {
    Rule::new("spec.executionConfig", cel, "applies only to slurm mode, but the mode is direct")
        .field(field)
        .hint(MODES)
}

const fn of_direct_mode(field: &'static str, cel: &'static str) -> Rule {
    Rule::new("spec.executionConfig", cel, "applies only to direct mode, but the mode is slurm")
        .field(field)
        .hint(MODES)
}
