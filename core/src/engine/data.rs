//! Values that jobs exchange: what the document says, what was written since, and who has to run again because of it.
//!
//! A change takes a number from the sequence of leases. So the number of a job's latest lease says which values it was given,
//! and nothing else has to be remembered.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;
use torc_api::event_reason::EventReason;
use torc_api::state::{Cause, JobState};
use torc_api::wire::{AttemptKey, FinishedAttempt};

use super::held_leases::LeaseTarget;
use super::tx::Tx;
use super::user_data::undeclared;
use super::workflow::Workflow;
use super::{CommandError, Engine};
use crate::expand::fill_data;
use crate::expanded::Expanded;
use crate::ids::{JobId, RunnerId, WorkflowId};
use crate::lineage;
use crate::rows::UserDataRow;

/// The largest value, as JSON. Values are kept in memory and travel with every lease that names them.
pub const LARGEST_VALUE: usize = 1 << 20;

/// What became of a value that somebody wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataWritten {
    /// It is not what was there before.
    pub changed: bool,
    /// Jobs that have completed with the value before it.
    pub stale_jobs: i64,
}

impl Engine {
    /// Writes a value, or takes back what was written. `job` is the one that writes; none for a person.
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
        let workflow = self.workflows.get_mut(&id).ok_or_else(|| CommandError::NoWorkflow(id.to_string()))?;
        let job = job.and_then(|job| workflow.graph.find(job)).map(|job| workflow.graph.job(job).id());
        let before = workflow.data.get(name);
        if before.is_none() && value.is_none() {
            return Err(CommandError::NoData { workflow: workflow.row.name.clone(), name: name.to_owned() });
        }
        let row = UserDataRow { written: value, job, ..before.cloned().unwrap_or_else(|| undeclared(id, name)) };
        if before.is_some_and(|before| before.value() == row.value()) && row.value().is_some() {
            return Ok(DataWritten::default());
        }
        workflow.data.put(row, tx);
        let verb =
            if workflow.data.get(name).is_some_and(|row| row.written.is_some()) { "written" } else { "taken back" };
        tx.event(Some(id), EventReason::UserDataChanged, format!("user data `{name}` was {verb}"));
        let stale_jobs = workflow.stale_readers(name).count() as i64;
        Ok(DataWritten { changed: true, stale_jobs })
    }

    /// A job that is about to be given out lacks a value that it reads. It fails here, before anybody starts it.
    pub(super) fn fail_without_data(
        &mut self,
        runner: RunnerId,
        target: LeaseTarget,
        key: AttemptKey,
        message: String,
        tx: &mut Tx,
    ) {
        let finished = FinishedAttempt {
            key,
            return_code: 126,
            cause: Some(Cause::StartFailed),
            message: Some(message),
            ..FinishedAttempt::default()
        };
        self.drop_lease(target, Some(runner));
        self.end_lease(target, &finished, None, tx);
    }

    /// Jobs that have completed with data that has changed since: (job, data), by name.
    pub fn stale_jobs(&self, id: WorkflowId) -> Result<Vec<(String, String)>, CommandError> {
        let workflow = self.workflow(id)?;
        let stale = |job| Some((workflow.graph.name(job).to_owned(), workflow.stale_data(job)?.to_owned()));
        Ok(workflow.graph.all().filter_map(stale).collect())
    }

    /// Data that a job reads, nobody writes and nobody has given a value: (data, one of its readers), by name.
    pub fn missing_data(&self, id: WorkflowId) -> Result<Vec<(String, String)>, CommandError> {
        let workflow = self.workflow(id)?;
        let profiles = || workflow.graph.all().map(|job| (job, workflow.graph.profile(job)));
        let written: std::collections::HashSet<&str> =
            profiles().flat_map(|(_, profile)| &profile.output_user_data).map(String::as_str).collect();
        let mut missing = BTreeMap::new();
        for (job, profile) in profiles() {
            let lacks = |name: &&String| !written.contains(name.as_str()) && workflow.data.value(name).is_none();
            for name in profile.input_user_data.iter().filter(lacks) {
                missing.entry(name.clone()).or_insert_with(|| workflow.graph.name(job).to_owned());
            }
        }
        Ok(missing.into_iter().collect())
    }

    /// The names of jobs that are wanted, of those that there are.
    pub fn known_jobs(&self, id: WorkflowId, wanted: impl Fn(&str) -> bool) -> Result<Vec<String>, CommandError> {
        let workflow = self.workflow(id)?;
        let names = workflow.graph.all().map(|job| workflow.graph.name(job));
        Ok(names.filter(|name| wanted(name)).map(str::to_owned).collect())
    }

    /// A job's command with the data that it would be given now.
    pub fn filled_command(&self, id: WorkflowId, job: JobId) -> Option<String> {
        let workflow = self.workflows.get(&id)?;
        workflow.graph.ordinal(job).map(|job| workflow.filled_command(job))
    }
}

fn check_name(name: &str) -> Result<(), CommandError> {
    if name.is_empty() || name.chars().any(char::is_control) {
        return Err(CommandError::Invalid("user data needs a name without control characters".to_owned()));
    }
    if name.starts_with(lineage::PREFIX) {
        let message = format!("names that begin with `{}` belong to loops of spawned jobs", lineage::PREFIX);
        return Err(CommandError::Invalid(message));
    }
    Ok(())
}

fn check_size(name: &str, value: Option<&Value>) -> Result<(), CommandError> {
    let size = value.map_or(0, |value| value.to_string().len());
    if size > LARGEST_VALUE {
        let message = format!(
            "user data `{name}` has {size} bytes, and {LARGEST_VALUE} is the limit: write a file and pass its path"
        );
        return Err(CommandError::Invalid(message));
    }
    Ok(())
}

impl Workflow {
    /// Brings the data of an edited or new document in.
    pub(super) fn declare_data(&mut self, expanded: &Expanded, tx: &mut Tx) {
        let mut data = std::mem::take(&mut self.data);
        data.declare(self.id(), expanded, |job| self.graph.ordinal(job).is_some(), tx);
        self.data = data;
    }

    /// Why a job cannot start: a value that it reads and that nobody has written.
    pub(super) fn lacks_data(&self, job: u32) -> Option<String> {
        let name = self.graph.profile(job).input_user_data.iter().find(|name| self.data.value(name).is_none())?;
        let writer = |job: &u32| self.graph.profile(*job).output_user_data.contains(name);
        Some(match self.graph.all().find(writer) {
            Some(writer) => {
                format!("user data `{name}` has no value: job '{}' should have written it", self.graph.name(writer))
            }
            None => format!("user data `{name}` has no value"),
        })
    }

    /// Data that has changed since a job that has completed was given it.
    pub(super) fn stale_data(&self, job: u32) -> Option<&str> {
        let record = self.graph.job(job);
        if record.state() != JobState::Completed {
            return None;
        }
        // What a job itself writes while it runs is nothing new to it.
        let newer = |row: &&UserDataRow| row.lease_id > record.lease_id() && row.job != Some(record.id());
        let inputs = self.graph.profile(job).input_user_data.iter();
        inputs.filter_map(|name| self.data.get(name)).find(newer).map(|row| row.name.as_str())
    }

    fn stale_readers<'a>(&'a self, name: &'a str) -> impl Iterator<Item = u32> + 'a {
        let reads = move |job: &u32| self.graph.profile(*job).input_user_data.iter().any(|input| input == name);
        self.graph.all().filter(reads).filter(|job| self.stale_data(*job).is_some())
    }

    /// A job's command with the data that it reads.
    pub(super) fn filled_command(&self, job: u32) -> String {
        self.filled(self.graph.command(job), &self.graph.profile(job).input_user_data).into_owned()
    }

    /// A text in which tokens of these data are replaced by their values.
    pub(super) fn filled<'t>(&self, text: &'t str, names: &[String]) -> Cow<'t, str> {
        if names.is_empty() {
            return Cow::Borrowed(text);
        }
        fill_data(text, |name| names.iter().any(|known| known == name).then(|| self.data.value(name)).flatten())
    }
}
