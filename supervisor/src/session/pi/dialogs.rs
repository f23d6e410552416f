//! The questions of one Pi that wait for a person. Pure: time is an argument.
//!
//! They are the daemon's: kept while they wait, told again to whoever begins to follow, answered once. What
//! became of those that are closed is remembered for a while, so that a second answer is told the truth.

use bytes::Bytes;
use quackd_protocol::limits::MAX_PI_DIALOGS;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Closed ones that are remembered; the oldest is forgotten first.
const MAX_CLOSED: usize = 256;

/// One that waits.
#[derive(Debug)]
struct Waiting {
    id: String,
    /// Number of the event that told it.
    seq: u64,
    /// That event.
    line: Bytes,
    until: Option<Instant>,
}

/// Why one waits no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closed {
    /// Somebody answered.
    Answered,
    /// Its time has passed.
    TimedOut,
    /// What it was for has ended.
    Ended,
}

impl Closed {
    /// The word for followers.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::TimedOut => "timeout",
            Self::Ended => "ended",
        }
    }

    /// What a later answer is told.
    pub(crate) fn told(self) -> &'static str {
        match self {
            Self::Answered => "was answered already",
            Self::TimedOut => "has timed out",
            Self::Ended => "is over: the turn or Pi has ended",
        }
    }
}

/// What an answer is good for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is the first: Pi gets it.
    First,
    /// It comes too late.
    Late(Closed),
    /// No such question was asked. Upstream gives it to Pi.
    Unknown,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Dialogs {
    waiting: Vec<Waiting>,
    closed: VecDeque<(String, Closed)>,
}

impl Dialogs {
    /// Whether one more has room.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting.len() < MAX_PI_DIALOGS
    }

    /// Whether one waits.
    pub(crate) fn any(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// A question was asked, in event `seq`. Asked again under the same id it replaces the earlier one.
    pub(crate) fn open(&mut self, id: String, seq: u64, line: Bytes, until: Option<Instant>) {
        self.waiting.retain(|dialog| dialog.id != id);
        self.closed.retain(|(closed, _)| *closed != id);
        self.waiting.push(Waiting { id, seq, line, until });
    }

    /// Somebody answers.
    pub(crate) fn answer(&mut self, id: &str) -> Answer {
        if let Some(at) = self.waiting.iter().position(|dialog| dialog.id == id) {
            let dialog = self.waiting.remove(at);
            self.note(dialog.id, Closed::Answered);
            return Answer::First;
        }
        let closed = self.closed.iter().find(|(closed, _)| closed == id);
        closed.map_or(Answer::Unknown, |(_, why)| Answer::Late(*why))
    }

    /// Closes those whose time has passed; gives their ids.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<String> {
        self.close(Closed::TimedOut, |dialog| dialog.until.is_some_and(|until| until <= now))
    }

    /// Closes all; gives their ids.
    pub(crate) fn end(&mut self) -> Vec<String> {
        self.close(Closed::Ended, |_| true)
    }

    /// When [`Dialogs::expire`] wants to be called, from `now` on.
    pub(crate) fn due_in(&self, now: Instant) -> Option<Duration> {
        let next = self.waiting.iter().filter_map(|dialog| dialog.until).min()?;
        Some(next.saturating_duration_since(now))
    }

    /// The events of those that wait and that a follower who begins with event `next` does not get.
    pub(crate) fn before(&self, next: u64) -> Vec<Bytes> {
        let earlier = self.waiting.iter().filter(|dialog| dialog.seq < next);
        earlier.map(|dialog| dialog.line.clone()).collect()
    }

    fn close(&mut self, why: Closed, is_meant: impl Fn(&Waiting) -> bool) -> Vec<String> {
        let (closed, waiting) = std::mem::take(&mut self.waiting).into_iter().partition(is_meant);
        self.waiting = waiting;
        let closed: Vec<Waiting> = closed;
        let ids: Vec<String> = closed.into_iter().map(|dialog| dialog.id).collect();
        ids.iter().for_each(|id| self.note(id.clone(), why));
        ids
    }

    fn note(&mut self, id: String, why: Closed) {
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
        assert_eq!(dialogs.answer("b"), Answer::Unknown);
        assert_eq!(dialogs.answer("a"), Answer::First);
        assert_eq!(dialogs.answer("a"), Answer::Late(Closed::Answered));
        assert!(!dialogs.any());
        dialogs.open("a".into(), 2, line("A"), None);
        assert_eq!(dialogs.answer("a"), Answer::First, "asked again");
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
        assert_eq!(dialogs.answer("soon"), Answer::Late(Closed::TimedOut));
        assert_eq!(dialogs.answer("never"), Answer::Late(Closed::Ended));
    }

    #[test]
    fn who_comes_later_is_told_what_waits_but_not_twice() {
        let mut dialogs = Dialogs::default();
        dialogs.open("a".into(), 5, line("A"), None);
        dialogs.open("b".into(), 7, line("B"), None);
        assert_eq!(dialogs.before(8), ["A", "B"]);
        assert_eq!(dialogs.before(7), ["A"], "the second one is in what is replayed");
        assert_eq!(dialogs.before(5), [""; 0]);
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
