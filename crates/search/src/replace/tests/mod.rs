//! Tests of planning and editing.

mod diffs;
mod edits;
mod plans;
mod properties;

use super::*;
use crate::request::{Multiline, Pattern};
use crate::tree::Stop;
use std::time::{Duration, Instant};

fn stop() -> Stop {
    Stop::at(Instant::now() + Duration::from_secs(600))
}

fn request(pattern: &str, replacement: &str) -> Replace {
    Replace::new(pattern, replacement, stop())
}

fn across_lines(pattern: &str, replacement: &str) -> Replace {
    let mut request = request(pattern, replacement);
    request.pattern = Pattern { multiline: Multiline::On { dot_all: false }, ..request.pattern };
    request
}

/// Returns the content after a replacement, or `old` if nothing changes.
fn edited(request: &Replace, old: &[u8]) -> Vec<u8> {
    let edited = Editor::new(request).unwrap().edit(old).unwrap();
    edited.map_or_else(|| old.to_vec(), |edited| edited.new)
}
