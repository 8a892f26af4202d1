//! User data: values that jobs exchange, and the jobs that have read outdated values.
//!
//! A change has a number from the sequence of leases. The number of the latest lease of a job therefore identifies the values that it was given.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;
use torc_api::event_reason::EventReason;
use torc_api::state::JobState;

use super::tx::Tx;
use super::workflow::LiveWorkflow;
use super::workflow::undeclared;
use super::{CommandError, Engine};
use crate::expand::fill_data;
use crate::expanded::Expanded;
use crate::ids::{JobId, WorkflowId};
use crate::lineage;
use crate::rows::UserDataRow;

/// Maximum size of a value as JSON. Values stay in memory and are sent with each lease that names them.
pub const MAX_VALUE_BYTES: usize = 1 << 20;

/// The effect of writing a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataWritten {
    /// True if the value differs from the one before.
    pub changed: bool,
    /// Number of completed jobs that have read the earlier value.
    pub stale_jobs: i64,
}

impl Engine {
    /// Writes a value, or deletes the written one. `job`: the job that writes; none for a user.
    pub fn write_data(
        &mut self,
        id: WorkflowId,
        name: &str,
        value: Option<Value>,
        job: Option<&str>,
        tx: &mut Tx,
    ) -> Result<DataWritten, CommandError> {
        check_name(name)?;
        check_size(name, value.as_ref())?;
        let workflow = self.workflows.require_mut(id)?;
        let job = job.and_then(|job| workflow.graph.find(job)).map(|job| workflow.graph.job(job).id());
        let before = workflow.data.get(name);
        if before.is_none() && value.is_none() {
            return Err(CommandError::NoData { workflow: workflow.row().name.clone(), name: name.to_owned() });
        }
        let row = UserDataRow { written: value, job, ..before.cloned().unwrap_or_else(|| undeclared(id, name)) };
        if before.is_some_and(|before| before.value() == row.value()) && row.value().is_some() {
            return Ok(DataWritten::default());
        }
        workflow.data.put(row, tx);
        let verb = if workflow.data.get(name).is_some_and(|row| row.written.is_some()) { "written" } else { "deleted" };
        tx.event(Some(id), EventReason::UserDataChanged, format!("user data `{name}` was {verb}"));
        let stale_jobs = workflow.stale_readers(name).count() as i64;
        Ok(DataWritten { changed: true, stale_jobs })
    }

    /// Returns the completed jobs that have read outdated user data, with the name of the data.
    pub fn stale_jobs(&self, id: WorkflowId) -> Result<Vec<(String, String)>, CommandError> {
        let workflow = self.workflows.require(id)?;
        let stale = |job| Some((workflow.graph.name(job).to_owned(), workflow.stale_data(job)?.to_owned()));
        Ok(workflow.graph.ordinals().filter_map(stale).collect())
    }

    /// Returns the user data without a value that jobs read and no job writes, with one reader of each.
    pub fn missing_data(&self, id: WorkflowId) -> Result<Vec<(String, String)>, CommandError> {
        let workflow = self.workflows.require(id)?;
        let profiles = || workflow.graph.ordinals().map(|job| (job, workflow.graph.profile(job)));
        let written: std::collections::HashSet<&str> =
            profiles().flat_map(|(_, profile)| &profile.output_user_data).map(String::as_str).collect();
        let mut missing = BTreeMap::new();
        for (job, profile) in profiles() {
            let is_missing = |name: &&String| !written.contains(name.as_str()) && workflow.data.value(name).is_none();
            for name in profile.input_user_data.iter().filter(is_missing) {
                missing.entry(name.clone()).or_insert_with(|| workflow.graph.name(job).to_owned());
            }
        }
        Ok(missing.into_iter().collect())
    }

    /// Returns the names of jobs that match.
    pub fn known_jobs(&self, id: WorkflowId, matches: impl Fn(&str) -> bool) -> Result<Vec<String>, CommandError> {
        let workflow = self.workflows.require(id)?;
        let names = workflow.graph.ordinals().map(|job| workflow.graph.name(job));
        Ok(names.filter(|name| matches(name)).map(str::to_owned).collect())
    }

    /// Returns the command of a job with its current user data.
    pub fn filled_command(&self, id: WorkflowId, job: JobId) -> Option<String> {
        let workflow = self.workflows.get(&id)?;
        workflow.graph.ordinal(job).map(|job| workflow.filled_command(job))
    }
}

fn check_name(name: &str) -> Result<(), CommandError> {
    if name.is_empty() || name.chars().any(char::is_control) {
        return Err(CommandError::Invalid(
            "the name of user data must not be empty or contain control characters".to_owned(),
        ));
    }
    if name.starts_with(lineage::PREFIX) {
        let message = format!("names that begin with `{}` are reserved for loops of spawned jobs", lineage::PREFIX);
        return Err(CommandError::Invalid(message));
    }
    Ok(())
}

fn check_size(name: &str, value: Option<&Value>) -> Result<(), CommandError> {
    let size = value.map_or(0, |value| value.to_string().len());
    if size > MAX_VALUE_BYTES {
        let message = format!(
            "user data `{name}` has {size} bytes; the limit is {MAX_VALUE_BYTES}: write a file and pass its path"
        );
        return Err(CommandError::Invalid(message));
    }
    Ok(())
}

impl LiveWorkflow {
    /// Adds the user data of a new or edited document.
    pub(super) fn declare_data(&mut self, expanded: &Expanded, tx: &mut Tx) {
        let (id, graph) = (self.id(), &self.graph);
        self.data.declare(id, expanded, |job| graph.ordinal(job).is_some(), tx);
    }

    /// Returns an error message if an input of a job has no value.
    pub(super) fn missing_input(&self, job: u32) -> Option<String> {
        let name = self.graph.profile(job).input_user_data.iter().find(|name| self.data.value(name).is_none())?;
        let writer = |job: &u32| self.graph.profile(*job).output_user_data.contains(name);
        Some(match self.graph.ordinals().find(writer) {
            Some(writer) => {
                format!("user data `{name}` has no value: job '{}' did not write it", self.graph.name(writer))
            }
            None => format!("user data `{name}` has no value"),
        })
    }

    /// Returns the name of user data that has changed since a completed job has read it.
    pub(super) fn stale_data(&self, job: u32) -> Option<&str> {
        let record = self.graph.job(job);
        if record.state() != JobState::Completed {
            return None;
        }
        // A value that the job wrote itself while it ran is not new to it.
        let newer = |row: &&UserDataRow| row.lease_id > record.lease_id() && row.job != Some(record.id());
        let inputs = self.graph.profile(job).input_user_data.iter();
        inputs.filter_map(|name| self.data.get(name)).find(newer).map(|row| row.name.as_str())
    }

    /// Returns the completed jobs that have read an outdated value.
    fn stale_readers<'a>(&'a self, name: &'a str) -> impl Iterator<Item = u32> + 'a {
        let reads = move |job: &u32| self.graph.profile(*job).input_user_data.iter().any(|input| input == name);
        self.graph.ordinals().filter(reads).filter(|job| self.stale_data(*job).is_some())
    }

    /// Returns the command of a job with the user data that it reads.
    pub(super) fn filled_command(&self, job: u32) -> String {
        self.filled(self.graph.command(job), &self.graph.profile(job).input_user_data).into_owned()
    }

    /// Returns a text in which the placeholders of these user data are replaced by their values.
    pub(super) fn filled<'t>(&self, text: &'t str, names: &[String]) -> Cow<'t, str> {
        if names.is_empty() {
            return Cow::Borrowed(text);
        }
        fill_data(text, |name| names.iter().any(|known| known == name).then(|| self.data.value(name)).flatten())
    }
}
