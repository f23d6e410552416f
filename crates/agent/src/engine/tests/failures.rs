//! Aborts, failed answers and further attempts.

use super::*;
use quackd_protocol::agent::EventName;
use quackd_protocol::model::{ModelFailure, ModelFailureKind};
use serde_json::json;

#[test]
fn an_abort_keeps_the_text_so_far_and_is_answered_last() {
    let mut bench = Bench::new();
    bench.prompt("long");
    bench.head(200);
    bench.bytes(&chunk(&json!({ "content": "word " }), None));
    let abort = bench.send(json!({ "type": "abort" }));
    assert!(bench.effects.iter().any(|effect| matches!(effect, Effect::CancelRequest { .. })));
    assert_eq!(bench.answered(abort), Ok(Value::Null));
    let end = bench.event("message_end");
    assert_eq!(end["message"]["content"][0]["text"], "word ");
    assert_eq!(end["message"]["errorMessage"], "Request was aborted");
    let at_end = bench
        .effects
        .iter()
        .rposition(|it| matches!(it, Effect::Event { name: EventName::AgentEnd, .. }));
    let answered = bench
        .effects
        .iter()
        .position(|it| matches!(it, Effect::Answer { number, .. } if *number == abort));
    assert!(at_end < answered);
    let expected = format!(
        "{BEGIN} (assistant text_start text_delta text_end assistant-) turn_end agent_end agent_settled"
    );
    assert_eq!(bench.events(), expected);
    // The next prompt works, and the aborted message is not sent.
    bench.prompt("again");
    let (_, body) = bench.request();
    assert!(!body.to_string().contains("word "), "{body}");
    assert!(body.to_string().contains("long") && body.to_string().contains("again"), "{body}");
}

#[test]
fn an_abort_during_a_call_stops_it_and_ends_with_an_empty_answer() {
    let mut bench = Bench::new();
    bench.prompt("sleep");
    bench.call(&[("bash", json!({ "command": "sleep 9" }))]);
    bench.send(json!({ "type": "abort" }));
    let number = bench.calls()[0].0;
    let is_it =
        |effect: &Effect| matches!(effect, Effect::CancelCall { number: n } if *n == number);
    assert!(bench.effects.iter().any(is_it));
    bench.done(number, "started\nCommand aborted", true);
    let events = bench.events();
    let expected = "[bash bash] (toolResult toolResult) turn_end turn_start (assistant assistant-) turn_end agent_end agent_settled";
    assert!(events.ends_with(expected), "{events}");
}

#[test]
fn a_failed_request_is_sent_again_after_a_delay_that_doubles() {
    let mut bench = Bench::new();
    bench.prompt("retry");
    bench.refuse(500, "exploded");
    let told = bench.event("auto_retry_start");
    assert_eq!((&told["attempt"], &told["delayMs"]), (&json!(1), &json!(2000)));
    assert!(bench.agent.state()["isStreaming"].as_bool().unwrap());
    bench.take(Input::Timer);
    bench.refuse(503, "busy");
    assert_eq!(bench.event("auto_retry_start")["delayMs"], 4000);
    bench.take(Input::Timer);
    bench.say("recovered");
    let failed = "(assistant assistant!) turn_end auto_retry_start agent_start turn_start";
    let good = "(assistant text_start text_delta text_end assistant) auto_retry_end turn_end agent_end agent_settled";
    assert_eq!(bench.events(), format!("{BEGIN} {failed} {failed} {good}"));
}

#[test]
fn retry_after_is_honoured_and_a_longer_one_than_the_limit_ends_the_turn() {
    let limited = |ms| {
        Part::Head(ModelHead { status: 429, retry_after_ms: Some(ms), ..ModelHead::default() })
    };
    let mut bench = Bench::new();
    bench.prompt("rate");
    bench.part(limited(6_000));
    bench.part(Part::Done);
    assert_eq!(bench.event("auto_retry_start")["delayMs"], 6000);
    assert!(bench.effects.iter().any(|effect| matches!(effect, Effect::Timer(Some(6_000)))));
    bench.take(Input::Timer);
    bench.part(limited(3_600_000));
    bench.part(Part::Done);
    assert_eq!(bench.event("auto_retry_end")["success"], false);
    assert!(bench.agent.is_idle());
}

#[test]
fn after_the_first_byte_nothing_is_sent_again() {
    let failure = |kind| Part::Failed(ModelFailure { kind, text: "the connection ended".into() });
    let mut bench = Bench::new();
    bench.prompt("drop");
    bench.head(200);
    bench.bytes(&chunk(&json!({ "content": "half" }), None));
    bench.part(failure(ModelFailureKind::Broken));
    assert_eq!(bench.event("message_end")["message"]["stopReason"], "error");
    assert_eq!(bench.event("message_end")["message"]["content"][0]["text"], "half");
    assert!(bench.agent.is_idle());
    // A stream that ends without its end is no answer either.
    bench.prompt("cut");
    bench.head(200);
    bench.bytes(&chunk(&json!({ "content": "half" }), None));
    bench.part(Part::Done);
    let error = bench.event("message_end")["message"]["errorMessage"].clone();
    assert_eq!(error, "Stream ended without finish_reason");
    // Before it, another attempt costs nothing.
    bench.prompt("again");
    bench.part(failure(ModelFailureKind::NotConnected));
    assert_eq!(bench.event("auto_retry_start")["attempt"], 1);
    let abort = bench.send(json!({ "type": "abort_retry" }));
    assert_eq!(bench.answered(abort), Ok(Value::Null));
    assert_eq!(bench.event("auto_retry_end")["finalError"], "Retry cancelled");
    assert!(bench.agent.is_idle());
}

#[test]
fn a_refusal_of_the_provider_keeps_its_reason() {
    let mut bench = Bench::new();
    bench.prompt("bad");
    bench.head(200);
    bench.bytes(&chunk(&json!({ "content": "I" }), Some("content_filter")));
    let message = bench.event("message_end")["message"].clone();
    assert_eq!(message["rawStopReason"], "content_filter");
    assert_eq!(message["stopReason"], "error");
    let kept = Transcript::read(bench.file().as_bytes()).unwrap();
    assert!(kept.lines().any(|line| line.contains(r#""rawStopReason":"content_filter""#)));
    bench.prompt("good");
    bench.say("yes");
    assert_eq!(bench.event("message_end")["message"]["rawStopReason"], Value::Null);
}
