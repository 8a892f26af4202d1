//! Commands of Slurm on a real Slurm: arguments, output, and its interpretation.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;
use torc_api::slurm::SlurmState;
use torc_api::state::Cause;
use torc_slurm::error::SlurmError;
use torc_slurm::exec::Slurm;
use torc_slurm::script::{AllocationMarker, Request, ScriptRunner, environment_file, script};
use torc_slurm::squeue::QueuedJob;
use torc_slurm::{partitions, sacct, sbatch, scontrol, sinfo, squeue, srun, sstat, step_failure};
use torc_tests::labs::slurm::{SlurmLab, wait_for_async};

mod steps;

/// Returns the Slurm of this suite.
fn slurm() -> SlurmLab {
    SlurmLab::shared("commands")
}

/// A folder from which allocations are submitted.
struct Submitter {
    slurm: Slurm,
    folder: TempDir,
}

impl Submitter {
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("torc-submit-").tempdir().unwrap();
        Self { slurm: Slurm::new(&slurm().prefix()), folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_string_lossy().into_owned()
    }

    /// Returns a batch script that runs a line of shell.
    fn script(&self, marker: &AllocationMarker<'_>, request: &Request<'_>, line: &str, one_per_node: bool) -> String {
        let file = self.path("variables.env");
        let variables = BTreeMap::from([("TORC_TOKEN".to_owned(), "it's $ecret".to_owned())]);
        fs::write(&file, environment_file(&variables).unwrap()).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let command = ["bash", "-c", line].map(str::to_owned);
        let (folder, output) = (self.path(""), self.path("out.%j"));
        let worker = ScriptRunner {
            command: &command,
            arguments: &[],
            allocation: marker.own,
            environment_file: &file,
            one_per_node,
            srun_mpi: None,
            folder: &folder,
            output: &output,
        };
        script(request, &BTreeMap::new(), marker, &worker).unwrap()
    }

    /// Submits a line of shell.
    async fn submit(&self, name: &str, request: &Request<'_>, line: &str) -> String {
        let marker = AllocationMarker { own: name, shared_name: None };
        let text = self.script(&marker, request, line, false);
        let answer = self.slurm.ask(&sbatch::submit(&text)).await.unwrap();
        sbatch::read_number(&answer).unwrap().to_string()
    }

    async fn queued(&self, id: &str) -> Option<QueuedJob> {
        squeue::read_jobs(self.slurm.ask(&squeue::jobs([id])).await).unwrap().pop()
    }

    async fn until_running(&self, id: &str) {
        let look = || async { self.queued(id).await.filter(|job| job.state == SlurmState::Running) };
        wait_for_async("a running allocation", look).await;
    }

    /// Returns the final state of a job in the accounting.
    async fn end_of(&self, id: &str) -> SlurmState {
        let look = || async {
            let text = self.slurm.ask(&sacct::jobs([id])).await.unwrap().text;
            sacct::read_jobs(&text).unwrap().into_iter().map(|job| job.state).find(|state| state.is_over())
        };
        wait_for_async("the end of an allocation", look).await
    }

    /// Waits until a step is over and returns its record in the accounting.
    async fn account(&self, id: &str, name: &str) -> sacct::StepAccount {
        let look = || async {
            let mut steps = sacct::read_steps(&self.slurm.ask(&sacct::steps(id, &[])).await.unwrap().text);
            steps.remove(name).filter(|account| account.has_numbers() && account.state.is_over())
        };
        wait_for_async("the account of a step", look).await
    }

    fn output(&self, id: &str) -> String {
        fs::read_to_string(self.path(&format!("out.{id}"))).unwrap_or_default()
    }
}

const SMALL: Request<'static> = Request {
    account: None,
    partition: None,
    qos: None,
    gres: None,
    memory: None,
    tmp: None,
    nodes: 1,
    tasks_per_node: None,
    cpus_per_task: Some(1),
    least_cpus: None,
    seconds: 300,
    serialize: false,
    extra: Some("--mem=300M"),
};

/// Returns the `srun` line of the runner, quoted for a shell.
fn step(name: &str, mebibytes: i64, command: &str) -> String {
    let limits = srun::StepLimits { cpus: 1, memory_bytes: mebibytes << 20, gpus: 0 };
    let step = srun::SrunStep {
        allocation: "$SLURM_JOB_ID",
        name,
        nodes: 1,
        limits: Some(limits),
        ..srun::SrunStep::default()
    };
    let words = srun::arguments(&step, command);
    let (jobid, rest) = words.split_first().unwrap();
    format!("srun {jobid} {}", torc_slurm::shell::line(rest.iter().map(String::as_str)))
}

#[tokio::test]
async fn partitions_are_detected() {
    let submitter = Submitter::new();
    let rules = scontrol::read_partitions(&submitter.slurm.ask(&scontrol::partitions()).await.unwrap().text);
    let nodes = sinfo::read_nodes(&submitter.slurm.ask(&sinfo::nodes()).await.unwrap().text).unwrap();
    let found = partitions::detect(&rules, &nodes);
    let named: Vec<(&str, &str)> = found.iter().map(|one| (one.name.as_str(), one.max_walltime.as_str())).collect();
    assert_eq!(named, [("debug", "365d"), ("short", "30m"), ("standby", "4h"), ("cut", "4h")]);
    for one in &found {
        assert_eq!((one.cpus_per_node, one.memory_mb, one.gpus_per_node, one.nodes), (4, 4_000, Some(2), Some(4)));
    }
}

// S07, S08, S10, S11
#[tokio::test]
async fn a_finished_allocation_and_its_steps() {
    let submitter = Submitter::new();
    let one = step("wf1_j1_r1_a1", 100, "timeout 4 sh -c 'while :; do :; done'; true");
    let two = step("wf1_j2_r1_a1", 100, "sleep 4");
    let line = format!("echo \"token: $TORC_TOKEN, ${{SLURM_MEM_PER_CPU-none}}\"; {one} & {two} & wait");
    let request = Request { cpus_per_task: Some(2), ..SMALL };
    let id = submitter.submit("torc-wf1-a1", &request, &line).await;

    let named =
        squeue::read_jobs(submitter.slurm.ask(&squeue::jobs_named(["torc-wf1-a1", "torc-wf1-a9"])).await).unwrap();
    let numbers: Vec<String> = named.iter().map(|job| job.id.to_string()).collect();
    assert_eq!(numbers, std::slice::from_ref(&id), "the marker leads to it");

    let look = || async {
        let steps = squeue::read_steps(&submitter.slurm.ask(&squeue::steps(&id)).await.ok()?.text);
        let number = |name: &str| steps.iter().find(|(known, _)| known == name).map(|(_, number)| *number);
        Some((number("wf1_j1_r1_a1")?, number("wf1_j2_r1_a1")?))
    };
    let (busy, idle) = wait_for_async("the numbers of the steps", look).await;
    assert_ne!(busy, idle);
    let sample = || async {
        let call = sstat::calls(&id, &[busy, idle, 99]).remove(0);
        let (samples, _) = sstat::read(submitter.slurm.ask(&call).await);
        samples.into_iter().find(|sample| sample.step == busy && sample.memory_bytes > Some(0))
    };
    let sample = wait_for_async("a sample of a running step", sample).await;

    assert_eq!(submitter.end_of(&id).await, SlurmState::Completed);
    assert_eq!(submitter.output(&id).lines().next(), Some("token: it's $ecret, none"));
    let account = submitter.account(&id, "wf1_j1_r1_a1").await;
    assert_eq!((account.state, account.node_list.is_some()), (SlurmState::Completed, true));
    assert!(account.max_rss_bytes > Some(0) && account.max_vm_size_bytes > Some(0), "{account:?}");
    assert!(account.ave_cpu_seconds >= Some(1.0), "{account:?}");
    let mut cpu_meter = sstat::CpuMeter::default();
    cpu_meter.take(0, &sample);
    assert!(cpu_meter.usage().peak_memory_bytes > Some(0), "{sample:?}");
    let asked_by_number = submitter.slurm.ask(&sacct::steps(&id, &[idle])).await.unwrap().text;
    assert_eq!(asked_by_number.lines().count(), 1, "only what was asked for");
}

#[tokio::test]
async fn a_canceled_allocation_is_recorded_as_canceled() {
    let submitter = Submitter::new();
    let held = Request { extra: Some("--mem=10M --hold"), ..SMALL };
    let id = submitter.submit("torc-wf2-a1", &held, "sleep 100").await;
    let job = submitter.queued(&id).await.unwrap();
    assert_eq!((job.state, job.reason.as_deref()), (SlurmState::Pending, Some("JobHeldUser")));
    let running = submitter.submit("torc-wf2-a2", &SMALL, "sleep 1000").await;
    submitter.until_running(&running).await;
    let left = submitter.queued(&running).await.unwrap();
    assert!(left.end.unwrap() - left.start.unwrap() == 300 && left.node_list.is_some(), "{left:?}");
    for _ in 0..2 {
        let answer = submitter.slurm.ask(&sbatch::cancel([id.as_str(), running.as_str()])).await;
        assert_eq!(sbatch::read_canceled(answer), Ok(()), "a second cancellation succeeds");
    }
    assert_eq!(submitter.end_of(&id).await, SlurmState::Cancelled);
    assert_eq!(submitter.end_of(&running).await, SlurmState::Cancelled);
}

#[tokio::test]
async fn a_step_that_runs_out_of_memory() {
    let submitter = Submitter::new();
    let line = step("wf3_j1_r1_a1", 30, "head -c 300m /dev/zero | tail");
    let id = submitter.submit("torc-wf3-a1", &SMALL, &format!("{line}; echo \"code $?\"")).await;
    submitter.end_of(&id).await;
    let account = submitter.account(&id, "wf3_j1_r1_a1").await;
    assert_eq!(account.state, SlurmState::OutOfMemory);
    assert_eq!(step_failure::cause(account.state, 1), Some(Cause::OutOfMemory), "{}", submitter.output(&id));
}

#[tokio::test]
async fn an_allocation_that_runs_out_of_time() {
    let submitter = Submitter::new();
    // Slurm may end the step a moment before the allocation. The script must not fail then, because that is no timeout.
    let line = format!("{}; sleep 1000", step("wf4_j1_r1_a1", 30, "sleep 1000"));
    let id = submitter.submit("torc-wf4-a1", &SMALL, &line).await;
    submitter.until_running(&id).await;
    // Slurm has no limits below a minute, but an administrator can move the end time.
    slurm().command("scontrol", &["update", &format!("JobId={id}"), "EndTime=now"]);
    assert_eq!(submitter.end_of(&id).await, SlurmState::Timeout);
}

#[tokio::test]
async fn a_preempted_allocation_is_requeued() {
    let submitter = Submitter::new();
    let first = Request { partition: Some("standby"), extra: Some("--exclusive --nodelist=n4"), ..SMALL };
    let id = submitter.submit("torc-wf5-a1", &first, "sleep 1000").await;
    submitter.until_running(&id).await;
    let taker = Request { extra: Some("--exclusive --nodelist=n4"), ..SMALL };
    let other = submitter.submit("torc-wf5-a2", &taker, "sleep 5").await;
    let look = || async { submitter.queued(&id).await.filter(|job| job.state != SlurmState::Running) };
    let job = wait_for_async("the preemption", look).await;
    assert!(matches!(job.state, SlurmState::Pending | SlurmState::ComingBack), "{job:?}");
    let detail = scontrol::read_jobs(&submitter.slurm.ask(&scontrol::job(&id)).await.unwrap().text);
    assert_eq!(detail[0].restarts, 1);
    let answer = submitter.slurm.ask(&sbatch::cancel([id.as_str(), other.as_str()])).await;
    sbatch::read_canceled(answer).unwrap();
}

#[tokio::test]
async fn a_runner_on_every_node_and_one_allocation_after_another() {
    let submitter = Submitter::new();
    let request = Request { nodes: 2, serialize: true, extra: Some("--mem=50M"), ..SMALL };
    let marker = |own| AllocationMarker { own, shared_name: Some("torc-wf6-sched1") };
    let mut ids = Vec::new();
    for own in ["torc-wf6-a1", "torc-wf6-a2"] {
        let text = submitter.script(&marker(own), &request, "echo \"on $SLURMD_NODENAME: $TORC_TOKEN\"; sleep 3", true);
        let answer = submitter.slurm.ask(&sbatch::submit(&text)).await.unwrap();
        ids.push(sbatch::read_number(&answer).unwrap().to_string());
    }
    let second = submitter.queued(&ids[1]).await.unwrap();
    assert_eq!((second.reason.as_deref(), second.name.as_str()), (Some("Dependency"), "torc-wf6-sched1"));
    assert_eq!(second.comment.as_deref(), Some("torc-wf6-a2"));
    assert_eq!(submitter.end_of(&ids[0]).await, SlurmState::Completed, "{}", submitter.output(&ids[0]));
    let mut lines: Vec<String> =
        submitter.output(&ids[0]).lines().filter(|line| line.starts_with("on ")).map(str::to_owned).collect();
    lines.sort();
    lines.dedup();
    assert_eq!(lines.len(), 2, "one on each of two nodes: {}", submitter.output(&ids[0]));
    assert!(lines.iter().all(|line| line.ends_with(": it's $ecret")), "{lines:?}");
    assert_eq!(submitter.end_of(&ids[1]).await, SlurmState::Completed);
}

#[tokio::test]
async fn texts_are_passed_unchanged() {
    let submitter = Submitter::new();
    let text = r##"a "b" \c #d 'e' $HOME =f, %g"##;
    let held = Request { extra: Some("--mem=10M --hold"), ..SMALL };
    let text_of_it =
        submitter.script(&AllocationMarker { own: text, shared_name: Some("torc-wf7-sched1") }, &held, "true", false);
    let id =
        sbatch::read_number(&submitter.slurm.ask(&sbatch::submit(&text_of_it)).await.unwrap()).unwrap().to_string();
    assert_eq!(submitter.queued(&id).await.unwrap().comment.as_deref(), Some(text));
    sbatch::read_canceled(submitter.slurm.ask(&sbatch::cancel([id.as_str()])).await).unwrap();

    let marker = AllocationMarker { own: "torc-wf7-a2", shared_name: None };
    let test = submitter.script(&marker, &SMALL, "true", false);
    let start = sbatch::read_start(&submitter.slurm.ask(&sbatch::test(&test)).await.unwrap()).unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64;
    assert!((start - now).abs() < 86_400, "{start} is not a time of today");
}

#[tokio::test]
async fn refusals_and_outages_of_slurm_are_distinguished() {
    let submitter = Submitter::new();
    let marker = AllocationMarker { own: "torc-wf8-a1", shared_name: None };
    let nowhere = Request { partition: Some("nowhere"), ..SMALL };
    let refused = submitter.slurm.ask(&sbatch::submit(&submitter.script(&marker, &nowhere, "true", false))).await;
    let Err(SlurmError::Refused { message: sentence }) = refused else { panic!("{refused:?}") };
    assert!(sentence.contains("Invalid partition name specified"), "{sentence}");
    for ids in [vec!["1"], vec!["1", "2"]] {
        assert_eq!(squeue::read_jobs(submitter.slurm.ask(&squeue::jobs(ids.clone())).await), Ok(Vec::new()), "{ids:?}");
        assert_eq!(submitter.slurm.ask(&sacct::jobs(ids)).await.unwrap().text, "");
    }
    // No conclusion is drawn from a Slurm whose controller is down.
    let conf = fs::read_to_string(slurm().conf()).unwrap();
    let away: String = conf
        .lines()
        .map(
            |line| {
                if line.starts_with("SlurmctldPort=") { "SlurmctldPort=1\n".to_owned() } else { format!("{line}\n") }
            },
        )
        .collect();
    fs::write(submitter.path("slurm.conf"), away).unwrap();
    let slurm = Slurm::new(&["env".to_owned(), format!("SLURM_CONF={}", submitter.path("slurm.conf"))]);
    let answer = squeue::read_jobs(slurm.ask(&squeue::jobs(["1"])).await);
    assert!(matches!(answer, Err(SlurmError::NoAnswer { maybe_delivered: false, .. })), "{answer:?}");
}
