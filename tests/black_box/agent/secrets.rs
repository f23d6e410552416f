//! The key of a provider stays in the daemon.

use super::{World, answer, command, only, say, state, text, turn};
use crate::harness::{untested, wait_for, write_program};
use serde_json::{Value, json};
use std::path::Path;

const CANARY: &str = "sk-canary-Zq7";

/// A world whose model is configured by variables with a key.
#[track_caller]
fn world(script: &Value, config: &str) -> World {
    let mut world = World::absent(script);
    std::fs::remove_file(world.agent.join("models.json")).unwrap();
    world.configure(config);
    let base = format!("OPENAI_BASE_URL={}", world.model.v1());
    world.boot(&[&base, &format!("OPENAI_API_KEY={CANARY}")]);
    world
}

#[track_caller]
fn assert_absent(what: &str, bytes: &[u8]) {
    let found = bytes.windows(CANARY.len()).any(|part| part == CANARY.as_bytes());
    assert!(!found, "the key is in {what}");
}

/// Asserts that no file below this directory has the key. Returns the number of files.
#[track_caller]
fn assert_absent_below(dir: &Path) -> usize {
    let mut n = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let Ok(found) = path.symlink_metadata() else { continue };
        if found.is_dir() {
            n += assert_absent_below(&path);
        } else if found.is_file() {
            assert_absent(&path.display().to_string(), &std::fs::read(&path).unwrap_or_default());
            n += 1;
        }
    }
    n
}

#[test]
fn the_key_is_in_no_file_event_reply_log_or_other_process() {
    let tool = json!({"name": "bash", "arguments": {
        "command": "env; cat /proc/self/environ; tr '\\0' '\\n' </proc/$PPID/environ; echo end"}});
    let world = world(
        &json!({"replies": [{"tool_calls": [tool]}, {"text": "done"},
            {"status": 401, "error": format!("Incorrect API key provided: {CANARY}")},
            {"text": "slow", "hang_after": 0, "hang_ms": 600_000}]}),
        "[log]\nlevel = \"debug\"\n",
    );
    let wire = world.follower();
    let mut events = turn(&wire, "show the environment");
    let shown = text(&only(&events, "tool_execution_end")["result"]);
    assert!(shown.contains("PATH=") && shown.contains("end"), "{shown}");
    let request = world.model.requests().pop().unwrap();
    assert_eq!(request["headers"]["authorization"], "<redacted>", "the server gets the key");
    // A provider may repeat the key in its error.
    events.extend(turn(&wire, "fail"));
    let told = answer(&events)["errorMessage"].as_str().unwrap().to_owned();
    assert!(told.starts_with("401 "), "{told}");
    say(&wire, "hang");
    wait_for("the third request", || (world.model.count("requests") == 4).then_some(()));

    assert_absent("an event", Value::from(events).to_string().as_bytes());
    for value in [
        state(&wire),
        command(&wire, json!({"type": "get_available_models"})),
        command(&wire, json!({"type": "get_messages"})),
    ] {
        assert_absent("an answer of the agent", value.to_string().as_bytes());
    }
    for method in [
        "get_state",
        "quack.models",
        "quack.config",
        "quack.ps",
        "doctor",
        "sessions",
        "quack.logs",
        "quack.env",
    ] {
        // Some methods may not exist; a refusal has no key either.
        let reply = wire.reply(method, json!({}));
        assert_absent(method, reply.to_string().as_bytes());
    }
    for verb in [
        &["models", "--json"][..],
        &["config", "show", "--json"],
        &["ps", "--json"],
        &["doctor", "--json"],
        &["history", "--json"],
    ] {
        let ran = world.daemon.quack(verb);
        assert_absent(verb[0], ran.stdout().as_bytes());
        assert_absent(verb[0], ran.stderr().as_bytes());
    }
    let below = world.daemon.descendants();
    let names: Vec<_> = below.iter().map(|process| process.name.as_str()).collect();
    assert!(names.contains(&"quack-agent") && 2 <= below.len(), "{names:?}");
    for process in &below {
        for file in ["environ", "cmdline"] {
            let path = format!("/proc/{}/{file}", process.pid);
            let Ok(bytes) = std::fs::read(&path) else { continue };
            assert_absent(&format!("{file} of {}", process.name), &bytes);
        }
    }
    wire.request("abort", json!({}));
    assert!(3 <= assert_absent_below(&world.daemon.app()));
    assert_absent("the log", world.daemon.log().as_bytes());
}

#[test]
fn a_key_in_the_configuration_is_not_shown() {
    let mut world = World::absent(&json!({"on_exhausted": "echo"}));
    std::fs::remove_file(world.agent.join("models.json")).unwrap();
    world.configure(&format!(
        "[model]\nbase_url = \"{}\"\nname = \"fake-1\"\nkey = \"{CANARY}\"\n",
        world.model.v1()
    ));
    use std::os::unix::fs::PermissionsExt;
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(world.daemon.app().join("quackd.toml"), private).unwrap();
    world.boot(&[]);
    let wire = world.follower();
    let events = turn(&wire, "hello");
    assert_eq!(text(answer(&events)), "echo: hello");
    assert_absent("an event", Value::from(events).to_string().as_bytes());
    for method in ["get_state", "quack.models", "quack.config", "quack.ps", "doctor"] {
        assert_absent(method, wire.reply(method, json!({})).to_string().as_bytes());
    }
    let shown = world.daemon.quack(&["config", "show"]);
    assert_absent("config show", shown.ok().as_bytes());
    assert_absent("the log", world.daemon.log().as_bytes());
}

#[test]
fn without_network_a_command_cannot_reach_the_model_server() {
    for (mode, is_reachable) in [("on", true), ("off", false)] {
        let mut world = World::absent(&json!({}));
        let address = world.model.root();
        let port = address.rsplit(':').next().unwrap();
        let command = format!("exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected");
        let call = json!({"name": "bash", "arguments": {"command": command}});
        world.model.script(&json!({"replies": [{"tool_calls": [call]}, {"text": "done"}]}));
        world.configure(&format!("[sandbox]\nnetwork = \"{mode}\"\n"));
        world.boot(&[]);
        let wire = world.follower();
        let events = turn(&wire, "connect");
        let end = only(&events, "tool_execution_end");
        let is_connected = text(&end["result"]).contains("connected\n");
        let ps = wire.request("quack.ps", json!({}));
        if !is_reachable && is_connected && !ps["workers"][0].to_string().contains("\"confined\"") {
            return untested("commands are not confined on this machine");
        }
        assert_eq!(is_connected, is_reachable, "{mode}: {end}");
        assert_eq!(text(answer(&events)), "done", "the agent itself reaches it");
    }
}

#[test]
fn a_key_in_the_keychain_is_read_once_and_a_missing_one_is_explained() {
    let mut world = World::absent(&json!({"on_exhausted": "echo"}));
    std::fs::remove_file(world.agent.join("models.json")).unwrap();
    let base = world.model.v1();
    world.configure(&format!(
        "model.base_url = \"{base}\"\nmodel.name = \"m\"\nmodel.key = \"keychain:work@example\"\n\
        environment.login_shell = false\n"
    ));
    let bin = world.daemon.home().join("keychain");
    std::fs::create_dir(&bin).unwrap();
    let calls = bin.join("calls");
    let program = |name: &str, end: &str| {
        let script = format!("#!/bin/sh\necho \"$@\" >> {}\n{end}\n", calls.display());
        write_program(&bin.join(name), script);
    };
    let name = if cfg!(target_os = "macos") { "security" } else { "secret-tool" };
    program(name, "exit 1");
    let path = format!("PATH={}:{}", bin.display(), std::env::var("PATH").unwrap());
    world.boot(&[&path]);
    let shown = world.daemon.quack(&["models"]);
    let shown = shown.stdout() + &shown.stderr();
    assert!(shown.contains("the keychain has no key for work@example"), "{shown}");
    world.daemon.quack(&["stop", "--yes"]).ok();

    program(name, &format!("echo {CANARY}"));
    world.boot(&[&path]);
    let wire = world.follower();
    for message in ["one", "two"] {
        assert_eq!(text(answer(&turn(&wire, message))), format!("echo: {message}"));
    }
    let request = world.model.requests().pop().unwrap();
    assert_eq!(request["headers"]["authorization"], "<redacted>", "the server gets the key");
    let calls = std::fs::read_to_string(calls).unwrap();
    let calls: Vec<&str> = calls.lines().collect();
    assert!(calls.len() == 2 && calls[1].contains("work@example"), "{calls:?}");
    assert_absent("the log", world.daemon.log().as_bytes());
    assert_absent_below(&world.daemon.app());
}
