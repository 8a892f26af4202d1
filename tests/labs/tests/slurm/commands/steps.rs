//! The runner in a real allocation: jobs as steps, their statistics, and steps that Slurm ends.

use std::collections::BTreeSet;

use serde_json::Value;
use torc_tests::labs::slurm::wait_for;

use super::slurm;
use torc_tests::env::{Server, TestEnv, eventually, most_at_once};

/// A server and a folder from which allocations are submitted.
struct Batch {
    env: TestEnv,
    server: Server,
}

impl Batch {
    fn new(document: &str) -> Self {
        let env = TestEnv::new();
        let server = Server::start(&env);
        env.write("client/w.yaml", document);
        server.torc(&env, "apply -f w.yaml").exits(0);
        Self { env, server }
    }

    /// Submits an allocation whose runners serve the workflow, and returns its Slurm job id.
    fn submit(&self, options: &str, launch: &str) -> String {
        let runner = self.env.slurm_job_runner();
        let line = format!(
            "{launch} {} {} w {} --poll-interval 1",
            runner.display(),
            self.server.url,
            self.env.text_path("out")
        );
        let script = format!(
            "#!/bin/bash\nexport TORC_TOKEN_FILE={}\nexport HOME={}\n{}\nexec {line}\n",
            self.env.text_path("data/lab.db.token"),
            self.env.text_path(""),
            self.env
                .marks()
                .iter()
                .map(|(name, value)| format!("export {name}={value}"))
                .collect::<Vec<_>>()
                .join("\n"),
        );
        self.env.write("run.sh", script);
        let (script, output) = (self.env.text_path("run.sh"), self.env.text_path("out.%j"));
        let mut words = vec!["--parsable", "--chdir", "/", "--output", &output];
        words.extend(options.split_whitespace());
        words.push(&script);
        slurm().command("sbatch", &words).trim().to_owned()
    }

    /// Waits until the workflow has settled, with a deadline for Slurm.
    fn finish(&self) -> Vec<Value> {
        let wait = || self.server.torc(&self.env, "wait w --for condition=Finished --timeout 60s");
        let settled = (0..4).any(|_| wait().code == Some(0));
        assert!(settled, "{:#?}", self.server.items(&self.env, "get jobs w"));
        self.results()
    }

    fn results(&self) -> Vec<Value> {
        self.server.items(&self.env, "get results w")
    }

    fn logs(&self, job: &str) -> Vec<String> {
        let printed = self.server.torc(&self.env, &format!("logs {job} -w w")).exits(0).stdout;
        let mut lines: Vec<String> = printed.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    }
}

/// Returns the result of an attempt.
fn result<'a>(results: &'a [Value], job: &str, attempt: i64) -> &'a Value {
    let is_it = |result: &&Value| result["job"] == job && result["attempt"] == attempt;
    results.iter().find(is_it).unwrap_or_else(|| panic!("no attempt {attempt} of {job} in {results:#?}"))
}

fn end(result: &Value) -> (&str, i64, &str) {
    let text = |field: &str| result[field].as_str().unwrap_or_default();
    (text("status"), result["returnCode"].as_i64().unwrap_or(-1), text("cause"))
}

const REQUIREMENTS: &str = "
resource_requirements:
  - {name: small, num_cpus: 1, memory: 60m, runtime: PT1M}
  - {name: pair, num_cpus: 2, memory: 60m, runtime: PT1M, num_nodes: 2}
  - {name: gpu, num_cpus: 1, memory: 60m, num_gpus: 1, runtime: PT1M}
";

// J02, J21, X01, X09, X12, S01, S03, S04, S07, S08, S10, S11, S12, S13, S17. An allocation of three nodes has one runner. Jobs of one
// node share nodes, and those of two nodes have two for themselves.
#[test]
fn steps_on_all_nodes_of_an_allocation() {
    let batch = Batch::new(&format!(
        "name: w
resource_monitor: {{enabled: true, granularity: time_series, sample_interval_seconds: 1}}
{REQUIREMENTS}
jobs:
  - {{name: busy, command: 'timeout 5 sh -c \"while :; do :; done\"; true', resource_requirements: small}}
  - name: 'part_{{i}}'
    command: 'echo +1 >> {0}; sleep 1; echo -1 >> {0}; echo $SLURMD_NODENAME'
    resource_requirements: small
    parameters: {{i: '1:6'}}
  - {{name: hog, command: 'head -c 300m /dev/zero | tail', resource_requirements: small}}
  - {{name: wrong, command: 'exit 3', resource_requirements: small}}
  - {{name: leader, command: 'echo list $TORC_NODELIST; srun bash -c \"echo on \\$SLURMD_NODENAME\"', resource_requirements: pair}}
  - {{name: parallel, command: 'echo $SLURM_PROCID of $SLURM_NTASKS on $SLURMD_NODENAME', resource_requirements: pair, tasks_per_node: 2}}
  - {{name: device, command: 'echo $CUDA_VISIBLE_DEVICES', resource_requirements: gpu}}
",
        "$TORC_OUTPUT_DIR/times"
    ));
    let id = batch.submit("--nodes=3 --ntasks-per-node=1 --cpus-per-task=2 --mem=200M --gres=gpu:1 --time=10", "");
    let results = batch.finish();
    let of = |job: &str| end(result(&results, job, 1));
    assert_eq!(of("busy"), ("completed", 0, ""));
    assert_eq!(of("hog"), ("failed", 137, "OutOfMemory"), "srun exits with 1");
    assert_eq!(of("wrong"), ("failed", 3, "ExitCode"));
    assert_eq!(result(&results, "hog", 1)["message"], "state of its step in Slurm: OUT_OF_MEMORY");

    // Six steps at the same time on six CPUs, each with its share of the memory.
    let times = batch.env.lines("out/times");
    assert!(most_at_once(&times) > 2, "steps share nodes and use all of them: {times:?}");
    let used: BTreeSet<String> = (1..=6).flat_map(|i| batch.logs(&format!("part_{i}"))).collect();
    assert!(used.len() > 1, "on more than one node: {used:?}");

    // Without tasks, a command with two nodes runs once and can reach both. With tasks, it runs on both.
    let printed = batch.logs("leader");
    let [list, first, second] = <[String; 3]>::try_from(printed).unwrap_or_else(|printed| panic!("{printed:?}"));
    let nodes: Vec<&str> = list["list ".len().min(list.len())..].split(',').collect();
    assert!(list.starts_with("list n") && nodes.len() == 2, "{list}");
    assert_ne!(first, second);
    for line in [&first, &second] {
        assert!(nodes.iter().any(|node| *line == format!("on {node}")), "{line} is not one of {list}");
    }
    let tasks = batch.logs("parallel");
    assert_eq!(tasks.len(), 4, "{tasks:?}");
    assert!((0..4).all(|task| tasks[task].starts_with(&format!("{task} of 4 on n"))), "{tasks:?}");
    assert_eq!(batch.logs("device").len(), 1);
    assert_ne!(batch.logs("device")[0], "", "the job sees its device");

    // The result merges the samples of the running step with the accounting.
    let busy = result(&results, "busy", 1);
    let number = |field: &str| busy[field].as_f64().unwrap_or_default();
    assert!(number("peakCpuPercent") > 20.0, "{busy:#}");
    let stats = eventually("the account of the busy step", || {
        let stats = batch.server.items(&batch.env, "slurm stats w --job busy");
        stats.into_iter().find(|stats| stats["maxRssBytes"].as_i64() > Some(0))
    });
    assert_eq!((&stats["slurmJobId"], &stats["step"]), (&id.as_str().into(), &"wf1_j1_r1_a1".into()), "{stats:#}");
    assert_eq!((&stats["state"], &stats["nodeList"].is_string()), (&"COMPLETED".into(), &true), "{stats:#}");
    let merged = batch.results();
    let merged = result(&merged, "busy", 1);
    assert!(merged["peakMemoryBytes"].as_i64() >= stats["maxRssBytes"].as_i64(), "{merged:#}");
    let average = stats["aveCpuSeconds"].as_f64().unwrap() / merged["durationSeconds"].as_f64().unwrap() * 100.0;
    assert!((merged["averageCpuPercent"].as_f64().unwrap() - average).abs() < 1.0, "{merged:#} {stats:#}");
    let runner = &batch.server.items(&batch.env, "get runners --all")[0];
    assert_eq!((&runner["capacity"]["nodes"], &runner["slurmJobId"]), (&3.into(), &id.as_str().into()), "{runner:#}");
    // Commands that query the accounting directly.
    let slurm = |line: &str| {
        let call = batch.server.call(&batch.env, line).env("SLURM_CONF", slurm().conf());
        call.arg("-o").arg("json").run().exits(0).json()
    };
    let rows = slurm("slurm sacct w");
    let rows = rows["items"].as_array().unwrap().clone();
    assert!(rows.iter().any(|row| row["slurmJobId"] == id.as_str() && row["nodes"] == 3), "{rows:#?}");
    assert!(rows.iter().any(|row| row["name"] == "wf1_j1_r1_a1" && row["state"] == "COMPLETED"), "{rows:#?}");
    let usage = slurm("slurm usage w");
    assert!(usage["nodeSeconds"].as_i64() > Some(0) && usage["allocations"] == 1, "{usage:#}");
    let found = slurm("slurm parse-logs w");
    let found = found["items"].as_array().unwrap();
    assert!(found.iter().any(|line| line["kind"] == "OutOfMemory" && line["job"] == "hog"), "{found:#?}");
}

// X10, X11, X16, S05, S06, S10, S20. Slurm has no limits below a minute and checks them every half minute.
#[test]
fn a_step_gets_its_signal_and_runs_out_of_time() {
    let batch = Batch::new(&format!(
        "name: w
execution_config: {{mode: slurm, srun_termination_signal: TERM@30, sigkill_headroom_seconds: 110}}
{REQUIREMENTS}
jobs:
  - {{name: careful, command: 'trap \"echo saved; exit 0\" TERM; while :; do sleep 0.2; done', resource_requirements: small}}
  - {{name: stubborn, command: 'trap \"\" TERM; while :; do sleep 0.2; done', resource_requirements: small}}
"
    ));
    batch.submit("--nodes=1 --cpus-per-task=2 --mem=200M --time=3", "");
    let results = batch.finish();
    assert_eq!(end(result(&results, "careful", 1)), ("completed", 0, ""));
    let careful = batch.logs("careful");
    assert!(careful.contains(&"saved".to_owned()), "{careful:?}");
    // Slurm's limit alone would have been a minute.
    let seconds = result(&results, "careful", 1)["durationSeconds"].as_f64().unwrap();
    assert!((25.0..50.0).contains(&seconds), "warned after half a minute, and not at the end: {seconds}");
    assert_eq!(end(result(&results, "stubborn", 1)), ("terminated", 152, "Timeout"));
    assert_eq!(result(&results, "stubborn", 1)["message"], "state of its step in Slurm: TIMEOUT");
}

// X05, X10, S05. An administrator extends the allocation: the running step and the next one get the time.
#[test]
fn a_step_gets_the_time_added_to_its_allocation() {
    let batch = Batch::new(&format!(
        "name: w
execution_config: {{mode: slurm}}
{REQUIREMENTS}
jobs:
  - {{name: long, command: 'touch $TORC_OUTPUT_DIR/begun; until [ -e $TORC_OUTPUT_DIR/go ]; do sleep 0.2; done', resource_requirements: small}}
  - {{name: next, command: 'scontrol -o show step $SLURM_JOB_ID.$SLURM_STEP_ID >$TORC_OUTPUT_DIR/next', depends_on: [long], resource_requirements: small}}
"
    ));
    let id = batch.submit("--nodes=1 --cpus-per-task=1 --mem=100M --time=5", "");
    let slurm = slurm();
    wait_for("the job has begun", || batch.env.path("out/begun").exists().then_some(()));
    let minutes = |text: &str| {
        let word = text.split_whitespace().find_map(|word| word.strip_prefix("TimeLimit=00:"))?;
        word.split(':').next()?.parse::<u32>().ok()
    };
    let shown = || slurm.command("scontrol", &["-o", "show", "step", &format!("{id}.0")]);
    assert!(minutes(&shown()).is_some_and(|minutes| minutes < 5), "{}", shown());
    slurm.command("scontrol", &["update", &format!("JobId={id}"), "TimeLimit=30"]);
    wait_for("the step has more time", || (minutes(&shown())? > 20).then_some(()));
    batch.env.write("out/go", "");
    let results = batch.finish();
    assert_eq!(end(result(&results, "long", 1)), ("completed", 0, ""));
    let next = batch.env.lines("out/next").join(" ");
    assert!(minutes(&next).is_some_and(|minutes| minutes > 20), "{next}");
}

// J02, J23. Jobs of a lost allocation run again without using a retry.
#[test]
fn requeued_and_canceled_allocations_lose_no_job() {
    let batch = Batch::new(&format!(
        "name: w
{REQUIREMENTS}
jobs:
  - {{name: long, command: 'touch $TORC_OUTPUT_DIR/begun_$TORC_ATTEMPT_ID; [ $TORC_ATTEMPT_ID = 3 ] || sleep 1000', resource_requirements: small}}
"
    ));
    let options = "--nodes=1 --cpus-per-task=1 --mem=100M --time=10 --requeue";
    let id = batch.submit(options, "");
    let slurm = slurm();
    for attempt in 1..=2 {
        // Waits for the step: if srun is interrupted while it creates one, the exit code is that of srun.
        let begun = batch.env.path(&format!("out/begun_{attempt}"));
        eventually("the job has begun", || begun.exists().then_some(()));
        match attempt {
            1 => slurm.command("scontrol", &["requeue", &id]),
            _ => slurm.command("scancel", &[&id]),
        };
        eventually("the end of the attempt", || {
            batch.results().iter().find(|result| result["attempt"] == attempt).map(|result| {
                assert_eq!(end(result), ("terminated", 143, "Stopped"), "{result:#}");
            })
        });
        if attempt == 1 {
            // Slurm would delay a requeued job for two minutes.
            eventually("the requeued allocation", || {
                let state = slurm.command("squeue", &["-h", "-t", "all", "-j", &id, "-o", "%T"]);
                if state.trim() == "PENDING" {
                    slurm.attempt("scontrol", &["update", &format!("JobId={id}"), "StartTime=now"]);
                }
                (state.trim() == "RUNNING").then_some(())
            });
        }
    }
    batch.submit(options, "");
    let results = batch.finish();
    assert_eq!(end(result(&results, "long", 3)), ("completed", 0, ""));
    let runners = batch.server.items(&batch.env, "get runners --all");
    let of_first = runners.iter().filter(|runner| runner["slurmJobId"] == id.as_str()).count();
    assert_eq!((of_first, runners.len()), (2, 3), "the same allocation twice, then another: {runners:#?}");
}

// J06. In direct mode, a runner uses only its own node. One runner per node uses all of them.
#[test]
fn direct_mode_on_several_nodes() {
    let document = format!(
        "name: w
execution_config: {{mode: direct}}
{REQUIREMENTS}
jobs:
  - name: 'part_{{i}}'
    command: 'echo +1 >> $TORC_OUTPUT_DIR/times; sleep 1; echo -1 >> $TORC_OUTPUT_DIR/times; echo $SLURMD_NODENAME'
    resource_requirements: small
    parameters: {{i: '1:6'}}
"
    );
    let options = "--nodes=2 --ntasks-per-node=1 --cpus-per-task=1 --mem=200M --time=10";
    let batch = Batch::new(&document);
    batch.submit(options, "");
    batch.finish();
    assert_eq!(most_at_once(&batch.env.lines("out/times")), 1, "one CPU is here");
    let runners = batch.server.items(&batch.env, "get runners --all");
    assert_eq!((&runners[0]["capacity"]["nodes"], &runners[0]["capacity"]["cpus"]), (&1.into(), &1.into()));

    let batch = Batch::new(&document);
    batch.submit(options, "srun --ntasks-per-node=1 --wait=0 --kill-on-bad-exit=0");
    batch.finish();
    let nodes: BTreeSet<String> = (1..=6).flat_map(|i| batch.logs(&format!("part_{i}"))).collect();
    assert_eq!(nodes.len(), 2, "both nodes work: {nodes:?}");
    let runners = batch.server.items(&batch.env, "get runners --all");
    assert_eq!(runners.len(), 2, "{runners:#?}");
}
