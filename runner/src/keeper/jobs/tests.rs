//! Jobs of a keeper with a clock that a test turns. The processes are real and outlive no test.

use super::*;
use crate::keeper::notes::Author;

const KEY: AttemptKey = AttemptKey { workflow: 1, job: 2, run: 1, attempt: 1, epoch: 5 };

/// A keeper that runs one job, which takes no notice of being asked to end.
fn at_work(dir: &Path) -> Jobs {
    let author = Author { keeper: "tests".to_owned(), boot_id: String::new() };
    let mut jobs = Jobs::new("tests", Notes::create(dir, &author).expect("notes"), Vec::new());
    jobs.welcome(std::env::vars_os().collect());
    let folder = dir.display().to_string();
    jobs.define(Template { id: 1, working_dir: folder.clone(), log_dir: folder, ..Template::default() });
    let argv = ["sh", "-c", "trap '' TERM; echo > ready; while true; do sleep 0.05; done"];
    jobs.order(StartOrder {
        key: KEY,
        template: 1,
        argv: argv.map(str::to_owned).into(),
        until: Moment(u64::MAX),
        ..StartOrder::default()
    });
    while !dir.join("ready").exists() {
        std::thread::sleep(Duration::from_millis(2));
    }
    jobs.news.clear();
    jobs
}

/// What the next brain is told of the job.
fn told(jobs: &mut Jobs) -> HeldJob {
    jobs.welcome(Vec::new());
    let told = std::mem::take(&mut jobs.news).into_iter().find_map(|news| match news {
        FromKeeper::Running(held) => Some(held),
        _ => None,
    });
    told.expect("it has not been collected")
}

/// Why and since when the job is being ended, as the next brain is told.
fn ending(jobs: &mut Jobs) -> Option<(Ending, Moment)> {
    told(jobs).ending
}

/// Waits until its process has exited. It is not collected: that would also take the children of other tests.
fn expect_killed(jobs: &Jobs) {
    let pid = jobs.processes[&KEY];
    while !procfs::is_zombie(pid) {
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn ask(jobs: &mut Jobs, why: Ending, lead_seconds: u64, now: Moment) {
    jobs.terminate(&Termination { key: KEY, why, signal: 15, lead_ms: lead_seconds * 1_000 }, now);
}

// J23, X05, X17. To the second, without a second of waiting.
#[test]
fn a_job_has_exactly_its_lead() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut jobs = at_work(dir.path());
    let now = clock_now();
    let at = |seconds| now.plus(Duration::from_secs(seconds));
    jobs.on_time(at(5));
    ask(&mut jobs, Ending::Timeout, 30, now);
    assert_eq!(jobs.next_time(at(2)), Some(at(30)));
    jobs.on_time(at(29));
    assert_eq!(jobs.news, []);
    jobs.on_time(at(30));
    assert_eq!(jobs.news, [FromKeeper::Killed(KEY)]);
    expect_killed(&jobs);
    assert_eq!(ending(&mut jobs), Some((Ending::Timeout, now)));
}

// X11
#[test]
fn what_was_done_to_a_step_is_told_to_the_next_brain() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut jobs = at_work(dir.path());
    assert_eq!((told(&mut jobs).step_limit_ms, told(&mut jobs).is_warned), (None, false));
    let note = StepNote { key: KEY, step_limit_ms: Some(60_000), is_warned: true };
    jobs.note(&note);
    jobs.note(&StepNote { key: AttemptKey { job: 99, ..KEY }, ..note });
    assert_eq!((told(&mut jobs).step_limit_ms, told(&mut jobs).is_warned), (Some(60_000), true));
    ask(&mut jobs, Ending::Stopped, 0, clock_now());
    jobs.on_time(clock_now());
    expect_killed(&jobs);
}

// J23
#[test]
fn asked_again_it_can_only_have_less_time_and_the_first_reason_counts() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut jobs = at_work(dir.path());
    let now = clock_now();
    let at = |seconds| now.plus(Duration::from_secs(seconds));
    jobs.on_time(at(5));
    ask(&mut jobs, Ending::Canceled, 30, now);
    ask(&mut jobs, Ending::Stopped, 60, at(1));
    assert_eq!(jobs.next_time(at(2)), Some(at(30)));
    ask(&mut jobs, Ending::Stopped, 10, at(2));
    assert_eq!(jobs.next_time(at(2)), Some(at(12)));
    ask(&mut jobs, Ending::Stopped, 0, at(3));
    jobs.on_time(at(3));
    expect_killed(&jobs);
    assert_eq!(ending(&mut jobs), Some((Ending::Canceled, now)));
}
