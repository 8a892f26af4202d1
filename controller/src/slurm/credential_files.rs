//! Writes the credential files of runners, renews them, and removes them afterwards.

use std::collections::HashMap;

use torc_core::ids::WorkflowId;
use torc_slurm::error::SlurmError;
use torc_slurm::script::environment_file;

use super::SlurmConfig;
use super::clusters::ClusterConnection;
use super::submit::credentials_folder;
use crate::credentials::{CredentialIssuer, CredentialPaths, RunnerCredentials};

/// The runners that read the files: the cluster, the workflow, and the folder of its jobs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct CredentialTarget {
    pub cluster: String,
    pub workflow: WorkflowId,
    pub working_dir: String,
}

/// The credentials that this process has written. The next process writes its own, because its address may differ.
pub(super) struct CredentialFiles {
    credentials: CredentialIssuer,
    delivered: HashMap<CredentialTarget, RunnerCredentials>,
}

impl CredentialFiles {
    pub fn new(credentials: CredentialIssuer) -> Self {
        Self { credentials, delivered: HashMap::new() }
    }

    /// Writes the credential files if they are out of date and returns the path of the environment file.
    pub async fn deliver(
        &mut self,
        to: &CredentialTarget,
        identity: &str,
        cluster: &ClusterConnection,
        config: &SlurmConfig,
        now_seconds: i64,
    ) -> Result<String, SlurmError> {
        let files = files(to, identity, cluster, config)?;
        let Some(new) = self.credentials.renewed(self.delivered.get(to), to.workflow, now_seconds) else {
            return Ok(files.environment);
        };
        let variables = environment_file(&new.variables(&files)).map_err(|error| refused(error.to_string()))?;
        if let Some(certificates) = &new.certificates {
            cluster.put(&files.certificates, certificates).await?;
        }
        cluster.put(&files.token, &format!("{}\n", new.token)).await?;
        // The environment file is the last, because it refers to the others.
        cluster.put(&files.environment, &variables).await?;
        self.delivered.insert(to.clone(), new);
        Ok(files.environment)
    }

    /// Removes the credential files.
    pub async fn withdraw(
        &mut self,
        to: &CredentialTarget,
        identity: &str,
        cluster: &ClusterConnection,
        config: &SlurmConfig,
    ) {
        self.delivered.remove(to);
        let Ok(files) = files(to, identity, cluster, config) else { return };
        for path in files.all() {
            if let Err(error) = cluster.remove(path).await {
                tracing::debug!(path, %error, "credential file was not removed");
            }
        }
    }
}

fn refused(message: String) -> SlurmError {
    SlurmError::Refused { message }
}

fn files(
    to: &CredentialTarget,
    identity: &str,
    cluster: &ClusterConnection,
    config: &SlurmConfig,
) -> Result<CredentialPaths, SlurmError> {
    if to.working_dir.is_empty() {
        let message =
            "the folder of its jobs on the cluster is unknown: annotate the workflow with torc.dev/working-dir";
        return Err(refused(message.to_owned()));
    }
    let folder = credentials_folder(config, &to.working_dir, !cluster.spec.command_prefix.is_empty());
    let folder = folder.to_str().ok_or_else(|| refused(format!("the path {} is not UTF-8", folder.display())))?;
    // Other stores may have a workflow of the same number and use the same folder.
    Ok(CredentialPaths::of(folder, &format!("torc-wf{}-{identity}", to.workflow)))
}

#[cfg(test)]
mod tests;
