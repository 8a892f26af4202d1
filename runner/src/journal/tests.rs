use torc_api::state::Cause;
use torc_api::wire::FinishedAttempt;

use super::*;

fn result(workflow: i64, run: i32, job: i64, return_code: i32) -> JournalledResult {
    JournalledResult {
        ended_ms: 1_800_000_000_000 + job,
        runner: Some(3),
        name: format!("job {job}"),
        finished: FinishedAttempt {
            key: AttemptKey { workflow, job, run, attempt: 1, lease_id: job },
            return_code,
            cause: (return_code != 0).then_some(Cause::ExitCode),
            duration_ms: 5,
            stdout: Some("/out/ä b.o".to_owned()),
            ..FinishedAttempt::default()
        },
    }
}

fn keys(results: &[JournalledResult]) -> Vec<AttemptKey> {
    results.iter().map(|result| result.finished.key).collect()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

// J33
#[tokio::test]
async fn a_file_for_each_workflow_and_run() {
    let out = tempfile::tempdir().expect("a folder");
    let mut journal = Journal::new(out.path(), "hnode7_ab".to_owned());
    let results = [result(1, 1, 1, 0), result(1, 1, 2, 9), result(1, 2, 1, 0), result(12, 1, 5, 0)];
    journal.write(&results).await.expect("written");
    let folder = out.path().join("offline_journal");
    let expected = [
        "offline_results_wf12_r1_hnode7_ab.db",
        "offline_results_wf1_r1_hnode7_ab.db",
        "offline_results_wf1_r2_hnode7_ab.db",
    ];
    assert_eq!(names(&folder), expected);
    let path = folder.join(expected[1]);
    assert_eq!(read(&path).await.expect("readable"), results[..2], "while the writer has it open");
    assert!(std::fs::read(&path).expect("a file").starts_with(b"SQLite format 3\0"));

    // Writing it again, e.g. after a restart, changes nothing.
    journal.write(&results[..2]).await.expect("written");
    let (left, problems) = Journal::new(out.path(), "hnode7_ab".to_owned()).left().await;
    assert_eq!((left.len(), problems.len()), (4, 0));
    let (left, _) = Journal::new(out.path(), "hnode8_ab".to_owned()).left().await;
    assert_eq!(left, [], "each place has its own");
}

// J34
#[tokio::test]
async fn what_the_server_has_leaves_and_empty_files_go() {
    let out = tempfile::tempdir().expect("a folder");
    let results = [result(1, 1, 1, 0), result(1, 1, 2, 9), result(1, 2, 1, 0)];
    Journal::new(out.path(), "here".to_owned()).write(&results).await.expect("written");
    let folder = out.path().join("offline_journal");
    let mut journal = Journal::new(out.path(), "here".to_owned());
    journal.remove(&keys(&results[1..])).await.expect("removed");
    assert_eq!(names(&folder), ["offline_results_wf1_r1_here.db"]);
    assert_eq!(journal.left().await.0, results[..1]);
    journal.remove(&keys(&results)).await.expect("removed");
    assert!(!folder.exists(), "nothing is left of it");
    journal.remove(&keys(&results)).await.expect("nothing to do");
}

#[tokio::test]
async fn a_damaged_file_does_not_hide_the_others() {
    let out = tempfile::tempdir().expect("a folder");
    Journal::new(out.path(), "here".to_owned()).write(&[result(1, 1, 1, 0)]).await.expect("written");
    let folder = out.path().join("offline_journal");
    std::fs::write(folder.join("offline_results_wf1_r2_here.db"), "no database").expect("written");
    std::fs::write(folder.join("offline_results_wf1_r3_here.db"), "").expect("written");
    let (left, problems) = Journal::new(out.path(), "here".to_owned()).left().await;
    assert_eq!(left.len(), 1);
    assert_eq!(problems.len(), 1, "an empty file is one whose writer died before its first result: {problems:?}");
    assert!(problems[0].to_string().ends_with("offline_results_wf1_r2_here.db"), "{}", problems[0]);
    assert!(!folder.join("offline_results_wf1_r3_here.db").exists(), "and it is not needed");
}

// J36
#[tokio::test]
async fn journals_are_found_wherever_they_are() {
    let base = tempfile::tempdir().expect("a folder");
    let nodes = ["a/out", "b/deep/er", "b"];
    for (job, node) in nodes.iter().enumerate() {
        let mut journal = Journal::new(&base.path().join(node), format!("h{job}"));
        journal.write(&[result(4, 1, job as i64, 0), result(4, 11, 1, 0), result(42, 1, 1, 0)]).await.expect("written");
    }
    std::os::unix::fs::symlink(base.path(), base.path().join("a/loop")).expect("a link");
    std::os::unix::fs::symlink("nowhere", base.path().join("a/dangling")).expect("a link");
    let looks = std::cell::Cell::new(0);
    let found = find(base.path(), 4, 1, |folders| looks.set(folders));
    let expected = nodes.iter().enumerate().map(|(job, node)| {
        base.path().join(node).join("offline_journal").join(format!("offline_results_wf4_r1_h{job}.db"))
    });
    assert_eq!(found.journals, expected.collect::<Vec<_>>());
    assert_eq!(found.unreadable.len(), 0, "{:?}", found.unreadable);
    assert!(looks.get() >= 7, "{}", looks.get());
    let missing = find(&base.path().join("none"), 4, 1, |_| {});
    assert_eq!((missing.journals.len(), missing.unreadable.len()), (0, 1));
}

// J33
#[test]
fn labels_tell_places_apart() {
    let here = label("node7", None, Path::new("/out/.torc-runners/a"));
    assert_eq!(here, label("node7", None, Path::new("/out/.torc-runners/a")), "a successor finds it again");
    assert_ne!(here, label("node7", None, Path::new("/out/.torc-runners/a-2")));
    assert_ne!(here, label("node8", None, Path::new("/out/.torc-runners/a")));
    let slurm = label("node/7 x", Some("1234_5"), Path::new("/tmp/x"));
    assert!(slurm.starts_with("hnode-7-x_sl1234-5_"), "{slurm}");
}

// J33, J37. Every column, with attempts, runs and leases of one job kept apart.
#[tokio::test]
async fn each_attempt_and_lease_has_its_own_row() {
    let out = tempfile::tempdir().expect("a folder");
    let mut journal = Journal::new(out.path(), "here".to_owned());
    let one = |attempt: i32, lease_id: i64| {
        let mut result = result(1, 1, 1, attempt + 40);
        result.finished.key = AttemptKey { attempt, lease_id, ..result.finished.key };
        result.ended_ms += lease_id;
        result.runner = (attempt != 2).then_some(lease_id);
        result.name = format!("name {attempt} {lease_id}");
        result
    };
    let all = [one(1, 7), one(1, 8), one(2, 7)];
    journal.write(&all).await.expect("written");
    let path = out.path().join("offline_journal/offline_results_wf1_r1_here.db");
    assert_eq!(read(&path).await.expect("readable"), all);
    // Each column of the key counts for a removal.
    let key = all[0].finished.key;
    let others = [
        AttemptKey { job: 2, ..key },
        AttemptKey { attempt: 3, ..key },
        AttemptKey { lease_id: 9, ..key },
        AttemptKey { workflow: 2, ..key },
        AttemptKey { run: 2, ..key },
    ];
    journal.remove(&others).await.expect("nothing to remove");
    assert_eq!(read(&path).await.expect("readable"), all);
    journal.remove(&[all[1].finished.key]).await.expect("removed");
    assert_eq!(read(&path).await.expect("readable"), [all[0].clone(), all[2].clone()]);
    // A second write replaces the row.
    let newer = JournalledResult { name: "newer".to_owned(), ..all[0].clone() };
    journal.write(std::slice::from_ref(&newer)).await.expect("written");
    assert_eq!(read(&path).await.expect("readable"), [newer, all[2].clone()]);
}

// J33. A file of a newer version is an error.
#[tokio::test]
async fn a_journal_of_a_newer_version_is_refused() {
    let out = tempfile::tempdir().expect("a folder");
    Journal::new(out.path(), "here".to_owned()).write(&[result(1, 1, 1, 0)]).await.expect("written");
    let path = out.path().join("offline_journal/offline_results_wf1_r1_here.db");
    let mut file = open(&path, false).await.expect("opened");
    sqlx::query("pragma user_version = 2").execute(&mut file).await.expect("set");
    file.close().await.expect("closed");
    let refused = read(&path).await.expect_err("too new");
    assert!(matches!(refused, JournalError::Newer(_)), "{refused}");
}

// J36. Folders of journals may hold a thousand files, so nothing below them is searched.
#[tokio::test]
async fn journals_are_not_below_other_journals() {
    let base = tempfile::tempdir().expect("a folder");
    for output in ["a", "a/offline_journal/deeper"] {
        let mut journal = Journal::new(&base.path().join(output), "h".to_owned());
        journal.write(&[result(4, 1, 1, 0)]).await.expect("written");
    }
    let found = find(base.path(), 4, 1, |_| {});
    assert_eq!(found.journals, [base.path().join("a/offline_journal/offline_results_wf4_r1_h.db")]);
}

// J36. SQLite's own files beside a journal are not journals.
#[tokio::test]
async fn only_databases_are_journals() {
    let base = tempfile::tempdir().expect("a folder");
    Journal::new(base.path(), "h".to_owned()).write(&[result(4, 1, 1, 0)]).await.expect("written");
    let folder = base.path().join("offline_journal");
    for name in ["offline_results_wf4_r1_h.db-journal", "other_wf4_r1_h.db", "offline_results_wf4_r1.db"] {
        std::fs::write(folder.join(name), "").expect("written");
    }
    assert_eq!(find(base.path(), 4, 1, |_| {}).journals, [folder.join("offline_results_wf4_r1_h.db")]);
}
