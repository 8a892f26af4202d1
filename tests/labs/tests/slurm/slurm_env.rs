//! A test environment whose commands use the real Slurm of a suite.

use serde_json::Value;
use torc_tests::env::{Call, Outcome, TestEnv};
use torc_tests::labs::slurm::SlurmLab;

/// A folder on a login node of a Slurm cluster.
pub struct SlurmEnv {
    pub env: TestEnv,
    pub slurm: SlurmLab,
    /// Seconds between two queries of the server to Slurm.
    poll_interval: u32,
}

impl SlurmEnv {
    /// Creates an environment whose server queries Slurm every second.
    pub fn new(slurm: SlurmLab) -> Self {
        Self { env: TestEnv::new(), slurm, poll_interval: 1 }
    }

    /// Creates an environment whose server queries Slurm only at its start and on request.
    pub fn without_polling(slurm: SlurmLab) -> Self {
        Self { env: TestEnv::new(), slurm, poll_interval: 600 }
    }

    /// Prepares a call of `torc`.
    pub fn call(&self, line: &str) -> Call {
        let call = self.env.call(line).env("SLURM_CONF", self.slurm.conf());
        call.env("TORC_SERVER_SLURM_POLL_INTERVAL", self.poll_interval.to_string())
    }

    /// Runs `torc` and waits until it exits.
    pub fn torc(&self, line: &str) -> Outcome {
        self.call(line).run()
    }

    /// Returns the JSON that a command prints.
    pub fn json(&self, line: &str) -> Value {
        self.call(line).arg("-o").arg("json").run().exits(0).json()
    }

    /// Returns the items of a list that a command prints.
    pub fn items(&self, line: &str) -> Vec<Value> {
        self.json(line)["items"].as_array().unwrap().clone()
    }

    /// Returns whether an allocation is pending or active.
    pub fn is_live(row: &Value) -> bool {
        row["status"] == "pending" || row["status"] == "active"
    }

    /// Returns the Slurm jobs of the allocations that match, or none before there is a store.
    pub fn slurm_jobs(&self, matches: impl Fn(&Value) -> bool) -> Vec<String> {
        let outcome = self.torc("get allocations -o json");
        let list: Value = serde_json::from_str(&outcome.stdout).unwrap_or_default();
        let rows = list["items"].as_array().cloned().unwrap_or_default();
        rows.iter().filter(|row| matches(row)).filter_map(|row| Some(row["slurmJobId"].as_str()?.to_owned())).collect()
    }
}

impl Drop for SlurmEnv {
    fn drop(&mut self) {
        // The Slurm is shared, so the allocations of a failed test are canceled.
        for id in self.slurm_jobs(Self::is_live) {
            self.slurm.attempt("scancel", &[&id]);
        }
    }
}
