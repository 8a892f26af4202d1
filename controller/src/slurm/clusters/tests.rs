#![allow(clippy::unwrap_used)]

use super::super::tests::FakeSlurm;
use super::*;

const RULES: &str = "PartitionName=short MaxTime=01:00:00 State=UP TotalNodes=2 MaxNodes=UNLIMITED\n";
const NODES: &str = "short|2|8|16000|(null)|idle\n";

fn spec(partitions: usize) -> SlurmClusterSpec {
    let one = |number: usize| DetectedPartition {
        name: format!("p{number}"),
        cpus_per_node: 4,
        memory_mb: 1_000,
        max_walltime: "PT1H".to_owned(),
        ..DetectedPartition::default()
    };
    SlurmClusterSpec { partitions: (0..partitions).map(one).collect(), ..SlurmClusterSpec::default() }
}

fn names(partitions: Option<&[PartitionLimits]>) -> Option<Vec<String>> {
    partitions.map(|all| all.iter().map(|one| one.name.clone()).collect())
}

#[tokio::test]
async fn partitions_are_asked_for_again_after_ten_minutes() {
    let slurm = FakeSlurm::new();
    slurm.set_output("scontrol", RULES);
    slurm.set_output("sinfo", NODES);
    let mut clusters = slurm.clusters();
    let cluster = clusters.get(LOCAL, None).unwrap();
    assert_eq!(cluster.known_partitions(), None, "Slurm was not asked yet");
    let short = Some(vec!["short".to_owned()]);
    for (seconds, calls) in [(0, 1), (599, 0), (1, 1), (599, 0)] {
        slurm.advance(Duration::from_secs(seconds));
        assert_eq!(names(cluster.partitions().await), short);
        assert_eq!(
            (slurm.calls("scontrol").len(), slurm.calls("sinfo").len()),
            (calls, calls),
            "after {seconds} s more"
        );
    }
    assert_eq!(names(cluster.known_partitions().as_deref()), short);
    // Detected partitions stay when Slurm does not answer.
    slurm.advance(Duration::from_secs(601));
    slurm.refuses("sinfo", "slurm_load_partitions: Unable to contact slurm controller (connect failure)");
    assert_eq!(names(cluster.partitions().await), short);
    slurm.set_output("sinfo", "this cannot be read\n");
    assert_eq!(names(cluster.partitions().await), short);
    assert_eq!(slurm.calls("sinfo").len(), 2, "an answer that did not come is asked for again");
}

#[tokio::test]
async fn partitions_that_are_written_down_are_not_asked_for() {
    let slurm = FakeSlurm::new();
    let mut clusters = slurm.clusters();
    let cluster = clusters.get("lab", Some(&spec(2))).unwrap();
    assert_eq!(names(cluster.partitions().await), Some(vec!["p0".to_owned(), "p1".to_owned()]));
    assert!(slurm.calls("scontrol").is_empty() && slurm.calls("sinfo").is_empty());
    assert_eq!(cluster.status().partition_count, Some(2));
    assert!(cluster.status().partitions.is_empty(), "nothing was detected");
    let cluster = clusters.get("lab", Some(&spec(1))).unwrap();
    assert_eq!(
        names(cluster.partitions().await),
        Some(vec!["p0".to_owned()]),
        "another description is another cluster"
    );
}

#[tokio::test]
async fn only_the_slurm_of_this_machine_needs_no_description() {
    let slurm = FakeSlurm::new();
    let mut clusters = slurm.clusters();
    assert!(clusters.get("lab", None).is_none());
    assert!(clusters.status("local").is_none(), "it was not called yet");
    assert!(clusters.get("local", None).is_some());
    assert!(clusters.status("local").is_some());
    let cluster = clusters.get("lab", Some(&spec(1))).unwrap();
    cluster.last_contact_ms = Some(7);
    assert_eq!(clusters.get("lab", Some(&spec(1))).unwrap().last_contact_ms, Some(7), "the same one is kept");
    assert_eq!(clusters.get("lab", Some(&spec(2))).unwrap().last_contact_ms, None);
}

fn ready(cluster: &ClusterConnection) -> (String, String, String) {
    let condition = cluster.status().conditions.remove(0);
    assert_eq!(condition.type_, "Ready");
    (condition.status.to_string(), condition.reason, condition.message)
}

#[tokio::test]
async fn a_slurm_is_unreachable_after_a_minute_of_silence() {
    let slurm = FakeSlurm::new();
    let mut clusters = slurm.clusters();
    let cluster = clusters.get(LOCAL, None).unwrap();
    let text = |parts: [&str; 3]| (parts[0].to_owned(), parts[1].to_owned(), parts[2].to_owned());
    assert_eq!(ready(cluster), text(["Unknown", "NotAsked", ""]));
    assert_eq!(cluster.status().last_contact_time, None);
    let silent = "squeue: error: Unable to contact slurm controller (connect failure)";
    slurm.refuses("squeue", silent);
    let call = torc_slurm::squeue::jobs(["1"]);
    for (seconds, told) in [(0, false), (30, false), (29, false), (1, true), (60, true)] {
        slurm.advance(Duration::from_secs(seconds));
        assert!(cluster.ask(&call).await.is_err());
        assert_eq!(cluster.unreachable().is_some(), told, "after {seconds} s more");
    }
    let (status, reason, message) = ready(cluster);
    assert_eq!((status.as_str(), reason.as_str()), ("False", "Unreachable"));
    assert!(message.contains("Unable to contact slurm controller"), "{message}");
    // A refusal is an answer as well, so the time without an answer starts again.
    slurm.refuses("squeue", "slurm_load_jobs error: Invalid user");
    assert!(cluster.ask(&call).await.is_err());
    assert_eq!((cluster.unreachable(), ready(cluster)), (None, text(["True", "Answered", ""])));
    assert!(cluster.status().last_contact_time.is_some());
    slurm.refuses("squeue", silent);
    assert!(cluster.ask(&call).await.is_err());
    slurm.advance(Duration::from_secs(59));
    assert_eq!(cluster.unreachable(), None);
    slurm.relents("squeue");
    assert!(cluster.ask(&call).await.is_ok());
    slurm.advance(Duration::from_secs(600));
    assert_eq!((cluster.unreachable(), ready(cluster)), (None, text(["True", "Answered", ""])));
}

#[tokio::test]
async fn every_call_is_counted() {
    let slurm = FakeSlurm::new();
    slurm.set_output("scontrol", RULES);
    slurm.set_output("sinfo", NODES);
    let mut clusters = slurm.clusters();
    let cluster = clusters.get(LOCAL, None).unwrap();
    cluster.detect().await;
    cluster.detect().await;
    assert!(cluster.ask(&torc_slurm::squeue::jobs(["1"])).await.is_ok());
    let text = slurm.metrics.render(&[], 0);
    for (tool, count) in [("scontrol", 2), ("sinfo", 2), ("squeue", 1), ("sacct", 0), ("sbatch", 0)] {
        assert!(text.contains(&format!("torc_slurm_calls_total{{command=\"{tool}\"}} {count}\n")), "{tool}: {text}");
    }
    let status = cluster.status();
    assert_eq!((status.partition_count, status.partitions[0].name.as_str()), (Some(1), "short"));
}
