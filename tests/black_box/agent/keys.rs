//! Keys from the shell of a user, and keys that `quack login` stored.

use super::World;
use crate::harness::{FakeModel, Terminal};
use serde_json::json;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output, Stdio};

const CANARY: &str = "sk-canary-Shell9";

/// A world whose daemon runs without a model.
fn without_model() -> World {
    let mut world = World::absent(&json!({"on_exhausted": "echo"}));
    std::fs::remove_file(world.agent.join("models.json")).unwrap();
    world.configure("environment.login_shell = false\n");
    world.boot(&[]);
    world
}

/// A command in a shell whose key goes to this server.
fn in_shell(world: &World, server: &FakeModel, args: &[&str]) -> Command {
    let mut command = world.daemon.command(args);
    command.current_dir(&world.repo).stdin(Stdio::null());
    command.env("OPENAI_API_KEY", CANARY).env("OPENAI_BASE_URL", server.v1());
    command
}

fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat()
}

#[test]
fn the_key_of_a_shell_is_used_at_once_and_stays_in_the_memory_of_the_daemon() {
    let world = without_model();
    let mut plain = world.daemon.command(&["say", "hi"]);
    let refused = plain.current_dir(&world.repo).stdin(Stdio::null()).output().unwrap();
    assert!(text(&refused).contains("quack login openai"), "{}", text(&refused));

    let said = in_shell(&world, &world.model, &["say", "hi"]).output().unwrap();
    assert!(said.status.success() && text(&said).contains("echo: hi"), "{}", text(&said));
    let request = world.model.requests().pop().unwrap();
    assert_eq!(request["headers"]["authorization"], "<redacted>", "the server gets the key");
    // A command without the key uses it too, and says where it is from.
    let shown = world.daemon.quack(&["models"]).ok();
    assert!(shown.contains("OPENAI_API_KEY of your shell"), "{shown}");

    let listed = world.daemon.quack(&["login"]).ok();
    assert!(listed.contains("OPENAI_API_KEY that the daemon has, not of this shell"), "{listed}");
    let listed = world.daemon.quack(&["login", "--json"]).json();
    let openai = (&listed["providers"][0]["variable"], &listed["providers"][0]["daemonVariable"]);
    assert_eq!(openai, (&serde_json::Value::Null, &json!("OPENAI_API_KEY")));

    // The newest shell counts, with its own address.
    let second =
        FakeModel::start(&world.daemon.home().join("second"), &json!({"on_exhausted": "echo"}));
    let said = in_shell(&world, &second, &["say", "again"]).output().unwrap();
    assert!(text(&said).contains("echo: again"), "{}", text(&said));
    assert_eq!((world.model.count("requests"), second.count("requests")), (1, 1));

    let seen =
        world.daemon.command(&["tool", "bash", "env; cat /proc/*/environ | tr '\\0' '\\n'; true"]);
    let seen = { seen }.current_dir(&world.repo).output().unwrap();
    assert!(!text(&seen).contains(CANARY), "a worker has the key");
    let found = world
        .daemon
        .program_for_tests("grep")
        .arg("-rl")
        .arg(CANARY)
        .arg(world.daemon.app())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "", "a file has the key");
}

#[test]
fn a_key_goes_only_to_the_address_of_its_own_shell() {
    let mut world = World::absent(&json!({"on_exhausted": "echo"}));
    std::fs::remove_file(world.agent.join("models.json")).unwrap();
    world.configure("environment.login_shell = false\n");
    let other = format!("OPENAI_BASE_URL={}", world.model.v1());
    world.boot(&[&other, "OPENAI_API_KEY=other"]);
    let mut shell = in_shell(&world, &world.model, &["models"]);
    let shown = shell.env_remove("OPENAI_BASE_URL").output().unwrap();
    assert!(text(&shown).contains("https://api.openai.com/v1"), "{}", text(&shown));
}

#[test]
fn other_variables_are_refused_and_name_no_value() {
    let world = without_model();
    let wire = world.daemon.wire();
    for name in ["PATH", "OPENAI_ORG", "LD_PRELOAD", ""] {
        let error = wire.refused("quack.keys", json!({"variables": {name: CANARY}}));
        assert!(error.contains("no variable of a model provider"), "{error}");
        assert!(!error.contains(CANARY), "{error}");
    }
    let long = "k".repeat(65 * 1024);
    wire.refused("quack.keys", json!({"variables": {"OPENAI_API_KEY": long}}));
    wire.refused("quack.keys", json!({"variables": {"OPENAI_API_KEY": "a\0b"}}));
    let given = wire.request("quack.keys", json!({"variables": {}}));
    assert_eq!(given, json!({"names": [], "inUse": []}));
}

#[test]
fn a_stored_key_is_private_and_used_by_the_next_turn_until_it_is_deleted() {
    let mut world = World::absent(&json!({"on_exhausted": "echo"}));
    std::fs::remove_file(world.agent.join("models.json")).unwrap();
    world.configure("environment.login_shell = false\n");
    let base = format!("OPENAI_BASE_URL={}", world.model.v1());
    world.boot(&[&base]);
    let run = |args: &[&str], input: &str| {
        let mut command = world.daemon.command(args);
        command.current_dir(&world.repo).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    let refused = run(&["login", "opnai"], "");
    assert!(refused.status.code() == Some(2) && text(&refused).contains("did you mean openai?"));
    let refused = run(&["login", "openai"], "two\nlines\n");
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused));

    let stored = run(&["login", "openai"], &format!("{CANARY}\n"));
    assert!(stored.status.success() && !text(&stored).contains(CANARY), "{}", text(&stored));
    let file = world.daemon.app().join("provider-keys.json");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let said = run(&["say", "hi"], "");
    assert!(text(&said).contains("echo: hi"), "{}", text(&said));
    let request = world.model.requests().pop().unwrap();
    assert_eq!(request["headers"]["authorization"], "<redacted>", "the server gets the key");
    let shown = text(&run(&["models"], ""));
    assert!(shown.contains("`quack login`") && !shown.contains(CANARY), "{shown}");
    let listed = text(&run(&["login", "--json"], ""));
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed["providers"][0]["provider"], "openai");
    assert_eq!(listed["providers"][0]["stored"], true);

    // Within the second in which the daemon does not check the file.
    let deleted = run(&["logout", "openai"], "");
    assert!(deleted.status.success(), "{}", text(&deleted));
    let after = text(&run(&["say", "after"], ""));
    let request = world.model.requests().pop().unwrap();
    assert!(after.contains("echo: after"), "a local server needs no key: {after}");
    assert!(request["headers"].get("authorization").is_none(), "{}", request["headers"]);
    let shown = text(&run(&["models"], ""));
    assert!(shown.contains("key       no key"), "{shown}");
    assert!(!std::fs::read_to_string(&file).unwrap().contains(CANARY));
    assert_eq!(run(&["logout", "openai"], "").status.code(), Some(1));
}

#[test]
fn a_typed_key_is_not_shown() {
    let world = without_model();
    let mut command = world.daemon.command(&["login", "anthropic"]);
    command.current_dir(&world.repo);
    let person = Terminal::start(command);
    person.see("Key of anthropic (not shown): ");
    person.type_line(CANARY);
    person.see("Stored the key of anthropic");
    let (screen, code) = person.end();
    let mut command = world.daemon.command(&["login", "anthropic"]);
    command.current_dir(&world.repo);
    let leaving = Terminal::start(command);
    leaving.see("Key of anthropic (not shown): ");
    leaving.interrupt();
    assert_eq!(leaving.end().1, Some(130), "Ctrl-C restores the terminal and leaves");
    assert!(code == Some(0) && !screen.contains(CANARY), "{screen}");
}
