//! `quack rpc` answers as the newest Pi does.

use super::World;
use super::rpc::{Rpc, echo};
use serde_json::{Value, json};

fn state(rpc: &Rpc) -> Value {
    rpc.call(json!({"type": "get_state"}))["data"].take()
}

#[test]
fn an_edit_is_described_with_diff_patch_and_line() {
    let edit = json!({"name": "edit", "arguments": {"path": "a.txt", "edits": [
        {"oldText": "two", "newText": "TWO"}]}});
    let world = World::new(&json!({"replies": [{"tool_calls": [edit]}], "on_exhausted": "echo"}));
    std::fs::write(world.repo.join("a.txt"), "one\ntwo\nthree\n").unwrap();
    let rpc = Rpc::start(&world, &["--no-session"]);
    let lines = rpc.turn("go");
    let end = lines.iter().find(|line| line["type"] == "tool_execution_end").expect("a call");
    // As Pi 1.6.0 answers the same edit.
    let expected = json!({
        "diff": " 1 one\n-2 two\n+2 TWO\n 3 three",
        "patch": "--- a.txt\n+++ a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n",
        "firstChangedLine": 2,
    });
    assert_eq!(end["result"]["details"], expected, "{end}");
    let messages = rpc.call(json!({"type": "get_messages"}))["data"]["messages"].take();
    assert_eq!(messages[2]["details"], expected, "{messages}");
}

#[test]
fn a_new_session_keeps_the_settings_of_the_client() {
    let world = echo();
    let rpc = Rpc::start(&world, &[]);
    for command in [
        json!({"type": "set_steering_mode", "mode": "all"}),
        json!({"type": "set_follow_up_mode", "mode": "all"}),
        json!({"type": "set_auto_compaction", "enabled": false}),
        json!({"type": "set_auto_retry", "enabled": false}),
        json!({"type": "set_thinking_level", "level": "high"}),
        json!({"type": "set_model", "provider": "fake", "modelId": "fake-2"}),
        json!({"type": "steer", "message": "queued"}),
        json!({"type": "new_session"}),
    ] {
        assert_eq!(rpc.call(command.clone())["success"], true, "{command}");
    }
    let new = state(&rpc);
    let kept = |state: &Value| {
        ["steeringMode", "followUpMode", "autoCompactionEnabled", "autoRetryEnabled"]
            .map(|name| state[name].clone())
    };
    let expected: [Value; 4] = ["all".into(), "all".into(), false.into(), false.into()];
    assert_eq!(kept(&new), expected, "{new}");
    assert_eq!((&new["model"]["id"], &new["pendingMessageCount"]), (&"fake-2".into(), &0.into()));
    rpc.turn("hello");
    assert_eq!(rpc.call(json!({"type": "clone"}))["success"], true);
    assert_eq!(kept(&state(&rpc)), expected);
    assert_eq!(rpc.end(), Some(0));
    // The model and the level of the command line are those of each new session.
    let rpc = Rpc::start(&world, &["--model", "fake/fake-1:low"]);
    rpc.call(json!({"type": "set_model", "provider": "fake", "modelId": "fake-2"}));
    rpc.call(json!({"type": "new_session"}));
    let new = state(&rpc);
    assert_eq!((&new["model"]["id"], &new["thinkingLevel"]), (&"fake-1".into(), &"low".into()));
}

#[test]
fn a_conversation_has_a_tree_and_a_page() {
    let world = echo();
    let rpc = Rpc::start(&world, &[]);
    let empty = rpc.call(json!({"type": "get_tree"}))["data"].take();
    assert_eq!(empty["tree"].as_array().map(Vec::len), Some(0), "{empty}");
    rpc.turn("first <b>");
    let entries = rpc.call(json!({"type": "get_entries"}))["data"].take();
    let tree = rpc.call(json!({"id": 5, "type": "get_tree"}));
    assert_eq!((&tree["id"], &tree["success"]), (&5.into(), &true.into()));
    let mut node = &tree["data"]["tree"][0];
    for entry in entries["entries"].as_array().expect("entries") {
        assert_eq!(&node["entry"], entry);
        node = &node["children"][0];
    }
    assert_eq!(*node, Value::Null);
    assert_eq!(tree["data"]["leafId"], entries["leafId"]);
    let page = world.repo.join("page.html");
    let written = rpc.call(json!({"type": "export_html", "outputPath": page}));
    assert_eq!(written["data"], json!({"path": page}), "{written}");
    assert!(std::fs::read_to_string(&page).unwrap().contains("first &lt;b&gt;"));
    let file = state(&rpc)["sessionFile"].take();
    let name = std::path::Path::new(file.as_str().unwrap()).file_stem().unwrap().to_owned();
    let named = format!("pi-session-{}.html", name.display());
    assert_eq!(rpc.call(json!({"type": "export_html"}))["data"], json!({"path": named}));
    assert!(world.repo.join(named).exists());
}

#[test]
fn a_file_that_does_not_exist_is_a_conversation_that_begins() {
    let world = echo();
    let missing = world.daemon.home().join("elsewhere/2026-11-28T01-07-08-398Z_my-task.jsonl");
    let switch = json!({"type": "switch_session", "sessionPath": missing});
    let rpc = Rpc::start(&world, &[]);
    rpc.turn("another one");
    assert_eq!(rpc.call(switch.clone())["data"], json!({"cancelled": false}));
    let new = state(&rpc);
    assert_eq!((&new["messageCount"], &new["sessionId"]), (&0.into(), &"my-task".into()), "{new}");
    rpc.turn("hello");
    rpc.call(json!({"type": "new_session"}));
    assert_eq!(rpc.call(switch)["success"], true);
    assert_eq!(state(&rpc)["messageCount"], 2);
    let foreign = json!({"type": "switch_session", "sessionPath": world.agent.join("models.json")});
    let refused = rpc.call(foreign);
    assert_eq!(refused["success"], false, "{refused}");
    assert_eq!(state(&rpc)["messageCount"], 2, "the session stays");
    assert_eq!(rpc.end(), Some(0));
    let named = missing.to_str().unwrap();
    let again = Rpc::start(&world, &["--session", named]);
    assert_eq!(state(&again)["messageCount"], 2);
    assert_eq!(again.end(), Some(0));
    let other = Rpc::start(&world, &["--session", "../other.jsonl"]);
    assert_eq!(state(&other)["messageCount"], 0);
}

#[test]
fn a_summary_is_announced_with_the_names_of_the_newest_pi_or_of_the_old_one() {
    for (args, begin, end) in [
        (&[][..], "compaction_start", "compaction_end"),
        (&["--dialect", "0.55"], "auto_compaction_start", "auto_compaction_end"),
    ] {
        let world = echo();
        let rpc = Rpc::start(&world, args);
        rpc.turn("hello");
        rpc.send(&json!({"type": "compact"}));
        let lines: Vec<Value> = (0..3).map(|_| rpc.line()).collect();
        let of = |kind: &str| lines.iter().find(|line| line["type"] == kind).expect(kind);
        let (begin, end_line) = (of(begin), of(end));
        assert_eq!((&begin["reason"], &end_line["reason"]), (&"manual".into(), &"manual".into()));
        assert_eq!(end_line.get("result").is_some(), end.starts_with("auto"), "{lines:?}");
        assert_eq!(end_line["aborted"], false, "{lines:?}");
        assert_eq!(of("response")["success"], false, "{lines:?}");
    }
}
