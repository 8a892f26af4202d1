//! Checks the files of jobs, in tasks next to the event loop.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc::UnboundedSender;
use torc_api::wire::{AttemptKey, FileStat};

use crate::files::{Hashes, MAX_HASHED_BYTES, stat_file};
use crate::monitor;
use crate::state::{AgentEvent, InputCheck, OutputCheck, OutputFindings};

/// Delays between attempts to find an input file. On a shared file system a file from another node may appear late.
const INPUT_RETRY_DELAYS: [Duration; 4] =
    [Duration::from_millis(50), Duration::from_millis(200), Duration::from_millis(750), Duration::from_secs(2)];

/// Number of bytes at the end of a log that are searched for messages of `srun`.
const LOG_TAIL_BYTES: u64 = 8 << 10;

/// Returns the last 8 KiB of a log as text.
pub(super) fn end_of(log: &Path) -> std::io::Result<String> {
    let mut file = fs::File::open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES)))?;
    let mut end = Vec::new();
    file.take(LOG_TAIL_BYTES).read_to_end(&mut end)?;
    Ok(String::from_utf8_lossy(&end).into_owned())
}

/// Checks that the input files of a job exist, and reports this as an event. Hashes are computed afterwards, so that
/// the job does not wait for them.
pub(super) async fn stat_inputs(
    key: AttemptKey,
    wanted: InputCheck,
    hashes: Arc<Hashes>,
    sender: UnboundedSender<AgentEvent>,
) {
    let wanted = Arc::new(wanted);
    let mut found = stat_all(&wanted).await;
    for delay in INPUT_RETRY_DELAYS {
        if found.is_ok() {
            break;
        }
        tokio::time::sleep(delay).await;
        found = stat_all(&wanted).await;
    }
    let _ = sender.send(AgentEvent::InputsChecked(key, found.clone()));
    tokio::task::spawn_blocking(move || {
        for seen in found.unwrap_or_default() {
            hashes.complete(&wanted.working_dir, seen, limit(wanted.hash_large_files));
        }
    });
}

async fn stat_all(wanted: &Arc<InputCheck>) -> Result<Vec<FileStat>, String> {
    let wanted = Arc::clone(wanted);
    let look_at = move || {
        let found = wanted.files.iter().map(|file| stat_file(&wanted.working_dir, file).map_err(|_| file.clone()));
        found.collect::<Result<Vec<_>, _>>()
    };
    // After a panic it is unknown which file is missing.
    tokio::task::spawn_blocking(look_at).await.unwrap_or_else(|_| Ok(Vec::new()))
}

fn limit(hash_large_files: bool) -> Option<u64> {
    (!hash_large_files).then_some(MAX_HASHED_BYTES)
}

/// Checks a job's output files, collects the state of all its files, and deletes its logs if no file is missing. With
/// `oom_kills` set, it only reads the kernel's count of OOM kills.
pub(super) fn check(check: &OutputCheck, hashes: &Hashes) -> OutputFindings {
    if check.oom_kills {
        return OutputFindings { oom_kills: Some(monitor::oom_kills()), ..OutputFindings::default() };
    }
    let mut written = Vec::new();
    for file in &check.files {
        match stat_file(&check.working_dir, file) {
            Ok(seen) => written.push(seen),
            Err(_) => return OutputFindings { missing: Some(file.clone()), ..OutputFindings::default() },
        }
    }
    for log in &check.delete {
        let _ = fs::remove_file(log);
    }
    let read = check.inputs.iter().cloned().chain(unchanged_since_start(check));
    let read = read.filter(|seen| !check.files.contains(&seen.path)).collect::<Vec<_>>();
    let complete = |seen| hashes.complete(&check.working_dir, seen, limit(check.hash_large_files));
    OutputFindings {
        missing: None,
        logs_deleted: !check.delete.is_empty(),
        files: read.into_iter().chain(written).map(complete).collect(),
        oom_kills: None,
    }
}

/// Returns the input files whose state before the start is unknown, if they have not changed since.
fn unchanged_since_start(check: &OutputCheck) -> Vec<FileStat> {
    let started = SystemTime::now() - check.elapsed;
    let started_ms = started.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let older = |seen: &FileStat| u128::try_from(seen.modified_ms).is_ok_and(|modified| modified < started_ms);
    let found = check.forgotten_inputs.iter().filter_map(|file| stat_file(Path::new(&check.working_dir), file).ok());
    found.filter(older).collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn wanted(dir: &Path, files: &[&str]) -> OutputCheck {
        OutputCheck {
            working_dir: PathBuf::from(dir),
            files: files.iter().map(|file| (*file).to_owned()).collect(),
            inputs: Vec::new(),
            forgotten_inputs: Vec::new(),
            elapsed: Duration::ZERO,
            hash_large_files: false,
            delete: Vec::new(),
            oom_kills: false,
        }
    }

    #[test]
    fn the_end_of_a_long_log_is_its_last_eight_kibibytes() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("log");
        for (length, expected) in [(0, 0), (8_191, 8_191), (8_192, 8_192), (8_193, 8_192)] {
            fs::write(&log, "b".repeat(length)).expect("written");
            assert_eq!(end_of(&log).expect("readable").len(), expected, "{length}");
        }
        fs::write(&log, format!("first{}last", "x".repeat(9_000))).expect("written");
        let end = end_of(&log).expect("readable");
        assert!(end.ends_with("last") && !end.contains("first"), "{end}");
    }

    #[test]
    fn outputs_are_looked_for_and_logs_go_when_all_are_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        for name in ["one", "two", "log"] {
            fs::write(path(name), name).expect("written");
        }
        let delete = vec![path("log").display().to_string()];
        let hashes = Hashes::default();
        let missing = OutputCheck { delete: delete.clone(), ..wanted(folder.path(), &["one", "none", "two"]) };
        let found = check(&missing, &hashes);
        assert_eq!((found.missing.as_deref(), found.logs_deleted, found.files.len()), (Some("none"), false, 0));
        assert!(path("log").exists(), "its logs are needed");
        let complete = OutputCheck { delete, ..wanted(folder.path(), &["one", "two"]) };
        let found = check(&complete, &hashes);
        let seen: Vec<_> = found.files.iter().map(|file| (file.path.as_str(), file.sha256.is_some())).collect();
        assert_eq!((found.missing, found.logs_deleted, seen), (None, true, vec![("one", true), ("two", true)]));
        assert!(!path("log").exists());
        assert!(!check(&wanted(folder.path(), &["one"]), &hashes).logs_deleted, "there were none to delete");
    }

    #[test]
    fn inputs_come_first_and_what_was_overwritten_is_an_output() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["in", "both", "old", "new"] {
            fs::write(folder.path().join(name), name).expect("written");
        }
        let hour_ago = SystemTime::now() - Duration::from_secs(3_600);
        let old = fs::File::options().write(true).open(folder.path().join("old")).expect("a file");
        old.set_modified(hour_ago).expect("set");
        let seen = |name: &str| stat_file(folder.path(), name).expect("a file");
        let check_this = OutputCheck {
            inputs: vec![seen("in"), seen("both")],
            forgotten_inputs: vec!["old".to_owned(), "new".to_owned(), "gone".to_owned()],
            elapsed: Duration::from_secs(600),
            ..wanted(folder.path(), &["both"])
        };
        let found = check(&check_this, &Hashes::default());
        let names: Vec<&str> = found.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(names, ["in", "old", "both"], "what changed after the start is not what it read");
    }

    #[test]
    fn a_killed_job_is_asked_about_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let found = check(&OutputCheck { oom_kills: true, ..wanted(folder.path(), &["none"]) }, &Hashes::default());
        assert!(found.oom_kills.is_some() && found.missing.is_none(), "{found:?}");
        assert_eq!((limit(true), limit(false)), (None, Some(64 << 20)), "large files are read where that is asked for");
    }
}
