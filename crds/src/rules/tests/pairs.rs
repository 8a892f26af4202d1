//! Every rule has documents that keep it at its boundary and documents that break it just beyond.
//!
//! Each broken one has the exact message and position. A rule without an entry in the tables fails
//! `every_rule_has_a_pair`.

use std::collections::BTreeSet;

use super::*;
use crate::rules::evaluate::visit_values;
use crate::testing::{all_problems, bare, document, read, shown, unmarked};

/// One rule: its place and field, documents on both sides of its boundary.
struct Pair {
    rule: (&'static str, &'static str),
    /// In a bare file it is a warning.
    tolerated: bool,
    keeps: &'static [&'static str],
    /// A specification in which `^` stands before the position of the problem, and `field: message (hint)`.
    breaks: &'static [(&'static str, &'static str)],
}

const ENTRIES: &[Pair] = &[
    Pair {
        rule: ("spec.jobs[]", "labels"),
        tolerated: false,
        keeps: &[
            "jobs: [{name: a, command: x, scheduler: s}]\nslurmSchedulers: [{name: s, account: w}]",
            "jobs: [{name: a, command: x, scheduler: s, labels: []}]\nslurmSchedulers: [{name: s, account: w}]",
            "jobs: [{name: a, command: x, labels: [gpu, big]}]",
        ],
        breaks: &[(
            "jobs: [{name: b, command: x}, {name: a, command: x, scheduler: s, ^labels: [gpu]}]\nslurmSchedulers: [{name: s, account: w}]",
            "spec.jobs[1].labels: a job has either labels or a scheduler, not both (a job of a scheduler runs in that scheduler's allocations)",
        )],
    },
    Pair {
        rule: ("spec.jobs[]", "parametersFile"),
        tolerated: false,
        keeps: &[
            "jobs: [{name: a, command: x, parametersFile: t.csv}]\nparametersFile: u.csv",
            "jobs: [{name: a, command: x, parametersFile: t.csv, useParametersFile: false}]\nparametersFile: u.csv",
            "jobs: [{name: a, command: x, useParametersFile: true}]\nparametersFile: u.csv",
        ],
        breaks: &[
            (
                "jobs: [{name: a, command: x, parametersFile: ^t.csv, useParametersFile: true}]\nparametersFile: u.csv",
                "spec.jobs[0].parametersFile: use either its own parameters file or the workflow's, not both",
            ),
            (
                "jobs: [{name: a, command: x, labels: [gpu], parametersFile: ^t.csv, useParametersFile: true}]\nparametersFile: u.csv",
                "spec.jobs[0].parametersFile: use either its own parameters file or the workflow's, not both",
            ),
        ],
    },
    Pair {
        rule: ("spec.files[]", "parametersFile"),
        tolerated: false,
        keeps: &["files: [{name: a, path: x, parametersFile: t.csv, useParametersFile: false}]\nparametersFile: u.csv"],
        breaks: &[(
            "files: [{name: a, path: x, parametersFile: ^t.csv, useParametersFile: true}]\nparametersFile: u.csv",
            "spec.files[0].parametersFile: use either its own parameters file or the workflow's, not both",
        )],
    },
    Pair {
        rule: ("spec.userData[]", "parametersFile"),
        tolerated: false,
        keeps: &["userData: [{name: a, parametersFile: t.csv, useParametersFile: false}]\nparametersFile: u.csv"],
        breaks: &[(
            "userData: [{name: a, parametersFile: ^t.csv, useParametersFile: true}]\nparametersFile: u.csv",
            "spec.userData[0].parametersFile: use either its own parameters file or the workflow's, not both",
        )],
    },
    Pair {
        rule: ("spec.resourceRequirements[]", "name"),
        tolerated: false,
        keeps: &[
            "resourceRequirements: [{name: defaults, numCpus: 1, memory: 1g}, {name: Default, numCpus: 1, memory: 1g}]",
        ],
        breaks: &[(
            "resourceRequirements: [{name: ^default, numCpus: 1, memory: 1g}]",
            "spec.resourceRequirements[0].name: 'default' is reserved (jobs without resource requirements use it)",
        )],
    },
];

const QUANTITIES: &[Pair] = &[
    Pair {
        rule: ("spec.resourceRequirements[].memory", ""),
        tolerated: false,
        keeps: &[
            "resourceRequirements: [{name: r, numCpus: 1, memory: '200'}, {name: s, numCpus: 1, memory: 1.5g}]",
            "resourceRequirements: [{name: r, numCpus: 1, memory: '{size}g'}]",
        ],
        breaks: &[(
            "resourceRequirements: [{name: r, numCpus: 1, memory: ^1h}]",
            "spec.resourceRequirements[0].memory: '1h' is not a memory size (write a number and a unit: 512m, 200g, 1.5t)",
        )],
    },
    Pair {
        rule: ("spec.resourceRequirements[].runtime", ""),
        tolerated: false,
        keeps: &[
            "resourceRequirements: [{name: r, numCpus: 1, memory: 1g, runtime: 30s}, {name: s, numCpus: 1, memory: 1g, runtime: '1:30'}]",
            "resourceRequirements: [{name: r, numCpus: 1, memory: 1g, runtime: '{minutes}'}]",
        ],
        breaks: &[
            (
                "resourceRequirements: [{name: r, numCpus: 1, memory: 1g, runtime: ^'30'}]",
                "spec.resourceRequirements[0].runtime: '30' is a duration without a unit (write 30s, 30m or 30h)",
            ),
            (
                "resourceRequirements: [{name: r, numCpus: 1, memory: 1g, runtime: ^1g}]",
                "spec.resourceRequirements[0].runtime: '1g' is not a duration (write PT4H, 4h30m or 1-02:00:00)",
            ),
            (
                "resourceRequirements: [{name: r, numCpus: 1, memory: 1g, runtime: ^never}]",
                "spec.resourceRequirements[0].runtime: 'never' is not a duration (write PT4H, 4h30m or 1-02:00:00)",
            ),
        ],
    },
    Pair {
        rule: ("spec.slurmSchedulers[].walltime", ""),
        tolerated: false,
        keeps: &[
            "slurmSchedulers: [{account: a, walltime: '30'}, {account: a, walltime: 3h}]",
            "slurmSchedulers: [{account: a, walltime: '{hours}'}]",
        ],
        breaks: &[(
            "slurmSchedulers: [{account: a, walltime: ^30g}]",
            "spec.slurmSchedulers[0].walltime: '30g' is not a duration (write PT4H, 4h30m or 1-02:00:00)",
        )],
    },
    Pair {
        rule: ("spec.slurmSchedulers[].mem", ""),
        tolerated: false,
        keeps: &[
            "slurmSchedulers: [{account: a, mem: '8000'}, {account: a, mem: 8t}]",
            "slurmSchedulers: [{account: a, mem: '{m}'}]",
        ],
        breaks: &[(
            "slurmSchedulers: [{account: a, mem: ^8h}]",
            "spec.slurmSchedulers[0].mem: '8h' is not a memory size (write a number and a unit: 512m, 200g, 1.5t)",
        )],
    },
    Pair {
        rule: ("spec.slurmSchedulers[].tmp", ""),
        tolerated: false,
        keeps: &[
            "slurmSchedulers: [{account: a, tmp: '8000'}, {account: a, tmp: 8t}]",
            "slurmSchedulers: [{account: a, tmp: '{m}'}]",
        ],
        breaks: &[(
            "slurmSchedulers: [{account: a, tmp: ^9h}]",
            "spec.slurmSchedulers[0].tmp: '9h' is not a memory size (write a number and a unit: 512m, 200g, 1.5t)",
        )],
    },
    Pair {
        rule: ("spec.orphanAfter", ""),
        tolerated: false,
        keeps: &["orphanAfter: never", "orphanAfter: 1s", "orphanAfter: '{patience}'"],
        breaks: &[
            ("orphanAfter: ^Never", "spec.orphanAfter: 'Never' is not a duration (write PT4H, 4h30m or 1-02:00:00)"),
            ("orphanAfter: ^'60'", "spec.orphanAfter: '60' is a duration without a unit (write 60s, 60m or 60h)"),
        ],
    },
];

const FAILURES: &[Pair] = &[
    Pair {
        rule: ("spec.failureHandlers[]", "rules"),
        tolerated: true,
        keeps: &["failureHandlers: [{name: f, rules: [{exitCodes: [1]}]}]"],
        breaks: &[(
            "failureHandlers: [{name: f, ^rules: []}]",
            "spec.failureHandlers[0].rules: a failure handler needs at least one rule",
        )],
    },
    Pair {
        rule: ("spec.failureHandlers[].rules[]", ""),
        tolerated: true,
        keeps: &[
            "failureHandlers: [{name: f, rules: [{exitCodes: [255]}]}]",
            "failureHandlers: [{name: f, rules: [{causes: [Lost]}]}]",
            "failureHandlers: [{name: f, rules: [{matchAllExitCodes: true}]}]",
        ],
        breaks: &[
            (
                "failureHandlers: [{name: f, rules: [{exitCodes: [1]}, ^{maxRetries: 2}]}]",
                "spec.failureHandlers[0].rules[1]: the rule never applies (list exit codes or causes, or match all exit codes)",
            ),
            (
                "failureHandlers: [{name: f, rules: [^{exitCodes: [], causes: [], matchAllExitCodes: false}]}]",
                "spec.failureHandlers[0].rules[0]: the rule never applies (list exit codes or causes, or match all exit codes)",
            ),
        ],
    },
    Pair {
        rule: ("spec.failureHandlers[].rules[]", "exitCodes"),
        tolerated: true,
        keeps: &[
            "failureHandlers: [{name: f, rules: [{exitCodes: [-1, 1]}]}]",
            "failureHandlers: [{name: f, rules: [{causes: [ExitCode]}]}]",
        ],
        breaks: &[(
            "failureHandlers: [{name: f, rules: [{^exitCodes: [1, 0]}]}]",
            "spec.failureHandlers[0].rules[0].exitCodes: exit code 0 is a success and never handled",
        )],
    },
];

const ACTIONS: &[Pair] = &[
    Pair {
        rule: ("spec.actions[]", "commands"),
        tolerated: false,
        keeps: &[
            "actions: [{triggerType: on_worker_start, actionType: run_commands, commands: [x]}]",
            "actions: [{triggerType: on_worker_start, actionType: schedule_nodes, scheduler: s}]\nslurmSchedulers: [{name: s, account: a}]",
        ],
        breaks: &[
            (
                "actions: [^{triggerType: on_worker_start, actionType: run_commands}]",
                "spec.actions[0].commands: `run_commands` needs commands",
            ),
            (
                "actions: [{triggerType: on_worker_start, actionType: run_commands, ^commands: []}]",
                "spec.actions[0].commands: `run_commands` needs commands",
            ),
        ],
    },
    Pair {
        rule: ("spec.actions[]", "scheduler"),
        tolerated: false,
        keeps: &[
            "actions: [{triggerType: on_worker_start, actionType: schedule_nodes, scheduler: s}]\nslurmSchedulers: [{name: s, account: a}]",
        ],
        breaks: &[
            (
                "actions: [^{triggerType: on_worker_start, actionType: schedule_nodes}]",
                "spec.actions[0].scheduler: `schedule_nodes` needs a scheduler",
            ),
            (
                "actions: [{triggerType: on_worker_start, actionType: schedule_nodes, schedulerType: local, scheduler: ^''}]",
                "spec.actions[0].scheduler: `schedule_nodes` needs a scheduler",
            ),
        ],
    },
    Pair {
        rule: ("spec.actions[]", "schedulerType"),
        tolerated: true,
        keeps: &[
            "actions: [{triggerType: on_worker_start, actionType: schedule_nodes, scheduler: s, schedulerType: local}]",
            "actions: [{triggerType: on_worker_start, actionType: schedule_nodes, scheduler: s, schedulerType: slurm}]\nslurmSchedulers: [{name: s, account: a}]",
            "actions: [{triggerType: on_worker_start, actionType: run_commands, commands: [x], schedulerType: pbs}]",
        ],
        breaks: &[(
            "actions: [{triggerType: on_worker_start, actionType: schedule_nodes, scheduler: s, schedulerType: ^Slurm}]",
            "spec.actions[0].schedulerType: 'Slurm' is not one of slurm, local",
        )],
    },
    Pair {
        rule: ("spec.actions[]", "jobs"),
        tolerated: true,
        keeps: &[
            "actions: [{triggerType: on_jobs_ready, actionType: run_commands, commands: [x], jobs: [a]}]",
            "actions: [{triggerType: on_jobs_complete, actionType: run_commands, commands: [x], jobNameRegexes: [a]}]",
            "actions: [{triggerType: on_workflow_start, actionType: run_commands, commands: [x]}]",
            "actions: [{triggerType: on_workflow_complete, actionType: run_commands, commands: [x]}]",
            "actions: [{triggerType: on_worker_complete, actionType: run_commands, commands: [x]}]",
        ],
        breaks: &[
            (
                "actions: [^{triggerType: on_jobs_ready, actionType: run_commands, commands: [x]}]",
                "spec.actions[0].jobs: the trigger needs jobs (list jobs or regular expressions for them)",
            ),
            (
                "actions: [{triggerType: on_jobs_complete, actionType: run_commands, commands: [x], ^jobs: [], jobNameRegexes: []}]",
                "spec.actions[0].jobs: the trigger needs jobs (list jobs or regular expressions for them)",
            ),
        ],
    },
];

const EXECUTION: &[Pair] = &[
    Pair {
        rule: ("spec.executionConfig", "srunTerminationSignal"),
        tolerated: false,
        keeps: &[
            "executionConfig: {srunTerminationSignal: TERM@120}",
            "executionConfig: {mode: auto, srunTerminationSignal: TERM@120}",
            "executionConfig: {mode: slurm, srunTerminationSignal: TERM@120}",
        ],
        breaks: &[(
            "executionConfig: {mode: direct, srunTerminationSignal: ^TERM@120}",
            "spec.executionConfig.srunTerminationSignal: applies only to slurm mode, but the mode is direct (remove it, or use mode auto, which accepts the keys of both)",
        )],
    },
    // X14
    Pair {
        rule: ("spec.executionConfig", "enableCpuBind"),
        tolerated: false,
        keeps: &[
            "executionConfig: {enableCpuBind: true}",
            "executionConfig: {mode: auto, enableCpuBind: true}",
            "executionConfig: {mode: slurm, enableCpuBind: true}",
        ],
        breaks: &[(
            "executionConfig: {mode: direct, enableCpuBind: ^false}",
            "spec.executionConfig.enableCpuBind: applies only to slurm mode, but the mode is direct (remove it, or use mode auto, which accepts the keys of both)",
        )],
    },
    Pair {
        rule: ("spec.executionConfig", "terminationSignal"),
        tolerated: false,
        keeps: &[
            "executionConfig: {terminationSignal: SIGINT}",
            "executionConfig: {mode: auto, terminationSignal: SIGINT}",
            "executionConfig: {mode: direct, terminationSignal: SIGINT}",
        ],
        breaks: &[(
            "executionConfig: {mode: slurm, terminationSignal: ^SIGINT}",
            "spec.executionConfig.terminationSignal: applies only to direct mode, but the mode is slurm (remove it, or use mode auto, which accepts the keys of both)",
        )],
    },
    Pair {
        rule: ("spec.executionConfig", "sigtermLeadSeconds"),
        tolerated: false,
        keeps: &[
            "executionConfig: {sigtermLeadSeconds: 5}",
            "executionConfig: {mode: auto, sigtermLeadSeconds: 5}",
            "executionConfig: {mode: direct, sigtermLeadSeconds: 5}",
        ],
        breaks: &[(
            "executionConfig: {mode: slurm, sigtermLeadSeconds: ^0}",
            "spec.executionConfig.sigtermLeadSeconds: applies only to direct mode, but the mode is slurm (remove it, or use mode auto, which accepts the keys of both)",
        )],
    },
    Pair {
        rule: ("spec.executionConfig", "oomExitCode"),
        tolerated: false,
        keeps: &[
            "executionConfig: {oomExitCode: 137}",
            "executionConfig: {mode: auto, oomExitCode: 137}",
            "executionConfig: {mode: direct, oomExitCode: 137}",
        ],
        breaks: &[(
            "executionConfig: {mode: slurm, oomExitCode: ^0}",
            "spec.executionConfig.oomExitCode: applies only to direct mode, but the mode is slurm (remove it, or use mode auto, which accepts the keys of both)",
        )],
    },
    Pair {
        rule: ("spec.executionConfig", "srunMpi"),
        tolerated: false,
        keeps: &[
            "executionConfig: {srunMpi: none}",
            "executionConfig: {mode: auto, srunMpi: none}",
            "executionConfig: {mode: direct, srunMpi: none}",
        ],
        breaks: &[(
            "executionConfig: {mode: slurm, srunMpi: ^none}",
            "spec.executionConfig.srunMpi: applies only to direct mode, but the mode is slurm (remove it, or use mode auto, which accepts the keys of both)",
        )],
    },
    // X13: an error in every dialect, also in a file of Torc 1.0.
    Pair {
        rule: ("spec.executionConfig", "limitResources"),
        tolerated: false,
        keeps: &[
            "executionConfig: {limitResources: false}",
            "executionConfig: {mode: auto, limitResources: false}",
            "executionConfig: {mode: direct, limitResources: false}",
            "executionConfig: {mode: slurm, limitResources: true}",
            "executionConfig: {mode: slurm}",
        ],
        breaks: &[(
            "executionConfig: {mode: slurm, limitResources: ^false}",
            "spec.executionConfig.limitResources: false is not supported in slurm mode (use mode direct to run jobs without limits inside an allocation)",
        )],
    },
    // X17
    Pair {
        rule: ("spec.executionConfig.terminationSignal", ""),
        tolerated: true,
        keeps: &[
            "executionConfig: {terminationSignal: TERM}",
            "executionConfig: {terminationSignal: sigint}",
            "executionConfig: {terminationSignal: USR1}",
            "executionConfig: {terminationSignal: SIGUSR2}",
            "executionConfig: {terminationSignal: HUP}",
            "executionConfig: {terminationSignal: KILL}",
            "executionConfig: {terminationSignal: '{signal}'}",
        ],
        breaks: &[
            (
                "executionConfig: {terminationSignal: ^SIGQUIT}",
                "spec.executionConfig.terminationSignal: 'SIGQUIT' is not one of TERM, INT, USR1, USR2, HUP, KILL (the prefix SIG is allowed)",
            ),
            (
                "executionConfig: {terminationSignal: ^TERMINATE}",
                "spec.executionConfig.terminationSignal: 'TERMINATE' is not one of TERM, INT, USR1, USR2, HUP, KILL (the prefix SIG is allowed)",
            ),
        ],
    },
    Pair {
        rule: ("spec.executionConfig.srunTerminationSignal", ""),
        tolerated: false,
        keeps: &[
            "executionConfig: {srunTerminationSignal: 'R:USR1@30'}",
            "executionConfig: {srunTerminationSignal: '{s}'}",
        ],
        breaks: &[(
            "executionConfig: {srunTerminationSignal: ^'TERM @30'}",
            "spec.executionConfig.srunTerminationSignal: 'TERM @30' is not a single word",
        )],
    },
    Pair {
        rule: ("spec.executionConfig.srunMpi", ""),
        tolerated: false,
        keeps: &["executionConfig: {srunMpi: pmix_v4.1+x-w}", "executionConfig: {srunMpi: '{mpi}'}"],
        breaks: &[
            ("executionConfig: {srunMpi: ^'none;x'}", "spec.executionConfig.srunMpi: 'none;x' is not a single word"),
            ("executionConfig: {srunMpi: ^''}", "spec.executionConfig.srunMpi: '' is not a single word"),
        ],
    },
];

const POLICIES: &[Pair] = &[
    // P05
    Pair {
        rule: ("spec.prefetch", "refillThreshold"),
        tolerated: false,
        keeps: &[
            "prefetch: {maxQueued: 10, refillThreshold: 9}",
            "prefetch: {maxQueued: 10, refillThreshold: 10}",
            "prefetch: {refillThreshold: 11}",
            "prefetch: {maxQueued: 0}",
        ],
        breaks: &[(
            "prefetch: {maxQueued: 10, refillThreshold: ^11}",
            "spec.prefetch.refillThreshold: must not be more than `maxQueued`",
        )],
    },
    Pair {
        rule: ("spec.slurmCluster", ""),
        tolerated: false,
        keeps: &["slurmCluster: k"],
        breaks: &[("slurmCluster: ^'  '", "spec.slurmCluster: '  ' is not a name")],
    },
];

const CLUSTERS: &[Pair] = &[
    Pair {
        rule: ("spec.commandPrefix[]", ""),
        tolerated: false,
        keeps: &["commandPrefix: [ssh, a]"],
        breaks: &[
            ("commandPrefix: [ssh, ^' ']", "spec.commandPrefix[1]: must not be empty"),
            ("commandPrefix: [^'']", "spec.commandPrefix[0]: must not be empty"),
        ],
    },
    Pair {
        rule: ("spec.partitions[].maxWalltime", ""),
        tolerated: false,
        keeps: &[
            "partitions: [{name: p, cpusPerNode: 1, memoryMb: 1, maxWalltime: '30'}, {name: q, cpusPerNode: 1, memoryMb: 1, maxWalltime: 2d}]",
        ],
        breaks: &[(
            "partitions: [{name: p, cpusPerNode: 1, memoryMb: 1, maxWalltime: ^2g}]",
            "spec.partitions[0].maxWalltime: '2g' is not a duration (write PT4H, 4h30m or 1-02:00:00)",
        )],
    },
];

/// Returns the pairs of a kind of document.
fn pairs(kind: &str) -> Vec<&'static Pair> {
    match kind {
        "Workflow" => [ENTRIES, QUANTITIES, FAILURES, ACTIONS, EXECUTION, POLICIES].into_iter().flatten().collect(),
        _ => CLUSTERS.iter().collect(),
    }
}

const KINDS: [(&str, &[Rule]); 2] = [("Workflow", WORKFLOW), ("SlurmCluster", CLUSTER)];

/// Rules about the name are in `a_name_has_at_most_52_characters`, those about updates in `immutable_fields_are_refused_with_the_same_message`.
fn key(rule: &Rule) -> (&'static str, &'static str) {
    (rule.path, rule.field.unwrap_or(""))
}

fn rule_of(kind: &str, pair: &Pair) -> &'static Rule {
    let rules = KINDS.iter().find(|(known, _)| *known == kind).map_or(&[][..], |(_, rules)| *rules);
    let found = rules.iter().find(|rule| key(rule) == pair.rule && !rule.is_transition());
    found.unwrap_or_else(|| panic!("there is no rule {:?}", pair.rule))
}

/// Returns the result of the expression for every value at its place in a document.
fn said_by_expression(rule: &Rule, document: &Document) -> Vec<String> {
    let mut found = Vec::new();
    visit_values(&json!(document), rule.path, String::new(), &mut |_, value| found.extend(said(rule, value)));
    found
}

#[test]
fn every_rule_has_a_pair() {
    for (kind, rules) in KINDS {
        let listed: Vec<_> = pairs(kind).iter().map(|pair| pair.rule).collect();
        let unique: BTreeSet<_> = listed.iter().copied().collect();
        assert_eq!(listed.len(), unique.len(), "a rule of {kind} has two pairs");
        let known: BTreeSet<_> =
            rules.iter().filter(|rule| !rule.is_transition() && !rule.path.is_empty()).map(key).collect();
        assert_eq!(unique, known, "rules of {kind} and pairs in this file");
    }
    let transitions: Vec<_> = WORKFLOW.iter().filter(|rule| rule.is_transition()).map(key).collect();
    assert_eq!(
        transitions,
        [("spec", "runId"), ("spec", "stopPolicy"), ("spec", "managedBy")],
        "rules of `immutable_fields_are_refused_with_the_same_message`"
    );
}

#[test]
fn documents_at_the_boundary_keep_each_rule() {
    let mut wrong = Vec::new();
    for (kind, _) in KINDS {
        for pair in pairs(kind) {
            assert!(!pair.keeps.is_empty(), "{:?} has no document that keeps it", pair.rule);
            for spec in pair.keeps {
                let mut loaded = read(&document(kind, "test", spec), Format::Yaml);
                let problems: Vec<String> = loaded.problems.iter().map(shown).collect();
                wrong.extend((!problems.is_empty()).then(|| format!("{spec}: {problems:?}")));
                let Some(found) = loaded.documents.pop() else { continue };
                assert_eq!(said_by_expression(rule_of(kind, pair), &found.document), Vec::<String>::new(), "{spec}");
            }
        }
    }
    assert!(wrong.is_empty(), "documents that should have no problem:\n{}", wrong.join("\n"));
}

#[test]
fn documents_beyond_the_boundary_break_each_rule() {
    let mut wrong = Vec::new();
    for (kind, _) in KINDS {
        for pair in pairs(kind) {
            assert!(!pair.breaks.is_empty(), "{:?} has no document that breaks it", pair.rule);
            for (marked, expected) in pair.breaks {
                let (text, at) = unmarked(&document(kind, "test", marked));
                let mut loaded = read(&text, Format::Yaml);
                let problems: Vec<String> = loaded.problems.iter().map(shown).collect();
                let expected = [format!("{at} error {expected}")];
                wrong.extend(
                    (problems != expected).then(|| format!("{marked}: expected {expected:?}, found {problems:?}")),
                );
                let Some(found) = loaded.flawed.pop() else { continue };
                let said = said_by_expression(rule_of(kind, pair), &found.read.document);
                assert_eq!(said, [loaded.problems[0].message.clone()], "what an API server says of {marked}");
            }
        }
    }
    assert!(wrong.is_empty(), "documents that should have one problem:\n{}", wrong.join("\n"));
}

// X13
#[test]
fn a_bare_file_tolerates_what_torc_1_did_and_nothing_else() {
    for pair in pairs("Workflow") {
        assert_eq!(rule_of("Workflow", pair).tolerated, pair.tolerated, "{:?}", pair.rule);
        for (marked, expected) in pair.breaks {
            let (text, _) = unmarked(&document("Workflow", "test", marked));
            let found = read(&text, Format::Yaml).flawed.pop().expect("a document with errors").read.document;
            let Document::Workflow(workflow) = found else { panic!("not a workflow") };
            let mut plain = bare(&json!(workflow.spec), false);
            plain["name"] = json!("test");
            let problems = read(&plain.to_string(), Format::Json).problems;
            let severities: Vec<bool> = problems.iter().map(Problem::is_error).collect();
            assert_eq!(severities, [!pair.tolerated], "{marked}: {problems:?}");
            assert!(expected.contains(&problems[0].message), "{expected}: {problems:?}");
        }
    }
}

#[test]
fn a_name_has_at_most_52_characters() {
    for (kind, rules) in KINDS {
        assert_eq!(rules[0].path, "", "the first rule of {kind} is about its name");
        for letters in [1, 51, 52] {
            let text = document(kind, &"a".repeat(letters), "{}");
            assert_eq!(all_problems(&text, Format::Yaml), Vec::<String>::new(), "{letters}");
        }
        let text = document(kind, &"a".repeat(53), "{}");
        let expected = "4:9 error metadata.name: `metadata.name` must have at most 52 characters";
        assert_eq!(all_problems(&text, Format::Yaml), [expected]);
    }
}

#[test]
fn a_definition_carries_the_rule_its_message_and_its_field() {
    let of = |pair: &Pair| rule_of("Workflow", pair).to_json();
    let field = EXECUTION.iter().find(|pair| pair.rule.1 == "limitResources").expect("the rule");
    assert_eq!(
        of(field),
        json!({
            "rule": "!has(self.limitResources) || self.limitResources || !has(self.mode) || self.mode != 'slurm'",
            "message": "false is not supported in slurm mode",
            "fieldPath": ".limitResources",
        })
    );
    let expression = POLICIES.iter().find(|pair| pair.rule.0 == "spec.slurmCluster").expect("the rule");
    assert_eq!(
        of(expression),
        json!({ "rule": "self.trim() != ''", "messageExpression": r#""'" + self + "' is not a name""# })
    );
}
