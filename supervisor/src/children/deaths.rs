//! The last exits of children with their causes, so that users can look them up later.

use crate::clock::{ms, now_text};
use quackd_protocol::SessionId;
use quackd_protocol::client::DeathInfo;
use quackd_supervision::{ChildSpec, Exit};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

/// Maximum number of records.
const MAX_DEATHS: usize = 32;

/// Maximum length of the kept stderr tail, in characters. Its end is kept, which usually contains the error.
const MAX_WORDS: usize = 400;

/// Kind of cause for a one-shot process that failed, whatever the reason.
pub(super) const ONE_SHOT_FAILED: &str = "failed";

/// One exit of a child.
#[derive(Debug)]
pub(crate) struct Death<'a> {
    pub(crate) spec: &'a ChildSpec,
    /// The session, with its name and its label.
    pub(crate) session: Option<(&'a SessionId, &'a str, &'a str)>,
    pub(crate) pid: Option<u32>,
    pub(crate) exit: Option<Exit>,
    /// Kind of cause, from a short list. [`ONE_SHOT_FAILED`] for a one-shot process.
    pub(crate) kind: &'static str,
    /// Cause in words.
    pub(crate) cause: &'a str,
    pub(crate) last_words: &'a str,
    pub(crate) started: Option<Instant>,
}

/// One instance per daemon, on the actors' thread.
#[derive(Debug, Default)]
pub(crate) struct Deaths {
    total: Cell<u64>,
    last: RefCell<VecDeque<DeathInfo>>,
    /// Number of exits by child and kind of cause. The set of keys is small.
    by_cause: RefCell<BTreeMap<(&'static str, &'static str), u64>>,
}

impl Deaths {
    /// Records one exit.
    pub(crate) fn note(&self, death: &Death<'_>) {
        let (exit_code, signal) = match death.exit {
            Some(Exit::Code(code)) => (Some(code), None),
            Some(Exit::Signal(signal)) => (None, Some(signal)),
            Some(Exit::OutOfMemory) => (None, Some(nix::libc::SIGKILL)),
            None => (None, None),
        };

        let words = death.last_words.trim();
        let skipped = words.chars().count().saturating_sub(MAX_WORDS);

        self.total.set(self.total.get().saturating_add(1));
        *self.by_cause.borrow_mut().entry((death.spec.name, death.kind)).or_default() += 1;

        let mut last = self.last.borrow_mut();
        if MAX_DEATHS <= last.len() {
            last.pop_front();
        }
        last.push_back(DeathInfo {
            at: now_text(),
            child: death.spec.name.to_owned(),
            session_id: death.session.map(|(id, ..)| id.clone()),
            session_name: death.session.map(|(_, name, _)| name.to_owned()),
            label: death.session.map_or_else(String::new, |(.., label)| label.to_owned()),
            pid: death.pid,
            cause: death.cause.to_owned(),
            exit_code,
            signal,
            lived_ms: death.started.map(|started| ms(started.elapsed())),
            last_words: words.chars().skip(skipped).collect(),
        });
    }

    /// The recorded exits, oldest first.
    pub(crate) fn list(&self) -> Vec<DeathInfo> {
        self.last.borrow().iter().cloned().collect()
    }

    /// Number of exits by child and kind of cause. Their sum is [`Deaths::total`].
    pub(crate) fn by_cause(&self) -> Vec<(&'static str, &'static str, u64)> {
        let counts = self.by_cause.borrow();
        counts.iter().map(|((child, cause), n)| (*child, *cause, *n)).collect()
    }

    /// Number of exits since the daemon started.
    pub(crate) fn total(&self) -> u64 {
        self.total.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_supervision::SESSION_WORKER;

    #[test]
    fn the_last_deaths_are_kept_with_the_end_of_their_words_and_all_are_counted() {
        let deaths = Deaths::default();
        let session = SessionId("s".to_owned());
        for n in 0..100 {
            deaths.note(&Death {
                spec: &SESSION_WORKER,
                session: Some((&session, "duck-1", "a")),
                pid: Some(n),
                exit: Some(Exit::Signal(9)),
                kind: if n < 30 { "signal" } else { "protocol" },
                cause: "signal 9",
                last_words: &format!("{}end {n}\n", "x".repeat(1000)),
                started: None,
            });
        }
        let kept = deaths.list();
        assert_eq!((deaths.total(), kept.len()), (100, MAX_DEATHS));
        let counts = [("session-worker", "protocol", 70), ("session-worker", "signal", 30)];
        assert_eq!(deaths.by_cause(), counts);
        let last = kept.last().unwrap();
        assert_eq!((last.pid, last.signal, last.exit_code), (Some(99), Some(9), None));
        assert_eq!(last.last_words.chars().count(), MAX_WORDS);
        assert!(last.last_words.ends_with("end 99"));
    }
}
