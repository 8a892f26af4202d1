//! `torc restore`: replace the store with a backup.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use crate::connection::create_store_dir;
use crate::context::CommandContext;
use crate::embedded::store_dir::StoreDir;
use crate::embedded::{StoreAccess, acquire_or_attach};
use crate::error::{CliError, ExitStatus};
use crate::output::without_nulls;

/// Replace the store with a backup
///
/// Checks the backup first, and keeps the previous store in the same folder under another name.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// File that `torc backup` has written
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Database to replace: a path or a `sqlite:` URL (default: the store of this folder)
    #[arg(long, value_name = "DATABASE")]
    pub database: Option<String>,
}

pub async fn run(context: &CommandContext, args: &RestoreArgs) -> Result<ExitStatus, CliError> {
    if context.settings.url.is_some() {
        return Err(CliError::usage("--url is not supported: run `torc restore` on the machine of the store"));
    }
    if !args.file.is_file() {
        return Err(CliError::not_found(format!("no such file: {}", args.file.display())));
    }
    let store_dir = match &args.database {
        Some(database) => StoreDir::of_database(database, &context.folder)?,
        None => create_store_dir(&context.folder)?,
    };
    store_dir.create_folder()?;
    let _lock = match acquire_or_attach(&store_dir, None).await? {
        StoreAccess::Acquired(lock) => lock,
        StoreAccess::Attached(info, _) => {
            let message = format!("the store is in use by process {} on {}", info.pid, info.host);
            return Err(CliError::new(ExitStatus::Refused, message).hint("stop that process first"));
        }
    };
    torc_store::verify(&args.file)
        .await
        .map_err(|error| CliError::invalid(format!("{} cannot be restored", args.file.display())).because(error))?;
    let kept = replace(&store_dir.database, &args.file)
        .map_err(|error| CliError::unexpected(format!("could not replace {}", store_dir.database.display()), error))?;
    let value = json!({ "database": store_dir.database, "kept": kept });
    context.output.value(&without_nulls(value), || {
        let before =
            kept.as_ref().map_or(String::new(), |path| format!("; the previous store is in {}", path.display()));
        format!("{} restored{before}\n", store_dir.database.display())
    })?;
    Ok(ExitStatus::Success)
}

/// Replaces the database with a copy of the backup. Returns the new path of the old database.
fn replace(database: &Path, backup: &Path) -> std::io::Result<Option<PathBuf>> {
    let folder = database.parent().unwrap_or(Path::new("."));
    let mut copy = tempfile::Builder::new().prefix(".restore-").tempfile_in(folder)?;
    std::io::copy(&mut std::fs::File::open(backup)?, copy.as_file_mut())?;
    copy.as_file().sync_all()?;
    let kept = database.exists().then(|| free_name(database));
    if let Some(kept) = &kept {
        // The write-ahead log belongs to the old database and must not be applied to the new one.
        for suffix in ["", "-wal", "-shm"] {
            let from = with_suffix(database, suffix);
            if from.exists() {
                std::fs::rename(from, with_suffix(kept, suffix))?;
            }
        }
    }
    copy.persist(database).map_err(|error| error.error)?;
    std::fs::File::open(folder)?.sync_all()?;
    Ok(kept)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn free_name(database: &Path) -> PathBuf {
    let mut number = 1_u32;
    loop {
        let candidate = with_suffix(database, &format!(".before-restore-{number}"));
        if !candidate.exists() {
            return candidate;
        }
        number += 1;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_old_store_is_kept_with_its_journal() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        for (name, text) in [("torc.db", "old"), ("torc.db-wal", "old journal"), ("backup", "new")] {
            std::fs::write(at(name), text).unwrap();
        }
        let kept = replace(&at("torc.db"), &at("backup")).unwrap().unwrap();
        assert_eq!(std::fs::read_to_string(at("torc.db")).unwrap(), "new");
        assert!(!at("torc.db-wal").exists());
        assert_eq!(std::fs::read_to_string(&kept).unwrap(), "old");
        assert_eq!(std::fs::read_to_string(with_suffix(&kept, "-wal")).unwrap(), "old journal");
        let again = replace(&at("torc.db"), &at("backup")).unwrap().unwrap();
        assert_ne!(again, kept);
    }

    #[test]
    fn a_first_restore_keeps_nothing() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("backup"), "new").unwrap();
        assert_eq!(replace(&root.path().join("torc.db"), &root.path().join("backup")).unwrap(), None);
    }
}
