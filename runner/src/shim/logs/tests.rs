use std::io::Write;

use torc_api::wire::{AttemptKey, LeaseRole};

use super::*;

const KEY: AttemptKey = AttemptKey { workflow: 1, job: 2, run: 3, attempt: 4, lease_id: 9 };

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn a_silent_job_leaves_nothing_and_its_scratch_is_used_again() {
    let dir = tempfile::tempdir().expect("a folder");
    let logs = dir.path().join("deep/job_stdio");
    let mut log_slots = LogSlots::new("k");
    for _ in 0..3 {
        let taken = log_slots.take(&logs, StdioMode::Separate, &LeaseRole::Job.log_name(&KEY)).expect("taken");
        assert_eq!(log_slots.finish(taken, true), LogOutcome::default());
    }
    assert_eq!(names(&logs).len(), 2);
    let taken = log_slots.take(&logs, StdioMode::Separate, &LeaseRole::Job.log_name(&KEY)).expect("taken");
    assert_eq!(log_slots.finish(taken, false), LogOutcome::default());
    assert!(names(&logs).is_empty());
    log_slots.remove();
}

#[test]
fn output_gets_the_jobs_name() {
    let cases = [
        (StdioMode::Separate, "o", Some("job_wf1_j2_r3_a4.o"), Some("job_wf1_j2_r3_a4.e")),
        (StdioMode::Combined, "log", Some("job_wf1_j2_r3_a4.log"), None),
        (StdioMode::NoStdout, "e", None, Some("job_wf1_j2_r3_a4.e")),
        (StdioMode::NoStderr, "o", Some("job_wf1_j2_r3_a4.o"), None),
        (StdioMode::None, "", None, None),
    ];
    for (mode, _, stdout, stderr) in cases {
        let dir = tempfile::tempdir().expect("a folder");
        let mut log_slots = LogSlots::new("k");
        let mut taken = log_slots.take(dir.path(), mode, &LeaseRole::Job.log_name(&KEY)).expect("taken");
        for log in &mut taken {
            log.file.write_all(b"x").expect("written");
        }
        let kept = log_slots.finish(taken, true);
        let path = |name: Option<&str>| name.map(|name| dir.path().join(name));
        assert_eq!((kept.stdout, kept.stderr, kept.problem), (path(stdout), path(stderr), None), "{mode:?}");
        let expected = [stdout, stderr].iter().flatten().count();
        assert_eq!(names(dir.path()).len(), expected, "{mode:?}");
    }
}

#[test]
fn a_promoted_log_that_stayed_empty_goes() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut log_slots = LogSlots::new("k");
    let mut taken = log_slots.take(dir.path(), StdioMode::Separate, &LeaseRole::Job.log_name(&KEY)).expect("taken");
    for log in &mut taken {
        log.promote().expect("renamed");
    }
    assert_eq!(names(dir.path()), ["job_wf1_j2_r3_a4.e", "job_wf1_j2_r3_a4.o"]);
    taken[0].file.write_all(b"x").expect("written");
    let kept = log_slots.finish(taken, true);
    assert_eq!((kept.stdout, kept.stderr), (Some(dir.path().join("job_wf1_j2_r3_a4.o")), None));
    assert_eq!(names(dir.path()), ["job_wf1_j2_r3_a4.o"]);
}

#[test]
fn the_output_of_a_dead_shims_jobs_is_adopted() {
    let dir = tempfile::tempdir().expect("a folder");
    let scratch = |number: u32| dir.path().join(format!(".torc_scratch_dead_{number}"));
    fs::write(scratch(1), "output").expect("written");
    fs::write(scratch(2), "").expect("written");
    fs::write(scratch(3), "").expect("written");
    fs::write(dir.path().join(".torc_scratch_other_1"), "").expect("written");
    adopt("dead", [(scratch(1), dir.path().join("a.o")), (scratch(2), dir.path().join("a.e"))]);
    assert_eq!(names(dir.path()), [".torc_scratch_other_1", "a.o"]);
}

#[test]
fn a_folder_that_cannot_be_made_is_an_error() {
    let dir = tempfile::tempdir().expect("a folder");
    fs::write(dir.path().join("file"), "").expect("written");
    let mut log_slots = LogSlots::new("k");
    assert!(
        log_slots.take(&dir.path().join("file/logs"), StdioMode::Separate, &LeaseRole::Job.log_name(&KEY)).is_err()
    );
}

#[test]
fn packed_outputs_share_a_file() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut log_slots = LogSlots::new("k");
    let mut references = Vec::new();
    for job in 0..5 {
        let key = AttemptKey { job, ..KEY };
        let mut taken = log_slots.take(dir.path(), StdioMode::Packed, &LeaseRole::Job.log_name(&key)).expect("taken");
        taken[0].file.write_all(format!("out {job}\n").as_bytes()).expect("written");
        if job == 3 {
            taken[1].file.write_all(b"err").expect("written");
            // The job ran long enough to get a named log, which is deleted.
            taken[1].promote().expect("renamed");
        }
        let kept = log_slots.finish(taken, true);
        assert_eq!((kept.problem, kept.stderr.is_some()), (None, job == 3));
        references.push(kept.stdout.expect("an output"));
    }
    log_slots.remove();
    assert_eq!(names(dir.path()), ["packed_k_1.index", "packed_k_1.pack"]);
    for (job, reference) in references.iter().enumerate() {
        let (pack, offset) = packs::parse_reference(&reference.to_string_lossy()).expect("a reference");
        assert_eq!(packs::read(&pack, offset).expect("readable"), format!("out {job}\n").as_bytes());
    }
    let labels: Vec<String> =
        packs::entries(&dir.path().join("packed_k_1.pack")).expect("readable").into_iter().map(|e| e.label).collect();
    assert_eq!(labels.len(), 6);
    assert_eq!(labels[0], "wf1_j0_r3_a4");
}

#[test]
fn a_large_output_stays_a_file() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut log_slots = LogSlots::new("k");
    let mut taken = log_slots.take(dir.path(), StdioMode::Packed, &LeaseRole::Job.log_name(&KEY)).expect("taken");
    taken[0].file.write_all(&vec![b'x'; (1 << 20) + 1]).expect("written");
    let kept = log_slots.finish(taken, true);
    log_slots.remove();
    assert_eq!(kept.stdout, Some(dir.path().join("job_wf1_j2_r3_a4.o")));
    assert_eq!(names(dir.path()), ["job_wf1_j2_r3_a4.o"]);
}

#[test]
fn a_pack_that_cannot_be_written_loses_no_output() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut log_slots = LogSlots::new("k");
    // The name of the pack is taken.
    fs::write(dir.path().join("packed_k_1.pack"), "").expect("written");
    let mut taken = log_slots.take(dir.path(), StdioMode::Packed, &LeaseRole::Job.log_name(&KEY)).expect("taken");
    taken[0].file.write_all(b"x").expect("written");
    let kept = log_slots.finish(taken, true);
    assert_eq!(kept.stdout, Some(dir.path().join("job_wf1_j2_r3_a4.o")));
    assert!(kept.problem.expect("a problem").contains("cannot pack"));
}

#[test]
fn a_script_that_runs_again_does_not_write_over_its_log() {
    let dir = tempfile::tempdir().expect("a folder");
    let name = LeaseRole::Recovery.log_name(&KEY);
    assert_eq!(free_log_name(dir.path(), &name), name);
    fs::write(dir.path().join(format!("{name}.e")), "first").expect("written");
    assert_eq!(free_log_name(dir.path(), &name), format!("{name}_2"));
    fs::write(dir.path().join(format!("{name}_2.log")), "second").expect("written");
    assert_eq!(free_log_name(dir.path(), &name), format!("{name}_3"));
}

// J22. Outputs of up to 1 MiB are packed; a larger one gets a file.
#[test]
fn outputs_of_up_to_a_mebibyte_are_packed() {
    for (bytes, is_packed) in [(1 << 20, true), ((1 << 20) + 1, false)] {
        let dir = tempfile::tempdir().expect("a folder");
        let mut log_slots = LogSlots::new("k");
        let name = LeaseRole::Job.log_name(&KEY);
        let mut taken = log_slots.take(dir.path(), StdioMode::Packed, &name).expect("taken");
        taken[0].file.write_all(&vec![b'x'; bytes]).expect("written");
        let kept = log_slots.finish(taken, true);
        let path = kept.stdout.expect("an output").display().to_string();
        assert_eq!(packs::parse_reference(&path).is_some(), is_packed, "{bytes} bytes: {path}");
        assert_eq!(dir.path().join(format!("{name}.o")).exists(), !is_packed, "{bytes} bytes");
    }
}
