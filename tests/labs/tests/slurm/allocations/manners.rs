//! How allocations are asked for when a document or a site has wishes of its own.

use torc_tests::labs::sshd::Machine;

use super::*;

/// A job that waits until somebody lets it go.
const PATIENT: &str = "command: \"touch first; until [ -e go ]; do sleep 0.1; done\"";

#[test]
fn allocations_that_are_to_run_one_after_another_do() {
    let _calm = shared();
    let login = SlurmEnv::new(slurm());
    let document = scheduled("    serialize_allocations: true\n    extra: --cpus-per-task=1", "    num_allocations: 2");
    // Somebody waits while the first one is busy, so that the other allocation is not given back.
    let next = "small\n  - {name: next, command: 'touch next', resource_requirements: small}\nresource_requirements:";
    let document = document.replacen("small\nresource_requirements:", next, 1);
    let command = "command: if [ -e first ]; then touch second; else touch first; sleep 600; fi";
    login.env.write("w.yaml", document.replace(command, PATIENT));
    let running = login.call("apply -f w.yaml").start();
    login.until_exists("first");
    let numbers = patiently("two numbers", || Some(login.numbers()).filter(|numbers| numbers.len() == 2));
    let waiting = patiently("one of them waits for the other", || {
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

// Slurm's commands are on another machine, and so is the file that the runner reads its secrets from.
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
    // Without SLURM_CONF only the way over ssh leads to Slurm.
    let call = login.env.call("apply -f w.yaml").env("TORC_SERVER_SLURM_POLL_INTERVAL", "1");
    login.end(call.start()).exits(0);
    assert!(login.env.path("second").exists());
    assert_eq!(login.allocations()[0]["cluster"], "far");
    let left = fs::read_dir(login.env.path(".torc-allocations")).map_or(0, Iterator::count);
    assert_eq!(left, 0, "nobody needs the secrets any more");
}
