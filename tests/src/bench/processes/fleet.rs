//! A server and local runners as processes, in a temporary folder. They end when the fleet is dropped.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use jiff::Timestamp;
use serde_json::json;
use tokio::process::{Child, Command};
use torc_sim::document::document;
use torc_sim::{RunnerPlan, WorkflowPlan};
use torc_tests::env::TestEnv;

use crate::server::Server;

/// Interval at which the server is polled for runners and completed jobs: rarely enough to cost no CPU.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Time after which a start or a workflow has failed: several times as long as the longest shape.
const RUN_TIMEOUT: Duration = Duration::from_secs(60);

/// The recorded schedule of a workflow.
pub struct Schedule {
    /// From the creation of the workflow to the end of its last job.
    pub makespan: Duration,
    /// From the creation of the workflow to the start of its first job.
    pub first_start: Duration,
    /// Number of jobs of each runner that ran any, largest first.
    pub jobs_of_runners: Vec<usize>,
}

/// A server and its runners. Fields are dropped in this order; the environment kills what the runners leave behind.
pub struct Fleet {
    /// Runners by the name of their host.
    runners: BTreeMap<String, Child>,
    server: Server,
    env: TestEnv,
}

impl Fleet {
    /// Starts a server and runners, and waits until all runners have registered.
    pub async fn start(torc: &Path, plans: &[RunnerPlan]) -> Result<Self> {
        let env = TestEnv::new();
        let server = Server::start(torc, &env.path("torc.db")).await?;
        let mut fleet = Self { runners: BTreeMap::new(), server, env };
        for plan in plans {
            let runner = fleet.start_runner(torc, plan)?;
            fleet.runners.insert(plan.host.clone(), runner);
        }
        fleet.wait_until_registered(plans.len()).await?;
        Ok(fleet)
    }

    fn start_runner(&self, torc: &Path, plan: &RunnerPlan) -> Result<Child> {
        let folder = self.env.path(&plan.host);
        fs::create_dir(&folder)?;
        Command::new(torc)
            .arg("runner")
            .args(["--num-cpus", &plan.capacity.cpus.to_string()])
            .args(["--memory", &plan.capacity.memory_bytes.to_string()])
            .args(["--num-gpus", &plan.capacity.gpus.to_string()])
            .current_dir(&folder)
            .env_clear()
            .envs(self.env.marks())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &folder)
            .env("XDG_RUNTIME_DIR", self.env.path(".test/run"))
            .env("TORC_API_URL", &self.server.url)
            .env("TORC_TOKEN", self.server.token())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(self.log_path(&plan.host))?)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", torc.display()))
    }

    async fn wait_until_registered(&self, count: usize) -> Result<()> {
        let deadline = Instant::now() + RUN_TIMEOUT;
        while Instant::now() < deadline {
            let list = self.server.get("/v1/runners").await?;
            let runners = list["items"].as_array().context("no list of runners")?;
            if runners.iter().filter(|runner| runner["status"] == "active").count() == count {
                return Ok(());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        bail!("the runners did not register in {RUN_TIMEOUT:?}:\n{}", self.runner_logs())
    }

    /// Applies a workflow whose jobs sleep, and waits until they have completed.
    pub async fn run(&self, plan: &WorkflowPlan) -> Result<Schedule> {
        let mut document = document(plan);
        for (job, plan) in document.spec.jobs.iter_mut().zip(&plan.jobs) {
            job.command = format!("sleep {}", plan.duration.as_secs_f64());
        }
        let request = json!({ "document": document, "workingDir": self.env.folder() });
        self.server.post("/v1/workflows", &request).await?;
        let created = self.wait_until_completed(plan).await?;
        let results = self.server.results(&plan.name, plan.jobs.len()).await?;
        let (mut start, mut end, mut jobs_of_runners) = (Timestamp::MAX, created, BTreeMap::<i64, usize>::new());
        for result in &results {
            start = start.min(result.start_time.as_deref().context("a result without a start")?.parse()?);
            end = end.max(result.end_time.parse()?);
            *jobs_of_runners.entry(result.runner.context("a result without a runner")?).or_default() += 1;
        }
        let mut jobs_of_runners: Vec<usize> = jobs_of_runners.into_values().collect();
        jobs_of_runners.sort_unstable_by(|left, right| right.cmp(left));
        let since_creation = |time: Timestamp| Duration::try_from(time.duration_since(created));
        Ok(Schedule { makespan: since_creation(end)?, first_start: since_creation(start)?, jobs_of_runners })
    }

    /// Returns the time at which the workflow was created.
    async fn wait_until_completed(&self, plan: &WorkflowPlan) -> Result<Timestamp> {
        let deadline = Instant::now() + RUN_TIMEOUT;
        while Instant::now() < deadline {
            let workflow = self.server.get(&format!("/v1/workflows/{}", plan.name)).await?;
            let jobs = |state: &str| workflow["status"]["jobs"][state].as_u64().unwrap_or_default();
            ensure!(jobs("failed") == 0, "{} jobs have failed: {}", jobs("failed"), workflow["status"]["failures"]);
            if jobs("completed") == plan.jobs.len() as u64 {
                return Ok(workflow["creationTime"].as_str().context("no time of creation")?.parse()?);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        bail!("workflow '{}' did not complete in {RUN_TIMEOUT:?}:\n{}", plan.name, self.runner_logs())
    }

    fn log_path(&self, host: &str) -> PathBuf {
        self.env.path(&format!("{host}.log"))
    }

    /// Returns everything that the runners have printed.
    fn runner_logs(&self) -> String {
        self.runners.keys().map(|host| fs::read_to_string(self.log_path(host)).unwrap_or_default()).collect()
    }
}
