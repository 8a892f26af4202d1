//! A real Kubernetes with a node that runs Pods, and Torc installed by its charts. A machine has at most one at a time.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::kube::{programs, script};
use super::shared::{self, Lifetime, Turn};
use crate::env::{binary, project_root};

/// Pods of a busy machine take up to a minute to start.
const DEADLINE: Duration = Duration::from_secs(180);
/// Programs that jobs of the suite need.
const PROGRAMS: [&str; 5] = ["bash", "cat", "date", "sleep", "true"];

/// The namespace of the release.
pub const NAMESPACE: &str = "torc-system";

/// A cluster with Torc.
pub struct Node {
    folder: PathBuf,
    _turn: Turn,
}

impl Node {
    /// Returns the cluster of this run, for one test at a time: some tests remove the server.
    pub fn alone() -> Self {
        let turn = Turn::alone("node");
        let folder = shared::once("node", |folder| Self::at(folder, Turn::alone("node-start")).start());
        Self::at(&folder, turn)
    }

    fn at(folder: &Path, turn: Turn) -> Self {
        Self { folder: folder.to_owned(), _turn: turn }
    }

    fn start(&self) {
        let mut command = self.tool("up");
        let output = Lifetime::Run.apply(command.arg("--node")).output().expect("the lab's script");
        assert!(output.status.success(), "no node: {}", String::from_utf8_lossy(&output.stderr));
        self.give_images();
        self.give_volumes();
        self.kubectl(&["create", "namespace", NAMESPACE]);
        self.helm(&["install", "torc-crds", "charts/torc-crds"]);
        self.install();
    }

    fn tool(&self, verb: &str) -> Command {
        let mut command = Command::new(script());
        command.arg(verb).arg(&self.folder);
        command
    }

    /// Loads the image of the chart with the `torc` under test and its libraries, and an image for jobs without Torc.
    fn give_images(&self) {
        let torc = binary();
        self.give_image("torc:lab", &torc, std::slice::from_ref(&torc), None);
        // Jobs have the libraries of the program that the chart copies into their image, but not the program.
        let tools: Vec<PathBuf> = PROGRAMS.iter().map(|name| Path::new("/usr/bin").join(name)).collect();
        self.give_image("jobs:lab", &tools[0], &[tools.as_slice(), &[torc]].concat(), Some("usr/bin/torc"));
    }

    fn give_image(&self, name: &str, entrypoint: &Path, programs: &[PathBuf], removed: Option<&str>) {
        let files = self.folder.join("image");
        let made = packaging("image-files").arg(&files).args(programs).status().expect("the image's files");
        assert!(made.success(), "image-files for {name}");
        if let Some(removed) = removed {
            fs::remove_file(files.join(removed)).expect("a file of the image");
        }
        let given = self.tool("image").arg(name).arg(&files).arg(entry(entrypoint)).output().expect("the lab");
        assert!(given.status.success(), "{name}: {}", String::from_utf8_lossy(&given.stderr));
        fs::remove_dir_all(&files).expect("removed");
    }

    /// Creates a volume for the store, which outlives releases, and a folder that all jobs share.
    fn give_volumes(&self) {
        for name in ["store", "shared"] {
            fs::create_dir(self.path(name)).expect("a folder");
            fs::set_permissions(self.path(name), Permissions::from_mode(0o777)).expect("open for all");
        }
        let volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "store" },
            "spec": {
                "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": "lab",
                "hostPath": { "path": self.path("store") },
            },
        });
        self.write("volume.json", &volume.to_string());
        self.kubectl(&["apply", "-f", &self.text_path("volume.json")]);
        let volumes = json!([{ "name": "shared", "hostPath": { "path": self.path("shared") } }]);
        let mounts = json!([{ "name": "shared", "mountPath": "/shared" }]);
        let values = json!({
            "image": { "repository": "torc", "tag": "lab", "pullPolicy": "Never" },
            "persistence": { "storageClass": "lab", "size": "1Gi" },
            "runnerPools": [
                {
                    "name": "cpu", "replicas": 1, "image": "jobs:lab", "terminationGracePeriodSeconds": 30,
                    "resources": { "requests": { "cpu": "10m" }, "limits": { "cpu": "2", "memory": "512Mi" } },
                    "volumes": volumes, "volumeMounts": mounts,
                },
                {
                    "name": "burst", "autoscale": { "max": 2 }, "image": "jobs:lab", "labels": ["burst"],
                    "resources": { "requests": { "cpu": "10m" }, "limits": { "cpu": "1", "memory": "256Mi" } },
                    "volumes": volumes, "volumeMounts": mounts,
                },
                // A test scales it up.
                {
                    "name": "pair", "replicas": 0, "image": "jobs:lab", "labels": ["pair"],
                    "resources": { "requests": { "cpu": "10m" }, "limits": { "cpu": "4", "memory": "512Mi" } },
                    "volumes": volumes, "volumeMounts": mounts,
                },
            ],
        });
        self.write("values.json", &values.to_string());
    }

    /// Installs the release.
    pub fn install(&self) {
        let values = self.text_path("values.json");
        let (namespace, wait) = (["--namespace", NAMESPACE], ["--wait", "--timeout", "3m"]);
        let words: Vec<&str> =
            ["install", "torc", "charts/torc", "-f", &values].into_iter().chain(namespace).chain(wait).collect();
        self.helm(&words);
    }

    /// Returns the path of a file of the lab.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Returns the path of a file of the lab as text.
    pub fn text_path(&self, name: &str) -> String {
        self.path(name).to_string_lossy().into_owned()
    }

    /// Writes a file of the lab.
    pub fn write(&self, name: &str, content: &str) {
        fs::write(self.path(name), content).expect("a file of the lab");
    }

    fn command(&self, program: impl AsRef<Path>, arguments: &[&str]) -> Command {
        let path = format!("{}:{}", programs().display(), std::env::var("PATH").unwrap_or_default());
        let mut command = Command::new(program.as_ref());
        command.args(arguments).env("PATH", path).env("KUBECONFIG", self.path("admin.kubeconfig"));
        command.env("HOME", &self.folder).env_remove("TORC_CONTEXT");
        // Charts are named relative to the project; `torc` must not find a store of the project's folder.
        let is_torc = program.as_ref() == binary();
        command.current_dir(if is_torc { self.folder.as_path() } else { project_root() });
        command
    }

    /// Runs a program, which may fail.
    pub fn attempt(&self, program: &str, arguments: &[&str]) -> Output {
        let path = if program == "torc" { binary() } else { programs().join(program) };
        self.command(path, arguments).output().expect("a program")
    }

    fn succeed(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.attempt(program, arguments);
        let (printed, wrong) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{program} {arguments:?}: {printed}{wrong}\n{}", self.diagnostics());
        printed.into_owned()
    }

    /// Returns the Pods and logs that help to explain a failure.
    fn diagnostics(&self) -> String {
        let look =
            |arguments: &[&str]| String::from_utf8_lossy(&self.attempt("kubectl", arguments).stdout).into_owned();
        let pods = look(&["get", "pods", "-A"]);
        let server = look(&["-n", NAMESPACE, "logs", "deploy/torc", "--tail", "20"]);
        let runner = look(&["-n", NAMESPACE, "logs", "deploy/torc-cpu", "--tail", "20"]);
        format!("{pods}\n{server}\n{runner}")
    }

    /// Runs kubectl as an administrator.
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        self.succeed("kubectl", arguments)
    }

    /// Runs Helm as an administrator.
    pub fn helm(&self, arguments: &[&str]) -> String {
        self.succeed("helm", arguments)
    }

    /// Runs `torc` with the context of the administrator, which must succeed.
    pub fn torc(&self, line: &str) -> String {
        self.succeed("torc", &self.in_context(line))
    }

    /// Runs `torc` with the context of the administrator and returns its exit code and output.
    pub fn try_torc(&self, line: &str) -> (Option<i32>, String) {
        let output = self.attempt("torc", &self.in_context(line));
        let printed = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&printed).into_owned())
    }

    /// Runs `torc` as another user, who has no roles at first, and returns its exit code and output.
    pub fn torc_as(&self, user: &str, line: &str) -> (Option<i32>, String) {
        let kubeconfig = self.tool("user").arg(user).output().expect("the lab's script");
        let kubeconfig = String::from_utf8_lossy(&kubeconfig.stdout).trim().to_owned();
        let words: Vec<&str> = line.split_whitespace().chain(["--kubeconfig", &kubeconfig]).collect();
        let mut command = self.command(binary(), &words);
        let output = command.output().expect("torc");
        let printed = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&printed).into_owned())
    }

    fn in_context<'l>(&self, line: &'l str) -> Vec<&'l str> {
        line.split_whitespace().chain(["--context", "lab"]).collect()
    }

    /// Runs `kubectl torc`, which finds its plugin on the path.
    pub fn plugin(&self, line: &str) -> String {
        let plugin = self.path("kubectl-torc");
        if !plugin.exists() {
            symlink(binary(), &plugin).expect("a link");
        }
        let path = format!("{}:{}", self.folder.display(), std::env::var("PATH").unwrap_or_default());
        let words: Vec<&str> = std::iter::once("torc").chain(line.split_whitespace()).collect();
        let output = self.command(programs().join("kubectl"), &words).env("PATH", path).output().expect("kubectl");
        assert!(output.status.success(), "kubectl {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Returns an object, or a list of objects.
    pub fn object(&self, arguments: &[&str]) -> Value {
        let words: Vec<&str> = ["get"].iter().chain(arguments).chain(&["-o", "json"]).copied().collect();
        serde_json::from_str(&self.kubectl(&words)).expect("JSON")
    }

    /// Returns the items of `torc get …`.
    pub fn items(&self, line: &str) -> Vec<Value> {
        let value: Value = serde_json::from_str(&self.torc(&format!("{line} -o json"))).expect("JSON");
        value["items"].as_array().expect("items").clone()
    }

    /// Waits until `look` returns a value.
    pub fn until<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(start.elapsed() < DEADLINE, "waited {DEADLINE:?} for {what}\n{}", self.diagnostics());
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

fn packaging(name: &str) -> Command {
    Command::new(project_root().join("packaging").join(name))
}

/// Returns the path of a program in the image.
fn entry(program: &Path) -> PathBuf {
    Path::new("/usr/bin").join(program.file_name().expect("a name"))
}
