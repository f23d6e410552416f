//! Tests of all three APIs, with streams recorded from a scripted server.

mod dialects;
mod failures;
mod requests;
mod splits;

use super::{Delta, Finished, Stream, StreamEnd};
use quackd_protocol::model::{InputKind, ModelApi, ModelCompat, ModelCost, ModelInfo, Price};

/// A stream with reasoning, text beyond ASCII and three calls.
fn recording(api: ModelApi) -> &'static [u8] {
    match api {
        ModelApi::OpenAiCompletions => include_bytes!("../../../tests/fixtures/completions.sse"),
        ModelApi::OpenAiResponses => include_bytes!("../../../tests/fixtures/responses.sse"),
        ModelApi::AnthropicMessages => include_bytes!("../../../tests/fixtures/anthropic.sse"),
    }
}

const PRICES: ModelCost = ModelCost { input: 1.0, output: 2.0, cache_read: 0.1, cache_write: 1.25 };

fn model(api: ModelApi) -> ModelInfo {
    ModelInfo {
        id: "fake-1".to_owned(),
        name: "Fake".to_owned(),
        api,
        provider: "fake".to_owned(),
        base_url: "http://127.0.0.1:1/v1".to_owned(),
        reasoning: true,
        input: vec![InputKind::Text, InputKind::Image],
        price: Price::Known(PRICES),
        context_window: 128_000,
        max_tokens: 40_000,
        compat: ModelCompat::default(),
    }
}

/// Reads a body in these pieces. Joins adjacent deltas of a block.
fn read<'a>(
    api: ModelApi,
    pieces: impl IntoIterator<Item = &'a [u8]>,
    end: StreamEnd,
) -> (Vec<Delta>, Finished) {
    let mut stream = Stream::new(&model(api));
    let mut all: Vec<Delta> = pieces.into_iter().flat_map(|piece| stream.push(piece)).collect();
    let (last, finished) = stream.finish(end);
    all.extend(last);
    let mut joined: Vec<Delta> = Vec::new();
    for delta in all {
        if !joined.last_mut().is_some_and(|last| last.join(&delta)) {
            joined.push(delta);
        }
    }
    (joined, finished)
}

/// Reads records, each given as its data.
fn read_records(api: ModelApi, records: &[&str]) -> (Vec<Delta>, Finished) {
    let body: String = records.iter().map(|data| format!("data: {data}\n\n")).collect();
    read(api, [body.as_bytes()], StreamEnd::Complete)
}
