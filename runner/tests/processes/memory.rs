//! Resource usage of jobs: sampled while they run, counted when they end, and limited.

use std::path::Path;
use std::time::Duration;

use torc_api::execution::{ExecutionConfig, ResourceMonitor};
use torc_api::state::Cause;
use torc_api::wire::{Profile, Usage};
use torc_runner::RunnerEvent;

use crate::fixture::{DEADLINE, RunnerFixture, is_alive, wait_until};

pub const TESTS: &[(&str, fn())] = &[
    ("memory::too_much_of_it_is_the_end", too_much_of_it_is_the_end),
    ("memory::without_limits_it_may_have_more", without_limits_it_may_have_more),
    ("memory::several_processes_count_together", several_processes_count_together),
    ("memory::what_is_shared_is_no_reason_to_kill", what_is_shared_is_no_reason_to_kill),
    ("memory::short_jobs_are_counted_when_they_end", short_jobs_are_counted_when_they_end),
    ("memory::small_jobs_are_not_taken_for_their_shim", small_jobs_are_not_taken_for_their_shim),
];

const MIB: i64 = 1 << 20;
/// Upper bound of the memory of this test binary before it allocates any.
const OWN: i64 = 24 * MIB;

/// `allocate MIB FILE`: allocates and writes memory in steps of 50 ms, then waits for the file, if one is given.
pub fn allocate(mut args: impl Iterator<Item = String>) {
    let wanted: usize = args.next().and_then(|text| text.parse().ok()).expect("an amount");
    let file = args.next();
    let mut taken: Vec<Vec<u8>> = Vec::new();
    while taken.len() < wanted {
        let step = (wanted - taken.len()).min(4);
        taken.extend((0..step).map(|number| vec![u8::try_from(number).unwrap_or(1) | 1; 1 << 20]));
        std::thread::sleep(Duration::from_millis(if file.is_some() { 50 } else { 0 }));
    }
    if let Some(file) = file {
        let until = std::time::Instant::now() + DEADLINE;
        while !Path::new(&file).exists() && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    assert_ne!(taken.iter().map(|block| usize::from(block[77])).sum::<usize>(), 1);
}

fn allocation(mib: i64, file: &str) -> String {
    format!("{} allocate {mib} {file}", std::env::current_exe().expect("an executable").display())
}

/// Returns a profile that is measured every second, with a memory request in MiB.
fn declare(mib: i64) -> impl FnOnce(&mut Profile) {
    move |profile| {
        profile.unlimited = false;
        profile.resources.memory_bytes = mib * MIB;
        let monitor = ResourceMonitor { sample_interval_seconds: Some(1), ..ResourceMonitor::default() };
        profile.resource_monitor = Some(monitor);
    }
}

fn usage(fixture: &RunnerFixture, key: &torc_api::wire::AttemptKey) -> Usage {
    fixture.finished(key).usage.expect("measured")
}

// J17, X02, X08
fn too_much_of_it_is_the_end() {
    let fixture = RunnerFixture::new();
    // The job allocates 80 MiB a second, up to a GiB. Its child must not survive either.
    let greedy = format!("sleep 1000 & echo $! > child; {} & wait", allocation(1024, "never"));
    let key = fixture.add_with(&greedy, declare(64));
    let modest = fixture.add_with("sleep 3", declare(64));
    let (sender, told) = std::sync::mpsc::channel();
    let observer = move |event: RunnerEvent| {
        let _ = sender.send(event);
    };
    fixture.run_until(fixture.config(), &Default::default(), observer).expect("a runner that works");
    let finished = fixture.finished(&key);
    assert_eq!((finished.return_code, finished.cause), (137, Some(Cause::OutOfMemory)));
    assert!(!is_alive(fixture.pid_in("child")));
    assert_eq!(fixture.finished(&modest).cause, None, "its neighbour has done nothing");
    // On a slow machine only the amount shows that the kill was prompt: one interval is 80 MiB.
    let peak = usage(&fixture, &key).peak_memory_bytes.expect("sampled");
    assert!(peak > 64 * MIB && peak < 512 * MIB, "{peak}");
    let told: Vec<RunnerEvent> = told.try_iter().collect();
    let violation = |event: &&RunnerEvent| matches!(event, RunnerEvent::OomViolation { key: of, memory_bytes, limit_bytes, .. } if *of == key && memory_bytes > limit_bytes);
    assert_eq!(told.iter().filter(violation).count(), 1, "{told:?}");
    assert!(told.contains(&RunnerEvent::OomKill { key }));
}

// X15
fn without_limits_it_may_have_more() {
    let fixture = RunnerFixture::new();
    let key = fixture.add_with(&allocation(96, "enough"), |profile| {
        declare(32)(profile);
        let config = profile.execution_config.take().unwrap_or_default();
        profile.execution_config = Some(ExecutionConfig { limit_resources: Some(false), ..config });
    });
    // Another job is killed for its memory, so a sample was taken, and this job was spared for its size.
    let limited = fixture.add_with(&allocation(96, "never"), declare(32));
    fixture.beside(|| {
        wait_until("the other one's end", || fixture.server.buffer().finished.contains_key(&limited));
        std::fs::write(fixture.path("enough"), "").expect("written");
    });
    assert_eq!(fixture.finished(&limited).cause, Some(Cause::OutOfMemory));
    assert_eq!((fixture.finished(&key).return_code, fixture.finished(&key).cause), (0, None));
    assert!(usage(&fixture, &key).peak_memory_bytes >= Some(96 * MIB));
}

fn several_processes_count_together() {
    let fixture = RunnerFixture::new();
    // Each process is below the limit. One has forked twice and is an orphan.
    let one = allocation(48, "enough");
    let daemon = format!("setsid setsid {one} & exec {one}");
    let key = fixture.add_with(&daemon, declare(48 + OWN / MIB));
    let alone = fixture.add_with(&one, declare(48 + OWN / MIB));
    fixture.beside(|| {
        wait_until("the end of the one", || fixture.server.buffer().finished.contains_key(&key));
        std::fs::write(fixture.path("enough"), "").expect("written");
    });
    assert_eq!(fixture.finished(&key).cause, Some(Cause::OutOfMemory));
    assert_eq!(fixture.finished(&alone).cause, None);
}

fn what_is_shared_is_no_reason_to_kill() {
    let fixture = RunnerFixture::new();
    // bash forks: its copies share 48 MiB, which are counted once.
    let forks = "x=$(head -c 50331648 /dev/zero | tr '\\0' x); \
                 for n in 1 2 3 4; do (: \"${#x}\"; while [ ! -e enough ]; do read -t 0.05 < pipe; done) & done; wait; :";
    std::process::Command::new("mkfifo").arg(fixture.path("pipe")).status().expect("a pipe");
    let keep_open = std::fs::OpenOptions::new().read(true).write(true).open(fixture.path("pipe")).expect("a pipe");
    let key = fixture.add_with(forks, declare(160));
    let limited = fixture.add_with(&allocation(256, "never"), declare(160));
    fixture.beside(|| {
        wait_until("the other one's end", || fixture.server.buffer().finished.contains_key(&limited));
        std::fs::write(fixture.path("enough"), "").expect("written");
    });
    drop(keep_open);
    assert_eq!(fixture.finished(&key).cause, None, "{:?}", fixture.finished(&key));
}

fn short_jobs_are_counted_when_they_end() {
    let fixture = RunnerFixture::new();
    let key = fixture.add(&allocation(64, ""));
    let busy = fixture.add("n=0; while [ $n -lt 20000 ]; do n=$((n + 1)); done");
    fixture.run();
    let measured = usage(&fixture, &key);
    assert!(measured.peak_memory_bytes >= Some(64 * MIB) && measured.peak_memory_bytes < Some(64 * MIB + 2 * OWN));
    assert_eq!(measured.average_memory_bytes, None, "there was no time for a sample");
    let percent = usage(&fixture, &busy).average_cpu_percent.expect("counted");
    assert!(percent > 0.0 && percent <= 130.0, "{percent}");
}

fn small_jobs_are_not_taken_for_their_shim() {
    let fixture = RunnerFixture::new();
    let key = fixture.add("true");
    fixture.run();
    // Before its program started, the process shared the shim's memory, which the kernel counts but the job does not
    // have.
    assert_eq!(usage(&fixture, &key).peak_memory_bytes, None);
}
