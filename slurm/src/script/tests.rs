#![allow(clippy::unwrap_used)]

use std::fs;
use std::process::Command;

use super::*;

fn worker<'a>(command: &'a [String]) -> ScriptRunner<'a> {
    ScriptRunner {
        command,
        arguments: &[],
        allocation: "torc-wf3-a12",
        environment_file: "/home/me/.torc/allocations/12.env",
        one_per_node: false,
        srun_mpi: None,
        folder: "/home/me/project",
        output: "/home/me/project/torc_output/slurm_output_wf3_sl%j.o",
    }
}

const MARKER: AllocationMarker<'static> = AllocationMarker { own: "torc-wf3-a12", shared_name: None };

fn words(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn the_whole_script() {
    let scheduler = SlurmScheduler {
        name: Some("work".to_owned()),
        account: "science".to_owned(),
        partition: Some("short".to_owned()),
        qos: Some("high".to_owned()),
        gres: Some("gpu:2".to_owned()),
        mem: Some("240Gi".to_owned()),
        tmp: Some("100G".to_owned()),
        nodes: Some(2),
        ntasks_per_node: Some(4),
        walltime: Some("1-02:30:00".to_owned()),
        extra: Some("--constraint=fast\n#SBATCH --exclusive\n\n# a remark\n".to_owned()),
        serialize_allocations: None,
    };
    let defaults = BTreeMap::from([
        ("reservation".to_owned(), Value::from("the big one")),
        ("nice".to_owned(), Value::from(10)),
        ("no_requeue".to_owned(), Value::from(true)),
        ("contiguous".to_owned(), Value::from(false)),
    ]);
    let command = words(&["/opt/torc/torc-slurm-job-runner"]);
    let arguments = words(&["3", "my work"]);
    let request = Request::of_scheduler(&scheduler, None);
    let worker = ScriptRunner { arguments: &arguments, ..worker(&command) };
    let text = script(&request, &defaults, &MARKER, &worker).unwrap();
    let expected = r##"#!/bin/bash
#SBATCH --nice=10
#SBATCH --no-requeue
#SBATCH --reservation="the big one"
#SBATCH --chdir=/home/me/project
#SBATCH --output=/home/me/project/torc_output/slurm_output_wf3_sl%j.o
#SBATCH --open-mode=append
#SBATCH --account=science
#SBATCH --partition=short
#SBATCH --qos=high
#SBATCH --gres=gpu:2
#SBATCH --mem=245760M
#SBATCH --tmp=100G
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --time=1-02:30:00
#SBATCH --constraint=fast
#SBATCH --exclusive
#SBATCH --job-name=torc-wf3-a12
#SBATCH --comment=torc-wf3-a12

# Each step sets its own memory limit; srun rejects it together with these variables.
unset SLURM_MEM_PER_CPU SLURM_MEM_PER_GPU
# Variables of the submitting user for other servers do not apply here.
unset TORC_TOKEN TORC_TOKEN_FILE TORC_CA_CERT TORC_CERTIFICATE_SHA256 TORC_SERVER_CERTIFICATES TORC_CONTEXT TORC_KUBECONFIG TORC_SERVICE
export TORC_ALLOCATION=torc-wf3-a12
set -a
if ! . /home/me/.torc/allocations/12.env; then
  echo "torc: cannot read "/home/me/.torc/allocations/12.env" on $(hostname): its folder must be on a file system that the nodes and the server share" >&2
  exit 1
fi
set +a
exec /opt/torc/torc-slurm-job-runner "$TORC_API_URL" 3 'my work'
"##;
    assert_eq!(text, expected);
}

#[test]
fn a_runner_on_every_node_and_allocations_one_after_another() {
    let request = Request { nodes: 4, seconds: 90, serialize: true, cpus_per_task: Some(8), ..Request::default() };
    let command = words(&["runner"]);
    let arguments = words(&["--is-subtask"]);
    let marker = AllocationMarker { own: "torc-wf3-a12", shared_name: Some("torc-wf3-sched7") };
    let each = ScriptRunner { one_per_node: true, srun_mpi: Some("none"), arguments: &arguments, ..worker(&command) };
    let text = script(&request, &BTreeMap::new(), &marker, &each).unwrap();
    for line in [
        "#SBATCH --job-name=torc-wf3-sched7",
        "#SBATCH --comment=torc-wf3-a12",
        "#SBATCH --dependency=singleton",
        "#SBATCH --cpus-per-task=8",
        "#SBATCH --time=0-00:02:00",
        "exec srun --ntasks-per-node=1 --wait=0 --kill-on-bad-exit=0 --overlap --ntasks=\"$SLURM_JOB_NUM_NODES\" --mpi=none \
         runner \"$TORC_API_URL\" --is-subtask",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing:\n{text}");
    }
    assert!(!text.contains("--account") && !text.contains("--partition"), "unset options are left to the site");
}

#[test]
fn extra_options_win_but_never_over_the_marker() {
    let request =
        Request { partition: Some("short"), extra: Some("--partition=long --job-name=mine"), ..Request::default() };
    let command = words(&["runner"]);
    let text = script(&request, &BTreeMap::new(), &MARKER, &worker(&command)).unwrap();
    let at = |line: &str| text.lines().position(|found| found.starts_with(line)).unwrap();
    assert!(at("#SBATCH --partition=short") < at("#SBATCH --partition=long --job-name=mine"));
    assert!(at("#SBATCH --partition=long") < at("#SBATCH --job-name=torc-wf3-a12"));
}

#[test]
fn nothing_can_smuggle_a_line_in() {
    let command = words(&["runner"]);
    let none = BTreeMap::new();
    let evil = "x\n#SBATCH --uid=0";
    let request = Request { account: Some(evil), ..Request::default() };
    let error = script(&request, &none, &MARKER, &worker(&command)).unwrap_err();
    assert!(error.to_string().contains("`account`"), "{error}");
    let defaults = BTreeMap::from([("a b".to_owned(), Value::from(true))]);
    assert!(script(&Request::default(), &defaults, &MARKER, &worker(&command)).is_err());
    let list = BTreeMap::from([("nodelist".to_owned(), Value::from(vec!["n1"]))]);
    assert!(script(&Request::default(), &list, &MARKER, &worker(&command)).is_err());
    let quoted = Request { qos: Some("a \"b\" \\c #d"), ..Request::default() };
    let text = script(&quoted, &none, &MARKER, &worker(&command)).unwrap();
    assert!(text.contains(r##"#SBATCH --qos="a \"b\" \\c #d""##), "{text}");
}

#[test]
fn memory_and_time_in_slurms_words() {
    for (text, expected) in
        [("240Gi", "245760M"), ("1500k", "2M"), ("8000", "8000"), ("0", "0"), ("200G", "204800M"), ("?", "?")]
    {
        assert_eq!(memory(text), expected, "{text}");
    }
    for (seconds, expected) in [(0, "0-00:01:00"), (61, "0-00:02:00"), (86_400, "1-00:00:00"), (95_400, "1-02:30:00")] {
        assert_eq!(time_limit(seconds), expected, "{seconds}");
    }
    let scheduler = SlurmScheduler::default();
    let request = Request::of_scheduler(&scheduler, Some("fallback"));
    assert_eq!((request.account, request.nodes, request.seconds), (Some("fallback"), 1, 3_600));
}

#[test]
fn a_real_shell_runs_it_with_the_variables_of_the_file() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("it's 12.env");
    let token = "t'o\"k$(en)\nwith a second line";
    let variables = BTreeMap::from([
        ("TORC_TOKEN_FILE".to_owned(), token.to_owned()),
        ("TORC_API_URL".to_owned(), "https://login2:7421".to_owned()),
    ]);
    fs::write(&file, environment_file(&variables).unwrap()).unwrap();
    let path = file.to_string_lossy().into_owned();
    let command = words(&[
        "sh",
        "-c",
        "printf '%s|' \"$TORC_TOKEN_FILE\" \"${SLURM_MEM_PER_CPU-none}\" \"$SLURM_MEM_PER_NODE\" \"$0\" \
         \"$TORC_ALLOCATION\" \"${TORC_CA_CERT-none}\" \"${TORC_TOKEN-none}\"",
    ]);
    let worker = ScriptRunner { environment_file: &path, ..worker(&command) };
    let text = script(&Request::default(), &BTreeMap::new(), &MARKER, &worker).unwrap();
    assert!(!text.contains("t'o") && !text.contains("(en)"), "the token is in the script");
    let run = || {
        let mut bash = Command::new("bash");
        let others = [("TORC_CA_CERT", "/mine"), ("TORC_TOKEN", "another"), ("TORC_API_URL", "http://another")];
        bash.envs(others).env("SLURM_MEM_PER_CPU", "100").env("SLURM_MEM_PER_NODE", "400");
        bash.arg("-c").arg(&text).output().unwrap()
    };
    let said = String::from_utf8(run().stdout).unwrap();
    assert_eq!(said, format!("{token}|none|400|https://login2:7421|torc-wf3-a12|none|none|"));
    fs::remove_file(file).unwrap();
    let without = run();
    assert_eq!(without.status.code(), Some(1), "it runs without its variables");
    assert!(String::from_utf8(without.stderr).unwrap().contains("it's 12.env"));
    assert!(environment_file(&BTreeMap::from([("A B".to_owned(), String::new())])).is_err());
}

#[test]
fn a_scheduler_gives_every_option_to_its_request() {
    let scheduler = SlurmScheduler {
        name: Some("n".to_owned()),
        account: "a".to_owned(),
        partition: Some("p".to_owned()),
        qos: Some("q".to_owned()),
        gres: Some("gpu:1".to_owned()),
        mem: Some("2g".to_owned()),
        tmp: Some("3g".to_owned()),
        nodes: Some(4),
        ntasks_per_node: Some(5),
        walltime: Some("6".to_owned()),
        extra: Some("--x".to_owned()),
        serialize_allocations: Some(true),
    };
    let expected = Request {
        account: Some("a"),
        partition: Some("p"),
        qos: Some("q"),
        gres: Some("gpu:1"),
        memory: Some("2048M".to_owned()),
        tmp: Some("3g"),
        nodes: 4,
        tasks_per_node: Some(5),
        cpus_per_task: None,
        least_cpus: None,
        seconds: 360,
        serialize: true,
        extra: Some("--x"),
    };
    assert_eq!(Request::of_scheduler(&scheduler, Some("other")), expected, "its own account counts first");
    let without = SlurmScheduler { serialize_allocations: Some(false), walltime: Some("soon".to_owned()), ..scheduler };
    let request = Request::of_scheduler(&without, None);
    assert_eq!((request.serialize, request.seconds), (false, 3_600));
    let nameless = SlurmScheduler::default();
    assert_eq!(Request::of_scheduler(&nameless, None).account, None);
}

/// Each option of the request has a value that no other option has.
#[test]
fn every_option_of_a_request_is_written() {
    let request = Request {
        account: Some("a"),
        partition: Some("p"),
        qos: Some("q"),
        gres: Some("gpu:1"),
        memory: Some("2M".to_owned()),
        tmp: Some("3G"),
        nodes: 4,
        tasks_per_node: Some(5),
        cpus_per_task: Some(6),
        least_cpus: Some(7),
        seconds: 480,
        serialize: true,
        extra: Some("--exclusive"),
    };
    let command = words(&["runner"]);
    let marker = AllocationMarker { own: "own", shared_name: Some("shared") };
    let worker = ScriptRunner { folder: "/f", output: "/o", ..worker(&command) };
    let text = script(&request, &BTreeMap::new(), &marker, &worker).unwrap();
    let options: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("#SBATCH --")).collect();
    let expected = [
        "chdir=/f",
        "output=/o",
        "open-mode=append",
        "account=a",
        "partition=p",
        "qos=q",
        "gres=gpu:1",
        "mem=2M",
        "tmp=3G",
        "nodes=4",
        "ntasks-per-node=5",
        "cpus-per-task=6",
        "mincpus=7",
        "time=0-00:08:00",
        "exclusive",
        "job-name=shared",
        "comment=own",
        "dependency=singleton",
    ];
    assert_eq!(options, expected);
    let least = script(&Request::default(), &BTreeMap::new(), &MARKER, &worker).unwrap();
    assert!(
        least.contains("#SBATCH --nodes=1\n#SBATCH --time=0-00:01:00\n#SBATCH --job-name=torc-wf3-a12\n"),
        "{least}"
    );
}

#[test]
fn defaults_of_every_type() {
    let command = words(&["runner"]);
    let line = |name: &str, value: Value| {
        let defaults = BTreeMap::from([(name.to_owned(), value)]);
        let text =
            script(&Request::default(), &defaults, &MARKER, &worker(&command)).map_err(|error| error.to_string())?;
        Ok::<String, String>(text.lines().nth(1).unwrap_or_default().to_owned())
    };
    let chdir = "#SBATCH --chdir=/home/me/project".to_owned();
    let cases = [
        ("mail_type", Value::from("END"), Ok("#SBATCH --mail-type=END".to_owned())),
        ("--nice", Value::from(5), Ok("#SBATCH --nice=5".to_owned())),
        ("requeue", Value::from(true), Ok("#SBATCH --requeue".to_owned())),
        ("requeue", Value::from(false), Ok(chdir.clone())),
        ("requeue", Value::Null, Ok(chdir)),
        ("comment", Value::from(""), Ok("#SBATCH --comment=\"\"".to_owned())),
        ("list", Value::from(vec![1]), Err("`list` must be a text, a number or a boolean".to_owned())),
        ("a b", Value::from(1), Err("`a b` is not an option of sbatch".to_owned())),
        ("--", Value::from(1), Err("`` is not an option of sbatch".to_owned())),
        ("x", Value::from("a\tb"), Err("`x` must not contain line breaks or other control characters".to_owned())),
    ];
    for (name, value, expected) in cases {
        assert_eq!(line(name, value.clone()), expected, "{name} {value}");
    }
    let request = Request { extra: Some("a\0b"), ..Request::default() };
    let error = script(&request, &BTreeMap::new(), &MARKER, &worker(&command)).unwrap_err();
    assert_eq!(error.to_string(), "`extra` contains a NUL character");
}

#[test]
fn limits_of_memory_and_time() {
    for (text, expected) in
        [("1m", "1M"), ("1048577b", "2M"), ("1b", "1M"), (" 8g ", "8192M"), (" 800 ", "800"), ("0g", "0M")]
    {
        assert_eq!(memory(text), expected, "{text}");
    }
    let cases = [
        (-5, "0-00:01:00"),
        (59, "0-00:01:00"),
        (60, "0-00:01:00"),
        (120, "0-00:02:00"),
        (121, "0-00:03:00"),
        (3_599, "0-01:00:00"),
        (3_600, "0-01:00:00"),
        (3_601, "0-01:01:00"),
        (86_340, "0-23:59:00"),
        (86_341, "1-00:00:00"),
        (10 * 86_400 + 61, "10-00:02:00"),
    ];
    for (seconds, expected) in cases {
        assert_eq!(time_limit(seconds), expected, "{seconds}");
    }
}

#[test]
fn a_runner_on_every_node_without_mpi() {
    let command = words(&["a b", "c"]);
    let each = ScriptRunner { one_per_node: true, ..worker(&command) };
    let text = script(&Request::default(), &BTreeMap::new(), &MARKER, &each).unwrap();
    let last = "exec srun --ntasks-per-node=1 --wait=0 --kill-on-bad-exit=0 --overlap --ntasks=\"$SLURM_JOB_NUM_NODES\" 'a b' c \"$TORC_API_URL\"";
    assert_eq!(text.lines().last(), Some(last));
    let one = ScriptRunner { one_per_node: false, srun_mpi: Some("none"), ..each };
    let text = script(&Request::default(), &BTreeMap::new(), &MARKER, &one).unwrap();
    assert_eq!(text.lines().last(), Some("exec 'a b' c \"$TORC_API_URL\""));
}

#[test]
fn variables_of_the_file() {
    let file = |name: &str, value: &str| {
        let variables = BTreeMap::from([(name.to_owned(), value.to_owned()), ("A".to_owned(), "1".to_owned())]);
        environment_file(&variables).map_err(|error| error.to_string())
    };
    assert_eq!(file("B", "x y"), Ok("A=1\nB='x y'\n".to_owned()));
    assert_eq!(file("_b2", ""), Ok("A=1\n_b2=''\n".to_owned()));
    for name in ["2B", "", "B-C", "é"] {
        assert_eq!(file(name, "x"), Err(format!("`{name}` is not a valid shell variable")));
    }
    assert_eq!(file("B", "x\0"), Err("`B` is not a valid shell variable".to_owned()));
}
