//! Answers without tools, and turns that the user aborts.

use super::{
    World, all, answer, answers, assert_order, command, fast, only, order, say, state, stored,
    text, turn,
};
use crate::harness::{Running, wait_for};
use serde_json::{Value, json};

/// The events of a prompt up to its first answer.
pub(super) const BEGIN: &str = "agent_start, turn_start, message_start user, message_end user";
/// The events of a plain answer in a turn.
pub(super) const ANSWER: &str =
    "message_start assistant, text_start, text_delta, text_end, message_end assistant";
pub(super) const END: &str = "turn_end, agent_end, agent_settled";

#[test]
fn an_answer_with_reasoning_has_the_order_and_the_fields_that_pi_has() {
    let world = World::new(&json!({"replies": [{"text": "Hello there, wörld ✓",
        "reasoning": "Greeting first.",
        "usage": {"prompt": 100, "completion": 20, "cached": 60, "reasoning": 5}}]}));
    let wire = world.follower();
    let events = turn(&wire, "Say hello");
    assert_order(
        &events,
        &[
            BEGIN,
            "message_start assistant, thinking_start, thinking_delta, thinking_end",
            "text_start, text_delta, text_end, message_end assistant",
            END,
        ],
    );
    let message = answer(&events);
    let thinking = json!({"type": "thinking", "thinking": "Greeting first.",
        "thinkingSignature": "reasoning_content"});
    assert_eq!(
        message["content"],
        json!([thinking, {"type": "text", "text": "Hello there, wörld ✓"}])
    );
    for (name, expected) in [
        ("api", "openai-completions"),
        ("provider", "fake"),
        ("model", "fake-1"),
        ("stopReason", "stop"),
    ] {
        assert_eq!(message[name], expected);
    }
    let end = only(&events, "agent_end");
    assert_eq!((&end["messages"][1], end["willRetry"].as_bool()), (message, Some(false)));
    assert_eq!(&only(&events, "turn_end")["message"], message);
    assert_eq!(stored(&state(&wire)["sessionFile"]), ["user", "assistant stop"]);
}

#[test]
fn reasoning_tokens_are_not_counted_twice() {
    let world = World::new(&json!({"replies": [{"text": "x", "reasoning": "y",
        "usage": {"prompt": 100, "completion": 20, "cached": 60, "reasoning": 5}}]}));
    let wire = world.follower();
    let events = turn(&wire, "count");
    let usage = &answer(&events)["usage"];
    let expected =
        json!({"input": 40, "output": 20, "cacheRead": 60, "cacheWrite": 0, "totalTokens": 120});
    for (name, expected) in expected.as_object().unwrap() {
        assert_eq!(&usage[name], expected, "{name} of {usage}");
    }
    let cost = usage["cost"]["total"].as_f64().unwrap();
    assert!((cost - 0.000_086).abs() < 1e-12, "{cost}");
    let stats = command(&wire, json!({"type": "get_session_stats"}));
    assert_eq!((&stats["tokens"]["output"], &stats["tokens"]["total"]), (&20.into(), &120.into()));
}

#[test]
fn deltas_come_without_the_message_so_far_and_grow_with_the_answer_only() {
    let world =
        World::new(&json!({"replies": [{"text": "word ", "repeat": 8000, "chunk_chars": 20}]}));
    let wire = world.follower();
    let events = turn(&wire, "long");
    assert_eq!(text(answer(&events)).len(), 40_000);
    let deltas = all(&events, "message_update");
    assert!(deltas.iter().all(|it| it["message"] == json!({"role": "assistant"})));
    assert!(deltas.iter().all(|it| it["assistantMessageEvent"].get("partial").is_none()));
    let told: String =
        deltas.iter().filter_map(|it| it["assistantMessageEvent"]["delta"].as_str()).collect();
    assert_eq!(told.len(), 40_000, "every byte once");
    // Pi 0.55 sent 408 MB.
    let bytes: usize = events.iter().map(|event| event.to_string().len()).sum();
    assert!(bytes < 1_500_000, "{bytes}");
}

#[test]
fn an_answer_split_at_every_byte_and_with_other_line_ends_is_the_same() {
    for variation in [json!({"split_bytes": 1}), json!({"crlf": true, "split_bytes": 3})] {
        let mut reply = json!({"text": "Grüße, 世界 ✓", "reasoning": "wörld"});
        reply.as_object_mut().unwrap().extend(variation.as_object().unwrap().clone());
        let world = World::new(&json!({"replies": [reply]}));
        let wire = world.follower();
        let events = turn(&wire, "hello");
        assert_eq!(text(answer(&events)), "Grüße, 世界 ✓");
        assert_eq!(answer(&events)["content"][0]["thinking"], "wörld");
    }
}

#[test]
fn half_of_a_character_costs_no_text_and_no_error_wherever_it_is() {
    // Two private characters for the halves, and two for their escapes within the JSON of arguments.
    let replace = json!({"\u{e000}": r"\ud83d", "\u{e001}": r"\ude42", "\u{e002}": r"\\ud83d", "\u{e003}": r"\\ude42"});
    let split =
        ["one \u{e000}", "\u{e001} two", " three \u{e000}", " four \u{e001} five", "\u{e000}"];
    let content = "a \u{e000}\u{e001} b \u{e000} c \u{e002}\u{e003} d \u{e003} e";
    let call = json!({"name": "write_file", "arguments": {"path": "a.txt", "content": content}});
    let script = json!({"defaults": {"replace": replace, "chunk_chars": 1}, "on_exhausted": "echo",
        "replies": [{"text": split, "reasoning": split, "tool_calls": [call]}, {"text": split}]});
    for api in ["openai-completions", "openai-responses", "anthropic-messages"] {
        let world = World::new(&script);
        world.write_models(
            &if api == "anthropic-messages" { world.model.root() } else { world.model.v1() },
            api,
        );
        let wire = world.follower();
        let events = turn(&wire, "write");
        let whole = "one 🙂 two three \u{fffd} four \u{fffd} five\u{fffd}";
        assert_eq!(text(answer(&events)), whole, "{api}");
        let deltas = all(&events, "message_update")
            .into_iter()
            .map(|it| it["assistantMessageEvent"].clone());
        let deltas = deltas.filter(|it| it["type"] == "text_delta");
        let shown: String = deltas.map(|it| it["delta"].as_str().unwrap().to_owned()).collect();
        assert_eq!(shown, whole.repeat(2), "{api}");
        let written = std::fs::read_to_string(world.repo.join("a.txt")).unwrap();
        assert_eq!(written, "a 🙂 b \u{fffd} c 🙂 d \u{fffd} e", "{api}");
        // Prompts of programs that cut a text, and the session file with all of this.
        let line =
            r#"{"id":"h","method":"say","params":{"preferPi":true,"message":"cut \ud83d here"}}"#;
        let other = world.daemon.wire();
        other.attach(&world.repo);
        assert!(other.exchange(line).contains(r#""ok":true"#), "{api}");
        let events = wire.events_until("agent_settled");
        assert_eq!(text(answer(&events)), "echo: cut \u{fffd} here", "{api}");
    }
}

#[test]
fn abort_ends_an_answer_in_mid_stream_and_the_next_prompt_works() {
    let world = World::new(&json!({"replies": [
        {"text": "one two three", "chunk_chars": 4, "hang_after": 2}, {"text": "second answer"}]}));
    let wire = world.follower();
    say(&wire, "long answer");
    let mut events = wire.events_until("message_update");
    wire.request("abort", json!({}));
    events.extend(wire.events_until("agent_settled"));
    assert_order(&events, &[BEGIN, ANSWER, END]);
    let message = answer(&events);
    assert_eq!(
        (&message["stopReason"], &message["errorMessage"]),
        (&"aborted".into(), &"Request was aborted".into())
    );
    assert!("one two ".starts_with(&text(message)) && !text(message).is_empty(), "{message}");
    assert_eq!(only(&events, "agent_settled")["aborted"], true);
    wait_for("the server to lose its client", || {
        (world.model.count("client_gone") == 1).then_some(())
    });
    assert_eq!(state(&wire)["isStreaming"], false);
    assert_eq!(text(answer(&turn(&wire, "again"))), "second answer");
    // The model reads that it was interrupted, and nothing of the aborted answer.
    let last = world.model.requests().pop().unwrap()["body"]["messages"].take();
    let answers = last.as_array().unwrap().iter().filter(|it| it["role"] == "assistant");
    let answers: Vec<_> = answers.map(|it| &it["content"]).collect();
    assert_eq!(answers, [&json!("[The user interrupted this turn.]")], "{last}");
}

#[test]
fn a_dropped_stream_is_an_error_and_not_a_complete_answer() {
    let reply = json!({"text": "partial text that is cut", "chunk_chars": 6, "drop_after": 2});
    let world = World::with(&json!({"replies": [reply, {"text": "whole"}]}), &fast(), "");
    let wire = world.follower();
    let events = turn(&wire, "drop");
    assert_order(&events, &[BEGIN, ANSWER, END]);
    let message = answer(&events);
    assert_eq!((text(message).as_str(), &message["stopReason"]), ("partial text", &"error".into()));
    assert!(message["errorMessage"].as_str().unwrap().contains("ended"), "{message}");
    // The provider bills what it has sent, so the user decides about another attempt.
    assert_eq!(world.model.count("requests"), 1);
    assert_eq!(text(answer(&turn(&wire, "again"))), "whole");
}

#[test]
fn a_request_that_the_server_refuses_is_told_and_not_repeated() {
    let cases = [
        (400, "bad request: no such parameter", "400 bad request"),
        (401, "Incorrect API key provided", "401 Incorrect API key provided"),
        (404, "no such model", "404 no such model"),
    ];
    for (status, error, expected) in cases {
        let world =
            World::with(&json!({"replies": [{"status": status, "error": error}]}), &fast(), "");
        let wire = world.follower();
        let events = turn(&wire, "bad");
        assert_order(&events, &[BEGIN, "message_start assistant, message_end assistant", END]);
        let start = all(&events, "message_start").pop().unwrap();
        assert_eq!(start["message"]["stopReason"], "error", "as Pi, already at the start");
        let message = answer(&events)["errorMessage"].as_str().unwrap();
        assert!(message.starts_with(expected), "{message}");
        assert_eq!(world.model.count("requests"), 1);
    }
}

#[test]
fn an_error_within_the_stream_and_a_broken_record_end_the_turn_with_the_reason() {
    let cases = [
        (json!({"text": "some text", "chunk_chars": 4, "stream_error_after": 1}), "Overloaded"),
        (json!({"text": "some text", "chunk_chars": 4, "malformed_after": 1}), ""),
        (json!({"text": "some text", "no_done": true, "finish_reason": "content_filter"}), ""),
    ];
    for (reply, expected) in cases {
        let world = World::with(&json!({"replies": [reply, {"text": "next"}]}), &fast(), "");
        let wire = world.follower();
        let events = turn(&wire, "error");
        let message = answer(&events);
        assert_eq!(message["stopReason"], "error", "{message}");
        let told = message["errorMessage"].as_str().unwrap();
        assert!(!told.is_empty() && told.contains(expected), "{told}");
        assert_eq!(text(answer(&turn(&wire, "again"))), "next");
        assert_eq!(world.model.count("requests"), 2);
    }
}

#[test]
fn say_in_a_terminal_prints_the_answer_and_fails_with_the_reason() {
    let world = World::new(&json!({"replies": [{"text": "Hello there."},
        {"status": 400, "error": "no such parameter"}]}));
    let say = |message: &str| {
        let mut command = world.daemon.command(&["say", message]);
        command.current_dir(&world.repo);
        Running::start(command)
    };
    let first = say("hello");
    assert_eq!(first.line(), "Hello there.");
    assert_eq!(first.wait().0, Some(0));
    let second = say("again");
    assert_eq!(second.line(), "[error] 400 no such parameter");
    assert_eq!(second.wait().0, Some(1));
}

#[test]
fn events_are_numbered_and_name_their_turn() {
    let world = World::new(&json!({"replies": [{"text": "x"}]}));
    let wire = world.follower();
    let id = wire.request("say", json!({"message": "hi", "preferPi": true}))["turn"].clone();
    let events = wire.events_until("agent_end");
    assert!(events.iter().all(|event| event["turn"] == id), "{:?}", order(&events));
    let numbers: Vec<u64> = events.iter().filter_map(|event| event["seq"].as_u64()).collect();
    assert!(numbers.windows(2).all(|two| two[1] == two[0] + 1), "{numbers:?}");
    assert_eq!(numbers.len(), events.len());
    assert_eq!(answers(&events).len(), 1);
}

#[test]
fn get_state_names_the_model_without_its_key() {
    let world = World::new(&json!({"replies": [{"text": "x"}]}));
    let wire = world.follower();
    turn(&wire, "hi");
    for value in [
        state(&wire),
        command(&wire, json!({"type": "get_available_models"})),
        command(&wire, json!({"type": "set_model", "provider": "fake", "modelId": "fake-2"})),
        command(&wire, json!({"type": "cycle_model"})),
        wire.request("get_state", json!({})),
    ] {
        let shown = value.to_string();
        assert!(shown.contains("fake-1") || shown.contains("fake-2"), "{shown}");
        // `authHeader` of models.json leaked the key in Pi 0.55.
        for secret in ["sk-fake", "Bearer", "\"headers\""] {
            assert!(!shown.contains(secret), "{secret} in {shown}");
        }
    }
    let headers = world.model.requests().pop().unwrap()["headers"].take();
    assert_eq!(headers["authorization"], "<redacted>", "the server gets the key: {headers}");
    assert_eq!(Value::Null, headers["x-api-key"]);
}

#[test]
fn what_is_no_whole_answer_is_one_line_and_an_exit_code_of_its_own() {
    let page = "<!DOCTYPE html><html><head><title>Log in</title></head><body>x</body></html>";
    let cases = [
        (
            json!({"text": "half of it", "finish_reason": "length"}),
            "length",
            "was cut at the limit",
        ),
        (json!({"text": "", "finish_reason": "length"}), "length", "cut before its first word"),
        (json!({"text": ""}), "empty", "empty answer"),
        (json!({"text": "", "finish_reason": "content_filter"}), "refusal", "content_filter"),
        (json!({"raw": page}), "not_an_answer", "an HTML page (Log in)"),
        (json!({"raw": page, "status": 404}), "not_an_answer", "404 The server sent an HTML page"),
        (json!({"raw": "It works!"}), "not_an_answer", "something else instead of an answer"),
        (json!({"raw": r#"{"status": "ok"}"#}), "not_an_answer", "something else instead"),
        (
            json!({"raw": r#"{"choices": [{"index": 0, "finish_reason": "stop", "message":
            {"content": null, "refusal": "I cannot help with that."}}]}"#}),
            "refusal",
            "refused",
        ),
        (
            json!({"raw": r#"{"choices": [{"index": 0, "finish_reason": "stop", "message":
            {"content": "good"}}]}"#}),
            "",
            "good",
        ),
    ];
    let world = World::with(&json!({}), &fast(), "");
    for (reply, reason, line) in cases {
        world.model.script(&json!({"replies": [reply]}));
        let run = super::prompt::at_repo(&world, &["say", "go"]).output().unwrap();
        let shown = String::from_utf8([run.stdout, run.stderr].concat()).unwrap();
        let code = if reason.is_empty() { 0 } else { 5 };
        assert_eq!(run.status.code(), Some(code), "{reply}: {shown}");
        assert_eq!(shown.matches(line).count(), 1, "{line}: {shown}");
        let run = super::prompt::at_repo(&world, &["say", "go", "--json"]).output().unwrap();
        assert_eq!(run.status.code(), Some(code), "{reply}");
        let lines = String::from_utf8(run.stdout).unwrap();
        let end = lines.lines().find(|line| line.contains("\"agent_end\"")).expect("an end");
        let end: serde_json::Value = serde_json::from_str(end).unwrap();
        assert_eq!(end["data"]["reason"].as_str().unwrap_or_default(), reason, "{reply}");
        let last: serde_json::Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
        let error = last["error"]["code"].as_str().unwrap_or_default();
        assert_eq!(error, if code == 0 { "" } else { "no_answer" }, "{last}");
    }
    // The page of a proxy that is overloaded is one more failure of the connection.
    let busy = json!({"raw": page, "status": 502});
    world.model.script(&json!({"replies": [busy, {"text": "recovered"}]}));
    let run = super::prompt::at_repo(&world, &["say", "go"]).output().unwrap();
    assert_eq!(run.status.code(), Some(0));
}

#[test]
fn the_lines_of_a_turn_that_failed_end_with_an_error() {
    let world =
        World::new(&json!({"replies": [{"status": 401, "error": "Incorrect API key provided"}]}));
    let mut said = world.daemon.command(&["say", "--json", "hello"]);
    let output = said.current_dir(&world.repo).stdin(std::process::Stdio::null()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(last["error"]["code"], "failed", "{last}");
    let message = last["error"]["message"].as_str().unwrap();
    assert!(message.contains("Incorrect API key provided"), "{last}");
    assert!(text.lines().count() > 3, "the events come before it: {text}");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains(&format!("error: {message}")), "{errors}");
}
