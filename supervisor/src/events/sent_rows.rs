//! The rows of sessions that a client has, as fingerprints, so that `quack.session_rows` sends only those that differ.

use quackd_protocol::SessionId;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;

/// Fingerprints of the rows that the client has. Bounded by the number of sessions.
#[derive(Debug, Default)]
pub(crate) struct SentRows {
    /// Number of the last change. 0 before the first.
    revision: Cell<u64>,
    /// Number of the newest request. An older one stops waiting.
    turn: Cell<u64>,
    rows: RefCell<HashMap<SessionId, u64>>,
}

/// Differences between the present rows and those of the client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RowChanges {
    pub(crate) revision: u64,
    /// Whether the client's rows are unknown, so that it gets all.
    pub(crate) is_whole: bool,
    /// For each row, whether it differs.
    pub(crate) differs: Vec<bool>,
    pub(crate) gone: Vec<SessionId>,
}

impl SentRows {
    /// Begins a request, or the end of the client. Ends the wait of the earlier requests.
    pub(crate) fn begin(&self) -> u64 {
        self.turn.set(self.turn.get() + 1);
        self.turn.get()
    }

    pub(crate) fn is_newest(&self, turn: u64) -> bool {
        self.turn.get() == turn
    }

    /// Compares the present rows with those of the client, which has them then. `since` is the revision that the client
    /// has.
    pub(crate) fn update(&self, since: Option<u64>, now: Vec<(SessionId, u64)>) -> RowChanges {
        let is_whole = self.revision.get() == 0 || since != Some(self.revision.get());
        let mut before = self.rows.take();
        let is_new = |(id, print): &(SessionId, u64)| before.remove(id) != Some(*print) || is_whole;
        let differs: Vec<bool> = now.iter().map(is_new).collect();
        let gone: Vec<SessionId> = before.into_keys().filter(|_| !is_whole).collect();

        self.rows.replace(now.into_iter().collect());
        if is_whole || !gone.is_empty() || differs.contains(&true) {
            self.revision.set(self.revision.get() + 1);
        }
        RowChanges { revision: self.revision.get(), is_whole, differs, gone }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_what_it_lacks_and_everything_after_another_revision() {
        let sent = SentRows::default();
        let update = |since, rows: &[(&str, u64)]| {
            let rows = rows.iter().map(|(id, print)| (SessionId::from(*id), *print)).collect();
            let RowChanges { revision, is_whole, differs, gone } = sent.update(since, rows);
            let gone: Vec<_> = gone.into_iter().map(|id| id.0).collect();
            (revision, is_whole, differs, gone.join(","))
        };
        let none = String::new;
        let first = sent.begin();
        assert!(sent.is_newest(first));
        assert!(sent.is_newest(sent.begin()) && !sent.is_newest(first));

        assert_eq!(update(Some(0), &[("a", 1)]), (1, true, vec![true], none()));
        assert_eq!(update(Some(1), &[("a", 1)]), (1, false, vec![false], none()));
        let two = [("a", 1), ("b", 2)];
        assert_eq!(update(Some(1), &two), (2, false, vec![false, true], none()));
        assert_eq!(update(Some(1), &two), (3, true, vec![true, true], none()));
        assert_eq!(update(Some(3), &[("b", 5)]), (4, false, vec![true], "a".to_owned()));
        assert_eq!(update(None, &[]), (5, true, vec![], none()));
        assert_eq!(update(Some(5), &[]), (5, false, vec![], none()));
    }
}
