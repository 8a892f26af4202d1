//! Runners in allocations that serve several workflows.

use torc_tests::env::{Server, rendezvous, results_by_runner};

use super::*;

/// Submits an allocation of a whole node with a runner of all workflows, and returns its Slurm job id.
fn submit_runner(login: &SlurmEnv, server: &Server) -> String {
    let script = login.env.text_path("runner.sh");
    let words = ["sbatch", "--parsable", "-c", "4", "--mem=600M", "--time=20", "-o", "runner-%j.out", &script];
    let call = server.call(&login.env, "runner --num-cpus 4 --memory 400m --label pair").under(&words);
    call.env("SLURM_CONF", login.slurm.conf()).run().exits(0).stdout.trim().to_owned()
}

// P01, P06. Both runners learn durations in the first workflow and lease ahead in the second.
#[test]
fn two_idle_allocations_share_eight_jobs() {
    let _calm = shared();
    let login = SlurmEnv::new(slurm());
    let server = Server::start(&login.env);
    login.env.write("runner.sh", "#!/bin/sh\nexec \"$@\"\n");
    let numbers = [submit_runner(&login, &server), submit_runner(&login, &server)];
    let items = |line: &str| server.items(&login.env, line);
    let runners: BTreeSet<i64> = wait_for("both runners are active", || {
        let active = items("get runners").into_iter().filter(|runner| runner["status"] == "active");
        let active: BTreeSet<i64> = active.map(|runner| runner["id"].as_i64().unwrap()).collect();
        (active.len() == 2).then_some(active)
    });
    for name in ["first", "second"] {
        login.env.write(&format!("client/{name}.yaml"), rendezvous(name, 8, &login.env.text_path("client")));
        let applied = server.call(&login.env, &format!("apply -f {name}.yaml --wait")).start();
        login.end(applied).exits(0);
        let shares = results_by_runner(&items(&format!("get results {name}")));
        assert_eq!(shares, runners.iter().map(|runner| (*runner, 4)).collect(), "{name}");
    }
    for number in &numbers {
        login.slurm.command("scancel", &[number]);
        wait_for("the allocation is gone", || login.queued(number).is_empty().then_some(()));
    }
}
