//! `quack history` and `quack export` read the session file of an agent.

use super::{World, say};
use serde_json::Value;

const RECORDING: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/session-files/pi-1.5.2.jsonl");

/// The session file of the recording before its fork.
fn recorded() -> String {
    let recording = std::fs::read_to_string(RECORDING).unwrap();
    let file = recording.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let file = file.into_iter().find(|line| line["dir"] == "file").unwrap();
    let lines = file["data"]["lines"].as_array().unwrap();
    lines.iter().map(|line| format!("{line}\n")).collect()
}

#[test]
fn a_conversation_is_listed_and_exported_from_the_session_file() {
    let world = World::new("");
    let wire = world.follower();
    let at = ["-C", world.repo.to_str().unwrap()];
    let quack = |args: &[&str]| world.daemon.quack(&[args, &at].concat());
    let failed = quack(&["history"]);
    assert_eq!(failed.code(), Some(1), "{failed:?}");
    say(&wire, "hello");
    wire.events_until("agent_end");
    let argv: Vec<String> = serde_json::from_str(world.read("argv").trim()).unwrap();
    std::fs::write(&argv[13], recorded()).unwrap();

    let text = quack(&["history"]).ok();
    assert!(text.contains("remember me") && text.contains("echo: second"), "{text}");
    assert!(text.ends_with("5 messages, 1194 tokens, $0.0012\n"), "{text}");
    let json: Value = serde_json::from_str(&quack(&["history", "--json"]).ok()).unwrap();
    assert_eq!((&json["name"], &json["stats"]["userMessages"]), (&"named".into(), &2.into()));

    let markdown = quack(&["export"]).ok();
    assert!(markdown.starts_with("# named\n") && markdown.contains("\nsecond\n"), "{markdown}");
    let target = world.daemon.home().join("out.html");
    let target = target.to_str().unwrap();
    assert_eq!(quack(&["export", "--html", "-o", target]).ok(), "");
    let page = std::fs::read_to_string(target).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("echo: remember me"), "{page}");
}
