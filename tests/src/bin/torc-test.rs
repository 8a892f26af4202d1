//! Runs the tests of binaries that cargo has built; `tests/run` calls it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result};
use clap::Parser;
use torc_tests::harness::{
    Limits, Outcome, Runner, Test, TestResult, failure_text, list_tests, parse_binaries, shuffle, summary,
};

/// The target with the longest tests. They start first, so that the run does not end with one of them alone.
const LONGEST_TARGET: &str = "blackbox";
const PROGRESS_INTERVAL: Duration = Duration::from_secs(15);

/// Run the tests of binaries that cargo has built.
#[derive(Parser)]
struct Args {
    /// Output of `cargo test --no-run --message-format json`
    #[arg(long)]
    binaries: PathBuf,
    /// The `torc` under test
    #[arg(long)]
    torc: PathBuf,
    /// Set the number of tests that run at the same time (default: twice the number of cores)
    #[arg(long)]
    jobs: Option<usize>,
    /// Run the tests in a random order; the seed is printed
    #[arg(long, value_name = "SEED", num_args = 0..=1, require_equals = true)]
    shuffle: Option<Option<u64>>,
    /// Kill a test after this many seconds
    #[arg(long, default_value_t = 120)]
    timeout: u64,
    /// Pass the environment of the caller to the tests
    #[arg(long)]
    keep_environment: bool,
    /// Fail if a test is skipped
    #[arg(long)]
    deny_skips: bool,
    /// Run only tests whose names equal one of the texts
    #[arg(long)]
    exact: bool,
    /// Run only tests whose names contain one of these texts
    filters: Vec<String>,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let tests = select(&args)?;
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let limits = Limits { jobs: args.jobs.unwrap_or(cores * 2), test_timeout: Duration::from_secs(args.timeout) };
    let runner = Runner::new(limits, args.torc, args.keep_environment)?;
    let start = Instant::now();
    let mut progress = Progress { total: tests.len(), done: 0, failed: 0, last: start };
    say(&format!("running {} tests, {} at a time", tests.len(), limits.jobs));
    let results = runner.run(&tests, |result| progress.note(result));
    say(&summary(&results, start.elapsed()));
    let is_bad = |outcome: &Outcome| match outcome {
        Outcome::Passed => false,
        Outcome::Skipped(_) => args.deny_skips,
        Outcome::Failed(_) => true,
    };
    let failed = results.is_empty() || results.iter().any(|result| is_bad(&result.outcome));
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Returns the selected tests in the order in which they start.
fn select(args: &Args) -> Result<Vec<Test>> {
    let messages = std::fs::read_to_string(&args.binaries)
        .with_context(|| format!("{}: run tests/run without --prebuilt first", args.binaries.display()))?;
    let mut tests = Vec::new();
    for binary in parse_binaries(&messages)? {
        tests.extend(list_tests(&binary)?);
    }
    tests.sort_by_key(|test| test.binary.target != LONGEST_TARGET);
    if !args.filters.is_empty() {
        tests.retain(|test| {
            let name = test.full_name();
            args.filters.iter().any(|filter| if args.exact { name == *filter } else { name.contains(filter.as_str()) })
        });
    }
    if let Some(seed) = args.shuffle {
        let seed = seed.unwrap_or_else(|| {
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
        });
        say(&format!("random order: --shuffle={seed}"));
        shuffle(&mut tests, seed);
    }
    Ok(tests)
}

/// Counts of a run, printed at an interval.
struct Progress {
    total: usize,
    done: usize,
    failed: usize,
    last: Instant,
}

impl Progress {
    fn note(&mut self, result: &TestResult) {
        self.done += 1;
        if let Outcome::Failed(reason) = &result.outcome {
            self.failed += 1;
            say(&failure_text(result, reason));
        }
        if self.last.elapsed() > PROGRESS_INTERVAL {
            self.last = Instant::now();
            say(&format!("{} of {} done, {} failed", self.done, self.total, self.failed));
        }
    }
}

#[expect(clippy::print_stdout, reason = "the harness reports on its standard output")]
fn say(text: &str) {
    println!("{text}");
}
