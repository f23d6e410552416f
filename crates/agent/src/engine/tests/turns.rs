//! Turns: the order of events, the content of the session file, and the limits.

use super::*;
use serde_json::json;

#[test]
fn an_answer_has_the_events_of_pi_in_their_order() {
    let mut bench = Bench::new();
    bench.prompt("hello");
    let (_, body) = bench.request();
    assert_eq!(body["messages"].as_array().unwrap().len(), 2);
    bench.say("hi");
    let file = bench.file();
    assert_eq!(bench.events(), format!("{BEGIN} {SAID} agent_end agent_settled"));
    let kept = Transcript::read(file.as_bytes()).unwrap();
    assert_eq!(kept.last_assistant_text().as_deref(), Some("hi"));
    assert_eq!(kept.context().model, Some(("fake".into(), "one".into())));
    assert!(bench.agent.is_idle());
}

#[test]
fn the_prompt_is_in_the_file_before_the_request() {
    let mut bench = Bench::new();
    bench.prompt("hello");
    let at = |is_it: fn(&Effect) -> bool| bench.effects.iter().position(is_it).unwrap();
    let written = at(|effect| matches!(effect, Effect::Append(line) if line.contains("\"user\"")));
    assert!(written < at(|effect| matches!(effect, Effect::Request(_))));
}

#[test]
fn queued_messages_are_delivered_after_the_calls_and_at_the_end() {
    let mut bench = Bench::new();
    bench.prompt("start");
    bench.call(&[("bash", json!({ "command": "one" }))]);
    let busy = bench.send(json!({ "type": "prompt", "message": "now" }));
    assert!(bench.answered(busy).unwrap_err().starts_with("Agent is already processing"));
    bench.send(json!({ "type": "steer", "message": "steered" }));
    bench.send(json!({ "type": "follow_up", "message": "later" }));
    assert_eq!(bench.agent.state()["pendingMessageCount"], 2);
    bench.done(bench.calls()[0].0, "one", false);
    let (_, body) = bench.request();
    assert_eq!(body["messages"].as_array().unwrap().last().unwrap()["content"], "steered");
    bench.say("ok");
    let (_, body) = bench.request();
    assert_eq!(body["messages"].as_array().unwrap().last().unwrap()["content"], "later");
    bench.say("ok");
    assert!(bench.agent.is_idle());
}

#[test]
fn a_model_that_repeats_itself_is_told_and_then_stopped() {
    let mut bench = Bench::new();
    bench.prompt("loop");
    for n in 1..8 {
        bench.call(&[("bash", json!({ "command": "true" }))]);
        let number = bench.calls().last().unwrap().0;
        bench.done(number, "", false);
        let (_, body) = bench.request();
        assert_eq!(body.to_string().contains("made 4 times in a row"), n >= 4, "{n}");
    }
    let before = bench.calls().len();
    bench.call(&[("bash", json!({ "command": "true" }))]);
    assert_eq!(bench.calls().len(), before);
    assert_eq!(bench.event("agent_end")["reason"], "loop");
    assert!(bench.agent.is_idle());
}

#[test]
fn a_model_that_waits_for_another_result_is_not_stopped() {
    let mut bench = Bench::new();
    bench.prompt("wait");
    for n in 1..12 {
        bench.call(&[("jobs", json!({}))]);
        let number = bench.calls().last().unwrap().0;
        bench.done(number, &format!("running for {n}s"), false);
        let (_, body) = bench.request();
        assert!(!body.to_string().contains("times in a row"), "{n}");
    }
    bench.say("done");
    assert!(bench.agent.is_idle());
}

#[test]
fn limits_of_turns_and_cost_end_the_run_with_their_reason() {
    let settings = AgentSettings { max_turns: 1, ..AgentSettings::default() };
    let mut bench = Bench::with(settings, Transcript::new(header()));
    bench.prompt("go");
    bench.call(&[("bash", json!({ "command": "true" }))]);
    bench.done(bench.calls()[0].0, "", false);
    assert_eq!(bench.event("agent_end")["reason"], "max_turns");
    let settings = AgentSettings { max_cost_usd: 0.000_001, ..AgentSettings::default() };
    let mut bench = Bench::with(settings, Transcript::new(header()));
    bench.prompt("go");
    bench.head(200);
    let call = json!({ "index": 0, "id": "c", "function": { "name": "bash", "arguments": "{}" } });
    bench.bytes(&chunk(&json!({ "tool_calls": [call] }), Some("tool_calls")));
    let usage = json!({ "choices": [], "usage": { "prompt_tokens": 100, "completion_tokens": 9 } });
    bench.bytes(&format!("data: {usage}\n\ndata: [DONE]\n\n"));
    bench.done(bench.calls()[0].0, "", false);
    assert_eq!(bench.event("agent_end")["reason"], "budget");
    // The limit is one of each run.
    bench.prompt("more");
    assert!(!bench.agent.is_idle());
}

#[test]
fn a_turn_that_ended_with_its_process_is_marked_and_its_calls_get_results() {
    let mut bench = Bench::new();
    bench.prompt("go");
    bench.call(&[("bash", json!({ "command": "deploy" }))]);
    let torn = bench.file();
    let transcript = Transcript::read(torn.as_bytes()).unwrap();
    let mut bench = Bench::with(AgentSettings::default(), transcript);
    bench.prompt("what happened?");
    let (_, body) = bench.request();
    let results: Vec<_> =
        body["messages"].as_array().unwrap().iter().filter(|it| it["role"] == "tool").collect();
    assert_eq!(results.len(), 1);
    let text = results[0]["content"].to_string();
    assert!(text.contains("It is not known whether the call had an effect."), "{text}");
    let marked = bench.file();
    assert!(marked.contains("Interrupted: the agent's process ended during this turn"));
    assert!(!bench.events().contains("toolResult"), "the marks are no events of this turn");
}
