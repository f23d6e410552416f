//! The session file: compatible with Pi, one writer, and never damaged further.

use super::{World, answer, command, end_agent, entries, refusal, state, stored, text, turn};
use crate::harness::{Process, Wire, wait_for};
use rustix::process::{Resource, Rlimit, prlimit};
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::Write;

fn echo() -> World {
    World::new(&json!({"on_exhausted": "echo"}))
}

/// Runs a turn. Returns the path of the session file.
#[track_caller]
fn begin(wire: &Wire) -> String {
    turn(wire, "first");
    state(wire)["sessionFile"].as_str().unwrap().to_owned()
}

#[track_caller]
fn append(path: &str, text: &str) {
    let mut file = OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

#[test]
fn a_session_file_has_the_form_of_pis() {
    let world = echo();
    let wire = world.follower();
    let path = begin(&wire);
    command(&wire, json!({"type": "set_session_name", "name": "named"}));
    turn(&wire, "second");
    let entries = entries(&Value::from(path));
    let header = &entries[0];
    assert_eq!((&header["type"], &header["version"]), (&"session".into(), &3.into()));
    assert_eq!(header["cwd"], world.repo.to_str().unwrap());
    let kinds: Vec<_> = entries[1..].iter().map(|entry| entry["type"].as_str().unwrap()).collect();
    let expected = [
        "model_change",
        "thinking_level_change",
        "message",
        "message",
        "session_info",
        "message",
        "message",
    ];
    assert_eq!(kinds, expected);
    let mut parent = Value::Null;
    for entry in &entries[1..] {
        let id = entry["id"].as_str().unwrap();
        assert!(id.len() == 8 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{entry}");
        assert_eq!(entry["parentId"], parent, "{entry}");
        assert!(entry["timestamp"].as_str().unwrap().ends_with('Z'), "{entry}");
        parent = entry["id"].clone();
    }
    let answer = &entries[4]["message"];
    for name in ["role", "content", "api", "provider", "model", "usage", "stopReason", "timestamp"]
    {
        assert!(answer.get(name).is_some(), "{name} of {answer}");
    }
}

#[test]
fn a_torn_line_does_not_spoil_the_next_entry() {
    let world = echo();
    let wire = world.follower();
    let path = begin(&wire);
    end_agent(&world, &wire);
    append(&path, r#"{"type":"message","id":"0000"#);
    turn(&wire, "second");
    end_agent(&world, &wire);
    turn(&wire, "third");
    let sent = world.model.requests().pop().unwrap()["body"]["messages"].take();
    let sent: Vec<_> =
        sent.as_array().unwrap().iter().skip(1).map(|it| it["role"].clone()).collect();
    assert_eq!(sent, ["user", "assistant", "user", "assistant", "user"], "nothing is lost");
    let text = std::fs::read_to_string(&path).unwrap();
    let torn: Vec<_> =
        text.lines().filter(|line| serde_json::from_str::<Value>(line).is_err()).collect();
    assert_eq!(torn, [r#"{"type":"message","id":"0000"#]);
}

#[test]
fn a_file_that_is_no_session_file_is_refused_and_stays_as_it_is() {
    let world = echo();
    let wire = world.follower();
    let path = begin(&wire);
    end_agent(&world, &wire);
    std::fs::write(&path, "precious notes\nof the user\n").unwrap();
    let reply = wire.reply("say", json!({"message": "second", "preferPi": true}));
    assert_eq!(reply["ok"], false, "{reply}");
    assert!(!reply["error"].as_str().unwrap().is_empty(), "{reply}");
    // Pi 0.55 truncates it.
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious notes\nof the user\n");
    assert_eq!(world.model.count("requests"), 1);
}

#[test]
fn a_session_file_has_one_writer() {
    let world = echo();
    let wire = world.follower();
    let path = begin(&wire);
    let file = OpenOptions::new().append(true).open(&path).unwrap();
    file.try_lock().expect_err("the agent holds the lock");
    end_agent(&world, &wire);
    wait_for("the lock to be free", || file.try_lock().ok());
    let reply = wire.reply("say", json!({"message": "second", "preferPi": true}));
    assert_eq!(reply["ok"], false, "{reply}");
    let error = reply["error"].as_str().unwrap();
    assert!(error.starts_with("The session file is in use by another program"), "{error}");
    file.unlock().unwrap();
    assert_eq!(text(answer(&turn(&wire, "third"))), "echo: third");
}

#[test]
fn a_session_file_that_cannot_grow_costs_neither_the_agent_nor_the_turn() {
    let world = echo();
    let wire = world.follower();
    begin(&wire);
    let agent = world.agent_process();
    let limit = |bytes: Option<u64>| {
        // Set only the soft limit, so that it can be raised again.
        let pid = rustix::process::Pid::from_raw(agent.pid);
        prlimit(pid, Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
    };
    limit(Some(10));
    // Pi 0.55 crashes, and 1.5.2 ends its turn without `agent_end`.
    let events = turn(&wire, "second");
    assert_eq!(text(answer(&events)), "echo: second");
    limit(None);
    assert_eq!(text(answer(&turn(&wire, "third"))), "echo: third");
    assert!(Process::find(agent.pid).is_some_and(|now| now.started == agent.started));
    world.daemon.wait_for_log("cannot write the session file");
}

#[test]
fn the_prompt_is_in_the_file_before_the_model_answers() {
    let world =
        World::new(&json!({"replies": [{"text": "x", "hang_after": 0, "hang_ms": 600_000}]}));
    let wire = world.follower();
    super::say(&wire, "do not lose me");
    wait_for("the request to arrive", || (world.model.count("requests") == 1).then_some(()));
    // Pi 0.55 writes no file before the first answer ends.
    let path = state(&wire)["sessionFile"].take();
    assert_eq!(stored(&path), ["user"]);
    assert!(std::fs::read_to_string(path.as_str().unwrap()).unwrap().contains("do not lose me"));
    wire.request("abort", json!({}));
}

#[test]
fn a_fork_may_do_no_more_than_the_session_that_it_continues() {
    let world = echo();
    let wire = world.follower();
    begin(&wire);
    let keys = world.repo.join("keys");
    std::fs::create_dir(&keys).unwrap();
    std::fs::write(keys.join("k"), "TOPSECRET").unwrap();
    wire.request(
        "quack.sandbox",
        json!({"action": "set", "profile": "read-only", "hidden": [keys], "webSearch": "off"}),
    );
    let deny = json!({"action": "allow", "rules": ["!evil.example.com"]});
    wire.request("quack.sandbox", deny);
    let forked = wire.request("quack.fork", json!({}));
    let note = forked["note"].as_str().unwrap();
    assert!(note.contains("read-only") && note.contains("hidden paths: 1"), "{note}");
    let cloned = wire.request("quack.fork", json!({"sessionId": forked["sessionId"]}));
    let continued = json!({"path": world.repo, "restrictionsOf": forked["sessionId"]});
    let continued = wire.request("quack.session_new", continued);
    let beside = json!({"path": world.repo, "restrictionsOf": "*"});
    let beside = wire.request("quack.session_new", beside);
    for session in [
        &forked["sessionId"],
        &cloned["sessionId"],
        &continued["session"]["id"],
        &beside["session"]["id"],
    ] {
        let shown = wire.request("quack.sandbox", json!({"sessionId": session}));
        assert_eq!(shown["policy"]["profile"], "read-only", "{shown}");
        assert_eq!(shown["policy"]["hidden"], json!([keys]), "{shown}");
        assert_eq!(shown["policy"]["webSearch"], "off", "{shown}");
        assert_eq!(shown["grants"][0]["decision"], "deny", "{shown}");
        let command = json!({"command": "cat keys/k; touch z && echo WROTE"});
        let params = json!({"tool": "bash", "sessionId": session, "arguments": command});
        let text = wire.request("quack.tool", params)["text"].to_string();
        assert!(!text.contains("TOPSECRET") && !text.contains("WROTE"), "{text}");
    }
    // A new session of the user continues nothing.
    let free = wire.request("quack.session_new", json!({"path": world.repo}));
    let shown = wire.request("quack.sandbox", json!({"sessionId": free["session"]["id"]}));
    assert_eq!(shown["policy"]["profile"], "workspace-write", "{shown}");
}

#[test]
fn a_fork_has_the_conversation_before_the_message_and_leaves_the_other_session_alone() {
    let world = echo();
    let wire = world.follower();
    let path = begin(&wire);
    turn(&wire, "second");
    let points = command(&wire, json!({"type": "get_fork_messages"}))["messages"].take();
    assert_eq!(points[1]["text"], "second");
    let before = std::fs::read(&path).unwrap();
    let forked = wire.request("quack.fork", json!({"entryId": points[1]["entryId"]}));
    assert_eq!(forked["text"], "second");
    assert_eq!(stored(&forked["sessionFile"]), ["user", "assistant stop"]);
    assert_eq!(entries(&forked["sessionFile"])[0]["parentSession"], path.as_str());
    let session = &forked["sessionId"];
    wire.request("follow", json!({"sessionId": session}));
    wire.request("say", json!({"message": "other", "sessionId": session, "preferPi": true}));
    let events = loop {
        let events = wire.events_until("agent_settled");
        if events.iter().any(|event| event["sessionId"] == *session) {
            break events;
        }
    };
    assert_eq!(text(answer(&events)), "echo: other");
    assert_eq!(stored(&forked["sessionFile"]).len(), 4);
    assert_eq!(std::fs::read(&path).unwrap(), before);
    let error = refusal(&wire, json!({"type": "clone"}));
    assert!(error.contains("quack fork"), "{error}");
}

#[test]
fn a_session_file_of_pi_is_continued() {
    let recording =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/session-files/pi-1.5.2.jsonl");
    let recording = std::fs::read_to_string(recording).unwrap();
    let file = recording.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let file = file.into_iter().find(|line| line["dir"] == "file").unwrap();
    let lines = file["data"]["lines"].as_array().unwrap();
    let recorded: String = lines.iter().map(|line| format!("{line}\n")).collect();

    let world = echo();
    let wire = world.follower();
    let path = begin(&wire);
    end_agent(&world, &wire);
    std::fs::write(&path, &recorded).unwrap();
    let events = turn(&wire, "third");
    assert_eq!(text(answer(&events)), "echo: third");
    let sent = world.model.requests().pop().unwrap()["body"]["messages"].to_string();
    for part in ["remember me", "echo: remember me", "second", "third"] {
        assert!(sent.contains(part), "{part} in {sent}");
    }
    assert!(std::fs::read_to_string(&path).unwrap().starts_with(&recorded));
}
