//! The open dialogs of one Pi: questions to the user. Does no I/O; time is an argument.
//!
//! The daemon keeps open dialogs, repeats them to new followers and accepts one answer to each. It remembers the reason
//! why a dialog was closed, so that a late answer gets a precise error.

use crate::approvals::CloseReason;
use bytes::Bytes;
use quackd_protocol::limits::MAX_PI_DIALOGS;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Number of closed dialogs that are remembered. The oldest is dropped first.
const MAX_CLOSED: usize = 256;

/// A dialog without an answer.
#[derive(Debug)]
struct OpenDialog {
    id: String,
    /// Number of the event that announced it.
    seq: u64,
    /// The event as JSON.
    line: Bytes,
    until: Option<Instant>,
}

/// Explanation for a client that answers a closed dialog.
pub(crate) fn explanation(why: CloseReason) -> &'static str {
    match why {
        CloseReason::Answered => "was answered already",
        CloseReason::TimedOut => "has timed out",
        CloseReason::Ended => "is over: the turn or Pi has ended",
    }
}

/// Result of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AnswerOutcome {
    /// The first answer, which Pi gets.
    First,
    /// The dialog was already closed.
    Late(CloseReason),
    /// No such dialog exists. Upstream passes the answer to Pi.
    Unknown,
}

/// The open dialogs of one Pi, and the last closed ones.
#[derive(Debug, Default)]
pub(crate) struct Dialogs {
    waiting: Vec<OpenDialog>,
    closed: VecDeque<(String, CloseReason)>,
}

impl Dialogs {
    /// Whether another dialog can be opened.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting.len() < MAX_PI_DIALOGS
    }

    /// Whether a dialog is open.
    pub(crate) fn any(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Opens a dialog that was announced in event `seq`. Replaces an earlier one with the same id.
    pub(crate) fn open(&mut self, id: String, seq: u64, line: Bytes, until: Option<Instant>) {
        self.waiting.retain(|dialog| dialog.id != id);
        self.closed.retain(|(closed, _)| *closed != id);
        self.waiting.push(OpenDialog { id, seq, line, until });
    }

    /// Answers a dialog.
    pub(crate) fn answer(&mut self, id: &str) -> AnswerOutcome {
        if let Some(at) = self.waiting.iter().position(|dialog| dialog.id == id) {
            let dialog = self.waiting.remove(at);
            self.note(dialog.id, CloseReason::Answered);
            return AnswerOutcome::First;
        }
        let closed = self.closed.iter().find(|(closed, _)| closed == id);
        closed.map_or(AnswerOutcome::Unknown, |(_, why)| AnswerOutcome::Late(*why))
    }

    /// Closes expired dialogs and returns their ids.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<String> {
        self.close(CloseReason::TimedOut, |dialog| dialog.until.is_some_and(|until| until <= now))
    }

    /// Closes all dialogs and returns their ids.
    pub(crate) fn end(&mut self) -> Vec<String> {
        self.close(CloseReason::Ended, |_| true)
    }

    /// Time from `now` until [`Dialogs::expire`] must be called.
    pub(crate) fn due_in(&self, now: Instant) -> Option<Duration> {
        let next = self.waiting.iter().filter_map(|dialog| dialog.until).min()?;
        Some(next.saturating_duration_since(now))
    }

    /// The open dialogs: the number of the event that announced each, and the event as JSON.
    pub(crate) fn announced(&self) -> Vec<(u64, Bytes)> {
        self.waiting.iter().map(|dialog| (dialog.seq, dialog.line.clone())).collect()
    }

    fn close(&mut self, why: CloseReason, is_meant: impl Fn(&OpenDialog) -> bool) -> Vec<String> {
        let (closed, waiting) = std::mem::take(&mut self.waiting).into_iter().partition(is_meant);
        self.waiting = waiting;
        let closed: Vec<OpenDialog> = closed;
        let ids: Vec<String> = closed.into_iter().map(|dialog| dialog.id).collect();
        ids.iter().for_each(|id| self.note(id.clone(), why));
        ids
    }

    fn note(&mut self, id: String, why: CloseReason) {
        if self.closed.len() == MAX_CLOSED {
            self.closed.pop_front();
        }
        self.closed.push_back((id, why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    #[test]
    fn the_first_answer_counts_and_later_ones_are_told() {
        let mut dialogs = Dialogs::default();
        dialogs.open("a".into(), 1, line("A"), None);
        assert_eq!(dialogs.answer("b"), AnswerOutcome::Unknown);
        assert_eq!(dialogs.answer("a"), AnswerOutcome::First);
        assert_eq!(dialogs.answer("a"), AnswerOutcome::Late(CloseReason::Answered));
        assert!(!dialogs.any());
        dialogs.open("a".into(), 2, line("A"), None);
        assert_eq!(dialogs.answer("a"), AnswerOutcome::First, "asked again");
    }

    #[test]
    fn what_has_timed_out_or_ended_takes_no_answer() {
        let mut dialogs = Dialogs::default();
        let now = Instant::now();
        dialogs.open("soon".into(), 1, line("S"), Some(now + Duration::from_secs(1)));
        dialogs.open("later".into(), 2, line("L"), Some(now + Duration::from_secs(9)));
        dialogs.open("never".into(), 3, line("N"), None);
        assert_eq!(dialogs.due_in(now), Some(Duration::from_secs(1)));
        assert_eq!(dialogs.expire(now), [""; 0]);
        assert_eq!(dialogs.expire(now + Duration::from_secs(1)), ["soon"]);
        assert_eq!(dialogs.end(), ["later", "never"]);
        assert_eq!(dialogs.due_in(now), None);
        assert_eq!(dialogs.answer("soon"), AnswerOutcome::Late(CloseReason::TimedOut));
        assert_eq!(dialogs.answer("never"), AnswerOutcome::Late(CloseReason::Ended));
    }

    #[test]
    fn nothing_grows() {
        let mut dialogs = Dialogs::default();
        for n in 0..10_000 {
            assert!(dialogs.has_room());
            dialogs.open(n.to_string(), n, line("x"), None);
            if !dialogs.has_room() {
                dialogs.end();
            }
        }
        assert!(dialogs.closed.len() <= MAX_CLOSED && dialogs.waiting.len() <= MAX_PI_DIALOGS);
    }
}
