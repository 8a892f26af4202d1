//! Measures how many jobs run at the same time, and writes workflows whose jobs wait for each other.

use std::collections::BTreeMap;

use serde_json::Value;

/// Returns the highest sum of a log of starts (`+N`) and ends (`-N`).
pub fn most_at_once(lines: &[String]) -> i64 {
    let mut now = 0;
    let mut most = 0;
    for line in lines {
        now += line.parse::<i64>().unwrap_or_else(|_| panic!("`{line}` is neither a start nor an end"));
        most = most.max(now);
    }
    assert_eq!(now, 0, "a job started and did not end: {lines:?}");
    most
}

/// Returns a workflow whose jobs succeed only if all of them run at the same time. Each job takes one CPU of a runner with the label
/// `pair`, writes a file to `folder` and waits up to a minute for the files of the others.
pub fn rendezvous(name: &str, jobs: usize, folder: &str) -> String {
    let wait = "n=0; until set -- FILES.*; [ $# -ge JOBS ]; do n=$((n + 1)); [ $n -le 300 ] || exit 1; sleep 0.2; done";
    let files = format!("{folder}/{name}");
    let wait = wait.replace("FILES", &files).replace("JOBS", &jobs.to_string());
    format!(
        "apiVersion: torc.dev/v1alpha1
kind: Workflow
metadata: {{name: {name}}}
spec:
  resourceRequirements:
  - {{name: small, numCpus: 1, memory: 50m, runtime: PT2M}}
  jobs:
  - name: 'j{{i}}'
    command: 'echo started > {files}.{{i}}; {wait}; sleep 2'
    parameters: {{i: '1:{jobs}'}}
    labels: [pair]
    resourceRequirements: small
"
    )
}

/// Returns the number of results of each runner.
pub fn results_by_runner(results: &[Value]) -> BTreeMap<i64, usize> {
    let mut counts = BTreeMap::new();
    for result in results {
        let runner = result["runner"].as_i64().unwrap_or_else(|| panic!("no runner: {result}"));
        *counts.entry(runner).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::most_at_once;

    #[test]
    fn the_highest_sum_counts() {
        let lines = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(most_at_once(&lines("+1 -1 +1 +2 -1 -2")), 3);
        assert_eq!(most_at_once(&lines("+2 -2 +2 -2")), 2);
    }
}
