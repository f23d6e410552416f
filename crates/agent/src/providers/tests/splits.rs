//! A body cut anywhere gives the same answer, and a damaged one gives an answer or an error.

use super::{model, read, recording};
use crate::message::{Block, StopReason, ToolCall, Usage};
use crate::providers::{Delta, Finished, Stream, StreamEnd};
use proptest::prelude::*;
use quackd_protocol::model::ModelApi;
use serde_json::json;

const THINKING: &str = "First, look: the file’s name is naïve.txt 🦆.";
const TEXT: &str = "I read it.\nGrüße, 世界 👋 — done";

fn calls(api: ModelApi) -> [ToolCall; 3] {
    let call = |id: &str, name: &str, arguments: serde_json::Value| {
        let id = match api {
            ModelApi::OpenAiCompletions => id.to_owned(),
            ModelApi::OpenAiResponses => format!("{id}|fc_{id}"),
            ModelApi::AnthropicMessages => format!("toolu_{id}"),
        };
        let arguments = arguments.as_object().unwrap().clone();
        ToolCall { id, name: name.to_owned(), arguments, ..ToolCall::default() }
    };
    [
        call("c1", "read", json!({"path": "naïve 🦆.txt"})),
        call("c2", "bash", json!({"command": "echo \"a\\n\" && ls", "timeout": 5})),
        call("c3", "ls", json!({})),
    ]
}

fn usage(api: ModelApi) -> Usage {
    let is_anthropic = api == ModelApi::AnthropicMessages;
    // The recording of Anthropic has 120 tokens besides those of the cache; the others have them in the 120.
    let usage = Usage {
        input: if is_anthropic { 120 } else { 20 },
        output: 45,
        cache_read: 100,
        cache_write: if is_anthropic { 7 } else { 0 },
        reasoning: (!is_anthropic).then_some(12),
        ..Usage::default()
    };
    usage.priced(model(api).price, None)
}

fn expected(api: ModelApi) -> (Vec<Delta>, Finished) {
    let signature = match api {
        ModelApi::OpenAiCompletions => "reasoning_content".to_owned(),
        ModelApi::OpenAiResponses => {
            let summary = json!([{"type": "summary_text", "text": THINKING}]);
            json!({"type": "reasoning", "id": "rs_1", "summary": summary}).to_string()
        }
        ModelApi::AnthropicMessages => "c2lnbmF0dXJl".to_owned(),
    };
    let text_signature = (api == ModelApi::OpenAiResponses).then(|| "msg_1".to_owned());
    let calls = calls(api);
    let raw =
        ["{\"path\": \"naïve 🦆.txt\"}", r#"{"command": "echo \"a\\n\" && ls", "timeout": 5}"#, ""];

    let (thinking, text) = (THINKING.to_owned(), TEXT.to_owned());
    let mut deltas = vec![
        Delta::ThinkingStart { content_index: 0 },
        Delta::ThinkingDelta { content_index: 0, delta: thinking.clone() },
        Delta::ThinkingEnd { content_index: 0, content: thinking.clone() },
        Delta::TextStart { content_index: 1 },
        Delta::TextDelta { content_index: 1, delta: text.clone() },
        Delta::TextEnd { content_index: 1, content: text.clone() },
    ];
    for (content_index, (call, raw)) in (2..).zip(calls.iter().zip(raw)) {
        let (id, name) = (call.id.clone(), call.name.clone());
        deltas.push(Delta::ToolCallStart { content_index, id, name });
        if !raw.is_empty() {
            deltas.push(Delta::ToolCallDelta { content_index, delta: raw.to_owned() });
        }
        deltas.push(Delta::ToolCallEnd { content_index, tool_call: call.clone() });
    }
    let usage = usage(api);
    match api {
        ModelApi::OpenAiCompletions => deltas.insert(deltas.len() - 1, Delta::Usage(usage)),
        ModelApi::OpenAiResponses => deltas.push(Delta::Usage(usage)),
        ModelApi::AnthropicMessages => {
            let first = Usage { output: 1, ..usage }.priced(model(api).price, None);
            deltas.insert(0, Delta::Usage(first));
            deltas.push(Delta::Usage(usage));
        }
    }
    let mut content = vec![
        Block::Thinking { thinking, thinking_signature: Some(signature), redacted: false },
        Block::Text { text, text_signature },
    ];
    content.extend(calls.map(Block::ToolCall));
    let id = match api {
        ModelApi::OpenAiCompletions => "chatcmpl-1",
        ModelApi::OpenAiResponses => "resp_1",
        ModelApi::AnthropicMessages => "msg_1",
    };
    let finished = Finished {
        is_refusal: false,
        has_refused: false,
        content,
        usage,
        stop_reason: StopReason::ToolUse,
        raw_stop_reason: None,
        error: None,
        response_id: Some(id.to_owned()),
        any_bytes: true,
    };
    (deltas, finished)
}

#[test]
fn a_recorded_stream_cut_at_any_byte_gives_the_same_answer() {
    for api in ModelApi::ALL {
        let (body, expected) = (recording(api), expected(api));
        for cut in 0..=body.len() {
            let (head, tail) = body.split_at(cut);
            assert_eq!(read(api, [head, tail], StreamEnd::Complete), expected, "{api:?} at {cut}");
        }
        for size in 1..=17 {
            let read = read(api, body.chunks(size), StreamEnd::Complete);
            assert_eq!(read, expected, "{api:?} in pieces of {size}");
        }
    }
}

#[test]
fn line_ends_comments_and_a_byte_order_mark_change_nothing() {
    for api in ModelApi::ALL {
        let text = std::str::from_utf8(recording(api)).unwrap();
        for end in ["\r\n", "\r"] {
            let text = text.replace("\n\n", "\n\n: still here\n\nid: 7\nretry: 1\n\n");
            let text = format!("\u{feff}{}", text.replace('\n', end));
            for size in [1, 2, 3, 1000, text.len()] {
                let read = read(api, text.as_bytes().chunks(size), StreamEnd::Complete);
                assert_eq!(read, expected(api), "{api:?} {end:?} {size}");
            }
        }
    }
}

#[test]
fn a_stream_that_ends_before_its_end_marker_is_never_a_stop() {
    for api in ModelApi::ALL {
        let (body, whole) = (recording(api), expected(api).1);
        for cut in 0..body.len() {
            let (_, cut) = read(api, [&body[..cut]], StreamEnd::Complete);
            let is_whole = cut.stop_reason == StopReason::ToolUse && cut.content == whole.content;
            let error = cut.error.as_ref().map_or("", |error| &error.text);
            assert_eq!(error.starts_with("Stream ended without"), !is_whole, "{cut:?}");
            for block in if is_whole { &[] } else { &cut.content[..] } {
                assert!(!matches!(block, Block::ToolCall(call) if call.invalid.is_none()));
            }
        }
    }
}

#[test]
fn a_whole_completion_instead_of_a_stream_gives_the_same_answer() {
    let body = include_bytes!("../../../tests/fixtures/completion.json");
    let body = [b"\xef\xbb\xbf \n", &body[..]].concat();
    let (deltas, finished) = expected(ModelApi::OpenAiCompletions);
    for size in [1, 7, body.len()] {
        let api = ModelApi::OpenAiCompletions;
        let (read, whole) = read(api, body.chunks(size), StreamEnd::Complete);
        assert_eq!(whole.content, finished.content);
        assert_eq!((whole.usage, whole.stop_reason), (finished.usage, finished.stop_reason));
        let without_usage = |deltas: &[Delta]| -> Vec<Delta> {
            deltas.iter().filter(|it| !matches!(it, Delta::Usage(_))).cloned().collect()
        };
        assert_eq!(without_usage(&read), without_usage(&deltas));
    }
    let (deltas, cut) =
        read(ModelApi::OpenAiCompletions, [&body[..body.len() - 1]], StreamEnd::Complete);
    assert_eq!((deltas, cut.stop_reason), (Vec::new(), StopReason::Error));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn damaged_bytes_never_panic_and_every_block_that_starts_ends(
        api in prop::sample::select(ModelApi::ALL.to_vec()),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4_u8), 1..12),
        size in 1..2000_usize,
    ) {
        let mut body = recording(api).to_vec();
        for (index, byte, kind) in edits {
            let at = index.index(body.len());
            match kind {
                0 => body[at] = byte,
                1 => { body.remove(at); }
                2 => body.insert(at, byte),
                _ => body.truncate(at.max(body.len() / 2)),
            }
        }
        let mut stream = Stream::new(&model(api));
        let mut deltas: Vec<Delta> =
            body.chunks(size).flat_map(|piece| stream.push(piece)).collect();
        let (last, finished) = stream.finish(StreamEnd::Complete);
        deltas.extend(last);
        prop_assert_eq!(finished.stop_reason == StopReason::Error, finished.error.is_some());
        // Without counts, the cost of a whole answer is not known.
        let mut priced = finished.usage.priced(model(api).price, None).cost;
        priced.unknown = finished.usage.cost.unknown && finished.usage.total_tokens == 0;
        prop_assert_eq!(finished.usage.cost, priced);
        prop_assert!(finished.usage.cost.total != 0.0 || finished.usage.total_tokens == 0);
        for index in 0..finished.content.len() {
            let ends = deltas.iter().filter(|delta| matches!(delta,
                Delta::TextEnd { content_index, .. }
                | Delta::ThinkingEnd { content_index, .. }
                | Delta::ToolCallEnd { content_index, .. } if *content_index == index));
            prop_assert!((1..=2).contains(&ends.count()));
        }
    }
}

/// Returns the records of a call, a text and reasoning that come in these parts, which are escaped as in JSON.
fn parts_of_all_kinds(api: ModelApi, parts: &[&str]) -> Vec<String> {
    let mut records = Vec::new();
    let quoted = |part: &str| format!(r#"{{\"a\":\"{part}\"}}"#);
    match api {
        ModelApi::OpenAiCompletions => {
            let mut delta = |delta: String| {
                records.push(format!(r#"{{"choices":[{{"delta":{{{delta}}}}}]}}"#));
            };
            for field in ["reasoning", "content"] {
                parts.iter().for_each(|part| delta(format!(r#""{field}":"{part}""#)));
            }
            delta(r#""tool_calls":[{"index":0,"id":"c","function":{"name":"n","arguments":"{\"a\":\""}}]"#.to_owned());
            // A part of another call comes between the parts of the first one.
            delta(
                r#""tool_calls":[{"index":1,"id":"d","function":{"name":"n","arguments":"{}"}}]"#
                    .to_owned(),
            );
            for part in parts.iter().copied().chain([r#"\"}"#]) {
                delta(format!(
                    r#""tool_calls":[{{"index":0,"function":{{"arguments":"{part}"}}}}]"#
                ));
                delta(r#""tool_calls":[{"index":1,"function":{"arguments":""}}]"#.to_owned());
            }
            records.push(r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#.to_owned());
        }
        ModelApi::OpenAiResponses => {
            for part in parts {
                records.push(format!(r#"{{"type":"response.reasoning_text.delta","output_index":0,"delta":"{part}"}}"#));
            }
            for part in parts {
                records.push(format!(
                    r#"{{"type":"response.output_text.delta","output_index":1,"delta":"{part}"}}"#
                ));
            }
            let item = r#"{"type":"function_call","call_id":"c","name":"n"}"#;
            records.push(format!(
                r#"{{"type":"response.output_item.added","output_index":2,"item":{item}}}"#
            ));
            for part in [r#"{\"a\":\""#].iter().chain(parts).chain(&[r#"\"}"#]) {
                records.push(format!(r#"{{"type":"response.function_call_arguments.delta","output_index":2,"delta":"{part}"}}"#));
            }
            let whole = quoted(&parts.concat());
            records.push(format!(r#"{{"type":"response.function_call_arguments.done","output_index":2,"arguments":"{whole}"}}"#));
            records
                .push(r#"{"type":"response.completed","response":{"status":"completed"}}"#.into());
        }
        ModelApi::AnthropicMessages => {
            let starts = [
                r#"{"type":"thinking"}"#,
                r#"{"type":"text"}"#,
                r#"{"type":"tool_use","id":"c","name":"n"}"#,
            ];
            let fields = [
                ("thinking_delta", "thinking"),
                ("text_delta", "text"),
                ("input_json_delta", "partial_json"),
            ];
            for (index, (start, (kind, field))) in starts.into_iter().zip(fields).enumerate() {
                records.push(format!(
                    r#"{{"type":"content_block_start","index":{index},"content_block":{start}}}"#
                ));
                let around: &[&str] = if index == 2 { &[r#"{\"a\":\""#, r#"\"}"#] } else { &[] };
                let parts = around.iter().take(1).chain(parts).chain(around.iter().skip(1));
                for part in parts {
                    records.push(format!(r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"{kind}","{field}":"{part}"}}}}"#));
                }
                records.push(format!(r#"{{"type":"content_block_stop","index":{index}}}"#));
            }
            records.push(r#"{"type":"message_stop"}"#.to_owned());
        }
    }
    records
}

#[test]
fn a_character_that_is_cut_between_two_deltas_arrives_in_every_kind_of_block() {
    for (parts, whole) in [
        (&[r"a\ud83d", r"\ude42b"][..], "a🙂b"),
        (&[r"\uD83D", r"\uDE42"], "🙂"),
        (&[r"a\ud83d", "", r"\ude42\ud83d", r"\ude42b"], "a🙂🙂b"),
        (&[r"a\ud83d", "b"], "a\u{fffd}b"),
        (&["a", r"\ude42b"], "a\u{fffd}b"),
        (&[r"a\ud83d", r"\ud83d", r"\ude42"], "a\u{fffd}🙂"),
        (&[r"a\ud83d"], "a\u{fffd}"),
        (&[r"a\ude42\ud83db"], "a\u{fffd}\u{fffd}b"),
        (&[r"a\ud83d", r"\ude42", "\u{10f83d}"], "a🙂\u{10f83d}"),
        (&[r"a\ud83d\udbfe\udc3d", "b"], "a\u{fffd}\u{10f83d}b"),
    ] {
        for api in ModelApi::ALL {
            let records = parts_of_all_kinds(api, parts);
            let records: Vec<&str> = records.iter().map(String::as_str).collect();
            let (deltas, finished) = super::read_records(api, &records);
            assert_eq!(finished.error, None, "{api:?} {parts:?}");
            let mut shown: [String; 3] = Default::default();
            for delta in &deltas {
                match delta {
                    Delta::ThinkingDelta { delta, .. } => shown[0].push_str(delta),
                    Delta::TextDelta { delta, .. } => shown[1].push_str(delta),
                    Delta::ToolCallDelta { content_index: 2, delta } => shown[2].push_str(delta),
                    _ => {}
                }
            }
            let arguments = format!(r#"{{"a":"{whole}"}}"#);
            assert_eq!(shown, [whole, whole, &arguments], "{api:?} {parts:?}");
            let [
                Block::Thinking { thinking, .. },
                Block::Text { text, .. },
                Block::ToolCall(call),
                ..,
            ] = &*finished.content
            else {
                panic!("{api:?} {:?}", finished.content)
            };
            assert_eq!((&**thinking, &**text), (whole, whole), "{api:?} {parts:?}");
            assert_eq!(call.arguments["a"], whole, "{api:?} {parts:?}");
            assert_eq!(call.invalid, None);
            let ends = |delta: &&Delta| match delta {
                Delta::ThinkingEnd { content, .. } | Delta::TextEnd { content, .. } => {
                    content == whole
                }
                Delta::ToolCallEnd { tool_call, .. } => {
                    tool_call.arguments.get("a").is_some_and(|it| it == whole)
                }
                _ => false,
            };
            assert!(deltas.iter().filter(ends).count() >= 3, "{api:?} {parts:?} {deltas:?}");
        }
    }
}

#[test]
fn a_final_text_completes_a_cut_character() {
    let (deltas, finished) = super::read_records(
        ModelApi::OpenAiResponses,
        &[
            r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"m"}}"#,
            r#"{"type":"response.output_text.delta","output_index":0,"delta":"a\ud83d"}"#,
            r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"message","id":"m","content":[{"text":"a\ud83d\ude42b\ud83d"}]}}"#,
            r#"{"type":"response.completed","response":{"status":"completed"}}"#,
        ],
    );
    let whole = "a🙂b\u{fffd}";
    assert!(deltas.contains(&Delta::TextEnd { content_index: 0, content: whole.to_owned() }));
    assert!(matches!(&*finished.content, [Block::Text { text, .. }] if text == whole));
}

#[test]
fn details_of_the_reasoning_are_joined() {
    let detail = |text: &str| {
        format!(
            r#"{{"choices":[{{"delta":{{"reasoning_details":[{{"type":"reasoning.text","index":0,"text":"{text}"}}]}}}}]}}"#
        )
    };
    let (_, finished) = super::read_records(
        ModelApi::OpenAiCompletions,
        &[
            &detail(r"a\ud83d"),
            &detail(r"\ude42b\ud83d"),
            r#"{"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}"#,
        ],
    );
    let signature = finished.content.iter().find_map(|block| match block {
        Block::Thinking { thinking_signature, .. } => thinking_signature.clone(),
        _ => None,
    });
    assert!(signature.unwrap().contains("\"text\":\"a🙂b\u{fffd}\""));
}
