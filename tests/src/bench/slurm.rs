//! A real Slurm: the time of a step, the utilization of an allocation, and the rate of queries to Slurm.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use torc_tests::labs::slurm::SlurmLab;

use crate::report::{Bar, Report};
use crate::server::Server;

/// Number of nodes of the lab.
const NODES: usize = 4;
/// Time after which a workflow has failed.
const DEADLINE: Duration = Duration::from_secs(1_800);
/// The programs that a runner calls, replaced by scripts that count the calls.
const ASKED: [&str; 4] = ["squeue", "sstat", "sacct", "scontrol"];

/// Measures empty steps, as many at the same time as there are CPUs, and `srun` without Torc for comparison.
pub async fn measure_steps(torc: &Path, count: usize, report: &mut Report) -> Result<()> {
    let cpus = 4;
    let fixture = Fixture::start(torc, cpus).await?;
    let bare = fixture.time_bare_steps(20).await?;
    let jobs = json!([{ "name": "step_{i}", "command": "true", "resourceRequirements": "one", "parameters": { "i": format!("1:{count}") } }]);
    let seen = fixture.run("slurm", jobs, count, "").await?;
    let name = |what: &str| format!("{count} steps over {NODES} nodes x {cpus} CPUs: {what}");
    let milliseconds = seen.seconds * 1_000.0 / count as f64;
    report.record("one srun after another, without Torc", bare * 1_000.0, "ms");
    report.record(name("a step costs"), milliseconds, "ms");
    report.record(name("from a step's start to its end"), seen.work_seconds * 1_000.0 / count as f64, "ms");
    report.record(name("questions to Slurm"), seen.questions_a_minute, "/min");
    Ok(())
}

/// Measures sleeps of one to three seconds that a runner on each node starts.
pub async fn measure_direct(torc: &Path, count: usize, report: &mut Report) -> Result<()> {
    let cpus = 64;
    let each = count.div_ceil(3);
    let fixture = Fixture::start(torc, cpus).await?;
    let jobs: Vec<Value> = (1..=3)
        .map(|seconds| {
            json!({
                "name": format!("sleep_{seconds}_{{i}}"),
                "command": format!("sleep {seconds}"),
                "resourceRequirements": "one",
                "parameters": { "i": format!("1:{each}") },
            })
        })
        .collect();
    let launch = "srun --ntasks-per-node=1 --wait=0 --kill-on-bad-exit=0";
    let seen = fixture.run("direct", json!(jobs), 3 * each, launch).await?;
    let slots = (NODES * cpus) as f64;
    let name = |what: &str| format!("{} sleeps of 1-3 s over {NODES} nodes x {cpus} CPUs: {what}", 3 * each);
    report.record(name("took"), seen.seconds, "s");
    // Only the declared seconds count as work.
    let busy = (each * (1 + 2 + 3)) as f64 / (slots * seen.seconds) * 100.0;
    report.record_with_bar(name("slots busy"), busy, "%", Bar::AtLeast(95.0));
    report.record(name("questions to Slurm"), seen.questions_a_minute, "/min");
    Ok(())
}

/// The figures of a workflow.
struct Seen {
    /// Seconds from the first start to the last end.
    seconds: f64,
    /// Sum over all attempts.
    work_seconds: f64,
    questions_a_minute: f64,
}

/// A Slurm, a server and a folder.
struct Fixture {
    lab: SlurmLab,
    server: Server,
    folder: tempfile::TempDir,
    runner: PathBuf,
    cpus: usize,
}

impl Fixture {
    async fn start(torc: &Path, cpus: usize) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let server = Server::start(torc, &folder.path().join("torc.db")).await?;
        let runner = folder.path().join("torc-slurm-job-runner");
        std::os::unix::fs::symlink(torc.canonicalize()?, &runner)?;
        let fixture = Self { lab: SlurmLab::with_cpus(cpus), server, folder, runner, cpus };
        for program in ASKED {
            let script = format!("#!/bin/bash\necho {program} >> {}\nexec {program} \"$@\"\n", fixture.path("asked"));
            fs::write(fixture.path(program), script)?;
            fs::set_permissions(fixture.path(program), fs::Permissions::from_mode(0o755))?;
        }
        Ok(fixture)
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_string_lossy().into_owned()
    }

    /// Submits a shell script for all nodes.
    fn submit(&self, lines: &str) -> Result<String> {
        fs::write(self.path("run.sh"), format!("#!/bin/bash\n{lines}\n"))?;
        let cpus = format!("--cpus-per-task={}", self.cpus);
        let (output, script) = (self.path("out.%j"), self.path("run.sh"));
        let nodes = format!("--nodes={NODES}");
        let words = [
            "--parsable",
            "--ntasks-per-node=1",
            "--mem=3000M",
            "--time=60",
            &nodes,
            &cpus,
            "--output",
            &output,
            &script,
        ];
        Ok(self.lab.command("sbatch", &words).trim().to_owned())
    }

    /// Returns the seconds of one `srun` without Torc.
    async fn time_bare_steps(&self, count: usize) -> Result<f64> {
        let file = self.path("bare");
        self.submit(&format!(
            "unset SLURM_MEM_PER_NODE SLURM_CPUS_PER_TASK\nstart=$(date +%s%N)\n\
             for i in $(seq {count}); do srun --ntasks=1 --nodes=1 --exact --mem=1M --cpus-per-task=1 true; done\n\
             echo $(($(date +%s%N) - start)) > {file}.new && mv {file}.new {file}"
        ))?;
        let nanoseconds = self.until("the steps by hand", || fs::read_to_string(&file).ok()).await?;
        Ok(nanoseconds.trim().parse::<f64>()? / 1e9 / count as f64)
    }

    /// Runs a workflow in an allocation of all nodes.
    async fn run(&self, mode: &str, jobs: Value, count: usize, launch: &str) -> Result<Seen> {
        let document = json!({
            "apiVersion": "torc.dev/v1alpha1",
            "metadata": { "name": "w" },
            "spec": {
                "executionConfig": { "mode": mode },
                // A shell uses more than 1 MiB and is killed where memory is limited.
                "resourceRequirements": [{ "name": "one", "numCpus": 1, "memory": "16m", "runtime": "PT1M" }],
                "jobs": jobs,
            },
        });
        self.server.post("/v1/workflows", &json!({ "document": document, "workingDir": self.path("") })).await?;
        let fakes: String = ASKED
            .map(|program| format!("export TORC_FAKE_{}={}\n", program.to_uppercase(), self.path(program)))
            .concat();
        let began = Instant::now();
        self.submit(&format!(
            "{fakes}export TORC_TOKEN_FILE={}\nexec {launch} {} {} w {}",
            self.path("token"),
            self.runner.display(),
            self.server.url,
            self.path("out"),
        ))?;
        let results = loop {
            ensure!(began.elapsed() < DEADLINE, "not done in {DEADLINE:?}");
            tokio::time::sleep(Duration::from_secs(1)).await;
            let workflow = self.server.get("/v1/workflows/w").await?;
            let failed = workflow["status"]["jobs"]["failed"].as_u64().unwrap_or_default();
            ensure!(failed == 0, "{failed} jobs have failed: {}", workflow["status"]["failures"]);
            if workflow["status"]["jobs"]["completed"].as_u64() == Some(count as u64) {
                break self.server.results("w", count).await?;
            }
        };
        let minutes = began.elapsed().as_secs_f64() / 60.0;
        let asked = fs::read_to_string(self.path("asked")).unwrap_or_default().lines().count();
        let seconds =
            |time: &str| -> Result<f64> { Ok(time.parse::<jiff::Timestamp>()?.as_millisecond() as f64 / 1_000.0) };
        let (mut first, mut last, mut work_seconds) = (f64::MAX, f64::MIN, 0.0);
        for result in &results {
            first = first.min(seconds(result.start_time.as_deref().context("no time")?)?);
            last = last.max(seconds(&result.end_time)?);
            work_seconds += result.duration_seconds;
        }
        Ok(Seen { seconds: last - first, work_seconds, questions_a_minute: asked as f64 / minutes })
    }

    async fn until<T>(&self, what: &str, look: impl Fn() -> Option<T>) -> Result<T> {
        let began = Instant::now();
        while began.elapsed() < DEADLINE {
            if let Some(found) = look() {
                return Ok(found);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bail!("waited {DEADLINE:?} for {what}")
    }
}
