//! The page's way into the whole daemon: `quack open`, the code, the token, its rights, its revocation, and what other sites
//! get. `crates/remote` tests faulty peers, and tests/page drives the page in browsers.

use crate::approvals::{connect, with_hosts};
use crate::harness::{Daemon, Repo, Wire, wait_for};
use reqwest::blocking::{Client, Response};
use serde_json::{Value, json};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Message, WebSocket, client};

/// Remote control of a daemon, and links to its page.
struct Site<'a> {
    daemon: &'a Daemon,
    url: String,
    http: Client,
}

/// A page that is signed in.
struct SignedIn {
    token: String,
    id: String,
}

/// The WebSocket of a page.
struct Socket(WebSocket<TcpStream>);

impl<'a> Site<'a> {
    /// Turns remote control on, on a free port.
    fn new(daemon: &'a Daemon) -> Self {
        daemon.quack(&["remote", "enable", "--port", "0"]).ok();
        let url =
            daemon.quack(&["remote", "--json"]).json()["httpUrl"].as_str().unwrap().to_owned();
        // Another test may have installed the provider first.
        rustls::crypto::ring::default_provider().install_default().ok();
        let http = Client::builder().no_proxy().timeout(Duration::from_secs(60)).build().unwrap();
        Self { daemon, url, http }
    }

    /// Returns the code of a new link.
    #[track_caller]
    fn code(&self, options: &[&str]) -> String {
        let opened = self.daemon.quack(&[&["open", "--json"], options].concat()).json();
        let link = opened["link"].as_str().unwrap();
        let (url, code) = link.split_once("/#code=").unwrap();
        assert_eq!((url, code.len()), (opened["url"].as_str().unwrap(), 32));
        assert_eq!(opened["validMs"], 600_000);
        code.to_owned()
    }

    fn exchange(&self, code: &str, headers: &[(&str, &str)]) -> Response {
        let request = self.http.post(format!("{}/token", self.url));
        let request = request.body(json!({ "code": code }).to_string());
        let with = |request: reqwest::blocking::RequestBuilder, (name, value): &(&str, &str)| {
            request.header(*name, *value)
        };
        headers.iter().fold(request, with).send().unwrap()
    }

    #[track_caller]
    fn sign_in(&self, options: &[&str]) -> SignedIn {
        let reply =
            self.exchange(&self.code(options), &[("User-Agent", "Fox/1.0"), ("Origin", &self.url)]);
        assert_eq!(reply.status(), 200);
        let reply: Value = serde_json::from_str(&reply.text().unwrap()).unwrap();
        for right in ["approvals", "apply", "terminals"] {
            let is_given = options.contains(&format!("--{right}").as_str());
            assert_eq!(reply["rights"][right], is_given, "{reply}");
        }
        let text = |key: &str| reply[key].as_str().unwrap().to_owned();
        SignedIn { token: text("token"), id: text("id") }
    }

    fn status_of(&self, token: &str) -> u16 {
        let request = self.http.get(format!("{}/status", self.url)).bearer_auth(token);
        request.send().unwrap().status().as_u16()
    }

    #[track_caller]
    fn rpc(&self, token: &str, client: Option<&str>, method: &str) -> Value {
        let body = json!({"id": "h", "method": method, "params": {}}).to_string();
        let mut request = self.http.post(format!("{}/rpc", self.url)).bearer_auth(token).body(body);
        if let Some(client) = client {
            request = request.header("X-Rubber-Duck-Client-Id", client);
        }
        serde_json::from_str(&request.send().unwrap().text().unwrap()).unwrap()
    }

    /// Opens a WebSocket as a browser does, and sends the token.
    fn begin(&self, token: &str) -> Socket {
        let host = self.url.strip_prefix("http://").unwrap();
        let stream = TcpStream::connect(host).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut request = format!("ws://{host}/ws").into_client_request().unwrap();
        request.headers_mut().insert("Origin", self.url.parse().unwrap());
        let (mut socket, _) = client(request, stream).unwrap();
        socket.send(Message::text(json!({ "token": token }).to_string())).unwrap();
        Socket(socket)
    }

    /// Returns a WebSocket after its first event, and the data of the event.
    #[track_caller]
    fn socket(&self, token: &str) -> (Socket, Value) {
        let mut socket = self.begin(token);
        let mut ready = socket.next();
        assert_eq!(ready["event"], "remote_ready");
        (socket, ready["data"].take())
    }
}

impl Socket {
    #[track_caller]
    fn next(&mut self) -> Value {
        loop {
            match self.0.read().expect("a message") {
                Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                Message::Ping(_) => {}
                other => panic!("neither text nor a ping: {other:?}"),
            }
        }
    }

    #[track_caller]
    fn reply(&mut self, method: &str, params: Value) -> Value {
        let request = json!({"id": method, "method": method, "params": params});
        self.0.send(Message::text(request.to_string())).unwrap();
        loop {
            let message = self.next();
            if message["id"] == method {
                return message;
            }
        }
    }

    #[track_caller]
    fn event(&mut self, name: &str) -> Value {
        loop {
            let message = self.next();
            if message["event"] == name {
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

    #[track_caller]
    fn refused(&mut self, method: &str, params: Value) -> String {
        let reply = self.reply(method, params);
        assert_eq!(reply["ok"], false, "{method}: {reply}");
        reply["error"].as_str().unwrap().to_owned()
    }

    #[track_caller]
    fn closed(&mut self) -> CloseCode {
        loop {
            match self.0.read() {
                Ok(Message::Close(frame)) => return frame.expect("a reason").code,
                Ok(_) => {}
                Err(error) => panic!("closed without a word: {error}"),
            }
        }
    }
}

#[test]
fn a_link_signs_one_page_in_until_its_token_is_revoked() {
    let mut daemon = Daemon::start();
    let (page, other) = {
        let site = Site::new(&daemon);
        let code = site.code(&[]);
        assert_eq!(site.exchange(&code, &[]).status(), 200);
        assert_eq!(site.exchange(&code, &[]).status(), 401, "used");
        (site.sign_in(&["--apply", "--terminals"]), site.sign_in(&[]))
    };
    let listed = daemon.quack(&["remote", "tokens", "--json"]).json();
    assert_eq!(listed.as_array().unwrap().len(), 3, "{listed}");
    let rights = json!({"approvals": false, "apply": true, "terminals": true});
    assert_eq!((&listed[1]["id"], &listed[1]["rights"]), (&json!(page.id), &rights));
    assert_eq!(listed[1]["agent"], "Fox/1.0");
    let text = daemon.quack(&["remote", "tokens"]).ok();
    assert!(text.contains("apply,terminals") && text.contains("Fox/1.0"), "{text}");

    let file = daemon.app().join("page-tokens.json");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let file = std::fs::read_to_string(file).unwrap();
    assert!(!file.contains(&page.token) && !daemon.log().contains(&page.token));

    // The next daemon has the tokens, and no codes.
    daemon.quack(&["stop"]).ok();
    daemon.wait();
    daemon.boot();
    wait_for("it to listen", || {
        let state = daemon.quack(&["remote", "--json"]).json();
        (state["listening"] == true).then_some(())
    });
    let site = Site::new(&daemon);
    let (mut socket, ready) = site.socket(&page.token);
    assert_eq!(ready["rights"], rights);
    assert_eq!(ready["version"], env!("CARGO_PKG_VERSION"));
    let (mut kept, ready) = site.socket(&other.token);
    assert_eq!(ready["rights"]["apply"], false);
    socket.request("sessions", json!({}));

    assert_eq!(daemon.quack(&["remote", "tokens", "revoke", "nosuch"]).code(), Some(1));
    daemon.quack(&["remote", "tokens", "revoke", &page.id]).ok();
    assert_eq!(socket.closed(), CloseCode::Policy);
    assert_eq!(site.begin(&page.token).closed(), CloseCode::Policy);
    assert_eq!((site.status_of(&page.token), site.status_of(&other.token)), (401, 200));
    kept.request("ping", json!({}));
    let code = site.code(&[]);
    let revoked = daemon.quack(&["remote", "tokens", "revoke", "--all", "--json"]).json();
    assert_eq!(revoked["revoked"].as_array().unwrap().len(), 2, "{revoked}");
    assert_eq!(kept.closed(), CloseCode::Policy);
    assert_eq!(site.exchange(&code, &[]).status(), 401, "codes are revoked too");
}

#[test]
fn open_turns_remote_control_on_for_this_machine_only() {
    let daemon = Daemon::start();
    daemon.quack(&["remote", "enable", "--port", "0", "--host", "0.0.0.0"]).ok();
    let exposed = daemon.quack(&["open", "--json"]).json();
    assert!(exposed["url"].as_str().unwrap().starts_with("http://127.0.0.1:"), "{exposed}");
    daemon.quack(&["remote", "disable"]).ok();
    let opened = daemon.quack(&["open", "--print"]);
    assert!(opened.stdout().starts_with("http://127.0.0.1:"), "{opened:?}");
    assert!(opened.stderr().contains("this machine only"), "{opened:?}");
    let state = daemon.quack(&["remote", "--json"]).json();
    assert_eq!((&state["listening"], &state["host"]), (&json!(true), &json!("127.0.0.1")));
    // Without a desktop the link is printed.
    let printed = daemon.quack(&["open"]);
    assert!(printed.stdout().contains("/#code="), "{printed:?}");
    assert_eq!(daemon.quack(&["open", "--public-url", "a b"]).code(), Some(2));
}

/// A session with a terminal, and an isolated one with a new file.
fn sessions(daemon: &Daemon, wire: &Wire, repo: &Repo) -> (Value, Value) {
    let made = wire.request("quack.session_new", json!({"path": repo.path(), "isolated": true}));
    let isolated = made["session"]["id"].clone();
    let arguments = json!({"path": "new.txt", "content": "new"});
    let call = json!({"sessionId": isolated, "tool": "write_file", "arguments": arguments});
    wire.request("quack.tool", call);
    let session = wire.attach(daemon.repo("t").path());
    let terminal = crate::terminals::run_script(&session, "echo up; exec cat");
    (json!({"sessionId": session.id, "terminalId": terminal}), isolated)
}

#[test]
fn a_page_has_the_rights_of_its_link_whatever_the_configuration_allows() {
    let config = "[remote]\nterminals = true\napprovals = \"session\"\n";
    let daemon = Daemon::start_with(config);
    let wire = daemon.wire();
    let repo = daemon.repo("r");
    let (terminal, isolated) = sessions(&daemon, &wire, &repo);
    let site = Site::new(&daemon);
    let session = &terminal["sessionId"];
    let file = repo.path().join("new.txt");

    let (mut page, _) = site.socket(&site.sign_in(&[]).token);
    let lacks = |right: &str| format!("This page does not have the right `{right}`");
    for action in ["apply", "undo", "discard", "restore"] {
        let params = json!({"sessionId": isolated, "action": action});
        let error = page.refused("quack.isolated", params);
        assert!(error.starts_with(&lacks("apply")), "{action}: {error}");
    }
    page.request("quack.isolated", json!({"sessionId": isolated, "action": "diff"}));
    assert!(!file.exists());
    assert_eq!(page.request("quack.term_attach", terminal.clone())["readOnly"], true);
    let run = json!({"sessionId": session, "argv": ["true"]});
    assert!(page.refused("quack.run", run.clone()).starts_with(&lacks("terminals")));
    let watch = json!({"watch": true});
    assert!(page.refused("quack.approvals", watch.clone()).starts_with(&lacks("approvals")));
    let answer = json!({"id": "x", "decision": "allow"});
    assert!(page.refused("quack.answer", answer.clone()).starts_with(&lacks("approvals")));
    page.request("quack.approvals", json!({}));

    let all = site.sign_in(&["--approvals", "--apply", "--terminals"]);
    let (mut page, _) = site.socket(&all.token);
    page.request("quack.isolated", json!({"sessionId": isolated, "action": "apply"}));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
    page.request("quack.isolated", json!({"sessionId": isolated, "action": "undo"}));
    assert!(!file.exists());
    assert_eq!(page.request("quack.term_attach", terminal.clone())["readOnly"], false);
    page.request("quack.term_kill", terminal.clone());
    page.request("quack.run", run);
    page.request("quack.approvals", watch);
    assert!(page.refused("quack.answer", answer).starts_with("No question"));
    check_refused(&mut page, session, &isolated);
}

/// Checks what no page may do.
#[track_caller]
fn check_refused(page: &mut Socket, session: &Value, isolated: &Value) {
    let sandbox =
        |action: &str| json!({"sessionId": session, "action": action, "rules": ["a.example"]});
    let agent = |command: &str| json!({"sessionId": session, "command": {"type": command}});
    for (method, params) in [
        ("quack.page_code", json!({"apply": true})),
        ("quack.page_tokens", json!({})),
        ("quack.page_tokens", json!({"all": true})),
        ("remote_configure", json!({"rotateToken": true, "includeToken": true})),
        ("quack.shutdown", json!({})),
        ("quack.config", json!({})),
        ("quack.keys", json!({"variables": {}})),
        ("quack.claim", json!({"path": "/"})),
        ("quack.session_set", json!({"engine": "pi"})),
        ("quack.sandbox", sandbox("set")),
        ("quack.sandbox", sandbox("allow")),
        ("quack.sandbox", sandbox("revoke")),
        ("quack.forward", json!({"port": 3000})),
        ("quack.gc", json!({"olderThanS": 1})),
        ("quack.agent", agent("compact")),
        ("quack.agent", agent("bash")),
        ("quack.isolated", json!({"sessionId": isolated, "action": "refresh"})),
    ] {
        let error = page.refused(method, params);
        let is_local = error.starts_with("Only local clients") || error.contains("local clients");
        assert!(is_local, "{method}: {error}");
    }
    let state = page.request("remote_status", json!({"includeToken": true}));
    assert!(state.get("authToken").is_none(), "{state}");
    for command in ["steer", "get_messages", "get_state"] {
        let error = page.reply("quack.agent", agent(command))["error"].to_string();
        assert!(!error.contains("Only local clients"), "{command}: {error}");
    }
}

#[test]
fn a_request_speaks_only_for_a_websocket_with_the_same_token() {
    let daemon = Daemon::start();
    let site = Site::new(&daemon);
    let main = daemon.quack(&["remote", "token"]).ok().trim().to_owned();
    let (page, strong) = (site.sign_in(&[]), site.sign_in(&["--apply"]));
    let tokens = [&main, &page.token, &strong.token];
    let open: Vec<_> = tokens.iter().map(|token| site.socket(token)).collect();
    for (n, token) in tokens.iter().enumerate() {
        for (m, (_, ready)) in open.iter().enumerate() {
            let reply = site.rpc(token, ready["clientId"].as_str(), "ping");
            assert_eq!(reply["ok"] == true, n == m, "{n} {m}: {reply}");
        }
        assert_eq!(site.rpc(token, None, "ping")["ok"], true);
    }
    // A new token of remote control does not concern pages.
    daemon.quack(&["remote", "token", "--rotate"]).ok();
    assert_eq!(tokens.map(|token| site.status_of(token)), [401, 200, 200]);
}

#[test]
fn another_site_in_the_same_browser_gets_nothing() {
    let daemon = Daemon::start();
    let site = Site::new(&daemon);
    let code = site.code(&[]);
    let host = site.url.strip_prefix("http://").unwrap();
    let named = "duck.example:9";
    for (host, origin) in [
        (host, "https://evil.example"),
        (host, "null"),
        (host, "http://127.0.0.1:1"),
        ("evil.example", "http://evil.example"),
        (named, "http://duck.example:9"),
    ] {
        // More often than an address may send wrong codes.
        for _ in 0..12 {
            let reply = site.exchange("wrong", &[("Host", host), ("Origin", origin)]);
            assert_eq!(reply.status(), 403, "{host} {origin}");
        }
        let reply = site.exchange(&code, &[("Host", host), ("Origin", origin)]);
        assert_eq!(reply.status(), 403, "{host} {origin}");
    }
    // The name is known once a link was made for it, and only the code of a link opens.
    site.code(&["--public-url", "http://duck.example:9"]);
    let headers = [("Host", named), ("Origin", "http://duck.example:9")];
    assert_eq!(site.exchange("wrong", &headers).status(), 401);
    assert_eq!(site.exchange(&code, &headers).status(), 200);
}

#[test]
fn wrong_codes_block_like_wrong_tokens_and_keep_out_nobody_who_has_a_code() {
    let daemon = Daemon::start();
    let site = Site::new(&daemon);
    let code = site.code(&[]);
    let codes: Vec<u16> = (0..11).map(|_| site.exchange("wrong", &[]).status().as_u16()).collect();
    assert_eq!(codes, [&[401; 10][..], &[429]].concat());
    let main = daemon.quack(&["remote", "token"]).ok().trim().to_owned();
    assert_eq!(site.status_of(&main), 429, "during the block");
    let page = site.exchange(&code, &[]);
    assert_eq!(page.status(), 200);
    let page: Value = serde_json::from_str(&page.text().unwrap()).unwrap();
    site.socket(page["token"].as_str().unwrap());
}

#[test]
fn a_page_signs_itself_out_and_stays_signed_in_if_that_cannot_be_saved() {
    let daemon = Daemon::start();
    let site = Site::new(&daemon);
    let (page, other) = (site.sign_in(&[]), site.sign_in(&[]));
    let sign_out = |token: &str| {
        let request = site.http.delete(format!("{}/token", site.url)).bearer_auth(token);
        request.send().unwrap().status().as_u16()
    };
    let main = daemon.quack(&["remote", "token"]).ok().trim().to_owned();
    assert_eq!((sign_out("wrong"), sign_out(&main)), (401, 403));
    let (mut socket, _) = site.socket(&page.token);
    assert_eq!(sign_out(&page.token), 204);
    assert_eq!(socket.closed(), CloseCode::Policy);
    assert_eq!((site.status_of(&page.token), site.status_of(&other.token)), (401, 200));

    // Nothing can replace a directory that is not empty.
    let file = daemon.app().join("page-tokens.json");
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir_all(file.join("in")).unwrap();
    assert_eq!(sign_out(&other.token), 503);
    assert_eq!(daemon.quack(&["remote", "tokens", "revoke", "--all"]).code(), Some(1));
    assert_eq!(site.exchange(&site.code(&[]), &[]).status(), 503);
    assert_eq!(site.status_of(&other.token), 200);
    let listed = daemon.quack(&["remote", "tokens", "--json"]).json();
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["id"]), (1, &json!(other.id)));
    std::fs::remove_dir_all(&file).unwrap();
    assert_eq!((sign_out(&other.token), site.status_of(&other.token)), (204, 401));
}

/// Checks that pages with the right take back what an answer has allowed, and nothing else.
#[track_caller]
fn check_revokes(site: &Site, page: &mut Socket, session: &crate::harness::Session) {
    let id = &session.id;
    session.wire.request(
        "quack.sandbox",
        json!({"sessionId": id, "action": "allow", "rules": ["kept.example"]}),
    );
    let revoke = |rules: Value| json!({"sessionId": id, "action": "revoke", "rules": rules});
    let (mut other, _) = site.socket(&site.sign_in(&[]).token);
    let error = other.refused("quack.sandbox", revoke(json!(["g1"])));
    assert!(error.starts_with("This page does not have the right `approvals`"), "{error}");
    for rules in [json!(["kept.example"]), json!(["g1", "g99"]), json!(["!a.example"])] {
        let error = page.refused("quack.sandbox", revoke(rules));
        assert!(error.starts_with("Only local clients"), "{error}");
    }
    let left = page.request("quack.sandbox", revoke(json!(["g1"])))["grants"].take();
    let left: Vec<_> = left.as_array().unwrap().iter().map(|it| it["target"].clone()).collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(left[0].as_str().unwrap().starts_with("kept.example"), "{left:?}");
}

#[test]
fn a_page_answers_a_question_for_once_and_for_the_session_and_not_for_longer() {
    with_hosts(|daemon, session| {
        let site = Site::new(daemon);
        let signed_in = site.sign_in(&["--approvals"]);
        let (mut page, _) = site.socket(&signed_in.token);
        page.request("quack.approvals", json!({"watch": true}));
        let call = session.begin("bash", json!({"command": connect("a.example:443")}));
        let asked = page.event("extension_ui_request")["data"].take();
        let answer = |scope: &str| json!({"id": asked["id"], "decision": "allow", "scope": scope});
        for scope in ["workspace", "always"] {
            let error = page.refused("quack.answer", answer(scope));
            let is_refused = error.starts_with("A page may answer") || error.contains("not offer");
            assert!(is_refused, "{scope}: {error}");
        }
        let answered = page.request("quack.answer", answer("session"));
        assert_eq!(
            (&answered["scope"], &answered["target"]),
            (&json!("session"), &json!("a.example:443"))
        );
        call.text();
        check_revokes(&site, &mut page, session);
        let recent = session.wire.request("quack.approvals", json!({}))["recent"][0].take();
        assert_eq!(recent["by"], format!("the page {}", signed_in.id));
    });
}
