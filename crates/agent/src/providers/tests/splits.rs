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
