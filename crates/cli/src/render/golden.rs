//! Tests the renderer with recorded output of real Pis. The expected text of each recording is next to it in
//! `tests/fixtures/agent-transcripts`. `QUACKD_WRITE_GOLDEN=1` rewrites the texts, so that a change of the renderer can
//! be reviewed.
//!
//! The recordings are Pi's own output. The daemon omits repeated events and the end of a retried run, which does not
//! change the text.

use super::{DisplayOptions, Renderer};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn recordings() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/agent-transcripts");
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "jsonl")).collect();
    found.sort();
    found
}

/// Returns the rendered text of a recording.
fn shown(recording: &Path) -> String {
    let look = DisplayOptions { show_thinking: true, verbose: false };
    let mut renderer = Renderer::new(look);
    let mut text = String::new();
    for line in std::fs::read_to_string(recording).unwrap().lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let name = event["type"].as_str().unwrap().to_owned();
        text.push_str(&renderer.render(&name, &event));
    }
    text.push_str(&renderer.close());
    anstream::adapter::strip_str(&text).to_string()
}

#[test]
fn recorded_turns_are_shown_as_they_were() {
    let recordings = recordings();
    assert_eq!(recordings.len(), 10, "recordings are missing");
    for recording in recordings {
        let shown = shown(&recording);
        let golden = recording.with_extension("txt");
        if std::env::var_os("QUACKD_WRITE_GOLDEN").is_some() {
            std::fs::write(&golden, &shown).unwrap();
        }
        let expected = std::fs::read_to_string(&golden).unwrap_or_default();
        assert_eq!(shown, expected, "{}", golden.display());
    }
}

/// The model's text appears exactly once, whether it arrived in pieces, as a whole, or both.
#[test]
fn no_text_of_a_recording_is_shown_twice_or_not_at_all() {
    for recording in recordings() {
        let shown: String = shown(&recording).split_whitespace().collect();
        let mut at = 0;
        for line in std::fs::read_to_string(&recording).unwrap().lines() {
            let event: Value = serde_json::from_str(line).unwrap();
            if event["type"] != "message_end" || event["message"]["role"] != "assistant" {
                continue;
            }
            for block in event["message"]["content"].as_array().unwrap() {
                let Some(text) = block["text"].as_str() else { continue };
                let text: String = text.split_whitespace().collect();
                let found = shown[at..].find(&text);
                at += found.unwrap_or_else(|| panic!("{text} is not in {shown}")) + text.len();
            }
        }
    }
}
