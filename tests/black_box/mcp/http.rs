//! `quack mcp --http`: the token, the headers, and the same handler.

use super::questions::{accept, answered, bash, with_hosts};
use super::{CURRENT, command, current, text};
use crate::harness::{Daemon, Running, wait_for};
use reqwest::blocking::{Client, Response};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// A running server.
struct Server {
    _running: Running,
    url: String,
    token: String,
    http: Client,
}

#[track_caller]
fn serve(daemon: &Daemon, dir: &Path) -> Server {
    let running = Running::start(command(daemon, dir, &["--http", "127.0.0.1:0", "--json"]));
    let document = running.lines_to("}").concat();
    let told: Value = serde_json::from_str(&document).expect("a document");
    let url = told["url"].as_str().expect("a URL").to_owned();
    let token =
        std::fs::read_to_string(told["tokenFile"].as_str().expect("a path")).expect("the token");
    // Another test may have installed the provider first.
    rustls::crypto::ring::default_provider().install_default().ok();
    let http =
        Client::builder().no_proxy().timeout(Duration::from_secs(45)).build().expect("a client");
    Server { _running: running, url, token: token.trim().to_owned(), http }
}

impl Server {
    #[track_caller]
    fn post(&self, headers: &[(&str, &str)], method: &str, params: Value) -> Response {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let mut request = self.http.post(&self.url).body(body.to_string());
        request = request.header("content-type", "application/json");
        request = request.header("accept", "application/json, text/event-stream");
        request = request.header("mcp-protocol-version", CURRENT).header("mcp-method", method);
        if let Some(name) = params["name"].as_str() {
            request = request.header("mcp-name", name);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().expect("an answer")
    }

    fn bearer(&self) -> String {
        format!("Bearer {}", self.token)
    }
}

/// The last message of an answer, which may be a stream of events.
#[track_caller]
fn message(response: Response) -> Value {
    let body = response.text().expect("a body");
    let mut data = body.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim);
    let last = data.rfind(|line| !line.is_empty()).unwrap_or(&body);
    serde_json::from_str(last).unwrap_or_else(|_| panic!("{body}"))
}

#[test]
fn the_token_is_needed_and_the_tools_are_the_same() {
    let daemon = Daemon::start();
    let repo = daemon.repo("project");
    let server = serve(&daemon, repo.path());
    let call = json!({"name": "bash", "arguments": {"command": "echo over http"}});
    let call = current(call, json!({}));
    let wrong = format!("Bearer {}x", server.token);
    for headers in [&[][..], &[("authorization", "Bearer")], &[("authorization", wrong.as_str())]] {
        let refused = server.post(headers, "tools/call", call.clone());
        assert_eq!(refused.status(), 401, "{headers:?}");
    }
    let bearer = server.bearer();
    let answer = message(server.post(&[("authorization", &bearer)], "tools/call", call));
    assert_eq!(text(&answer["result"]), "over http\n\n[Exit code: 0]");
    let mode = std::fs::metadata(daemon.app().join("mcp-token")).expect("the token");
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode.permissions()) & 0o777, 0o600);
}

#[test]
fn connections_without_the_token_keep_no_agent_out() {
    let daemon = Daemon::start();
    let repo = daemon.repo("project");
    let server = serve(&daemon, repo.path());
    let bearer = server.bearer();
    let address = server.url.trim_start_matches("http://").trim_end_matches("/mcp");
    let held: Vec<_> = (0..300)
        .filter_map(|_| {
            let mut stream = std::net::TcpStream::connect(address).ok()?;
            std::io::Write::write_all(&mut stream, b"POST /mcp HTTP/1.1\r\n").ok()?;
            Some(stream)
        })
        .collect();
    assert!(200 < held.len(), "{}", held.len());
    let http = Client::builder().no_proxy().pool_max_idle_per_host(0).build().expect("a client");
    let server = Server { http, ..server };
    for _ in 0..10 {
        let headers = [("authorization", bearer.as_str())];
        let list = server.post(&headers, "tools/list", current(json!({}), json!({})));
        assert_eq!(list.status(), 200);
    }
}

#[test]
fn pages_of_other_hosts_are_refused() {
    let daemon = Daemon::start();
    let repo = daemon.repo("project");
    let server = serve(&daemon, repo.path());
    let bearer = server.bearer();
    let list = || current(json!({}), json!({}));
    for (header, value, status) in [
        ("host", "evil.example", 403),
        ("origin", "https://evil.example", 403),
        ("origin", "null", 403),
        ("origin", "http://localhost:3000", 200),
    ] {
        let headers = [("authorization", bearer.as_str()), (header, value)];
        assert_eq!(
            server.post(&headers, "tools/list", list()).status(),
            status,
            "{header}: {value}"
        );
    }
    let other = server.http.get(server.url.replace("/mcp", "/")).send().expect("an answer");
    assert_eq!(other.status(), 404);
}

#[test]
fn an_agent_of_an_older_revision_has_a_session() {
    let daemon = Daemon::start();
    let repo = daemon.repo("project");
    let server = serve(&daemon, repo.path());
    let bearer = server.bearer();
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}});
    let body = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello});
    let post = |body: &Value, session: Option<&str>| {
        let mut request = server.http.post(&server.url).body(body.to_string());
        request =
            request.header("authorization", &bearer).header("content-type", "application/json");
        request = request.header("accept", "application/json, text/event-stream");
        if let Some(session) = session {
            request = request
                .header("mcp-session-id", session)
                .header("mcp-protocol-version", "2025-11-25");
        }
        request.send().expect("an answer")
    };
    let welcome = post(&body, None);
    let session = welcome.headers()["mcp-session-id"].to_str().expect("a session").to_owned();
    assert_eq!(message(welcome)["result"]["protocolVersion"], "2025-11-25");
    post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}), Some(&session));
    let call = json!({"name": "bash", "arguments": {"command": "echo old"}});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call});
    assert_eq!(text(&message(post(&call, Some(&session)))["result"]), "old\n\n[Exit code: 0]");
    assert_eq!(post(&call, Some("nobody")).status(), 404);
    // Sessions are bounded.
    let full = wait_for("the server to refuse a session", || {
        let answer = post(&body, None);
        (answer.status() == 503).then_some(answer)
    });
    assert!(full.text().expect("a body").contains("too many sessions"));
    assert_eq!(text(&message(post(&call, Some(&session)))["result"]), "old\n\n[Exit code: 0]");
}

#[test]
fn only_this_machine_can_reach_it() {
    let daemon = Daemon::absent();
    for address in ["0.0.0.0:0", "192.0.2.1:80", "[::]:0"] {
        let refused = daemon.quack(&["mcp", "--http", address]);
        assert_eq!(refused.code(), Some(2), "{address}");
    }
}

#[test]
fn a_question_is_a_result_and_another_agent_cannot_answer_it() {
    with_hosts(|daemon, repo| {
        let server = serve(daemon, repo.path());
        let bearer = server.bearer();
        let post = |params: &Value, name: &str| {
            let mut params = current(params.clone(), json!({"elicitation": {}}));
            params["_meta"]["io.modelcontextprotocol/clientInfo"]["name"] = json!(name);
            message(server.post(&[("authorization", &bearer)], "tools/call", params))
        };
        let call = bash("a.example:443");
        let asked = post(&call, "test-agent");
        let next = answered(&call, &asked["result"], Some(accept("Allow once")));
        let refused = post(&next, "other-agent");
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        let done = post(&next, "test-agent");
        let told = text(&done["result"]);
        assert!(told.contains("(a.example:443) was allowed by the user once]"), "{told}");
    });
}
