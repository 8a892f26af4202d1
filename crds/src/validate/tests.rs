//! Checks every rule with a document that keeps it and one that breaks it. Documents are bare files, because those are
//! shorter.

mod pairs;

use crate::load::{Format, LoadOptions, load};
use crate::problem::Problem;

fn problems(spec: &str) -> Vec<Problem> {
    let text =
        format!("{{apiVersion: 'torc.dev/v1alpha1', kind: 'Workflow', metadata: {{name: 'test'}}, spec: {{{spec}}}}}");
    load(text.as_bytes(), Some(Format::Json5), &LoadOptions::default()).problems
}

/// `field: message`, warnings marked.
fn shown(spec: &str) -> Vec<String> {
    let line = |problem: &Problem| {
        let mark = if problem.is_error() { "" } else { "warning " };
        format!("{mark}{}: {}", problem.field.trim_start_matches("spec."), problem.message)
    };
    problems(spec).iter().map(line).collect()
}

fn accepts(specs: &[&str]) {
    for spec in specs {
        assert_eq!(shown(spec), Vec::<String>::new(), "{spec}");
    }
}

fn refuses(cases: &[(&str, &str)]) {
    for (spec, expected) in cases {
        assert_eq!(shown(spec), [*expected], "{spec}");
    }
}

// X10
#[test]
fn a_walltime_leaves_room_for_a_step() {
    let with = |walltime: &str, rest: &str| {
        format!("jobs: [], slurmSchedulers: [{{name: 's', account: 'a', walltime: '{walltime}'}}]{rest}")
    };
    let warned = "warning slurmSchedulers[0].walltime: no step can start in '00:02:00': 60 s of it are headroom, and a step needs 60 s";
    assert_eq!(shown(&with("00:02:00", "")), [warned]);
    accepts(&[
        &with("00:02:01", ""),
        &with("00:02:00", ", executionConfig: {mode: 'direct'}"),
        &with("00:02:00", ", executionConfig: {sigkillHeadroomSeconds: 30}"),
    ]);
    let long = "warning slurmSchedulers[0].walltime: no step can start in '10': 600 s of it are headroom, and a step needs 60 s";
    assert_eq!(shown(&with("10", ", executionConfig: {sigkillHeadroomSeconds: 600}")), [long]);
}

#[test]
fn names() {
    accepts(&[
        "jobs: [{name: 'a', command: 'x'}, {name: 'b', command: 'x'}]",
        "jobs: [{name: 'a', command: 'x', parameters: {i: '1:2'}}, {name: 'a', command: 'x', parameters: {i: '1:2'}}]",
        "jobs: [{name: '{v}', command: 'x'}, {name: '{v}', command: 'x'}], variables: {v: 'a'}",
        "userData: [{data: 1}, {data: 2}]",
        "slurmSchedulers: [{account: 'a'}, {account: 'a'}]",
    ]);
    refuses(&[
        ("jobs: [{name: 'a', command: 'x'}, {name: 'a', command: 'x'}]", "jobs[1].name: the name 'a' is used twice"),
        ("files: [{name: 'a', path: 'x'}, {name: 'a', path: 'y'}]", "files[1].name: the name 'a' is used twice"),
        ("userData: [{name: 'a'}, {name: 'a'}]", "userData[1].name: the name 'a' is used twice"),
        ("userData: [{name: ''}]", "userData[0].name: must not be empty"),
        (
            "resourceRequirements: [{name: 'a', numCpus: 1, memory: '1g'}, {name: 'a', numCpus: 1, memory: '1g'}]",
            "resourceRequirements[1].name: the name 'a' is used twice",
        ),
        (
            "slurmSchedulers: [{name: 'a', account: 'x'}, {name: 'a', account: 'x'}]",
            "slurmSchedulers[1].name: the name 'a' is used twice",
        ),
    ]);
}

#[test]
fn labels_and_environment() {
    accepts(&[
        "jobs: [{name: 'a', command: 'x', labels: ['gpu', 'fast disk']}]",
        "env: {A_1: '', _b: 'x'}",
        "jobs: [{name: 'a', command: 'x', priority: 0}]",
    ]);
    refuses(&[
        ("jobs: [{name: 'a', command: 'x', labels: ['']}]", "jobs[0].labels[0]: a label must not be empty"),
        (
            "jobs: [{name: 'a', command: 'x', labels: [' a']}]",
            "jobs[0].labels[0]: a label must not begin or end with a blank",
        ),
        ("jobs: [{name: 'a', command: 'x', labels: ['a,b']}]", "jobs[0].labels[0]: a label must not contain a comma"),
        (
            "jobs: [{name: 'a', command: 'x', labels: ['a'], scheduler: 's'}], slurmSchedulers: [{name: 's', account: 'x'}]",
            "jobs[0].labels: a job has either labels or a scheduler, not both",
        ),
        ("jobs: [{name: 'a', command: 'x', priority: -1}]", "jobs[0].priority: must be at least 0, not -1"),
        ("env: {'1A': 'x'}", "env.1A: '1A' is not a valid name of an environment variable"),
        (
            "jobs: [{name: 'a', command: 'x', env: {'a-b': 'x'}}]",
            "jobs[0].env.a-b: 'a-b' is not a valid name of an environment variable",
        ),
    ]);
}

#[test]
fn references() {
    accepts(&[
        "jobs: [{name: 'a', command: 'x', resourceRequirements: 'default'}]",
        "jobs: [{name: 'a', command: 'x', resourceRequirements: '{size}'}]",
        "jobs: [{name: 'a', command: 'x', resourceRequirements: 'r', scheduler: 's', failureHandler: 'f'}], \
         resourceRequirements: [{name: 'r', numCpus: 1, memory: '1g'}], slurmSchedulers: [{name: 's', account: 'x'}], \
         failureHandlers: [{name: 'f', rules: [{exitCodes: [1]}]}]",
    ]);
    refuses(&[
        (
            "jobs: [{name: 'a', command: 'x', resourceRequirements: 'r'}]",
            "jobs[0].resourceRequirements: there is no set of resource requirements named 'r'",
        ),
        (
            "jobs: [{name: 'a', command: 'x', scheduler: 's'}]",
            "jobs[0].scheduler: there is no Slurm scheduler named 's'",
        ),
        (
            "jobs: [{name: 'a', command: 'x', failureHandler: 'f'}]",
            "jobs[0].failureHandler: there is no failure handler named 'f'",
        ),
        (
            "actions: [{triggerType: 'on_workflow_start', actionType: 'schedule_nodes', scheduler: 's', schedulerType: 'slurm'}]",
            "actions[0].scheduler: there is no Slurm scheduler named 's'",
        ),
    ]);
}

#[test]
fn parameters_and_variables() {
    accepts(&[
        "jobs: [{name: 'a', command: 'x', parametersFile: 't.csv'}]",
        "jobs: [{name: 'a', command: 'x', useParametersFile: true}], parametersFile: 't.csv'",
        "jobs: [{name: 'a', command: 'x', useParametersFile: false, parameters: {i: 1}}]",
        "jobs: [{name: 'a', command: 'x', useParameters: ['i']}], parameters: {i: '1:2'}",
        "variables: {a: 'x ${HOME} ${files.input.b}', b: 5, c: 'json {\"x\": 1}'}",
        "sources: [{name: 't', configMapName: 'c', key: 'k'}], parametersFile: 't'",
    ]);
    refuses(&[
        (
            "jobs: [{name: 'a', command: 'x', parametersFile: 't.csv', parameters: {i: 1}}]",
            "jobs[0].parametersFile: use either a parameters file or inline parameters, not both",
        ),
        (
            "jobs: [{name: 'a', command: 'x', parametersFile: 't.csv', useParametersFile: true}], parametersFile: 'u.csv'",
            "jobs[0].parametersFile: use either its own parameters file or the workflow's, not both",
        ),
        (
            "files: [{name: 'a', path: 'x', useParametersFile: true, parameters: {i: 1}}], parametersFile: 'u.csv'",
            "files[0].useParametersFile: use either a parameters file or inline parameters, not both",
        ),
        (
            "userData: [{name: 'a', useParametersFile: true}]",
            "userData[0].useParametersFile: the workflow has no parameters file",
        ),
        (
            "parametersFile: 'u.csv', parameters: {i: 1}",
            "parametersFile: use either a parameters file or inline parameters, not both",
        ),
        (
            "jobs: [{name: 'a', command: 'x', useParameters: ['j']}], parameters: {i: 1}",
            "jobs[0].useParameters[0]: the workflow has no parameter 'j'",
        ),
        (
            "jobs: [{name: 'a', command: 'x', parameterTable: {columns: ['i'], rows: [[1], [1, 2]]}}]",
            "jobs[0].parameterTable.rows[1]: the row must have 1 value, one for each column",
        ),
        ("variables: {'a b': 'x'}", "variables.a b: 'a b' is not a valid name of a variable"),
        ("variables: {a: ['x']}", "variables.a: a variable must have a single value"),
        ("variables: {a: '{b}/x'}", "variables.a: a variable cannot refer to '{b}'"),
        (
            "variables: {i: 'x'}, jobs: [{name: 'a', command: 'x', parameters: {i: '1:2'}}]",
            "variables.i: 'i' is also the name of a parameter",
        ),
        (
            "sources: [{name: 't', configMapName: 'c', key: 'k'}]",
            "warning sources[0].name: no parameters file refers to 't'",
        ),
    ]);
}

#[test]
fn identifiers_of_files() {
    accepts(&["enableRoCrate: true, files: [{name: 'a', path: 'x', identifier: 'doi:1'}]"]);
    refuses(&[
        (
            "files: [{name: 'a', path: 'x', identifier: 'doi:1'}]",
            "files[0].identifier: an identifier needs the provenance record",
        ),
        (
            "enableRoCrate: true, files: [{name: 'a', path: 'x', identifier: ' '}]",
            "files[0].identifier: must not be empty",
        ),
        (
            "enableRoCrate: true, files: [{name: 'a', path: 'x', identifier: '#job-1'}]",
            "files[0].identifier: '#job-1' is reserved",
        ),
        (
            "enableRoCrate: true, files: [{name: 'a', path: 'x', identifier: './'}]",
            "files[0].identifier: './' is reserved",
        ),
        (
            "enableRoCrate: true, files: [{name: 'a', path: 'x', identifier: 'y'}, {name: 'b', path: 'y'}]",
            "files[0].identifier: 'y' is the path of the file 'b'",
        ),
        (
            "enableRoCrate: true, files: [{name: 'a', path: 'x', identifier: 'i'}, {name: 'b', path: 'y', identifier: 'i'}]",
            "files[1].identifier: the file 'a' has the identifier 'i' too",
        ),
        (
            "enableRoCrate: true, files: [{name: 'a', path: 'x', identifier: 'i'}], jobs: [{name: 'j', command: 'c', outputFiles: ['a']}]",
            "files[0].identifier: 'a' is the output of a job; only inputs have identifiers",
        ),
    ]);
}

#[test]
fn resources_and_schedulers() {
    accepts(&[
        "resourceRequirements: [{name: 'a', numCpus: 1, memory: '1.5G', runtime: 'P0DT1M'}]",
        "resourceRequirements: [{name: 'a', numCpus: 1, memory: '{mem}', runtime: '{time}'}]",
        "slurmSchedulers: [{account: 'a', walltime: '1-02:00:00', mem: '8G', tmp: '10G'}, {account: 'a', walltime: '30'}]",
        "slurmDefaults: {account: 'a', 'mail-type': 'END', requeue: true}",
    ]);
    refuses(&[
        (
            "resourceRequirements: [{name: 'default', numCpus: 1, memory: '1g'}]",
            "resourceRequirements[0].name: 'default' is reserved",
        ),
        (
            "resourceRequirements: [{name: 'a', numCpus: 1, memory: 'much'}]",
            "resourceRequirements[0].memory: 'much' is not a memory size",
        ),
        (
            "resourceRequirements: [{name: 'a', numCpus: 1, memory: '1g', runtime: '30'}]",
            "resourceRequirements[0].runtime: '30' is a duration without a unit",
        ),
        (
            "resourceRequirements: [{name: 'a', numCpus: 0, memory: '1g'}]",
            "resourceRequirements[0].numCpus: must be at least 1, not 0",
        ),
        (
            "slurmSchedulers: [{account: 'a', walltime: 'long'}]",
            "slurmSchedulers[0].walltime: 'long' is not a duration",
        ),
        ("slurmSchedulers: [{account: 'a', mem: 'x'}]", "slurmSchedulers[0].mem: 'x' is not a memory size"),
        ("slurmSchedulers: [{account: 'a', tmp: 'x'}]", "slurmSchedulers[0].tmp: 'x' is not a memory size"),
        ("slurmDefaults: {extra: ['x']}", "slurmDefaults.extra: `extra` must have a single value"),
    ]);
    for name in ["partition", "nodes", "walltime", "time", "mem", "gres", "name", "job-name", "Mem"] {
        let expected = format!("slurmDefaults.{name}: `{name}` cannot be a default");
        refuses(&[(format!("slurmDefaults: {{'{name}': '1'}}").as_str(), expected.as_str())]);
    }
}

#[test]
fn failure_handlers_and_actions() {
    accepts(&[
        "actions: [{triggerType: 'on_workflow_start', actionType: 'schedule_nodes', scheduler: 'here', schedulerType: 'local'}]",
        "failureHandlers: [{name: 'f', rules: [{exitCodes: [1]}, {causes: ['Timeout']}, {matchAllExitCodes: true}]}]",
        "actions: [{triggerType: 'on_worker_start', actionType: 'run_commands', commands: ['x']}]",
        "actions: [{triggerType: 'on_jobs_ready', actionType: 'run_commands', commands: ['x'], jobNameRegexes: ['a']}]",
        "actions: [{triggerType: 'on_jobs_ready', actionType: 'schedule_nodes', scheduler: 's', jobs: ['a']}], \
         slurmSchedulers: [{name: 's', account: 'x'}]",
    ]);
    refuses(&[
        (
            "failureHandlers: [{name: 'f', rules: []}]",
            "failureHandlers[0].rules: a failure handler needs at least one rule",
        ),
        ("failureHandlers: [{name: 'f', rules: [{}]}]", "failureHandlers[0].rules[0]: the rule never applies"),
        (
            "failureHandlers: [{name: 'f', rules: [{exitCodes: [1, 0]}]}]",
            "failureHandlers[0].rules[0].exitCodes: exit code 0 is a success and never handled",
        ),
        (
            "failureHandlers: [{name: 'f', rules: [{exitCodes: [1], maxRetries: -1}]}]",
            "failureHandlers[0].rules[0].maxRetries: must be at least 0, not -1",
        ),
        (
            "actions: [{triggerType: 'on_worker_start', actionType: 'run_commands'}]",
            "actions[0].commands: `run_commands` needs commands",
        ),
        (
            "actions: [{triggerType: 'on_worker_start', actionType: 'run_commands', commands: [' ']}]",
            "actions[0].commands[0]: must not be empty",
        ),
        (
            "actions: [{triggerType: 'on_worker_start', actionType: 'schedule_nodes'}]",
            "actions[0].scheduler: `schedule_nodes` needs a scheduler",
        ),
        (
            "actions: [{triggerType: 'on_jobs_complete', actionType: 'run_commands', commands: ['x']}]",
            "actions[0].jobs: the trigger needs jobs",
        ),
        (
            "actions: [{triggerType: 'on_worker_start', actionType: 'schedule_nodes', scheduler: 's', schedulerType: 'pbs'}], \
             slurmSchedulers: [{name: 's', account: 'x'}]",
            "actions[0].schedulerType: 'pbs' is not one of slurm, local",
        ),
    ]);
}

#[test]
fn execution_modes() {
    accepts(&[
        "executionConfig: {terminationSignal: 'SIGINT', srunTerminationSignal: 'TERM@120', limitResources: false}",
        "executionConfig: {mode: 'auto', oomExitCode: 137, enableCpuBind: true}",
        "executionConfig: {mode: 'direct', limitResources: false, terminationSignal: 'usr1', sigtermLeadSeconds: 5, srunMpi: 'pmix'}",
        "executionConfig: {mode: 'slurm', limitResources: true, sigkillHeadroomSeconds: 180, enableCpuBind: false}",
    ]);
    let foreign = |name: &str, theirs: &str, mode: &str| {
        format!("executionConfig.{name}: applies only to {theirs} mode, but the mode is {mode}")
    };
    for (name, value) in
        [("terminationSignal", "'TERM'"), ("sigtermLeadSeconds", "5"), ("oomExitCode", "1"), ("srunMpi", "'none'")]
    {
        let spec = format!("executionConfig: {{mode: 'slurm', {name}: {value}}}");
        refuses(&[(spec.as_str(), foreign(name, "direct", "slurm").as_str())]);
    }
    for (name, value) in [("srunTerminationSignal", "'TERM@1'"), ("enableCpuBind", "true")] {
        let spec = format!("executionConfig: {{mode: 'direct', {name}: {value}}}");
        refuses(&[(spec.as_str(), foreign(name, "slurm", "direct").as_str())]);
    }
    refuses(&[
        (
            "executionConfig: {mode: 'slurm', limitResources: false}",
            "executionConfig.limitResources: false is not supported in slurm mode",
        ),
        (
            "executionConfig: {terminationSignal: 'QUIT'}",
            "executionConfig.terminationSignal: 'QUIT' is not one of TERM, INT, USR1, USR2, HUP, KILL",
        ),
        ("executionConfig: {srunMpi: 'a b'}", "executionConfig.srunMpi: 'a b' is not a single word"),
    ]);
}

#[test]
fn policies() {
    accepts(&[
        "orphanAfter: 'never'",
        "orphanAfter: '2h'",
        "prefetch: {maxQueued: 10, refillThreshold: 10}",
        "dynamicJobs: {maxIterations: 1}",
        "runId: 1",
    ]);
    refuses(&[
        ("orphanAfter: 'sometimes'", "orphanAfter: 'sometimes' is not a duration"),
        ("orphanAfter: 'PT0S'", "orphanAfter: must be longer than 0 seconds"),
        (
            "prefetch: {maxQueued: 10, refillThreshold: 11}",
            "prefetch.refillThreshold: must not be more than `maxQueued`",
        ),
        ("dynamicJobs: {maxIterations: 0}", "dynamicJobs.maxIterations: must be at least 1, not 0"),
        ("runId: 0", "runId: must be at least 1, not 0"),
        ("slurmCluster: ' '", "slurmCluster: ' ' is not a name"),
    ]);
}

#[test]
fn fields_without_effect_are_said_once() {
    assert_eq!(
        shown(
            "jobs: [{name: 'a', command: 'x', supportsTermination: true}, {name: 'b', command: 'x', supportsTermination: false}]"
        ),
        ["warning jobs[0].supportsTermination: has no effect, here and in 1 other job"]
    );
    refuses(&[
        (
            "jobs: [{name: 'a', command: 'x', supportsTermination: true}]",
            "warning jobs[0].supportsTermination: has no effect",
        ),
        ("computeNodeExpirationBufferSeconds: 3", "warning computeNodeExpirationBufferSeconds: has no effect"),
    ]);
    accepts(&["userData: [{name: 'a', isEphemeral: true}]"]);
}

#[test]
fn names_of_documents() {
    let check = |metadata: &str| {
        let text = format!("{{apiVersion: 'torc.dev/v1alpha1', kind: 'Workflow', metadata: {metadata}, spec: {{}}}}");
        let loaded = load(text.as_bytes(), Some(Format::Json5), &LoadOptions::default());
        loaded.problems.iter().map(|problem| format!("{}: {}", problem.field, problem.message)).collect::<Vec<_>>()
    };
    for name in ["a", "a-1", "a.b", &"a".repeat(52)] {
        assert_eq!(check(&format!("{{name: '{name}'}}")), Vec::<String>::new(), "{name}");
    }
    for name in ["A", "a_b", "-a", "a-", "a..b", "é"] {
        assert_eq!(check(&format!("{{name: '{name}'}}")), [format!("metadata.name: '{name}' is not a valid name")]);
    }
    assert_eq!(
        check(&format!("{{name: '{}'}}", "a".repeat(53))),
        ["metadata.name: `metadata.name` must have at most 52 characters"]
    );
    assert_eq!(check("{name: 'a', namespace: 'b.c'}"), ["metadata.namespace: 'b.c' is not a valid namespace"]);
    let key = format!("{}/b", "a".repeat(253));
    for labels in ["a: 'b'", "'a.org/b_C': ''", "'a': 'B.c-1'", &format!("'{key}': 'x'")] {
        assert_eq!(check(&format!("{{name: 'a', labels: {{{labels}}}}}")), Vec::<String>::new(), "{labels}");
    }
    for key in ["a b", "a/b/c", "/a", "A/b", "-a", &"a".repeat(64), &format!("{}/b", "a".repeat(254))] {
        let expected = [format!("metadata.labels.{key}: '{key}' is not a valid label key")];
        assert_eq!(check(&format!("{{name: 'a', labels: {{'{key}': 'x'}}}}")), expected);
    }
    for value in ["a b", "-a", "a/b", &"a".repeat(64)] {
        let expected = [format!("metadata.labels.k: '{value}' is not a valid label value")];
        assert_eq!(check(&format!("{{name: 'a', labels: {{k: '{value}'}}}}")), expected);
    }
    assert_eq!(check("{name: 'a', annotations: {'a/b': 'any text at all'}}"), Vec::<String>::new());
    // Upper and lower case make no difference in keys of annotations.
    assert_eq!(check("{name: 'a', annotations: {'A.org/b': 'x'}}"), Vec::<String>::new());
    assert_eq!(
        check("{name: 'a', annotations: {'a b': 'x'}}"),
        ["metadata.annotations.a b: 'a b' is not a valid annotation key"]
    );
    let long = "x".repeat(256 << 10);
    assert_eq!(
        check(&format!("{{name: 'a', annotations: {{k: '{long}'}}}}")),
        ["metadata.annotations: all annotations together must have at most 262144 bytes, not 262145"]
    );
}

#[test]
fn clusters() {
    let check = |spec: &str| {
        let text =
            format!("{{apiVersion: 'torc.dev/v1alpha1', kind: 'SlurmCluster', metadata: {{name: 'a'}}, spec: {spec}}}");
        let loaded = load(text.as_bytes(), Some(Format::Json5), &LoadOptions::default());
        loaded.problems.iter().map(|problem| format!("{}: {}", problem.field, problem.message)).collect::<Vec<_>>()
    };
    let partition =
        |walltime: &str| format!("{{name: 'p', cpusPerNode: 8, memoryMb: 1024, maxWalltime: '{walltime}'}}");
    let (day, long) = (partition("1-00:00:00"), partition("long"));
    assert_eq!(check(&format!("{{commandPrefix: ['ssh', 'login'], partitions: [{day}]}}")), Vec::<String>::new());
    assert_eq!(
        check(&format!("{{partitions: [{day}, {day}]}}")),
        ["spec.partitions[1].name: the name 'p' is used twice"]
    );
    assert_eq!(
        check(&format!("{{partitions: [{long}]}}")),
        ["spec.partitions[0].maxWalltime: 'long' is not a duration"]
    );
    assert_eq!(check("{commandPrefix: ['']}"), ["spec.commandPrefix[0]: must not be empty"]);
}

/// A document that no loader has checked may have empty names.
#[test]
fn empty_names_of_typed_documents() {
    use crate::document::{Document, WorkflowDocument};
    use crate::job::{FileSpec, JobSpec};
    let mut document = WorkflowDocument::default();
    document.metadata.name = "a".to_owned();
    document.spec.jobs = vec![JobSpec { command: "x".to_owned(), ..JobSpec::default() }];
    document.spec.files = vec![FileSpec { name: "f".to_owned(), ..FileSpec::default() }, FileSpec::default()];
    let found = crate::validate::validate(&Document::Workflow(document));
    let expected = ["spec.jobs[0].name", "spec.files[1].name"].map(|field| Problem::error(field, "must not be empty"));
    assert_eq!(found, expected);
}

#[test]
fn duplicates_and_unknown_references_have_a_kind() {
    let found = problems("jobs: [{name: 'a', command: 'x'}, {name: 'a', command: 'x'}]");
    assert_eq!(found[0].kind, crate::problem::ProblemKind::Duplicate);
    let other = problems("jobs: [{name: 'a', command: 'x', scheduler: 's'}]");
    assert_eq!(other[0].kind, crate::problem::ProblemKind::UnknownReference);
}

/// Only the first hundred unknown names get a suggestion, because finding the nearest name takes time.
#[test]
fn a_hundred_unknown_names_get_a_suggestion() {
    let jobs: Vec<String> =
        (0..102).map(|job| format!("{{name: 'j{job}', command: 'x', scheduler: 'nigt'}}")).collect();
    let found = problems(&format!("jobs: [{}], slurmSchedulers: [{{name: 'night', account: 'a'}}]", jobs.join(", ")));
    let hints: Vec<bool> = found.iter().map(|problem| problem.hint.is_some()).collect();
    assert_eq!((hints.len(), hints.iter().filter(|has| **has).count(), hints[99], hints[100]), (102, 100, true, false));
}
