//! Execution modes: direct, slurm and auto, their settings, exit codes and log lines.

use super::Outcome::{Block, Test};
use super::{JOB, Literal, block, block_in_allocation, page, row};

/// A job that uses 300 MB although it declares 60 MB.
const HUNGRY: &str = "\
resource_requirements: [{name: r, num_cpus: 1, memory: 60m, runtime: PT1M}]
jobs: [{name: a, command: 'python3 -c \"x = bytearray(300 << 20); import time; time.sleep(60)\"', resource_requirements: r}]
";

const MONITOR: &str = "\
resource_monitor:
  enabled: true
  granularity: time_series
  sample_interval_seconds: 1   # Check every second
";

const DIRECT: &str = "\
execution_config:
  mode: direct
  limit_resources: true            # Enforce memory limits (default: true)
  termination_signal: SIGTERM      # Signal sent before SIGKILL
  sigterm_lead_seconds: 30         # Seconds between SIGTERM and SIGKILL
  sigkill_headroom_seconds: 60     # Seconds before end_time for SIGKILL
  timeout_exit_code: 152           # Exit code for timed-out jobs
  oom_exit_code: 137               # Exit code for OOM-killed jobs
";

const SLURM: &str = "\
execution_config:
  mode: slurm
  srun_termination_signal: TERM@120  # Send SIGTERM 120s before step timeout
  sigkill_headroom_seconds: 180      # End steps 3 minutes before allocation ends
  enable_cpu_bind: false             # Set to true to enable Slurm CPU binding
";

const NO_LIMITS: &str = "\
execution_config:
  mode: direct
  limit_resources: false
";

const PRODUCTION: &str = "\
execution_config:
  mode: auto                         # Use slurm inside allocations
  srun_termination_signal: TERM@120
  sigkill_headroom_seconds: 300
";

const OWN_SIGNAL: &str = "\
execution_config:
  mode: direct
  termination_signal: SIGINT         # Send SIGINT instead of SIGTERM
  sigterm_lead_seconds: 60           # Give jobs 60s to handle SIGINT
  sigkill_headroom_seconds: 90
";

const STRICT: &str = "\
resource_monitor:
  enabled: true
  granularity: time_series
  sample_interval_seconds: 1

execution_config:
  mode: direct
  limit_resources: true
  oom_exit_code: 137
";

#[rustfmt::skip]
pub(super) const LITERALS: &[Literal] = &[
    row("execution_config:\n  mode: direct\n", &[
        block(&["execution_mode=Direct limit_resources=true"]),
        block_in_allocation(&["execution_mode=Direct limit_resources=true"]),
    ]),
    row("execution_config:\n  mode: slurm\n", &[block_in_allocation(&["execution_mode=Slurm", "--job-name=wf1_j1_r1_a1"])]),
    row("execution_config:\n  mode: auto\n", &[
        block(&["execution_mode=Direct"]),
        block_in_allocation(&["execution_mode=Slurm", "--job-name=wf1_j1_r1_a1"]),
    ]),
    row("SLURM_JOB_ID", &[
        Test("modes.rs::jobs_are_steps_inside_an_allocation"), page("reference/environment.md", "`mode: auto`"),
    ]),
    row("CUDA_VISIBLE_DEVICES", &[page("reference/execution.md", "devices of its own")]),
    row(MONITOR, &[block(&["succeeded"])]),
    row("resource_monitor:\n  enabled: true\n  sample_interval_seconds: 0.5\n", &[
        Block(super::Block {
            rest: JOB, flags: "", is_in_allocation: false, exits: 4, finds: &["sample_interval_seconds"],
        }),
    ]),
    row(DIRECT, &[block(&["execution_mode=Direct limit_resources=true"])]),
    row("end_time - sigkill_headroom - sigterm_lead", &[Test("modes.rs::a_time_limit_ends_jobs_as_terminated")]),
    row("srun --jobid=<allocation_id>", &[Test("modes.rs::jobs_are_steps_inside_an_allocation")]),
    row("--gpus=<num_gpus>", &[Test("steps.rs::steps_on_all_nodes_of_an_allocation")]),
    row("--time=<remaining_minutes>", &[Test("steps.rs::a_step_gets_its_signal_and_runs_out_of_time")]),
    row("--signal=<srun_termination_signal>", &[Test("steps.rs::a_step_gets_its_signal_and_runs_out_of_time")]),
    row(SLURM, &[block_in_allocation(&["execution_mode=Slurm", "--signal=TERM@120", "--cpu-bind=none", "--time=27"])]),
    row(NO_LIMITS, &[block(&["execution_mode=Direct limit_resources=false"])]),
    row("execution_config:\n  mode: slurm\n  limit_resources: false\n", &[
        Block(super::Block {
            rest: JOB, flags: "", is_in_allocation: false, exits: 4, finds: &["limit_resources"],
        }),
    ]),
    row("execution_config:\n  mode: direct\n  limit_resources: false # Don't enforce limits during development\n", &[
        Block(super::Block {
            rest: "resource_requirements: [{name: r, num_cpus: 1, memory: 1m, runtime: PT1M}]\n\
                   jobs: [{name: a, command: 'head -c 20m /dev/zero | tail -c 1', resource_requirements: r}]\n",
            flags: "", is_in_allocation: false, exits: 0, finds: &["limit_resources=false", "succeeded"],
        }),
    ]),
    row(PRODUCTION, &[
        block(&["execution_mode=Direct"]),
        block_in_allocation(&["execution_mode=Slurm", "--signal=TERM@120", "--time=25"]),
    ]),
    row(OWN_SIGNAL, &[block(&["execution_mode=Direct"]), Test("modes.rs::the_log_records_how_jobs_were_terminated")]),
    row(STRICT, &[
        Block(super::Block {
            rest: HUNGRY, flags: "", is_in_allocation: false, exits: 3,
            finds: &[
                "WARN OOM violation detected: workflow_id=1 job_id=1 pid=", " memory=0.", "GB limit=0.06GB",
                "WARN Killing OOM job workflow_id=1 job_id=1", "exit code 137",
            ],
        }),
    ]),
    row("137", &[page("reference/execution.md", "`oomExitCode`")]),
    row("152", &[page("reference/execution.md", "`timeoutExitCode`")]),
    row("INFO Job runner starting workflow_id=1", &[Test("modes.rs::jobs_are_steps_inside_an_allocation")]),
    row("INFO Jobs terminating workflow_id=1 count=3", &[Test("modes.rs::the_log_records_how_jobs_were_terminated")]),
    row("INFO Job SIGTERM workflow_id=1 job_id=42", &[Test("modes.rs::the_log_records_how_jobs_were_terminated")]),
    row("INFO Waiting 30s for graceful termination before SIGKILL", &[Test("modes.rs::the_log_records_how_jobs_were_terminated")]),
    row("INFO Job SIGKILL workflow_id=1 job_id=42", &[Test("modes.rs::the_log_records_how_jobs_were_terminated")]),
    row("WARN OOM violation detected: workflow_id=1 job_id=42 pid=12345 memory=2.50GB limit=2.00GB", &[
        Test("memory.rs::a_job_over_its_memory_is_killed_and_logged"),
    ]),
    row("WARN Killing OOM job workflow_id=1 job_id=42", &[Test("memory.rs::a_job_over_its_memory_is_killed_and_logged")]),
];
