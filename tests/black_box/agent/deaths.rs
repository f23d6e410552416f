//! Processes that are killed in the middle of a turn. Afterwards the next prompt works, the session file is complete and
//! marks the turn, no process is left, and no request was sent twice.

use super::{World, all, answer, end_agent, kill, only, say, state, stored, text, turn};
use crate::harness::{Process, Wire, is_alive, wait_for};
use nix::sys::signal::Signal;
use serde_json::json;

/// A world whose first answer stays incomplete.
#[track_caller]
fn hanging() -> World {
    World::new(&json!({"replies": [{"text": "one two three", "chunk_chars": 4, "hang_after": 2,
        "hang_ms": 600_000}, {"text": "second answer"}]}))
}

/// A world whose first answer calls a command that does not end by itself.
#[track_caller]
fn calling() -> World {
    let call = json!({"name": "bash", "arguments": {"command": "echo begun; sleep 300"}});
    World::new(&json!({"replies": [{"tool_calls": [call]}, {"text": "second answer"}]}))
}

#[track_caller]
fn sleeping(world: &World) -> Process {
    wait_for("the command to run", || {
        world.daemon.descendants().into_iter().find(|it| it.name == "sleep")
    })
}

#[track_caller]
fn ends(what: &str, process: &Process) {
    wait_for(what, || (!is_alive(process)).then_some(()));
}

/// Asserts that the next prompt works. Returns what the session file has.
#[track_caller]
fn continues(wire: &Wire) -> Vec<String> {
    let events = turn(wire, "again");
    assert_eq!(text(answer(&events)), "second answer", "{events:?}");
    stored(&state(wire)["sessionFile"])
}

/// Asserts that texts about a dead agent of quackd do not call it Pi.
#[track_caller]
fn calls_it_an_agent(world: &World) {
    let agent_died = [
        (&["ps"][..], "last agent: signal 9"),
        (&["doctor", "--tree"], "agent repo  signal 9"),
        (&["doctor"], "The agent's process ended: signal 9"),
    ];
    for (verb, expected) in agent_died {
        let text = wait_for(expected, || {
            let text = world.daemon.quack(verb).stdout();
            text.contains(expected).then_some(text)
        });
        for name in ["pi-worker", "Pi process", "last Pi"] {
            assert!(!text.contains(name), "{name}: {text}");
        }
    }
}

#[test]
fn an_agent_killed_in_mid_stream_costs_its_turn_only() {
    let world = hanging();
    let wire = world.follower();
    say(&wire, "hello");
    wire.events_until("message_update");
    let agent = world.agent_process();
    kill(&agent);
    let events = wire.events_until("agent_end");
    let death = only(&events, "extension_error");
    assert_eq!((&death["event"], &death["signal"]), (&"process_death".into(), &9.into()));
    only(&events, "prompt_error");
    let gone = || (world.model.count("client_gone") == 1).then_some(());
    wait_for("the request to be given up", gone);
    calls_it_an_agent(&world);
    assert_eq!(continues(&wire), ["user", "assistant aborted", "user", "assistant stop"]);
    assert!(!is_alive(&agent));
    assert_eq!(world.agents().len(), 1);
    assert_eq!(world.model.count("requests"), 2);
}

#[test]
fn an_agent_killed_in_mid_tool_leaves_no_command_and_a_result_that_says_so() {
    let world = calling();
    let wire = world.follower();
    say(&wire, "hello");
    wire.events_until("tool_execution_update");
    let command = sleeping(&world);
    kill(&world.agent_process());
    wire.events_until("agent_end");
    ends("the command to end", &command);
    let expected =
        ["user", "assistant toolUse", "toolResult", "assistant aborted", "user", "assistant stop"];
    assert_eq!(continues(&wire), expected);
    let sent = world.model.requests().pop().unwrap()["body"]["messages"].to_string();
    assert!(sent.contains("It is not known whether the call had an effect"), "{sent}");
    assert_eq!(world.model.count("requests"), 2);
}

#[test]
fn a_tool_worker_killed_in_mid_tool_is_told_to_the_model_and_the_turn_goes_on() {
    let world = calling();
    let wire = world.daemon.wire();
    let session = wire.attach(&world.repo);
    wire.request("follow", json!({}));
    say(&wire, "hello");
    let mut events = wire.events_until("tool_execution_update");
    let command = sleeping(&world);
    let pid = session.pid("pid");
    kill(&Process::find(pid).unwrap());
    events.extend(wire.events_until("agent_settled"));
    assert_eq!(only(&events, "tool_execution_end")["isError"], true);
    assert_eq!(text(answer(&events)), "second answer");
    ends("the command to end", &command);
    let expected = ["user", "assistant toolUse", "toolResult", "assistant stop"];
    assert_eq!(stored(&state(&wire)["sessionFile"]), expected);
    assert_eq!(world.model.count("requests"), 2);
}

#[test]
fn a_daemon_killed_in_mid_turn_loses_no_message_and_leaves_no_process() {
    let cases = [
        (hanging as fn() -> World, "message_update", &["user", "assistant aborted"][..]),
        (
            calling,
            "tool_execution_update",
            &["user", "assistant toolUse", "toolResult", "assistant aborted"],
        ),
    ];
    for (world, until, before) in cases {
        let mut world = world();
        let wire = world.follower();
        say(&wire, "hello");
        wire.events_until(until);
        let below = world.daemon.descendants();
        assert!(below.iter().any(|it| it.name == "quack-agent"));
        // The daemon records the name of the file without waiting for the disk.
        let file = state(&wire)["sessionFile"].as_str().unwrap().to_owned();
        let record = world.daemon.app().join("quackd-state.json");
        wait_for("the record of the session file", || {
            std::fs::read_to_string(&record).ok()?.contains(&file).then_some(())
        });
        world.daemon.signal(Signal::SIGKILL);
        assert_eq!(world.daemon.wait(), None);
        for process in &below {
            ends("everything below the daemon to end", process);
        }
        world.boot(&[]);
        let wire = world.follower();
        assert_eq!(continues(&wire), [before, &["user", "assistant stop"]].concat());
        assert_eq!(world.model.count("requests"), 2);
    }
}

#[test]
fn a_daemon_that_stops_in_mid_turn_marks_it_as_aborted() {
    let mut world = calling();
    let wire = world.follower();
    say(&wire, "hello");
    wire.events_until("tool_execution_update");
    let below = world.daemon.descendants();
    world.daemon.signal(Signal::SIGTERM);
    assert_eq!(world.daemon.wait(), Some(0));
    for process in &below {
        ends("everything below the daemon to end", process);
    }
    world.boot(&[]);
    let wire = world.follower();
    let stored = continues(&wire);
    let expected =
        ["user", "assistant toolUse", "toolResult", "assistant aborted", "user", "assistant stop"];
    assert_eq!(stored, expected);
}

#[test]
fn an_agent_killed_while_idle_costs_nothing() {
    let world = World::new(&json!({"on_exhausted": "echo"}));
    let wire = world.follower();
    turn(&wire, "first");
    let agent = world.agent_process();
    end_agent(&world, &wire);
    assert!(!is_alive(&agent));
    let events = turn(&wire, "second");
    assert_eq!(text(answer(&events)), "echo: second");
    let starts = all(&events, "agent_start");
    assert_eq!(starts.len(), 1);
    assert_eq!(
        stored(&state(&wire)["sessionFile"]),
        ["user", "assistant stop", "user", "assistant stop"]
    );
    let sent = world.model.requests().pop().unwrap()["body"]["messages"].to_string();
    assert!(sent.contains("first") && sent.contains("echo: first"), "{sent}");
    assert!(events.iter().all(|event| event["event"] != "prompt_error"));
}
