//! A server as a process of its own, which may die and come back.

use std::fs;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::{Call, Lab, Outcome, Running, eventually};

/// A server of a lab, and how to talk to it.
pub struct Server {
    process: Option<Running>,
    /// Where it listens.
    pub url: String,
}

impl Server {
    /// Starts one and waits until it has said where it is.
    pub fn start(lab: &Lab, bind: &str) -> Self {
        let process = lab.start(&format!("server --bind {bind} --database data/lab.db -o json"));
        let url = eventually("the server says where it is", || {
            let said: Value = serde_json::from_str(&process.stdout()).ok()?;
            Some(said["url"].as_str()?.to_owned())
        });
        Self { process: Some(process), url }
    }

    /// One that was killed comes back at the same address.
    pub fn start_again(&mut self, lab: &Lab) {
        *self = Self::start(lab, self.address());
    }

    /// Host and port.
    pub fn address(&self) -> &str {
        self.url.strip_prefix("http://").expect("a URL")
    }

    /// A call as a client of this server, from a folder without a store.
    pub fn call(&self, lab: &Lab, line: &str) -> Call {
        fs::create_dir_all(lab.path("client")).expect("a folder");
        lab.call(line)
            .folder(lab.path("client"))
            .env("TORC_API_URL", &self.url)
            .env("TORC_TOKEN_FILE", lab.path("data/lab.db.token"))
    }

    /// Such a call, to its end.
    pub fn torc(&self, lab: &Lab, line: &str) -> Outcome {
        self.call(lab, line).run()
    }

    /// The items of a list.
    pub fn items(&self, lab: &Lab, line: &str) -> Vec<Value> {
        let outcome = self.torc(lab, &format!("{line} -o json")).exits(0);
        outcome.json()["items"].as_array().expect("a list").clone()
    }

    /// A job's state.
    pub fn state(&self, lab: &Lab, workflow: &str, job: &str) -> String {
        let jobs = self.items(lab, &format!("get jobs {workflow} --job {job}"));
        jobs[0]["status"].as_str().expect("a state").to_owned()
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.process.take().expect("it lives").kill();
    }

    /// Ends it in order.
    pub fn stop(mut self) {
        let process = self.process.take().expect("it lives");
        process.signal(Signal::SIGTERM);
        process.finish().exits(0);
    }
}
