//! The store on broken disks and with damaged files: errors, and no lost results. Also backup, restore and gc.

use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::process::Command;

use torc_tests::env::{SmallDisk, TestEnv, skip, until};

const ONE: &str = "name: one\njobs: [{name: a, command: echo hello}]\n";
const TWO: &str = "name: two\njobs: [{name: b, command: echo hello}]\n";

fn with_one(env: &TestEnv) {
    env.write("one.yaml", ONE);
    env.write("two.yaml", TWO);
    env.torc("apply -f one.yaml").exits(0);
}

/// Returns the jobs and results of the workflow `one`.
fn content(env: &TestEnv) -> (Vec<serde_json::Value>, Vec<serde_json::Value>) {
    (env.items("get jobs one"), env.items("get results one"))
}

#[test]
fn a_file_in_place_of_the_store_folder_is_reported() {
    let env = TestEnv::new();
    env.write("one.yaml", ONE);
    env.write(".torc", "precious");
    let outcome = env.torc("apply -f one.yaml");
    assert!(![Some(0), None].contains(&outcome.code), "{outcome:?}");
    assert!(outcome.stderr.contains(".torc"), "{}", outcome.stderr);
    assert!(!outcome.stderr.contains("panicked"), "{}", outcome.stderr);
    assert_eq!(env.lines(".torc"), ["precious"]);
}

#[test]
fn an_unwritable_store_folder_is_reported() {
    let env = TestEnv::new();
    with_one(&env);
    let before = content(&env);
    let database = fs::read(env.path(".torc/torc.db")).unwrap();
    {
        let _closed = ReadOnly::new(&env, ".torc");
        let outcome = env.torc("apply -f two.yaml").exits(7);
        // A read-only mount fails at the lock, a folder without permission at the database.
        let either = [
            ["could not use the store in", "make the folder writable"],
            ["could not serve the store", "its folder must be writable"],
        ];
        let is_said = |[error, hint]: &[&str; 2]| outcome.stderr.contains(error) && outcome.stderr.contains(hint);
        assert!(either.iter().any(is_said), "{}", outcome.stderr);
    }
    assert_eq!(fs::read(env.path(".torc/torc.db")).unwrap(), database);
    assert_eq!(content(&env), before);
    env.torc("apply -f two.yaml").exits(0);
}

#[test]
fn an_unwritable_project_folder_is_reported() {
    let env = TestEnv::new();
    env.write("place/one.yaml", ONE);
    let _closed = ReadOnly::new(&env, "place");
    let outcome = env.call("apply -f one.yaml").folder(env.path("place")).run().exits(7);
    assert!(outcome.stderr.contains("could not use the store in"), "{}", outcome.stderr);
    env.call("plan -f one.yaml").folder(env.path("place")).run().exits(0);
}

/// A folder without write access: for root, whom permissions do not stop, by a read-only mount, for others by permissions.
struct ReadOnly {
    path: std::path::PathBuf,
    mounted: bool,
}

impl ReadOnly {
    fn new(env: &TestEnv, name: &str) -> Self {
        let path = env.path(name);
        let mounted = nix::unistd::geteuid().is_root();
        if mounted {
            mount(&["--bind", path.to_str().unwrap(), path.to_str().unwrap()]);
            mount(&["-o", "remount,bind,ro", path.to_str().unwrap()]);
        } else {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o500)).unwrap();
        }
        Self { path, mounted }
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        if self.mounted {
            unmount(&self.path);
        } else {
            let _ = fs::set_permissions(&self.path, fs::Permissions::from_mode(0o700));
        }
    }
}

fn mount(arguments: &[&str]) {
    let status = Command::new("mount").args(arguments).status().unwrap();
    assert!(status.success(), "mount {arguments:?}");
}

fn unmount(path: &std::path::Path) {
    let _ = Command::new("umount").arg(path).status();
}

#[test]
fn a_store_of_a_newer_version_is_not_changed() {
    let env = TestEnv::new();
    with_one(&env);
    // SQLite stores the version of the schema in the header of the file.
    let file = fs::OpenOptions::new().write(true).open(env.path(".torc/torc.db")).unwrap();
    file.write_all_at(&9_999_u32.to_be_bytes(), 60).unwrap();
    drop(file);
    let bytes = fs::read(env.path(".torc/torc.db")).unwrap();
    for verb in ["apply -f two.yaml", "get jobs", "gc --older-than 1s"] {
        env.torc(verb).exits(4).prints("9999").prints("a newer version of torc wrote it");
    }
    assert_eq!(fs::read(env.path(".torc/torc.db")).unwrap(), bytes, "nothing was changed");
}

#[test]
fn a_file_that_is_no_store_is_not_changed() {
    for content in [&b"this is no database, but some notes\n"[..], &[0x5a; 100_000]] {
        let env = TestEnv::new();
        env.write("one.yaml", ONE);
        env.write(".torc/torc.db", content);
        env.torc("apply -f one.yaml").exits(4).prints("nothing was changed");
        assert_eq!(fs::read(env.path(".torc/torc.db")).unwrap(), content);
    }
}

#[test]
fn a_damaged_store_is_reported_and_can_be_restored() {
    let env = TestEnv::new();
    with_one(&env);
    let before = content(&env);
    env.torc("backup copy.db").exits(0);
    let mut bytes = fs::read(env.path(".torc/torc.db")).unwrap();
    let start = 4096;
    bytes[start..].fill(0x5a);
    env.write(".torc/torc.db", &bytes);
    let outcome = env.torc("apply -f two.yaml");
    assert!(![Some(0), None].contains(&outcome.code), "{outcome:?}");
    assert!(!outcome.stderr.contains("panicked"), "{}", outcome.stderr);
    env.torc("restore copy.db").exits(0).prints("restored; the previous store is in");
    assert_eq!(content(&env), before);
    assert_eq!(fs::read(env.path(".torc/torc.db.before-restore-1")).unwrap(), bytes);
}

#[test]
fn a_full_disk_loses_nothing() {
    let env = TestEnv::new();
    // Space for a write-ahead log with one commit per job, as on a busy machine.
    let Some(disk) = SmallDisk::new(&env, "disk", "12m") else {
        return full_by_limit(&env);
    };
    fs::write(disk.path.join("one.yaml"), ONE).unwrap();
    fs::write(disk.path.join("many.yaml"), many()).unwrap();
    let on_disk = |line: &str| env.call(&format!("{line} --output-dir {}", env.text_path("logs"))).folder(&disk.path);
    let look = |line: &str| env.call(&format!("{line} -o json")).folder(&disk.path).run().exits(0).json();
    on_disk("apply -f one.yaml").run().exits(0);
    let before = look("get results one");

    disk.fill();
    let outcome = on_disk("apply -f many.yaml").run();
    assert!(![Some(0), None].contains(&outcome.code), "{outcome:?}");
    assert!(outcome.stderr.contains("full") || outcome.stderr.contains("no space is left"), "{}", outcome.stderr);
    assert!(!outcome.stderr.contains("panicked"), "{}", outcome.stderr);
    env.expect_nothing_left();

    disk.empty();
    assert_eq!(look("get results one"), before);
    on_disk("apply -f many.yaml").run().exits(0);
    assert_eq!(env.lines("logs/ran").len(), 300);
    env.expect_nothing_left();
    drop(disk);
}

/// Returns so many jobs that their rows do not fit into the rest of a page.
fn many() -> String {
    "name: many\nparameters: {i: '1:300'}\njobs: [{name: 'job_with_a_long_name_{i}', command: 'echo {i} >> $TORC_OUTPUT_DIR/ran', use_parameters: [i]}]\n".to_owned()
}

/// Limits the size of all files instead of the disk, for a user who may not mount.
fn full_by_limit(env: &TestEnv) {
    with_one(env);
    env.write("many.yaml", many());
    let before = content(env);
    let outcome = env.call("apply -f many.yaml").under(&["prlimit", "--fsize=4096:4096"]).run();
    assert_ne!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(content(env), before);
    env.torc("apply -f many.yaml").exits(0);
}

#[test]
fn a_disk_that_fills_while_jobs_run_loses_no_result() {
    let env = TestEnv::new();
    let Some(disk) = SmallDisk::new(&env, "disk", "2m") else {
        return skip("needs root");
    };
    let text = "
name: w
jobs:
  - {name: first, command: 'echo first >> $TORC_OUTPUT_DIR/ran'}
  - {name: gate, command: 'echo gate >> $TORC_OUTPUT_DIR/ran; until test -e $TORC_OUTPUT_DIR/go; do sleep 0.02; done', depends_on: [first]}
  - {name: last, command: 'echo last >> $TORC_OUTPUT_DIR/ran', depends_on: [gate]}
";
    fs::write(disk.path.join("w.yaml"), text).unwrap();
    let line = format!("apply -f w.yaml --output-dir {}", env.text_path("logs"));
    let first = env.call(&line).folder(&disk.path).start();
    until(|| env.lines("logs/ran").len() == 2, || first.stderr());
    let filler = disk.path.join("filler");
    let _ = fs::write(&filler, vec![0; 8 << 20]);
    env.write("logs/go", "");
    first.prints("no space is left");
    assert_eq!(env.lines("logs/ran").len(), 2, "a child started before its parent's result was durable");
    fs::remove_file(&filler).unwrap();
    // The second process has waited and now runs its workflow.
    first.finish().exits(0);
    assert_eq!(env.lines("logs/ran"), ["first", "gate", "last"]);
    env.expect_nothing_left();
    drop(disk);
}

#[test]
fn a_backup_can_be_restored() {
    let env = TestEnv::new();
    with_one(&env);
    let before = content(&env);
    env.torc("backup copy.db").exits(0).prints("store copied to");
    env.torc("backup copy.db").prints("copy.db");
    assert_ne!(env.torc("backup copy.db").code, Some(0), "an existing file is never overwritten");
    env.torc("delete one --yes").exits(0);
    env.torc("get jobs one").exits(5);
    env.torc("restore copy.db").exits(0);
    assert_eq!(content(&env), before);
    env.torc("restore none.db").exits(5);
    env.write("notes.db", "no database");
    env.torc("restore notes.db").exits(4);
    assert_eq!(content(&env), before);
}

#[test]
fn a_store_in_use_can_be_backed_up_but_not_restored() {
    let env = TestEnv::new();
    env.write(
        "w.yaml",
        "name: w\njobs: [{name: a, command: 'touch started; until test -e go; do sleep 0.02; done'}]\n",
    );
    let apply = env.start("apply -f w.yaml");
    until(|| env.path("started").exists(), || apply.stderr());
    env.torc("backup copy.db").exits(0);
    env.torc("restore copy.db").exits(7).prints("the store is in use by process");
    env.write("go", "");
    apply.finish().exits(0);
    let elsewhere = TestEnv::new();
    fs::copy(env.path("copy.db"), elsewhere.path("copy.db")).unwrap();
    elsewhere.torc("restore copy.db").exits(0);
    assert!(["leased", "running"].contains(&elsewhere.states("w")["a"].as_str()));
}

#[test]
fn gc_removes_old_attempts_and_keeps_the_latest() {
    let env = TestEnv::new();
    env.write("w.yaml", "name: w\njobs: [{name: a, command: 'echo $TORC_ATTEMPT_ID; test -e good'}]\n");
    env.torc("apply -f w.yaml").exits(3);
    env.write("good", "");
    env.torc("retry w").exits(0);
    env.torc("run w").exits(0);
    assert_eq!(env.attempts(""), ["a 1 failed", "a 2 completed"]);

    let nothing = env.json("gc --older-than 1d");
    assert_eq!((nothing["results"].as_i64(), nothing["logFiles"].as_i64()), (Some(0), Some(0)));
    let would = env.json("gc --older-than 0s --dry-run");
    assert_eq!((would["results"].as_i64(), would["logFiles"].as_i64()), (Some(1), Some(1)));
    assert_eq!(env.attempts("").len(), 2, "a dry run removes nothing");
    assert_eq!(env.json("gc --older-than 0s")["results"], 1);
    assert_eq!(env.attempts(""), ["a 2 completed"]);
    assert!(!env.path("torc_output/job_stdio/job_wf1_j1_r1_a1.o").exists());
    assert_eq!(env.torc("logs a").exits(0).stdout, "2\n");
}

#[test]
fn the_number_of_a_deleted_workflow_is_not_reused() {
    let env = TestEnv::new();
    with_one(&env);
    env.torc("delete workflow/one").exits(0);
    assert_eq!(env.items("get workflows"), Vec::<serde_json::Value>::new());
    env.torc("delete one").exits(5);
    env.torc("delete one --ignore-not-found").exits(0);
    env.torc("apply -f two.yaml").exits(0);
    assert_eq!(env.items("get workflows")[0]["id"], 2);
}
