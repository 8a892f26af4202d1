//! Measures the throughput of shim and agent without a server: N × `true` on two slots, then a chain of N/5.
//! `throughput [N]`.

#[allow(dead_code)]
#[path = "../tests/support/fake_server.rs"]
mod fake_server;

use std::collections::VecDeque;
use std::io::Write;
use std::time::Instant;

use fake_server::FakeServer;
use tokio_util::sync::CancellationToken;
use torc_api::wire::{AttemptKey, Lease, Profile, Resources};
use torc_runner::shim::{self, ShimArgs};
use torc_runner::{RunnerConfig, RunnerEvent};

type AnyError = Box<dyn std::error::Error>;

fn main() -> Result<(), AnyError> {
    let mut args = std::env::args_os().skip(1);
    let first = args.next();
    if first.as_deref() == Some("shim".as_ref()) {
        return Ok(shim::main(&ShimArgs::parse(args)?)?);
    }
    let count: i64 = first.and_then(|text| text.to_str()?.parse().ok()).unwrap_or(5_000);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let wide = runtime.block_on(run(jobs(count), VecDeque::new()))?;
    let mut chain = jobs(count / 5);
    let head = chain.pop_front().into_iter().collect();
    let deep = runtime.block_on(run(head, chain))?;
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{count} x true on two slots: {:.0} us a job, {} syncs", wide.0 * 1e6 / count as f64, wide.1)?;
    writeln!(stdout, "chain of {}: {:.0} us a job, {} syncs", count / 5, deep.0 * 5e6 / count as f64, deep.1)?;
    Ok(())
}

fn jobs(count: i64) -> VecDeque<Lease> {
    let lease = |job| Lease {
        key: AttemptKey { workflow: 1, job, run: 1, attempt: 1, lease_id: job },
        name: format!("job{job}"),
        command: "true".to_owned(),
        profile: 0,
        ..Lease::default()
    };
    (1..=count).map(lease).collect()
}

async fn run(ready: VecDeque<Lease>, chain: VecDeque<Lease>) -> Result<(f64, u64), AnyError> {
    let dir = tempfile::tempdir()?;
    let server = FakeServer::default();
    let profile = Profile {
        resources: Resources { cpus: 1, memory_bytes: 1 << 20, gpus: 0, nodes: 1 },
        runtime_seconds: 60,
        working_dir: dir.path().display().to_string(),
        ..Profile::default()
    };
    server.change(|buffer| {
        buffer.profiles = vec![profile];
        buffer.ready = ready;
        buffer.chain = chain;
    });
    let command = vec![std::env::current_exe()?.into_os_string(), "shim".into()];
    let mut config = RunnerConfig::new(dir.path().join("out"), dir.path().join("state"), command);
    config.capacity = Resources { cpus: 2, memory_bytes: 1 << 30, gpus: 0, nodes: 1 };
    let began = Instant::now();
    torc_runner::run(config, server.clone(), CancellationToken::new(), |_: RunnerEvent| {}).await?;
    let syncs = server.buffer().syncs;
    Ok((began.elapsed().as_secs_f64(), syncs))
}
