//! Prompts while a turn runs, and the other commands of Pi's protocol.

use super::answers::{ANSWER, BEGIN, END};
use super::{World, all, answers, assert_order, command, refusal, say, state, text, turn};
use serde_json::{Value, json};

/// A world whose first turn runs two commands that wait for the gate `go`.
#[track_caller]
pub(super) fn gated() -> World {
    let mut world = World::absent(&json!({}));
    let calls = ["one", "two"].map(|word| {
        let command = world.daemon.gated("go", &format!("echo {word}"));
        json!({"name": "bash", "arguments": {"command": command}})
    });
    world.model.script(&json!({"replies": [{"tool_calls": calls}], "on_exhausted": "echo"}));
    world.boot(&[]);
    world
}

#[test]
fn steering_skips_no_tool_call_and_follow_ups_come_last() {
    let world = gated();
    let wire = world.follower();
    say(&wire, "start");
    wire.events_until("tool_execution_start");
    let busy = wire.reply(
        "quack.agent",
        json!({"command": {"type": "prompt", "message": "no behaviour given"}}),
    );
    assert!(busy["error"].as_str().unwrap().starts_with("Agent is already processing"), "{busy}");
    let queued = json!({"disposition": "queued"});
    assert_eq!(command(&wire, json!({"type": "steer", "message": "steered one"})), queued);
    assert_eq!(command(&wire, json!({"type": "follow_up", "message": "follow up one"})), queued);
    let steered = json!({"type": "prompt", "message": "steered two", "streamingBehavior": "steer"});
    wire.request("quack.agent", json!({ "command": steered }));
    assert_eq!(state(&wire)["pendingMessageCount"], 3);
    world.daemon.open_gate("go");
    let events = wire.events_until("agent_settled");
    let updates = all(&events, "queue_update");
    let expected = json!({"type": "queue_update", "steering": ["steered one", "steered two"],
        "followUp": ["follow up one"]});
    assert!(updates.contains(&&expected), "{updates:?}");
    let last = json!({"type": "queue_update", "steering": [], "followUp": []});
    assert_eq!(updates.last(), Some(&&last));
    // Pi 0.55 skips the second call.
    let ends: Vec<_> = all(&events, "tool_execution_end");
    assert_eq!(ends.len(), 2);
    assert!(ends.iter().all(|end| end["isError"] == false), "{ends:?}");
    let said: Vec<_> = answers(&events).into_iter().map(text).collect();
    let expected = ["echo: steered one", "echo: steered two", "echo: follow up one"];
    assert_eq!(said, expected);
    assert_eq!(state(&wire)["pendingMessageCount"], 0);
}

#[test]
fn a_queue_can_be_cleared_and_an_abort_keeps_it() {
    let world = gated();
    let wire = world.follower();
    say(&wire, "start");
    wire.events_until("tool_execution_start");
    command(&wire, json!({"type": "steer", "message": "a"}));
    command(&wire, json!({"type": "follow_up", "message": "b"}));
    let cleared = command(&wire, json!({"type": "clear_queue"}));
    assert_eq!(cleared, json!({"steering": ["a"], "followUp": ["b"]}));
    command(&wire, json!({"type": "steer", "message": "c"}));
    wire.request("abort", json!({}));
    wire.events_until("agent_settled");
    assert_eq!(state(&wire)["pendingMessageCount"], 1);
    world.daemon.open_gate("go");
    let events = turn(&wire, "next");
    let users = all(&events, "message_end").into_iter().map(|it| &it["message"]);
    let users: Vec<_> = users.filter(|it| it["role"] == "user").map(text).collect();
    assert_eq!(users, ["next", "c"]);
}

#[test]
fn a_message_that_was_queued_while_idle_follows_the_next_prompt() {
    let world = World::new(&json!({"on_exhausted": "echo"}));
    let wire = world.follower();
    assert_eq!(
        command(&wire, json!({"type": "steer", "message": "early"})),
        json!({"disposition": "queued"})
    );
    assert_eq!(state(&wire)["pendingMessageCount"], 1);
    wire.events_until("queue_update");
    let events = turn(&wire, "first");
    assert_order(
        &events,
        &[BEGIN, "queue_update, message_start user, message_end user", ANSWER, END],
    );
}

#[test]
fn every_command_gets_one_answer_with_its_error() {
    let world = World::new(&json!({"on_exhausted": "echo"}));
    let wire = world.follower();
    let ok = |body: Value| command(&wire, body);
    let models = ok(json!({"type": "get_available_models"}))["models"].take();
    let names: Vec<_> = models.as_array().unwrap().iter().map(|it| it["id"].clone()).collect();
    assert_eq!(names, ["fake-1", "fake-2"]);
    let set = json!({"type": "set_model", "provider": "fake", "modelId": "fake-2"});
    assert_eq!(ok(set)["id"], "fake-2");
    let nope = json!({"type": "set_model", "provider": "fake", "modelId": "nope"});
    assert_eq!(refusal(&wire, nope), "Model not found: fake/nope");
    assert_eq!(ok(json!({"type": "cycle_model"}))["model"]["id"], "fake-1");
    assert_eq!(ok(json!({"type": "set_thinking_level", "level": "xhigh"})), Value::Null);
    assert_eq!(state(&wire)["thinkingLevel"], "high", "as much as the model can");
    assert_eq!(ok(json!({"type": "cycle_thinking_level"}))["level"], "off");
    for mode in ["set_steering_mode", "set_follow_up_mode"] {
        ok(json!({"type": mode, "mode": "all"}));
        refusal(&wire, json!({"type": mode, "mode": "some"}));
    }
    ok(json!({"type": "set_session_name", "name": "  my name "}));
    refusal(&wire, json!({"type": "set_session_name", "name": " "}));
    ok(json!({"type": "set_auto_compaction", "enabled": false}));
    let now = state(&wire);
    assert_eq!(
        (&now["sessionName"], &now["steeringMode"], &now["autoCompactionEnabled"]),
        (&"my name".into(), &"all".into(), &false.into())
    );
    for unknown in ["no_such_command", "new_session", "switch_session"] {
        refusal(&wire, json!({ "type": unknown }));
    }
    let shell = ok(json!({"type": "bash", "command": "echo out; exit 4"}));
    assert_eq!(
        (&shell["exitCode"], &shell["cancelled"], &shell["output"]),
        (&4.into(), &false.into(), &"out\n".into())
    );
    turn(&wire, "after bash");
    let sent = world.model.requests().pop().unwrap()["body"]["messages"].to_string();
    assert!(sent.contains("echo out; exit 4"), "the model sees it: {sent}");
    let last = ok(json!({"type": "get_last_assistant_text"}));
    assert!(last["text"].as_str().unwrap().starts_with("echo: "), "{last}");
    let messages = ok(json!({"type": "get_messages"}))["messages"].take();
    let roles: Vec<_> = messages.as_array().unwrap().iter().map(|it| it["role"].clone()).collect();
    assert_eq!(roles, ["bashExecution", "user", "assistant"]);
}

#[test]
fn a_command_of_the_user_can_be_aborted() {
    let world = World::new(&json!({"on_exhausted": "echo"}));
    let wire = world.follower();
    state(&wire);
    let running = wire.begin(
        "quack.agent",
        &json!({"command": {"type": "bash", "command": "echo go; sleep 300"}}),
    );
    crate::harness::wait_for("the command to run", || {
        world.daemon.descendants().into_iter().find(|it| it.name == "sleep")
    });
    let other = world.daemon.wire();
    other.attach(&world.repo);
    command(&other, json!({"type": "abort_bash"}));
    let reply = running.reply();
    let data = &reply["data"]["data"];
    assert_eq!((&data["cancelled"], data.get("exitCode")), (&true.into(), None), "{reply}");
}
