//! The renderer over what real Pis have printed, recorded: the text of each recording stands beside it in
//! `tests/fixtures/agent-transcripts`. A change of the renderer shows there; `QUACKD_WRITE_GOLDEN=1` writes the texts
//! anew, for a person to compare.
//!
//! The recordings are as Pi prints them: the daemon leaves out repeats and the end of a run that is tried again,
//! which changes no text.

use super::{Look, Renderer};
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

/// What a person sees of a recording.
fn shown(recording: &Path) -> String {
    let look = Look { show_thinking: true, verbose: false };
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

/// What the model said is there once, whether it came in pieces, as a whole, or both.
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
