//! Maps the numbers of the engine to the jobs of the scenario.

use std::collections::{BTreeMap, HashMap};

use torc_api::wire::AttemptKey;

use crate::workload::{JobRef, Scenario};

/// The jobs of a scenario by workflow number and name.
#[derive(Debug)]
pub struct JobIndex {
    workflows: BTreeMap<i64, usize>,
    /// Only looked up, never iterated: its order must not decide anything.
    names: Vec<HashMap<String, usize>>,
}

impl JobIndex {
    /// Returns the index of a scenario of which nothing is applied yet.
    pub fn new(scenario: &Scenario) -> Self {
        let names = scenario
            .workflows
            .iter()
            .map(|workflow| workflow.jobs.iter().enumerate().map(|(number, job)| (job.name.clone(), number)).collect());
        Self { workflows: BTreeMap::new(), names: names.collect() }
    }

    /// Records the number of an applied workflow.
    pub fn applied(&mut self, workflow: usize, number: i64) {
        self.workflows.insert(number, workflow);
    }

    /// Returns the job of an attempt.
    pub fn find(&self, key: &AttemptKey, name: &str) -> Option<JobRef> {
        let workflow = *self.workflows.get(&key.workflow)?;
        let job = *self.names.get(workflow)?.get(name)?;
        Some(JobRef { workflow, job })
    }
}
