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

/// An agent of an older revision, with its session.
struct OldAgent<'a> {
    server: &'a Server,
    session: String,
}

impl<'a> OldAgent<'a> {
    #[track_caller]
    fn new(server: &'a Server, revision: &str) -> Self {
        let mut agent = Self { server, session: String::new() };
        let hello = json!({"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}});
        let welcome = agent
            .post(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}));
        agent.session = welcome.headers()["mcp-session-id"].to_str().expect("a session").to_owned();
        assert_eq!(message(welcome)["result"]["protocolVersion"], revision);
        agent.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        agent
    }

    #[track_caller]
    fn post(&self, body: &Value) -> Response {
        let request = self.server.http.post(&self.server.url).body(body.to_string());
        let mut request = request
            .header("authorization", self.server.bearer())
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        if !self.session.is_empty() {
            request = request.header("mcp-session-id", &self.session);
        }
        request.send().expect("an answer")
    }
}

/// All messages of an answer, which is a stream of events or one document.
#[track_caller]
fn messages(response: Response) -> Vec<Value> {
    let body = response.text().expect("a body");
    let data = body.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim);
    let mut found: Vec<&str> = data.filter(|line| !line.is_empty()).collect();
    if found.is_empty() && !body.is_empty() {
        found.push(&body);
    }
    let parsed = found
        .into_iter()
        .map(|text| serde_json::from_str::<Value>(text).unwrap_or_else(|_| panic!("{body}")));
    parsed
        .flat_map(|message| match message {
            Value::Array(several) => several,
            one => vec![one],
        })
        .collect()
}

#[test]
fn a_batch_is_answered_in_its_revision_and_refused_in_others() {
    let daemon = Daemon::start();
    let repo = daemon.repo("project");
    let server = serve(&daemon, repo.path());
    let ping = |id: u64| json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
    let read = |id: u64, path: &str| {
        let params = json!({"name": "read_file", "arguments": {"path": path}});
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
    };
    let note = json!({"jsonrpc": "2.0", "method": "notifications/made_up"});
    let initialize = json!({"jsonrpc": "2.0", "id": 55, "method": "initialize", "params":
        {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}});
    for revision in ["2025-06-18", "2025-11-25"] {
        let refused = OldAgent::new(&server, revision).post(&json!([ping(1)]));
        assert_eq!(refused.status(), 400, "{revision}");
        let refused = message(refused);
        assert_eq!(refused["error"]["code"], -32600, "{refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains("2025-03-26"), "{refused}");
    }
    let agent = OldAgent::new(&server, "2025-03-26");
    let batch = json!([
        read(51, "README.md"), note, ping(52), 7, read(53, "missing"), [ping(9)],
        {"jsonrpc": "2.0", "id": 54, "method": "tools/dance"}, ping(52), initialize,
    ]);
    let answers = messages(agent.post(&batch));
    let of = |id: u64| answers.iter().filter(|it| it["id"] == id).collect::<Vec<_>>();
    assert_eq!(text(&of(51)[0]["result"]), "# A repository\n");
    assert_eq!(of(52).len(), 2, "one has the id of the other: {answers:?}");
    assert_eq!(of(53)[0]["result"]["isError"], true);
    assert_eq!(of(54)[0]["error"]["code"], -32601);
    assert_eq!(of(55)[0]["error"]["code"], -32600);
    let nameless = answers.iter().filter(|it| it["id"].is_null());
    let codes: Vec<_> = nameless.map(|it| it["error"]["code"].clone()).collect();
    assert_eq!(codes, [-32600, -32600], "the number and the batch in the batch");
    assert_eq!(answers.len(), 8, "{answers:?}");

    let many: Vec<Value> = (100..200).map(ping).collect();
    for batch in [json!([]), json!(many)] {
        let refused = agent.post(&batch);
        assert_eq!(refused.status(), 400);
        assert_eq!(message(refused)["error"]["code"], -32600);
    }
    let only_refused = agent.post(&json!([[], 7]));
    assert_eq!((only_refused.status().as_u16(), messages(only_refused).len()), (200, 2));
    let only_notes = agent.post(&json!([note, note]));
    assert_eq!((only_notes.status().as_u16(), messages(only_notes).len()), (202, 0));
    let gone = OldAgent { server: &server, session: "nobody".to_owned() };
    assert_eq!(gone.post(&json!([ping(1)])).status(), 400);
    assert_eq!(message(agent.post(&ping(1)))["id"], 1, "the session goes on");
}

#[test]
fn agents_that_use_the_same_ids_get_their_own_answers() {
    let daemon = Daemon::start();
    let repo = daemon.repo("project");
    let server = serve(&daemon, repo.path());
    let ask = |n: usize, session: &str| {
        // Each command ends after all of them have begun, so that all requests with the same id are open at once.
        let command = format!(
            "touch {n}.begun; until [ -e 0.begun -a -e 1.begun -a -e 2.begun ]; do sleep 0.02; done; echo {n}"
        );
        let call = json!({"name": "bash", "arguments": {"command": command}});
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call});
        let request = server.http.post(&server.url).body(call.to_string());
        request
            .header("authorization", server.bearer())
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-session-id", session)
    };
    let asked: Vec<_> = (0..3)
        .map(|n| {
            let request = ask(n, &OldAgent::new(&server, "2025-11-25").session);
            std::thread::spawn(move || message(request.send().expect("an answer")))
        })
        .collect();
    for (n, answer) in asked.into_iter().enumerate() {
        let answer = answer.join().expect("an answer");
        assert_eq!(text(&answer["result"]), format!("{n}\n\n[Exit code: 0]"), "{answer}");
    }
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
