//! Access rights and the identity of the server, with real processes, certificates and sockets.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use torc_tests::env::{SERVER, Server, TestEnv, eventually, text, until};

fn workflow(env: &TestEnv, name: &str, command: &str) -> String {
    let file = format!("client/{name}.yaml");
    env.write(&file, format!("name: {name}\njobs: [{{name: a, command: '{command}'}}]\nuser_data: [{{name: x}}]\n"));
    format!("{name}.yaml")
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_workflow_runs_over_tls_with_a_runner_token() {
    let env = TestEnv::new();
    let server = Server::with_flags(&env, "--bind 0.0.0.0:0 --advertise 127.0.0.1");
    assert!(server.url.starts_with("https://127.0.0.1:"), "{}", server.url);
    for name in ["lab.db.token", "lab.db.token-key", "lab.db.tls.key", "lab.db.tls.crt", "lab.db.server.json"] {
        assert_eq!(mode(&env.path("data").join(name)), 0o600, "{name}");
    }
    let pin = text(&server.announced, "certificateSha256");
    let word = fs::read_to_string(env.path("data/lab.db.token")).unwrap();
    assert!(word.trim().ends_with(&format!("~{pin}")), "the token file pins the certificate");

    let file =
        workflow(&env, "w", "torc token show -o json > shown; cat $TORC_TOKEN_FILE > seen; torc user-data set x 5");
    let path = std::env::var("PATH").unwrap();
    let bin = torc_tests::env::binary();
    let path = format!("{}:{path}", bin.parent().unwrap().display());
    server.torc(&env, &format!("apply -f {file}")).exits(0);
    server.create_token(&env, "runner.token", "--scope runner --workflow w --expires 1h");
    let call = env.call("runner w").folder(env.path("client")).env("PATH", path);
    let call = call.env("TORC_API_URL", &server.url).env("TORC_TOKEN_FILE", env.path("runner.token"));
    call.run().exits(0);
    server.torc(&env, "wait w --for condition=Succeeded --timeout 1m").exits(0);
    let data = server.torc(&env, "get user-data w -o json").exits(0).json();
    assert_eq!(data["items"][0]["data"], 5, "the job talked to the server by itself");
    // Jobs see the token of their workflow, never the administrator's, and other users cannot read it.
    let shown: Value = serde_json::from_str(&fs::read_to_string(env.path("client/shown")).unwrap()).unwrap();
    assert_eq!(shown["statement"]["scope"], "runner");
    assert_eq!(shown["statement"]["workflow"], 1);
    assert_ne!(fs::read_to_string(env.path("client/seen")).unwrap(), word);
}

#[test]
fn jobs_of_apply_see_only_the_token_of_their_workflow() {
    let env = TestEnv::new();
    let job = "cat $TORC_TOKEN_FILE > seen; stat -c %a $TORC_TOKEN_FILE > mode; test -f $TORC_SERVER_FILE";
    env.write("w.yaml", format!("name: w\njobs: [{{name: a, command: '{job}'}}]\n"));
    env.torc("apply -f w.yaml").exits(0);
    let (seen, admin) = (env.lines("seen"), env.lines(".torc/token"));
    assert!(seen[0].starts_with("torc1."), "{seen:?}");
    assert_ne!(seen, admin);
    assert_eq!(env.lines("mode"), ["600"]);
    let shown = env.json("token show seen");
    assert_eq!(shown["statement"]["workflow"], 1);
    assert!(!env.torc("token show seen").stdout.contains(&seen[0]), "it is described, not printed");
}

#[test]
fn a_client_sends_no_token_to_a_wrong_server() {
    let env = TestEnv::new();
    let server = Server::with_flags(&env, "--bind 127.0.0.1:0 --tls");
    let address = server.address();
    let port = address.rsplit_once(':').unwrap().1.to_owned();
    let word = fs::read_to_string(env.path("data/lab.db.token")).unwrap();
    let (token, _) = word.trim().split_once('~').unwrap();
    env.write("other-pin", format!("{token}~{}\n", "ab".repeat(32)));
    env.write("no-pin", format!("{token}\n"));
    env.write("half-pin", format!("{token}~abcd\n"));
    server.torc(&env, "get workflows").exits(0);
    server.torc_with_token(&env, "other-pin", "get workflows").exits(7).prints("expected abababab");
    server
        .torc_with_token(&env, "no-pin", "get workflows")
        .exits(7)
        .prints("the issuer of its certificate is not trusted");
    server.torc_with_token(&env, "half-pin", "get workflows").exits(4).prints("fingerprint");
    // The server is identified by its certificate, or by a fingerprint that a user copied.
    let certificate = env.text_path("data/lab.db.tls.crt");
    server.torc_with_token(&env, "no-pin", &format!("get workflows --ca-cert {certificate}")).exits(0);
    let pin = text(&server.announced, "certificateSha256");
    server.torc_with_token(&env, "no-pin", &format!("get workflows --certificate-sha256 {pin}")).exits(0);
    server.torc_with_token(&env, "other-pin", &format!("get workflows --certificate-sha256 {pin}")).exits(0);
    // This address is not in the certificate.
    let wide = TestEnv::new();
    let wide_server = Server::with_flags(&wide, "--bind 0.0.0.0:0");
    let wide_port = wide_server.address().rsplit_once(':').unwrap().1.to_owned();
    let call = wide.call(&format!("get workflows --url https://127.0.0.2:{wide_port}")).folder(wide.path("client"));
    let call = call.arg("--ca-cert").arg(wide.path("data/lab.db.tls.crt")).env("TORC_TOKEN", "x");
    call.run().exits(7).prints("not valid for this host name");
    // Plain HTTP to a server with TLS, and TLS to a plain one.
    env.call(&format!("get workflows --url http://{address}")).env("TORC_TOKEN", token).run().exits(4).prints("https");
    let plain_env = TestEnv::new();
    let plain = Server::with_flags(&plain_env, "--bind 127.0.0.1:0");
    let line = format!("get workflows --url https://{}", plain.address());
    plain_env.call(&line).env("TORC_TOKEN", "x").run().exits(7).prints("speaks HTTP, not HTTPS");
    // A token with a fingerprint is never sent over plain HTTP.
    let line = format!("get workflows --url http://missing.invalid:{port}");
    env.call(&line).env("TORC_TOKEN", word.trim()).run().exits(4).prints("use https://");
}

#[test]
fn a_replaced_certificate_is_reloaded() {
    let env = TestEnv::new();
    // Two servers generate certificates. A third one uses the first, which the test then replaces by the second.
    for name in ["one", "two"] {
        let call = env.call(&format!("server --bind 127.0.0.1:0 --tls --database {name}/x.db -o json"));
        drop(Server::from_call(&env, call));
        fs::create_dir_all(env.path("tls")).unwrap();
    }
    let place = |name: &str| {
        fs::copy(env.path(&format!("{name}/x.db.tls.key")), env.path("tls/new.key")).unwrap();
        fs::copy(env.path(&format!("{name}/x.db.tls.crt")), env.path("tls/new.crt")).unwrap();
        fs::rename(env.path("tls/new.key"), env.path("tls/tls.key")).unwrap();
        fs::rename(env.path("tls/new.crt"), env.path("tls/tls.crt")).unwrap();
    };
    place("one");
    let call = env.call("server --bind 127.0.0.1:0 --tls-cert tls/tls.crt --tls-key tls/tls.key -o json");
    let server = Server::from_call(&env, call);
    let trusting = |name: &str| {
        let (url, certificate) = (&server.url, env.text_path(&format!("{name}/x.db.tls.crt")));
        let call = env.call(&format!("get workflows --url {url} --ca-cert {certificate}"));
        call.env("TORC_TOKEN_FILE", env.path(".torc/token")).run().code
    };
    assert_eq!((trusting("one"), trusting("two")), (Some(0), Some(7)));
    assert!(!fs::read_to_string(env.path(".torc/token")).unwrap().contains('~'), "others vouch for it");
    env.torc("get workflows").exits(0);
    place("two");
    until(|| trusting("two") == Some(0), || "the new certificate is not shown".to_owned());
    assert_eq!(trusting("one"), Some(7));
    // Commands in the folder use the certificate of the file.
    env.torc("get workflows").exits(0);
}

#[test]
fn each_scope_has_exactly_its_rights() {
    let env = TestEnv::new();
    let server = Server::with_flags(&env, "--bind 127.0.0.1:0");
    server.create_token(&env, "ada", "--scope owner --user ada");
    server.create_token(&env, "bob", "--scope owner --user bob");
    server.create_token(&env, "metrics", "--scope metrics");
    let (one, two) = (workflow(&env, "one", "true"), workflow(&env, "two", "true"));
    server.torc_with_token(&env, "ada", &format!("apply -f {one}")).exits(0);
    server.torc_with_token(&env, "bob", &format!("apply -f {two}")).exits(0);
    server.create_token(&env, "runner", "--scope runner --workflow one");
    let names = |token: &str| -> Vec<String> {
        let listed = server.torc_with_token(&env, token, "get workflows -o json").exits(0).json();
        listed["items"].as_array().unwrap().iter().map(|item| text(item, "name")).collect()
    };
    assert_eq!(names("ada"), ["one"]);
    assert_eq!(names("bob"), ["two"]);
    assert_eq!(names("runner"), ["one"]);
    assert_eq!(names("data/lab.db.token"), ["one", "two"]);
    // Owners may do everything with their workflows and nothing with others.
    server.torc_with_token(&env, "ada", &format!("apply -f {two}")).exits(7).prints("belongs to bob");
    for line in
        ["get jobs two", "cancel two", "delete two --yes", "retry two", "get events two", "runner two", "runner"]
    {
        server.torc_with_token(&env, "ada", line).exits(7);
    }
    server.torc_with_token(&env, "ada", "token create --scope runner --workflow two").exits(7);
    server.torc_with_token(&env, "ada", "token create --scope owner --user bob").exits(7);
    server.torc_with_token(&env, "ada", "token create --scope admin").exits(7);
    server.torc_with_token(&env, "ada", "gc --older-than 1d").exits(7);
    server.torc_with_token(&env, "ada", "backup copy.db").exits(7);
    server.torc_with_token(&env, "ada", "suspend one").exits(0);
    server.torc_with_token(&env, "ada", "resume one").exits(0);
    // Runners may only do what runners and jobs of their workflow need.
    server.torc_with_token(&env, "runner", "get jobs one").exits(0);
    for line in ["get jobs two", "cancel one", "delete one --yes", "retry one", "suspend one", "runner", "runner two"] {
        server.torc_with_token(&env, "runner", line).exits(7);
    }
    server.torc_with_token(&env, "runner", &format!("apply -f {one}")).exits(7);
    server.torc_with_token(&env, "runner", "token create --scope runner --workflow one").exits(7);
    server.torc_with_token(&env, "runner", "runner one").exits(0);
    server.torc_with_token(&env, "metrics", "get workflows").exits(7);
    // An expired token, and a modified one.
    server.create_token(&env, "brief", "--scope owner --user ada --expires 1s");
    until(|| server.torc_with_token(&env, "brief", "get workflows").code == Some(7), || "it never expires".to_owned());
    server.torc_with_token(&env, "brief", "get workflows").prints("expired");
    let changed = fs::read_to_string(env.path("ada")).unwrap().replacen("torc1.e", "torc1.f", 1);
    env.write("changed", changed);
    server.torc_with_token(&env, "changed", "get workflows").exits(7);
    // The audit log has all of it.
    let rows = server.torc(&env, "get audit -o json").exits(0).json();
    let rows: Vec<String> = rows["items"].as_array().unwrap().iter().map(audit_text).collect();
    for wanted in [
        "ada owner apply workflows/one ok",
        "ada owner apply workflows/two Forbidden",
        "ada owner cancel workflows/two/cancel Forbidden",
        "ada owner gc gc Forbidden",
        "ada owner suspend workflows/one/suspend ok",
        "runner of workflow 1 runner cancel workflows/one/cancel Forbidden",
    ] {
        assert!(rows.iter().any(|row| row == wanted), "`{wanted}` is missing in {rows:#?}");
    }
    let own = server.torc_with_token(&env, "ada", "get audit -o json").exits(0).json();
    assert!(own["items"].as_array().unwrap().iter().all(|item| text(item, "who") == "ada"));
}

fn audit_text(item: &Value) -> String {
    ["who", "scope", "verb", "object", "outcome"].map(|field| text(item, field)).join(" ")
}

#[test]
fn a_token_key_survives_the_store_and_a_new_key_ends_tokens() {
    let env = TestEnv::new();
    env.write("key", "0123456789abcdef0123456789abcdef\n");
    env.write("short", "abc\n");
    env.torc(&format!("{SERVER} --bind 127.0.0.1:0 --token-key-file short")).exits(4).prints("at least 32 bytes");
    let server = Server::with_flags(&env, "--bind 127.0.0.1:0 --token-key-file key");
    server.create_token(&env, "ada", "--scope owner --user ada");
    server.torc_with_token(&env, "ada", "get workflows").exits(0);
    drop(server);
    let server = Server::with_flags(&env, "--bind 127.0.0.1:0 --token-key-file key");
    server.torc_with_token(&env, "ada", "get workflows").exits(0);
    drop(server);
    let server = Server::with_flags(&env, "--bind 127.0.0.1:0");
    server.torc_with_token(&env, "ada", "get workflows").exits(7).prints("the server's key has changed");
}

#[test]
fn contradicting_tls_flags_are_refused() {
    let env = TestEnv::new();
    env.torc("server --bind 0.0.0.0:0 --insecure-http --tls").exits(2);
    env.torc("server --bind 127.0.0.1:0 --tls-cert none.pem").exits(2);
    env.torc("server --bind 127.0.0.1:0 --tls-cert none.pem --tls-key none.key").exits(4).prints("none.pem");
    let server = Server::with_flags(&env, "--bind 0.0.0.0:0 --insecure-http");
    server.process().prints("not encrypted");
    assert!(server.url.starts_with("http://"));
    let port = server.address().rsplit_once(':').unwrap().1.to_owned();
    let line = format!("get workflows --url http://127.0.0.1:{port}");
    env.call(&line).env("TORC_TOKEN_FILE", env.path("data/lab.db.token")).run().exits(0);
}

#[test]
fn an_unreachable_advertised_host_is_warned_about() {
    let env = TestEnv::new();
    let server = Server::with_flags(&env, "--bind 0.0.0.0:0");
    server.torc(&env, "get workflows").exits(0);
    assert!(!server.process().stderr().contains("leads nowhere"), "{}", server.process().stderr());
    // The certificate includes that host.
    let host = server.address().rsplit_once(':').unwrap().0.to_owned();
    let token = fs::read_to_string(env.path("data/lab.db.token")).unwrap();
    env.write("no-pin", token.split('~').next().unwrap());
    let certificate = env.text_path("data/lab.db.tls.crt");
    let call = server.torc_with_token(&env, "no-pin", &format!("get workflows --ca-cert {certificate}"));
    assert_eq!(call.code, Some(0), "{host}: {}", call.stderr);
    let other = TestEnv::new();
    let server = Server::with_flags(&other, "--bind 0.0.0.0:0 --advertise logn1.invalid");
    server.process().prints("'logn1.invalid' of --advertise does not resolve");
    // No authority signs a certificate that the server generates.
    env.torc("server --bind 0.0.0.0:0 --tls-ca ca.crt --database x.db").exits(2).prints("--tls-cert");
}

#[test]
fn the_server_of_apply_listens_at_the_configured_address() {
    let env = TestEnv::new();
    env.write("w.yaml", "name: w\njobs: [{name: a, command: 'until test -e go; do sleep 0.05; done'}]\n");
    let info = || serde_json::from_slice::<Value>(&fs::read(env.path(".torc/server.json")).ok()?).ok();
    let apply = env.start("apply -f w.yaml --bind 0.0.0.0:0 --advertise login.example");
    let printed = eventually("the owner writes its address", &info);
    assert!(text(&printed, "url").starts_with("https://login.example:"), "{printed}");
    assert!(printed["certificateSha256"].is_string(), "{printed}");
    // Other commands in the folder use its address on this machine.
    until(|| env.items("get workflows").len() == 1, || "the workflow is not there".to_owned());
    env.write("go", "");
    apply.finish().exits(0);
    fs::remove_file(env.path("go")).unwrap();
    // A background server does the same.
    env.write("v.yaml", "name: v\njobs: [{name: a, command: 'until test -e go; do sleep 0.05; done'}]\n");
    env.torc("apply -f v.yaml --detach --bind 0.0.0.0:0 --advertise login.example").exits(0);
    assert!(text(&info().unwrap(), "url").starts_with("https://login.example:"));
    env.write("go", "");
    env.torc("wait v --for condition=Succeeded --timeout 1m").exits(0);
}

/// Sends raw bytes and reads until the server closes the connection.
fn converse(address: &str, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn unfinished_connections_block_no_others() {
    let env = TestEnv::new();
    let server = Server::with_flags(&env, "--bind 127.0.0.1:0 --tls");
    let address = server.address();
    // Silent connections, unfinished handshakes and plain text do not block others.
    let idle: Vec<TcpStream> = (0..50).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut half = TcpStream::connect(address).unwrap();
    half.write_all(&[0x16, 3, 1]).unwrap();
    server.torc(&env, "get workflows").exits(0);
    let answer = converse(address, b"GET /v1/version HTTP/1.1\r\nhost: x\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("TlsRequired"), "{answer}");
    // An unfinished handshake times out.
    half.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut rest = Vec::new();
    let closed = half.read_to_end(&mut rest).map_or_else(|error| error.kind() == ErrorKind::ConnectionReset, |_| true);
    assert!(closed, "the server still waits");
    drop(idle);
    // A body is not read before the request is authenticated.
    let plain_env = TestEnv::new();
    let plain = Server::with_flags(&plain_env, "--bind 127.0.0.1:0");
    let head = "POST /v1/workflows HTTP/1.1\r\nhost: x\r\ncontent-length: 100000000\r\nconnection: close\r\n\r\n";
    let answer = converse(plain.address(), head.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
}

#[test]
fn a_connection_over_the_limit_waits() {
    let env = TestEnv::new();
    let call = env.call(SERVER).arg("--bind").arg("127.0.0.1:0").env("TORC_SERVER_MAX_CONNECTIONS", "2");
    let server = Server::from_call(&env, call);
    let held: Vec<TcpStream> = (0..2).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    let mut waiting = server.call(&env, "get workflows").start();
    assert!(!waiting.has_ended());
    drop(held);
    waiting.finish().exits(0);
}

/// Every route of the OpenAPI document is refused without a token and with a wrong one.
#[test]
fn every_route_requires_a_token() {
    let env = TestEnv::new();
    let server = Server::with_flags(&env, "--bind 127.0.0.1:0");
    let file = workflow(&env, "w", "true");
    server.torc(&env, &format!("apply -f {file}")).exits(0);
    server.create_token(&env, "metrics", "--scope metrics");
    let metrics = fs::read_to_string(env.path("metrics")).unwrap();
    let document: Value = serde_json::from_str(include_str!("../../../docs/reference/openapi.json")).unwrap();
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
            server.address(),
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
fn admin_and_metrics_tokens_can_be_configured() {
    let env = TestEnv::new();
    env.write("admin", "a-long-admin-token\n");
    env.write("figures", "a-long-metrics-token\n");
    let server = Server::with_flags(&env, "--bind 127.0.0.1:0 --admin-token-file admin --metrics-token-file figures");
    assert_eq!(text(&server.announced, "tokenFile"), "admin");
    assert!(!env.path("data/lab.db.token").exists(), "no other one is made");
    server.torc_with_token(&env, "admin", "get workflows").exits(0);
    server.torc_with_token(&env, "figures", "get workflows").exits(7);
    let ask = |token: &str| {
        let request =
            format!("GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\r\n");
        converse(server.address(), request.as_bytes())
    };
    assert!(ask("a-long-metrics-token").starts_with("HTTP/1.1 200"));
    assert!(ask("a-long-metrics-toke").starts_with("HTTP/1.1 401"));
    let other = TestEnv::new();
    other.write("admin", "short\n");
    other.torc("server --bind 127.0.0.1:0 --admin-token-file admin").exits(4).prints("less than 16 characters");
    other.torc("server --bind 127.0.0.1:0 --admin-token-file nowhere").exits(5).prints("could not read the token file");
}
