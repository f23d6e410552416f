//! Answers with tool calls.

use super::answers::{ANSWER, BEGIN, END};
use super::{World, all, answer, assert_order, only, order, say, state, stored, text, turn};
use crate::harness::{is_alive, wait_for};
use serde_json::{Value, json};

const CALL: &str = "toolcall_start, toolcall_delta, toolcall_end";
const RESULT: &str = "message_start toolResult, message_end toolResult";

fn call(name: &str, arguments: Value) -> Value {
    json!({"tool_calls": [{"name": name, "arguments": arguments}]})
}

/// The text of each result in a turn.
fn results(events: &[Value]) -> Vec<String> {
    let ends = all(events, "tool_execution_end").into_iter();
    ends.map(|end| text(&end["result"])).collect()
}

#[test]
fn a_command_runs_and_its_result_goes_to_the_model() {
    let mut first = call("bash", json!({"command": "echo one; echo two"}));
    first["text"] = "Running it. ".into();
    let world = World::new(&json!({"replies": [first, {"text": "It printed two lines."}]}));
    let wire = world.follower();
    let events = turn(&wire, "count");
    let events: Vec<Value> =
        events.into_iter().filter(|event| event["event"] != "tool_execution_update").collect();
    assert_order(
        &events,
        &[
            BEGIN,
            "message_start assistant, text_start, text_delta, text_end",
            CALL,
            "message_end assistant, tool_execution_start, tool_execution_end",
            RESULT,
            "turn_end, turn_start",
            ANSWER,
            END,
        ],
    );
    let start = only(&events, "tool_execution_start");
    assert_eq!(
        (&start["toolName"], &start["args"]),
        (&"bash".into(), &json!({"command": "echo one; echo two"}))
    );
    let end = only(&events, "tool_execution_end");
    assert_eq!((&end["isError"], &end["exitCode"]), (&false.into(), &0.into()));
    assert_eq!(end["toolCallId"], start["toolCallId"]);
    let turns = all(&events, "turn_end");
    assert_eq!(turns[0]["toolResults"][0]["toolCallId"], start["toolCallId"]);
    assert!(text(&turns[0]["toolResults"][0]).starts_with("one\ntwo\n"));
    let told = world.model.state()["requests"][1]["last_tool"].take();
    assert!(told.as_str().unwrap().starts_with("one\ntwo\n"), "{told}");
    let expected = ["user", "assistant toolUse", "toolResult", "assistant stop"];
    assert_eq!(stored(&state(&wire)["sessionFile"]), expected);
}

#[test]
fn the_model_reads_which_signal_ended_a_command() {
    let killed = call("bash", json!({"command": "echo one; kill -9 $$"}));
    let world = World::new(&json!({"replies": [killed, {"text": "It was killed."}]}));
    let events = turn(&world.follower(), "try");
    let result = results(&events).remove(0);
    assert!(result.starts_with("one\n") && result.ends_with("[Killed by signal 9]"), "{result}");
    let told = world.model.state()["requests"][1]["last_tool"].take();
    assert!(told.as_str().unwrap().ends_with("[Killed by signal 9]"), "{told}");
}

#[test]
fn output_of_a_command_comes_while_it_runs() {
    let world = World::absent(&json!({}));
    let command = world.daemon.gated("go", "echo end");
    world.model.script(&json!({"replies": [
        call("bash", json!({"command": format!("echo begun; {command}")})), {"text": "done"}]}));
    let mut world = world;
    world.boot(&[]);
    let wire = world.follower();
    say(&wire, "run");
    let events = wire.events_until("tool_execution_update");
    assert_eq!(text(&events.last().unwrap()["data"]["partialResult"]), "begun\n");
    world.daemon.open_gate("go");
    let events = wire.events_until("agent_settled");
    assert!(results(&events)[0].starts_with("begun\nend\n"), "{events:?}");
}

#[test]
fn several_calls_end_in_any_order_and_their_results_keep_the_order_of_the_answer() {
    let calls = json!({"tool_calls": [
        {"name": "bash", "arguments": {"command": "echo first; exit 3"}},
        {"name": "ls", "arguments": {"path": "."}}, {"name": "nosuch", "arguments": {}},
        {"name": "read", "arguments": {"offset": 2}}, {"name": "read", "arguments": "{\"path\": "}]});
    let world = World::new(&json!({"replies": [calls, {"text": "done"}]}));
    let wire = world.follower();
    let events = turn(&wire, "five tools");
    let starts: Vec<_> =
        all(&events, "tool_execution_start").iter().map(|it| it["toolCallId"].clone()).collect();
    let expected = ["call_1_0", "call_1_1", "call_1_2", "call_1_3", "call_1_4"];
    assert_eq!(starts, expected);
    let end = |id: &str| {
        let ends = all(&events, "tool_execution_end").into_iter();
        ends.filter(|end| end["toolCallId"] == id).collect::<Vec<_>>()
    };
    let facts = |id: &str| {
        let end = end(id);
        assert_eq!(end.len(), 1, "{id}");
        (end[0]["isError"].as_bool().unwrap(), text(&end[0]["result"]), end[0]["exitCode"].clone())
    };
    assert_eq!((facts("call_1_0").0, facts("call_1_0").2), (true, 3.into()));
    assert!(!facts("call_1_1").0 && facts("call_1_1").1.contains("README.md"));
    let unknown = "Tool nosuch not found. The tools are: read_file, write_file, edit_file, bash, ";
    assert!(facts("call_1_2").0 && facts("call_1_2").1.starts_with(unknown));
    assert!(facts("call_1_3").0 && facts("call_1_3").1.contains("path"));
    // Only complete arguments are executed.
    assert!(
        facts("call_1_4").0 && facts("call_1_4").1.contains("invalid"),
        "{:?}",
        facts("call_1_4")
    );
    let messages = all(&events, "message_end").into_iter().map(|it| &it["message"]);
    let results: Vec<_> = messages
        .filter(|it| it["role"] == "toolResult")
        .map(|it| it["toolCallId"].clone())
        .collect();
    assert_eq!(results, expected);
    let order = order(&events);
    let last_end = order.iter().rposition(|it| it == "tool_execution_end").unwrap();
    let first_result = order.iter().position(|it| it == "message_start toolResult").unwrap();
    assert!(last_end < first_result, "{order:?}");
    assert_eq!(text(answer(&events)), "done");
}

#[test]
fn the_file_tools_take_the_arguments_of_pi() {
    let world = World::absent(&json!({}));
    std::fs::write(world.repo.join("a.txt"), "one\ntwo\nthree\nfour\nfive\nsix\n").unwrap();
    let big: String = (0..50).map(|n| format!("line {n:05}\n")).collect();
    std::fs::write(world.repo.join("big.txt"), big).unwrap();
    let edits =
        json!([{"oldText": "four", "newText": "FOUR"}, {"oldText": "six", "newText": "SIX"}]);
    world.model.script(&json!({"replies": [
        call("write", json!({"path": "sub/new.txt", "content": "héllo\nx\n"})),
        call("edit", json!({"path": "a.txt", "oldText": "two\nthree", "newText": "TWO\nTHREE"})),
        call("edit", json!({"path": "a.txt", "edits": edits})),
        call("edit", json!({"path": "a.txt", "oldText": "absent", "newText": "x"})),
        call("read", json!({"path": "a.txt", "offset": 2, "limit": 2})),
        call("read", json!({"path": "big.txt"})),
        call("ls", json!({})),
        call("grep", json!({"pattern": "needle"})),
        call("find", json!({"pattern": "*.rs"})),
        call("bash", json!({"command": "seq 1 20000"})),
        call("bash", json!({"command": "sleep 60", "timeout": 0.2})),
        {"text": "done"}]}));
    let mut world = world;
    world.boot(&[]);
    let wire = world.follower();
    let events = turn(&wire, "use the tools");
    let results = results(&events);
    let parts = [
        "9 bytes",
        "a.txt",
        "2 edits",
        "not found",
        "TWO\nTHREE",
        "line 00000",
        "sub/",
        "needle",
        "main.rs",
        "20000",
        "timed out",
    ];
    for (result, part) in results.iter().zip(parts) {
        assert!(result.contains(part), "no {part} in {result:.300}");
    }
    assert_eq!(results.len(), parts.len());
    let failed: Vec<_> =
        all(&events, "tool_execution_end").iter().map(|it| it["isError"] == true).collect();
    let expected = [false, false, false, true, false, false, false, false, false, false, true];
    assert_eq!(failed, expected);
    let edited = std::fs::read_to_string(world.repo.join("a.txt")).unwrap();
    assert_eq!(edited, "one\nTWO\nTHREE\nFOUR\nfive\nSIX\n");
    assert_eq!(std::fs::read_to_string(world.repo.join("sub/new.txt")).unwrap(), "héllo\nx\n");
}

#[test]
fn edits_keep_line_ends_and_find_text_that_looks_the_same() {
    let world = World::absent(&json!({}));
    let path = world.repo.join("a.txt");
    std::fs::write(&path, "one\r\nsay \u{201c}two\u{201d} \r\nthree\r\n").unwrap();
    let edit = |old: &str, new: &str| {
        call("edit", json!({"path": "a.txt", "oldText": old, "newText": new}))
    };
    world.model.script(&json!({"replies": [
        edit("one", "zero\none"),
        edit("say \"two\"\nthree", "say \"two\"\nTHREE\nfour"),
        edit("\tsay \"two\"", ""),
        {"text": "done"}]}));
    let mut world = world;
    world.boot(&[]);
    let wire = world.follower();
    let events = turn(&wire, "edit");
    let results = results(&events);
    assert_eq!(results[0], "Successfully edited a.txt");
    let note = "[Note: from line 3 the file has other quotes, dashes or spaces and other blanks at line ends than old_text; ";
    assert!(results[1].contains(note), "{}", results[1]);
    assert!(
        results[2].contains("not found") && results[2].contains("copy the text from it"),
        "{}",
        results[2]
    );
    assert_eq!(
        std::fs::read_to_string(&path).unwrap(),
        "zero\r\none\r\nsay \u{201c}two\u{201d} \r\nTHREE\r\nfour\r\n"
    );
}

#[test]
fn abort_ends_a_command_and_the_turn_and_leaves_no_process() {
    let reply = call("bash", json!({"command": "echo started; sleep 300; echo never"}));
    let world = World::new(&json!({"replies": [reply, {"text": "after"}]}));
    let wire = world.follower();
    say(&wire, "sleep");
    let mut events = wire.events_until("tool_execution_update");
    let sleeping = wait_for("the command to run", || {
        world.daemon.descendants().into_iter().find(|it| it.name == "sleep")
    });
    wire.request("abort", json!({}));
    events.extend(wire.events_until("agent_settled"));
    let order = order(&events);
    let at = order.iter().position(|it| it == "tool_execution_end").unwrap();
    let expected = [
        "tool_execution_end",
        "message_start toolResult",
        "message_end toolResult",
        "turn_end",
        "turn_start",
        "message_start assistant",
        "message_end assistant",
        "turn_end",
        "agent_end",
        "agent_settled",
    ];
    assert_eq!(order[at..], expected);
    let end = only(&events, "tool_execution_end");
    assert_eq!(end["isError"], true);
    let shown = text(&end["result"]);
    assert!(shown.starts_with("started\n") && shown.contains("aborted"), "{shown}");
    assert_eq!(answer(&events)["stopReason"], "aborted");
    wait_for("the command to end", || (!is_alive(&sleeping)).then_some(()));
    assert_eq!(world.model.count("requests"), 1);
    assert_eq!(text(answer(&turn(&wire, "again"))), "after");
    let expected =
        ["user", "assistant toolUse", "toolResult", "assistant aborted", "user", "assistant stop"];
    assert_eq!(stored(&state(&wire)["sessionFile"]), expected);
}

#[test]
fn a_model_that_repeats_one_call_is_told_and_then_stopped() {
    let reply = call("bash", json!({"command": "true"}));
    let world = World::new(&json!({"replies": [reply], "on_exhausted": "repeat_last"}));
    let wire = world.follower();
    let events = turn(&wire, "loop");
    let results = results(&events);
    assert_eq!(results.len(), 8, "{results:?}");
    assert!(!results[2].contains("times in a row") && results[3].contains("4 times in a row"));
    assert!(results[7].starts_with("Not run"), "{results:?}");
    assert_eq!(only(&events, "agent_end")["reason"], "loop");
    assert_eq!(world.model.count("requests"), 8);
}

#[test]
fn a_run_ends_at_the_limit_of_requests() {
    let replies: Vec<_> =
        (0..9).map(|n| call("bash", json!({"command": format!("echo {n}")}))).collect();
    let config = "[agent]\nmax_turns = 3\n";
    let world = World::with(&json!({"replies": replies}), &json!({}), config);
    let wire = world.follower();
    let events = turn(&wire, "much");
    assert_eq!(only(&events, "agent_end")["reason"], "max_turns");
    let told = answer(&events)["errorMessage"].as_str().unwrap();
    assert!(told.contains("agent.max_turns"), "{told}");
    assert_eq!(world.model.count("requests"), 3);
}
