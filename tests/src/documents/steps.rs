//! Monitoring of Slurm steps: names, flags of `srun`, queries to Slurm, stored statistics.

use super::Outcome::{Route, Test};
use super::{Given, Literal, block_in_allocation, page, row, runs, torc_1};

/// The allocation and the number of the lab's step.
const STEP: &[(&str, &str)] = &[("$SLURM_JOB_ID", "{job}"), ("<slurm_job_id>", "{job}"), ("12345.2", "{job}.0")];

#[rustfmt::skip]
pub(super) const LITERALS: &[Literal] = &[
    row("wf{workflow_id}_j{job_id}_r{run_id}_a{attempt_id}", &[Test("modes.rs::jobs_are_steps_inside_an_allocation")]),
    row("wf42_j7_r1_a1", &[page("reference/execution.md", "`--job-name`")]),
    row("--jobid", &[Test("modes.rs::jobs_are_steps_inside_an_allocation")]),
    row("--ntasks=1", &[Test("modes.rs::jobs_are_steps_inside_an_allocation")]),
    row("--exact", &[Test("modes.rs::jobs_are_steps_inside_an_allocation")]),
    row("--cpu-bind=none", &[Test("modes.rs::jobs_are_steps_inside_an_allocation")]),
    row("execution_config:\n  enable_cpu_bind: true\n", &[block_in_allocation(&["execution_mode=Slurm"])]),
    row("--nodes", &[Test("modes.rs::jobs_are_steps_inside_an_allocation")]),
    row("--cpus-per-task", &[Test("modes.rs::jobs_are_steps_inside_an_allocation")]),
    row("--mem", &[Test("modes.rs::jobs_are_steps_inside_an_allocation")]),
    row("--time", &[Test("modes.rs::jobs_are_steps_inside_an_allocation")]),
    row("--signal", &[Test("modes.rs::settings_of_slurm_mode_reach_srun")]),
    row("num_nodes", &[Test("steps.rs::steps_on_all_nodes_of_an_allocation")]),
    row("execution_config:\n  srun_termination_signal: \"TERM@120\"\n", &[block_in_allocation(&["--signal=TERM@120"])]),
    row("State=TIMEOUT", &[Test("steps.rs::a_step_gets_its_signal_and_runs_out_of_time")]),
    row("squeue --steps -j $SLURM_JOB_ID -o \"%i|%j\"", &[runs(Given::Step, STEP, &["{job}.0|wf1_j1_r1_a1"])]),
    row("sstat -j 12345.2 --format=AveCPU,MaxRSS", &[runs(Given::Step, STEP, &["AveCPU"])]),
    row("sacct -j <slurm_job_id> --format JobName,MaxRSS,MaxVMSize,MaxDiskRead,MaxDiskWrite,AveCPU,NodeList -P -n", &[
        runs(Given::Step, STEP, &["wf1_j1_r1_a1|"]),
    ]),
    row("POST /results", &[Route("/v1/workflows/{workflow}/results"), torc_1("POST /v1/runners/{runner}/sync")]),
    row("POST /slurm_stats", &[Route("/v1/slurm_stats"), torc_1("POST /v1/slurm_stats")]),
    row("GET /slurm_stats?workflow_id=N", &[Route("/v1/slurm_stats"), torc_1("GET /v1/slurm_stats?workflow_id=N")]),
    row("max_rss_bytes", &[torc_1("`torc slurm stats W -o wide`")]),
    row("max_vm_size_bytes", &[torc_1("`torc slurm stats W -o wide`")]),
    row("max_disk_read_bytes", &[torc_1("`torc slurm stats W -o wide`")]),
    row("max_disk_write_bytes", &[torc_1("`torc slurm stats W -o wide`")]),
    row("ave_cpu_seconds", &[torc_1("`torc slurm stats W -o wide`")]),
    row("node_list", &[torc_1("`torc slurm stats W -o wide`")]),
    row("peak_memory_bytes", &[torc_1("`torc get results W -o wide`")]),
    row("peak_cpu_percent", &[torc_1("`torc get results W -o wide`")]),
    row("avg_cpu_percent", &[torc_1("`torc get results W -o wide`")]),
    row("avg_memory_bytes", &[torc_1("`torc get results W -o wide`")]),
    row("exec_time_minutes", &[torc_1("`torc get results W -o wide`")]),
    row("return_code", &[torc_1("`torc get results W -o wide`")]),
    row("parse_slurm_memory", &[torc_1("`1024K`, `2.5G`, `512M`"), Test("amounts.rs::memory_as_slurm_prints_it")]),
    row("parse_slurm_cpu_time", &[torc_1("`HH:MM:SS`, `D-HH:MM:SS`"), Test("amounts.rs::cpu_time_as_slurm_prints_it")]),
    row("limit_resources", &[Test("modes.rs::slurm_mode_without_limits_is_refused_at_creation")]),
    row("sample_interval_seconds", &[Test("modes.rs::step_statistics_are_queried_together_and_merged")]),
    row("TORC_FAKE_SRUN", &[page("reference/environment.md", "`srun`"), Test("modes.rs::jobs_are_steps_inside_an_allocation")]),
    row("TORC_FAKE_SACCT", &[
        page("reference/environment.md", "`sacct`"),
        Test("modes.rs::step_statistics_are_queried_together_and_merged"),
    ]),
];
