//! The real Pi, with a scripted model server on this machine. `QUACKD_TEST_PI` contains the paths
//! of the Pis to test, separated by `:`. Without it the test prints a note and passes.

use super::{find, names, say, text};
use crate::harness::{Daemon, Process, is_alive, wait_for};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/fake_openai.py");

/// The server, killed at the end of the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[expect(clippy::disallowed_methods, reason = "a test starts programs as a shell would")]
fn serve(dir: &Path) -> (Server, String) {
    let script = json!({
        "models": ["fake-1"],
        "rules": [{
            "if": {"last_user": "use a tool", "last_role": "user"},
            "reply": {"tool_calls": [{"name": "bash", "arguments": {"command": "echo begun; sleep 1000"}}]}
        }],
        "replies": [{"text": "Hello from the fake model."}]
    });
    std::fs::write(dir.join("script.json"), script.to_string()).unwrap();
    let port_file = dir.join("port");
    let mut server = Command::new(SERVER);
    server.arg("--script").arg(dir.join("script.json")).arg("--port-file").arg(&port_file);
    let server = server.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("python3");
    let server = Server(server);
    let port = wait_for("the model server to listen", || {
        let port = std::fs::read_to_string(&port_file).ok()?.trim().to_owned();
        (!port.is_empty()).then_some(port)
    });
    (server, port)
}

#[test]
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn the_real_pi_does_what_the_stand_in_does() {
    let Ok(pis) = std::env::var("QUACKD_TEST_PI") else {
        eprintln!("skipped: QUACKD_TEST_PI names no Pi");
        return;
    };
    for pi in pis.split(':') {
        converse(pi);
    }
}

fn converse(pi: &str) {
    let mut daemon = Daemon::absent();
    let repo = daemon.repo("repo");
    let agent = daemon.home().join("agent");
    std::fs::create_dir(&agent).unwrap();
    let (_server, port) = serve(&agent);
    let model = json!({"id": "fake-1", "name": "Fake", "reasoning": false, "input": ["text"],
        "cost": {"input": 1, "output": 1, "cacheRead": 0, "cacheWrite": 0},
        "contextWindow": 100_000, "maxTokens": 1000});
    let models = json!({"providers": {"fake": {"baseUrl": format!("http://127.0.0.1:{port}/v1"),
        "api": "openai-completions", "apiKey": "sk-x", "models": [model]}}});
    std::fs::write(agent.join("models.json"), models.to_string()).unwrap();
    let args = [
        format!("RUBBER_DUCK_PI_BINARY={pi}"),
        format!("PI_CODING_AGENT_DIR={}", agent.display()),
        "RUBBER_DUCK_PI_MODEL=fake/fake-1".to_owned(),
        "PI_OFFLINE=1".to_owned(),
        env!("CARGO_BIN_EXE_quack").to_owned(),
        "daemon".to_owned(),
    ];
    daemon.boot_with("/usr/bin/env", &args.each_ref().map(String::as_str));
    let wire = daemon.wire();
    wire.attach(repo.path());
    wire.request("follow", json!({}));
    say(&wire, "hello");
    let events = wire.events_until("agent_end");
    assert_eq!(text(&events), "Hello from the fake model.", "{pi}");
    let update = &find(&events, "message_update")["data"];
    assert_eq!(update["message"], json!({"role": "assistant"}), "{pi}");
    let state = wire.request("get_state", json!({}));
    assert!(state["piState"]["sessionFile"].is_string(), "{state}");

    say(&wire, "use a tool");
    wire.events_until("tool_execution_start");
    wire.request("abort", json!({}));
    let events = wire.events_until("agent_end");
    assert!(!names(&events).contains(&"extension_error"), "{pi}: {:?}", names(&events));

    say(&wire, "use a tool");
    wire.events_until("tool_execution_start");
    let ps: Value = wire.request("quack.ps", json!({}));
    let pid = i32::try_from(ps["workers"][0]["pi"]["pid"].as_i64().unwrap()).unwrap();
    let tools = wait_for("the tool to run", || {
        let tools = crate::harness::descendants_of(pid);
        (!tools.is_empty()).then_some(tools)
    });
    super::kill(&Process::find(pid).unwrap());
    let events = wire.events_until("agent_end");
    assert_eq!(find(&events, "extension_error")["data"]["signal"], 9, "{pi}");
    wait_for("the tools of a Pi that was killed to end", || {
        tools.iter().all(|tool| !is_alive(tool)).then_some(())
    });
    say(&wire, "hello");
    assert_eq!(text(&wire.events_until("agent_end")), "Hello from the fake model.", "{pi}");
}
