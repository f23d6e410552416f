//! The engine with faults: summaries that fail, requests that must not be sent twice, and calls beyond the limits.

use super::*;
use crate::message::UserMessage;
use quackd_protocol::limits::MAX_ARGUMENTS_BYTES;
use quackd_protocol::model::{ModelFailure, ModelFailureKind};
use serde_json::json;

fn small() -> Bench {
    let settings = AgentSettings { keep_recent_tokens: 10, ..AgentSettings::default() };
    Bench::with(settings, Transcript::new(header()))
}

/// Two turns, after which a summary has something to summarize.
fn two_turns() -> Bench {
    let mut bench = small();
    bench.prompt(&"lorem ipsum ".repeat(100));
    bench.say("first");
    bench.prompt("second");
    bench.say(&"long answer ".repeat(50));
    bench
}

fn count(bench: &Bench, wanted: &str) -> usize {
    let is_it = |it: &&Effect| matches!(it, Effect::Event { name, .. } if name.as_str() == wanted);
    bench.effects.iter().filter(is_it).count()
}

fn failure(kind: ModelFailureKind) -> Part {
    Part::Failed(ModelFailure { kind, text: "the connection ended".into() })
}

#[test]
fn a_full_context_with_nothing_to_summarize_settles_once() {
    let mut bench = small();
    bench.agent.model.context_window = 100;
    bench.prompt("hi");
    let queued = user("waits");
    bench.agent.waiting.extend([queued, user("waits too")]);
    bench.say("x");
    assert_eq!(count(&bench, "auto_compaction_start"), 0);
    assert_eq!(count(&bench, "agent_settled"), 1);
    assert_eq!(bench.agent.waiting.len(), 1, "one prompt runs, the other one waits");
}

fn user(text: &str) -> UserMessage {
    run::user_message(text, Vec::new(), 1)
}

#[test]
fn instructions_that_failed_to_load_are_asked_for_again() {
    let mut bench = Bench::new();
    bench.send(json!({ "type": "prompt", "message": "hi" }));
    bench.done(1, "Error: no", true);
    bench.say("fine");
    assert!(bench.agent.instructions.is_none());
    bench.effects.clear();
    bench.send(json!({ "type": "prompt", "message": "again" }));
    let asks = |it: &Effect| matches!(it, Effect::Call(call) if call.tool == run::INSTRUCTIONS);
    assert!(bench.effects.iter().any(asks));
}

#[test]
fn the_prompt_names_the_copy_in_which_the_session_works() {
    for (data, expected) in [
        (json!({ "workspace": "/state/isolated/s/tree\n" }), "directory /state/isolated/s/tree"),
        (json!({ "workspace": null }), "directory /w "),
    ] {
        let mut bench = Bench::new();
        bench.agent.setup.workspace = "/w".to_owned();
        bench.send(json!({ "type": "prompt", "message": "hi" }));
        bench.done_with(1, "", false, Some(&data));
        let prompt = bench.request().1.to_string();
        assert!(prompt.contains(&format!("You work in the {expected}")), "{prompt}");
    }
}

#[test]
fn a_message_that_was_queued_during_a_summary_begins_a_run_and_one_for_an_idle_agent_waits() {
    for name in ["steer", "follow_up"] {
        let mut bench = two_turns();
        bench.send(json!({ "type": "compact" }));
        bench.send(json!({ "type": name, "message": "queued" }));
        while bench.agent.compaction.is_some() {
            bench.say("A summary.");
        }
        assert!(bench.agent.run.is_some(), "{name}");
        bench.answer_instructions();
        assert!(bench.request().1.to_string().contains("queued"));
        bench.say("ok");
        bench.send(json!({ "type": name, "message": "idle" }));
        assert!(bench.agent.is_idle());
    }
}

#[test]
fn further_calls_of_an_answer_wait_until_one_ends() {
    let mut bench = Bench::new();
    bench.prompt("many");
    let many: Vec<_> = (0..40).map(|n| ("bash", json!({ "command": n.to_string() }))).collect();
    bench.call(&many);
    assert_eq!(bench.calls().len(), 24);
    bench.done(bench.calls()[3].0, "", false);
    assert_eq!(bench.calls().len(), 25);
    for at in 0..40 {
        let number = bench.calls()[at].0;
        bench.done(number, "", false);
    }
    assert_eq!(bench.calls().len(), 40);
    bench.say("done");
    assert!(bench.agent.is_idle());
}

#[test]
fn long_ids_and_arguments_do_not_reach_the_supervisor() {
    let mut bench = Bench::new();
    bench.prompt("go");
    let mut call = |index: usize, arguments: &str| {
        let function = json!({ "name": "bash", "arguments": "" });
        let id = format!("{index}{}", "i".repeat(256));
        let start = json!({ "index": index, "id": id, "function": function });
        bench.bytes(&chunk(&json!({ "tool_calls": [start] }), None));
        for piece in arguments.as_bytes().chunks(64 * 1024) {
            let piece = std::str::from_utf8(piece).unwrap();
            let more = json!({ "index": index, "function": { "arguments": piece } });
            bench.bytes(&chunk(&json!({ "tool_calls": [more] }), None));
        }
    };
    call(0, &json!({ "command": "true" }).to_string());
    call(1, &json!({ "command": "x".repeat(MAX_ARGUMENTS_BYTES) }).to_string());
    bench.bytes(&chunk(&json!({}), Some("tool_calls")));
    bench.bytes("data: [DONE]\n\n");
    let sent = bench.effects.iter().filter_map(|it| match it {
        Effect::Call(call) if call.tool == "bash" => Some(call.tool_call_id.clone()),
        _ => None,
    });
    let [id] = &*sent.collect::<Vec<_>>() else { panic!("one call is sent") };
    assert!(id.len() <= 256);
    assert_eq!(bench.event("message_end")["message"]["content"][0]["id"], **id);
    let end = bench.event("tool_execution_end");
    assert!(end["result"].to_string().contains("Not run: the arguments have"), "{end}");
}

#[test]
fn a_request_that_the_provider_may_have_received_is_sent_again_at_most_once() {
    let mut bench = Bench::new();
    bench.prompt("broken");
    bench.part(failure(ModelFailureKind::Broken));
    assert_eq!(count(&bench, "auto_retry_start"), 1);
    bench.take(Input::Timer);
    bench.part(failure(ModelFailureKind::Broken));
    assert!(bench.agent.is_idle());
    bench.prompt("next");
    bench.part(failure(ModelFailureKind::Broken));
    assert_eq!(count(&bench, "auto_retry_start"), 2, "another request has its own attempt");
    let mut bench = Bench::new();
    bench.prompt("head");
    bench.head(200);
    bench.part(failure(ModelFailureKind::Broken));
    assert!(bench.agent.is_idle());
    bench.prompt("idle");
    bench.part(failure(ModelFailureKind::Idle));
    assert!(bench.agent.is_idle());
    assert_eq!(count(&bench, "auto_retry_start"), 0);
}

#[test]
fn a_huge_message_can_be_summarized_and_a_request_that_is_too_long_is_not_sent() {
    let mut bench = small();
    bench.prompt("small");
    bench.say(&"x".repeat(100_000));
    bench.prompt("second");
    bench.say(&"long answer ".repeat(50));
    let command = bench.send(json!({ "type": "compact" }));
    let body = bench.request().1.to_string();
    assert!(body.contains("[80000 more characters]") && body.len() < 40_000);
    bench.send(json!({ "type": "abort" }));
    assert!(bench.answered(command).is_err());
    let focus = "x".repeat(quackd_protocol::model::MAX_MODEL_REQUEST_BYTES);
    let command = bench.send(json!({ "type": "compact", "customInstructions": focus }));
    assert!(bench.answered(command).unwrap_err().contains("longer than a request may be"));
    assert!(bench.agent.is_idle());
}

#[test]
fn a_failed_summary_is_paid_for_and_two_in_a_row_are_the_last_automatic_ones() {
    let mut bench = two_turns();
    let fail = |bench: &mut Bench| {
        let usage = json!({ "prompt_tokens": 100, "completion_tokens": 9 });
        bench.head(200);
        bench.bytes(&format!("data: {}\n\n", json!({ "choices": [], "usage": usage })));
        bench.part(failure(ModelFailureKind::Broken));
    };
    bench.agent.model.context_window = 100;
    for n in 1..=3 {
        bench.prompt("more");
        bench.say(&"long answer ".repeat(50));
        if n <= 2 {
            assert!(bench.agent.compaction.is_some(), "{n}");
            fail(&mut bench);
            let end = bench.event("auto_compaction_end");
            let text = end["errorMessage"].as_str().unwrap();
            let tells = "no further automatic summary is made; run `compact` to make one";
            assert_eq!(text.contains(tells), n == 2, "{text}");
        }
        assert!(bench.agent.is_idle(), "{n}");
    }
    assert_eq!(bench.file().matches("\"type\":\"usage\"").count(), 2);
    let cost = bench.agent.transcript.stats().cost;
    assert!((cost - 0.000_236).abs() < 1e-9, "{cost}");
    bench.send(json!({ "type": "compact" }));
    while bench.agent.compaction.is_some() {
        bench.say("A summary.");
    }
    assert!(bench.agent.may_compact());
}

#[test]
fn a_summary_that_cost_nothing_does_not_count_as_failed() {
    let mut bench = two_turns();
    bench.agent.model.context_window = 100;
    for n in 1..=4 {
        bench.prompt("more");
        bench.say(&"long answer ".repeat(50));
        assert!(bench.agent.compaction.is_some(), "{n}");
        bench.part(failure(ModelFailureKind::NotConnected));
    }
    assert!(bench.agent.may_compact());
}
