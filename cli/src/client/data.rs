//! Routes of files, data, spawned jobs and provenance.

use reqwest::Method;
use serde_json::Value;
use torc_api::api::Page;
use torc_api::data::{File, FileUse, SpawnRequest, SpawnResponse, Staleness, UserData, UserDataWritten, WriteUserData};

use super::{Client, ClientError, decode};

impl Client {
    /// Files of a workflow.
    pub async fn files(&self, workflow: &str) -> Result<Vec<File>, ClientError> {
        let page: Page<File> = self.get(&["workflows", workflow, "files"], self.in_namespace()).await?;
        Ok(page.items)
    }

    /// What jobs do with files, and what they saw of them.
    pub async fn file_uses(&self, workflow: &str) -> Result<Vec<FileUse>, ClientError> {
        let mut uses = Vec::new();
        let mut query = self.in_namespace();
        loop {
            // A page is one of jobs, so an empty one need not be the last.
            let page: Page<FileUse> = self.get(&["workflows", workflow, "file-uses"], query.clone()).await?;
            uses.extend(page.items);
            let Some(next) = page.next else { return Ok(uses) };
            query.retain(|(key, _)| *key != "cursor");
            query.push(("cursor", next));
        }
    }

    /// Data of a workflow.
    pub async fn user_data(&self, workflow: &str) -> Result<Vec<UserData>, ClientError> {
        let page: Page<UserData> = self.get(&["workflows", workflow, "user-data"], self.in_namespace()).await?;
        Ok(page.items)
    }

    /// One value.
    pub async fn one_user_data(&self, workflow: &str, name: &str) -> Result<UserData, ClientError> {
        self.get(&["workflows", workflow, "user-data", name], self.in_namespace()).await
    }

    /// Writes a value; without one, takes back what was written.
    pub async fn write_user_data(
        &self,
        workflow: &str,
        name: &str,
        value: Option<&WriteUserData>,
    ) -> Result<UserDataWritten, ClientError> {
        let url = self.url_of(&["workflows", workflow, "user-data", name], &self.in_namespace());
        let request = match value {
            Some(value) => self.request(Method::PUT, url).json(value),
            None => self.request(Method::DELETE, url),
        };
        decode(self.send(request).await?).await
    }

    /// What has changed under completed jobs, and what is missing.
    pub async fn staleness(&self, workflow: &str) -> Result<Staleness, ClientError> {
        self.get(&["workflows", workflow, "staleness"], self.in_namespace()).await
    }

    /// Adds jobs to a workflow, as one of its running jobs.
    pub async fn spawn(&self, workflow: &str, job: &str, request: &SpawnRequest) -> Result<SpawnResponse, ClientError> {
        self.post(&["workflows", workflow, "jobs", job, "spawn"], request).await
    }

    /// Provenance of a workflow.
    pub async fn ro_crate(&self, workflow: &str) -> Result<Value, ClientError> {
        self.get(&["workflows", workflow, "ro-crate"], self.in_namespace()).await
    }
}
