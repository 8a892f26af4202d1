//! Who may do what, and who is believed to be the server: real processes, real certificates, real sockets.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use torc_tests::lab::{Lab, Outcome, Running, eventually, text, until};

const SERVER: &str = "server --database data/lab.db -o json";

/// A server that said where it is.
struct Served {
    process: Running,
    said: Value,
}

impl Served {
    fn start(lab: &Lab, flags: &str) -> Self {
        let process = lab.start(&format!("{SERVER} {flags}"));
        let said = eventually("the server says where it is", || serde_json::from_str(&process.stdout()).ok());
        fs::create_dir_all(lab.path("client")).unwrap();
        Self { process, said }
    }

    fn url(&self) -> String {
        text(&self.said, "url")
    }

    /// Host and port.
    fn address(&self) -> String {
        let url = self.url();
        url.split_once("://").unwrap().1.to_owned()
    }

    /// A call from a folder without a store, with a token file.
    fn with(&self, lab: &Lab, token_file: &str, line: &str) -> Outcome {
        let call = lab.call(line).folder(lab.path("client")).env("TORC_API_URL", self.url());
        call.env("TORC_TOKEN_FILE", lab.path(token_file)).run()
    }

    fn admin(&self, lab: &Lab, line: &str) -> Outcome {
        self.with(lab, "data/lab.db.token", line)
    }

    /// Makes a token and keeps it in a file.
    fn token(&self, lab: &Lab, file: &str, flags: &str) {
        let made = self.admin(lab, &format!("token create {flags}")).exits(0);
        lab.write(file, made.stdout);
    }
}

fn workflow(lab: &Lab, name: &str, command: &str) -> String {
    let file = format!("client/{name}.yaml");
    lab.write(&file, format!("name: {name}\njobs: [{{name: a, command: '{command}'}}]\nuser_data: [{{name: x}}]\n"));
    format!("{name}.yaml")
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_whole_workflow_over_tls_with_a_pinned_certificate_and_the_token_of_its_runner() {
    let lab = Lab::new();
    let server = Served::start(&lab, "--bind 0.0.0.0:0 --advertise 127.0.0.1");
    assert!(server.url().starts_with("https://127.0.0.1:"), "{}", server.url());
    for name in ["lab.db.token", "lab.db.token-key", "lab.db.tls.key", "lab.db.tls.crt", "lab.db.server.json"] {
        assert_eq!(mode(&lab.path("data").join(name)), 0o600, "{name}");
    }
    let pin = text(&server.said, "certificateSha256");
    let word = fs::read_to_string(lab.path("data/lab.db.token")).unwrap();
    assert!(word.trim().ends_with(&format!("~{pin}")), "the token file pins the certificate");

    let file =
        workflow(&lab, "w", "torc token show -o json > shown; cat $TORC_TOKEN_FILE > seen; torc user-data set x 5");
    let path = std::env::var("PATH").unwrap();
    let bin = torc_tests::lab::binary();
    let path = format!("{}:{path}", bin.parent().unwrap().display());
    server.admin(&lab, &format!("apply -f {file}")).exits(0);
    server.token(&lab, "runner.token", "--scope runner --workflow w --expires 1h");
    let call = lab.call("runner w").folder(lab.path("client")).env("PATH", path);
    let call = call.env("TORC_API_URL", server.url()).env("TORC_TOKEN_FILE", lab.path("runner.token"));
    call.run().exits(0);
    server.admin(&lab, "wait w --for condition=Succeeded --timeout 1m").exits(0);
    let data = server.admin(&lab, "get user-data w -o json").exits(0).json();
    assert_eq!(data["items"][0]["data"], 5, "the job talked to the server by itself");
    // What jobs see is the token of their workflow, never the administrator's, and for nobody else to read.
    let shown: Value = serde_json::from_str(&fs::read_to_string(lab.path("client/shown")).unwrap()).unwrap();
    assert_eq!(shown["statement"]["scope"], "runner");
    assert_eq!(shown["statement"]["workflow"], 1);
    assert_ne!(fs::read_to_string(lab.path("client/seen")).unwrap(), word);
}

#[test]
fn jobs_of_an_apply_in_the_foreground_see_the_token_of_their_workflow_alone() {
    let lab = Lab::new();
    let job = "cat $TORC_TOKEN_FILE > seen; stat -c %a $TORC_TOKEN_FILE > mode; test -f $TORC_SERVER_FILE";
    lab.write("w.yaml", format!("name: w\njobs: [{{name: a, command: '{job}'}}]\n"));
    lab.torc("apply -f w.yaml").exits(0);
    let (seen, admin) = (lab.lines("seen"), lab.lines(".torc/token"));
    assert!(seen[0].starts_with("torc1."), "{seen:?}");
    assert_ne!(seen, admin);
    assert_eq!(lab.lines("mode"), ["600"]);
    let shown = lab.json("token show seen");
    assert_eq!(shown["statement"]["workflow"], 1);
    assert!(!lab.torc("token show seen").stdout.contains(&seen[0]), "it is described, not printed");
}

#[test]
fn a_server_that_is_not_the_one_that_was_meant_is_told_nothing() {
    let lab = Lab::new();
    let server = Served::start(&lab, "--bind 127.0.0.1:0 --tls");
    let address = server.address();
    let port = address.rsplit_once(':').unwrap().1.to_owned();
    let word = fs::read_to_string(lab.path("data/lab.db.token")).unwrap();
    let (token, _) = word.trim().split_once('~').unwrap();
    lab.write("other-pin", format!("{token}~{}\n", "ab".repeat(32)));
    lab.write("no-pin", format!("{token}\n"));
    lab.write("half-pin", format!("{token}~abcd\n"));
    server.admin(&lab, "get workflows").exits(0);
    server.with(&lab, "other-pin", "get workflows").exits(7).says("should be abababab");
    server.with(&lab, "no-pin", "get workflows").exits(7).says("nobody that is trusted");
    server.with(&lab, "half-pin", "get workflows").exits(4).says("fingerprint");
    // By the certificate itself, and by a fingerprint that was passed on otherwise.
    let certificate = lab.text_path("data/lab.db.tls.crt");
    server.with(&lab, "no-pin", &format!("get workflows --ca-cert {certificate}")).exits(0);
    let pin = text(&server.said, "certificateSha256");
    server.with(&lab, "no-pin", &format!("get workflows --certificate-sha256 {pin}")).exits(0);
    server.with(&lab, "other-pin", &format!("get workflows --certificate-sha256 {pin}")).exits(0);
    // A name that is not in the certificate.
    let wide = Lab::new();
    let wide_server = Served::start(&wide, "--bind 0.0.0.0:0");
    let wide_port = wide_server.address().rsplit_once(':').unwrap().1.to_owned();
    let call = wide.call(&format!("get workflows --url https://127.0.0.2:{wide_port}")).folder(wide.path("client"));
    let call = call.arg("--ca-cert").arg(wide.path("data/lab.db.tls.crt")).env("TORC_TOKEN", "x");
    call.run().exits(7).says("not for this name");
    // Plain words to a server with TLS, and TLS to a plain one.
    lab.call(&format!("get workflows --url http://{address}")).env("TORC_TOKEN", token).run().exits(4).says("https");
    let plain_lab = Lab::new();
    let plain = Served::start(&plain_lab, "--bind 127.0.0.1:0");
    let line = format!("get workflows --url https://{}", plain.address());
    plain_lab.call(&line).env("TORC_TOKEN", "x").run().exits(7).says("speaks http, not https");
    // A token that is for one certificate never goes over the wire in plain words.
    let line = format!("get workflows --url http://nobody.invalid:{port}");
    lab.call(&line).env("TORC_TOKEN", word.trim()).run().exits(4).says("write https://");
}

#[test]
fn a_certificate_that_was_given_is_read_again_when_it_is_replaced() {
    let lab = Lab::new();
    // Two servers make certificates; the second one's replaces the first one's under a third.
    for name in ["one", "two"] {
        let maker = Served::start_in(&lab, name);
        drop(maker);
        fs::create_dir_all(lab.path("tls")).unwrap();
    }
    let place = |name: &str| {
        fs::copy(lab.path(&format!("{name}/x.db.tls.key")), lab.path("tls/new.key")).unwrap();
        fs::copy(lab.path(&format!("{name}/x.db.tls.crt")), lab.path("tls/new.crt")).unwrap();
        fs::rename(lab.path("tls/new.key"), lab.path("tls/tls.key")).unwrap();
        fs::rename(lab.path("tls/new.crt"), lab.path("tls/tls.crt")).unwrap();
    };
    place("one");
    let process = lab.start("server --bind 127.0.0.1:0 --tls-cert tls/tls.crt --tls-key tls/tls.key -o json");
    let said: Value = eventually("the server says where it is", || serde_json::from_str(&process.stdout()).ok());
    let trusting = |name: &str| {
        let (url, certificate) = (text(&said, "url"), lab.text_path(&format!("{name}/x.db.tls.crt")));
        let call = lab.call(&format!("get workflows --url {url} --ca-cert {certificate}"));
        call.env("TORC_TOKEN_FILE", lab.path(".torc/token")).run().code
    };
    assert_eq!((trusting("one"), trusting("two")), (Some(0), Some(7)));
    assert!(!fs::read_to_string(lab.path(".torc/token")).unwrap().contains('~'), "others vouch for it");
    lab.torc("get workflows").exits(0);
    place("two");
    until(|| trusting("two") == Some(0), || "the new certificate is not shown".to_owned());
    assert_eq!(trusting("one"), Some(7));
    // Whoever is in the folder goes by the file.
    lab.torc("get workflows").exits(0);
}

impl Served {
    /// A server whose store is in a folder of its own, for its certificate.
    fn start_in(lab: &Lab, folder: &str) -> Self {
        let process = lab.start(&format!("server --bind 127.0.0.1:0 --tls --database {folder}/x.db -o json"));
        let said = eventually("the server says where it is", || serde_json::from_str(&process.stdout()).ok());
        Self { process, said }
    }
}

#[test]
fn each_scope_gets_its_own_and_nothing_else() {
    let lab = Lab::new();
    let server = Served::start(&lab, "--bind 127.0.0.1:0");
    server.token(&lab, "ada", "--scope owner --user ada");
    server.token(&lab, "bob", "--scope owner --user bob");
    server.token(&lab, "metrics", "--scope metrics");
    let (one, two) = (workflow(&lab, "one", "true"), workflow(&lab, "two", "true"));
    server.with(&lab, "ada", &format!("apply -f {one}")).exits(0);
    server.with(&lab, "bob", &format!("apply -f {two}")).exits(0);
    server.token(&lab, "runner", "--scope runner --workflow one");
    let names = |token: &str| -> Vec<String> {
        let listed = server.with(&lab, token, "get workflows -o json").exits(0).json();
        listed["items"].as_array().unwrap().iter().map(|item| text(item, "name")).collect()
    };
    assert_eq!(names("ada"), ["one"]);
    assert_eq!(names("bob"), ["two"]);
    assert_eq!(names("runner"), ["one"]);
    assert_eq!(names("data/lab.db.token"), ["one", "two"]);
    // Owners: everything with theirs, nothing with others'.
    server.with(&lab, "ada", &format!("apply -f {two}")).exits(7).says("belongs to bob");
    for line in
        ["get jobs two", "cancel two", "delete two --yes", "retry two", "get events two", "runner two", "runner"]
    {
        server.with(&lab, "ada", line).exits(7);
    }
    server.with(&lab, "ada", "token create --scope runner --workflow two").exits(7);
    server.with(&lab, "ada", "token create --scope owner --user bob").exits(7);
    server.with(&lab, "ada", "token create --scope admin").exits(7);
    server.with(&lab, "ada", "gc --older-than 1d").exits(7);
    server.with(&lab, "ada", "backup copy.db").exits(7);
    server.with(&lab, "ada", "suspend one").exits(0);
    server.with(&lab, "ada", "resume one").exits(0);
    // Runners: their workflow, and of that only what runners and jobs need.
    server.with(&lab, "runner", "get jobs one").exits(0);
    for line in ["get jobs two", "cancel one", "delete one --yes", "retry one", "suspend one", "runner", "runner two"] {
        server.with(&lab, "runner", line).exits(7);
    }
    server.with(&lab, "runner", &format!("apply -f {one}")).exits(7);
    server.with(&lab, "runner", "token create --scope runner --workflow one").exits(7);
    server.with(&lab, "runner", "runner one").exits(0);
    server.with(&lab, "metrics", "get workflows").exits(7);
    // A token whose time is over, and one that was changed.
    server.token(&lab, "brief", "--scope owner --user ada --expires 1s");
    until(|| server.with(&lab, "brief", "get workflows").code == Some(7), || "it never expires".to_owned());
    server.with(&lab, "brief", "get workflows").says("expired");
    let changed = fs::read_to_string(lab.path("ada")).unwrap().replacen("torc1.e", "torc1.f", 1);
    lab.write("changed", changed);
    server.with(&lab, "changed", "get workflows").exits(7);
    // All of it is on record.
    let deeds = server.admin(&lab, "get audit -o json").exits(0).json();
    let deeds: Vec<String> = deeds["items"].as_array().unwrap().iter().map(deed).collect();
    for wanted in [
        "ada owner apply workflows/one ok",
        "ada owner apply workflows/two Forbidden",
        "ada owner cancel workflows/two/cancel Forbidden",
        "ada owner gc gc Forbidden",
        "ada owner suspend workflows/one/suspend ok",
        "runner of workflow 1 runner cancel workflows/one/cancel Forbidden",
    ] {
        assert!(deeds.iter().any(|deed| deed == wanted), "`{wanted}` is missing in {deeds:#?}");
    }
    let own = server.with(&lab, "ada", "get audit -o json").exits(0).json();
    assert!(own["items"].as_array().unwrap().iter().all(|item| text(item, "who") == "ada"));
}

fn deed(item: &Value) -> String {
    ["who", "scope", "verb", "object", "outcome"].map(|field| text(item, field)).join(" ")
}

#[test]
fn a_key_that_was_given_outlives_the_store_and_another_ends_all_tokens() {
    let lab = Lab::new();
    lab.write("key", "0123456789abcdef0123456789abcdef\n");
    lab.write("short", "abc\n");
    lab.torc(&format!("{SERVER} --bind 127.0.0.1:0 --token-key-file short")).exits(4).says("at least 32 bytes");
    let server = Served::start(&lab, "--bind 127.0.0.1:0 --token-key-file key");
    server.token(&lab, "ada", "--scope owner --user ada");
    server.with(&lab, "ada", "get workflows").exits(0);
    drop(server);
    let server = Served::start(&lab, "--bind 127.0.0.1:0 --token-key-file key");
    server.with(&lab, "ada", "get workflows").exits(0);
    drop(server);
    let server = Served::start(&lab, "--bind 127.0.0.1:0");
    server.with(&lab, "ada", "get workflows").exits(7).says("its key has changed");
}

#[test]
fn what_contradicts_itself_is_refused_and_plain_http_beyond_this_machine_is_warned_of() {
    let lab = Lab::new();
    lab.torc("server --bind 0.0.0.0:0 --insecure-http --tls").exits(2);
    lab.torc("server --bind 127.0.0.1:0 --tls-cert none.pem").exits(2);
    lab.torc("server --bind 127.0.0.1:0 --tls-cert none.pem --tls-key none.key").exits(4).says("none.pem");
    let server = Served::start(&lab, "--bind 0.0.0.0:0 --insecure-http");
    server.process.says("not encrypted");
    assert!(server.url().starts_with("http://"));
    let port = server.address().rsplit_once(':').unwrap().1.to_owned();
    let line = format!("get workflows --url http://127.0.0.1:{port}");
    lab.call(&line).env("TORC_TOKEN_FILE", lab.path("data/lab.db.token")).run().exits(0);
}

#[test]
fn others_are_told_a_host_that_leads_to_the_server_and_one_that_does_not_is_warned_of() {
    let lab = Lab::new();
    let server = Served::start(&lab, "--bind 0.0.0.0:0");
    server.admin(&lab, "get workflows").exits(0);
    assert!(!server.process.stderr().contains("leads nowhere"), "{}", server.process.stderr());
    // The certificate is for that host, too.
    let host = server.address().rsplit_once(':').unwrap().0.to_owned();
    let token = fs::read_to_string(lab.path("data/lab.db.token")).unwrap();
    lab.write("no-pin", token.split('~').next().unwrap());
    let certificate = lab.text_path("data/lab.db.tls.crt");
    let call = server.with(&lab, "no-pin", &format!("get workflows --ca-cert {certificate}"));
    assert_eq!(call.code, Some(0), "{host}: {}", call.stderr);
    let other = Lab::new();
    let server = Served::start(&other, "--bind 0.0.0.0:0 --advertise logn1.invalid");
    server.process.says("'logn1.invalid', which leads nowhere");
    // Nobody vouches for a certificate that the server makes for itself.
    lab.torc("server --bind 0.0.0.0:0 --tls-ca ca.crt --database x.db").exits(2).says("--tls-cert");
}

#[test]
fn the_server_inside_apply_listens_where_it_is_told() {
    let lab = Lab::new();
    lab.write("w.yaml", "name: w\njobs: [{name: a, command: 'until test -e go; do sleep 0.05; done'}]\n");
    let info = || serde_json::from_slice::<Value>(&fs::read(lab.path(".torc/server.json")).ok()?).ok();
    let apply = lab.start("apply -f w.yaml --bind 0.0.0.0:0 --advertise login.example");
    let said = eventually("the owner says where it is", &info);
    assert!(text(&said, "url").starts_with("https://login.example:"), "{said}");
    assert!(said["certificateSha256"].is_string(), "{said}");
    // Others in the folder attach to it by its address on this machine.
    until(|| lab.items("get workflows").len() == 1, || "the workflow is not there".to_owned());
    lab.write("go", "");
    apply.finish().exits(0);
    fs::remove_file(lab.path("go")).unwrap();
    // In the background as well.
    lab.write("v.yaml", "name: v\njobs: [{name: a, command: 'until test -e go; do sleep 0.05; done'}]\n");
    lab.torc("apply -f v.yaml --detach --bind 0.0.0.0:0 --advertise login.example").exits(0);
    assert!(text(&info().unwrap(), "url").starts_with("https://login.example:"));
    lab.write("go", "");
    lab.torc("wait v --for condition=Succeeded --timeout 1m").exits(0);
}

/// Sends bytes as they are, and reads what comes until the other side closes.
fn converse(address: &str, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn those_who_never_finish_hold_up_nobody() {
    let lab = Lab::new();
    let server = Served::start(&lab, "--bind 127.0.0.1:0 --tls");
    let address = server.address();
    // Silent connections, halves of greetings, and plain words do not keep others out.
    let idle: Vec<TcpStream> = (0..50).map(|_| TcpStream::connect(&address).unwrap()).collect();
    let mut half = TcpStream::connect(&address).unwrap();
    half.write_all(&[0x16, 3, 1]).unwrap();
    server.admin(&lab, "get workflows").exits(0);
    let answer = converse(&address, b"GET /v1/version HTTP/1.1\r\nhost: x\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("TlsRequired"), "{answer}");
    // A greeting that is never finished is given up on.
    half.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut rest = Vec::new();
    let closed = half.read_to_end(&mut rest).map_or_else(|error| error.kind() == ErrorKind::ConnectionReset, |_| true);
    assert!(closed, "the server still waits");
    drop(idle);
    // Nothing is read of a body before it is known whose it is.
    let plain_lab = Lab::new();
    let plain = Served::start(&plain_lab, "--bind 127.0.0.1:0");
    let head = "POST /v1/workflows HTTP/1.1\r\nhost: x\r\ncontent-length: 100000000\r\nconnection: close\r\n\r\n";
    let answer = converse(&plain.address(), head.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
}

#[test]
fn at_the_limit_of_connections_the_next_one_waits() {
    let lab = Lab::new();
    let process = lab.call(SERVER).arg("--bind").arg("127.0.0.1:0").env("TORC_SERVER_MAX_CONNECTIONS", "2").start();
    let said: Value = eventually("the server says where it is", || serde_json::from_str(&process.stdout()).ok());
    fs::create_dir_all(lab.path("client")).unwrap();
    let server = Served { process, said };
    let held: Vec<TcpStream> = (0..2).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    let mut waiting = lab
        .call("get workflows")
        .folder(lab.path("client"))
        .env("TORC_API_URL", server.url())
        .env("TORC_TOKEN_FILE", lab.path("data/lab.db.token"))
        .start();
    assert!(!waiting.has_ended());
    drop(held);
    waiting.finish().exits(0);
}

/// Every route of the API's own description is closed to those without a token, and to those with the wrong one.
#[test]
fn every_route_is_closed_to_strangers() {
    let lab = Lab::new();
    let server = Served::start(&lab, "--bind 127.0.0.1:0");
    let file = workflow(&lab, "w", "true");
    server.admin(&lab, &format!("apply -f {file}")).exits(0);
    server.token(&lab, "metrics", "--scope metrics");
    let metrics = fs::read_to_string(lab.path("metrics")).unwrap();
    let document: Value = serde_json::from_str(include_str!("../../docs/reference/openapi.json")).unwrap();
    let mut routes = vec![("GET".to_owned(), "/metrics".to_owned()), ("GET".to_owned(), "/v1/openapi.json".to_owned())];
    for (path, methods) in document["paths"].as_object().unwrap() {
        routes.extend(methods.as_object().unwrap().keys().map(|method| (method.to_uppercase(), path.clone())));
    }
    assert!(routes.len() > 30, "{routes:?}");
    let ask = |method: &str, path: &str, token: Option<&str>| -> u16 {
        let path = path.replace("{workflow}", "w").replace("{job}", "a").replace("{run}", "1");
        let path = path.replace("{name}", "x").replace("{runner}", "1").replace("{worker}", "h");
        let token = token.map_or_else(String::new, |token| format!("authorization: Bearer {token}\r\n"));
        let body = json!({}).to_string();
        let length = body.len();
        let answer = converse(
            &server.address(),
            format!(
                "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n{token}content-length: {length}\r\n\r\n{body}"
            )
            .as_bytes(),
        );
        answer.split_whitespace().nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{answer}"))
    };
    for (method, path) in &routes {
        assert_eq!(ask(method, path, None), 401, "{method} {path}");
        assert_eq!(ask(method, path, Some("0123")), 401, "{method} {path}");
        assert_eq!(ask(method, path, Some("torc1.e30.AAAA")), 401, "{method} {path}");
        let open = matches!(path.as_str(), "/metrics" | "/v1/version" | "/v1/openapi.json");
        let expected = if open { 200 } else { 403 };
        assert_eq!(ask(method, path, Some(metrics.trim())), expected, "{method} {path} with a token for metrics");
    }
    for path in ["/livez", "/readyz"] {
        assert_eq!(ask("GET", path, None), 200, "{path}");
    }
}

#[test]
fn tokens_of_administrators_and_of_metrics_may_be_given() {
    let lab = Lab::new();
    lab.write("admin", "a-word-that-nobody-guesses\n");
    lab.write("figures", "another-word-for-figures\n");
    let server = Served::start(&lab, "--bind 127.0.0.1:0 --admin-token-file admin --metrics-token-file figures");
    assert_eq!(text(&server.said, "tokenFile"), "admin");
    assert!(!lab.path("data/lab.db.token").exists(), "no other one is made");
    server.with(&lab, "admin", "get workflows").exits(0);
    server.with(&lab, "figures", "get workflows").exits(7);
    let ask = |token: &str| {
        let request =
            format!("GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\r\n");
        converse(&server.address(), request.as_bytes())
    };
    assert!(ask("another-word-for-figures").starts_with("HTTP/1.1 200"));
    assert!(ask("another-word-for-figure").starts_with("HTTP/1.1 401"));
    let other = Lab::new();
    other.write("admin", "short\n");
    other.torc("server --bind 127.0.0.1:0 --admin-token-file admin").exits(4).says("too short");
    other.torc("server --bind 127.0.0.1:0 --admin-token-file nowhere").exits(5).says("could not read the token file");
}
