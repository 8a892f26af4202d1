//! A `torc server` on a loopback port.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use torc_api::api::JobResult;

/// Clock ticks per second, the unit of CPU time in `/proc`.
const TICKS: f64 = 100.0;

pub struct Server {
    child: Child,
    pub url: String,
    token: String,
    client: reqwest::Client,
}

impl Server {
    /// Starts a server and waits until it answers.
    pub async fn start(torc: &Path, database: &Path) -> Result<Self> {
        let token_file = database.with_file_name("token");
        let mut child = Command::new(torc)
            .args(["server", "--bind", "127.0.0.1:0", "--database"])
            .arg(database)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", torc.display()))?;
        let url = read_url(&mut child)?;
        let token = std::fs::read_to_string(&token_file)?.trim().to_owned();
        // Fails only if a provider is already installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let server = Self { child, url, token, client: reqwest::Client::new() };
        server.wait_until_ready().await?;
        Ok(server)
    }

    pub fn token(&self) -> &str {
        &self.token
    }

    /// Returns an HTTP client for one simulated node.
    pub fn client(&self) -> reqwest::Client {
        self.client.clone()
    }

    async fn wait_until_ready(&self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(60);
        while Instant::now() < deadline {
            if let Ok(answer) = self.client.get(format!("{}/readyz", self.url)).send().await
                && answer.status().is_success()
            {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        bail!("the server did not become ready")
    }

    pub async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        let request = self.client.post(format!("{}{path}", self.url)).bearer_auth(&self.token).json(body);
        let response = request.send().await?;
        let status = response.status();
        let body = response.bytes().await?;
        ensure!(status.is_success(), "{path}: {status}: {}", String::from_utf8_lossy(&body));
        Ok(serde_json::from_slice(&body)?)
    }

    pub async fn get(&self, path: &str) -> Result<Value> {
        let request = self.client.get(format!("{}{path}", self.url)).bearer_auth(&self.token);
        Ok(serde_json::from_slice(&request.send().await?.error_for_status()?.bytes().await?)?)
    }

    /// Returns the results of a workflow. Fails unless there is one for each of its jobs.
    pub async fn results(&self, workflow: &str, jobs: usize) -> Result<Vec<JobResult>> {
        let mut results = Vec::new();
        let mut cursor = String::new();
        loop {
            let mut page = self.get(&format!("/v1/workflows/{workflow}/results?limit=5000{cursor}")).await?;
            results.extend(serde_json::from_value::<Vec<JobResult>>(page["items"].take())?);
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        ensure!(results.len() == jobs, "{} results of {jobs} jobs", results.len());
        Ok(results)
    }

    /// Sends a typed request, which costs a simulated runner less CPU time than `post`.
    pub async fn call<Q: serde::Serialize, A: serde::de::DeserializeOwned>(&self, path: &str, body: &Q) -> Result<A> {
        let request = self.client.post(format!("{}{path}", self.url)).bearer_auth(&self.token).json(body);
        let response = request.send().await?.error_for_status()?;
        Ok(serde_json::from_slice(&response.bytes().await?)?)
    }

    /// Returns the CPU seconds that the server has used.
    pub fn cpu_seconds(&self) -> Result<f64> {
        let stat = std::fs::read_to_string(self.proc("stat"))?;
        let fields: Vec<&str> = stat.rsplit_once(')').context("odd stat")?.1.split_whitespace().collect();
        let ticks = |index: usize| -> Result<f64> { Ok(fields.get(index).context("odd stat")?.parse()?) };
        Ok((ticks(11)? + ticks(12)?) / TICKS)
    }

    /// Returns the resident memory of the server in bytes.
    pub fn resident_bytes(&self) -> Result<f64> {
        let status = std::fs::read_to_string(self.proc("status"))?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("odd status")?;
        let kilobytes: f64 = line.split_whitespace().nth(1).context("odd status")?.parse()?;
        Ok(kilobytes * 1024.0)
    }

    fn proc(&self, file: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{file}", self.child.id()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // SIGKILL is safe here: the database is temporary.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_url(child: &mut Child) -> Result<String> {
    let stdout = child.stdout.take().context("no output")?;
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        if let Some(start) = line.find("http://") {
            let url: String = line[start..].chars().take_while(|c| !c.is_whitespace()).collect();
            return Ok(url.trim_end_matches(['.', ',']).to_owned());
        }
    }
    bail!("the server exited before it printed its address")
}
