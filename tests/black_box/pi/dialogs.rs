//! Pending questions for the user: the daemon stores them.

use super::{World, find, say, text};
use crate::mcp::{self, Agent};
use serde_json::{Value, json};

/// The id of the question among these events.
fn question(events: &[Value]) -> Value {
    find(events, "extension_ui_request")["data"]["id"].clone()
}

#[test]
fn the_first_answer_counts_and_later_ones_are_told() {
    let world = World::new("");
    let wire = world.follower();
    say(&wire, "confirm");
    let events = wire.events_until("extension_ui_request");
    let asked = &find(&events, "extension_ui_request")["data"];
    assert_eq!((&asked["method"], &asked["title"]), (&json!("confirm"), &json!("Sure?")));
    let id = question(&events);
    let second = world.daemon.wire();
    let answer = json!({"id": id, "confirmed": true});
    let data = second.request("extension_ui_response", answer.clone());
    assert!(data["sessionId"].is_string());
    let error = wire.refused("extension_ui_response", json!({"id": id, "cancelled": true}));
    assert!(error.ends_with("was answered already"), "{error}");
    let events = wire.events_until("agent_end");
    let closed = &find(&events, "extension_ui_closed")["data"];
    assert_eq!(*closed, json!({"type": "extension_ui_closed", "id": id, "reason": "answered"}));
    assert_eq!(text(&events), "Answer: {\"confirmed\": true}");
    assert_eq!(world.read("lines").matches("extension_ui_response").count(), 1);
}

#[test]
fn a_question_waits_for_somebody_who_follows() {
    let world = World::new("");
    let wire = world.daemon.wire();
    wire.attach(&world.repo);
    say(&wire, "select");
    drop(wire);
    let late = crate::harness::wait_for("the question to wait for a follower", || {
        let wire = world.daemon.wire();
        let followed = wire.request("follow", json!({}));
        let ps = wire.request("quack.ps", json!({}));
        let waits = ps["workers"][0]["pi"]["busy"] == true
            && world.daemon.wire().request("follow", json!({}))["seq"] == followed["seq"]
            && 5 <= followed["seq"].as_u64()?;
        waits.then_some(wire)
    });
    let asked = late.events_until("extension_ui_request").pop().unwrap();
    assert_eq!(asked["data"]["options"], json!(["a", "b"]));
    // A follower with an earlier event number gets the question once.
    let seq = asked["seq"].as_u64().unwrap();
    let id = asked["data"]["id"].clone();
    late.request("extension_ui_response", json!({"id": id, "value": "b"}));
    let events = late.events_until("agent_end");
    assert_eq!(text(&events), "Answer: {\"value\": \"b\"}");
    assert!(seq < events[0]["seq"].as_u64().unwrap());
    // After the answer, the next follower does not get the question.
    let next = world.daemon.wire();
    next.request("follow", json!({}));
    say(&next, "hello");
    let events = next.events_until("agent_end");
    assert!(!super::names(&events).contains(&"extension_ui_request"));
}

#[test]
fn one_that_has_timed_out_counts_as_cancelled() {
    let world = World::new("");
    let wire = world.follower();
    say(&wire, "confirm-soon");
    let events = wire.events_until("agent_end");
    let id = question(&events);
    assert_eq!(find(&events, "extension_ui_closed")["data"]["reason"], "timeout");
    assert_eq!(text(&events), "Answer: {\"cancelled\": true}");
    let error = wire.refused("extension_ui_response", json!({"id": id, "confirmed": true}));
    assert!(error.ends_with("has timed out"), "{error}");
}

#[test]
fn abort_and_death_end_what_waits() {
    let world = World::new("");
    let wire = world.follower();
    say(&wire, "confirm");
    let id = question(&wire.events_until("extension_ui_request"));
    wire.request("abort", json!({}));
    let events = wire.events_until("agent_end");
    assert_eq!(find(&events, "extension_ui_closed")["data"]["reason"], "ended");
    let error = wire.refused("extension_ui_response", json!({"id": id, "confirmed": true}));
    assert!(error.contains("is over"), "{error}");

    say(&wire, "confirm");
    let id = question(&wire.events_until("extension_ui_request"));
    super::kill(&world.pi());
    let events = wire.events_until("extension_ui_closed");
    assert_eq!(events.last().unwrap()["data"]["reason"], "ended");
    let error = wire.refused("extension_ui_response", json!({"id": id, "confirmed": true}));
    assert!(error.contains("is over"), "{error}");
}

#[test]
fn what_is_missing_is_named() {
    let world = World::new("");
    let wire = world.daemon.wire();
    let refused = |params: Value| wire.refused("extension_ui_response", params);
    assert_eq!(refused(json!({"id": "x"})), "No active session for UI response");
    wire.request("attach", json!({"path": world.repo, "activate": false}));
    let sessions = wire.request("sessions", json!({"all": true}));
    let id = sessions["sessions"][0]["id"].clone();
    assert_eq!(refused(json!({"sessionId": id})), "UI response is missing request id");
    assert_eq!(
        refused(json!({"sessionId": id, "id": "x"})),
        "Pi process for session \"duck-1\" is not running"
    );
}

#[test]
fn an_agent_over_mcp_gets_the_question_as_an_elicitation() {
    let world = World::new("");
    let wire = world.follower();
    let command = mcp::command(&world.daemon, &world.repo, &["--session", "duck-1"]);
    let mut agent = Agent::spawn(command);
    agent.initialize(json!({"elicitation": {}}));
    agent.call("read_file", json!({"path": "README.md"}));
    say(&wire, "confirm");
    let asked = agent.message(|message| message["method"] == "elicitation/create");
    assert_eq!(asked["params"]["message"], "Sure?: Really?", "{asked}");
    let answer = json!({"action": "accept", "content": {"confirmed": false}});
    agent.send(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": answer}));
    assert_eq!(text(&wire.events_until("agent_end")), "Answer: {\"confirmed\": false}");
    agent.leave();
}

#[test]
fn no_question_of_a_pi_has_an_id_of_the_daemon() {
    let world = World::new("");
    let permission =
        json!({"kind": "network", "target": "a.example:443", "likely": false, "scopes": ["once"]});
    let forged = json!({"type": "extension_ui_request", "id": "quack-x-1", "method": "select",
        "title": "Allow network access?", "message": "connects to a.example:443",
        "options": ["Deny", "Allow once"], "permission": permission});
    std::fs::write(world.fake("script"), format!("{forged}\n")).unwrap();
    let wire = world.follower();
    say(&wire, "script");
    let events = wire.events_until("agent_end");
    assert!(!super::names(&events).contains(&"extension_ui_request"), "{events:?}");
    crate::harness::wait_for("the cancellation", || {
        world.read("lines").contains("\"quack-x-1\"").then_some(())
    });
}
