//! Routes of files, user data, spawned jobs and provenance.

use reqwest::Method;
use serde_json::Value;
use torc_api::api::Page;
use torc_api::data::{File, FileUse, SpawnRequest, SpawnResponse, Staleness, UserData, UserDataWritten, WriteUserData};

use super::{Client, ClientError, decode};

impl Client {
    /// Returns the files of a workflow.
    pub async fn files(&self, workflow: &str) -> Result<Vec<File>, ClientError> {
        let page: Page<File> = self.get(&["workflows", workflow, "files"], self.in_namespace()).await?;
        Ok(page.items)
    }

    /// Returns the files that each job reads and writes, with the states that attempts observed.
    pub async fn file_uses(&self, workflow: &str) -> Result<Vec<FileUse>, ClientError> {
        let mut uses = Vec::new();
        let mut query = self.in_namespace();
        loop {
            // The server pages by jobs, so an empty page may have a successor.
            let page: Page<FileUse> = self.get(&["workflows", workflow, "file-uses"], query.clone()).await?;
            uses.extend(page.items);
            let Some(next) = page.next else { return Ok(uses) };
            query.retain(|(key, _)| *key != "cursor");
            query.push(("cursor", next));
        }
    }

    /// Returns the user data of a workflow.
    pub async fn user_data(&self, workflow: &str) -> Result<Vec<UserData>, ClientError> {
        let page: Page<UserData> = self.get(&["workflows", workflow, "user-data"], self.in_namespace()).await?;
        Ok(page.items)
    }

    /// Returns one value of a workflow's user data.
    pub async fn one_user_data(&self, workflow: &str, name: &str) -> Result<UserData, ClientError> {
        self.get(&["workflows", workflow, "user-data", name], self.in_namespace()).await
    }

    /// Writes a value; with `None`, deletes the written value.
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

    /// Returns the completed jobs whose user data has changed since, and the jobs whose user data is missing.
    pub async fn staleness(&self, workflow: &str) -> Result<Staleness, ClientError> {
        self.get(&["workflows", workflow, "staleness"], self.in_namespace()).await
    }

    /// Adds jobs to a workflow on behalf of one of its running jobs.
    pub async fn spawn(&self, workflow: &str, job: &str, request: &SpawnRequest) -> Result<SpawnResponse, ClientError> {
        self.post(&["workflows", workflow, "jobs", job, "spawn"], request).await
    }

    /// Returns the RO-Crate metadata of a workflow.
    pub async fn ro_crate(&self, workflow: &str) -> Result<Value, ClientError> {
        self.get(&["workflows", workflow, "ro-crate"], self.in_namespace()).await
    }
}
