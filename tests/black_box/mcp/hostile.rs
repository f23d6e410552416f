//! Input that no agent should send: each line gets an answer or is ignored, and the connection goes on.

use super::{Agent, calls_running, command, text};
use crate::harness::{Daemon, wait_for};
use serde_json::{Value, json};

#[track_caller]
fn assert_alive(agent: &mut Agent) {
    assert_eq!(text(&agent.call("read_file", json!({"path": "README.md"}))), "# A repository\n");
}

#[test]
fn lines_that_are_no_requests_are_answered_or_ignored() {
    let daemon = Daemon::start();
    let repo = daemon.repo("project");
    let mut agent = Agent::spawn(command(&daemon, repo.path(), &[]));
    // Before the handshake too.
    agent.send(
        &json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}),
    );
    agent.send(&json!({"jsonrpc": "2.0", "id": 9, "result": {}}));
    agent.initialize(json!({}));
    for (line, code) in [
        ("hello", -32700),
        ("{\"jsonrpc\":\"2.0\",", -32700),
        ("\u{feff}{}", -32700),
        ("[]", -32600),
        ("[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]", -32600),
        ("7", -32600),
        ("{\"jsonrpc\":\"1.0\",\"id\":7,\"method\":\"ping\"}", -32600),
        (&"[".repeat(100_000), -32700),
    ] {
        agent.write(format!("{line}\n").as_bytes());
        let refused = agent.message(|message| message["error"].is_object());
        assert_eq!(refused["error"]["code"], code, "{line:.50}: {refused}");
    }
    agent.write(b"\n \r\n");
    for (method, params, code) in [
        ("tools/call", json!({"name": 5}), -32602),
        ("tools/call", json!({"name": "bash", "arguments": [1]}), -32602),
        ("tools/call", json!({}), -32602),
        ("tools/call", json!({"name": "rm_rf", "arguments": {}}), -32602),
        ("tools/call", json!({"name": "quack_audit", "arguments": {}}), -32602),
        ("tools/dance", json!({}), -32601),
        ("prompts/get", json!({"name": "x"}), -32601),
        ("tasks/get", json!({"taskId": "x"}), -32021),
    ] {
        let refused = agent.request(method, params.clone());
        assert_eq!(refused["error"]["code"], code, "{method} {params}: {refused}");
    }
    // Half of a character, as JavaScript writes it.
    let half = r#"{"jsonrpc":"2.0","id":"h","method":"tools/call","params":{"name":"read_file","arguments":{"path":"a\ud83d"}}}"#;
    agent.write(format!("{half}\n").as_bytes());
    let answer = agent.message(|message| message["id"] == "h");
    assert!(text(&answer["result"]).contains("not found at 'a\u{fffd}'"), "{answer}");
    agent.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "nobody"}}));
    agent.send(&json!({"jsonrpc": "2.0", "id": "nobody", "result": {}}));
    agent.send(&json!({"jsonrpc": "2.0", "method": "notifications/made_up", "params": {"x": 1}}));
    assert_alive(&mut agent);
    // The last line has no end.
    agent.write(b"{\"jsonrpc\":\"2.0\",\"id\":99,\"meth");
    agent.leave();
}

#[test]
fn batches_are_answered_in_one_line_in_their_revision_and_refused_in_others() {
    let daemon = Daemon::start();
    let repo = daemon.repo("project");
    let ping = |id: u64| json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
    let read = |id: u64, path: &str| {
        let params = json!({"name": "read_file", "arguments": {"path": path}});
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
    };
    let many: Vec<Value> = (100..200).map(ping).collect();
    for revision in ["2024-11-05", "2025-06-18", "2025-11-25"] {
        let mut agent = Agent::spawn(command(&daemon, repo.path(), &[]));
        agent.initialize_in(revision, json!({}));
        agent.send(&json!([ping(50)]));
        let refused = agent.message(|message| message["error"].is_object());
        assert_eq!(refused["error"]["code"], -32600, "{revision}: {refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains("2025-03-26"), "{refused}");
        assert_alive(&mut agent);
    }
    let mut agent = Agent::spawn(command(&daemon, repo.path(), &[]));
    let hello = agent.initialize_in("2025-03-26", json!({}));
    assert_eq!(hello["protocolVersion"], "2025-03-26");
    let initialize = json!({"jsonrpc": "2.0", "id": 55, "method": "initialize", "params":
        {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}});
    let batch = json!([
        read(51, "README.md"),
        {"jsonrpc": "2.0", "method": "notifications/made_up"},
        ping(52),
        7,
        read(53, "missing"),
        {"jsonrpc": "2.0", "id": 54, "method": "tools/dance"},
        ping(52),
        initialize,
    ]);
    agent.write(format!(" {batch}\n").as_bytes());
    let answers = agent.message(Value::is_array);
    let answers = answers.as_array().unwrap();
    let of = |id: u64| answers.iter().filter(|it| it["id"] == id).collect::<Vec<_>>();
    assert_eq!(text(&of(51)[0]["result"]), "# A repository\n");
    assert_eq!(of(52).len(), 2, "one has the id of the other: {answers:?}");
    assert_eq!(of(53)[0]["result"]["isError"], true);
    assert_eq!(of(54)[0]["error"]["code"], -32601);
    assert_eq!(of(55)[0]["error"]["code"], -32600);
    let nameless = answers.iter().filter(|it| it["id"].is_null());
    assert_eq!(nameless.map(|it| &it["error"]["code"]).collect::<Vec<_>>(), [-32600]);
    assert_eq!(answers.len(), 7);
    for (batch, code) in [(json!([]), -32600), (json!(many), -32600), (json!([[ping(1)]]), -32600)]
    {
        agent.send(&batch);
        let refused = agent.message(|it| it["error"].is_object() || it[0]["error"].is_object());
        let error = if refused.is_array() { &refused[0]["error"] } else { &refused["error"] };
        assert_eq!(error["code"], code, "{refused}");
    }
    // Only notifications: no answer. A cancelled request has none either.
    agent.send(&json!([{"jsonrpc": "2.0", "method": "notifications/made_up"}]));
    let sleep = json!({"name": "bash", "arguments": {"command": "sleep 1000"}});
    let sleep = json!({"jsonrpc": "2.0", "id": 60, "method": "tools/call", "params": sleep});
    agent.send(&json!([sleep, ping(61)]));
    wait_for("the command", || (calls_running(&daemon) == 1).then_some(()));
    agent.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 60}}));
    let answers = agent.message(Value::is_array);
    assert_eq!((&answers[0]["id"], answers.as_array().unwrap().len()), (&json!(61), 1));
    assert_alive(&mut agent);
    agent.leave();
}

#[test]
fn arguments_of_the_wrong_type_are_the_tools_own_errors() {
    let daemon = Daemon::start();
    let repo = daemon.repo("project");
    let mut agent = Agent::start(&daemon, &repo, &[]);
    for (tool, arguments, part) in [
        ("bash", json!({"command": 5}), "Missing required parameter 'command'"),
        ("read_file", json!({"path": "README.md", "limit": "x"}), "must be a whole number"),
        ("read_file", json!({"file": "README.md", "nothing": 1}), "Unknown parameter 'nothing'"),
        (
            "write_file",
            json!({"path": "a", "content": "x".repeat(3 << 20)}),
            "Tool arguments are too long",
        ),
        ("bash", json!({"command": "x".repeat(7 << 20)}), "Tool arguments are too long"),
    ] {
        let refused = agent.call(tool, arguments);
        assert_eq!(refused["isError"], true, "{tool}");
        assert!(
            text(&refused).starts_with("Error: ") && text(&refused).contains(part),
            "{refused}"
        );
    }
    assert_alive(&mut agent);
    agent.leave();
}

#[test]
fn a_line_without_end_costs_no_memory_and_one_error() {
    let daemon = Daemon::start();
    let repo = daemon.repo("project");
    let mut agent = Agent::start(&daemon, &repo, &[]);
    let chunk = vec![b'x'; 1 << 20];
    for _ in 0..100 {
        agent.write(&chunk);
    }
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", agent.child.id())).expect("status");
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).expect("a line");
    let peak: u64 =
        peak.split_whitespace().nth(1).and_then(|kb| kb.parse().ok()).expect("a number");
    assert!(peak < 64 * 1024, "{peak} KiB");
    agent.write(b"\n");
    let refused = agent.message(|message| message["error"].is_object());
    assert_eq!(refused["error"]["code"], -32600, "{refused}");
    assert_alive(&mut agent);
    agent.leave();
}

#[test]
fn an_id_in_use_and_too_many_requests_are_refused() {
    let daemon = Daemon::start();
    let repo = daemon.repo("project");
    let mut agent = Agent::start(&daemon, &repo, &[]);
    let sleep = json!({"name": "bash", "arguments": {"command": "sleep 60"}});
    let first = agent.begin("tools/call", sleep.clone());
    wait_for("the call", || (calls_running(&daemon) == 1).then_some(()));
    agent.send(&json!({"jsonrpc": "2.0", "id": first, "method": "ping"}));
    let refused = agent.answer(first);
    assert_eq!(refused["error"]["message"], "the id is in use");
    for _ in 0..300 {
        agent.begin("tools/call", sleep.clone());
    }
    let refused = agent.message(|message| message["error"].is_object());
    assert_eq!(refused["error"]["message"], "too many requests are in flight");
    // Cancellations are read nevertheless, and make room.
    for id in first..=agent.next {
        agent.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    }
    wait_for("no call", || (calls_running(&daemon) == 0).then_some(()));
    agent.early.clear();
    assert_alive(&mut agent);
    agent.leave();
}

#[test]
fn a_thousand_calls_over_one_connection_are_all_answered() {
    let daemon = Daemon::start();
    let repo = daemon.repo("project");
    let mut agent = Agent::start(&daemon, &repo, &[]);
    let mut answered = 0;
    for batch in 0..10 {
        let ids: Vec<u64> = (0..100)
            .map(|n| {
                let arguments = json!({"path": "README.md"});
                let (name, meta) = ("read_file", json!({"progressToken": batch * 100 + n}));
                agent.begin(
                    "tools/call",
                    json!({"name": name, "arguments": arguments, "_meta": meta}),
                )
            })
            .collect();
        for id in ids {
            let answer: Value = agent.answer(id);
            assert_eq!(text(&answer["result"]), "# A repository\n");
            answered += 1;
        }
    }
    assert_eq!(answered, 1000);
    agent.leave();
}

#[test]
fn an_agent_that_does_not_read_harms_nobody() {
    let daemon = Daemon::start();
    let repo = daemon.repo("project");
    let mut child = command(&daemon, repo.path(), &[]);
    let child = child.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = child.spawn().expect("start quack mcp");
    let mut input = child.stdin.take().expect("a pipe");
    let meta = super::current(json!({}), json!({}))["_meta"].clone();
    let writing = std::thread::spawn(move || {
        use std::io::Write;
        for id in 0..1000 {
            let arguments = json!({"command": "seq 1 20000"});
            let params = json!({"name": "bash", "arguments": arguments, "_meta": meta});
            let request =
                json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
            if writeln!(input, "{request}").is_err() {
                return;
            }
        }
    });
    let mut other = Agent::start(&daemon, &repo, &[]);
    for _ in 0..10 {
        assert_alive(&mut other);
    }
    other.leave();
    child.kill().expect("kill quack mcp");
    child.wait().expect("wait");
    writing.join().expect("the writer");
    wait_for("no call", || (calls_running(&daemon) == 0).then_some(()));
}
