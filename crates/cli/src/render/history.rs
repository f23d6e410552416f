//! The app's history on the page: what was said by voice. Used by [`super::Renderer`].
//!
//! The app and the daemon tell the same thing twice: what a person said by voice is in the history, and in an event
//! if it went to Pi; a tool that the voice agent runs has events of its own.

use super::calls::arguments;
use super::clean::{Cleaner, clean, one_line};
use super::event;
use super::page::{Flow, Page};
use crate::output::{BOLD, CYAN, DIM};
use anstyle::Style;
use serde_json::Value;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Most that one entry shows, in bytes.
const MAX_TEXT: usize = 64 * 1024;

/// How long the same words from both sides count as the same, as upstream has it.
const SAME_WITHIN: Duration = Duration::from_millis(2500);

/// Texts and calls that are kept in mind for that.
const KEPT: usize = 32;

/// Who told something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Events,
    History,
}

/// What was shown lately, so that it is not shown again when the other side tells it.
#[derive(Debug, Default)]
pub(super) struct Shown {
    texts: VecDeque<(Source, String, Instant)>,
    calls: VecDeque<String>,
    /// What the person at this terminal typed: it stands there already.
    typed: VecDeque<String>,
}

impl Shown {
    /// Whether `text` is news. White space does not count.
    pub(super) fn is_new(&mut self, source: Source, text: &str, now: Instant) -> bool {
        let text = essence(text);
        if let Some(at) = self.typed.iter().position(|typed| *typed == text) {
            self.typed.remove(at);
            return false;
        }
        self.texts.retain(|(_, _, at)| now.saturating_duration_since(*at) < SAME_WITHIN);
        let known = self.texts.iter().position(|(by, known, _)| *by != source && *known == text);
        if let Some(at) = known {
            self.texts.remove(at);
            return false;
        }
        push(&mut self.texts, (source, text, now));
        true
    }

    /// The person has typed this.
    pub(super) fn typed(&mut self, text: &str) {
        push(&mut self.typed, essence(text));
    }

    /// A call has events.
    pub(super) fn call(&mut self, id: &str) {
        push(&mut self.calls, id.chars().take(200).collect());
    }
}

fn essence(text: &str) -> String {
    text.split_whitespace().flat_map(str::chars).take(4096).collect()
}

fn push<T>(kept: &mut VecDeque<T>, new: T) {
    if kept.len() == KEPT {
        kept.pop_front();
    }
    kept.push_back(new);
}

/// What is under way.
#[derive(Debug, Default)]
pub(super) struct History {
    answer: Cleaner,
    was_shown: bool,
}

impl History {
    /// Shows one entry of the file.
    pub(super) fn entry(
        &mut self,
        entry: &Value,
        shown: &mut Shown,
        (verbose, now): (bool, Instant),
        page: &mut Page,
    ) {
        let text = event::text(entry, "text");
        let text = text.get(..text.floor_char_boundary(MAX_TEXT)).unwrap_or_default();
        let metadata = entry.get("metadata").unwrap_or(&Value::Null);
        match event::text(entry, "type") {
            "user_text" if shown.is_new(Source::History, text, now) => user(text, page),
            "user_text" => {}
            "assistant_text_delta" => {
                let mut clean = String::new();
                self.answer.feed(text, &mut clean);
                self.was_shown |= !clean.is_empty();
                page.flow(Flow::Voice, "", Style::new(), &clean);
            }
            "assistant_text" | "assistant_text_end" => {
                page.close();
                let is_new = !self.was_shown && !text.trim().is_empty();
                if is_new && shown.is_new(Source::History, text, now) {
                    page.flow(Flow::Voice, "", Style::new(), &clean(text));
                    page.close();
                }
                *self = Self::default();
            }
            "tool_call" => tool_call(metadata, shown, page),
            "user_audio" if verbose => {
                let state = one_line(event::text(metadata, "state"), 60);
                page.line(format_args!("{DIM}[voice] {state}{DIM:#}"));
            }
            kind @ ("assistant_audio" | "response_complete") if verbose => {
                page.line(format_args!("{DIM}[app] {kind}{DIM:#}"));
            }
            _ => {}
        }
    }
}

/// What a person said.
pub(super) fn user(text: &str, page: &mut Page) {
    for line in clean(text).trim_end().lines() {
        page.line(format_args!("{BOLD}> {line}{BOLD:#}"));
    }
}

/// The beginning of a call that has no events: the daemon did not run it.
fn tool_call(metadata: &Value, shown: &Shown, page: &mut Page) {
    let id = event::text(metadata, "call_id");
    let is_start = event::text(metadata, "state") != "complete";
    if !is_start || shown.calls.iter().any(|known| known == id) {
        return;
    }
    let tool = one_line(event::text(metadata, "tool"), 60);
    let args = event::text(metadata, "arguments");
    let args = serde_json::from_str(args).unwrap_or_else(|_| Value::from(args));
    let args = arguments(&args);
    page.line(format_args!("{CYAN}[tool:voice]{CYAN:#} {BOLD}{tool}{BOLD:#}{args}"));
}
