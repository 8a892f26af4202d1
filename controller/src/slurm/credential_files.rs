//! Puts what runners are handed where they read it, keeps it up to date while they may, and removes it afterwards.

use std::collections::HashMap;

use torc_core::ids::WorkflowId;
use torc_slurm::script::environment_file;
use torc_slurm::trouble::SlurmError;

use super::SlurmConfig;
use super::clusters::Cluster;
use super::submit::credentials_folder;
use crate::credentials::{CredentialIssuer, Files, RunnerCredentials};

/// Whose runners: the cluster, and the workflow with the folder where its jobs run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct CredentialTarget {
    pub cluster: String,
    pub workflow: WorkflowId,
    pub working_dir: String,
}

/// What this process has put where. It is written anew by the next one, which may be elsewhere.
pub(super) struct CredentialFiles {
    credentials: CredentialIssuer,
    delivered: HashMap<CredentialTarget, RunnerCredentials>,
}

impl CredentialFiles {
    pub fn new(credentials: CredentialIssuer) -> Self {
        Self { credentials, delivered: HashMap::new() }
    }

    /// Sees to it that what the runners read is up to date; the file that leads to all of it.
    pub async fn deliver(
        &mut self,
        (to, identity): (&CredentialTarget, &str),
        cluster: &Cluster,
        config: &SlurmConfig,
        now_seconds: i64,
    ) -> Result<String, SlurmError> {
        let files = files((to, identity), cluster, config)?;
        let Some(new) = self.credentials.renewed(self.delivered.get(to), to.workflow, now_seconds) else {
            return Ok(files.environment);
        };
        let variables = environment_file(&new.variables(&files)).map_err(|error| refused(error.to_string()))?;
        if let Some(certificates) = &new.certificates {
            cluster.put(&files.certificates, certificates).await?;
        }
        cluster.put(&files.token, &format!("{}\n", new.token)).await?;
        // The last one, because it leads to the others.
        cluster.put(&files.environment, &variables).await?;
        self.delivered.insert(to.clone(), new);
        Ok(files.environment)
    }

    /// Nobody reads it any more.
    pub async fn withdraw(
        &mut self,
        (to, identity): (&CredentialTarget, &str),
        cluster: &Cluster,
        config: &SlurmConfig,
    ) {
        self.delivered.remove(to);
        let Ok(files) = files((to, identity), cluster, config) else { return };
        for path in files.all() {
            if let Err(trouble) = cluster.remove(path).await {
                tracing::debug!("{path}: {trouble}");
            }
        }
    }
}

fn refused(sentence: String) -> SlurmError {
    SlurmError::Refused { sentence }
}

fn files(
    (to, identity): (&CredentialTarget, &str),
    cluster: &Cluster,
    config: &SlurmConfig,
) -> Result<Files, SlurmError> {
    if to.working_dir.is_empty() {
        let sentence =
            "nobody says in which folder of the cluster its jobs run: annotate the workflow with torc.dev/working-dir";
        return Err(refused(sentence.to_owned()));
    }
    let folder = credentials_folder(config, &to.working_dir, !cluster.spec.command_prefix.is_empty());
    let folder = folder.to_str().ok_or_else(|| refused(format!("the path {} is not UTF-8", folder.display())))?;
    // Other stores have workflows of the same number, and may keep theirs in the same folder.
    Ok(Files::of(folder, &format!("torc-wf{}-{identity}", to.workflow)))
}

#[cfg(test)]
mod tests;
