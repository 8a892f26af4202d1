//! Every check of `validate` has documents that keep it at its boundary and documents that break it just beyond.
//!
//! Each broken one has the exact message, hint and position. `every_check_has_a_pair` counts the places in the code
//! that report something.

use serde_json::json;

use crate::document::Document;
use crate::load::Format;
use crate::problem::Problem;
use crate::testing::{bare, document, read, shown, unmarked};

/// The specifications of a check.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Workflow,
    Cluster,
    Metadata,
}

/// One place in the code that reports a problem.
struct Check {
    of: Of,
    /// In a bare file it is a warning.
    tolerated: bool,
    keeps: &'static [&'static str],
    /// A specification in which `^` stands before the position of the problem, and `severity field: message (hint)`.
    breaks: &'static [(&'static str, &'static str)],
}

const fn check(keeps: &'static [&'static str], breaks: &'static [(&'static str, &'static str)]) -> Check {
    Check { of: Of::Workflow, tolerated: false, keeps, breaks }
}

const ACTIONS: &[Check] = &[check(
    &["actions: [{triggerType: on_worker_start, actionType: run_commands, commands: [x, w]}]"],
    &[(
        "actions: [{triggerType: on_worker_start, actionType: run_commands, commands: [x, ^' ']}]",
        "error spec.actions[0].commands[1]: must not be empty",
    )],
)];

const FILES: &[Check] = &[
    check(
        &["enableRoCrate: true\nfiles: [{name: a, path: x, identifier: i}]", "files: [{name: a, path: x}]"],
        &[
            (
                "files: [{name: a, path: x, identifier: ^i}]",
                "error spec.files[0].identifier: an identifier needs the provenance record (set `enable_ro_crate: true` (`enableRoCrate`) or remove the identifier)",
            ),
            (
                "enableRoCrate: false\nfiles: [{name: b, path: w}, {name: a, path: x, identifier: ^i}]",
                "error spec.files[1].identifier: an identifier needs the provenance record (set `enable_ro_crate: true` (`enableRoCrate`) or remove the identifier)",
            ),
        ],
    ),
    check(
        &["enableRoCrate: true\nfiles: [{name: a, path: x, identifier: ' i'}]"],
        &[(
            "enableRoCrate: true\nfiles: [{name: a, path: x, identifier: ^' '}]",
            "error spec.files[0].identifier: must not be empty",
        )],
    ),
    check(
        &[
            "enableRoCrate: true\nfiles: [{name: a, path: x, identifier: 'https://a#job-'}, {name: b, path: w, identifier: ./a}]",
            "enableRoCrate: true\nfiles: [{name: a, path: x, identifier: '#jobs'}, {name: b, path: w, identifier: a/ro-crate-metadata.json}]",
        ],
        &[
            (
                "enableRoCrate: true\nfiles: [{name: a, path: x, identifier: ^'#job-'}]",
                "error spec.files[0].identifier: '#job-' is reserved",
            ),
            (
                "enableRoCrate: true\nfiles: [{name: a, path: x, identifier: ^'#torc-a'}]",
                "error spec.files[0].identifier: '#torc-a' is reserved",
            ),
            (
                "enableRoCrate: true\nfiles: [{name: a, path: x, identifier: ^'#software-a'}]",
                "error spec.files[0].identifier: '#software-a' is reserved",
            ),
            (
                "enableRoCrate: true\nfiles: [{name: a, path: x, identifier: ^./}]",
                "error spec.files[0].identifier: './' is reserved",
            ),
            (
                "enableRoCrate: true\nfiles: [{name: a, path: x, identifier: ^ro-crate-metadata.json}]",
                "error spec.files[0].identifier: 'ro-crate-metadata.json' is reserved",
            ),
        ],
    ),
    check(
        &["enableRoCrate: true\nfiles: [{name: a, path: x, identifier: x}, {name: b, path: w}]"],
        &[(
            "enableRoCrate: true\nfiles: [{name: a, path: x, identifier: ^w}, {name: b, path: w}]",
            "error spec.files[0].identifier: 'w' is the path of the file 'b'",
        )],
    ),
    check(
        &[
            "enableRoCrate: true\nfiles: [{name: a, path: x, identifier: i}, {name: b, path: w, identifier: j}]",
            "enableRoCrate: true\nfiles: [{name: a, path: x, identifier: '{i}'}, {name: b, path: w, identifier: '{i}'}]",
        ],
        &[(
            "enableRoCrate: true\nfiles: [{name: a, path: x, identifier: i}, {name: b, path: w, identifier: ^i}]",
            "error spec.files[1].identifier: the file 'a' has the identifier 'i' too",
        )],
    ),
    check(
        &[
            "enableRoCrate: true\nfiles: [{name: a, path: x, identifier: i}]\njobs: [{name: j, command: c, inputFiles: [a]}]",
        ],
        &[(
            "enableRoCrate: true\njobs: [{name: j, command: c, outputFiles: [b, a]}]\nfiles: [{name: a, path: x, identifier: ^i}, {name: b, path: w}]",
            "error spec.files[0].identifier: 'a' is the output of a job; only inputs have identifiers (remove the identifier)",
        )],
    ),
];

const JOBS: &[Check] = &[
    check(
        &["env: {_: a, A1_b: x}", "jobs: [{name: a, command: x, env: {_: a, z: b}}]"],
        &[
            (
                "env: {1A: ^x}",
                "error spec.env.1A: '1A' is not a valid name of an environment variable (use letters, digits and '_', and do not begin with a digit)",
            ),
            (
                "jobs: [{name: a, command: x, env: {A: x, A-b: ^w}}]",
                "error spec.jobs[0].env.A-b: 'A-b' is not a valid name of an environment variable (use letters, digits and '_', and do not begin with a digit)",
            ),
            (
                "env: {é: ^x}",
                "error spec.env.é: 'é' is not a valid name of an environment variable (use letters, digits and '_', and do not begin with a digit)",
            ),
        ],
    ),
    check(
        &["jobs: [{name: a, command: x, labels: [a b, c]}]"],
        &[
            (
                "jobs: [{name: a, command: x, labels: [a, ^' ']}]",
                "error spec.jobs[0].labels[1]: a label must not be empty",
            ),
            (
                "jobs: [{name: a, command: x, labels: [^'a,b']}]",
                "error spec.jobs[0].labels[0]: a label must not contain a comma",
            ),
            (
                "jobs: [{name: a, command: x, labels: [^' a']}]",
                "error spec.jobs[0].labels[0]: a label must not begin or end with a blank",
            ),
            (
                "jobs: [{name: a, command: x, labels: [^'a ']}]",
                "error spec.jobs[0].labels[0]: a label must not begin or end with a blank",
            ),
        ],
    ),
    check(
        &["jobs: [{name: a, command: x}]"],
        &[
            (
                "jobs: [{name: a, command: x}, {name: b, command: x, supportsTermination: ^false}]",
                "warning spec.jobs[1].supportsTermination: has no effect (remove it)",
            ),
            (
                "jobs: [{name: a, command: x, supportsTermination: ^true}, {name: b, command: x, supportsTermination: true}, {name: c, command: x, supportsTermination: true}]",
                "warning spec.jobs[0].supportsTermination: has no effect, here and in 2 other jobs (remove it)",
            ),
        ],
    ),
    check(
        &["computeNodeWaitForNewJobsSeconds: 0"],
        &[(
            "computeNodeExpirationBufferSeconds: ^0",
            "warning spec.computeNodeExpirationBufferSeconds: has no effect (see `sigkill_headroom_seconds` of the execution config)",
        )],
    ),
];

const fn metadata(keeps: &'static [&'static str], breaks: &'static [(&'static str, &'static str)]) -> Check {
    Check { of: Of::Metadata, tolerated: false, keeps, breaks }
}

const METADATA: &[Check] = &[
    metadata(
        &["{name: a}", "{name: a-1.b}", "{name: '0'}"],
        &[
            (
                "{name: ^a-}",
                "error metadata.name: 'a-' is not a valid name (use lower-case letters, digits, '-' and '.', and begin and end with a letter or digit)",
            ),
            (
                "{name: ^a.}",
                "error metadata.name: 'a.' is not a valid name (use lower-case letters, digits, '-' and '.', and begin and end with a letter or digit)",
            ),
            (
                "{name: ^a.-b}",
                "error metadata.name: 'a.-b' is not a valid name (use lower-case letters, digits, '-' and '.', and begin and end with a letter or digit)",
            ),
        ],
    ),
    metadata(
        &[
            "{name: a, namespace: b-1}",
            "{name: a, namespace: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}",
        ],
        &[
            (
                "{name: a, namespace: ^b.c}",
                "error metadata.namespace: 'b.c' is not a valid namespace (use at most 63 lower-case letters, digits and '-')",
            ),
            (
                "{name: a, namespace: ^aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}",
                "error metadata.namespace: 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' is not a valid namespace (use at most 63 lower-case letters, digits and '-')",
            ),
        ],
    ),
    metadata(
        &[
            "{name: a, labels: {aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: x}}",
            "{name: a, labels: {x.org/A_b.c-d: x}}",
        ],
        &[
            (
                "{name: a, labels: {aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: ^x}}",
                "error metadata.labels.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' is not a valid label key (use at most 63 letters, digits, '-', '_' and '.', optionally after a domain and a '/')",
            ),
            (
                "{name: a, labels: {a-: ^x}}",
                "error metadata.labels.a-: 'a-' is not a valid label key (use at most 63 letters, digits, '-', '_' and '.', optionally after a domain and a '/')",
            ),
        ],
    ),
    metadata(
        &[
            "{name: a, labels: {k: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}}",
            "{name: a, labels: {k: ''}}",
        ],
        &[
            (
                "{name: a, labels: {k: ^aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}}",
                "error metadata.labels.k: 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' is not a valid label value (use at most 63 letters, digits, '-', '_' and '.'; an annotation may hold any text)",
            ),
            (
                "{name: a, labels: {k: ^b_}}",
                "error metadata.labels.k: 'b_' is not a valid label value (use at most 63 letters, digits, '-', '_' and '.'; an annotation may hold any text)",
            ),
        ],
    ),
    metadata(
        &["{name: a, annotations: {X.org/Y: any text}}"],
        &[(
            "{name: a, annotations: {a/b/c: ^x}}",
            "error metadata.annotations.a/b/c: 'a/b/c' is not a valid annotation key (use at most 63 letters, digits, '-', '_' and '.', optionally after a domain and a '/')",
        )],
    ),
];

const NAMES: &[Check] = &[
    check(&["userData: [{name: a}]", "slurmSchedulers: [{name: s, account: a}]"], &[]),
    check(
        &[
            "failureHandlers: [{name: a, rules: [{exitCodes: [1]}]}, {name: b, rules: [{exitCodes: [1]}]}]",
            "jobs: [{name: a, command: x, useParameters: [i]}, {name: a, command: x, useParameters: [i]}]\nparameters: {i: '1:2'}",
            "jobs: [{name: a, command: x, parametersFile: t}, {name: a, command: x, parametersFile: t}]",
            "jobs: [{name: a, command: x, useParametersFile: true}, {name: a, command: x, useParametersFile: true}]\nparametersFile: t",
            "files: [{name: a, path: x, parameterTable: {columns: [i], rows: [[1]]}}, {name: a, path: x, parameterTable: {columns: [i], rows: [[1]]}}]",
            "userData: [{name: a, parameters: {i: 1}}, {name: a, parameters: {i: 1}}]",
            "files: [{name: '{a}', path: x}, {name: '{a}', path: x}]\nuserData: [{name: '{a}'}, {name: '{a}'}]",
        ],
        &[
            (
                "jobs: [{name: a, command: x}, {name: b, command: x}, {name: ^a, command: x, useParametersFile: false}]",
                "error spec.jobs[2].name: the name 'a' is used twice (entry 0 of the list has it too)",
            ),
            (
                "files: [{name: b, path: x}, {name: a, path: x}, {name: ^a, path: w}]",
                "error spec.files[2].name: the name 'a' is used twice (entry 1 of the list has it too)",
            ),
            (
                "userData: [{name: a}, {name: ^a}]",
                "error spec.userData[1].name: the name 'a' is used twice (entry 0 of the list has it too)",
            ),
            (
                "resourceRequirements: [{name: a, numCpus: 1, memory: 1g}, {name: ^a, numCpus: 2, memory: 2g}]",
                "error spec.resourceRequirements[1].name: the name 'a' is used twice (entry 0 of the list has it too)",
            ),
            (
                "failureHandlers: [{name: a, rules: [{exitCodes: [1]}]}, {name: ^a, rules: [{exitCodes: [2]}]}]",
                "error spec.failureHandlers[1].name: the name 'a' is used twice (entry 0 of the list has it too)",
            ),
            (
                "slurmSchedulers: [{name: a, account: x}, {name: ^a, account: w}]",
                "error spec.slurmSchedulers[1].name: the name 'a' is used twice (entry 0 of the list has it too)",
            ),
            (
                "parametersFile: t\nsources: [{name: t, configMapName: c, key: k}, {name: ^t, configMapName: d, key: k}]",
                "error spec.sources[1].name: the name 't' is used twice (entry 0 of the list has it too)",
            ),
        ],
    ),
];

const PARAMETERS: &[Check] = &[
    check(
        &["parametersFile: t", "parameters: {i: 1}"],
        &[(
            "parameters: {i: 1}\nparametersFile: ^t",
            "error spec.parametersFile: use either a parameters file or inline parameters, not both",
        )],
    ),
    check(
        &[
            "jobs: [{name: a, command: x, useParametersFile: true}]\nparametersFile: t",
            "jobs: [{name: a, command: x, useParametersFile: true}]\nparameterTable: {columns: [i], rows: [[1]]}",
            "jobs: [{name: a, command: x, useParametersFile: false}]",
        ],
        &[
            (
                "jobs: [{name: a, command: x, useParametersFile: ^true}]",
                "error spec.jobs[0].useParametersFile: the workflow has no parameters file (name one at the top of the document, or in this entry)",
            ),
            (
                "files: [{name: a, path: x, useParametersFile: ^true}]",
                "error spec.files[0].useParametersFile: the workflow has no parameters file (name one at the top of the document, or in this entry)",
            ),
        ],
    ),
    check(
        &["jobs: [{name: a, command: x, parametersFile: t, useParameters: []}]"],
        &[
            (
                "jobs: [{name: a, command: x, parametersFile: ^t, parameters: {i: 1}}]",
                "error spec.jobs[0].parametersFile: use either a parameters file or inline parameters, not both",
            ),
            (
                "jobs: [{name: a, command: x, parametersFile: ^t, useParameters: [i]}]\nparameters: {i: 1}",
                "error spec.jobs[0].parametersFile: use either a parameters file or inline parameters, not both",
            ),
        ],
    ),
    check(
        &["jobs: [{name: a, command: x, useParametersFile: false, useParameters: [i]}]\nparameters: {i: 1}"],
        &[(
            "jobs: [{name: a, command: x, useParametersFile: ^true, parameters: {i: 1}}]\nparametersFile: t",
            "error spec.jobs[0].useParametersFile: use either a parameters file or inline parameters, not both",
        )],
    ),
    Check {
        of: Of::Workflow,
        tolerated: true,
        keeps: &["jobs: [{name: a, command: x, useParameters: [size, '{other}']}]\nparameters: {size: 1}"],
        breaks: &[(
            "jobs: [{name: a, command: x, useParameters: [size, ^siz]}]\nparameters: {size: 1}",
            "error spec.jobs[0].useParameters[1]: the workflow has no parameter 'siz' (did you mean 'size'?)",
        )],
    },
    check(
        &[
            "jobs: [{name: a, command: x, parameterTable: {columns: [i, j], rows: [[1, 2]]}}]",
            "parameterTable: {columns: [i], rows: []}",
        ],
        &[
            (
                "jobs: [{name: a, command: x, parameterTable: {columns: [i, j], rows: [[1, 2], ^[1]]}}]",
                "error spec.jobs[0].parameterTable.rows[1]: the row must have 2 values, one for each column",
            ),
            (
                "userData: [{name: a, parameterTable: {columns: [i], rows: [^[1, 2]]}}]",
                "error spec.userData[0].parameterTable.rows[0]: the row must have 1 value, one for each column",
            ),
            (
                "parameterTable: {columns: [i], rows: [^[]]}",
                "error spec.parameterTable.rows[0]: the row must have 1 value, one for each column",
            ),
        ],
    ),
    check(
        &["variables: {_a1: x, B: w}"],
        &[
            (
                "variables: {1a: ^x}",
                "error spec.variables.1a: '1a' is not a valid name of a variable (use letters, digits and '_', and do not begin with a digit)",
            ),
            (
                "variables: {a-b: ^x}",
                "error spec.variables.a-b: 'a-b' is not a valid name of a variable (use letters, digits and '_', and do not begin with a digit)",
            ),
        ],
    ),
    check(
        &["variables: {j: x}\nparameters: {i: 1}\nfiles: [{name: a, path: x, parameters: {k: 1}}]"],
        &[
            ("variables: {i: ^x}\nparameters: {i: 1}", "error spec.variables.i: 'i' is also the name of a parameter"),
            (
                "variables: {k: ^x}\nfiles: [{name: a, path: x, parameters: {k: 1}}]",
                "error spec.variables.k: 'k' is also the name of a parameter",
            ),
            (
                "variables: {k: ^x}\nuserData: [{name: a, parameters: {k: 1}}]",
                "error spec.variables.k: 'k' is also the name of a parameter",
            ),
        ],
    ),
    check(
        &["variables: {a: true, b: 1.5, c: ''}"],
        &[
            ("variables: {^a: {x: 1}}", "error spec.variables.a: a variable must have a single value"),
            ("variables: {^a: [x]}", "error spec.variables.a: a variable must have a single value"),
            ("variables: {a: ^null}", "error spec.variables.a: a variable must have a single value"),
        ],
    ),
    check(
        &["variables: {a: '${b} {1} {b c} {} {b', c: '{\"x\"}'}"],
        &[
            (
                "variables: {a: ^'x ${b} {c:03d}'}",
                "error spec.variables.a: a variable cannot refer to '{c:03d}' (write both placeholders in the text that uses them)",
            ),
            (
                "variables: {a: ^'{_}'}",
                "error spec.variables.a: a variable cannot refer to '{_}' (write both placeholders in the text that uses them)",
            ),
        ],
    ),
    check(
        &[
            "sources: [{name: t, configMapName: c, key: k}]\nparametersFile: t",
            "sources: [{name: t, configMapName: c, key: k}]\njobs: [{name: a, command: x, parametersFile: t}]",
            "sources: [{name: t, configMapName: c, key: k}]\nfiles: [{name: a, path: x, parametersFile: t}]",
            "sources: [{name: t, configMapName: c, key: k}]\nuserData: [{name: a, parametersFile: t}]",
        ],
        &[(
            "sources: [{name: t, configMapName: c, key: k}, {name: ^u, configMapName: t, key: k}]\nparametersFile: t",
            "warning spec.sources[1].name: no parameters file refers to 'u'",
        )],
    ),
];

const POLICIES: &[Check] = &[check(
    &["orphanAfter: PT0.001S", "orphanAfter: never"],
    &[("orphanAfter: ^0s", "error spec.orphanAfter: must be longer than 0 seconds (write a duration or `never`)")],
)];

const REFERENCES: &[Check] = &[check(
    &[
        "jobs: [{name: a, command: x, resourceRequirements: default}]",
        "jobs: [{name: a, command: x, scheduler: '{s}'}]",
        "jobs: [{name: a, command: x, failureHandler: other}]\nfailureHandlers: [{name: '{f}', rules: [{exitCodes: [1]}]}]",
        "actions: [{triggerType: on_worker_start, actionType: schedule_nodes, scheduler: s, schedulerType: local}]",
        "actions: [{triggerType: on_worker_start, actionType: run_commands, commands: [x], scheduler: s}]",
    ],
    &[
        (
            "jobs: [{name: a, command: x, resourceRequirements: ^smal}]\nresourceRequirements: [{name: small, numCpus: 1, memory: 1g}]",
            "error spec.jobs[0].resourceRequirements: there is no set of resource requirements named 'smal' (did you mean 'small'?)",
        ),
        (
            "jobs: [{name: a, command: x, failureHandler: ^retri}]\nfailureHandlers: [{name: retry, rules: [{exitCodes: [1]}]}]",
            "error spec.jobs[0].failureHandler: there is no failure handler named 'retri' (did you mean 'retry'?)",
        ),
        (
            "jobs: [{name: b, command: x}, {name: a, command: x, scheduler: ^nigt}]\nslurmSchedulers: [{name: night, account: a}]",
            "error spec.jobs[1].scheduler: there is no Slurm scheduler named 'nigt' (did you mean 'night'?)",
        ),
        (
            "actions: [{triggerType: on_worker_start, actionType: schedule_nodes, scheduler: ^s}]",
            "error spec.actions[0].scheduler: there is no Slurm scheduler named 's'",
        ),
        (
            "actions: [{triggerType: on_worker_start, actionType: schedule_nodes, schedulerType: slurm, scheduler: ^default}]",
            "error spec.actions[0].scheduler: there is no Slurm scheduler named 'default'",
        ),
    ],
)];

const RESOURCES: &[Check] = &[
    check(
        &["slurmSchedulers: [{account: a, walltime: '{w}', mem: '{m}', tmp: '{t}'}]"],
        &[
            (
                "resourceRequirements: [{name: r, numCpus: 1, memory: ^8192p}]",
                "error spec.resourceRequirements[0].memory: '8192p' is too large (write a smaller one)",
            ),
            (
                "resourceRequirements: [{name: r, numCpus: 1, memory: 1g, runtime: ^9999999999999999999d}]",
                "error spec.resourceRequirements[0].runtime: '9999999999999999999d' is too large (write a smaller one)",
            ),
        ],
    ),
    // X10
    check(
        &[
            "slurmSchedulers: [{account: a, walltime: '2:01'}]",
            "slurmSchedulers: [{account: a, walltime: '2:00'}]\nexecutionConfig: {mode: direct}",
            "slurmSchedulers: [{account: a, walltime: '2:00'}]\nexecutionConfig: {sigkillHeadroomSeconds: 59}",
        ],
        &[
            (
                "slurmSchedulers: [{account: a, walltime: ^'2:00'}]",
                "warning spec.slurmSchedulers[0].walltime: no step can start in '2:00': 60 s of it are headroom, and a step needs 60 s (use a longer `walltime`, a smaller `sigkillHeadroomSeconds`, or `mode: direct`)",
            ),
            (
                "slurmSchedulers: [{account: a, walltime: ^'2:00'}]\nexecutionConfig: {mode: slurm, sigkillHeadroomSeconds: 60}",
                "warning spec.slurmSchedulers[0].walltime: no step can start in '2:00': 60 s of it are headroom, and a step needs 60 s (use a longer `walltime`, a smaller `sigkillHeadroomSeconds`, or `mode: direct`)",
            ),
            (
                "slurmSchedulers: [{account: a, walltime: ^'1'}]\nexecutionConfig: {mode: auto, sigkillHeadroomSeconds: 0}",
                "warning spec.slurmSchedulers[0].walltime: no step can start in '1': 0 s of it are headroom, and a step needs 60 s (use a longer `walltime`, a smaller `sigkillHeadroomSeconds`, or `mode: direct`)",
            ),
        ],
    ),
    check(
        &["slurmDefaults: {account: a, names: x, ntasks: 2}"],
        &[(
            "slurmDefaults: {Job-Name: ^x}",
            "error spec.slurmDefaults.Job-Name: `Job-Name` cannot be a default (it follows from the jobs, or is set in a Slurm scheduler)",
        )],
    ),
    Check {
        of: Of::Workflow,
        tolerated: true,
        keeps: &["slurmDefaults: {a: x, b: 1, c: true}"],
        breaks: &[
            ("slurmDefaults: {^a: [x]}", "error spec.slurmDefaults.a: `a` must have a single value"),
            ("slurmDefaults: {^a: {x: 1}}", "error spec.slurmDefaults.a: `a` must have a single value"),
            ("slurmDefaults: {a: ^null}", "error spec.slurmDefaults.a: `a` must have a single value"),
        ],
    },
];

const CLUSTER: &[Check] = &[
    Check {
        of: Of::Cluster,
        tolerated: false,
        keeps: &[
            "partitions: [{name: p, cpusPerNode: 1, memoryMb: 1, maxWalltime: 1h}, {name: q, cpusPerNode: 1, memoryMb: 1, maxWalltime: 1h}]",
        ],
        breaks: &[(
            "partitions: [{name: p, cpusPerNode: 1, memoryMb: 1, maxWalltime: 1h}, {name: ^p, cpusPerNode: 2, memoryMb: 2, maxWalltime: 2h}]",
            "error spec.partitions[1].name: the name 'p' is used twice (entry 0 of the list has it too)",
        )],
    },
    Check {
        of: Of::Cluster,
        tolerated: false,
        keeps: &[],
        breaks: &[(
            "partitions: [{name: p, cpusPerNode: 1, memoryMb: 1, maxWalltime: 1h}, {name: q, cpusPerNode: 1, memoryMb: 1, maxWalltime: ^'99999999999999999999'}]",
            "error spec.partitions[1].maxWalltime: '99999999999999999999' is too large (write a smaller one)",
        )],
    },
];

/// The modules of `validate`, their text, how many places in each report something, and their checks.
const MODULES: [(&str, &str, usize, &[Check]); 10] = [
    ("actions", include_str!("../actions.rs"), 1, ACTIONS),
    ("files", include_str!("../files.rs"), 6, FILES),
    ("jobs", include_str!("../jobs.rs"), 4, JOBS),
    // The size of all annotations is in `names_of_documents`.
    ("metadata", include_str!("../metadata.rs"), 6, METADATA),
    ("names", include_str!("../names.rs"), 2, NAMES),
    ("parameters", include_str!("../parameters.rs"), 11, PARAMETERS),
    ("policies", include_str!("../policies.rs"), 1, POLICIES),
    ("references", include_str!("../references.rs"), 1, REFERENCES),
    ("resources", include_str!("../resources.rs"), 4, RESOURCES),
    ("cluster", include_str!("../cluster.rs"), 0, CLUSTER),
];

fn text(of: Of, spec: &str) -> String {
    match of {
        Of::Workflow => document("Workflow", "test", spec),
        Of::Cluster => document("SlurmCluster", "test", spec),
        Of::Metadata => format!("apiVersion: torc.dev/v1alpha1\nkind: Workflow\nmetadata: {spec}\nspec: {{}}\n"),
    }
}

fn checks() -> impl Iterator<Item = &'static Check> {
    MODULES.into_iter().flat_map(|(_, _, _, checks)| checks)
}

#[test]
fn every_check_has_a_pair() {
    for (module, source, places, _) in MODULES {
        let reports = ["found.add(", "found.error(", "found.tolerated("].map(|call| source.matches(call).count());
        let reports: usize = reports.iter().sum();
        assert_eq!(reports, places, "a check of validate/{module}.rs needs a pair in this file");
    }
    let modules = include_str!("../../validate.rs").lines().filter(|line| line.starts_with("mod ")).count();
    assert_eq!(modules, MODULES.len() + 1, "modules of validate, tests included");
}

#[test]
fn documents_at_the_boundary_keep_each_check() {
    let mut wrong = Vec::new();
    for check in checks() {
        for spec in check.keeps {
            let problems: Vec<String> = read(&text(check.of, spec), Format::Yaml).problems.iter().map(shown).collect();
            wrong.extend((!problems.is_empty()).then(|| format!("{spec}: {problems:?}")));
        }
    }
    assert!(wrong.is_empty(), "documents that should have no problem:\n{}", wrong.join("\n"));
}

#[test]
fn documents_beyond_the_boundary_break_each_check() {
    let mut wrong = Vec::new();
    for check in checks() {
        for (marked, expected) in check.breaks {
            let (text, at) = unmarked(&text(check.of, marked));
            let problems: Vec<String> = read(&text, Format::Yaml).problems.iter().map(shown).collect();
            let expected = [format!("{at} {expected}")];
            wrong
                .extend((problems != expected).then(|| format!("{marked}: expected {expected:?}, found {problems:?}")));
        }
    }
    assert!(wrong.is_empty(), "documents that should have one problem:\n{}", wrong.join("\n"));
}

#[test]
fn a_bare_file_tolerates_the_same_as_torc_1() {
    for check in checks().filter(|check| check.of == Of::Workflow) {
        for (marked, expected) in check.breaks {
            let mut loaded = read(&unmarked(&text(check.of, marked)).0, Format::Yaml);
            let read_anyway = loaded.flawed.pop().map(|flawed| flawed.read).or_else(|| loaded.documents.pop());
            let Document::Workflow(workflow) = read_anyway.expect("a document").document else {
                panic!("not a workflow")
            };
            let mut plain = bare(&json!(workflow.spec), false);
            plain["name"] = json!("test");
            let problems = read(&plain.to_string(), Format::Json).problems;
            let severities: Vec<bool> = problems.iter().map(Problem::is_error).collect();
            let is_error = expected.starts_with("error") && !check.tolerated;
            assert_eq!(severities, [is_error], "{marked}: {problems:?}");
        }
    }
}
