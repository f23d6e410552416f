//! Summaries of conversations that became too long.

use super::answers::{ANSWER, BEGIN, END};
use super::{World, answer, assert_order, command, only, refusal, say, text, turn};
use serde_json::{Value, json};

/// A small rest of the conversation stays as it is.
fn settings() -> Value {
    json!({"compaction": {"enabled": true, "reserveTokens": 16384, "keepRecentTokens": 200}})
}

/// Answers requests for summaries.
fn rules() -> Value {
    json!([{"if": {"system": "context summarization assistant"}, "reply": {"text": "## Goal\nThe summary."}}])
}

fn stats(wire: &crate::harness::Wire) -> Value {
    command(wire, json!({"type": "get_session_stats"}))
}

#[test]
fn compact_summarises_the_conversation_and_totals_do_not_fall() {
    let world = World::with(
        &json!({"rules": rules(), "replies": [{"text": "an answer of some length. ", "repeat": 40}]}),
        &settings(),
        "",
    );
    let wire = world.follower();
    // Pi 0.55 asks the model to summarise nothing.
    let nothing = refusal(&wire, json!({"type": "compact"}));
    assert!(nothing.starts_with("Nothing to compact"), "{nothing}");
    assert_eq!(world.model.count("requests"), 0);
    turn(&wire, &format!("first question {}", "lorem ipsum ".repeat(200)));
    turn(&wire, "second question");
    let before = stats(&wire);
    drop(wire.early_events());
    let done = command(&wire, json!({"type": "compact", "customInstructions": "keep file names"}));
    assert!(done["summary"].as_str().unwrap().contains("The summary."), "{done}");
    assert!(done["firstKeptEntryId"].is_string() && done["tokensBefore"].is_u64(), "{done}");
    let events = wire.events_until("auto_compaction_end");
    let end = events.last().unwrap();
    assert_eq!(
        (&end["data"]["reason"], &end["data"]["result"]["summary"]),
        (&"manual".into(), &done["summary"])
    );
    let asked = world.model.requests();
    assert!(asked.iter().any(|it| it["body"].to_string().contains("keep file names")));
    let after = stats(&wire);
    for name in ["totalMessages", "userMessages", "assistantMessages"] {
        assert_eq!(after[name], before[name], "{name}");
    }
    for name in ["input", "output", "total"] {
        let (before, after) = (before["tokens"][name].as_u64(), after["tokens"][name].as_u64());
        assert!(before <= after, "{name} fell from {before:?} to {after:?}");
    }
    assert!(before["cost"].as_f64() <= after["cost"].as_f64());
    let used = |stats: &Value| stats["contextUsage"]["tokens"].as_u64().unwrap();
    assert!(used(&after) < used(&before), "{before} {after}");
    assert_eq!(refusal(&wire, json!({"type": "compact"})), "Already compacted");
    wire.events_until("auto_compaction_end");
    assert_order(&turn(&wire, "third question"), &[BEGIN, ANSWER, END]);
    let sent = world.model.requests().pop().unwrap()["body"]["messages"].to_string();
    assert!(sent.contains("The summary.") && !sent.contains("lorem ipsum"), "{sent}");
}

#[test]
fn a_full_context_is_summarised_once_after_the_turn() {
    let world = World::with(
        &json!({"rules": rules(), "replies": [
            {"text": "big. ", "repeat": 300, "usage": {"prompt": 125_000, "completion": 500}},
            {"text": "small", "usage": {"prompt": 900, "completion": 5}}]}),
        &settings(),
        "",
    );
    let wire = world.follower();
    let events = turn(&wire, &format!("fill the window {}", "lorem ipsum ".repeat(100)));
    assert_order(
        &events,
        &[
            BEGIN,
            ANSWER,
            "turn_end, agent_end, auto_compaction_start, auto_compaction_end, agent_settled",
        ],
    );
    let start = json!({"type": "auto_compaction_start", "reason": "threshold"});
    assert_eq!(only(&events, "auto_compaction_start"), &start);
    let end = only(&events, "auto_compaction_end");
    assert_eq!((&end["aborted"], &end["willRetry"]), (&false.into(), &false.into()));
    assert_eq!(end["result"]["tokensBefore"], 125_500);
    // Pi 0.55 shows an empty pair before the next prompt.
    assert_order(&turn(&wire, "more"), &[BEGIN, ANSWER, END]);
    assert_eq!(world.model.count("requests"), 3);
}

#[test]
fn a_context_that_the_model_refuses_is_summarised_and_the_turn_goes_on() {
    let error = json!({"message": "This model's maximum context length is 128000 tokens. However, your messages resulted in 140000 tokens.",
        "type": "invalid_request_error", "code": "context_length_exceeded"});
    let world = World::with(
        &json!({"rules": rules(), "replies": [{"text": "warm answer. ", "repeat": 100},
            {"status": 400, "error": error}, {"text": "after overflow"}]}),
        &settings(),
        "",
    );
    let wire = world.follower();
    turn(&wire, &format!("warm up {}", "lorem ipsum ".repeat(300)));
    let events = turn(&wire, "overflow now");
    assert_order(
        &events,
        &[
            BEGIN,
            "message_start assistant, message_end assistant, turn_end",
            "auto_compaction_start, auto_compaction_end, agent_start, turn_start",
            ANSWER,
            END,
        ],
    );
    let end = only(&events, "auto_compaction_end");
    assert_eq!((&end["reason"], &end["willRetry"]), (&"overflow".into(), &true.into()));
    assert_eq!(text(answer(&events)), "after overflow");
    let sent = world.model.requests().pop().unwrap()["body"]["messages"].to_string();
    assert!(sent.contains("overflow now") && sent.contains("The summary."), "{sent}");
}

#[test]
fn a_context_that_is_refused_again_ends_the_turn() {
    let error = json!({"message": "maximum context length is 10 tokens", "code": "context_length_exceeded"});
    let world = World::with(
        &json!({"rules": rules(), "replies": [{"text": "warm answer. ", "repeat": 100},
            {"status": 400, "error": error}]}),
        &settings(),
        "",
    );
    let wire = world.follower();
    turn(&wire, &format!("warm up {}", "lorem ipsum ".repeat(300)));
    let events = turn(&wire, "overflow now");
    assert_eq!(only(&events, "auto_compaction_end")["reason"], "overflow");
    assert_eq!(answer(&events)["stopReason"], "error");
    // The first prompt, the refused one, one or two summaries, and the refused one again.
    assert!(world.model.count("requests") <= 5, "{}", world.model.state());
}

#[test]
fn a_prompt_during_a_summary_waits_and_an_abort_ends_the_summary() {
    let mut rule = rules();
    rule[0]["reply"]["hang_after"] = 0.into();
    let world = World::with(
        &json!({"rules": rule, "replies": [{"text": "an answer of some length. ", "repeat": 40}]}),
        &settings(),
        "",
    );
    let wire = world.follower();
    turn(&wire, &format!("first question {}", "lorem ipsum ".repeat(200)));
    turn(&wire, "second question");
    let compacting = wire.begin("quack.agent", &json!({"command": {"type": "compact"}}));
    wire.events_until("auto_compaction_start");
    let busy = command(&wire, json!({"type": "get_state"}));
    assert_eq!(busy["isCompacting"], true);
    say(&wire, "third question");
    wire.request("abort", json!({}));
    let reply = compacting.reply();
    assert_eq!((&reply["ok"], &reply["error"]), (&false.into(), &"Compaction cancelled".into()));
    let events = wire.events_until("agent_settled");
    assert_order(&events, &["auto_compaction_end", BEGIN, ANSWER, END]);
    assert_eq!(only(&events, "auto_compaction_end")["aborted"], true);
}
