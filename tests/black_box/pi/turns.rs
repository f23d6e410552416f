//! Successful turns in both dialects, and the command line of Pi.

use super::{World, find, names, refused, say, text};
use crate::harness::{Daemon, is_alive, wait_for};
use crate::names::CLASSES;
use serde_json::{Value, json};

#[test]
fn both_dialects_give_the_same_turn() {
    let mut turns = Vec::new();
    for mode in ["", "new"] {
        let world = World::new(mode);
        let wire = world.follower();
        say(&wire, "hello");
        let events = wire.events_until("agent_end");
        assert_eq!(text(&events), "You said: hello");
        let update = find(&events, "message_update");
        assert_eq!(update["data"]["message"], json!({"role": "assistant"}), "no repeats: {update}");
        assert_eq!(update["data"]["assistantMessageEvent"].get("partial"), None, "{update}");
        let numbers: Vec<u64> = events.iter().filter_map(|e| e["seq"].as_u64()).collect();
        assert_eq!(numbers.len(), events.len());
        assert!(numbers.windows(2).all(|two| two[1] == two[0] + 1), "{numbers:?}");
        turns.push(names(&events).join(" "));
    }
    assert_eq!(turns[0], turns[1]);
    let expected = "agent_start turn_start message_start message_end message_start message_update";
    assert!(turns[0].starts_with(expected), "{}", turns[0]);
}

#[test]
fn pi_is_called_as_upstream_calls_it() {
    let world = World::new("");
    let wire = world.follower();
    say(&wire, "hello");
    let argv: Value = serde_json::from_str(world.read("argv").trim()).unwrap();
    let sessions = world.daemon.app().join("pi-sessions");
    let expected = json!([
        "--mode",
        "rpc",
        "--session-dir",
        sessions,
        "--tools",
        "read,bash,edit,write,grep,find,ls",
        "--model",
        "gpt-4o-mini",
        "--provider",
        "openai",
        "--thinking",
        "off",
        "--session",
        argv[13],
        "-c",
        "--no-approve"
    ]);
    assert_eq!(argv, expected);
    let file = argv[13].as_str().unwrap();
    assert_eq!(std::path::Path::new(file).parent(), Some(sessions.as_path()));
    let header: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!((&header["type"], &header["cwd"]), (&json!("session"), &json!(world.repo)));
    assert_eq!(world.read("cwd"), world.repo.display().to_string());
    let prompt = world.read("lines");
    let prompt = prompt.lines().find(|line| line.contains("\"prompt\"")).unwrap().to_owned();
    assert!(prompt.ends_with(r#","type":"prompt","message":"hello"}"#), "{prompt}");
}

#[test]
fn pi_gets_the_users_keys_and_not_the_daemons() {
    let world = World::with("", &["EDITOR=vi", "RUBBER_DUCK_PI_MODEL=x/y"]);
    let wire = world.follower();
    say(&wire, "env OPENAI_API_KEY EXA_API_KEY EDITOR RUBBER_DUCK_PI_MODEL");
    let told: Value = serde_json::from_str(&text(&wire.events_until("agent_end"))).unwrap();
    let expected = json!({"OPENAI_API_KEY": "sk-test", "EXA_API_KEY": null, "EDITOR": "vi",
        "RUBBER_DUCK_PI_MODEL": null});
    assert_eq!(told, expected);
    assert!(world.read("argv").contains("\"--model\", \"x/y\", \"--thinking\""));
    // The session's worker has none of these variables.
    let session = wire.attach(&world.repo);
    assert_eq!(session.bash("echo [$OPENAI_API_KEY]"), "[]\n\n[Exit code: 0]");
    assert!(!world.daemon.log().contains("sk-test"));
}

#[test]
fn a_name_of_pi_is_taken_over_without_its_unsafe_characters() {
    let chars: String = CLASSES.iter().flat_map(|(_, chars)| chars.chars()).collect();
    // The name is an argument of the fake Pi, which splits its arguments at spaces.
    let chars: String = chars.chars().filter(|c| *c != '\0' && !c.is_whitespace()).collect();
    let world = World::new(&format!("name=re{chars}factoring"));
    let wire = world.follower();
    say(&wire, "hello");
    wire.events_until("agent_end");
    wait_for("the name", || {
        let sessions = wire.request("sessions", json!({}))["sessions"].take();
        (sessions[0]["name"] == "refactoring").then_some(())
    });
}

#[test]
fn the_session_file_is_kept_and_resumed_and_a_name_is_taken_over() {
    let mut world = World::new("name=refactoring");
    let wire = world.follower();
    say(&wire, "hello");
    wire.events_until("agent_end");
    let file = wait_for("the metadata to have Pi's file and name", || {
        let text = std::fs::read_to_string(world.daemon.app().join("metadata.json")).ok()?;
        let metadata: Value = serde_json::from_str(&text).ok()?;
        let session = &metadata["sessions"][0];
        let file = session["piSessionFile"].as_str().filter(|file| !file.is_empty())?;
        (session["name"] == "refactoring").then(|| file.to_owned())
    });
    assert!(world.read("argv").contains(&file), "Pi keeps to the file that it is given");
    world.daemon.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(world.daemon.wait(), Some(0));
    std::fs::remove_file(world.fake("argv")).unwrap();
    world.boot(&[]);
    let wire = world.follower();
    say(&wire, "again");
    let argv: Vec<String> = serde_json::from_str(world.read("argv").trim()).unwrap();
    let expected = ["--session".to_owned(), file, "-c".to_owned(), "--no-approve".to_owned()];
    assert!(argv.ends_with(&expected), "{argv:?}");
}

#[test]
fn attach_starts_pi_and_waits_for_nothing() {
    let world = World::new("late");
    let wire = world.daemon.wire();
    wire.attach(&world.repo);
    // Pi starts in the background and reports its state later.
    let state = wait_for("Pi to tell its state", || {
        let state = wire.request("get_state", json!({}));
        state.get("piState").cloned()
    });
    assert_eq!(
        (&state["sessionId"], &state["model"]),
        (&json!("fake-session"), &json!({"id": "fake"}))
    );
    let followed = wire.request("follow", json!({}));
    assert_eq!(
        (&followed["sessionState"]["sessionId"], &followed["isRunning"]),
        (&json!("fake-session"), &json!(true))
    );
    let ps = wire.request("quack.ps", json!({}));
    let pi = &ps["workers"][0]["pi"];
    assert_eq!((&pi["state"], &pi["busy"]), (&json!("ready"), &json!(false)), "{ps}");
    assert!(0 < pi["rssKb"].as_u64().unwrap_or(0) || !cfg!(target_os = "linux"), "{ps}");
}

#[test]
fn without_attaching_for_activation_no_pi_is_started() {
    let world = World::new("");
    let wire = world.daemon.wire();
    wire.request("attach", json!({"path": world.repo, "activate": false}));
    let ps = wire.request("quack.ps", json!({}));
    assert_eq!(ps["workers"][0].get("pi"), None, "{ps}");
}

#[test]
fn nothing_configured_says_what_to_do() {
    let daemon = Daemon::start();
    let repo = daemon.repo("repo");
    let wire = daemon.wire();
    let error = refused(&wire, "hello");
    assert_eq!(error, "No active session. Run `duck` first.");
    wire.attach(repo.path());
    let error = refused(&wire, "hello");
    assert!(error.starts_with("No model is configured. Do one of these:"), "{error}");
    for word in ["OPENAI_API_KEY", "quack login", "quack config set", "models of Pi"] {
        assert!(error.contains(word), "{error}");
    }
    assert_eq!(wire.refused("say", json!({})), "Message is required");
    assert_eq!(wire.refused("say", json!({"message": ["a"]})), "Message must be a string");
    assert_eq!(
        wire.refused("say", json!({"message": "x", "sessionId": "nobody"})),
        "Session not found: nobody"
    );
    assert_eq!(wire.refused("abort", json!({})), "No running operation to abort");
    let doctor = wire.request("doctor", json!({}));
    let pi = doctor["checks"].as_array().unwrap().iter().find(|check| check["name"] == "pi");
    assert_eq!(pi.unwrap()["status"], "warn");
}

#[test]
fn a_binary_that_cannot_be_run_is_named() {
    let mut world = World::absent("");
    world.daemon.boot_with(
        "/usr/bin/env",
        &["RUBBER_DUCK_PI_BINARY=/nowhere/pi", env!("CARGO_BIN_EXE_quack"), "daemon"],
    );
    let wire = world.follower();
    let error = refused(&wire, "hello");
    let expected =
        "Pi cannot be started: RUBBER_DUCK_PI_BINARY names /nowhere/pi, which does not exist.";
    assert!(error.starts_with(expected), "{error}");
    let doctor = wire.request("doctor", json!({}));
    let pi = doctor["checks"].as_array().unwrap().iter().find(|check| check["name"] == "pi");
    assert_eq!(pi.unwrap()["status"], "fail");
}

#[test]
fn what_pi_refuses_is_told_with_the_session() {
    for mode in ["", "new"] {
        let world = World::new(mode);
        let wire = world.follower();
        let reply = wire.reply("say", json!({"message": "refuse", "preferPi": true}));
        assert_eq!((&reply["ok"], &reply["error"]), (&json!(false), &json!("No model selected")));
        assert!(reply["data"]["sessionId"].is_string() && reply["code"].is_null(), "{reply}");
        say(&wire, "hang");
        let reply = wire.reply("say", json!({"message": "more", "preferPi": true}));
        assert_eq!(reply["error"], "Agent is already processing");
        assert_eq!(reply["code"], "pi_busy");
        wire.request("abort", json!({}));
    }
}

#[test]
fn a_prompt_that_fails_late_is_reported() {
    let world = World::new("");
    let wire = world.follower();
    say(&wire, "late-refuse");
    let events = wire.events_until("prompt_error");
    let expected = json!({"type": "prompt_error", "error": "Out of credit"});
    assert_eq!(events.last().unwrap()["data"], expected);
}

#[test]
fn every_event_of_a_turn_names_it_and_so_does_the_reply() {
    for mode in ["", "new"] {
        let world = World::new(mode);
        let wire = world.follower();
        let prompt = |message: &str| {
            wire.request("say", json!({"message": message, "preferPi": true}))["turn"].clone()
        };
        let first = prompt("hello");
        let events = wire.events_until("agent_end");
        assert!(first.is_u64() && 3 < events.len(), "{first} {events:?}");
        assert!(events.iter().all(|event| event["turn"] == first), "{first} {events:?}");
        // Not an event of the turn.
        wire.request("quack.tool", json!({"tool": "bash", "arguments": {"command": "true"}}));
        let call = wire.events_until("tool_execution_end");
        assert!(call.iter().all(|event| event.get("turn").is_none()), "{call:?}");
        let second = prompt("late-refuse");
        let refused = wire.events_until("prompt_error");
        assert_eq!(refused.last().unwrap()["turn"], second, "{refused:?}");
        let third = prompt("hello again");
        let events = wire.events_until("agent_end");
        assert!(events.iter().all(|event| event["turn"] == third), "{third} {events:?}");
        assert!(first != second && second != third && first != third);
    }
}

#[test]
fn answers_without_ids_are_understood() {
    let world = World::new("no-id");
    let wire = world.follower();
    say(&wire, "hello");
    wire.events_until("agent_end");
    let reply = wire.reply("say", json!({"message": "refuse", "preferPi": true}));
    assert_eq!(reply["error"], "No model selected");
}

#[test]
fn a_turn_that_is_tried_again_ends_once() {
    for mode in ["", "new"] {
        let world = World::new(mode);
        let wire = world.follower();
        say(&wire, "retry");
        let events = wire.events_until("agent_end");
        assert!(names(&events).contains(&"auto_retry_end"), "{:?}", names(&events));
        assert_eq!(text(&events), "second try");
    }
}

#[test]
fn line_separators_and_noise_break_no_line() {
    let world = World::new("");
    let wire = world.follower();
    say(&wire, "line");
    assert_eq!(text(&wire.events_until("agent_end")), "a\u{2028}b\u{2029}c");
    say(&wire, "noise");
    assert_eq!(text(&wire.events_until("agent_end")), "You said: noise");
}

#[test]
fn an_event_cannot_speak_for_the_daemon() {
    let world = World::new("");
    let wire = world.follower();
    say(&wire, "own-events");
    let events = wire.events_until("agent_end");
    let names = names(&events);
    assert!(!names.contains(&"voice_say") && !names.contains(&"prompt_error"), "{names:?}");
}

#[test]
fn an_exit_code_stands_beside_the_result() {
    let world = World::new("new");
    let wire = world.follower();
    say(&wire, "tool");
    let events = wire.events_until("agent_end");
    assert_eq!(find(&events, "tool_execution_end")["data"]["exitCode"], 1);
}

#[test]
fn long_events_are_cut_and_long_answers_come_whole() {
    let world = World::new("");
    let wire = world.follower();
    say(&wire, "big");
    let events = wire.events_until("agent_end");
    let cut = events.iter().find(|event| event["data"]["truncated"] == true).unwrap();
    assert!(cut.to_string().len() <= 600 * 1024);
    say(&wire, "huge");
    assert_eq!(text(&wire.events_until("agent_end")), "You said: huge");
    // 4,000 deltas, each with the whole message twice: about 130 MB on Pi's stdout.
    say(&wire, "long");
    let events = wire.events_until("agent_end");
    assert_eq!(text(&events).len(), 16_000);
    let bytes: usize = events.iter().map(|event| event.to_string().len()).sum();
    assert!(bytes < 4_000 * 400, "{bytes}");
}

#[test]
fn the_end_of_a_session_is_the_end_of_its_pi() {
    let world = World::new("");
    let wire = world.follower();
    say(&wire, "child");
    wire.events_until("message_end");
    let (pi, child) = (world.pi(), world.process("child"));
    let sessions = wire.request("sessions", json!({}));
    let id = sessions["sessions"][0]["id"].clone();
    assert_eq!(sessions["sessions"][0]["isRunning"], true);
    wire.request("quack.session_delete", json!({"sessionId": id, "force": true}));
    wait_for("Pi and its child to end", || (!is_alive(&pi) && !is_alive(&child)).then_some(()));
}

#[test]
fn one_more_pi_than_may_live_takes_the_place_of_an_idle_one() {
    let mut world = World::absent("");
    world.daemon.configure("[pi]\nmax_live = 1\n");
    world.boot(&[]);
    let wire = world.follower();
    say(&wire, "hello");
    wire.events_until("agent_end");
    let first = world.pi();
    let other = world.daemon.repo("other");
    wire.attach(other.path());
    wire.request("follow", json!({}));
    say(&wire, "hang");
    wire.events_until("message_update");
    wait_for("the idle Pi to end", || (!is_alive(&first)).then_some(()));
    // The second Pi is busy, so there is no slot for a third.
    wire.attach(&world.repo);
    let reply = wire.reply("say", json!({"message": "hello", "preferPi": true}));
    let error = reply["error"].as_str().unwrap();
    assert!(error.starts_with("1 agents are busy (pi.max_live)"), "{error}");
    assert_eq!(reply["code"], "busy");
}
