//! Renders the app's history: speech and voice tools. Used by [`super::Renderer`].
//!
//! The app and the daemon report some texts twice. A spoken prompt is in the history, and in an event if it was sent to
//! Pi. A tool run by the voice agent has its own events.

use super::calls::arguments;
use super::event;
use super::line_buffer::{LineBuffer, StreamKind};
use crate::output::{BOLD, CYAN, DIM};
use crate::sanitize::{Sanitizer, clean, one_line};
use anstyle::Style;
use serde_json::Value;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Maximum number of lines of a prompt that are shown on a terminal.
pub(super) const USER_LINES: usize = 10;

/// Maximum text shown per entry, in bytes.
const MAX_TEXT: usize = 64 * 1024;

/// Time within which the same text from both sources counts as one, the same as upstream's.
const SAME_WITHIN: Duration = Duration::from_millis(2500);

/// Maximum number of texts and calls kept for that.
const KEPT: usize = 32;

/// Source of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Events,
    History,
}

/// Recently shown texts, to drop duplicates from the other source.
#[derive(Debug, Default)]
pub(super) struct RecentTexts {
    texts: VecDeque<(Source, String, Instant)>,
    calls: VecDeque<String>,
    /// Texts typed at this terminal, which already shows them.
    typed: VecDeque<String>,
}

impl RecentTexts {
    /// Whether `text` is new, ignoring white space. Records it.
    pub(super) fn is_new(&mut self, source: Source, text: &str, now: Instant) -> bool {
        let text = essence(text);
        // The user has typed it in this client, which shows it already.
        if let Some(at) = self.typed.iter().position(|typed| *typed == text) {
            self.typed.remove(at);
            return false;
        }

        self.texts.retain(|(_, _, at)| now.saturating_duration_since(*at) < SAME_WITHIN);
        // The same source may repeat a text; another source reports the same one.
        let known = self.texts.iter().position(|(by, known, _)| *by != source && *known == text);
        if let Some(at) = known {
            self.texts.remove(at);
            return false;
        }

        push(&mut self.texts, (source, text, now));
        true
    }

    /// Records a text typed by the user.
    pub(super) fn typed(&mut self, text: &str) {
        push(&mut self.typed, essence(text));
    }

    /// Records that a call has events.
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

/// State of the history.
#[derive(Debug, Default)]
pub(super) struct History {
    answer: Sanitizer,
    was_shown: bool,
}

impl History {
    /// Renders one entry of the file.
    pub(super) fn entry(
        &mut self,
        entry: &Value,
        recent: &mut RecentTexts,
        verbose: bool,
        now: Instant,
        page: &mut LineBuffer,
    ) {
        let text = event::text(entry, "text");
        let text = text.get(..text.floor_char_boundary(MAX_TEXT)).unwrap_or_default();
        let metadata = entry.get("metadata").unwrap_or(&Value::Null);

        match event::text(entry, "type") {
            "user_text" if recent.is_new(Source::History, text, now) => {
                user(text, usize::MAX, page);
            }
            "user_text" => {}
            "assistant_text_delta" => {
                let mut clean = String::new();
                self.answer.feed(text, &mut clean);
                self.was_shown |= !clean.is_empty();
                page.flow(StreamKind::Voice, "", Style::new(), &clean);
            }
            "assistant_text" | "assistant_text_end" => {
                page.close();
                let is_new = !self.was_shown && !text.trim().is_empty();
                if is_new && recent.is_new(Source::History, text, now) {
                    page.flow(StreamKind::Voice, "", Style::new(), &clean(text));
                    page.close();
                }
                *self = Self::default();
            }
            "tool_call" => tool_call(metadata, recent, page),
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

/// Renders the first `most` lines of a user's prompt.
pub(super) fn user(text: &str, most: usize, page: &mut LineBuffer) {
    let text = clean(text);
    let lines = text.trim_end().lines();
    let more = lines.clone().count().saturating_sub(most);
    for line in lines.take(most) {
        page.line(format_args!("{BOLD}> {line}{BOLD:#}"));
    }
    if more != 0 {
        page.line(format_args!("{DIM}  … {more} more lines; quack export shows them{DIM:#}"));
    }
}

/// Renders the beginning of a call without events, which the daemon did not run.
fn tool_call(metadata: &Value, recent: &RecentTexts, page: &mut LineBuffer) {
    let id = event::text(metadata, "call_id");
    let is_start = event::text(metadata, "state") != "complete";
    if !is_start || recent.calls.iter().any(|known| known == id) {
        return;
    }

    let tool = one_line(event::text(metadata, "tool"), 60);
    let args = event::text(metadata, "arguments");
    let args = serde_json::from_str(args).unwrap_or_else(|_| Value::from(args));
    let args = arguments(&args);
    page.line(format_args!("{CYAN}[tool:voice]{CYAN:#} {BOLD}{tool}{BOLD:#}{args}"));
}
