//! Large conversations: images, events and lists within the limits of the wires.

use super::*;
use quackd_protocol::agent::EventName;
use quackd_protocol::limits::MAX_AGENT_ANSWER_BYTES;
use quackd_protocol::model::MAX_MODEL_REQUEST_BYTES;
use serde_json::json;

#[test]
fn older_images_are_left_out_of_a_request() {
    let mut bench = Bench::new();
    bench.agent.model.input.push(InputKind::Image);
    for letter in ["A", "B", "C"] {
        let data = letter.repeat(2_500_000);
        let images = json!([{ "mimeType": "image/png", "data": data }]);
        bench.send(json!({ "type": "prompt", "message": "look", "images": images }));
        if let Some(Effect::Call(call)) = bench.effects.last() {
            let number = call.number;
            bench.done(number, "", false);
        }
        let body = bench.request().1.to_string();
        assert!(body.len() <= MAX_MODEL_REQUEST_BYTES);
        assert_eq!(
            body.matches("(image left out").count(),
            usize::from(letter != "A") + usize::from(letter == "C")
        );
        assert!(body.contains(&data));
        bench.say("seen");
    }
    let small = json!([{ "mimeType": "image/png", "data": "AAAA" }]);
    bench.send(json!({ "type": "prompt", "message": "look", "images": small }));
    assert_eq!(bench.request().1.to_string().matches("(image left out").count(), 2);
}

/// Texts of the deltas since the last call.
fn deltas(bench: &mut Bench) -> Vec<String> {
    let texts = std::mem::take(&mut bench.effects).into_iter().filter_map(|effect| match effect {
        Effect::Event { name: EventName::MessageUpdate, data } => {
            let data: Value = serde_json::from_str(data.get()).unwrap();
            data["assistantMessageEvent"]["delta"].as_str().map(str::to_owned)
        }
        _ => None,
    });
    texts.collect()
}

#[test]
fn a_piece_with_many_deltas_has_one_event_for_adjacent_ones() {
    let piece = |n: usize| -> String {
        let usage =
            |n| json!({ "choices": [], "usage": { "prompt_tokens": 9, "completion_tokens": n } });
        let one = |n| {
            let text = chunk(&json!({ "content": format!("{n},") }), None);
            format!("{text}data: {}\n\n", usage(n))
        };
        (0..n).map(one).collect()
    };
    let numbers = |n: usize| (0..n).map(|n| format!("{n},"));
    let mut bench = Bench::new();
    bench.prompt("count");
    let (number, _) = bench.request();
    let mut push = |text: String| {
        bench.take(Input::Model { number, part: Part::Bytes(text.into_bytes()) });
        deltas(&mut bench)
    };
    // The start of the text is a delta as well.
    assert_eq!(push(piece(15)), numbers(15).collect::<Vec<_>>());
    assert_eq!(push(piece(16)), numbers(16).collect::<Vec<_>>());
    assert_eq!(push(piece(500)), [numbers(500).collect::<String>()]);
    let thought = chunk(&json!({ "reasoning_content": "hm" }), None);
    let both = [piece(40), thought, piece(40)].concat();
    let text: String = numbers(40).collect();
    assert_eq!(push(both), [text.clone(), "hm".to_owned(), text]);
}

#[test]
fn lists_stop_at_the_size_of_an_answer() {
    let mut bench = Bench::new();
    bench.agent.auto_compaction = false;
    // No size of a prompt is refused.
    bench.agent.model.context_window = 0;
    for n in 0..5 {
        bench.prompt(&format!("{n}{}", "x".repeat(1_200_000)));
        bench.say("ok");
    }
    let ask = |bench: &mut Bench, body: Value| {
        let number = bench.send(body);
        let data = bench.answered(number).unwrap();
        assert!(data.to_string().len() <= MAX_AGENT_ANSWER_BYTES);
        data
    };
    let data = ask(&mut bench, json!({ "type": "get_messages" }));
    let messages = data["messages"].as_array().unwrap();
    assert_eq!(messages.last().unwrap()["role"], "assistant");
    assert_eq!(messages.len(), 7, "three prompts, and the answers around them");
    let (mut since, mut ids) = (None::<Value>, Vec::new());
    loop {
        let mut body = json!({ "type": "get_entries" });
        if let Some(since) = &since {
            body["since"] = since.clone();
        }
        let data = ask(&mut bench, body);
        ids.extend(data["entries"].as_array().unwrap().iter().map(|it| it["id"].clone()));
        since = ids.last().cloned();
        if since.as_ref() == Some(&data["leafId"]) {
            break;
        }
    }
    let all: Vec<_> = bench.agent.transcript.entries().iter().map(|it| json!(it.id)).collect();
    assert_eq!(ids, all);
    let data = ask(&mut bench, json!({ "type": "get_fork_messages" }));
    assert_eq!(data["messages"].as_array().unwrap().len(), 3);
}

#[test]
fn an_entry_that_is_larger_than_an_answer_is_shortened() {
    let mut bench = Bench::new();
    let data = "A".repeat(5_000_000);
    let images = json!([{ "mimeType": "image/png", "data": data }]);
    bench.send(json!({ "type": "prompt", "message": "look", "images": images }));
    let number = bench.send(json!({ "type": "get_entries" }));
    let listed = bench.answered(number).unwrap();
    let message = listed["entries"].as_array().unwrap().last().unwrap();
    assert_eq!(message["truncated"], true);
    let text = "(image left out: 3750000 bytes)";
    assert_eq!(message["message"]["content"][1], json!({ "type": "text", "text": text }));
    assert_eq!(message["id"], listed["leafId"]);
}

#[test]
fn a_command_that_is_too_long_or_too_many_are_refused_with_the_limit() {
    let mut bench = Bench::new();
    let long = bench.send(json!({ "type": "bash", "command": "x".repeat(2 * 1024 * 1024) }));
    let error = bench.answered(long).unwrap_err();
    assert_eq!(
        error,
        "The command has 2097166 bytes, at most 2097152 are possible; put it into a file and run that"
    );
    bench.prompt("busy");
    for _ in 0..64 {
        bench.send(json!({ "type": "bash", "command": "true" }));
        let (number, ..) = bench.calls().pop().unwrap();
        bench.done(number, "", false);
    }
    let more = bench.send(json!({ "type": "bash", "command": "true" }));
    let error = bench.answered(more).unwrap_err();
    assert_eq!(error, "At most 64 commands can run during a turn; wait for its end");
    bench.say("done");
    let more = bench.send(json!({ "type": "bash", "command": "true" }));
    let (number, ..) = bench.calls().pop().unwrap();
    bench.done(number, "", false);
    assert!(bench.answered(more).is_ok());
}
