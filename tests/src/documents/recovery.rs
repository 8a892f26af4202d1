//! Workflow recovery: orphans, new schedulers and allocations, recovery actions.

use super::Outcome::Test;
use super::{Given, Literal, row, runs, torc_1};

const FILLED: &[(&str, &str)] = &[("<workflow_id>", "1"), ("<account>", "root")];

#[rustfmt::skip]
pub(super) const LITERALS: &[Literal] = &[
    row("torc slurm regenerate <workflow_id> --account <account>", &[
        runs(Given::Scheduled, FILLED, &["_deferred", "jobs ready"]),
        runs(Given::Slurm, FILLED, &["_deferred"]),
    ]),
    row("torc slurm regenerate <workflow_id> --account <account> --submit", &[
        runs(Given::Slurm, FILLED, &["torc-wf1-a"]),
    ]),
    row("torc slurm regenerate <workflow_id> --account <account> --profile kestrel", &[
        runs(Given::Scheduled, FILLED, &["_deferred"]),
    ]),
    row("torc slurm regenerate", &[runs(Given::Finished, &[("regenerate", "regenerate w --profile kestrel --account a")], &["no remaining jobs, nothing to plan"])]),
    row("torc recover", &[runs(Given::Finished, &[("recover", "recover 1")], &["no failed jobs"])]),
    row("torc workflows sync-status", &[
        runs(Given::Finished, &[("sync-status", "sync-status 1")], &["workflow/w: nothing was lost"]),
        Test("orphans.rs::sync_status_finds_losses_and_a_dry_run_changes_nothing"),
    ]),
    row("torc watch", &[
        runs(Given::Finished, &[("watch", "watch 1")], &[]),
        Test("recovery.rs::watch_retries_only_failures_that_more_memory_can_fix"),
    ]),
    row("torc workflows create-slurm", &[
        runs(Given::File, &[("create-slurm", "create-slurm w.yaml --account a")], &["workflow/w created", "torc slurm generate w.yaml"]),
    ]),
    row("squeue", &[Test("recovery.rs::lost_jobs_are_found_and_their_allocations_regenerated")]),
    row("ScheduledComputeNodes", &[torc_1("`torc get allocations`")]),
    row("schedule_nodes", &[Test("recovery.rs::lost_jobs_are_found_and_their_allocations_regenerated")]),
    row("claim_action", &[torc_1("`torc slurm regenerate`")]),
    row("get_workflow_actions", &[torc_1("`torc get actions W`")]),
    row("scheduler_groups", &[torc_1("`torc slurm plan-allocations`")]),
    row("depends_on_job_ids", &[torc_1("`dependsOn`")]),
    row("reset_actions_for_reinitialize", &[torc_1("`torc workflows reinit`")]),
    row("workflow_action", &[torc_1("`torc get actions W -o wide`")]),
    row("is_recovery", &[
        runs(Given::Scheduled, &[("is_recovery", "torc get actions w -o wide")], &["IS_RECOVERY"]),
        torc_1("`IS_RECOVERY`"),
    ]),
    row("_deferred", &[Test("recovery.rs::lost_jobs_are_found_and_their_allocations_regenerated")]),
];
