//! A server as a process of its own, which may die and come back.

use std::fs;
use std::path::PathBuf;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::{Call, Outcome, Running, TestEnv, eventually, text};

/// The command line of a server whose store is `data/lab.db`.
pub const SERVER: &str = "server --database data/lab.db -o json";

/// A server of a test environment, and calls of its clients.
pub struct Server {
    process: Option<Running>,
    /// The JSON that it printed when it was ready.
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

    /// Starts a server that was killed again, at the same address.
    pub fn start_again(&mut self, env: &TestEnv) {
        *self = Self::with_flags(env, &format!("--bind {}", self.address()));
    }

    /// Host and port.
    pub fn address(&self) -> &str {
        self.url.split_once("://").expect("a URL").1
    }

    /// The port alone.
    pub fn port(&self) -> &str {
        self.address().rsplit_once(':').expect("a port").1
    }

    /// The process of the server.
    pub fn process(&self) -> &Running {
        self.process.as_ref().expect("a server that was not killed")
    }

    /// The file with the token of the administrator.
    pub fn admin_token(env: &TestEnv) -> PathBuf {
        env.path("data/lab.db.token")
    }

    /// A call of an administrator, from a folder without a store.
    pub fn call(&self, env: &TestEnv, line: &str) -> Call {
        self.call_in(env, "client", line)
    }

    /// A call of an administrator, from a folder that is made if it is not there.
    pub fn call_in(&self, env: &TestEnv, folder: &str, line: &str) -> Call {
        fs::create_dir_all(env.path(folder)).expect("a folder");
        let call = env.call(line).folder(env.path(folder)).env("TORC_API_URL", &self.url);
        call.env("TORC_TOKEN_FILE", Self::admin_token(env))
    }

    /// Runs a call of an administrator.
    pub fn torc(&self, env: &TestEnv, line: &str) -> Outcome {
        self.call(env, line).run()
    }

    /// Runs a call with another token file.
    pub fn torc_with_token(&self, env: &TestEnv, token_file: &str, line: &str) -> Outcome {
        self.call(env, line).env("TORC_TOKEN_FILE", env.path(token_file)).run()
    }

    /// Makes a token and stores it in a file.
    pub fn create_token(&self, env: &TestEnv, file: &str, flags: &str) {
        let made = self.torc(env, &format!("token create {flags}")).exits(0);
        env.write(file, made.stdout);
    }

    /// The items of a list.
    pub fn items(&self, env: &TestEnv, line: &str) -> Vec<Value> {
        let outcome = self.torc(env, &format!("{line} -o json")).exits(0);
        outcome.json()["items"].as_array().expect("a list").clone()
    }

    /// The state of a job.
    pub fn state(&self, env: &TestEnv, workflow: &str, job: &str) -> String {
        let jobs = self.items(env, &format!("get jobs {workflow} --job {job}"));
        jobs[0]["status"].as_str().expect("a state").to_owned()
    }

    /// Ends it with `kill -9`.
    pub fn kill(&mut self) {
        self.process.take().expect("a server that was not killed").kill();
    }

    /// Ends it with SIGTERM and waits for its end.
    pub fn stop(self) {
        self.end_with(Signal::SIGTERM);
    }

    /// Ends it with a signal that asks it to leave, and waits for its end.
    pub fn end_with(mut self, signal: Signal) {
        let process = self.process.take().expect("a server that was not killed");
        process.signal(signal);
        process.finish().exits(0);
    }
}
