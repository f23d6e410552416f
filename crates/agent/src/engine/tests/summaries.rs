//! Summaries that succeed.

use super::super::commands::MAX_QUEUED;
use super::*;
use serde_json::json;

#[test]
fn an_overflow_is_summarized_once_and_the_turn_goes_on() {
    let mut bench = Bench::with(
        AgentSettings { keep_recent_tokens: 10, ..AgentSettings::default() },
        Transcript::new(header()),
    );
    bench.prompt(&"lorem ipsum ".repeat(100));
    bench.say(&"warm answer ".repeat(100));
    bench.prompt("overflow now");
    bench.refuse(400, "This model's maximum context length is 128000 tokens.");
    assert_eq!(bench.event("auto_compaction_start")["reason"], "overflow");
    let (_, body) = bench.request();
    let system = body["messages"][0]["content"].to_string();
    assert!(system.contains("context summarization assistant"), "{system}");
    bench.say("## Goal\nThe summary.");
    let end = bench.event("auto_compaction_end");
    assert_eq!((&end["willRetry"], &end["aborted"]), (&json!(true), &json!(false)));
    assert!(end["result"]["summary"].as_str().unwrap().contains("The summary."));
    bench.refuse(400, "This model's maximum context length is 128000 tokens.");
    assert!(bench.agent.is_idle(), "only once");
    let starts = bench.events().matches("auto_compaction_start").count();
    assert_eq!(starts, 1);
}

#[test]
fn a_summary_on_demand_is_answered_and_refused_when_there_is_nothing_to_do() {
    let mut bench = Bench::with(
        AgentSettings { keep_recent_tokens: 10, ..AgentSettings::default() },
        Transcript::new(header()),
    );
    let none = bench.send(json!({ "type": "compact" }));
    assert_eq!(bench.answered(none), Err("Nothing to compact (session too small)".into()));
    bench.prompt(&"lorem ipsum ".repeat(100));
    bench.say("first");
    bench.prompt("second");
    bench.say(&"long answer ".repeat(50));
    let command = bench.send(json!({ "type": "compact", "customInstructions": "keep names" }));
    let waiting = bench.send(json!({ "type": "prompt", "message": "third" }));
    assert_eq!(bench.answered(waiting).unwrap()["disposition"], "started");
    while bench.agent.compaction.is_some() {
        bench.say("## Goal\nA summary.");
    }
    assert!(bench.answered(command).unwrap()["summary"].as_str().unwrap().contains("A summary."));
    // The prompt that waited begins.
    bench.answer_instructions();
    let (_, body) = bench.request();
    assert!(body.to_string().contains("third"));
    assert!(body.to_string().contains("A summary."));
}

const TOO_LONG: &str = "This model's maximum context length is 128000 tokens.";

fn summarized(bench: &mut Bench) {
    while bench.agent.compaction.is_some() {
        bench.say("## Goal\nA summary.");
    }
}

#[test]
fn each_overflow_after_progress_is_summarized() {
    let mut bench = Bench::with(
        AgentSettings { keep_recent_tokens: 10, ..AgentSettings::default() },
        Transcript::new(header()),
    );
    bench.prompt(&"lorem ipsum ".repeat(100));
    bench.say(&"warm answer ".repeat(100));
    bench.prompt("long work");
    for n in 0..3 {
        bench.refuse(400, TOO_LONG);
        assert!(bench.agent.compaction.is_some(), "{n}");
        summarized(&mut bench);
        bench.call(&[("bash", json!({ "command": format!("echo {n}") }))]);
        let number = bench.calls().last().unwrap().0;
        bench.done(number, &"output ".repeat(100), false);
    }
    bench.say("done");
    assert_eq!(bench.event("agent_end")["reason"], Value::Null);
    assert_eq!(bench.events().matches("auto_compaction_start").count(), 3);
}

#[test]
fn a_full_conversation_is_summarized_between_two_requests_of_a_run() {
    let mut bench = Bench::with(
        AgentSettings { keep_recent_tokens: 10, ..AgentSettings::default() },
        Transcript::new(header()),
    );
    let full = bench.agent.model.context_window - 1000;
    bench.prompt(&"lorem ipsum ".repeat(100));
    let mut turn = |n: u64, tokens: u64| {
        bench.head(200);
        let usage = json!({ "prompt_tokens": tokens, "completion_tokens": 5 });
        let arguments = json!({ "command": format!("echo {n}") }).to_string();
        let function = json!({ "name": "bash", "arguments": arguments });
        let call =
            json!({ "index": 0, "id": format!("c{n}"), "type": "function", "function": function });
        bench.bytes(&chunk(&json!({ "tool_calls": [call] }), None));
        bench.bytes(&format!("data: {}\n\n", json!({ "choices": [], "usage": usage })));
        bench.bytes(&chunk(&json!({}), Some("tool_calls")));
        bench.bytes("data: [DONE]\n\n");
        bench.part(Part::Done);
        let number = bench.calls().last().unwrap().0;
        bench.done(number, &"output ".repeat(100), false);
        let was_full = bench.agent.compaction.is_some();
        summarized(&mut bench);
        was_full
    };
    // A summary that does not help is not repeated before each request.
    let summaries =
        [(0, 1000), (1, full), (2, full), (3, full), (4, 1000)].map(|(n, tokens)| turn(n, tokens));
    assert_eq!(summaries, [false, true, false, true, false]);
    bench.say("done");
    assert_eq!(bench.events().matches("agent_end").count(), 1, "one run");
}

#[test]
fn a_window_that_a_server_states_is_learned_and_the_request_sent_again() {
    let mut bench = Bench::new();
    bench.agent.model.max_tokens = 16_384;
    bench.prompt("hi");
    let before = bench.request().1["max_tokens"].as_u64().unwrap();
    bench.refuse(400, &format!(
        "'max_tokens' is too large: {before}. This model's maximum context length is 8192 tokens and your request has 3411 \
         input tokens ({before} > 8192 - 3411)."
    ));
    assert_eq!(bench.request().1["max_tokens"], 4302);
    assert_eq!(bench.agent.model.context_window, 8192);
    bench.say("hello");
    assert!(bench.agent.is_idle());
    assert!(!bench.events().contains("auto_compaction_start"));
}

#[test]
fn newest_messages_that_are_too_large_are_named_as_the_reason() {
    let mut bench = Bench::new();
    bench.prompt("huge");
    bench.refuse(400, TOO_LONG);
    let text = bench.event("auto_compaction_end")["errorMessage"].clone();
    let text = text.as_str().unwrap();
    assert!(text.contains("this prompt is too large for the model and was left out"), "{text}");
    assert!(bench.agent.is_idle());

    // The next prompt is not refused because of it, also after a restart, and the model knows of it.
    bench.prompt("small");
    let request = bench.request().1.to_string();
    assert!(!request.contains("huge") && request.contains("small"), "{request}");
    assert!(request.contains("too large for the model, which has not seen it"), "{request}");
}

#[test]
fn a_prompt_that_no_request_can_hold_is_refused_before_it_is_recorded() {
    let mut bench = Bench::new();
    let window = usize::try_from(bench.agent.model.context_window).unwrap();
    let huge = "word ".repeat(window);
    for kind in ["prompt", "steer", "follow_up"] {
        let number = bench.send(json!({ "type": kind, "message": huge }));
        let text = bench.answered(number).unwrap_err();
        assert!(text.contains("reads at most") && text.contains("It was not sent"), "{text}");
    }
    assert!(bench.agent.is_idle() && bench.agent.transcript.messages().is_empty());
}

#[test]
fn prompts_that_wait_for_a_summary_are_limited() {
    let mut bench = Bench::with(
        AgentSettings { keep_recent_tokens: 10, ..AgentSettings::default() },
        Transcript::new(header()),
    );
    bench.prompt(&"lorem ipsum ".repeat(100));
    bench.say(&"long answer ".repeat(100));
    bench.send(json!({ "type": "compact" }));
    assert!(bench.agent.compaction.is_some());
    let mut send = || {
        let number = bench.send(json!({ "type": "prompt", "message": "wait" }));
        bench.answered(number)
    };
    assert!((0..MAX_QUEUED).all(|_| send().is_ok()));
    let text = "At most 64 prompts can wait for a summary; send it again after the summary";
    assert_eq!(send(), Err(text.into()));
}
