//! Allocations with options of the document or the site.

use torc_tests::labs::sshd::Machine;

use super::*;

/// A held job.
const PATIENT: &str = "command: \"touch first; until [ -e go ]; do sleep 0.1; done\"";

#[test]
fn sequential_allocations_run_one_after_another() {
    let _calm = shared();
    let login = SlurmEnv::new(slurm());
    let document = scheduled("    serialize_allocations: true\n    extra: --cpus-per-task=1", "    num_allocations: 2");
    // A ready job waits while the first allocation is busy, so the second one is not canceled.
    let next = "small\n  - {name: next, command: 'touch next', resource_requirements: small}\nresource_requirements:";
    let document = document.replacen("small\nresource_requirements:", next, 1);
    let command = "command: if [ -e first ]; then touch second; else touch first; sleep 600; fi";
    login.env.write("w.yaml", document.replace(command, PATIENT));
    let running = login.call("apply -f w.yaml").start();
    login.until_exists("first");
    let numbers = wait_for("two numbers", || Some(login.numbers()).filter(|numbers| numbers.len() == 2));
    let waiting = wait_for("one of them waits for the other", || {
        let rows = login.allocations();
        let waits = rows.iter().find(|one| one["status"] == "pending" && one["slurmReason"] == "Dependency")?;
        Some(waits["slurmJobId"].as_str()?.to_owned())
    });
    assert_eq!(login.queued(&waiting), "PENDING");
    let names: BTreeSet<String> = numbers
        .iter()
        .map(|number| login.slurm.command("squeue", &["-h", "-j", number, "-o", "%j"]).trim().to_owned())
        .collect();
    assert_eq!(names.len(), 1, "Slurm knows by their name that they belong together: {names:?}");
    login.env.write("go", "");
    login.end(running).exits(0);
    assert_eq!(login.numbers().len(), 2, "{:?}", login.allocations());
    login.expect_nothing_queued();
}

// The commands of Slurm and the credential file of the runner are on another machine.
#[test]
fn a_cluster_is_reached_over_ssh() {
    let _calm = shared();
    let login = SlurmEnv::new(slurm());
    fs::write(login.env.path("first"), "").unwrap();
    let machine = Machine::start(&login.env, "login");
    let address = machine.address();
    let (host, port) = address.split_once(':').unwrap();
    let key = login.env.text_path(".test/id_ed25519");
    let known = login.env.text_path(".test/known_hosts");
    let words = format!(
        "ssh -F none -i {key} -o IdentitiesOnly=yes -o BatchMode=yes -o StrictHostKeyChecking=accept-new \
         -o UserKnownHostsFile={known} -p {port} {host} env SLURM_CONF={}",
        login.slurm.conf().display()
    );
    let prefix: Vec<String> = words.split_whitespace().map(|word| format!("\"{word}\"")).collect();
    let cluster = format!(
        "apiVersion: torc.dev/v1alpha1\nkind: SlurmCluster\nmetadata: {{name: far}}\nspec:\n  commandPrefix: [{}]\n---\n",
        prefix.join(", ")
    );
    let workflow = sized(SECOND_TIME_LUCKY, "").replace("slurmCluster: local", "slurmCluster: far");
    login.env.write("w.yaml", cluster + &workflow);
    // Without SLURM_CONF, only ssh reaches Slurm.
    let call = login.env.call("apply -f w.yaml").env("TORC_SERVER_SLURM_POLL_INTERVAL", "1");
    login.end(call.start()).exits(0);
    assert!(login.env.path("second").exists());
    assert_eq!(login.allocations()[0]["cluster"], "far");
    let left = fs::read_dir(login.env.path(".torc-allocations")).map_or(0, Iterator::count);
    assert_eq!(left, 0, "the credential files were not removed");
}
