//! The status of a session whose agent has asked the user a question, until the user answers.

use super::{World, find, say};
use crate::harness::{Wire, wait_for};
use serde_json::{Value, json};

/// The session's status. Asserts that all methods return the same status.
#[track_caller]
fn status(wire: &Wire) -> Value {
    let ps = wire.request("quack.ps", json!({}))["workers"][0].take();
    let session = wire.request("sessions", json!({"all": true}))["sessions"][0].take();
    let state = wire.request("get_state", json!({"sessionId": session["id"]}));
    let seen = [&ps["status"], &session["status"], &state["status"]];
    // A status may have changed between two reads.
    if seen.iter().any(|other| *other != seen[0]) {
        return Value::Null;
    }
    ps["status"].clone()
}

#[track_caller]
fn becomes(wire: &Wire, expected: &str) {
    wait_for(expected, || (status(wire) == expected).then_some(()));
}

/// Makes Pi ask a question. Returns the question's id.
#[track_caller]
fn ask(wire: &Wire, what: &str) -> Value {
    say(wire, what);
    let events = wire.events_until("extension_ui_request");
    becomes(wire, "waiting");
    find(&events, "extension_ui_request")["data"]["id"].clone()
}

#[test]
fn a_session_waits_from_the_question_to_the_answer_and_works_again_until_the_turn_ends() {
    let world = World::new("");
    let wire = world.follower();
    say(&wire, "hang");
    wire.events_until("message_update");
    assert_eq!(status(&wire), "working");
    wire.request("abort", json!({}));
    wire.events_until("agent_end");
    becomes(&wire, "idle");

    let id = ask(&wire, "confirm-hang");
    let why = wire.request("quack.ps", json!({}))["workers"][0]["statusWhy"].take();
    assert_eq!(why, "its agent has asked you something");
    assert!(world.daemon.quack(&["sessions", "--all"]).ok().contains("waiting"));
    let shown = world.daemon.quack(&["ps"]).ok();
    assert!(
        shown.lines().any(|line| line.contains("repo  ") && line.contains("  waiting  ")),
        "{shown}"
    );
    wire.request("extension_ui_response", json!({"id": id, "confirmed": true}));
    wire.events_until("message_update");
    assert_eq!(status(&wire), "working", "answered, and the turn goes on");
    wire.request("abort", json!({}));
    wire.events_until("agent_end");
    becomes(&wire, "idle");
}

#[test]
fn a_question_goes_on_waiting_when_whoever_was_asked_is_gone() {
    let world = World::new("");
    let wire = world.follower();
    let asked = world.daemon.wire();
    asked.request("follow", json!({}));
    let id = ask(&wire, "confirm");
    drop(wire);
    drop(asked);
    let late = world.daemon.wire();
    wait_for("the others to be gone", || {
        (late.request("quack.ps", json!({}))["supervisor"]["clients"] == 1).then_some(())
    });
    assert_eq!(status(&late), "waiting");
    late.request("extension_ui_response", json!({"id": id, "confirmed": true}));
    becomes(&late, "idle");
}

#[test]
fn nobody_waits_for_a_question_that_is_over_whatever_ended_it() {
    let mut world = World::new("");
    let wire = world.follower();
    // The question times out, and the turn ends with it.
    say(&wire, "confirm-soon");
    wire.events_until("agent_end");
    becomes(&wire, "idle");
    // A client ends the turn.
    ask(&wire, "confirm");
    wire.request("abort", json!({}));
    wire.events_until("agent_end");
    becomes(&wire, "idle");
    // Pi is killed. The session's worker exists and is idle.
    let worker = wire.attach(&world.repo);
    worker.bash("true");
    ask(&wire, "confirm");
    super::kill(&world.pi());
    wire.events_until("agent_end");
    becomes(&wire, "idle");
    wait_for("the death to be reported", || {
        let ps = wire.request("quack.ps", json!({}));
        (ps["workers"][0]["pi"]["why"] == "it died: signal 9").then_some(())
    });
    // The daemon is killed, and the next daemon has no question.
    ask(&wire, "confirm");
    drop(wire);
    world.daemon.signal(nix::sys::signal::Signal::SIGKILL);
    world.daemon.wait();
    world.boot(&[]);
    let wire = world.daemon.wire();
    assert_eq!(wire.request("sessions", json!({"all": true}))["sessions"][0]["status"], "stopped");
    wire.attach(&world.repo);
    becomes(&wire, "idle");
}
