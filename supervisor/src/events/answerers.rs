//! The clients that can answer questions about permissions. Without one, nothing is asked.

use quackd_protocol::SessionId;
use quackd_protocol::limits::MAX_WATCHED_SESSIONS;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::{Rc, Weak};
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

    /// Returns whether a client can answer for a session. Without one, an operation is refused at
    /// once.
    pub(crate) fn has(&self, session: &SessionId) -> bool {
        let counts = self.counts.borrow();
        counts.contains_key(&None) || counts.contains_key(&Some(session.clone()))
    }

    /// Returns how many clients can answer for a session. A client with several ways to answer
    /// counts several times.
    pub(crate) fn count(&self, session: &SessionId) -> usize {
        let counts = self.counts.borrow();
        let of = |key: &Option<SessionId>| counts.get(key).copied().unwrap_or_default();
        of(&None) + of(&Some(session.clone()))
    }

    /// Returns a receiver that changes when a client is added or removed.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }
}

impl Answerer {
    /// Returns whether the client answers for this session.
    pub(crate) fn is_for(&self, session: &SessionId) -> bool {
        self.session.as_ref().is_none_or(|own| own == session)
    }
}

/// The sessions whose questions one client gets.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    /// Until the client ends it. The oldest is first.
    kept: RefCell<VecDeque<Answerer>>,
    /// While a call runs.
    of_calls: RefCell<Vec<Weak<Answerer>>>,
}

impl Watched {
    /// Adds a session, or all. With [`MAX_WATCHED_SESSIONS`] sessions it replaces the oldest.
    pub(crate) fn keep(&self, answerer: Answerer) {
        let mut kept = self.kept.borrow_mut();
        kept.retain(|other| other.session != answerer.session);
        if MAX_WATCHED_SESSIONS <= kept.len() {
            kept.pop_front();
        }
        kept.push_back(answerer);
    }

    /// Removes a session, or all.
    pub(crate) fn end(&self, session: Option<&SessionId>) {
        let mut kept = self.kept.borrow_mut();
        match session {
            Some(session) => kept.retain(|other| other.session.as_ref() != Some(session)),
            None => kept.clear(),
        }
    }

    /// Adds a session until the result is dropped.
    pub(crate) fn during_call(&self, answerer: Answerer) -> Rc<Answerer> {
        let answerer = Rc::new(answerer);

        let mut of_calls = self.of_calls.borrow_mut();
        // Calls that have ended leave their references behind.
        of_calls.retain(|other| other.strong_count() != 0);
        of_calls.push(Rc::downgrade(&answerer));
        answerer
    }

    /// Returns whether the client gets the questions of this session.
    pub(crate) fn is_for(&self, session: &SessionId) -> bool {
        self.count_for(session) != 0
    }

    /// Returns the client's share of [`Answerers::count`].
    pub(crate) fn count_for(&self, session: &SessionId) -> usize {
        let (kept, of_calls) = (self.kept.borrow(), self.of_calls.borrow());
        let kept = kept.iter().filter(|answerer| answerer.is_for(session));
        let of_calls = of_calls.iter().filter_map(Weak::upgrade);
        kept.count() + of_calls.filter(|answerer| answerer.is_for(session)).count()
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

        // Before the notification, because a woken task may read the counts.
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

    #[test]
    fn a_client_watches_several_sessions_and_those_of_its_running_calls() {
        let (answerers, watched) = (Rc::<Answerers>::default(), Watched::default());
        let session = |n: usize| SessionId::from(n.to_string().as_str());
        for n in (0..=MAX_WATCHED_SESSIONS).chain([1]) {
            watched.keep(answerers.add(Some(session(n))));
        }
        assert!(!watched.is_for(&session(0)) && !answerers.has(&session(0)));
        assert!(watched.is_for(&session(1)) && watched.is_for(&session(2)));
        let call = watched.during_call(answerers.add(Some(session(0))));
        assert!(watched.is_for(&session(0)) && answerers.has(&session(0)));
        watched.end(Some(&session(1)));
        assert!(!watched.is_for(&session(1)) && watched.is_for(&session(2)));
        watched.end(None);
        assert!(!watched.is_for(&session(2)) && watched.is_for(&session(0)));
        drop(call);
        assert!(!watched.is_for(&session(0)) && answerers.counts.borrow().is_empty());
    }
}
