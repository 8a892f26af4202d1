use serde_json::json;

use super::*;

fn check(text: &str, expected: &[&str]) {
    assert_eq!(all_problems(text, Format::Yaml), expected, "{text}");
}

#[test]
fn the_name_becomes_an_object_name() {
    let mut loaded = read("name: ML Training, part 2\nuser: me\njobs: []\n", Format::Yaml);
    let Document::Workflow(workflow) = loaded.documents.remove(0).document else { panic!("not a workflow") };
    assert_eq!(workflow.metadata.name, "ml-training-part-2");
    assert_eq!(workflow.spec.display_name.as_deref(), Some("ML Training, part 2"));
    assert_eq!(workflow.spec.user.as_deref(), Some("me"));
    assert_eq!(workflow.api_version, crate::API_VERSION);
    assert_eq!(spec("name: plain\n", Format::Yaml).display_name, None);
    check("jobs: []\n", &["1:1 error name: missing required field `name`"]);
    check("name: 12\njobs: []\n", &["1:7 error name: expected a text, found the number 12 (put it in quotes: \"12\")"]);
}

#[test]
fn unknown_keys_are_warnings() {
    let text = "name: demo\ndatasets: []\njobs:\n- {name: a, command: b, dependsOn: [c], max_wait: 1}\n";
    check(
        text,
        &[
            "2:1 warning datasets: unknown field `datasets` is ignored",
            "4:25 warning jobs[0].dependsOn: unknown field `dependsOn` is ignored (did you mean `depends_on`?)",
            "4:41 warning jobs[0].max_wait: unknown field `max_wait` is ignored",
        ],
    );
    assert_eq!(read(text, Format::Yaml).documents.len(), 1);
    check(
        "name: demo\naccess_groups: [team]\njobs:\n- {name: a, command: b}\n",
        &["2:1 warning access_groups: unknown field `access_groups` is ignored"],
    );
}

#[test]
fn settings_of_runners_are_no_errors_and_name_their_page() {
    let bare = "name: demo\njob_completion_poll_interval: 5\njobs:\n- {name: a, command: b}\n";
    let found = read(bare, Format::Yaml);
    assert_eq!((found.documents.len(), found.problems.len()), (1, 1));
    let problem = &found.problems[0];
    assert!(!problem.is_error() && problem.message.contains("job_completion_poll_interval"), "{problem:?}");
    let hint = problem.hint.as_deref().unwrap_or_default();
    assert!(hint.contains("--poll-interval") && hint.contains("docs/reference/configuration.md"), "{hint}");
    let envelope = "apiVersion: torc.dev/v1alpha1\nkind: Workflow\nmetadata: {name: demo}\nspec:\n  \
        claimBackoffMaxSecs: 5\n  jobs:\n  - {name: a, command: b}\n";
    assert!(!read(envelope, Format::Yaml).has_errors());
}

#[test]
fn a_bare_document_without_a_name_takes_the_one_of_its_file() {
    let options = LoadOptions { default_name: Some("My_Sweep".to_owned()), ..LoadOptions::default() };
    let loaded = |text: &str| load(text.as_bytes(), Some(Format::Yaml), &options);
    let name = |text: &str| match &loaded(text).documents.first()?.document {
        Document::Workflow(workflow) => Some(workflow.metadata.name.clone()),
        Document::SlurmCluster(_) => None,
    };
    let jobs = "jobs:\n- {name: a, command: b}\n";
    assert_eq!(name(jobs).as_deref(), Some("my-sweep"));
    assert_eq!(name(&format!("name: own\n{jobs}")).as_deref(), Some("own"));
    let found = loaded(jobs);
    assert_eq!(found.problems.len(), 1);
    assert!(!found.problems[0].is_error() && found.problems[0].message.contains("`my-sweep`"), "{found:?}");
    assert!(loaded("files: []\n").has_errors(), "without jobs it is no workflow");
    let envelope = "apiVersion: torc.dev/v1alpha1\nkind: Workflow\nmetadata: {}\nspec: {}\n";
    assert!(loaded(envelope).has_errors(), "an object has a name of its own");
}

#[test]
fn removed_and_renamed_fields() {
    check(
        "name: demo\nslurm_config: {}\n",
        &["2:1 error slurm_config: the field `slurm_config` no longer exists (use `execution_config`)"],
    );
    let text = "name: demo\njobs:\n- {name: a, command: b, label: gpu}\n- {name: c, command: d, blocked_by: [a]}\n";
    check(
        text,
        &[
            "3:25 warning jobs[0].label: `label` is now called `labels`",
            "4:25 warning jobs[1].blocked_by: `blocked_by` is now called `depends_on`",
        ],
    );
    let mut loaded = read(text, Format::Yaml);
    let Document::Workflow(workflow) = loaded.documents.remove(0).document else { panic!("not a workflow") };
    assert_eq!(workflow.spec.jobs[0].labels, ["gpu"]);
    assert_eq!(workflow.spec.jobs[1].depends_on, ["a"]);
}

#[test]
fn names_of_the_oldest_files() {
    let text = "name: demo\nresource_requirements: [{name: big, num_cpus: 8, memory: 1g}]\nslurm_schedulers: [{name: night, account: x}]\njobs:\n- {name: a, command: b, resource_requirements_name: big, scheduler_name: night}\n- {name: c, command: d, blocked_by_job_names: [a]}\n- {name: e, command: f, blocked_by_job_name_regexes: [^a]}\n";
    check(
        text,
        &[
            "5:25 warning jobs[0].resource_requirements_name: `resource_requirements_name` is now called `resource_requirements`",
            "5:58 warning jobs[0].scheduler_name: `scheduler_name` is now called `scheduler`",
            "6:25 warning jobs[1].blocked_by_job_names: `blocked_by_job_names` is now called `depends_on`",
            "7:25 warning jobs[2].blocked_by_job_name_regexes: `blocked_by_job_name_regexes` is now called `depends_on_regexes`",
        ],
    );
    let spec = spec_despite_warnings(text, Format::Yaml);
    assert_eq!(spec.jobs[0].resource_requirements.as_deref(), Some("big"));
    assert_eq!(spec.jobs[0].scheduler.as_deref(), Some("night"));
    assert_eq!(spec.jobs[1].depends_on, ["a"]);
    assert_eq!(spec.jobs[2].depends_on_regexes, ["^a"]);
}

#[test]
fn oldest_names_of_files_and_data() {
    let text = "name: demo\nfiles: [{name: f, path: f}]\nuser_data: [{name: d}]\njobs:\n- {name: a, command: b, output_file_names: [f], output_data_names: [d]}\n- {name: c, command: d, input_file_names: [f], input_user_data_names: [d]}\n";
    assert_eq!(all_problems(text, Format::Yaml).len(), 4);
    let jobs = spec_despite_warnings(text, Format::Yaml).jobs;
    let names = |list: &Option<Vec<String>>| list.clone().unwrap_or_default().join(",");
    assert_eq!([names(&jobs[0].output_files), names(&jobs[0].output_user_data)], ["f", "d"]);
    assert_eq!([names(&jobs[1].input_files), names(&jobs[1].input_user_data)], ["f", "d"]);
}

#[test]
fn metadata_may_be_json_in_a_text() {
    let text = "name: demo\nmetadata: '{\"grant\": \"x-1\", \"years\": 2}'\njobs: []\n";
    assert_eq!(json!(spec(text, Format::Yaml).metadata), json!({"grant": "x-1", "years": 2}));
    check(
        "name: demo\nmetadata: 'words'\njobs: []\n",
        &["2:11 error metadata: expected a mapping, found the text 'words'"],
    );
}

#[test]
fn an_unknown_mode_of_parameters_is_the_default() {
    let text = "name: demo\njobs:\n- {name: 'a{x}', command: b, parameters: {x: '1:2'}, parameter_mode: grid}\n";
    check(text, &["3:70 warning jobs[0].parameter_mode: 'grid' is not one of product, zip and is ignored"]);
    assert_eq!(spec_despite_warnings(text, Format::Yaml).jobs[0].parameterization.parameter_mode, None);
}

#[test]
fn what_torc_accepted_is_at_most_a_warning() {
    check(
        "name: demo\nparameters: {size: '1:3'}\njobs:\n- {name: a, command: b, use_parameters: [siz]}\nexecution_config: {termination_signal: QUIT}\nactions:\n- {trigger_type: on_jobs_ready, action_type: run_commands, commands: [x]}\n",
        &[
            "4:42 warning jobs[0].use_parameters[0]: the workflow has no parameter 'siz' (did you mean 'size'?)",
            "5:40 warning execution_config.termination_signal: 'QUIT' is not one of TERM, INT, USR1, USR2, HUP, KILL (the prefix SIG is allowed)",
            "7:3 warning actions[0].jobs: the trigger needs jobs (list jobs or regular expressions for them)",
        ],
    );
}

#[test]
fn rules_speak_of_fields_as_they_are_written() {
    check(
        "name: demo\nresource_requirements:\n- {name: default, num_cpus: 1, memory: 1g}\njobs:\n- {name: a, command: b, failure_handler: none}\n",
        &[
            "3:10 error resource_requirements[0].name: 'default' is reserved (jobs without resource requirements use it)",
            "5:42 error jobs[0].failure_handler: there is no failure handler named 'none'",
        ],
    );
}
