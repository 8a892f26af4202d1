#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Instant;

use tempfile::TempDir;

use super::*;

/// A program that stands in for squeue.
fn stand_in(folder: &Path, body: &str) -> Slurm {
    let path = folder.join("stand-in");
    fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let path = path.to_string_lossy().into_owned();
    Slurm::new(&[])
        .replaced_by(move |name| ["TORC_FAKE_SQUEUE", "TORC_FAKE_SBATCH"].contains(&name).then(|| path.clone()))
}

fn squeue() -> Call {
    Call::new(Tool::Squeue, ["-h"])
}

const AT_ONCE: Schedule =
    Schedule { tries: 4, pause: Duration::from_millis(1), growth: 1, longest: Duration::from_millis(1) };

fn lines(folder: &TempDir, name: &str) -> usize {
    fs::read_to_string(folder.path().join(name)).unwrap_or_default().lines().count()
}

// S21
#[tokio::test]
async fn the_programs_can_be_replaced() {
    let folder = TempDir::new().unwrap();
    let slurm = stand_in(folder.path(), "echo \"$1 $TZ\"; echo remark >&2");
    let answer = slurm.ask(&squeue()).await.unwrap();
    assert_eq!(answer, Answer { text: "-h UTC\n".to_owned(), remarks: "remark\n".to_owned() });
    assert_eq!(slurm.program(Tool::Sinfo), "sinfo");
    let none = Slurm::new(&[]).replaced_by(|_| Some(String::new()));
    assert_eq!(none.program(Tool::Squeue), "squeue", "an empty variable replaces nothing");
}

#[tokio::test]
async fn a_prefix_comes_first_and_the_environment_follows_it() {
    let folder = TempDir::new().unwrap();
    let mut slurm = stand_in(folder.path(), "echo \"$LED $TZ $*\"");
    slurm.prefix = vec!["env".to_owned(), "LED=there".to_owned()];
    assert_eq!(slurm.ask(&squeue().arg("%i|%j")).await.unwrap().text, "there UTC -h %i|%j\n");
}

// S19
#[tokio::test]
async fn a_program_that_is_not_there_is_missing() {
    let slurm = Slurm::new(&[]).replaced_by(|_| Some("/nonexistent/squeue".to_owned()));
    assert_eq!(slurm.ask(&squeue()).await, Err(Trouble::Missing { program: "/nonexistent/squeue".to_owned() }));
}

#[tokio::test]
async fn patience_ends_and_takes_everything_with_it() {
    let folder = TempDir::new().unwrap();
    let note = folder.path().join("child");
    let slurm = stand_in(folder.path(), &format!("sleep 1000 & echo $! > {}; wait", note.display()));
    let asked = slurm.ask(&squeue().within(Duration::from_secs(2))).await;
    assert!(matches!(asked, Err(Trouble::NoAnswer { perhaps_received: true, .. })), "{asked:?}");
    let child = fs::read_to_string(note).unwrap();
    let alive = || fs::read_to_string(format!("/proc/{}/stat", child.trim())).is_ok_and(|stat| !stat.contains(") Z "));
    let deadline = Instant::now() + Duration::from_secs(60);
    while alive() {
        assert!(Instant::now() < deadline, "what the program started still lives");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn what_it_reads_and_what_it_leaves_unread() {
    let folder = TempDir::new().unwrap();
    let script = "x".repeat(1 << 20);
    let reader = stand_in(folder.path(), "wc -c | tr -d ' '");
    let submit = Call::new(Tool::Sbatch, []).reads(script.clone());
    assert_eq!(reader.ask(&submit).await.unwrap().text, "1048576\n");
    let deaf = stand_in(folder.path(), "echo no >&2; exit 1");
    assert_eq!(deaf.ask(&submit).await, Err(Trouble::Refused { sentence: "no".to_owned() }));
}

#[tokio::test]
async fn a_slurm_that_is_away_is_asked_again_and_a_refusal_is_final() {
    let folder = TempDir::new().unwrap();
    let tries = folder.path().join("tries");
    let body = format!(
        "echo x >> {0}; [ $(wc -l < {0}) -lt 3 ] || exec echo here; echo 'Unable to contact slurm controller' >&2; exit 1",
        tries.display()
    );
    let slurm = stand_in(folder.path(), &body);
    assert_eq!(slurm.ask_again(&squeue(), AT_ONCE).await.unwrap().text, "here\n");
    assert_eq!(lines(&folder, "tries"), 3);

    fs::remove_file(&tries).unwrap();
    let refuses = stand_in(folder.path(), &format!("echo x >> {}; echo no >&2; exit 1", tries.display()));
    assert!(matches!(refuses.ask_again(&squeue(), AT_ONCE).await, Err(Trouble::Refused { .. })));
    assert_eq!(lines(&folder, "tries"), 1);
}

#[tokio::test]
async fn a_submission_that_may_have_arrived_is_not_repeated() {
    let folder = TempDir::new().unwrap();
    let tries = folder.path().join("tries");
    let body = |sentence: &str| format!("echo x >> {}; echo '{sentence}' >&2; exit 1", tries.display());
    let submit = Call::new(Tool::Sbatch, []);
    let unheard = stand_in(folder.path(), &body("Socket timed out on send/recv operation"));
    assert!(matches!(unheard.ask_again(&submit, AT_ONCE).await, Err(Trouble::NoAnswer { .. })));
    assert_eq!(lines(&folder, "tries"), 1);
    let away = stand_in(folder.path(), &body("Unable to contact slurm controller (connect failure)"));
    assert!(matches!(away.ask_again(&submit, AT_ONCE).await, Err(Trouble::NoAnswer { .. })));
    assert_eq!(lines(&folder, "tries"), 1 + 4);
}
