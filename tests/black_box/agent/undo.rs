//! The changes of a turn of the agent are listed with the turn, and taken back together.

use super::{World, turn};
use crate::mcp::Agent;
use serde_json::{Value, json};
use std::fs;

fn call(name: &str, arguments: Value) -> Value {
    json!({"tool_calls": [{"name": name, "arguments": arguments}]})
}

#[test]
fn everything_that_a_turn_changed_is_taken_back_and_what_a_person_wrote_stays() {
    let mut world = World::new(&json!({"replies": [
        call("write", json!({"path": "a.txt", "content": "first turn\n"})), {"text": "done"},
        call("edit", json!({"path": "a.txt", "oldText": "first", "newText": "second"})),
        call("write", json!({"path": "new/b.txt", "content": "b\n"})),
        call("write", json!({"path": "mine.txt", "content": "agent\n"})), {"text": "done"},
        call("write", json!({"path": "a.txt", "content": "third turn\n"})), {"text": "done"}]}));
    let at = |name: &str| world.repo.join(name);
    let read = |name: &str| fs::read_to_string(world.repo.join(name)).ok();
    fs::write(at("a.txt"), "a person's\n").unwrap();
    let wire = world.follower();
    turn(&wire, "one");
    turn(&wire, "two");
    fs::write(at("mine.txt"), "a person's\n").unwrap();

    let directory = world.repo.to_str().unwrap();
    let run = |args: &[&str]| world.daemon.quack(&[args, &["-C", directory]].concat());
    let listed = run(&["changes", "--turn", "--json"]).json();
    let entries = listed["entries"].as_array().unwrap();
    let paths: Vec<_> =
        entries.iter().map(|it| it["changes"][0]["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["mine.txt", "new/b.txt", "a.txt"], "{listed}");
    assert!(entries.iter().all(|it| it["turn"] == 2), "{listed}");
    // The id of a call is that of the journal.
    let id = entries[2]["callId"].as_str().unwrap();
    let record = world.daemon.quack(&["log", "show", id, "--json"]).json();
    assert_eq!((&record["tool"], &record["turn"]), (&"edit_file".into(), &2.into()), "{record}");

    let undone = run(&["undo", "--turn"]);
    assert_eq!(undone.code(), Some(1), "{}", undone.stderr());
    let text = undone.stdout();
    assert!(text.contains("mine.txt: not changed: changed since\n"), "{text}");
    assert!(text.contains("new/b.txt: deleted, because the change had created it\n"), "{text}");
    assert_eq!(read("a.txt").unwrap(), "first turn\n");
    assert_eq!((read("new/b.txt"), read("mine.txt").unwrap().as_str()), (None, "a person's\n"));
    run(&["undo", "--turn", "1"]).ok();
    assert_eq!(read("a.txt").unwrap(), "a person's\n");

    // The turns of the next daemon are others, although they have the same numbers.
    drop(wire);
    world.daemon.signal(nix::sys::signal::Signal::SIGTERM);
    world.daemon.wait();
    world.boot(&[]);
    let wire = world.follower();
    turn(&wire, "three");
    let read = |name: &str| fs::read_to_string(world.repo.join(name)).ok();
    assert_eq!(read("a.txt").unwrap(), "third turn\n");
    let undone = world.daemon.quack(&["undo", "--turn", "1", "-C", world.repo.to_str().unwrap()]);
    assert!(undone.ok().starts_with("a.txt: restored\n"));
    assert_eq!(read("a.txt").unwrap(), "a person's\n");
}

#[test]
fn an_editor_takes_back_a_turn_with_a_command() {
    let world = World::new(&json!({"replies": [
        call("write", json!({"path": "a.txt", "content": "agent\n"})), {"text": "done"}]}));
    fs::write(world.repo.join("a.txt"), "a person's\n").unwrap();
    let mut editor = Agent::spawn(world.daemon.command(&["acp"]));
    let hello = json!({"protocolVersion": 1, "clientCapabilities": {}});
    editor.request("initialize", hello);
    let new = editor.request("session/new", json!({"cwd": world.repo, "mcpServers": []}));
    let session = new["result"]["sessionId"].as_str().unwrap().to_owned();
    let offered = editor.message(|message| {
        message["params"]["update"]["sessionUpdate"] == "available_commands_update"
            && message["params"]["update"]["availableCommands"] != json!([])
    });
    let commands = &offered["params"]["update"]["availableCommands"];
    assert!(commands.as_array().unwrap().iter().any(|it| it["name"] == "undo"), "{offered}");

    let prompt = |editor: &mut Agent, text: &str| {
        let prompt = json!([{"type": "text", "text": text}]);
        let answer =
            editor.request("session/prompt", json!({"sessionId": session, "prompt": prompt}));
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    };
    let read = || fs::read_to_string(world.repo.join("a.txt")).unwrap();
    prompt(&mut editor, "change it");
    assert_eq!(read(), "agent\n");
    prompt(&mut editor, "/undo");
    assert_eq!(read(), "a person's\n");
    assert_eq!(world.model.count("requests"), 2, "the model does not get the command");
}
