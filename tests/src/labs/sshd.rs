//! Machines reached over SSH: an sshd on a loopback port with separate keys and a separate environment.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::env::{Call, TestEnv, binary, until};

/// A machine with its own home and PATH. Its processes belong to the lab.
pub struct Machine {
    daemon: Child,
    port: u16,
    /// The working directory after a login.
    pub home: PathBuf,
}

impl Machine {
    /// Starts a machine with the `torc` under test in its PATH.
    pub fn start(lab: &TestEnv, name: &str) -> Self {
        let machine = Self::without_torc(lab, name);
        std::os::unix::fs::symlink(binary(), machine.home.join("bin/torc")).expect("a link to torc");
        machine
    }

    /// Starts a machine with a script in place of `torc`.
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
        // As root, sshd requires this folder, which only the package's service creates.
        let _ = fs::create_dir_all("/run/sshd");
        // Another test may take the port before sshd binds it.
        for _ in 0..20 {
            let port = free_port();
            fs::write(home.join("sshd_config"), configuration(lab, &home, &key, port)).expect("a configuration");
            if let Some(daemon) = listening(lab, &home) {
                return Self { daemon, port, home };
            }
        }
        panic!("sshd does not start:\n{}", fs::read_to_string(home.join("sshd.log")).unwrap_or_default());
    }

    /// Writes the files of a Secret for this machine: an accepted key, and its host key.
    pub fn write_secret(&self, lab: &TestEnv, folder: &Path) {
        fs::create_dir_all(folder).expect("a folder");
        let key = folder.join("id_ed25519");
        fs::copy(client_key(lab), &key).expect("a key");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("a key that ssh takes");
        let known = fs::read_to_string(self.home.join("host_key.pub")).expect("its public key");
        fs::write(folder.join("known_hosts"), format!("[127.0.0.1]:{} {known}", self.port)).expect("a file");
    }

    /// Returns the words before a command that run it on this machine.
    pub fn prefix(&self) -> Vec<String> {
        ["ssh", "-F", "none", "-p", &self.port.to_string(), "127.0.0.1"].map(str::to_owned).into()
    }

    /// Returns the name of this machine in a list of workers.
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

/// Starts sshd. Returns nothing if it exits instead of listening.
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
    let printed = || fs::read_to_string(&log).unwrap_or_default();
    until(
        || {
            ended = daemon.try_wait().expect("a child of ours").is_some();
            ended || printed().contains("Server listening")
        },
        || format!("sshd neither listens nor exits:\n{}", printed()),
    );
    (!ended).then_some(daemon)
}

/// Adds the options of `ssh` that reach the lab's machines.
pub fn with_ssh(lab: &TestEnv, call: Call) -> Call {
    let (key, known) = (client_key(lab), lab.text_path(".test/known_hosts"));
    let words = format!("ssh -F none -i {} -o IdentitiesOnly=yes -o UserKnownHostsFile={known}", key.display());
    call.env("TORC_SSH", words)
}

/// Returns a loopback port on which no process listens at the moment.
fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("its address").port()
}

/// Returns the key of the client, created at its first use.
fn client_key(lab: &TestEnv) -> PathBuf {
    let key = lab.path(".test/id_ed25519");
    if !key.exists() {
        run("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", &text(&key)]);
    }
    key
}

fn configuration(lab: &TestEnv, home: &Path, key: &Path, port: u16) -> String {
    // Sessions get only this environment. StrictModes is off, because parents of the folder may be writable for others.
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
