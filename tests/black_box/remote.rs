//! Remote control through the whole daemon: HTTP and WebSockets with independent clients, the
//! stored configuration, and the permission to change it. `crates/remote` tests faulty peers.

use crate::harness::{Daemon, Wire, wait_for, wait_within};
use reqwest::StatusCode;
use reqwest::blocking::{Client, Response};
use serde_json::{Value, json};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Message, WebSocket, client};

/// A token of sufficient length and entropy.
const TOKEN: &str = "the-right-token-0123456789";

/// Salt of [`HASH`], in upstream's format: the scrypt hash of [`TOKEN`].
const SALT: &str = "c2FsdHNhbHRzYWx0";
const HASH: &str = "16536772d7dd545336369bdb9e54894e3d6cc004f8406e6ec8b3651a0e39b7df";

/// Enables remote control on a free port with [`TOKEN`].
#[track_caller]
fn enable(wire: &Wire) -> Remote {
    let data =
        wire.request("remote_configure", json!({"enabled": true, "port": 0, "authToken": TOKEN}));
    assert_eq!(data["status"]["listening"], true, "{data}");
    Remote::at(&data["status"], http())
}

/// The status of a daemon that has just started: it answers on its socket before it listens for
/// remote clients.
#[track_caller]
fn listening(wire: &Wire) -> Value {
    wait_for("it to listen", || Some(status(wire)).filter(|s| s["listening"] == true))
}

fn http() -> Client {
    // Another test may have installed the provider first.
    rustls::crypto::ring::default_provider().install_default().ok();
    Client::builder().no_proxy().timeout(Duration::from_secs(60)).build().expect("a client")
}

/// The server's address and an HTTP client.
struct Remote {
    port: u16,
    url: String,
    http: Client,
}

impl Remote {
    #[track_caller]
    fn at(status: &Value, http: Client) -> Self {
        let port = u16::try_from(status["port"].as_u64().expect("a port")).expect("a port");
        let url = status["httpUrl"].as_str().expect("a URL").to_owned();
        Self { port, url, http }
    }

    fn get(&self, target: &str, token: &str) -> Response {
        let request = self.http.get(format!("{}{target}", self.url)).bearer_auth(token);
        request.send().expect("an answer")
    }

    /// Sends one request over HTTP, with or without a client id.
    #[track_caller]
    fn rpc(&self, client: Option<&str>, method: &str, params: Value) -> (StatusCode, Value) {
        let body = json!({"id": "h", "method": method, "params": params}).to_string();
        let mut request = self.http.post(format!("{}/rpc", self.url)).bearer_auth(TOKEN).body(body);
        if let Some(client) = client {
            request = request.header("X-Rubber-Duck-Client-Id", client);
        }
        let answer = request.send().expect("an answer");
        let status = answer.status();
        (status, serde_json::from_str(&answer.text().expect("a body")).expect("JSON"))
    }

    #[track_caller]
    fn socket(&self) -> Socket {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("connect");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time limit");
        let url = format!("ws://127.0.0.1:{}/ws", self.port);
        let mut request = url.clone().into_client_request().expect("a request");
        let value = format!("Bearer {TOKEN}").parse().expect("a header");
        request.headers_mut().insert("Authorization", value);
        let (socket, _) = client(request, stream).expect("a WebSocket");
        let mut socket = Socket { socket, id: String::new(), events: Vec::new() };
        let ready = socket.next();
        socket.id = ready["data"]["clientId"].as_str().expect("an id").to_owned();
        let expected = json!({
            "event": "remote_ready", "sessionId": "remote-control",
            "data": {"type": "remote_ready", "clientId": socket.id, "websocketUrl": url},
        });
        assert_eq!(ready, expected);
        socket
    }
}

/// A client with an open WebSocket.
struct Socket {
    socket: WebSocket<TcpStream>,
    id: String,
    /// Events that arrived before an awaited reply.
    events: Vec<Value>,
}

impl Socket {
    #[track_caller]
    fn next(&mut self) -> Value {
        loop {
            match self.socket.read().expect("a message") {
                Message::Text(text) => return serde_json::from_str(&text).expect("JSON"),
                Message::Ping(_) => {}
                other => panic!("neither text nor a ping: {other:?}"),
            }
        }
    }

    #[track_caller]
    fn reply(&mut self, method: &str, params: Value) -> Value {
        let request = json!({"id": method, "method": method, "params": params});
        self.socket.send(Message::text(request.to_string())).expect("send");
        loop {
            let message = self.next();
            if message.get("event").is_some() {
                self.events.push(message);
            } else {
                assert_eq!(message["id"], method, "{message}");
                return message;
            }
        }
    }

    #[track_caller]
    fn request(&mut self, method: &str, params: Value) -> Value {
        let mut reply = self.reply(method, params);
        assert_eq!(reply["ok"], true, "{reply}");
        reply["data"].take()
    }

    /// Waits for an event of this name.
    #[track_caller]
    fn event(&mut self, name: &str) -> Value {
        if let Some(at) = self.events.iter().position(|event| event["event"] == name) {
            return self.events.remove(at);
        }
        loop {
            let message = self.next();
            if message["event"] == name {
                return message;
            }
        }
    }
}

fn config(daemon: &Daemon) -> Value {
    let text = std::fs::read_to_string(daemon.app().join("config.json")).expect("config.json");
    assert!(text.starts_with("{\n  \"version\": 2,\n  \"logToStderr\": "), "{text}");
    serde_json::from_str(&text).expect("JSON")
}

/// The remote status according to the local socket.
fn status(wire: &Wire) -> Value {
    wire.request("remote_status", json!({}))["status"].take()
}

#[track_caller]
fn remote_check(wire: &Wire) -> Value {
    let doctor = wire.request("doctor", json!({}));
    let mut checks = doctor["checks"].as_array().expect("checks").iter();
    checks.find(|check| check["name"] == "remote").expect("a check of remote control").clone()
}

#[test]
fn it_is_off_until_somebody_turns_it_on() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let line = wire.exchange(r#"{"id":"r","method":"remote_status"}"#);
    assert_eq!(
        line,
        concat!(
            r#"{"id":"r","ok":true,"data":{"status":{"enabled":false,"listening":false,"host":"127.0.0.1","#,
            r#""port":43111,"protocol":"http","tlsEnabled":false,"httpUrl":null,"wsUrl":null,"#,
            r#""tokenConfigured":false,"tokenUpdatedAt":null,"lastError":null,"connectedClients":0}}}"#
        )
    );
    assert_eq!(remote_check(&wire)["message"], "Disabled");
    assert!(!daemon.app().join("config.json").exists());
    assert!(
        wire.request("remote_status", json!({"includeToken": true})).get("authToken").is_none()
    );
}

#[test]
fn turned_on_it_has_a_token_that_survives_the_daemon() {
    let mut daemon = Daemon::start();
    let wire = daemon.wire();
    let data =
        wire.request("remote_configure", json!({"enabled": true, "port": 0, "includeToken": true}));
    let token = data["authToken"].as_str().expect("a token").to_owned();
    assert_eq!(token.len(), 32);
    let file = daemon.app().join("remote-auth-token");
    assert_eq!(std::fs::read_to_string(&file).expect("the token"), format!("{token}\n"));
    for name in ["remote-auth-token", "config.json"] {
        let mode = daemon.app().join(name).metadata().expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let kept = config(&daemon);
    assert_eq!(kept["remote"]["port"], 0, "each start chooses a free port");
    assert_eq!(kept["remote"]["host"], "127.0.0.1");
    assert_eq!(kept["remote"]["authTokenHash"].as_str().map(str::len), Some(64));
    let remote = Remote::at(&data["status"], http());
    assert_eq!(remote.get("/status", &token).status(), 200);
    let again = wire.request("remote_configure", json!({"enabled": true, "includeToken": true}));
    assert_eq!(again["authToken"], token.as_str(), "an existing token is kept");
    assert_eq!(again["status"]["port"], remote.port);
    drop(wire);

    daemon.quack(&["stop"]).ok();
    assert_eq!(daemon.wait(), Some(0));
    daemon.boot();
    let wire = daemon.wire();
    let remote = Remote::at(&listening(&wire), http());
    assert_eq!(remote.get("/status", &token).status(), 200);
    assert_eq!(remote.get("/status", "wrong").status(), 401);
    assert_eq!(
        wire.request("remote_status", json!({"includeToken": true}))["authToken"],
        token.as_str()
    );
    daemon.wait_for_log("Remote control listening on http://127.0.0.1:");
    assert!(!daemon.log().contains(&token), "the log has the token");
}

#[test]
fn a_remote_client_does_what_a_local_one_does() {
    let daemon = Daemon::start();
    let repo = daemon.repo("r");
    let wire = daemon.wire();
    let remote = enable(&wire);
    let mut phone = remote.socket();
    assert_eq!(status(&wire)["connectedClients"], 1);
    assert_eq!(remote_check(&wire)["message"], format!("{} (1 client)", remote.url));

    let attached = phone.request("attach", json!({"path": repo.path()}));
    let session = attached["session"]["id"].as_str().expect("an id").to_owned();
    let followed = phone.request("follow", json!({"sessionId": session}));
    assert_eq!(followed["sessionId"], session.as_str());
    let voice =
        phone.request("voice_connect", json!({"clientVersion": "1", "clientType": "remote-ios"}));
    assert_eq!((&voice["connected"], &voice["sessionId"]), (&json!(true), &json!(session)));
    let started = wire.request("voice_start", json!({}));
    assert_eq!(started["started"], true, "{started}");
    assert_eq!(phone.event("voice_start")["data"]["sessionId"], session.as_str());
    phone.request("voice_state", json!({"state": "listening"}));
    let shown = phone.event("extension_ui_request");
    assert_eq!(shown["data"]["message"], "voice:listening");

    let call = json!({
        "callId": "c", "toolName": "bash", "arguments": "{\"command\":\"echo over the air\"}",
        "sessionId": session,
    });
    let result = phone.request("voice_tool_call", call);
    assert_eq!(result, json!({"callId": "c", "result": "over the air\n\n[Exit code: 0]"}));
    assert_eq!(phone.event("tool_execution_start")["data"]["toolName"], "bash");
    assert_eq!(phone.event("tool_execution_end")["data"]["isError"], false);

    // Special messages of the WebSocket: `ping`, and several lines in one message.
    phone.socket.send(Message::text("ping")).expect("send");
    match phone.socket.read().expect("an answer") {
        Message::Text(text) => assert_eq!(text.as_str(), "pong"),
        other => panic!("{other:?}"),
    }
    phone.socket.send(Message::text("{}\n{}")).expect("send");
    let refused = phone.next();
    assert_eq!(refused["id"], "unknown");
    assert!(refused["error"].as_str().expect("an error").starts_with("Failed to parse request: "));

    // The owner has disconnected, which ends its ownership.
    let watcher = daemon.wire();
    watcher.request("follow", json!({"sessionId": session}));
    drop(phone);
    let idle = watcher.events_until("extension_ui_request");
    assert_eq!(idle.last().expect("an event")["data"]["message"], "voice:idle");
    wait_for("the client to be forgotten", || {
        (status(&wire)["connectedClients"] == 0).then_some(())
    });
}

#[test]
fn a_single_request_may_speak_for_a_websocket_and_for_nobody_else() {
    let daemon = Daemon::start();
    let repo = daemon.repo("r");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let remote = enable(&wire);
    let (ok, pong) = remote.rpc(None, "ping", json!({}));
    assert_eq!((ok, &pong["ok"], &pong["id"]), (StatusCode::OK, &json!(true), &json!("h")));
    for (method, error) in [
        ("follow", "Streaming client is not connected"),
        ("voice_connect", "Voice client is not connected"),
        ("remote_configure", "Remote configuration is only available to local clients"),
        ("nonsense", "Unknown method: nonsense"),
    ] {
        let (code, reply) = remote.rpc(None, method, json!({"clientVersion": "1"}));
        assert_eq!((code, &reply["error"]), (StatusCode::BAD_REQUEST, &json!(error)), "{method}");
    }
    let mut phone = remote.socket();
    let id = phone.id.clone();
    let (_, followed) = remote.rpc(Some(&id), "follow", json!({"sessionId": session.id}));
    assert_eq!(followed["ok"], true, "{followed}");
    session.bash("echo seen");
    assert_eq!(phone.event("tool_execution_end")["sessionId"], session.id.as_str());
    let refused = phone.reply("remote_configure", json!({"enabled": false}));
    assert_eq!(refused["error"], "Remote configuration is only available to local clients");
    let state = phone.request("remote_status", json!({"includeToken": true}));
    assert!(state.get("authToken").is_none(), "{state}");
    for client in [None, Some(id.as_str())] {
        let (_, state) = remote.rpc(client, "remote_status", json!({"includeToken": true}));
        assert!(state["data"].get("authToken").is_none(), "{state}");
    }
    drop(phone);
    wait_for("the client's name to be forgotten", || {
        let (code, reply) = remote.rpc(Some(&id), "ping", json!({}));
        (code == StatusCode::BAD_REQUEST && reply["error"] == "Unknown client id").then_some(())
    });
}

/// Checks that the daemon reads the parameters of an action before it refuses the action, and answers methods that read.
#[track_caller]
fn check_what_is_read(phone: &mut Socket, session: &str) {
    let wrong = phone.reply("quack.sandbox", json!({"action": "set", "rules": 5}));
    let text = wrong["error"].as_str().unwrap();
    assert!(text.starts_with("Invalid parameters for quack.sandbox: invalid type"), "{wrong}");
    for (method, params) in [
        ("quack.sandbox", json!({"sessionId": session})),
        ("quack.gc", json!({"dryRun": true})),
        ("quack.ps", json!({})),
        ("quack.daemon", json!({})),
        ("quack.metrics", json!({})),
    ] {
        phone.request(method, params);
    }
}

#[test]
fn the_token_neither_stops_the_daemon_nor_widens_what_sessions_may_do() {
    let daemon = Daemon::start();
    let repo = daemon.repo("r");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let remote = enable(&wire);
    let mut phone = remote.socket();
    let id = phone.id.clone();
    wire.request("attach", json!({"path": repo.path(), "safeMode": true}));
    let set = json!({"sessionId": session.id, "action": "set", "profile": "full-access"});
    let allow = json!({"sessionId": session.id, "action": "allow", "rules": ["a.example"]});
    let revoke = json!({"sessionId": session.id, "action": "revoke", "rules": ["a.example"]});
    let policy = "Only local clients may change what a session may do";
    let claims = "Only local clients may name themselves and claim sessions";
    let choices = "Only local clients may choose the agent and its model";
    let unsafe_again = json!({"path": repo.path(), "safeMode": false});
    for (method, params, error) in [
        ("quack.shutdown", json!({}), "Only local clients may stop the daemon"),
        ("quack.config", json!({}), "Only local clients are shown the configuration"),
        ("quack.hello", json!({"name": "x"}), claims),
        ("quack.claim", json!({"path": repo.path()}), claims),
        ("quack.sandbox", set, policy),
        ("quack.sandbox", allow, policy),
        ("quack.sandbox", revoke, policy),
        ("attach", unsafe_again, policy),
        ("quack.gc", json!({"olderThanS": 1}), "Only local clients may delete files"),
        ("quack.session_new", json!({"engine": "pi"}), choices),
        ("quack.session_new", json!({"model": "a/b"}), choices),
        ("quack.session_set", json!({"engine": "pi"}), choices),
        (
            "quack.keys",
            json!({"variables": {"OPENAI_API_KEY": "k"}}),
            "Only local clients may give keys to the daemon",
        ),
        ("quack.forward", json!({"port": 3000}), "Only local clients may forward ports"),
        ("quack.forward", json!({"port": 1, "link": true}), "Only local clients may forward ports"),
        (
            "remote_configure",
            json!({"rotateToken": true, "includeToken": true}),
            "Remote configuration is only available to local clients",
        ),
        (
            "quack.restart",
            json!({"force": true}),
            "Only local clients may restart a daemon that no service manager starts again",
        ),
    ] {
        assert_eq!(phone.reply(method, params.clone())["error"], error);
        for client in [None, Some(id.as_str())] {
            let (code, reply) = remote.rpc(client, method, params.clone());
            let expected = (StatusCode::BAD_REQUEST, &json!(false), &json!(error));
            assert_eq!((code, &reply["ok"], &reply["error"]), expected, "{method}");
        }
    }
    check_what_is_read(&mut phone, &session.id);
    // A remote client sees the known hosts, and no program is run for it.
    let presets = json!({"action": "presets", "rules": ["registries"]});
    assert_eq!(phone.request("quack.sandbox", presets)["presets"][0]["hosts"], json!([]));
    let tree = wire.request("quack.tree", json!({}));
    let children = tree["children"].as_array().unwrap();
    let asker = children.iter().find(|child| child["spec"]["name"] == "tool-registries").unwrap();
    assert_eq!(asker["errand"]["runs"], 0, "{asker}");
    let state = wire.request("get_state", json!({"sessionId": session.id}));
    assert_eq!(state["safeMode"], true, "{state}");
    let policy = wire.request("quack.sandbox", json!({"sessionId": session.id}));
    assert_eq!(policy["policy"]["profile"], "read-only", "{policy}");
    assert_eq!(phone.request("attach", json!({"path": repo.path()}))["session"]["id"], session.id);
}

#[test]
fn the_token_makes_no_far_session() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let remote = enable(&wire);
    let mut phone = remote.socket();
    let error = phone.reply("quack.session_new", json!({"path": "ssh:build1:/w"}))["error"].take();
    assert!(error.as_str().unwrap().starts_with("Only local clients"), "{error}");
    assert_eq!(wire.request("workspaces", json!({}))["workspaces"], json!([]));
}

#[test]
fn the_token_makes_no_isolated_session_and_applies_nothing() {
    let daemon = Daemon::start();
    let repo = daemon.repo("r");
    let wire = daemon.wire();
    let params = json!({"path": repo.path(), "isolated": true});
    let made = wire.request("quack.session_new", params.clone());
    let id = made["session"]["id"].as_str().unwrap();
    let arguments = json!({"path": "new.txt", "content": "new"});
    let call = json!({"sessionId": id, "tool": "write_file", "arguments": arguments});
    wire.request("quack.tool", call);
    let remote = enable(&wire);
    let mut phone = remote.socket();
    let error = "Only local clients may make isolated sessions, apply, refresh or discard their changes, and restore files";
    assert_eq!(phone.reply("quack.session_new", params)["error"], error);
    for action in ["apply", "undo", "refresh", "discard"] {
        let params = json!({"sessionId": id, "action": action});
        assert_eq!(phone.reply("quack.isolated", params)["error"], error, "{action}");
    }
    let seen = phone.request("quack.isolated", json!({"sessionId": id, "action": "diff"}));
    assert_eq!(seen["files"][0]["path"], "new.txt", "{seen}");
    assert!(!repo.path().join("new.txt").exists());
}

#[test]
fn the_token_only_watches_terminals_unless_the_configuration_allows_more() {
    for is_allowed in [false, true] {
        let daemon = Daemon::start_with(format!("[remote]\nterminals = {is_allowed}\n"));
        let wire = daemon.wire();
        let remote = enable(&wire);
        let mut phone = remote.socket();
        let session = wire.attach(daemon.repo("a").path());
        let terminal = crate::terminals::run_script(&session, "echo up; exec cat");
        let one = json!({"sessionId": session.id, "terminalId": terminal});
        let attached = phone.request("quack.term_attach", one.clone());
        assert_eq!(attached["readOnly"], !is_allowed);
        phone.event("term_redraw");
        // A request without a connection gets no events.
        assert_eq!(remote.rpc(None, "quack.term_attach", one.clone()).1["ok"], false);

        let typed = json!({"sessionId": session.id, "terminalId": terminal, "bytes": "aGkN"});
        for (method, params) in [
            ("quack.term_input", typed),
            ("quack.run", json!({"sessionId": session.id, "argv": ["true"]})),
            ("quack.term_detach", json!({"sessionId": session.id, "all": true})),
            ("quack.term_kill", one),
        ] {
            let reply = phone.reply(method, params);
            assert_eq!(reply["ok"], is_allowed, "{method}: {reply}");
        }
        wait_for("the programs", || {
            (session.worker().get("jobs").is_none() == is_allowed).then_some(())
        });
    }
}

#[test]
fn the_token_leaves_no_restriction_by_another_session() {
    let daemon = Daemon::start();
    let repo = daemon.repo("r");
    let wire = daemon.wire();
    let made = wire.request("quack.session_new", json!({"path": repo.path(), "safeMode": true}));
    let safe = &made["session"]["id"];
    let hidden = json!({"action": "set", "sessionId": safe, "hidden": [repo.path().join("keys")]});
    wire.request("quack.sandbox", hidden);
    let remote = enable(&wire);
    let mut phone = remote.socket();
    let write = |phone: &mut Socket, session: &Value| {
        let arguments = json!({"command": "touch w && echo WROTE"});
        let params = json!({"tool": "bash", "sessionId": session, "arguments": arguments});
        phone.request("quack.tool", params)["text"].to_string()
    };
    for params in [json!({"path": repo.path()}), json!({"path": repo.path(), "safeMode": false})] {
        let new = phone.request("quack.session_new", params)["session"]["id"].take();
        let shown = wire.request("quack.sandbox", json!({"sessionId": new}));
        assert_eq!(shown["policy"]["hidden"][0], json!(repo.path().join("keys")), "{shown}");
        assert!(!write(&mut phone, &new).contains("WROTE"));
        // Nor by deleting the restricted session and opening the next one.
        let refused = phone.reply("quack.session_delete", json!({"sessionId": new, "force": true}));
        assert_eq!(refused["error"], "Only local clients may change what a session may do");
    }
    assert!(!repo.path().join("w").exists());
    let free = wire.request("quack.session_new", json!({"path": repo.path()}));
    let id = &free["session"]["id"];
    phone.request("quack.session_delete", json!({"sessionId": id, "force": true}));
}

#[test]
fn wrong_tokens_do_not_slow_the_daemon() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    enable(&wire);
    // Without the file the daemon has only the hash, so each check of a token runs the slow scrypt.
    std::fs::remove_file(daemon.app().join("remote-auth-token")).expect("remove the token");
    drop(wire);
    let mut daemon = daemon;
    daemon.quack(&["stop"]).ok();
    daemon.wait();
    daemon.boot();
    let wire = daemon.wire();
    let remote = Remote::at(&listening(&wire), http());
    std::thread::scope(|scope| {
        let knocking: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let codes = (0..100).map(|_| remote.get("/status", "wrong").status().as_u16());
                    codes.collect::<Vec<_>>()
                })
            })
            .collect();
        while !knocking.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            wire.request("ping", json!({}));
        }
        for codes in knocking {
            let codes = codes.join().expect("a thread");
            assert!(codes.iter().all(|code| [401, 429].contains(code)), "{codes:?}");
        }
    });
    // The right token is accepted again after the block.
    wait_within(Duration::from_secs(90), "being heard", || {
        (remote.get("/status", TOKEN).status() == 200).then_some(())
    });
}

#[test]
fn a_configuration_of_upstream_is_used_as_it_is() {
    let mut daemon = Daemon::absent();
    std::fs::create_dir(daemon.app()).expect("a directory");
    let upstream = json!({
        "version": 2, "logToStderr": false, "later": {"a": 1},
        "remote": {
            "enabled": true, "host": "0.0.0.0", "port": 0, "authTokenHash": HASH, "authTokenSalt": SALT,
            "authTokenUpdatedAt": "2026-01-02T03:04:05.678Z", "tlsCertPath": null, "tlsKeyPath": null,
        },
    });
    std::fs::write(daemon.app().join("config.json"), upstream.to_string()).expect("write");
    daemon.boot();
    let wire = daemon.wire();
    let state = listening(&wire);
    assert_eq!(state["host"], "0.0.0.0");
    let port = &state["port"];
    let mut remote = Remote::at(&state, http());
    remote.url = format!("http://127.0.0.1:{port}");
    assert_eq!(remote.get("/status", "wrong").status(), 401);
    let answer = remote.get("/status", TOKEN);
    assert_eq!(answer.status(), 200);
    let told: Value = serde_json::from_str(&answer.text().expect("a body")).expect("JSON");
    assert_eq!(told["wsUrl"], format!("ws://127.0.0.1:{port}/ws"), "the client's own address");
    // Only the token's hash is known.
    assert!(
        wire.request("remote_status", json!({"includeToken": true})).get("authToken").is_none()
    );
    let check = remote_check(&wire);
    assert_eq!(check["status"], "warn");
    assert!(check["message"].as_str().expect("a text").ends_with("not encrypted"), "{check}");
    wire.request("remote_configure", json!({"enabled": false}));
    let mut expected = upstream;
    expected["remote"]["enabled"] = json!(false);
    assert_eq!(config(&daemon), expected);
}

#[test]
fn a_damaged_configuration_is_set_aside_and_told() {
    let mut daemon = Daemon::absent();
    std::fs::create_dir(daemon.app()).expect("a directory");
    let path = daemon.app().join("config.json");
    std::fs::write(&path, "{\"remote\":{\"authTokenHash\":\"precious").expect("write");
    daemon.boot();
    let wire = daemon.wire();
    let state = status(&wire);
    assert_eq!((&state["enabled"], &state["listening"]), (&json!(false), &json!(false)));
    assert!(
        state["lastError"].as_str().expect("a reason").contains("config.json.corrupt-1"),
        "{state}"
    );
    let kept = std::fs::read_to_string(daemon.app().join("config.json.corrupt-1")).expect("kept");
    assert!(kept.ends_with("precious"));
    assert_eq!(remote_check(&wire)["status"], "warn");
    enable(&wire);
    assert_eq!(remote_check(&wire)["status"], "ok");
}

#[test]
fn what_cannot_be_is_told_and_takes_nothing_down() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let blocker = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = blocker.local_addr().expect("an address").port();
    // No listener is at risk, so the configuration is saved, and the status contains the reason for
    // the failure.
    let data = wire
        .request("remote_configure", json!({"enabled": true, "port": taken, "authToken": TOKEN}));
    assert_eq!(data["status"]["listening"], false);
    let why = data["status"]["lastError"].as_str().expect("a reason").to_owned();
    assert!(why.starts_with(&format!("cannot listen on 127.0.0.1:{taken}: ")), "{why}");
    assert_eq!(remote_check(&wire)["status"], "warn");
    let data = wire.request("remote_configure", json!({"tlsCertPath": "/c", "port": 0}));
    assert_eq!(data["status"]["lastError"], "Remote TLS requires both cert and key paths");
    drop(blocker);
    wire.request("remote_configure", json!({"tlsCertPath": null}));
    let remote = Remote::at(&status(&wire), http());
    let before = config(&daemon);
    let mut phone = remote.socket();
    for change in [
        json!({"tlsCertPath": "/nowhere/c"}),
        json!({"tlsCertPath": "/nowhere/c", "tlsKeyPath": "/nowhere/k"}),
        json!({"host": "192.0.2.1"}),
        json!({"authToken": "a\nb"}),
    ] {
        let error = wire.refused("remote_configure", change.clone());
        assert!(error.starts_with("Remote "), "{change}: {error}");
        assert_eq!(remote.get("/status", TOKEN).status(), 200);
        phone.request("ping", json!({}));
    }
    assert_eq!(config(&daemon), before);
    assert_eq!(status(&wire)["lastError"], Value::Null);
}

#[test]
fn a_new_token_sends_away_who_has_the_old_one_and_nobody_else() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let remote = enable(&wire);
    let mut phone = remote.socket();
    // This change does not affect the connection.
    wire.request("remote_configure", json!({"enabled": true, "includeToken": true}));
    phone.request("ping", json!({}));
    wire.request("remote_configure", json!({"rotateToken": true}));
    let closed = loop {
        match phone.socket.read() {
            Ok(Message::Close(frame)) => break frame.expect("a reason"),
            Ok(_) => {}
            Err(error) => panic!("closed without a word: {error}"),
        }
    };
    assert_eq!(closed.reason.as_str(), "the token was changed");
    assert_eq!(remote.get("/status", TOKEN).status(), 401);
    wire.request("ping", json!({}));
}

#[test]
fn tls_is_served_with_the_certificate_that_was_given() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let made =
        rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let (cert, key) = (daemon.home().join("c.pem"), daemon.home().join("k.pem"));
    std::fs::write(&cert, made.cert.pem()).expect("write");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("write");
    let data = wire.request(
        "remote_configure",
        json!({
            "enabled": true, "port": 0, "host": "localhost", "authToken": TOKEN,
            "tlsCertPath": cert, "tlsKeyPath": key,
        }),
    );
    let state = &data["status"];
    assert_eq!(
        (&state["protocol"], &state["tlsEnabled"]),
        (&json!("https"), &json!(true)),
        "{state}"
    );
    http();
    let trust = reqwest::Certificate::from_pem(made.cert.pem().as_bytes()).expect("a certificate");
    let client = Client::builder().no_proxy().tls_certs_only([trust]).build().expect("a client");
    let remote = Remote::at(state, client);
    assert!(remote.url.starts_with("https://localhost:"), "{}", remote.url);
    assert_eq!(remote.get("/status", TOKEN).status(), 200);
    let (code, pong) = remote.rpc(None, "ping", json!({}));
    assert_eq!((code, &pong["ok"]), (StatusCode::OK, &json!(true)));
}

#[test]
fn clients_that_come_and_go_leave_nothing_behind() {
    let daemon = Daemon::start();
    let repo = daemon.repo("r");
    let wire = daemon.wire();
    let session = wire.attach(repo.path()).id;
    let remote = enable(&wire);
    let descriptors = || {
        let path = format!("/proc/{}/fd", daemon.pid());
        std::fs::read_dir(path).expect("descriptors").count()
    };
    drop(remote.socket());
    wait_for("the first one to be gone", || (status(&wire)["connectedClients"] == 0).then_some(()));
    // The daemon's own background processes may hold a few more later: a leak would be 150.
    let before = descriptors();
    for n in 0..150 {
        let mut phone = remote.socket();
        let ask = |phone: &mut Socket, method: &str, params: Value| {
            let request = json!({"id": 1, "method": method, "params": params});
            phone.socket.send(Message::text(request.to_string())).expect("send");
        };
        // Clients disconnect before, during or after a reply, with or without a close frame.
        match n % 4 {
            0 => ask(&mut phone, "follow", json!({"sessionId": session})),
            1 => drop(phone.request("voice_connect", json!({"clientVersion": "1"}))),
            2 => drop(phone.socket.close(None)),
            _ => {}
        }
    }
    wait_for("all of them to be forgotten", || {
        let ping = wire.request("ping", json!({}));
        let is_quiet = status(&wire)["connectedClients"] == 0 && ping["clients"] == 1;
        (is_quiet && descriptors() <= before + 16).then_some(())
    });
}

#[test]
fn a_daemon_that_stops_says_so_to_remote_clients() {
    let mut daemon = Daemon::start();
    let wire = daemon.wire();
    let remote = enable(&wire);
    let mut phone = remote.socket();
    wire.request("quack.shutdown", json!({}));
    let reason = loop {
        match phone.socket.read() {
            Ok(Message::Close(frame)) => break frame.expect("a reason").reason,
            Ok(_) => {}
            Err(error) => panic!("closed without a word: {error}"),
        }
    };
    assert_eq!(reason.as_str(), "remote control was closed");
    drop(phone);
    wait_for("the port to be closed", || TcpStream::connect(("127.0.0.1", remote.port)).err());
    assert_eq!(daemon.wait(), Some(0));
}

#[test]
fn the_verbs_turn_it_on_pair_a_phone_and_turn_it_off() {
    let daemon = Daemon::start();
    let status = daemon.quack(&["remote", "--json"]).json();
    assert_eq!((&status["enabled"], &status["port"]), (&json!(false), &json!(43111)));
    let text = daemon.quack(&["remote", "status"]).ok();
    assert!(text.contains("disabled") && text.contains("Auth Token     missing"), "{text}");
    assert_eq!(daemon.quack(&["remote", "token"]).code(), Some(1));
    assert_eq!(daemon.quack(&["remote", "enable", "--port", "70000"]).code(), Some(2));
    assert_eq!(daemon.quack(&["remote", "enable", "--token", " "]).code(), Some(2));

    let enabled = daemon.quack(&["remote", "enable", "--port", "0", "--json"]);
    let document = enabled.json();
    let token = document["authToken"].as_str().expect("a token").to_owned();
    assert_eq!(document["status"]["listening"], true);
    assert_eq!(daemon.quack(&["remote", "token"]).ok().trim(), token);
    let rotated = daemon.quack(&["remote", "token", "--rotate"]).ok();
    assert_ne!(rotated.trim(), token);
    let own = daemon.quack(&["remote", "token", "--value", TOKEN, "--json"]).json();
    assert_eq!(own["authToken"], TOKEN);

    let pair = ["remote", "pair", "--public-url", "mac.tail1.ts.net", "--json"];
    let pair = daemon.quack(&pair).json();
    assert_eq!(pair["publicUrl"], "https://mac.tail1.ts.net");
    let link = pair["pairLink"].as_str().expect("a link");
    let expected =
        format!("rubberduck://pair?host=https%3A%2F%2Fmac.tail1.ts.net&token={TOKEN}&displayName=");
    assert!(link.starts_with(&expected), "{link}");
    let local = daemon.quack(&["remote", "pair"]);
    assert_eq!((local.code(), local.stdout().as_str()), (Some(1), ""));
    assert!(local.stderr().contains("--public-url"), "{local:?}");

    // A missing certificate file must not stop the listener.
    let broken = daemon.quack(&["remote", "enable", "--tls-cert", "c.pem", "--tls-key", "k.pem"]);
    assert_eq!(broken.code(), Some(1));
    assert!(broken.stderr().contains("cannot read /"), "{broken:?}");
    let off = daemon.quack(&["remote", "disable", "--json"]).json();
    assert_eq!(off["status"]["enabled"], false);
    assert_eq!(off["status"]["tokenConfigured"], true);
    assert!(off.get("authToken").is_none());
    assert!(!daemon.log().contains(TOKEN), "the log has the token");
}
