//! Allocations are long enough for their jobs, with any early signal and any headroom.

use super::*;

/// Returns a job of a minute that logs early signals, and the walltime that its allocation needs.
struct Case {
    config: &'static str,
    minutes: i64,
}

const CASES: [Case; 3] = [
    Case { config: "mode: slurm, srunTerminationSignal: TERM@120, sigkillHeadroomSeconds: 180", minutes: 10 },
    Case { config: "mode: auto, srunTerminationSignal: TERM@120, sigkillHeadroomSeconds: 300", minutes: 12 },
    Case {
        config: "mode: direct, terminationSignal: SIGTERM, sigtermLeadSeconds: 60, sigkillHeadroomSeconds: 90",
        minutes: 7,
    },
];

// X05, X10, X11, R13
#[test]
fn a_sized_allocation_leaves_its_job_enough_time() {
    let _calm = shared();
    let logins: Vec<(SlurmEnv, Running, i64)> = CASES
        .iter()
        .map(|case| {
            let login = SlurmEnv::new(slurm());
            let command = "trap 'touch signaled; exit 1' TERM; sleep 20 & wait $!; touch done";
            let job = format!("    - {{name: b, command: \"{command}\", resourceRequirements: minute}}\n");
            let document = sized(&job, &format!("executionConfig: {{{}}}", case.config)).replace(
                "name: small, numCpus: 1, memory: 100m, runtime: PT2M",
                "name: minute, numCpus: 1, memory: 100m, runtime: PT1M",
            );
            login.env.write("w.yaml", document);
            let running = login.call("apply -f w.yaml").start();
            (login, running, case.minutes)
        })
        .collect();
    for (login, running, minutes) in logins {
        login.end(running).exits(0);
        assert!(login.env.path("done").exists() && !login.env.path("signaled").exists());
        let rows = login.allocations();
        assert_eq!(rows.len(), 1, "one allocation is enough: {rows:?}");
        assert_eq!(rows[0]["walltimeSeconds"], minutes * 60, "{rows:?}");
    }
}
