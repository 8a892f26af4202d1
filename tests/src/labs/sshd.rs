//! Machines reached over SSH: a private sshd on a port of the loopback address, with its own keys and its own environment.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::env::{Call, TestEnv, binary, until};

/// A machine: its home and its PATH are its own, its processes belong to the lab.
pub struct Machine {
    daemon: Child,
    port: u16,
    /// Where a login begins.
    pub home: PathBuf,
}

impl Machine {
    /// Starts one with the `torc` under test in its PATH.
    pub fn start(lab: &TestEnv, name: &str) -> Self {
        let machine = Self::without_torc(lab, name);
        std::os::unix::fs::symlink(binary(), machine.home.join("bin/torc")).expect("a link to torc");
        machine
    }

    /// Starts one with a program in the place of `torc`.
    pub fn with_program(lab: &TestEnv, name: &str, script: &str) -> Self {
        let machine = Self::without_torc(lab, name);
        let program = machine.home.join("bin/torc");
        fs::write(&program, script).expect("a program");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a program that can be run");
        machine
    }

    fn without_torc(lab: &TestEnv, name: &str) -> Self {
        let home = lab.path(&format!("machines/{name}"));
        fs::create_dir_all(home.join("bin")).expect("a home");
        let key = client_key(lab);
        run("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", &text(&home.join("host_key"))]);
        // As root sshd insists on this folder, which only the package's service makes.
        let _ = fs::create_dir_all("/run/sshd");
        // Another test may take a free port between the look and the start.
        for _ in 0..20 {
            let port = free_port();
            fs::write(home.join("sshd_config"), configuration(lab, &home, &key, port)).expect("a configuration");
            if let Some(daemon) = listening(lab, &home) {
                return Self { daemon, port, home };
            }
        }
        panic!("sshd does not start:\n{}", fs::read_to_string(home.join("sshd.log")).unwrap_or_default());
    }

    /// Writes what a Secret has for it: a key that it lets in, and what it is known by.
    pub fn write_secret(&self, lab: &TestEnv, folder: &Path) {
        fs::create_dir_all(folder).expect("a folder");
        let key = folder.join("id_ed25519");
        fs::copy(client_key(lab), &key).expect("a key");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("a key that ssh takes");
        let known = fs::read_to_string(self.home.join("host_key.pub")).expect("its public key");
        fs::write(folder.join("known_hosts"), format!("[127.0.0.1]:{} {known}", self.port)).expect("a file");
    }

    /// Words that lead a command to it.
    pub fn prefix(&self) -> Vec<String> {
        ["ssh", "-F", "none", "-p", &self.port.to_string(), "127.0.0.1"].map(str::to_owned).into()
    }

    /// How a list of workers names it.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// Starts sshd; nothing if it ends instead of listening.
fn listening(lab: &TestEnv, home: &Path) -> Option<Child> {
    let log = home.join("sshd.log");
    let mut daemon = Command::new("/usr/sbin/sshd")
        .args(["-D", "-e", "-f", &text(&home.join("sshd_config"))])
        .envs(lab.marks())
        .stdin(Stdio::null())
        .stderr(fs::File::create(&log).expect("a log"))
        .spawn()
        .expect("sshd starts: tests/lab-packages installs it");
    let mut ended = false;
    let said = || fs::read_to_string(&log).unwrap_or_default();
    until(
        || {
            ended = daemon.try_wait().expect("a child of ours").is_some();
            ended || said().contains("Server listening")
        },
        || format!("sshd neither listens nor ends:\n{}", said()),
    );
    (!ended).then_some(daemon)
}

/// A call that reaches the lab's machines.
pub fn with_ssh(lab: &TestEnv, call: Call) -> Call {
    let (key, known) = (client_key(lab), lab.text_path(".test/known_hosts"));
    let words = format!("ssh -F none -i {} -o IdentitiesOnly=yes -o UserKnownHostsFile={known}", key.display());
    call.env("TORC_SSH", words)
}

/// A loopback port that nobody listens on at the moment.
fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("its address").port()
}

/// The key of whoever logs in, made at its first use.
fn client_key(lab: &TestEnv) -> PathBuf {
    let key = lab.path(".test/id_ed25519");
    if !key.exists() {
        run("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", &text(&key)]);
    }
    key
}

fn configuration(lab: &TestEnv, home: &Path, key: &Path, port: u16) -> String {
    // Sessions get this environment and not that of the tests. The folder is the tests' own, whatever its parents' modes are.
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", home.join("bin").display());
    format!(
        "ListenAddress 127.0.0.1:{port}\nHostKey {home}/host_key\nPidFile none\nUsePAM no\nStrictModes no\n\
        AuthorizedKeysFile {key}.pub\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
        PermitRootLogin prohibit-password\nMaxStartups 100\n\
        SetEnv HOME={home} PATH={path} {marks}\n",
        home = home.display(),
        key = key.display(),
        marks = lab.marks().iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" "),
    )
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status().expect("a program that tests/lab-packages installs");
    assert!(status.success(), "{program} {arguments:?}: {status}");
}
