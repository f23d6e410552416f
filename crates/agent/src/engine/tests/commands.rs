//! Commands of clients.

use super::*;
use serde_json::json;

#[test]
fn the_model_and_its_level_are_chosen_recorded_and_kept() {
    let mut bench = Bench::new();
    bench.prompt("hello");
    bench.say("hi");
    let set = bench.send(json!({ "type": "set_model", "provider": "fake", "modelId": "two" }));
    assert_eq!(bench.answered(set).unwrap()["id"], "two");
    let missing = bench.send(json!({ "type": "set_model", "provider": "fake", "modelId": "nope" }));
    assert_eq!(bench.answered(missing), Err("Model not found: fake/nope".into()));
    bench.send(json!({ "type": "set_thinking_level", "level": "xhigh" }));
    assert_eq!(bench.event("thinking_level_changed")["level"], "high");
    let kept = Transcript::read(bench.file().as_bytes()).unwrap();
    let bench = Bench::with(AgentSettings::default(), kept);
    let state = bench.agent.state();
    assert_eq!((&state["model"]["id"], &state["thinkingLevel"]), (&json!("two"), &json!("high")));
    assert!(!state.to_string().contains("null"), "{state}");
}

#[test]
fn commands_of_the_user_are_recorded_outside_of_turns() {
    let mut bench = Bench::new();
    let command = bench.send(json!({ "type": "bash", "command": "echo out; exit 4" }));
    let (number, tool, _) = bench.calls()[0].clone();
    assert_eq!(tool, "bash");
    bench.take(Input::ToolDone(Box::new(AgentToolDone {
        number,
        text: to_raw_value("out\n\n[Exit code: 4]").unwrap(),
        hint: None,
        data: None,
        is_error: true,
        exit_code: Some(4),
        signal: None,
        aborted: false,
        truncated: false,
        full_output_path: None,
        duration_ms: 1,
        user_instructions: None,
    })));
    let data = bench.answered(command).unwrap();
    assert_eq!(
        data,
        json!({ "output": "out\n", "exitCode": 4, "cancelled": false, "truncated": false })
    );
    bench.prompt("what did I run?");
    assert!(bench.request().1.to_string().contains("echo out; exit 4"));
}

#[test]
fn unknown_and_wrong_commands_are_refused_with_their_number() {
    let mut bench = Bench::new();
    let unknown = bench.send(json!({ "type": "no_such_command" }));
    assert_eq!(bench.answered(unknown), Err("Unknown command: no_such_command".into()));
    let name = bench.send(json!({ "type": "set_session_name", "name": " " }));
    assert_eq!(bench.answered(name), Err("Session name cannot be empty".into()));
    let images = json!([{ "mimeType": "text/html", "data": "AA" }]);
    let image = bench.send(json!({ "type": "prompt", "message": "x", "images": images }));
    assert!(bench.answered(image).is_err());
    assert!(bench.agent.is_idle());
}
