//! How allocations are asked for when a document or a site has wishes of its own.

use torc_tests::lab::sshd::Machine;

use super::*;

/// A job that waits until somebody lets it go.
const PATIENT: &str = "command: \"touch first; until [ -e go ]; do sleep 0.1; done\"";

#[test]
fn allocations_that_are_to_run_one_after_another_do() {
    let _calm = shared();
    let desk = Desk::new();
    let document = scheduled("    serialize_allocations: true\n    extra: --cpus-per-task=1", "    num_allocations: 2");
    // Somebody waits while the first one is busy, so that the other allocation is not given back.
    let next = "small\n  - {name: next, command: 'touch next', resource_requirements: small}\nresource_requirements:";
    let document = document.replacen("small\nresource_requirements:", next, 1);
    let command = "command: if [ -e first ]; then touch second; else touch first; sleep 600; fi";
    desk.lab.write("w.yaml", document.replace(command, PATIENT));
    let running = desk.call("apply -f w.yaml").start();
    desk.until_exists("first");
    let numbers = patiently("two numbers", || Some(desk.numbers()).filter(|numbers| numbers.len() == 2));
    let waiting = patiently("one of them waits for the other", || {
        let rows = desk.allocations();
        let waits = rows.iter().find(|one| one["status"] == "pending" && one["slurmReason"] == "Dependency")?;
        Some(waits["slurmJobId"].as_str()?.to_owned())
    });
    assert_eq!(desk.queued(&waiting), "PENDING");
    let names: BTreeSet<String> = numbers
        .iter()
        .map(|number| desk.slurm.command("squeue", &["-h", "-j", number, "-o", "%j"]).trim().to_owned())
        .collect();
    assert_eq!(names.len(), 1, "Slurm knows by their name that they belong together: {names:?}");
    desk.lab.write("go", "");
    desk.end(running).exits(0);
    assert_eq!(desk.numbers().len(), 2, "{:?}", desk.allocations());
    desk.expect_nothing_queued();
}

// Slurm's commands are on another machine, and so is the file that the runner reads its secrets from.
#[test]
fn a_cluster_is_reached_over_ssh() {
    let _calm = shared();
    let desk = Desk::new();
    fs::write(desk.lab.path("first"), "").unwrap();
    let login = Machine::start(&desk.lab, "login");
    let address = login.address();
    let (host, port) = address.split_once(':').unwrap();
    let key = desk.lab.text_path(".lab/id_ed25519");
    let known = desk.lab.text_path(".lab/known_hosts");
    let words = format!(
        "ssh -F none -i {key} -o IdentitiesOnly=yes -o BatchMode=yes -o StrictHostKeyChecking=accept-new \
         -o UserKnownHostsFile={known} -p {port} {host} env SLURM_CONF={}",
        desk.slurm.conf().display()
    );
    let prefix: Vec<String> = words.split_whitespace().map(|word| format!("\"{word}\"")).collect();
    let cluster = format!(
        "apiVersion: torc.dev/v1alpha1\nkind: SlurmCluster\nmetadata: {{name: far}}\nspec:\n  commandPrefix: [{}]\n---\n",
        prefix.join(", ")
    );
    let workflow = sized(SECOND_TIME_LUCKY, "").replace("slurmCluster: local", "slurmCluster: far");
    desk.lab.write("w.yaml", cluster + &workflow);
    // Without SLURM_CONF only the way over ssh leads to Slurm.
    let call = desk.lab.call("apply -f w.yaml").env("TORC_SERVER_SLURM_POLL_INTERVAL", "1");
    desk.end(call.start()).exits(0);
    assert!(desk.lab.path("second").exists());
    assert_eq!(desk.allocations()[0]["cluster"], "far");
    let left = fs::read_dir(desk.lab.path(".torc-allocations")).map_or(0, Iterator::count);
    assert_eq!(left, 0, "nobody needs the secrets any more");
}
