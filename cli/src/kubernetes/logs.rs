//! Logs that are on the disk of a runner's Pod: the same command is run there, and what it prints is passed on.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, AttachParams};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::refusal;
use crate::error::{CommandError, ExitStatus};
use crate::output::Output;

/// Where the chart puts this program in a runner's Pod, whatever image its jobs need.
const PROGRAM: &str = "/torc/bin/torc";
/// The container of the jobs.
const CONTAINER: &str = "runner";

/// Runs `torc` with these words in a Pod.
pub async fn print(output: Output, pods: &Api<Pod>, pod: &str, words: &[String]) -> Result<ExitStatus, CommandError> {
    let what = format!("read the log in the Pod {pod}");
    let found = pods.get_opt(pod).await.map_err(|error| refusal(&what, error))?;
    if found.is_none() {
        let message = format!("the Pod {pod} is gone, and the logs on its disk with it");
        let hint = "to keep them, give the runner pool a volume at /torc/output: see docs/how-to/kubernetes.md";
        return Err(CommandError::not_found(message).hint(hint));
    }
    let params = AttachParams::default().container(CONTAINER).stdin(false);
    let command = std::iter::once(PROGRAM.to_owned()).chain(words.iter().cloned());
    let mut process =
        pods.exec(pod, command.collect::<Vec<_>>(), &params).await.map_err(|error| refusal(&what, error))?;
    let (stdout, stderr, ended) = (process.stdout(), process.stderr(), process.take_status());
    let said = async {
        let mut text = String::new();
        if let Some(mut stderr) = stderr {
            let _ = stderr.read_to_string(&mut text).await;
        }
        text
    };
    let (passed, said) = tokio::join!(pass_on(output, stdout), said);
    passed?;
    let status = match ended {
        Some(ended) => ended.await,
        None => None,
    };
    match status.and_then(|status| status.status).as_deref() {
        Some("Success") => Ok(ExitStatus::Success),
        _ => {
            Err(CommandError::not_found(format!("could not {what}"))
                .lines(said.lines().map(|line| format!("  {line}"))))
        }
    }
}

async fn pass_on(output: Output, stream: Option<impl AsyncRead + Unpin>) -> Result<(), CommandError> {
    let Some(mut stream) = stream else { return Ok(()) };
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        output.raw(&buffer[..count])?;
    }
}
