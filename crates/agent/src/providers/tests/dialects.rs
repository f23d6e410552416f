//! Streams of each API that differ from the recorded ones.

use super::{read, read_records};
use crate::message::{Block, StopReason, Usage};
use crate::providers::{Delta, ErrorKind, Finished, Stream, StreamEnd};
use quackd_protocol::model::EndReason;
use quackd_protocol::model::ModelApi::{self, *};
use serde_json::{Value, json};

fn chat(delta: Value, finish: Value) -> String {
    json!({"id": "r", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
        .to_string()
}

fn read_chat(records: &[String]) -> (Vec<Delta>, Finished) {
    read_records(OpenAiCompletions, &records.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Id, name and arguments of each call, and whether it may run.
fn calls(finished: &Finished) -> Vec<(String, String, Value, bool)> {
    let calls = finished.content.iter().filter_map(|block| match block {
        Block::ToolCall(call) => Some(call),
        _ => None,
    });
    let shown = |call: &crate::message::ToolCall| {
        let arguments = Value::Object(call.arguments.clone());
        (call.id.clone(), call.name.clone(), arguments, call.invalid.is_none())
    };
    calls.map(shown).collect()
}

fn call(id: &str, name: &str, arguments: Value, runs: bool) -> (String, String, Value, bool) {
    (id.to_owned(), name.to_owned(), arguments, runs)
}

fn outcome(finished: &Finished) -> (StopReason, Option<(&str, ErrorKind)>) {
    let error = finished.error.as_ref().map(|error| (&*error.text, error.kind));
    (finished.stop_reason, error)
}

#[test]
fn a_completion_without_a_finish_reason_is_an_error_and_one_without_done_is_complete() {
    let text = chat(json!({"content": "Hi"}), Value::Null);
    let missing = Some(("Stream ended without finish_reason", ErrorKind::Retryable));
    for records in [vec![text.clone()], vec![text.clone(), "[DONE]".to_owned()]] {
        let (deltas, finished) = read_chat(&records);
        assert_eq!(outcome(&finished), (StopReason::Error, missing));
        assert_eq!(finished.content, [Block::text("Hi")]);
        assert_eq!(deltas.len(), 3);
    }
    let (_, finished) = read_chat(&[text.clone(), chat(json!({}), json!("stop"))]);
    assert_eq!(outcome(&finished), (StopReason::Stop, None));

    let body = format!("data: {text}\n\n");
    let broken = StreamEnd::Broken("the connection ended".to_owned());
    let (_, finished) = read(OpenAiCompletions, [body.as_bytes()], broken.clone());
    let error = Some(("the connection ended", ErrorKind::Retryable));
    assert_eq!(outcome(&finished), (StopReason::Error, error));
    let (_, finished) = read(OpenAiCompletions, [], broken);
    assert!(!finished.any_bytes);
    let (deltas, finished) = read(OpenAiCompletions, [body.as_bytes()], StreamEnd::Aborted);
    assert_eq!(outcome(&finished), (StopReason::Aborted, None));
    assert_eq!(deltas.last(), Some(&Delta::TextEnd { content_index: 0, content: "Hi".into() }));
}

#[test]
fn a_stream_is_over_at_done_or_at_an_error_and_ignores_the_rest() {
    let stop = chat(json!({"content": "a"}), json!("stop"));
    for last in ["[DONE]".to_owned(), json!({"error": "overloaded"}).to_string()] {
        let mut stream = Stream::new(&super::model(OpenAiCompletions));
        stream.push(format!("data: {stop}\n\n").as_bytes());
        assert!(!stream.is_over());
        stream.push(format!("data: {last}\n\ndata: {stop}\n\n").as_bytes());
        assert!(stream.is_over());
        assert_eq!(stream.push(format!("data: {stop}\n\n").as_bytes()), []);
        assert_eq!(stream.finish(StreamEnd::Complete).1.content, [Block::text("a")]);
    }
}

#[test]
fn calls_of_completions_are_told_apart_by_id_and_index() {
    let part = |id: Value, index: Value, name: &str, arguments: Value| json!({"id": id, "index": index, "function": {"name": name, "arguments": arguments}});
    let none = Value::Null;
    let records = [
        // Two calls in one chunk, with one index and different ids.
        vec![
            part(json!("a"), json!(0), "x", json!("{\"n\":")),
            part(json!("b"), json!(0), "y", json!("")),
        ],
        // An id that is known, an index without an id, and an id that comes late.
        vec![part(json!("a"), json!(0), "x", json!("1}"))],
        vec![part(none.clone(), json!(5), "z", json!("{"))],
        vec![part(json!("late"), json!(5), "", json!("}"))],
        // Neither id nor index: a name starts a call. Arguments may be an object.
        vec![
            part(none.clone(), none.clone(), "v", json!({"k": 2})),
            part(none.clone(), none.clone(), "w", json!("[]")),
        ],
        vec![part(none.clone(), none, "", json!(" "))],
    ];
    let mut chunks: Vec<String> =
        records.into_iter().map(|it| chat(json!({"tool_calls": it}), Value::Null)).collect();
    chunks.push(chat(json!({}), json!("stop")));
    let (deltas, finished) = read_chat(&chunks);
    let expected = [
        call("a", "x", json!({"n": 1}), true),
        call("b", "y", json!({}), true),
        call("call_r_2", "z", json!({}), true),
        call("call_r_3", "v", json!({"k": 2}), true),
        call("call_r_4", "w", json!({}), false),
    ];
    assert_eq!(calls(&finished), expected);
    assert_eq!(finished.stop_reason, StopReason::ToolUse);
    // The first call ended before its arguments did, so that it ends again.
    let ends = deltas.iter().filter_map(|delta| match delta {
        Delta::ToolCallEnd { content_index: 0, tool_call } => Some(tool_call.invalid.is_some()),
        _ => None,
    });
    assert_eq!(ends.collect::<Vec<_>>(), [true, false]);
}

#[test]
fn calls_of_a_message_that_reached_its_limit_do_not_run() {
    let part =
        json!([{"index": 0, "id": "a", "function": {"name": "x", "arguments": "{\"n\":1}"}}]);
    let chunk = chat(json!({"tool_calls": part}), Value::Null);
    let (_, finished) = read_chat(&[chunk, chat(json!({}), json!("length"))]);
    assert_eq!(finished.stop_reason, StopReason::Length);
    assert_eq!(calls(&finished), [call("a", "x", json!({"n": 1}), false)]);
}

#[test]
fn the_first_field_of_reasoning_counts_and_its_name_is_the_signature() {
    let delta = json!({"reasoning_content": "", "reasoning": "hm", "reasoning_text": "hm"});
    let (_, finished) = read_chat(&[chat(delta, json!("stop"))]);
    let thinking = Block::Thinking {
        thinking: "hm".to_owned(),
        thinking_signature: Some("reasoning".to_owned()),
        redacted: false,
    };
    assert_eq!(finished.content, [thinking]);
}

#[test]
fn a_part_that_repeats_a_complete_call_is_no_second_one() {
    let part = |id: &str, arguments: &str| {
        let call =
            json!({"index": 0, "id": id, "function": {"name": "bash", "arguments": arguments}});
        chat(json!({"tool_calls": [call]}), Value::Null)
    };
    let end = chat(json!({}), json!("TOOL_CALLS"));
    let whole = r#"{"command":"ls"}"#;
    for repeated in
        [part("c1", ""), part("c1", " "), part("c1", whole), part("", ""), part("", whole)]
    {
        let (_, finished) = read_chat(&[part("c1", whole), repeated, end.clone()]);
        assert_eq!(finished.content.len(), 1, "{finished:?}");
        assert_eq!(outcome(&finished), (StopReason::ToolUse, None));
    }
    // Without ids, a second call with arguments is another one. So is one with other arguments.
    for (first, second) in
        [(part("", whole), part("", whole)), (part("c1", whole), part("c1", "{}"))]
    {
        let (_, finished) = read_chat(&[first, second, end.clone()]);
        assert_eq!(finished.content.len(), 2, "{finished:?}");
    }
}

#[test]
fn reasons_of_gateways_are_understood_and_words_between_records_ignored() {
    for (reason, stop) in [
        ("STOP", StopReason::Stop),
        ("COMPLETE", StopReason::Stop),
        ("MAX_TOKENS", StopReason::Length),
        // Without a call, the answer is a text.
        ("tool-calls", StopReason::Stop),
        ("tool_use", StopReason::Stop),
    ] {
        let chunk = chat(json!({"content": "Yes"}), json!(reason));
        let open = chat(json!({"content": "Yes"}), json!("null"));
        let (_, finished) = read_records(OpenAiCompletions, &["keep-alive", &open, "ping", &chunk]);
        assert_eq!(outcome(&finished), (stop, None), "{reason}");
    }
}

#[test]
fn a_call_that_only_the_whole_output_has_is_run_and_an_input_that_comes_twice_counts_once() {
    let text = json!({"type": "response.output_text.delta", "output_index": 0, "item_id": "m", "delta": "Yes"});
    let call = |id: &str| json!({"type": "function_call", "id": id, "call_id": format!("c{id}"), "name": "bash", "arguments": "{}"});
    let done = json!({"type": "response.completed", "response": {"status": "completed", "output": [
        {"type": "message", "id": "other", "content": [{"type": "output_text", "text": "Yes"}]},
        call("1"), call("2"),
    ]}});
    let added = json!({"type": "response.output_item.added", "output_index": 7, "item": call("1")});
    let ended = json!({"type": "response.output_item.done", "output_index": 7, "item": call("1")});
    for sent in [vec![], vec![&added, &ended]] {
        let records: Vec<String> =
            [&text].into_iter().chain(sent).chain([&done]).map(Value::to_string).collect();
        let records: Vec<&str> = records.iter().map(String::as_str).collect();
        let (_, finished) = read_records(OpenAiResponses, &records);
        assert_eq!(finished.content.len(), 3, "{finished:?}");
        assert_eq!(outcome(&finished), (StopReason::ToolUse, None));
    }

    let start = json!({"type": "content_block_start", "index": 0,
        "content_block": {"type": "tool_use", "id": "c", "name": "bash", "input": {"command": "ls"}}});
    let delta = json!({"type": "content_block_delta", "index": 0,
        "delta": {"type": "input_json_delta", "partial_json": "{\"command\":\"ls\"}"}});
    let stop = json!({"type": "content_block_stop", "index": 0});
    let end = json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}});
    let over = json!({"type": "message_stop"});
    for events in [
        vec![&start, &delta, &stop, &end, &over],
        vec![&start, &stop, &end, &over],
        vec![&start, &end, &over],
    ] {
        let records: Vec<String> = events.into_iter().map(Value::to_string).collect();
        let records: Vec<&str> = records.iter().map(String::as_str).collect();
        let (_, finished) = read_records(AnthropicMessages, &records);
        let [Block::ToolCall(call)] = finished.content.as_slice() else { panic!("{finished:?}") };
        assert_eq!((call.arguments["command"].as_str(), &call.invalid), (Some("ls"), &None));
    }
}

#[test]
fn errors_in_the_stream_of_each_api_are_classified() {
    let overloaded =
        json!({"type": "error", "error": {"message": "Overloaded", "type": "overloaded_error"}});
    let cases = [
        (overloaded.clone(), "Overloaded", ErrorKind::Retryable),
        (
            json!({"error": {"message": "Bad upstream", "code": 502}}),
            "Bad upstream",
            ErrorKind::Retryable,
        ),
        (json!({"error": {"message": "No", "code": 401}}), "No", ErrorKind::Fatal),
        (
            json!({"type": "error", "code": "server_error", "message": "Oops"}),
            "Oops",
            ErrorKind::Retryable,
        ),
        (
            json!({"error": {"code": "context_length_exceeded", "message": "Too long"}}),
            "Too long",
            ErrorKind::Overflow,
        ),
        (json!({"error": {}}), "the provider reported an error", ErrorKind::Fatal),
    ];
    for nothing in [Value::Null, json!(""), json!(false), json!({}), json!(0)] {
        let chunk = chat(json!({"content": "Yes"}), json!("stop"));
        let mut chunk: Value = serde_json::from_str(&chunk).unwrap();
        chunk["error"] = nothing;
        let (_, finished) = read_chat(&[chunk.to_string()]);
        assert_eq!(outcome(&finished), (StopReason::Stop, None));
    }
    for api in ModelApi::ALL {
        for (record, text, kind) in &cases {
            let (_, finished) = read_records(api, &[&record.to_string()]);
            assert_eq!(outcome(&finished), (StopReason::Error, Some((*text, *kind))));
        }
        let (_, finished) = read(api, [overloaded.to_string().as_bytes()], StreamEnd::Complete);
        assert_eq!(outcome(&finished).1, Some(("Overloaded", ErrorKind::Retryable)));
        let (_, finished) = read_records(api, &["{\"broken\": "]);
        assert_eq!(outcome(&finished).1.unwrap().1, ErrorKind::Retryable);
    }
    let failed = json!({"type": "response.failed", "response": {
        "status": "failed", "error": {"code": "insufficient_quota", "message": "Pay"}}});
    let (_, finished) = read_records(OpenAiResponses, &[&failed.to_string()]);
    assert_eq!(outcome(&finished), (StopReason::Error, Some(("Pay", ErrorKind::Fatal))));
}

#[test]
fn an_answer_without_text_and_calls_is_an_error() {
    let empty = [chat(json!({"content": ""}), json!("stop")), chat(json!({}), json!("tool_calls"))];
    let reasoning = chat(json!({"reasoning_content": "hm", "content": " \n"}), json!("stop"));
    for record in empty.into_iter().chain([reasoning]) {
        let (_, finished) = read_records(OpenAiCompletions, &[&record]);
        let expected = ("The model sent an empty answer", ErrorKind::Final(EndReason::Empty));
        assert_eq!(outcome(&finished), (StopReason::Error, Some(expected)), "{record}");
    }
    let (_, cut) = read_records(OpenAiCompletions, &[&chat(json!({}), json!("length"))]);
    assert!(outcome(&cut).1.unwrap().0.contains("OLLAMA_CONTEXT_LENGTH"));
}

#[test]
fn pieces_of_reasoning_details_are_joined_and_kept() {
    let piece = |details: Value| chat(json!({"reasoning_details": details}), json!(null));
    let text = |text: &str| json!([{"type": "reasoning.text", "text": text, "index": 0, "signature": null}]);
    let hidden = json!({"type": "reasoning.encrypted", "data": "E", "index": 1, "format": "x"});
    let records = [
        piece(text("he")),
        piece(json!([{"type": "reasoning.text", "text": "llo", "index": 0, "signature": "S"}])),
        piece(json!([hidden])),
        chat(json!({"content": "a"}), json!("stop")),
    ];
    let records: Vec<&str> = records.iter().map(String::as_str).collect();
    let (_, finished) = read_records(OpenAiCompletions, &records);
    let kept = finished.content.iter().find_map(|block| match block {
        Block::Thinking { thinking_signature: Some(signature), .. } => {
            serde_json::from_str::<Value>(signature).ok()
        }
        _ => None,
    });
    let whole = json!({"type": "reasoning.text", "text": "hello", "index": 0, "signature": "S"});
    assert_eq!(kept, Some(json!([whole, hidden])));
}

#[test]
fn calls_with_one_id_or_none_are_separate_calls() {
    let part = |id: &str, index: u64, name: &str, arguments: &str| {
        let function = json!({"name": name, "arguments": arguments});
        let call = json!({"index": index, "id": id, "type": "function", "function": function});
        chat(json!({"tool_calls": [call]}), json!(null))
    };
    let end = chat(json!({}), json!("tool_calls"));
    let calls = |records: &[String]| {
        let records: Vec<&str> = records.iter().chain([&end]).map(String::as_str).collect();
        let (_, finished) = read_records(OpenAiCompletions, &records);
        let calls = finished.content.into_iter().filter_map(|block| match block {
            Block::ToolCall(call) => {
                Some((call.name, json!(call.arguments).to_string(), call.invalid))
            }
            _ => None,
        });
        calls.collect::<Vec<_>>()
    };
    let call = |name: &str, arguments: &str| (name.to_owned(), arguments.to_owned(), None);
    let (a, b) = (r#"{"a":1}"#, r#"{"b":2}"#);
    for (id, second) in [("x", 1), ("x", 0), ("", 0), ("", 1)] {
        let both = calls(&[part(id, 0, "bash", a), part(id, second, "bash", b)]);
        assert_eq!(both, [call("bash", a), call("bash", b)], "{id:?} {second}");
    }
    let named = calls(&[part("", 0, "bash", ""), part("", 0, "read", b)]);
    assert_eq!(named, [call("bash", "{}"), call("read", b)]);
    // A name that each part of one call repeats.
    for id in ["", "x"] {
        let pieces = [r#"{"a":"#, "1", "}"];
        let one = calls(&pieces.map(|piece| part(id, 0, "bash", piece)));
        assert_eq!(one, [call("bash", a)], "{id:?}");
    }
}

#[test]
fn reasons_of_the_end_are_those_of_each_api() {
    let fails = |kind| (StopReason::Error, Some(kind));
    let is = |stop| (stop, None);
    let (chat_end, anthropic, responses) = (
        |reason: &str| chat(json!({"content": "a"}), json!(reason)),
        |reason: &str| {
            json!({"type": "message_delta", "delta": {"stop_reason": reason}}).to_string()
        },
        |reason: &str| {
            let details = json!({"reason": reason});
            json!({"type": "response.incomplete", "response": {"incomplete_details": details}})
                .to_string()
        },
    );
    let refused = fails(ErrorKind::Final(EndReason::Refusal));
    let cases = [
        (OpenAiCompletions, chat_end("stop"), is(StopReason::Stop)),
        (OpenAiCompletions, chat_end("tool_calls"), is(StopReason::Stop)),
        (OpenAiCompletions, chat_end("length"), is(StopReason::Length)),
        (OpenAiCompletions, chat_end("content_filter"), refused),
        (OpenAiCompletions, chat_end("network_error"), fails(ErrorKind::Retryable)),
        (OpenAiResponses, responses("max_output_tokens"), is(StopReason::Length)),
        (OpenAiResponses, responses("content_filter"), refused),
        (AnthropicMessages, anthropic("end_turn"), is(StopReason::Stop)),
        (AnthropicMessages, anthropic("pause_turn"), is(StopReason::Stop)),
        (AnthropicMessages, anthropic("max_tokens"), is(StopReason::Length)),
        (AnthropicMessages, anthropic("refusal"), refused),
        (AnthropicMessages, anthropic("model_context_window_exceeded"), fails(ErrorKind::Overflow)),
    ];
    let text = |api| match api {
        OpenAiCompletions => chat(json!({"content": "a"}), json!(null)),
        OpenAiResponses => {
            json!({"type": "response.output_text.delta", "output_index": 0, "delta": "a"})
                .to_string()
        }
        AnthropicMessages => {
            let block = json!({"type": "text", "text": "a"});
            json!({"type": "content_block_start", "index": 0, "content_block": block}).to_string()
        }
    };
    for (api, record, expected) in cases {
        let (_, finished) = read_records(api, &[&text(api), &record]);
        let (stop, error) = outcome(&finished);
        assert_eq!((stop, error.map(|(_, kind)| kind)), expected, "{record}");
        let raw = finished.raw_stop_reason;
        assert_eq!(
            raw.is_some(),
            expected.1.is_some(),
            "only a failure has a reason of its provider"
        );
        assert!(raw.is_none_or(|raw| record.contains(&format!("\"{raw}\""))), "{record}");
    }
}

#[test]
fn a_context_that_was_cut_in_silence_is_an_overflow() {
    let read = |prompt: u64, completion: u64, reason: &str| {
        let usage = json!({"prompt_tokens": prompt, "completion_tokens": completion});
        let usage = json!({"choices": [], "usage": usage}).to_string();
        let (_, finished) = read_chat(&[chat(json!({"content": "a"}), json!(reason)), usage]);
        (finished.stop_reason, finished.error.map(|error| error.kind))
    };
    assert_eq!(read(128_000, 1, "stop"), (StopReason::Stop, None));
    assert_eq!(read(128_001, 1, "stop"), (StopReason::Stop, Some(ErrorKind::Overflow)));
    assert_eq!(read(126_720, 0, "length"), (StopReason::Length, Some(ErrorKind::Overflow)));
    assert_eq!(read(126_719, 0, "length"), (StopReason::Length, None));
    assert_eq!(read(127_999, 1, "length"), (StopReason::Length, None));
}

#[test]
fn counts_of_anthropic_are_totals_and_missing_ones_stay() {
    let (_, finished) = read_records(
        AnthropicMessages,
        &[
            r#"{"type":"message_start","message":{"usage":{"input_tokens":9,"output_tokens":1,"cache_read_input_tokens":5}}}"#,
            r#"{"type":"message_delta","delta":{},"usage":{"output_tokens":7,"input_tokens":null}}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":8}}"#,
            r#"{"type":"message_stop"}"#,
        ],
    );
    let usage = Usage { input: 9, output: 8, cache_read: 5, ..Usage::default() };
    assert_eq!(finished.usage, usage.priced(super::model(AnthropicMessages).price, None));
    assert_eq!(finished.usage.total_tokens, 22);
}

#[test]
fn hidden_reasoning_and_unknown_blocks_of_anthropic_are_read() {
    let (_, finished) = read_records(
        AnthropicMessages,
        &[
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"redacted_thinking","data":"xyz"}}"#,
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"server_tool_use","id":"s"}}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{}"}}"#,
            r#"{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"t","name":"x","input":{"a":1}}}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"}}"#,
        ],
    );
    let hidden = Block::Thinking {
        thinking: String::new(),
        thinking_signature: Some("xyz".to_owned()),
        redacted: true,
    };
    assert_eq!(finished.content[0], hidden);
    assert_eq!(calls(&finished), [call("t", "x", json!({"a": 1}), true)]);
}

#[test]
fn responses_without_deltas_or_without_items_are_read() {
    let item = |text: &str| json!({"type": "message", "id": "msg_1", "content": [{"type": "refusal", "refusal": text}]});
    let output = json!([item("No."), {"type": "web_search_call"}, {"type": "function_call", "call_id": "c", "name": "x", "arguments": "{}"}]);
    let done = json!({"type": "response.completed", "response": {"status": "completed", "output": output}});
    let (_, finished) = read_records(OpenAiResponses, &[&done.to_string()]);
    assert_eq!(crate::message::text_of(&finished.content), "No.");
    assert_eq!(calls(&finished), [call("c", "x", json!({}), true)]);

    let delta = r#"{"type":"response.output_text.delta","output_index":0,"delta":"Ye"}"#;
    let corrected =
        json!({"type": "response.output_item.done", "output_index": 0, "item": item("Yes")});
    let (deltas, finished) =
        read_records(OpenAiResponses, &[delta, &corrected.to_string(), &done.to_string()]);
    assert_eq!(
        finished.content[0],
        Block::Text { text: "Yes".into(), text_signature: Some("msg_1".into()) }
    );
    assert!(deltas.contains(&Delta::TextDelta { content_index: 0, delta: "Yes".into() }));
}

#[test]
fn an_answer_has_limits_of_bytes_and_blocks() {
    let mut stream = Stream::new(&super::model(OpenAiCompletions));
    let chunk = chat(json!({"content": "x".repeat(1 << 19)}), Value::Null);
    let chunk = format!("data: {chunk}\n\n");
    let deltas: Vec<usize> = (0..16).map(|_| stream.push(chunk.as_bytes()).len()).collect();
    assert_eq!(deltas.iter().sum::<usize>(), 17);
    assert!(!stream.is_over());
    assert_eq!(stream.push(chunk.as_bytes()), []);
    let (_, finished) = stream.finish(StreamEnd::Complete);
    assert_eq!(outcome(&finished).1.unwrap().1, ErrorKind::Fatal);

    let both = chat(json!({"reasoning": "a", "content": "b"}), Value::Null);
    let (_, finished) = read_chat(&vec![both; 200]);
    assert_eq!(finished.content.len(), 256);
    assert_eq!(
        outcome(&finished).1,
        Some(("the answer has more than 256 blocks", ErrorKind::Fatal))
    );

    let line = [b"data: ".as_slice(), &vec![b'x'; 1 << 24]].concat();
    let (_, finished) = read(OpenAiCompletions, line.chunks(1 << 16), StreamEnd::Complete);
    assert_eq!(outcome(&finished).1.unwrap().1, ErrorKind::Fatal);
}
