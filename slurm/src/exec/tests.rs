#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Instant;

use tempfile::TempDir;

use super::*;

/// Returns a Slurm with a replacement of squeue that runs `body`.
fn stand_in(folder: &Path, body: &str) -> Slurm {
    let path = folder.join("stand-in");
    fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let path = path.to_string_lossy().into_owned();
    Slurm::new(&[])
        .replaced_by(move |name| ["TORC_FAKE_SQUEUE", "TORC_FAKE_SBATCH"].contains(&name).then(|| path.clone()))
}

fn squeue() -> CommandSpec {
    CommandSpec::new(Tool::Squeue, ["-h"])
}

const AT_ONCE: RetrySchedule =
    RetrySchedule { tries: 4, delay: Duration::from_millis(1), backoff_factor: 1, max_delay: Duration::from_millis(1) };

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
    assert_eq!(slurm.ask(&squeue()).await, Err(SlurmError::Missing { program: "/nonexistent/squeue".to_owned() }));
}

#[tokio::test]
async fn a_timeout_ends_the_whole_process_group() {
    let folder = TempDir::new().unwrap();
    let note = folder.path().join("child");
    let slurm = stand_in(folder.path(), &format!("sleep 1000 & echo $! > {}; wait", note.display()));
    let asked = slurm.ask(&squeue().within(Duration::from_secs(2))).await;
    assert!(matches!(asked, Err(SlurmError::NoAnswer { maybe_delivered: true, .. })), "{asked:?}");
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
    let submit = CommandSpec::new(Tool::Sbatch, []).reads(script.clone());
    assert_eq!(reader.ask(&submit).await.unwrap().text, "1048576\n");
    let deaf = stand_in(folder.path(), "echo no >&2; exit 1");
    assert_eq!(deaf.ask(&submit).await, Err(SlurmError::Refused { message: "no".to_owned() }));
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
    assert_eq!(slurm.query_with_retries(&squeue(), AT_ONCE).await.unwrap().text, "here\n");
    assert_eq!(lines(&folder, "tries"), 3);

    fs::remove_file(&tries).unwrap();
    let refuses = stand_in(folder.path(), &format!("echo x >> {}; echo no >&2; exit 1", tries.display()));
    assert!(matches!(refuses.query_with_retries(&squeue(), AT_ONCE).await, Err(SlurmError::Refused { .. })));
    assert_eq!(lines(&folder, "tries"), 1);
}

#[tokio::test]
async fn a_submission_that_may_have_arrived_is_not_repeated() {
    let folder = TempDir::new().unwrap();
    let tries = folder.path().join("tries");
    let body = |sentence: &str| format!("echo x >> {}; echo '{sentence}' >&2; exit 1", tries.display());
    let submit = CommandSpec::new(Tool::Sbatch, []);
    let unheard = stand_in(folder.path(), &body("Socket timed out on send/recv operation"));
    assert!(matches!(unheard.query_with_retries(&submit, AT_ONCE).await, Err(SlurmError::NoAnswer { .. })));
    assert_eq!(lines(&folder, "tries"), 1);
    let away = stand_in(folder.path(), &body("Unable to contact slurm controller (connect failure)"));
    assert!(matches!(away.query_with_retries(&submit, AT_ONCE).await, Err(SlurmError::NoAnswer { .. })));
    assert_eq!(lines(&folder, "tries"), 1 + 4);
}

// S21
#[test]
fn each_variable_replaces_its_program_alone() {
    for tool in Tool::ALL {
        let slurm =
            Slurm::new(&[]).replaced_by(|name| (name == tool.replacement_variable()).then(|| "/fake".to_owned()));
        for other in Tool::ALL {
            let expected = if other == tool { "/fake" } else { other.name() };
            assert_eq!(slurm.program(other), expected, "{} set", tool.replacement_variable());
        }
    }
    let all = Slurm::new(&[]).replaced_by(|name| Some(format!("/{name}")));
    assert_eq!((all.program(Tool::Srun), all.program(Tool::Sacct)), ("/TORC_FAKE_SRUN", "/TORC_FAKE_SACCT"));
    assert_eq!(all.program(Tool::Shell), "sh", "the shell is never replaced");
}

#[tokio::test]
async fn files_are_written_for_their_owner_alone() {
    let folder = TempDir::new().unwrap();
    let slurm = Slurm::new(&[]);
    let path = folder.path().join("a b/c/it's.env");
    let name = path.to_string_lossy().into_owned();
    for content in ["A=1\n", "A=2\n"] {
        slurm.write_file(&name, content).await.unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), content);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let beside: Vec<_> =
        fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(beside, ["it's.env"], "nothing is left beside it");
    for _ in 0..2 {
        slurm.remove_file(&name).await.unwrap();
        assert!(!path.exists());
    }
    let made = folder.path().join("x/y");
    for _ in 0..2 {
        slurm.make_folder(&made.to_string_lossy()).await.unwrap();
        assert!(made.is_dir());
    }
    fs::write(folder.path().join("file"), "").unwrap();
    let below = folder.path().join("file/below");
    let refused = slurm.make_folder(&below.to_string_lossy()).await;
    assert!(matches!(refused, Err(SlurmError::Refused { .. })), "{refused:?}");
}

#[tokio::test]
async fn a_prefix_of_ssh_makes_255_a_lost_connection() {
    let folder = TempDir::new().unwrap();
    let script = folder.path().join("script");
    fs::write(&script, "exit 255\n").unwrap();
    for (name, is_lost) in [("ssh", true), ("wrapper", false)] {
        let shell = folder.path().join(name);
        std::os::unix::fs::symlink("/bin/sh", &shell).unwrap();
        let slurm = Slurm::new(&[shell, script.clone()].map(|path| path.to_string_lossy().into_owned()));
        let asked = slurm.ask(&squeue()).await;
        assert_eq!(
            matches!(asked, Err(SlurmError::NoAnswer { maybe_delivered: true, .. })),
            is_lost,
            "{name}: {asked:?}"
        );
    }
}

#[tokio::test]
async fn a_killed_program_has_not_answered() {
    let folder = TempDir::new().unwrap();
    let slurm = stand_in(folder.path(), "echo 7; kill -9 $$");
    let asked = slurm.ask(&squeue()).await;
    assert!(matches!(asked, Err(SlurmError::NoAnswer { maybe_delivered: true, .. })), "{asked:?}");
}

#[tokio::test]
async fn long_errors_are_cut_and_long_answers_are_not() {
    let folder = TempDir::new().unwrap();
    let slurm =
        stand_in(folder.path(), "head -c 100000 /dev/zero | tr '\\0' e >&2; head -c 100000 /dev/zero | tr '\\0' o");
    let answer = slurm.ask(&squeue()).await.unwrap();
    assert_eq!((answer.text.len(), answer.remarks.len()), (100_000, 65_536));
    assert_eq!((MAX_ANSWER_BYTES, MAX_STDERR_BYTES), (268_435_456, 65_536));
    assert_eq!(FILE_WRITE_TIMEOUT, Duration::from_secs(60));
}

#[tokio::test]
async fn answers_beyond_a_limit_are_told() {
    for (bytes, limit, expected) in [(4, 5, ("xxxx", true)), (5, 5, ("xxxxx", true)), (6, 5, ("xxxxx", false))] {
        let source = "x".repeat(bytes);
        let (text, whole) = read(Some(source.as_bytes()), limit).await.unwrap();
        assert_eq!((text.as_str(), whole), expected, "{bytes} of {limit}");
    }
    assert_eq!(read(None::<&[u8]>, 5).await.unwrap(), (String::new(), true), "what is not there is whole");
}

#[test]
fn a_command_has_the_environment_of_its_call() {
    let slurm = Slurm::new(&[]);
    let call = CommandSpec::new(Tool::Sinfo, ["-h", "a b"]);
    let command = slurm.command(&call, "/opt/sinfo");
    let command = command.as_std();
    assert_eq!(command.get_program(), "/opt/sinfo");
    assert_eq!(command.get_args().collect::<Vec<_>>(), ["-h", "a b"]);
    let text = |value: &std::ffi::OsStr| value.to_string_lossy().into_owned();
    let found: Vec<(String, Option<String>)> =
        command.get_envs().map(|(name, value)| (text(name), value.map(text))).collect();
    let expected = [
        ("SINFO_FORMAT", None),
        ("SINFO_PARTITION", None),
        ("SINFO_SORT", None),
        ("SLURM_CLUSTERS", None),
        ("SLURM_TIME_FORMAT", Some("standard")),
        ("TZ", Some("UTC")),
    ];
    assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value.map(str::to_owned))));
}

// S19
#[tokio::test]
async fn a_file_that_is_no_program_is_told_apart() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("text");
    fs::write(&path, "neither a script nor a program").unwrap();
    let name = path.to_string_lossy().into_owned();
    let slurm = Slurm::new(&[]).replaced_by(|_| Some(name.clone()));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(slurm.ask(&squeue()).await, Err(SlurmError::Missing { program: name.clone() }), "it may not be run");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let asked = slurm.ask(&squeue()).await;
    assert!(matches!(asked, Err(SlurmError::NoAnswer { maybe_delivered: false, .. })), "it cannot be run: {asked:?}");
}
