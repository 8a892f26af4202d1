#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use torc_api::execution::ExecutionConfig;
use torc_api::workflow::WorkflowSpec;
use torc_core::expanded::Requirements;
use torc_core::ids::{AllocationId, WorkflowId};
use torc_core::planning::allocation_plan::{LiveAllocation, ResourceClass};
use torc_core::planning::sizing::AllocationStage;

use super::*;

fn config() -> SlurmConfig {
    SlurmConfig {
        ssh_secrets: None,
        serves: None,
        poll: Duration::from_secs(1),
        runner: vec!["/opt/torc-slurm-job-runner".to_owned()],
        folder: PathBuf::from("/home/ada/.torc/allocations"),
        output_dir: PathBuf::from("torc_output"),
        replaced: BTreeMap::new(),
    }
}

fn row(id: i64) -> AllocationRow {
    AllocationRow {
        id: AllocationId(id),
        workflow: WorkflowId(3),
        partition: Some("gpu".to_owned()),
        account: Some("proj".to_owned()),
        nodes: 1,
        cpus: 32,
        memory_bytes: 64 << 30,
        gpus: 4,
        seconds: 5_400,
        ..AllocationRow::default()
    }
}

fn needs(spec: WorkflowSpec, rows: &[AllocationRow]) -> WorkflowDemand {
    let live = |row: &AllocationRow| LiveAllocation {
        row: row.clone(),
        stage: AllocationStage::Pending,
        runners: 0,
        idle_polls: 0,
    };
    WorkflowDemand {
        workflow: WorkflowId(3),
        name: "w".to_owned(),
        working_dir: "/scratch/ada".to_owned(),
        cluster: Some("local".to_owned()),
        spec: Arc::new(spec),
        has_explicit_requests: true,
        is_served: true,
        is_canceled: false,
        finished_ms: None,
        is_suspended: false,
        is_exhausted: false,
        kinds: Vec::new(),
        open_jobs: 0,
        allocations: rows.iter().map(live).collect(),
        actions: Vec::new(),
        requested: BTreeMap::new(),
    }
}

fn script_of(needs: &WorkflowDemand, row: &AllocationRow) -> String {
    let files = ("/home/ada/.torc/allocations/x.env", "/scratch/ada/torc_output");
    let node = PartitionLimits { name: "debug".to_owned(), cpus: 4, ..PartitionLimits::default() };
    text(&config(), needs, row, &[node], "0a1b2c3d", files.0, files.1).unwrap()
}

#[test]
fn a_script_for_what_jobs_need() {
    let row = row(12);
    let text = script_of(&needs(WorkflowSpec::default(), std::slice::from_ref(&row)), &row);
    for line in [
        "#SBATCH --job-name=torc-wf3-a12-0a1b2c3d",
        "#SBATCH --comment=torc-wf3-a12-0a1b2c3d",
        "#SBATCH --partition=gpu",
        "#SBATCH --account=proj",
        "#SBATCH --gres=gpu:4",
        "#SBATCH --mem=65536M",
        "#SBATCH --cpus-per-task=32",
        "#SBATCH --ntasks-per-node=1",
        "#SBATCH --output=/scratch/ada/torc_output/slurm_output_wf3_sl%j.o",
        "#SBATCH --chdir=/scratch/ada",
        "export TORC_ALLOCATION=torc-wf3-a12",
        "exec /opt/torc-slurm-job-runner \"$TORC_API_URL\" 3 /scratch/ada/torc_output",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
}

#[test]
fn a_script_for_a_scheduler_of_the_document() {
    let scheduler = SlurmScheduler {
        name: Some("chain".to_owned()),
        account: "own".to_owned(),
        walltime: Some("04:00:00".to_owned()),
        nodes: Some(2),
        extra: Some("--reservation=r".to_owned()),
        serialize_allocations: Some(true),
        ..SlurmScheduler::default()
    };
    let spec = WorkflowSpec { slurm_schedulers: vec![scheduler], ..WorkflowSpec::default() };
    let of = |id: i64| AllocationRow {
        scheduler: Some("chain".to_owned()),
        one_worker_per_node: true,
        max_parallel_jobs: Some(5),
        nodes: 2,
        ..row(id)
    };
    let rows = [of(1), of(2)];
    let needs = needs(spec, &rows);
    let text = script_of(&needs, &rows[0]);
    for words in [
        "--job-name=torc-wf3-sched-chain-0a1b2c3d",
        "--comment=torc-wf3-a1-0a1b2c3d",
        "--dependency=singleton",
        "--time=0-04:00:00",
        "--reservation=r",
        "--is-subtask --max-parallel-jobs 5 --stagger-among 4",
        "srun --ntasks-per-node=1",
    ] {
        assert!(text.contains(words), "{words} is not in\n{text}");
    }
    let plain = WorkflowSpec {
        execution_config: Some(ExecutionConfig { staggered_start: Some(false), ..ExecutionConfig::default() }),
        ..WorkflowSpec::clone(&needs.spec)
    };
    let needs = WorkflowDemand { spec: Arc::new(plain), ..needs };
    assert!(!script_of(&needs, &rows[0]).contains("--stagger-among"), "the document does not want it");
    let gone = WorkflowDemand { spec: Arc::new(WorkflowSpec::default()), ..needs };
    let files = ("/f", "/o");
    let refused = super::text(&config(), &gone, &rows[0], &[], "x", files.0, files.1).unwrap_err();
    assert_eq!(refused, "there is no Slurm scheduler 'chain' any more");
}

#[test]
fn a_node_of_a_scheduler_gives_the_cpus_that_its_jobs_need() {
    let scheduler = SlurmScheduler { name: Some("nodes".to_owned()), ..SlurmScheduler::default() };
    let spec = WorkflowSpec { slurm_schedulers: vec![scheduler], ..WorkflowSpec::default() };
    let row = AllocationRow { scheduler: Some("nodes".to_owned()), ..row(1) };
    let requirements = Requirements { num_cpus: 2, ..Requirements::default() };
    let jobs = ResourceClass { needs: requirements, labels: Vec::new(), scheduler: None, ready: 1, waiting: 9 };
    let needs = WorkflowDemand { kinds: vec![jobs], ..needs(spec, std::slice::from_ref(&row)) };
    assert!(script_of(&needs, &row).contains("#SBATCH --mincpus=4\n"), "{}", script_of(&needs, &row));
}

#[test]
fn secrets_are_with_the_store_or_where_slurm_is() {
    let folder = |is_elsewhere| credentials_folder(&config(), "/scratch/ada", is_elsewhere);
    assert_eq!(folder(false), PathBuf::from("/home/ada/.torc/allocations"));
    assert_eq!(folder(true), PathBuf::from("/scratch/ada/.torc-allocations"));
}

fn directives(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.strip_prefix("#SBATCH --")).collect()
}

#[test]
fn what_is_not_needed_is_not_asked_for() {
    let plain = AllocationRow {
        partition: None,
        account: None,
        cpus: 0,
        memory_bytes: 0,
        gpus: 0,
        nodes: 3,
        seconds: 3_660,
        ..row(12)
    };
    let text = script_of(&needs(WorkflowSpec::default(), std::slice::from_ref(&plain)), &plain);
    let found = directives(&text);
    for name in ["gres", "mem", "cpus-per-task", "partition", "account", "dependency", "mincpus"] {
        assert!(!found.iter().any(|line| line.starts_with(name)), "{name} is in\n{text}");
    }
    for line in ["nodes=3", "time=0-01:01:00", "ntasks-per-node=1"] {
        assert!(found.contains(&line), "{line} is not in\n{text}");
    }
    let one = AllocationRow { cpus: 1, gpus: 1, memory_bytes: (5 << 20) - 1, ..plain };
    let text = script_of(&needs(WorkflowSpec::default(), std::slice::from_ref(&one)), &one);
    for line in ["gres=gpu:1", "mem=4M", "cpus-per-task=1"] {
        assert!(directives(&text).contains(&line), "{line} is not in\n{text}");
    }
}

#[test]
fn runners_are_told_how_many_start_together() {
    let of = |id: i64, scheduler: Option<&str>, per_node: bool, nodes: i64| AllocationRow {
        scheduler: scheduler.map(str::to_owned),
        one_worker_per_node: per_node,
        nodes,
        ..row(id)
    };
    for (rows, expected) in [
        (vec![of(1, None, false, 9)], None),
        (vec![of(1, None, false, 9), of(2, Some("s"), false, 1)], None),
        (vec![of(1, None, false, 9), of(2, None, false, 9)], Some("2")),
        (vec![of(1, None, true, 2)], Some("2")),
        (vec![of(1, None, true, 3), of(2, None, false, 7)], Some("4")),
    ] {
        let needs = needs(WorkflowSpec::default(), &rows);
        let words = arguments(&needs, &rows[0], "/o");
        let found = words.iter().position(|word| word == "--stagger-among").map(|at| words[at + 1].as_str());
        assert_eq!(found, expected, "{words:?}");
        assert_eq!(words[..2], ["3", "/o"]);
        assert_eq!(words.contains(&"--is-subtask".to_owned()), rows[0].one_worker_per_node);
        assert!(!words.contains(&"--max-parallel-jobs".to_owned()));
    }
}

#[test]
fn only_serialized_allocations_share_a_name() {
    let spec = |serialize: Option<bool>| WorkflowSpec {
        slurm_schedulers: vec![SlurmScheduler {
            name: Some("s".to_owned()),
            serialize_allocations: serialize,
            ..SlurmScheduler::default()
        }],
        ..WorkflowSpec::default()
    };
    let row = AllocationRow { scheduler: Some("s".to_owned()), ..row(5) };
    for (serialize, expected) in
        [(None, "torc-wf3-a5-id"), (Some(false), "torc-wf3-a5-id"), (Some(true), "torc-wf3-sched-s-id")]
    {
        let needs = needs(spec(serialize), std::slice::from_ref(&row));
        assert_eq!(slurm_job_name(&row, &needs, "id"), expected, "{serialize:?}");
    }
}
