//! A server process that a test can kill and restart.

use std::fs;
use std::path::PathBuf;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::{Call, Outcome, Running, TestEnv, eventually, text};

/// The command line of a server whose store is `data/lab.db`.
pub const SERVER: &str = "server --database data/lab.db -o json";

/// A server in a test environment, and calls of its clients.
pub struct Server {
    process: Option<Running>,
    /// The JSON that the server printed when it was ready.
    pub announced: Value,
    pub url: String,
}

impl Server {
    /// Starts a server on a free port of the loopback address and waits until it is ready.
    pub fn start(env: &TestEnv) -> Self {
        Self::with_flags(env, "--bind 127.0.0.1:0")
    }

    /// Starts a server with these flags and waits until it is ready.
    pub fn with_flags(env: &TestEnv, flags: &str) -> Self {
        Self::from_call(env, env.call(&format!("{SERVER} {flags}")))
    }

    /// Starts a call of `torc server -o json` and waits until it is ready.
    pub fn from_call(env: &TestEnv, call: Call) -> Self {
        fs::create_dir_all(env.path("client")).expect("a folder for clients");
        let process = call.start();
        let announced: Value =
            eventually("the server prints its address", || serde_json::from_str(&process.stdout()).ok());
        let url = text(&announced, "url");
        Self { process: Some(process), announced, url }
    }

    /// Starts a killed server again at the same address.
    pub fn start_again(&mut self, env: &TestEnv) {
        *self = Self::with_flags(env, &format!("--bind {}", self.address()));
    }

    /// Returns host and port.
    pub fn address(&self) -> &str {
        self.url.split_once("://").expect("a URL").1
    }

    /// Returns the port without the host.
    pub fn port(&self) -> &str {
        self.address().rsplit_once(':').expect("a port").1
    }

    /// Returns the process of the server.
    pub fn process(&self) -> &Running {
        self.process.as_ref().expect("a server that was not killed")
    }

    /// Returns the file with the administrator's token.
    pub fn admin_token(env: &TestEnv) -> PathBuf {
        env.path("data/lab.db.token")
    }

    /// Prepares a call with the administrator's token from a folder without a store.
    pub fn call(&self, env: &TestEnv, line: &str) -> Call {
        self.call_in(env, "client", line)
    }

    /// Prepares a call with the administrator's token from a folder, which it creates if needed.
    pub fn call_in(&self, env: &TestEnv, folder: &str, line: &str) -> Call {
        fs::create_dir_all(env.path(folder)).expect("a folder");
        let call = env.call(line).folder(env.path(folder)).env("TORC_API_URL", &self.url);
        call.env("TORC_TOKEN_FILE", Self::admin_token(env))
    }

    /// Runs a command with the administrator's token.
    pub fn torc(&self, env: &TestEnv, line: &str) -> Outcome {
        self.call(env, line).run()
    }

    /// Runs a command with another token file.
    pub fn torc_with_token(&self, env: &TestEnv, token_file: &str, line: &str) -> Outcome {
        self.call(env, line).env("TORC_TOKEN_FILE", env.path(token_file)).run()
    }

    /// Creates a token and stores it in a file.
    pub fn create_token(&self, env: &TestEnv, file: &str, flags: &str) {
        let made = self.torc(env, &format!("token create {flags}")).exits(0);
        env.write(file, made.stdout);
    }

    /// Returns the items of a list that a command prints.
    pub fn items(&self, env: &TestEnv, line: &str) -> Vec<Value> {
        let outcome = self.torc(env, &format!("{line} -o json")).exits(0);
        outcome.json()["items"].as_array().expect("a list").clone()
    }

    /// Returns the state of a job.
    pub fn state(&self, env: &TestEnv, workflow: &str, job: &str) -> String {
        let jobs = self.items(env, &format!("get jobs {workflow} --job {job}"));
        jobs[0]["status"].as_str().expect("a state").to_owned()
    }

    /// Kills the server with SIGKILL.
    pub fn kill(&mut self) {
        self.process.take().expect("a server that was not killed").kill();
    }

    /// Stops the server with SIGTERM and waits until it exits.
    pub fn stop(self) {
        self.end_with(Signal::SIGTERM);
    }

    /// Stops the server with SIGTERM or SIGINT and waits until it exits.
    pub fn end_with(mut self, signal: Signal) {
        let process = self.process.take().expect("a server that was not killed");
        process.signal(signal);
        process.finish().exits(0);
    }
}
