//! The clients that can answer questions about permissions. Without one, nothing is asked.

use quackd_protocol::SessionId;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use tokio::sync::watch;

/// Counts the clients that can answer, by session. One instance per daemon.
#[derive(Debug, Default)]
pub(crate) struct Answerers {
    /// `None` counts the clients that answer for all sessions.
    counts: RefCell<HashMap<Option<SessionId>, usize>>,
    /// Counts changes.
    version: watch::Sender<u64>,
}

/// A client that can answer. Dropping it ends that.
#[derive(Debug)]
pub(crate) struct Answerer {
    all: Rc<Answerers>,
    session: Option<SessionId>,
}

impl Answerers {
    /// Adds a client that can answer for one session, or for all.
    pub(crate) fn add(self: &Rc<Self>, session: Option<SessionId>) -> Answerer {
        *self.counts.borrow_mut().entry(session.clone()).or_default() += 1;
        self.version.send_modify(|version| *version += 1);
        Answerer { all: Rc::clone(self), session }
    }

    /// Whether a client can answer for a session.
    pub(crate) fn has(&self, session: &SessionId) -> bool {
        let counts = self.counts.borrow();
        counts.contains_key(&None) || counts.contains_key(&Some(session.clone()))
    }

    /// Changes when a client is added or removed.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }
}

impl Answerer {
    /// Whether the client answers for this session.
    pub(crate) fn is_for(&self, session: &SessionId) -> bool {
        self.session.as_ref().is_none_or(|own| own == session)
    }
}

impl Drop for Answerer {
    fn drop(&mut self) {
        let mut counts = self.all.counts.borrow_mut();
        if let Some(count) = counts.get_mut(&self.session) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                counts.remove(&self.session);
            }
        }
        drop(counts);
        self.all.version.send_modify(|version| *version += 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_can_answer_until_it_is_gone() {
        let (answerers, a, b) =
            (Rc::<Answerers>::default(), SessionId::from("a"), SessionId::from("b"));
        let one = answerers.add(Some(a.clone()));
        let two = answerers.add(Some(a.clone()));
        assert!(answerers.has(&a) && !answerers.has(&b) && one.is_for(&a) && !one.is_for(&b));
        drop(one);
        assert!(answerers.has(&a));
        drop(two);
        assert!(!answerers.has(&a));
        let all = answerers.add(None);
        assert!(answerers.has(&a) && answerers.has(&b) && all.is_for(&b));
        drop(all);
        assert!(!answerers.has(&b) && answerers.counts.borrow().is_empty());
    }
}
