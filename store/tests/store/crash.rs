//! Acknowledged groups survive `kill -9`.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use tempfile::TempDir;
use torc_api::filter::{EventFilter, ResultFilter};
use torc_core::rows::{Changes, Snapshot};
use torc_store::{OpenOptions, Store};

use crate::samples::{event, job, load, new_store, options, profile, result, workflow};

/// The variable with the database of the child. Without it, the child's test does nothing.
const DATABASE: &str = "TORC_STORE_CRASH_DATABASE";
const ROUNDS: usize = 4;
const ACKNOWLEDGED_BEFORE_KILL: usize = 40;
const ROWS_OF_A_GROUP: i64 = 20;

/// The child process and not a test of its own: commits groups until it is killed, and prints the number of each durable group.
#[tokio::test]
async fn child_commits_until_killed() {
    let Ok(path) = std::env::var(DATABASE) else { return };
    let store = Store::open(OpenOptions::new(&path).create(true)).await.unwrap();
    let last = store.load().await.unwrap().last.event;
    for sequence in last + 1.. {
        let first = sequence * ROWS_OF_A_GROUP;
        let changes = Changes {
            workflows: vec![workflow(1)],
            profiles: vec![profile(1, 1)],
            jobs: (first..first + ROWS_OF_A_GROUP).map(|id| job(id, 1, 1)).collect(),
            results: (first..first + ROWS_OF_A_GROUP).map(|id| result(1, id, 1)).collect(),
            events: vec![event(sequence, Some(1))],
            ..Changes::default()
        };
        store.commit(&changes).await.unwrap();
        let mut out = std::io::stdout();
        writeln!(out, "committed {sequence}").and_then(|()| out.flush()).unwrap();
    }
}

fn child(path: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["crash::child_commits_until_killed", "--exact", "--nocapture"]).env(DATABASE, path);
    command
}

/// Starts a child, kills it after some groups, and returns the numbers that it printed.
fn commit_and_kill(path: &str) -> Vec<i64> {
    let mut child = child(path).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut numbers = lines.filter_map(|line| line.rsplit_once("committed ").map(|(_, n)| n.parse().unwrap()));
    let mut said: Vec<i64> = numbers.by_ref().take(ACKNOWLEDGED_BEFORE_KILL).collect();
    child.kill().unwrap();
    said.extend(numbers);
    child.wait().unwrap();
    said
}

#[test]
fn what_was_acknowledged_survives_a_kill() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("torc.db");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut said = Vec::new();
    for _ in 0..ROUNDS {
        let more = commit_and_kill(path.to_str().unwrap());
        assert!(more.len() >= ACKNOWLEDGED_BEFORE_KILL);
        said.extend(more);
        runtime.block_on(check(&folder, &said));
    }
}

#[tokio::test]
async fn another_process_is_kept_out() {
    let (_folder, store) = new_store().await;
    let refused = child(store.path().to_str().unwrap()).output().unwrap();
    assert!(!refused.status.success());
    let said = format!("{}{}", String::from_utf8_lossy(&refused.stdout), String::from_utf8_lossy(&refused.stderr));
    assert!(said.contains("Locked"), "{said}");
    assert_eq!(load(&store).await, Snapshot::default());
}

async fn check(folder: &TempDir, said: &[i64]) {
    let store = Store::open(options(folder)).await.unwrap();
    let page = store.events(&EventFilter { limit: Some(10_000), ..EventFilter::default() }).await.unwrap();
    let stored: Vec<i64> = page.items.iter().map(|view| view.event.sequence).collect();
    let missing: Vec<&i64> = said.iter().filter(|sequence| !stored.contains(sequence)).collect();
    assert!(missing.is_empty(), "acknowledged and lost: {missing:?}");
    let rows_of_groups = i64::try_from(stored.len()).unwrap() * ROWS_OF_A_GROUP;
    assert_eq!(i64::try_from(store.load().await.unwrap().jobs.len()).unwrap(), rows_of_groups, "half a group");
    let results = store.results(&ResultFilter { limit: Some(10_000), ..ResultFilter::default() }).await.unwrap();
    assert_eq!(i64::try_from(results.items.len()).unwrap(), rows_of_groups.min(10_000), "half a group");
    store.close().await.unwrap();
}
