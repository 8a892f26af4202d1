//! A real Kubernetes that all tests of a suite share.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::Value;

use super::shared::{self, Lifetime};
use crate::env::{Call, Running, TestEnv, binary, eventually, project_root, until};

/// Returns the script that starts and stops the lab.
pub(super) fn script() -> PathBuf {
    project_root().join("tests/kube-lab")
}

/// Returns the folder of kubectl, Helm and the API server. The first call builds them if they are missing.
pub fn programs() -> &'static Path {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let output = Command::new(script()).arg("build").output().expect("the lab's script");
        assert!(output.status.success(), "kube-lab build: {}", String::from_utf8_lossy(&output.stderr));
        PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
    })
}

/// Runs Helm without a cluster, e.g. to render a chart.
pub fn helm(arguments: &[&str]) -> Output {
    Command::new(programs().join("helm")).args(arguments).current_dir(project_root()).output().expect("helm")
}

/// An API server with the custom resources and the roles of the chart. `tests/kube-lab` describes the rest.
#[derive(Clone)]
pub struct KubeLab {
    folder: PathBuf,
}

impl KubeLab {
    /// Returns the Kubernetes that all tests of a suite share, with the custom resources.
    pub fn shared(suite: &str) -> Self {
        let start = |folder: &Path| {
            let lab = Self { folder: folder.to_owned() };
            lab.up(Lifetime::Run);
            lab.install();
        };
        Self { folder: shared::once(&format!("kube-{suite}"), start) }
    }

    /// Starts a Kubernetes for this process alone, without the custom resources. It stops with the process.
    pub fn empty() -> Self {
        // Kept, because the lab's guard removes it. The test's own folder is gone before the guard has read the process ids.
        let builder = tempfile::Builder::new().prefix("torc-kube-").tempdir_in(shared::folder());
        let folder = builder.expect("a folder").keep();
        let lab = Self { folder };
        lab.up(Lifetime::Process);
        lab
    }

    fn up(&self, lifetime: Lifetime) {
        let output = lifetime.apply(&mut self.tool("up")).output().expect("the lab's script");
        assert!(output.status.success(), "no Kubernetes: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Installs the custom resources, and an account with the roles of the chart.
    fn install(&self) {
        let definitions = Command::new(binary()).args(["crd", "print"]).output().expect("the definitions");
        self.pipe(&["apply", "--server-side", "-f", "-"], &definitions.stdout);
        self.kubectl(&["create", "namespace", "torc"]);
        let arguments = ["template", "torc", "charts/torc", "--namespace", "torc", "--set", "sources.enabled=true"];
        let pools = r#"runnerPools=[{"name":"cpu","autoscale":{"idle":0,"max":3}}]"#;
        let shown =
            ["--set-json", pools, "--show-only", "templates/rbac.yaml", "--show-only", "templates/serviceaccount.yaml"];
        let rendered = helm(&[arguments.as_slice(), shown.as_slice()].concat());
        assert!(rendered.status.success(), "{}", String::from_utf8_lossy(&rendered.stderr));
        self.pipe(&["apply", "--namespace", "torc", "-f", "-"], &rendered.stdout);
        self.run("account", &["torc", "torc"]);
        self.kubectl(&["wait", "--for=condition=Established", "crd/workflows.torc.dev", "crd/slurmclusters.torc.dev"]);
    }

    fn tool(&self, verb: &str) -> Command {
        let mut command = Command::new(script());
        command.arg(verb).arg(&self.folder);
        command
    }

    /// Runs another command of the lab's script, e.g. `stop etcd`.
    pub fn run(&self, verb: &str, arguments: &[&str]) -> String {
        let output = Lifetime::Run.apply(self.tool(verb).args(arguments)).output().expect("the lab's script");
        assert!(output.status.success(), "kube-lab {verb}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Returns the kubeconfig of the server's service account.
    pub fn account(&self) -> PathBuf {
        self.folder.join("torc.torc.kubeconfig")
    }

    /// Creates a service account without roles and returns its kubeconfig.
    pub fn kubeconfig_of(&self, namespace: &str, account: &str) -> PathBuf {
        self.run("account", &[namespace, account]);
        self.folder.join(format!("{namespace}.{account}.kubeconfig"))
    }

    /// Returns the key that signs the tokens of service accounts.
    pub fn account_key(&self) -> PathBuf {
        self.folder.join("pki/accounts.key")
    }

    /// Returns the kubeconfig of an administrator. Its only context is `lab`.
    pub fn administrator(&self) -> PathBuf {
        self.folder.join("admin.kubeconfig")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(programs().join("kubectl"));
        command.args(arguments).env("KUBECONFIG", self.administrator());
        command.env("KUBECACHEDIR", self.folder.join("cache")).stdin(Stdio::null());
        command
    }

    /// Runs `kubectl` as an administrator.
    pub fn attempt(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("kubectl")
    }

    /// Runs `kubectl`, which must succeed, and returns its output.
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        let output = self.attempt(arguments);
        assert!(output.status.success(), "kubectl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs `kubectl` with a standard input.
    pub fn attempt_with(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut command = self.command(arguments);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("kubectl");
        child.stdin.take().expect("its input").write_all(input).expect("kubectl reads");
        child.wait_with_output().expect("kubectl")
    }

    /// Runs `kubectl` with a standard input, which must succeed, and returns its output.
    pub fn pipe(&self, arguments: &[&str], input: &[u8]) -> String {
        let output = self.attempt_with(arguments, input);
        assert!(output.status.success(), "kubectl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Returns an object as JSON, or nothing if it does not exist.
    pub fn object(&self, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        let output = self.attempt(&["get", kind, name, "--namespace", namespace, "-o", "json"]);
        output.status.success().then(|| serde_json::from_slice(&output.stdout).expect("JSON"))
    }

    /// Creates a namespace for a test.
    pub fn namespace(&self, name: &str) -> Namespace {
        self.kubectl(&["create", "namespace", name]);
        Namespace { lab: self.clone(), name: name.to_owned() }
    }
}

/// A namespace of a test.
pub struct Namespace {
    pub lab: KubeLab,
    pub name: String,
}

impl Namespace {
    /// Runs `kubectl` in this namespace.
    pub fn kubectl(&self, line: &str) -> String {
        let words: Vec<&str> = ["--namespace", &self.name].into_iter().chain(line.split_whitespace()).collect();
        self.lab.kubectl(&words)
    }

    /// Applies a workflow with this specification.
    pub fn apply(&self, name: &str, spec: &Value) {
        let document = serde_json::json!({
            "apiVersion": "torc.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": name}, "spec": spec,
        });
        self.lab.pipe(&["apply", "--namespace", &self.name, "-f", "-"], document.to_string().as_bytes());
    }

    /// Returns the object of a workflow.
    pub fn workflow(&self, name: &str) -> Option<Value> {
        self.lab.object("workflows.torc.dev", &self.name, name)
    }

    /// Returns the status of a workflow.
    pub fn status(&self, name: &str) -> Value {
        self.workflow(name).map(|object| object["status"].clone()).unwrap_or_default()
    }

    /// Returns `Status/Reason` of a condition of a workflow, or nothing if it is of an earlier generation.
    pub fn condition(&self, name: &str, type_: &str) -> String {
        let object = self.workflow(name).unwrap_or_default();
        condition(&object, type_)
    }

    /// Waits until a condition has this value, e.g. `True/Succeeded`.
    pub fn expect(&self, name: &str, type_: &str, value: &str) {
        until(
            || self.condition(name, type_) == value,
            || format!("{name} is not {type_}={value}: {:#}", self.workflow(name).unwrap_or_default()),
        );
    }

    /// Returns the message of a condition of a workflow.
    pub fn message(&self, name: &str, type_: &str) -> String {
        let conditions = self.status(name)["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|condition| condition["type"] == type_);
        found.and_then(|found| found["message"].as_str()).unwrap_or_default().to_owned()
    }

    /// Makes the controller reconcile a workflow whose specification has not changed.
    pub fn touch(&self, name: &str) {
        static TOUCHES: AtomicUsize = AtomicUsize::new(0);
        let number = TOUCHES.fetch_add(1, Ordering::Relaxed);
        self.kubectl(&format!("annotate twf {name} --overwrite touched={number}"));
    }

    /// Applies a ConfigMap.
    pub fn config_map(&self, name: &str, data: &Value) {
        let map = serde_json::json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data,
        });
        let words = ["apply", "--server-side", "--namespace", &self.name, "-f", "-"];
        self.lab.pipe(&words, map.to_string().as_bytes());
    }

    /// Watches a workflow from now on. The events go to a file.
    pub fn watch(&self, name: &str, file: &Path) -> Watch {
        let words = ["get", "twf", name, "--watch", "--output-watch-events", "--show-managed-fields", "-o", "json"];
        let mut command = self.lab.command(&words);
        let process = command.args(["--namespace", &self.name]).stdout(File::create(file).expect("a file")).spawn();
        Watch { process: process.expect("kubectl"), file: file.to_owned() }
    }

    /// Returns the reasons of the Events of a workflow, sorted.
    pub fn events(&self, name: &str) -> Vec<String> {
        let output = self.kubectl("get events.events.k8s.io -o json");
        let events: Value = serde_json::from_str(&output).expect("JSON");
        let of_it = |event: &&Value| event["regarding"]["name"] == name;
        let items = events["items"].as_array().expect("a list");
        let mut reasons: Vec<String> =
            items.iter().filter(of_it).filter_map(|event| Some(event["reason"].as_str()?.to_owned())).collect();
        reasons.sort();
        reasons
    }
}

/// A `kubectl get --watch`, which sees every write.
pub struct Watch {
    process: Child,
    file: PathBuf,
}

impl Watch {
    /// Returns the object after each write so far.
    pub fn seen(&self) -> Vec<Value> {
        let text = fs::read_to_string(&self.file).unwrap_or_default();
        let events = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
        // The last event may still be incomplete.
        events.map_while(Result::ok).map(|event| event["object"].clone()).collect()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns `Status/Reason` of a condition of an object, or an empty text if it is of another generation.
pub fn condition(object: &Value, type_: &str) -> String {
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.iter().find(|condition| condition["type"] == type_);
    match found {
        Some(found) if found["observedGeneration"] == object["metadata"]["generation"] => {
            format!("{}/{}", found["status"].as_str().unwrap_or_default(), found["reason"].as_str().unwrap_or_default())
        }
        _ => String::new(),
    }
}

/// A process `torc server --kubernetes` with the roles of the chart.
pub struct Controller {
    pub process: Option<Running>,
    /// The host and port that the server listens on.
    pub address: String,
}

impl Controller {
    /// Prepares a call that watches one namespace. `name` is its identity in the leader election.
    pub fn call(lab: &TestEnv, namespace: &Namespace, name: &str, address: &str) -> Call {
        lab.call(&format!("server --kubernetes --bind {address} --database data/lab.db"))
            .env("KUBECONFIG", namespace.lab.account())
            .env("POD_NAME", name)
            .env("POD_NAMESPACE", "torc")
            .env("TORC_KUBERNETES_NAMESPACES", &namespace.name)
            .env("TORC_KUBERNETES_SOURCES", "true")
            .env("TORC_LOG", "info")
    }

    /// Starts the only controller of a namespace and waits until it is ready.
    pub fn start(lab: &TestEnv, namespace: &Namespace) -> Self {
        let address = free_address();
        let controller = Self::with(Self::call(lab, namespace, "alone", &address), &address);
        controller.expect_ready();
        controller
    }

    /// Starts a prepared call.
    pub fn with(call: Call, address: &str) -> Self {
        Self { process: Some(call.start()), address: address.to_owned() }
    }

    pub fn process(&self) -> &Running {
        self.process.as_ref().expect("it lives")
    }

    pub fn is_ready(&self) -> bool {
        is_ready(&self.address)
    }

    /// Returns the response of `/readyz`.
    pub fn readiness(&self) -> String {
        readiness(&self.address).unwrap_or_default()
    }

    /// Returns the number of log lines with a text.
    pub fn log_lines(&self, words: &str) -> usize {
        let process = self.process();
        format!("{}{}", process.stdout(), process.stderr()).lines().filter(|line| line.contains(words)).count()
    }

    pub fn expect_ready(&self) {
        until(|| self.is_ready(), || format!("not ready: {}{}", self.process().stdout(), self.process().stderr()));
    }

    /// Starts a runner for all workflows in a new folder.
    pub fn runner(&self, lab: &TestEnv, name: &str) -> Running {
        runner(lab, name, &self.address)
    }

    /// Kills the process with SIGKILL.
    pub fn kill(&mut self) {
        self.process.take().expect("it lives").kill();
    }
}

/// Starts a runner for all workflows of the server at an address.
pub fn runner(lab: &TestEnv, name: &str, address: &str) -> Running {
    let folder = lab.path(name);
    fs::create_dir_all(&folder).expect("a folder");
    lab.call("runner --persistent --num-cpus 4 --poll-interval 1")
        .folder(&folder)
        .env("TORC_API_URL", format!("http://{address}"))
        .env("TORC_TOKEN_FILE", lab.path("data/lab.db.token"))
        .start()
}

/// Returns whether the server at an address is ready.
pub fn is_ready(address: &str) -> bool {
    readiness(address).is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

fn readiness(address: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Returns a loopback address on which no process listens.
pub fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a free port").to_string()
}

/// A stand-in for a Service of Kubernetes: forwards connections to a backend that is ready.
pub struct Service {
    pub address: String,
    is_over: Arc<AtomicBool>,
}

impl Service {
    pub fn start(backends: Vec<String>) -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = socket.local_addr().expect("its address").to_string();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        std::thread::spawn(move || {
            for client in socket.incoming().flatten() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let ready = backends.iter().find(|backend| is_ready(backend));
                if let Some(server) = ready.and_then(|backend| TcpStream::connect(backend).ok()) {
                    join(client, server);
                }
            }
        });
        Self { address, is_over }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(&self.address);
    }
}

/// Copies in both directions until one side closes.
fn join(client: TcpStream, server: TcpStream) {
    let pairs = [(&client, &server), (&server, &client)];
    for (from, to) in pairs {
        let (Ok(mut from), Ok(mut to)) = (from.try_clone(), to.try_clone()) else { return };
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(std::net::Shutdown::Both);
            let _ = from.shutdown(std::net::Shutdown::Both);
        });
    }
}

/// Waits until `look` returns a value for the status of a workflow.
pub fn expect_status<T>(namespace: &Namespace, name: &str, what: &str, look: impl Fn(&Value) -> Option<T>) -> T {
    eventually(what, || look(&namespace.status(name)))
}
