//! The three APIs of providers, from the prompt to the answer after a tool call.

use super::{World, answer, answers, only, text, turn};
use serde_json::{Value, json};

const APIS: [(&str, &str, &str); 3] = [
    ("openai-completions", "/v1/chat/completions", "authorization"),
    ("openai-responses", "/v1/responses", "authorization"),
    ("anthropic-messages", "/v1/messages", "x-api-key"),
];

/// A world whose models have this API.
#[track_caller]
fn world(api: &str, script: &Value) -> World {
    let mut world = World::absent(script);
    let base = match api {
        "anthropic-messages" => world.model.root(),
        _ => world.model.v1(),
    };
    world.write_models(&base, api);
    std::fs::write(world.agent.join("settings.json"), super::fast().to_string()).unwrap();
    world.boot(&[]);
    world
}

#[test]
fn every_api_answers_with_reasoning_a_tool_call_and_its_usage() {
    for (api, path, key) in APIS {
        let call = json!({"name": "bash", "arguments": {"command": "echo from the tool"}});
        let usage = json!({"prompt": 100, "completion": 20, "cached": 60, "reasoning": 5});
        let world = world(
            api,
            &json!({"replies": [
                {"reasoning": "Think first.", "text": "Running it.", "tool_calls": [call], "usage": usage},
                {"text": "Done: ✓", "usage": usage}]}),
        );
        let wire = world.follower();
        let events = turn(&wire, "go");
        let all = answers(&events);
        let kinds: Vec<_> = all[0]["content"]
            .as_array()
            .unwrap()
            .iter()
            .map(|block| block["type"].as_str().unwrap())
            .collect();
        assert_eq!(kinds, ["thinking", "text", "toolCall"], "{api}");
        assert_eq!(all[0]["content"][0]["thinking"], "Think first.", "{api}");
        assert_eq!((&all[0]["api"], &all[0]["stopReason"]), (&api.into(), &"toolUse".into()));
        assert_eq!(text(answer(&events)), "Done: ✓", "{api}");
        let end = only(&events, "tool_execution_end");
        assert!(text(&end["result"]).starts_with("from the tool\n"), "{api}: {end}");
        // Anthropic counts cached tokens separately.
        let input = if api == "anthropic-messages" { 100 } else { 40 };
        let told = &all[1]["usage"];
        assert_eq!(
            (&told["input"], &told["output"], &told["cacheRead"]),
            (&input.into(), &20.into(), &60.into()),
            "{api}"
        );
        let requests = world.model.requests();
        assert_eq!(requests.len(), 2, "{api}");
        for request in &requests {
            assert_eq!(request["path"], path);
            assert_eq!(request["headers"][key], "<redacted>", "{api}: the key is sent");
            assert_eq!(request["body"]["model"], "fake-1");
            assert_eq!(request["body"]["stream"], true);
            assert!(!request["body"]["tools"].as_array().unwrap().is_empty(), "{api}");
        }
        let told = world.model.state()["requests"][1].take();
        assert_eq!(told["last_role"], "tool", "{api}: {told}");
        assert!(
            told["last_tool"].as_str().unwrap().starts_with("from the tool\n"),
            "{api}: {told}"
        );
    }
}

#[test]
fn every_api_tells_an_error_in_the_stream_and_a_dropped_stream() {
    for (api, ..) in APIS {
        for fault in ["stream_error_after", "drop_after"] {
            let mut reply = json!({"text": "some text", "chunk_chars": 4});
            reply[fault] = 1.into();
            let world = world(api, &json!({"replies": [reply, {"text": "next"}]}));
            let wire = world.follower();
            let events = turn(&wire, "go");
            let message = answer(&events);
            assert_eq!(
                (text(message).as_str(), &message["stopReason"]),
                ("some", &"error".into()),
                "{api}"
            );
            assert_eq!(text(answer(&turn(&wire, "again"))), "next", "{api}");
            assert_eq!(world.model.count("requests"), 2, "{api} {fault}");
        }
    }
}

#[test]
fn every_api_repeats_a_request_that_failed_before_its_first_byte() {
    for (api, ..) in APIS {
        let world = world(
            api,
            &json!({"replies": [{"status": 529, "error": "Overloaded"}, {"text": "recovered"}]}),
        );
        let wire = world.follower();
        let events = turn(&wire, "go");
        assert_eq!(only(&events, "auto_retry_end")["success"], true, "{api}");
        assert_eq!(text(answer(&events)), "recovered", "{api}");
    }
}

#[test]
fn every_api_repeats_a_request_after_an_overload_before_any_content() {
    for (api, ..) in APIS {
        let reply = json!({"text": "some text", "stream_error_after": 0});
        let world = world(api, &json!({"replies": [reply, {"text": "recovered"}]}));
        let wire = world.follower();
        let events = turn(&wire, "go");
        assert_eq!(only(&events, "auto_retry_end")["success"], true, "{api}");
        assert_eq!(text(answer(&events)), "recovered", "{api}");
        // Another error than an overload stays one.
        let wrong = json!({"message": "no such model", "type": "invalid_request_error"});
        let reply = json!({"text": "x", "stream_error_after": 0, "stream_error": wrong});
        world.model.script(&json!({"replies": [reply, {"text": "next"}]}));
        assert_eq!(answer(&turn(&wire, "again"))["stopReason"], "error", "{api}");
        assert_eq!(world.model.count("requests"), 1, "{api}");
    }
}

#[test]
fn a_session_that_changes_its_api_keeps_its_conversation() {
    let mut world = world("openai-completions", &json!({"on_exhausted": "echo"}));
    let mut models: Value =
        serde_json::from_str(&std::fs::read_to_string(world.agent.join("models.json")).unwrap())
            .unwrap();
    for (api, ..) in &APIS[1..] {
        let mut provider = models["providers"]["fake"].clone();
        provider["api"] = (*api).into();
        if *api == "anthropic-messages" {
            provider["baseUrl"] = world.model.root().into();
        }
        models["providers"][api] = provider;
    }
    std::fs::write(world.agent.join("models.json"), models.to_string()).unwrap();
    world.daemon.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(world.daemon.wait(), Some(0));
    world.boot(&[]);
    let call = json!({"name": "bash", "arguments": {"command": "echo x"}});
    world.model.script(&json!({"replies": [{"reasoning": "Hm.", "text": "a", "tool_calls": [call]}], "on_exhausted": "echo"}));
    let wire = world.follower();
    turn(&wire, "first");
    for (number, (api, path, _)) in APIS[1..].iter().enumerate() {
        super::command(&wire, json!({"type": "set_model", "provider": api, "modelId": "fake-1"}));
        let said = format!("prompt {number}");
        assert_eq!(text(answer(&turn(&wire, &said))), format!("echo: {said}"));
        let request = world.model.requests().pop().unwrap();
        assert_eq!(request["path"], *path);
        let body = request["body"].to_string();
        assert!(body.contains("first") && body.contains("echo x"), "{body}");
    }
}
