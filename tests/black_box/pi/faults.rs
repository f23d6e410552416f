//! A Pi that misbehaves: the daemon keeps running, and waiting clients get an error at once or
//! after the timeout.

use super::{World, find, names, refused, say, text};
use crate::harness::{Process, Wire, is_alive, wait_for, write_program};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Much longer than every promised time, for a busy machine, and shorter than the time after which Pi is given up (30 s).
const SOON: Duration = Duration::from_secs(25);

#[track_caller]
fn soon<T>(what: &str, run: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let value = run();
    assert!(begin.elapsed() < SOON, "{what} took {:?}", begin.elapsed());
    value
}

/// Asserts that the daemon answers, and that the next prompt reaches a working Pi.
#[track_caller]
fn still_works(world: &World, wire: &Wire) {
    world.mode("");
    say(wire, "hello");
    let events = wire.events_until("agent_end");
    assert!(text(&events).ends_with("You said: hello"), "{:?}", names(&events));
}

fn death(events: &[Value]) -> &Value {
    &find(events, "extension_error")["data"]
}

#[test]
fn a_pi_that_dies_in_mid_turn_is_told_at_once() {
    let world = World::new("");
    let wire = world.follower();
    say(&wire, "die");
    let events = soon("the news", || wire.events_until("agent_end"));
    let death = death(&events);
    let name = "Pi process for session \"duck-1\" died unexpectedly (exit code: 3)";
    assert_eq!(death["error"], name);
    assert_eq!((&death["event"], &death["exitCode"]), (&json!("process_death"), &json!(3)));
    assert_eq!(death["stderrTail"], "something broke\n");
    assert_eq!(find(&events, "prompt_error")["data"]["error"], "Pi process exited with code 3");
    assert_eq!(names(&events).last(), Some(&"agent_end"), "the turn has an end");
    assert_eq!(text(&events), "half an ans", "the earlier text is not lost");
    still_works(&world, &wire);
    assert!(world.read("argv").lines().last().unwrap().contains("\"--session\""), "resumed");
}

#[test]
fn a_pi_that_is_killed_is_told_with_the_signal() {
    let world = World::new("");
    let wire = world.follower();
    say(&wire, "kill");
    let events = soon("the news", || wire.events_until("agent_end"));
    let death = death(&events);
    assert_eq!((&death["signal"], &death["exitCode"]), (&json!(9), &Value::Null));
    assert!(death["error"].as_str().unwrap().ends_with("(exit code: null)"));
    still_works(&world, &wire);
}

#[test]
fn the_worker_between_may_die_too() {
    let world = World::new("");
    let wire = world.follower();
    for key in ["workerPid", "monitorPid"] {
        say(&wire, "child");
        wire.events_until("message_update");
        let (pi, child) = (world.pi(), world.process("child"));
        let ps = wire.request("quack.ps", json!({}));
        let pid = ps["workers"][0]["pi"][key].as_i64().unwrap();
        super::kill(&Process::find(i32::try_from(pid).unwrap()).unwrap());
        let events = soon("the news", || wire.events_until("agent_end"));
        assert_eq!(death(&events)["signal"], 9);
        wait_for("Pi and its child to end", || (!is_alive(&pi) && !is_alive(&child)).then_some(()));
        std::fs::remove_file(world.fake("child")).unwrap();
    }
    still_works(&world, &wire);
}

#[test]
fn a_pi_that_closes_its_stdin_is_told_with_the_next_prompt() {
    let world = World::new("");
    let wire = world.follower();
    say(&wire, "close-stdin");
    let events = wire.events_until("agent_end");
    assert_eq!(text(&events), "deaf", "its turn is not disturbed");
    let error = soon("the refusal", || refused(&wire, "hello"));
    assert_eq!(error, "Failed to write to Pi process stdin");
    still_works(&world, &wire);
}

#[test]
fn a_pi_that_floods_its_stderr_is_not_held_up() {
    let world = World::new("flood-stderr");
    let wire = world.follower();
    say(&wire, "stderr");
    assert_eq!(text(&wire.events_until("agent_end")), "You said: stderr");
    say(&wire, "die");
    let events = wire.events_until("extension_error");
    let tail = death(&events)["stderrTail"].as_str().unwrap().to_owned();
    assert!(tail.len() <= 8 * 1024 && tail.ends_with("something broke\n"), "{}", tail.len());
}

#[test]
fn a_pi_that_floods_its_stdout_delays_nobody() {
    let world = World::new("");
    let wire = world.follower();
    let other = world.daemon.wire();
    say(&wire, "flood");
    let mut flood = 0;
    loop {
        let event = wire.event();
        match event["event"].as_str() {
            Some("queue_update") => flood += 1,
            Some("agent_end") => break,
            _ => {}
        }
        if flood % 100 == 1 {
            soon("a ping", || other.request("ping", json!({})));
        }
    }
    assert_eq!(flood, 5_000, "held back, and not lost");
}

#[test]
fn a_pi_that_ignores_term_ends_with_the_daemon() {
    let mut world = World::new("ignore-term");
    let wire = world.follower();
    say(&wire, "child");
    wire.events_until("message_update");
    let (pi, child) = (world.pi(), world.process("child"));
    world.daemon.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(world.daemon.wait(), Some(0));
    assert!(!is_alive(&pi) && !is_alive(&child));
}

#[test]
fn a_mute_pi_holds_up_nobody_but_who_speaks_to_it() {
    let world = World::new("mute");
    let wire = world.daemon.wire();
    soon("attach", || wire.attach(&world.repo));
    soon("follow", || wire.request("follow", json!({})));
    for _ in 0..3 {
        let state = soon("get_state", || wire.request("get_state", json!({})));
        assert_eq!((&state["isRunning"], state.get("piState")), (&json!(true), None), "{state}");
    }
    world.pi();
    let speaking = wire.begin("say", &json!({"message": "hello", "preferPi": true}));
    let other = world.daemon.wire();
    // Pi ignores the abort too, so the daemon kills it. Clients with open prompts get an error.
    soon("abort", || other.request("abort", json!({})));
    let reply = soon("the refusal", || speaking.reply());
    assert_eq!(reply["error"], "Pi process ended (not responding)");
    still_works(&world, &wire);
}

#[test]
fn a_prompt_that_is_never_answered_is_refused_by_the_limit() {
    let world = World::new("");
    let wire = world.follower();
    say(&wire, "hello");
    wire.events_until("agent_end");
    wire.request("get_state", json!({}));
    let begin = Instant::now();
    let error = refused(&wire, "silent");
    assert_eq!(error, "Pi command \"prompt\" timed out after 30000ms");
    assert!(Duration::from_secs(29) < begin.elapsed());
    // Pi has not answered at all since then, so the daemon replaces it.
    let events = wire.events_until("extension_error");
    assert!(death(&events)["error"].as_str().unwrap().ends_with("it did not answer"));
    still_works(&world, &wire);
}

#[test]
fn abort_ends_a_turn_and_a_pi_that_does_not_abort() {
    let world = World::new("");
    let wire = world.follower();
    say(&wire, "hang");
    wire.events_until("message_update");
    let before = world.pi();
    soon("abort", || wire.request("abort", json!({})));
    let events = wire.events_until("agent_end");
    assert!(!names(&events).contains(&"extension_error"), "{:?}", names(&events));
    assert!(is_alive(&before), "it goes on");

    say(&wire, "stuck");
    wire.events_until("message_update");
    soon("abort", || wire.request("abort", json!({})));
    let events = wire.events_until("agent_end");
    assert!(death(&events)["error"].as_str().unwrap().ends_with("was ended: it did not abort"));
    wait_for("the stuck Pi to end", || (!is_alive(&before)).then_some(()));
    still_works(&world, &wire);
}

#[test]
fn a_pi_that_cannot_work_is_not_started_for_ever() {
    let world = World::new("die");
    let wire = world.follower();
    let mut errors = Vec::new();
    let begin = Instant::now();
    while begin.elapsed() < 3 * SOON {
        let error = refused(&wire, "hello");
        let is_over = error.starts_with("Pi failed");
        errors.push(error);
        if is_over {
            break;
        }
    }
    assert!(errors[0].contains("exited with code 1"), "{errors:?}");
    let last = errors.last().unwrap();
    assert!(last.starts_with("Pi failed 5 times in 60 s (last: exit code 1)"), "{errors:?}");
    let started = world.read("argv").lines().count();
    assert!(started <= 7, "{started} starts");
    // An attach allows another start.
    world.mode("");
    wire.attach(&world.repo);
    still_works(&world, &wire);
}

#[test]
fn a_program_that_is_no_pi_is_refused() {
    let mut world = World::absent("");
    let program = world.fake("not-a-program");
    write_program(&program, "\0\0\0\0");
    let binary = format!("RUBBER_DUCK_PI_BINARY={}", program.display());
    world.daemon.boot_in(&[&binary]);
    let wire = world.follower();
    let error = soon("the refusal", || refused(&wire, "hello"));
    assert!(error.starts_with("Pi cannot start: cannot execute "), "{error}");
}
