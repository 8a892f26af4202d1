//! The offline journal: results that could not be delivered to the server, in SQLite files that users can read.
//!
//! One file holds one run of one workflow, written by the runners of one place: `offline_results_wf<W>_r<R>_<label>.db`
//! in the folder `offline_journal` of the outputs. A write is on disk when it returns. The files are often on network
//! file systems, so there is no write-ahead log, which needs shared memory.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteRow, SqliteSynchronous};
use sqlx::{Connection, Row, SqliteConnection};
use thiserror::Error;
use torc_api::wire::{AttemptKey, JournalledResult};

mod find;

pub use find::{FoundJournals, find};

/// The folder of journals within the outputs.
pub const FOLDER: &str = "offline_journal";
/// The prefix of every journal's name.
const PREFIX: &str = "offline_results_";
/// The version of the table.
const VERSION: i64 = 1;
/// Time to wait for another process that has the file open: `torc workflows reconcile` reads it within seconds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

const TABLE: &str = "create table if not exists results (
    workflow integer not null, job integer not null, run integer not null, attempt integer not null, lease_id integer not null,
    name text not null, ended_ms integer not null, runner integer, result text not null,
    primary key (workflow, job, run, attempt, lease_id)
)";

/// The error of a journal.
#[derive(Debug, Error)]
pub enum JournalError {
    /// The folder cannot be created.
    #[error("cannot create the folder {}", path.display())]
    MakeFolder {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The file cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: sqlx::Error,
    },
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: sqlx::Error,
    },
    /// A newer version of Torc has written the file.
    #[error("{} was written by a newer version of torc", .0.display())]
    Newer(PathBuf),
    /// A row cannot be read.
    #[error("cannot read a result in {}", path.display())]
    Garbled {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
}

/// The journals of one runner.
#[derive(Debug)]
pub struct Journal {
    folder: PathBuf,
    label: String,
    open: HashMap<(i64, i32), SqliteConnection>,
}

impl Journal {
    /// Returns the journals with this label below a folder of outputs. Files are created by the first write.
    pub fn new(output_dir: &Path, label: String) -> Self {
        Self { folder: output_dir.join(FOLDER), label, open: HashMap::new() }
    }

    /// Writes results. They are on disk when this returns.
    pub async fn write(&mut self, results: &[JournalledResult]) -> Result<(), JournalError> {
        std::fs::create_dir_all(&self.folder)
            .map_err(|source| JournalError::MakeFolder { path: self.folder.clone(), source })?;
        let mut runs: BTreeMap<(i64, i32), Vec<&JournalledResult>> = BTreeMap::new();
        for result in results {
            runs.entry((result.finished.key.workflow, result.finished.key.run)).or_default().push(result);
        }
        for (run, results) in runs {
            let path = self.path(run.0, run.1);
            let mut file = match self.open.remove(&run) {
                Some(file) => file,
                None => open(&path, true).await.map_err(|source| JournalError::Write { path: path.clone(), source })?,
            };
            // After a failed write the file is opened again.
            insert(&mut file, &results).await.map_err(|source| JournalError::Write { path, source })?;
            self.open.insert(run, file);
        }
        Ok(())
    }

    /// Removes results that the server has. An empty file is deleted, and so is an empty folder.
    pub async fn remove(&mut self, keys: &[AttemptKey]) -> Result<(), JournalError> {
        let mut runs: BTreeMap<(i64, i32), Vec<&AttemptKey>> = BTreeMap::new();
        for key in keys {
            runs.entry((key.workflow, key.run)).or_default().push(key);
        }
        for (run, keys) in runs {
            let path = self.path(run.0, run.1);
            let failed = |source| JournalError::Write { path: path.clone(), source };
            let mut file = match self.open.remove(&run) {
                Some(file) => file,
                None if path.exists() => open(&path, false).await.map_err(failed)?,
                None => continue,
            };
            if delete(&mut file, &keys).await.map_err(failed)? > 0 {
                self.open.insert(run, file);
                continue;
            }
            file.close().await.map_err(failed)?;
            let _ = std::fs::remove_file(&path);
        }
        let _ = std::fs::remove_dir(&self.folder);
        Ok(())
    }

    /// Returns the results of earlier runners with this label, and the errors of unreadable files. Deletes empty files.
    pub async fn left(&self) -> (Vec<JournalledResult>, Vec<JournalError>) {
        let (mut results, mut problems) = (Vec::new(), Vec::new());
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let ours = |name: &str| name.starts_with(PREFIX) && name.ends_with(&format!("_{}.db", self.label));
        for entry in entries.filter(|entry| entry.file_name().to_str().is_some_and(ours)) {
            match read(&entry.path()).await {
                // The writer died before its first result.
                Ok(found) if found.is_empty() => drop(std::fs::remove_file(entry.path())),
                Ok(found) => results.extend(found),
                Err(problem) => problems.push(problem),
            }
        }
        let _ = std::fs::remove_dir(&self.folder);
        (results, problems)
    }

    fn path(&self, workflow: i64, run: i32) -> PathBuf {
        self.folder.join(format!("{PREFIX}wf{workflow}_r{run}_{}.db", self.label))
    }
}

/// Returns the label that distinguishes the journals of one state folder in a shared folder: host, Slurm job, and a
/// hash of the path. The next runner with this state folder finds the journals by it.
pub fn label(host: &str, slurm_job_id: Option<&str>, place: &Path) -> String {
    let plain = |text: &str| -> String {
        text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' || c == '-' { c } else { '-' }).collect()
    };
    let digest = Sha256::digest(place.as_os_str().as_encoded_bytes());
    let hash: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    match slurm_job_id {
        Some(id) => format!("h{}_sl{}_{hash}", plain(host), plain(id)),
        None => format!("h{}_{hash}", plain(host)),
    }
}

/// Returns all results of a file.
pub async fn read(path: &Path) -> Result<Vec<JournalledResult>, JournalError> {
    let failed = |source| JournalError::Read { path: path.to_owned(), source };
    let mut file = open(path, false).await.map_err(failed)?;
    let version: i64 = sqlx::query_scalar("pragma user_version").fetch_one(&mut file).await.map_err(failed)?;
    if version > VERSION {
        return Err(JournalError::Newer(path.to_owned()));
    }
    let query = "select name, ended_ms, runner, result from results order by workflow, job, run, attempt, lease_id";
    let rows = match version {
        // The writer died before its first result.
        0 => Vec::new(),
        _ => sqlx::query(query).fetch_all(&mut file).await.map_err(failed)?,
    };
    // Nothing was changed, so a failed close loses nothing.
    let _ = file.close().await;
    rows.iter().map(|row| result(path, row)).collect()
}

fn result(path: &Path, row: &SqliteRow) -> Result<JournalledResult, JournalError> {
    let failed = |source| JournalError::Read { path: path.to_owned(), source };
    let text: String = row.try_get("result").map_err(failed)?;
    Ok(JournalledResult {
        ended_ms: row.try_get("ended_ms").map_err(failed)?,
        runner: row.try_get("runner").map_err(failed)?,
        name: row.try_get("name").map_err(failed)?,
        finished: serde_json::from_str(&text)
            .map_err(|source| JournalError::Garbled { path: path.to_owned(), source })?,
    })
}

async fn open(path: &Path, create: bool) -> sqlx::Result<SqliteConnection> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(create)
        .journal_mode(SqliteJournalMode::Delete)
        .synchronous(SqliteSynchronous::Extra)
        .busy_timeout(LOCK_TIMEOUT);
    let mut file = SqliteConnection::connect_with(&options).await?;
    if create {
        sqlx::query(TABLE).execute(&mut file).await?;
        sqlx::query("pragma user_version = 1").execute(&mut file).await?;
    }
    Ok(file)
}

async fn insert(file: &mut SqliteConnection, results: &[&JournalledResult]) -> sqlx::Result<()> {
    let mut transaction = file.begin().await?;
    for result in results {
        let key = &result.finished.key;
        let text = serde_json::to_string(&result.finished).map_err(|error| sqlx::Error::Encode(error.into()))?;
        sqlx::query("insert or replace into results values (?, ?, ?, ?, ?, ?, ?, ?, ?)")
            .bind(key.workflow)
            .bind(key.job)
            .bind(key.run)
            .bind(key.attempt)
            .bind(key.lease_id)
            .bind(&result.name)
            .bind(result.ended_ms)
            .bind(result.runner)
            .bind(text)
            .execute(&mut *transaction)
            .await?;
    }
    transaction.commit().await
}

/// Deletes results and returns the number of remaining ones.
async fn delete(file: &mut SqliteConnection, keys: &[&AttemptKey]) -> sqlx::Result<i64> {
    let mut transaction = file.begin().await?;
    for key in keys {
        let statement =
            "delete from results where workflow = ? and job = ? and run = ? and attempt = ? and lease_id = ?";
        sqlx::query(statement)
            .bind(key.workflow)
            .bind(key.job)
            .bind(key.run)
            .bind(key.attempt)
            .bind(key.lease_id)
            .execute(&mut *transaction)
            .await?;
    }
    let left = sqlx::query_scalar("select count(*) from results").fetch_one(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(left)
}

#[cfg(test)]
mod tests;
