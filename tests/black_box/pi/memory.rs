//! A Pi that exceeds its memory limit, and an idle Pi under memory pressure.

use super::{World, find, say, text};
use crate::harness::{is_alive, wait_for, wait_within};
use serde_json::{Value, json};
use std::time::Duration;

fn configured(config: &str) -> World {
    let mut world = World::absent("");
    world.daemon.configure(config);
    world.boot(&[]);
    world
}

#[test]
fn a_pi_that_has_more_memory_than_its_session_may_is_ended_and_the_tools_go_on() {
    let world = configured("[limits]\nsession_memory_mb = 300\n");
    let wire = world.follower();
    let session = wire.attach(&world.repo);
    assert_eq!(session.bash("echo back"), "back\n\n[Exit code: 0]");
    let worker = session.pid("pid");
    say(&wire, "hello");
    wire.events_until("agent_end");
    let pi = world.pi();
    say(&wire, "grow 500");
    let events = wire.events_until("agent_end");
    let death = &find(&events, "extension_error")["data"];
    let told = death["error"].as_str().unwrap();
    let begin = "Pi process for session \"duck-1\" was ended: out of memory: its session had ";
    assert!(told.starts_with(begin), "{told}");
    assert!(told.ends_with(" MiB, and limits.session_memory_mb is 300"), "{told}");
    let refusal = find(&events, "prompt_error")["data"]["error"].as_str().unwrap();
    assert!(refusal.starts_with("Pi process ended (out of memory: its session had "), "{refusal}");
    wait_for("the last Pi to end", || (!is_alive(&pi)).then_some(()));
    assert_eq!((session.pid("pid"), &session.worker()["restarts"]), (worker, &json!(0)));
    let tree = wire.request("quack.tree", json!({}));
    let last = tree["deaths"].as_array().unwrap().last().unwrap();
    assert_eq!(last["child"], "pi-worker");
    assert!(last["cause"].as_str().unwrap().starts_with("out of memory: "), "{last}");
    // The next Pi has the conversation of the previous one.
    say(&wire, "again");
    assert_eq!(text(&wire.events_until("agent_end")), "You said: again");
    assert!(world.read("argv").lines().last().unwrap().contains("\"--session\""), "resumed");
}

#[test]
fn while_memory_is_short_an_idle_pi_is_ended_and_comes_back_and_one_in_a_turn_stays() {
    // More than any machine has, so memory is always low.
    let world = configured("[worker]\nevict_below_mb = 1048576\n[pi]\nstart = \"say\"\n");
    let wire = world.follower();
    let pi_of = || -> Value { wire.request("quack.ps", json!({}))["workers"][0]["pi"].clone() };
    say(&wire, "hang");
    wire.events_until("message_update");
    let pi = world.pi();
    let begun = std::time::Instant::now();
    wait_within(Duration::from_secs(30), "several samples of memory", || {
        assert_eq!(pi_of()["busy"], true);
        (Duration::from_secs(7) < begun.elapsed()).then_some(())
    });
    assert!(is_alive(&pi), "it is in a turn");
    wire.request("abort", json!({}));
    wire.events_until("agent_end");
    wait_within(Duration::from_secs(30), "the idle process to be stopped", || {
        (pi_of()["why"] == "memory was short; the next call starts it").then_some(())
    });
    wait_for("the last Pi to end", || (!is_alive(&pi)).then_some(()));
    let supervisor = wire.request("quack.ps", json!({}))["supervisor"].clone();
    assert_eq!(supervisor["deathsTotal"], 0, "it is no death: {supervisor}");
    say(&wire, "again");
    assert_eq!(text(&wire.events_until("agent_end")), "You said: again");
    assert!(world.read("argv").lines().last().unwrap().contains("\"--session\""), "resumed");
}
