//! The real Pi, with a scripted model server on this machine. `QUACKD_TEST_PI` contains the paths
//! of the Pis to test, separated by `:`. Without it the test prints a note and passes.

use super::{find, names, say, text};
use crate::harness::{Daemon, FakeModel, Process, is_alive, wait_for};
use serde_json::{Value, json};

fn script() -> Value {
    json!({
        "models": ["fake-1"],
        "rules": [{
            "if": {"last_user": "use a tool", "last_role": "user"},
            "reply": {"tool_calls": [{"name": "bash", "arguments": {"command": "echo begun; sleep 1000"}}]}
        }],
        "replies": [{"text": "Hello from the fake model."}]
    })
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
    let server = FakeModel::start(&agent, &script());
    let model = json!({"id": "fake-1", "name": "Fake", "reasoning": false, "input": ["text"],
        "cost": {"input": 1, "output": 1, "cacheRead": 0, "cacheWrite": 0},
        "contextWindow": 100_000, "maxTokens": 1000});
    let models = json!({"providers": {"fake": {"baseUrl": server.v1(),
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
