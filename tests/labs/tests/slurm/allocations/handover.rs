//! Credentials of runners in allocations, which stay valid as long as the runners may need them.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use super::*;

/// A private CA.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut wanted = CertificateParams::new(Vec::new()).unwrap();
        wanted.distinguished_name.push(DnType::CommonName, "a private authority");
        wanted.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self { issuer: Issuer::new(wanted, KeyPair::generate().unwrap()) }
    }

    /// Replaces the certificate and its key by new ones for a name.
    fn issue(&self, env: &torc_tests::env::TestEnv, name: &str) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &self.issuer).unwrap();
        env.write("tls/new.key", key.serialize_pem());
        env.write("tls/new.crt", certificate.pem());
        fs::rename(env.path("tls/new.key"), env.path("tls/tls.key")).unwrap();
        fs::rename(env.path("tls/new.crt"), env.path("tls/tls.crt")).unwrap();
    }
}

/// Returns the content of the credential file with this extension.
fn credential(login: &SlurmEnv, ending: &str) -> Option<String> {
    let files = fs::read_dir(login.env.path(".torc/allocations")).ok()?;
    let mut paths = files.filter_map(|file| Some(file.ok()?.path()));
    let path = paths.find(|path| path.extension().is_some_and(|found| found == ending))?;
    fs::read_to_string(path).ok()
}

/// Returns the `PATH` with the programs under test first.
fn path_with_torc() -> String {
    let bin = torc_tests::env::binary();
    format!("{}:{}", bin.parent().map(Path::display).unwrap(), std::env::var("PATH").unwrap())
}

// The certificate is for another name, its CA is in no trust store, and it is replaced while the job runs.
#[test]
fn runners_in_allocations_trust_a_replaced_certificate() {
    let _calm = shared();
    let login = SlurmEnv::new(slurm());
    let authority = Authority::new();
    authority.issue(&login.env, "login1.example.org");
    let job = "    - name: job\n      command: \"torc user-data set early 1; touch first; until [ -e go ]; do sleep 0.1; done; \
               torc user-data set late 2\"\n      resourceRequirements: small\n    \
               - {name: next, command: 'torc user-data get late >seen', dependsOn: [job], resourceRequirements: small}\n";
    login.env.write("w.yaml", sized(job, "userData: [{name: early}, {name: late}]"));
    let line = "apply -f w.yaml --advertise 127.0.0.1 --tls-cert tls/tls.crt --tls-key tls/tls.key";
    let running = login.call(line).env("PATH", path_with_torc()).start();
    login.until_exists("first");
    let before = fs::read_to_string(login.env.path("tls/tls.crt")).unwrap().replace("\r\n", "\n");
    assert_eq!(credential(&login, "crt").as_deref(), Some(before.as_str()));
    authority.issue(&login.env, "login2.example.org");
    let after = fs::read_to_string(login.env.path("tls/tls.crt")).unwrap().replace("\r\n", "\n");
    wait_for("runners are handed the new one", || (credential(&login, "crt")? == after).then_some(()));
    login.env.write("go", "");
    login.end(running).exits(0);
    assert_eq!(login.env.lines("seen"), ["2"]);
    assert_eq!(
        (login.numbers().len(), login.causes().len()),
        (1, 2),
        "nothing had to be done twice: {:?}",
        login.causes()
    );
    assert_eq!(credential(&login, "crt"), None, "the credential file was not removed");
}

#[test]
fn a_runner_gets_a_new_token_before_the_old_one_expires() {
    let _calm = shared();
    let login = SlurmEnv::new(slurm());
    let job = "    - name: job\n      command: \"touch first; until [ -e go ]; do sleep 0.1; done\"\n      \
               resourceRequirements: small\n    \
               - {name: next, command: 'touch next', dependsOn: [job], resourceRequirements: small}\n";
    login.env.write("w.yaml", sized(job, ""));
    let running = login.call("apply -f w.yaml").env("TORC_SERVER_RUNNER_TOKEN_LIFETIME", "6s").start();
    login.until_exists("first");
    let expires = || {
        login.env.write("token", credential(&login, "token")?);
        let printed = login.torc("token show token -o json").exits(0).json();
        assert_eq!(
            (printed["statement"]["scope"].as_str(), printed["statement"]["workflow"].as_i64()),
            (Some("runner"), Some(1))
        );
        printed["statement"]["expires"].as_i64()
    };
    let first = expires().unwrap();
    // Long after its first token has expired.
    wait_for("a token that is good for longer", || (expires()? > first + 12).then_some(()));
    login.env.write("go", "");
    login.end(running).exits(0);
    assert!(login.env.path("next").exists());
    let attempts = login.env.attempts("");
    assert_eq!(attempts, ["job 1 completed", "next 1 completed"]);
    assert_eq!(login.numbers().len(), 1, "the runner was there all the time");
}

// A pending allocation uses the address that the server has when it starts.
#[test]
fn a_queued_allocation_finds_a_moved_server() {
    let _calm = shared();
    let login = SlurmEnv::new(slurm());
    fs::write(login.env.path("first"), "").unwrap();
    let far = "    extra: --begin=now+3600";
    login.env.write("w.yaml", scheduled(far, ""));
    let first = login.call("apply -f w.yaml --advertise 127.0.0.1").start();
    let number = wait_for("an allocation in the queue", || login.numbers().pop());
    let before = credential(&login, "env").unwrap();
    first.kill();
    fs::remove_file(login.env.path(".torc/server.json")).unwrap();
    let second = login.call("apply -f w.yaml --advertise 127.0.0.2").start();
    wait_for("the new address is handed over", || (credential(&login, "env")? != before).then_some(()));
    login.slurm.command("scontrol", &["update", &format!("JobId={number}"), "StartTime=now"]);
    login.end(second).exits(0);
    assert_eq!(login.numbers(), [number]);
    assert!(login.env.path("second").exists());
}

// Every user of the machine sees command lines, and the job records of Slurm.
#[test]
fn no_secret_is_visible_to_other_users() {
    let _calm = shared();
    let login = SlurmEnv::new(slurm());
    let job = "    - name: look\n      command: \"env >variables; cat $TORC_TOKEN_FILE >own; cat /proc/[0-9]*/cmdline | tr '\\\\0' ' ' >lines; \
               for file in .torc/allocations/*; do stat -c '%a %n' $file; done >modes; touch first; \
               until [ -e go ]; do sleep 0.1; done\"\n      resourceRequirements: small\n";
    login.env.write("w.yaml", sized(job, ""));
    // The job does not inherit the credentials of the submitting user for another server.
    let running = login.call("apply -f w.yaml").env("TORC_TOKEN", "a-secret-of-another-server").start();
    login.until_exists("first");
    let token = credential(&login, "token").unwrap();
    let number = login.active();
    let show = login.slurm.command("scontrol", &["show", "job", "-d", &number]);
    let queue = login.slurm.command("squeue", &["-j", &number, "-o", "%all"]);
    let script = login.slurm.command("scontrol", &["write", "batch_script", &number, "-"]);
    let lines = fs::read_to_string(login.env.path("lines")).unwrap_or_default();
    let variables = fs::read_to_string(login.env.path("variables")).unwrap();
    for (where_, text) in [("show", &show), ("squeue", &queue), ("script", &script), ("lines", &lines)] {
        assert!(text.len() > 100 && !text.contains("torc1."), "{where_}: {text}");
    }
    assert!(!variables.contains(token.trim()) && !variables.contains("TORC_TOKEN="), "{variables}");
    assert_ne!(login.env.lines("own"), [token.trim()], "jobs have a token of their own");
    let modes = login.env.lines("modes");
    assert!(modes.len() == 2 && modes.iter().all(|line| line.starts_with("600 ")), "{modes:?}");
    let folder = fs::metadata(login.env.path(".torc/allocations")).unwrap().permissions().mode();
    assert_eq!(folder & 0o777, 0o700);
    login.env.write("go", "");
    let ended = login.end(running).exits(0);
    assert!(!ended.stderr.contains("torc1.") && !ended.stdout.contains("torc1."));
    let output = fs::read_dir(login.env.path("torc_output"))
        .unwrap()
        .filter_map(|file| fs::read_to_string(file.ok()?.path()).ok());
    assert!(output.into_iter().all(|text| !text.contains("torc1.")), "no log has it");
    assert_eq!(fs::read_dir(login.env.path(".torc/allocations")).unwrap().count(), 0);
}
