//! Job runners: local, on Slurm and over SSH; strategies, back-off, outages.

use super::Outcome::{Block, Setting, Test};
use super::{Given, Literal, block, page, row, runs, torc_1};

const ID: &[(&str, &str)] = &[("<workflow-id>", "1")];
const RUN: &[(&str, &str)] = &[("/scratch/run42", "torc_output"), ("42", "1")];

const BY_CPUS: &str = "\
parameters:
  i: \"1:100\"
jobs:
  - name: \"work_{i}\"
    command: bash my_script.sh {i}
    use_parameters:
      - i
";

const BY_RESOURCES: &str = "\
resource_requirements:
  - name: \"work_resources\"
    num_cpus: 32
    memory: \"200g\"
    runtime: \"PT4H\"
    num_nodes: 1
parameters:
  i: \"1:100\"
jobs:
  - name: \"work_{i}\"
    command: bash my_script.sh {i}
    resource_requirements: work_resources
    use_parameters:
      - i
";

const BY_COUNT: &str = "\
torc run $WORKFLOW_ID \\
  --max-parallel-jobs 10 \\
  --output-dir ./results
";

#[rustfmt::skip]
pub(super) const LITERALS: &[Literal] = &[
    row("torc run <workflow-id>", &[runs(Given::Stored, ID, &["w: succeeded, 2 of 2 jobs completed"])]),
    row("torc run", &[Test("torc1_commands.rs::reset_status_resets_failed_or_all_jobs")]),
    row("torc slurm generate", &[Test("planning.rs::schedulers_are_written_into_the_document")]),
    row("torc submit", &[Test("recovery.rs::lost_jobs_are_found_and_their_allocations_regenerated")]),
    row("torc remote run", &[Test("remote.rs::jobs_spread_over_the_machines_and_none_runs_twice")]),
    row("torc remote run workers.txt <workflow-id>", &[runs(Given::Workers, ID, &["localhost: started"])]),
    row("torc-slurm-job-runner", &[Test("steps.rs::steps_on_all_nodes_of_an_allocation")]),
    row("SIGCHLD", &[torc_1("at once"), Test("offline.rs::an_exit_wakes_the_runner_despite_a_long_poll_interval")]),
    row("claim_jobs_based_on_resources", &[torc_1("POST /v1/runners/{runner}/sync")]),
    row("claim_next_jobs", &[torc_1("POST /v1/runners/{runner}/sync")]),
    row(BY_CPUS, &[
        Block(super::Block {
            rest: "", flags: "", is_in_allocation: false, exits: 0,
            finds: &["has no `name`", "succeeded, 100 of 100 jobs completed"],
        }),
    ]),
    row(BY_RESOURCES, &[
        Block(super::Block {
            rest: "", flags: "--num-cpus 3200 --memory 20t", is_in_allocation: false, exits: 0,
            finds: &["succeeded, 100 of 100 jobs completed"],
        }),
    ]),
    row(BY_COUNT, &[runs(Given::Stored, &[("$WORKFLOW_ID", "1")], &["w: succeeded, 2 of 2 jobs completed"])]),
    row("on_workflow_start", &[Test("actions.rs::each_of_the_six_triggers_runs_its_commands")]),
    row("on_worker_start", &[Test("actions.rs::each_of_the_six_triggers_runs_its_commands")]),
    row("on_jobs_ready", &[Test("actions.rs::each_of_the_six_triggers_runs_its_commands")]),
    row("on_jobs_complete", &[Test("actions.rs::each_of_the_six_triggers_runs_its_commands")]),
    row("on_worker_complete", &[Test("actions.rs::each_of_the_six_triggers_runs_its_commands")]),
    row("on_workflow_complete", &[Test("actions.rs::each_of_the_six_triggers_runs_its_commands")]),
    row("deactivate_compute_node", &[torc_1("`torc get runners`")]),
    row("is_complete", &[torc_1("`torc status W`")]),
    row("is_canceled", &[torc_1("`torc status W`")]),
    row("compute_node_min_time_for_new_jobs_seconds: 300\n", &[
        block(&["succeeded"]), Test("offline.rs::no_job_is_leased_near_the_end_of_the_time_limit"),
    ]),
    row("compute_node_wait_for_new_jobs_seconds: 90\n", &[
        block(&["succeeded"]), Test("offline.rs::an_idle_runner_exits_after_the_configured_time"),
    ]),
    row("compute_node_wait_for_healthy_database_minutes: 20\n", &[
        block(&["succeeded"]), Test("offline.rs::results_arrive_once_after_a_short_outage"),
    ]),
    row("job_completion_poll_interval", &[page("reference/configuration.md", "`poll_interval`")]),
    row("job_completion_poll_interval: 300\n", &[block(&["--poll-interval", "docs/reference/configuration.md", "succeeded"])]),
    row("[client.run]\njob_completion_poll_interval = 300\n", &[
        Setting(&["is now called `client.run.poll_interval`", "client.run.poll_interval", "300"]),
    ]),
    row("[client.run]\nclaim_backoff_max_secs = 3600\n", &[Setting(&["client.run.claim_backoff_max_secs", "3600"])]),
    row("[client.offline]\ndrain_ping_interval_secs = 120\n", &[
        Setting(&["client.offline.drain_ping_interval_secs", "120"]), Test("offline.rs::draining_can_be_switched_off"),
    ]),
    row("<output_dir>/offline_journal/offline_results_wf<workflow_id>_r<run_id>_<label>.db", &[
        Test("offline.rs::reconcile_delivers_results_once_after_a_long_outage"),
    ]),
    row("torc workflows reconcile 42 1", &[runs(Given::Finished, RUN, &["run 1: no journals below"])]),
    row("torc workflows reconcile 42 1 --base-dir /scratch/run42", &[
        runs(Given::Finished, RUN, &["run 1: no journals below"]),
        Test("offline.rs::results_of_a_superseded_run_are_rejected_without_an_error"),
    ]),
    row("torc workflows status 42", &[runs(Given::Finished, RUN, &["Workflow:  w", "Run:       1"])]),
];
