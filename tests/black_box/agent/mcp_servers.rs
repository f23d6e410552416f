//! MCP servers: their tools reach the model, and they run in the session's sandbox and end with its worker.

use super::{World, all, only, say, text, turn};
use crate::harness::tier;
use crate::harness::{KillOnDrop, Process, Wire, is_alive, untested, wait_for};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::Stdio;

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/mcp_server.py");

/// Not one in the user's home, which a worker may not show.
const PYTHON: &str = "/usr/bin/python3";

const SECRET: &str = "hush-hush-value";

/// The configuration of a server `fake`, which is in the repository: a worker shows nothing of the test's own directory.
fn configured(world: &World) -> String {
    let path = world.repo.join("mcp_server.py");
    std::fs::copy(SERVER, &path).expect("copy the server");
    format!(
        "[mcp_servers.fake]\ncommand = \"{PYTHON}\"\nargs = [\"{}\"]\nenv = {{ TOKEN = \"{SECRET}\" }}\n",
        path.display()
    )
}

fn booted() -> World {
    booted_with("")
}

/// With a server that behaves as `mode` says.
fn booted_with(mode: &str) -> World {
    assert!(std::path::Path::new(PYTHON).exists(), "this test needs {PYTHON}");
    let mut world = World::absent(&json!({}));
    let settings = configured(&world).replace("\"]\n", &format!("\", \"{mode}\"]\n"));
    world.configure(&settings);
    world.boot(&[]);
    world
}

fn call(tool: &str, arguments: Value) -> Value {
    json!({"tool_calls": [{"name": format!("mcp__fake__{tool}"), "arguments": arguments}]})
}

/// Has the model call a tool. Returns the text of its result.
#[track_caller]
fn result(world: &World, wire: &Wire, tool: &str, arguments: Value) -> String {
    world.model.script(&json!({"replies": [call(tool, arguments), {"text": "done"}]}));
    let events = turn(wire, tool);
    let first = world.model.requests().pop().expect("a request")["body"]["messages"][0].to_string();
    assert!(!first.contains("MCP servers:"), "{first}");
    // Calls of the test itself may come before.
    text(&all(&events, "tool_execution_end").pop().expect("a result")["result"])
}

/// The processes of MCP servers.
fn servers(world: &World) -> Vec<Process> {
    let all = world.daemon.descendants().into_iter();
    all.filter(|process| process.name.starts_with("python3")).collect()
}

#[track_caller]
fn await_end(servers: &[Process]) {
    assert!(!servers.is_empty(), "no server ran");
    for server in servers {
        wait_for("the server to end", || (!is_alive(server)).then_some(()));
    }
}

/// Names of the tools that the last request offered.
fn offered(world: &World) -> Vec<String> {
    let last = world.model.requests().pop().expect("a request");
    let tools = last["body"]["tools"].as_array().cloned().unwrap_or_default();
    tools.iter().filter_map(|tool| tool["function"]["name"].as_str().map(str::to_owned)).collect()
}

#[test]
fn tools_are_offered_and_called_and_no_value_is_shown() {
    let world = booted();
    let wire = world.follower();
    assert_eq!(result(&world, &wire, "echo", json!({"text": "hi"})), "echo: hi");
    let half = result(&world, &wire, "echo", json!({"text": "one HALF two"}));
    assert_eq!(half, "echo: one \u{fffd} two");
    let names = offered(&world);
    assert!(names.iter().any(|name| name == "mcp__fake__echo"), "{names:?}");
    assert!(names.iter().any(|name| name == "bash"), "{names:?}");
    assert_eq!(servers(&world).len(), 1);
    // The server has its variable, and commands do not.
    assert_eq!(result(&world, &wire, "env", json!({"name": "TOKEN"})), SECRET);
    let session = wire.attach(&world.repo);
    assert!(!session.bash("env").contains(SECRET));
    for shown in [
        world.daemon.quack(&["config", "show"]).ok(),
        world.daemon.quack(&["doctor"]).stdout(),
        wire.request("quack.config", json!({})).to_string(),
        world.daemon.log(),
    ] {
        assert!(!shown.contains(SECRET), "{shown}");
    }
    let shown = world.daemon.quack(&["config", "show"]).ok();
    assert!(shown.contains("mcp_servers.fake.env = { TOKEN = \"(set)\" }"), "{shown}");
}

#[test]
fn a_server_with_odd_lists_gives_each_tool_once() {
    let world = booted_with("odd");
    let wire = world.follower();
    assert_eq!(result(&world, &wire, "echo", json!({"text": "hi"})), "echo: hi");
    let offered = offered(&world);
    let mut names: Vec<_> = offered.iter().filter(|name| name.starts_with("mcp__fake__")).collect();
    assert_eq!(names.len(), 8, "{names:?}");
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 8, "{names:?}");
}

/// Begin of the reason why a server without a program does not run. In the tier of macOS `sandbox-exec` starts, and fails.
fn not_started() -> &'static str {
    if tier::is_macos() { "it has ended; its last line on stderr: " } else { "cannot start it: " }
}

#[test]
fn a_server_that_does_not_start_costs_a_fact_and_not_the_turn() {
    let mut world = World::absent(&json!({"replies": [{"text": "fine"}]}));
    world.configure("[mcp_servers.gone]\ncommand = \"no-such-program\"\n");
    world.boot(&[]);
    let wire = world.follower();
    let events = turn(&wire, "hello");
    assert_eq!(text(super::answer(&events)), "fine");
    let request = world.model.requests().pop().unwrap()["body"].to_string();
    let expected = format!("MCP servers: gone: {}", not_started());
    assert!(request.contains(&expected) && request.contains("no-such-program"), "{request}");
}

#[test]
fn a_server_that_fails_is_named_to_the_user_with_the_reason_and_its_stderr() {
    let mut world = World::absent(&json!({"replies": [{"text": "fine"}]}));
    let broken = configured(&world).replace("\"]\n", "\", \"broken\"]\n");
    world.configure(&format!("{broken}[mcp_servers.gone]\ncommand = \"no-such-program\"\n"));
    world.boot(&[]);
    let wire = world.follower();
    let events = turn(&wire, "hello");
    assert_eq!(text(super::answer(&events)), "fine");
    let told = all(&events, "extension_error");
    let told: Vec<_> = told.iter().filter_map(|event| event["error"].as_str()).collect();
    let of = |name: &str| {
        let begin = format!("MCP server {name}: ");
        let mut lines = told.iter().filter_map(|line| line.strip_prefix(&*begin));
        lines.next().unwrap_or_else(|| panic!("{told:?}")).to_owned()
    };
    let (fake, gone) = (of("fake"), of("gone"));
    assert!(gone.starts_with(not_started()), "{gone}");
    assert!(fake.contains("its last line on stderr: cannot find its settings"), "{fake}");
    let (_, file) = fake.split_once("; stderr: ").unwrap_or_else(|| panic!("{fake}"));
    let kept = std::fs::read_to_string(file).expect("the end of its stderr");
    assert_eq!(kept, "connecting with [masked]\ncannot find its settings\n");
    let state = world.daemon.quack(&["state", "-C", &world.repo.display().to_string()]).ok();
    let doctor = world.daemon.quack(&["doctor"]).stdout();
    for shown in [&state, &doctor] {
        assert!(shown.contains(&format!("fake: {fake}")), "{shown}");
        assert!(shown.contains(&format!("gone: {}", not_started())), "{shown}");
    }
    // The next list replaces the problems.
    let servers = json!([{"name": "fake", "command": "no-such-program"}, {"name": "gone", "command": "no-such-program"}]);
    let session = wire.request("get_state", json!({}))["sessionId"].clone();
    wire.request("quack.session_set", json!({"sessionId": session, "mcpServers": servers}));
    let state = wire.request("get_state", json!({"sessionId": session}));
    assert_eq!(state["mcpProblems"], Value::Null, "{state}");
}

#[test]
fn a_crash_fails_its_call_and_the_next_call_works() {
    let world = booted();
    let wire = world.follower();
    let crashed = result(&world, &wire, "crash", json!({}));
    assert!(crashed.contains("it has ended; its last line on stderr: the reason"), "{crashed}");
    assert_eq!(result(&world, &wire, "echo", json!({"text": "again"})), "echo: again");
}

#[test]
fn an_abort_ends_the_call() {
    let world = booted();
    let wire = world.follower();
    world.model.script(&json!({"replies": [call("slow", json!({})), {"text": "done"}]}));
    say(&wire, "wait");
    wait_for("the call to arrive", || world.repo.join("slow-call").exists().then_some(()));
    wire.request("abort", json!({}));
    let events = wire.events_until("agent_settled");
    assert_eq!(only(&events, "tool_execution_end")["isError"], true);
    assert_eq!(result(&world, &wire, "echo", json!({"text": 1})), "echo: 1");
}

#[test]
fn a_server_is_confined_like_a_command() {
    let world = booted();
    let wire = world.follower();
    let session = wire.attach(&world.repo);
    let outside = world.daemon.home().join("outside");
    let path = outside.display().to_string();
    let probe = world.daemon.home().join("probe");
    session.bash(&format!("touch {}", probe.display()));
    if probe.exists() {
        return untested("nothing is confined here");
    }
    // The session's own /tmp may take the file.
    result(&world, &wire, "write", json!({"path": path}));
    assert!(!outside.exists());
    let written = result(&world, &wire, "write", json!({"path": "/usr/quackd-test"}));
    assert!(written.starts_with("failed: "), "{written}");
    assert_eq!(result(&world, &wire, "write", json!({"path": "inside"})), "done");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let reached = result(&world, &wire, "connect", json!({"host": "127.0.0.1", "port": port}));
    assert!(reached.starts_with("failed: "), "{reached}");
}

#[test]
fn a_read_only_session_runs_servers_that_cannot_write_and_safe_mode_runs_none() {
    let world = booted();
    let wire = world.follower();
    let session = wire.attach(&world.repo);
    world.daemon.quack(&["sandbox", "set", "read-only", "--session", "repo"]).ok();
    session.bash("touch probe");
    if world.repo.join("probe").exists() {
        return untested("nothing is confined here");
    }
    let written = result(&world, &wire, "write", json!({"path": "inside"}));
    assert!(written.starts_with("failed: "), "{written}");
    assert!(!world.repo.join("inside").exists());
    let safe = json!({"path": world.repo, "name": "safe", "safeMode": true, "activate": true});
    wire.request("quack.session_new", safe);
    let before = servers(&world).len();
    world.model.script(&json!({"replies": [{"text": "safe"}]}));
    let data = wire.request("say", json!({"message": "hi", "preferPi": true}));
    let session = data["sessionId"].clone();
    wire.request("follow", json!({"sessionId": session}));
    wait_for("an answer", || (world.model.count("completed") == 1).then_some(()));
    assert!(!offered(&world).iter().any(|name| name.starts_with("mcp__")));
    assert_eq!(servers(&world).len(), before);
}

#[test]
fn servers_end_with_their_worker_and_with_what_they_started() {
    let world = booted();
    let wire = world.follower();
    result(&world, &wire, "fork", json!({"seconds": "98765"}));
    let all_of = || {
        let all = world.daemon.descendants().into_iter();
        let is_one = |it: &Process| it.name.starts_with("python3") || it.name.starts_with("sleep");
        all.filter(is_one).collect::<Vec<_>>()
    };
    let before = all_of();
    assert_eq!(before.len(), 2, "{before:?}");
    // Another policy means another worker, which starts the server again at the next call.
    world.daemon.quack(&["sandbox", "set", "read-only", "--session", "repo"]).ok();
    assert_eq!(result(&world, &wire, "echo", json!({"text": 2})), "echo: 2");
    await_end(&before);
    let before = all_of();
    let session = wire.attach(&world.repo).id.clone();
    wire.request("quack.session_delete", json!({"sessionId": session, "force": true}));
    await_end(&before);
}

/// A server over HTTP on loopback. It ends with its stdin.
struct HttpServer {
    _child: KillOnDrop,
    url: String,
}

impl HttpServer {
    #[track_caller]
    fn start(world: &World) -> Self {
        const PROGRAM: &str =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/mcp_http_server.py");
        let mut command = world.daemon.program_for_tests(PYTHON);
        command.arg(PROGRAM).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("start the server");
        let mut port = String::new();
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        out.read_line(&mut port).expect("a port");
        Self { _child: child.into(), url: format!("http://127.0.0.1:{}", port.trim()) }
    }
}

#[test]
fn an_editor_gives_a_session_servers_over_http() {
    let mut world = World::absent(&json!({}));
    world.configure("[sandbox]\nnetwork = \"on\"\n");
    world.boot(&[]);
    let server = HttpServer::start(&world);
    for (kind, path) in [("http", "json"), ("http", "events"), ("sse", "sse")] {
        let mut editor = crate::mcp::Agent::spawn(world.daemon.command(&["acp"]));
        let init = json!({"protocolVersion": 1, "clientCapabilities": {}});
        let can = editor.request("initialize", init)["result"]["agentCapabilities"].take();
        assert_eq!(can["mcpCapabilities"], json!({"http": true, "sse": true}));
        let headers = json!([{"name": "X-Key", "value": SECRET}]);
        let web = json!({"type": kind, "name": "web", "url": format!("{}/{path}", server.url), "headers": headers});
        let new = editor.request("session/new", json!({"cwd": world.repo, "mcpServers": [web]}));
        let session = new["result"]["sessionId"].clone();
        let whoami = json!({"tool_calls": [{"name": "mcp__web__whoami", "arguments": {}}]});
        world.model.script(&json!({"replies": [whoami, {"text": "done"}]}));
        let prompt = json!({"sessionId": session, "prompt": [{"type": "text", "text": "go"}]});
        let done = editor.request("session/prompt", prompt);
        assert_eq!(done["result"]["stopReason"], "end_turn", "{kind} {path}: {done}");
        let last = world.model.requests().pop().expect("a request")["body"]["messages"].to_string();
        assert!(last.contains(&format!("{SECRET}\\nxxx")), "{kind} {path}: {last:.2000}");
        editor.leave();
    }
}

#[test]
fn a_client_gives_a_session_servers_which_replace_configured_ones_of_the_same_name() {
    let world = booted();
    let wire = world.follower();
    assert_eq!(result(&world, &wire, "env", json!({"name": "TOKEN"})), SECRET);
    let path = world.repo.join("mcp_server.py").display().to_string();
    let server = |name: &str, value: &str| {
        let env = json!([{"name": "TOKEN", "value": value}]);
        json!({"name": name, "command": PYTHON, "args": [path], "env": env})
    };
    let set = |servers: Value| wire.reply("quack.session_set", json!({"mcpServers": servers}));
    let reply = set(json!([server("fake", "of-the-client"), server("more", "x")]));
    assert_eq!(reply["ok"], true, "{reply}");
    assert!(!reply.to_string().contains("of-the-client"), "{reply}");
    assert_eq!(result(&world, &wire, "env", json!({"name": "TOKEN"})), "of-the-client");
    assert!(offered(&world).iter().any(|name| name == "mcp__more__echo"));
    for (refused, why) in [
        (json!([server("a b", "x")]), "Server 1 of mcpServers must have a name of 1 to 32"),
        (json!([server("a", "x"), server("a", "x")]), "Server 2 of mcpServers has the name"),
        (json!(vec![server("a", "x"); 17]), "mcpServers must have at most 16 servers"),
    ] {
        let reply = set(refused);
        assert!(reply["error"].as_str().unwrap().starts_with(why), "{reply}");
    }
    assert_eq!(set(json!([]))["ok"], true);
    assert_eq!(result(&world, &wire, "env", json!({"name": "TOKEN"})), SECRET);
    assert!(!offered(&world).iter().any(|name| name == "mcp__more__echo"));
}
