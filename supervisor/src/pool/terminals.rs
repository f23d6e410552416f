//! Counts the running terminals of all sessions.

use quackd_protocol::SessionId;
use quackd_protocol::limits::MAX_TERMINALS;
use std::cell::RefCell;
use std::collections::HashMap;

/// Running terminals by session. Contains no zeros. One instance per daemon, on the actors' thread.
#[derive(Debug, Default)]
pub(crate) struct TerminalCounts(RefCell<HashMap<SessionId, usize>>);

impl TerminalCounts {
    /// Sets the number of running terminals of a session.
    pub(crate) fn set(&self, session: &SessionId, n: usize) {
        let mut counts = self.0.borrow_mut();
        match n {
            0 => drop(counts.remove(session)),
            n => drop(counts.insert(session.clone(), n)),
        }
    }

    /// Returns whether there may be no further terminal.
    pub(crate) fn is_full(&self) -> bool {
        MAX_TERMINALS <= self.0.borrow().values().sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_are_counted_over_all_sessions() {
        let (counts, session) = (TerminalCounts::default(), |n: usize| SessionId(n.to_string()));
        for n in 0..MAX_TERMINALS / 4 {
            assert!(!counts.is_full());
            counts.set(&session(n), 4);
        }
        assert!(counts.is_full());
        counts.set(&session(0), 3);
        assert!(!counts.is_full());
        counts.set(&session(0), 0);
        assert_eq!(counts.0.borrow().len(), MAX_TERMINALS / 4 - 1);
    }
}
