//! Places for commands: how many run at the same time over all sessions, and whose turn it is.
//!
//! Owns: the count of running commands and background jobs of each session, and the queue of those that
//! wait. Called by: the WorkerHandles, on the actors' thread; nothing here waits or blocks.
//!
//! Fairness: the last quarter of the places is kept for sessions that hold few, so that nobody who asks
//! for little waits for those who ask for much. A place that becomes free goes to the waiting session
//! that holds fewest, and among equals to the one that has waited longest.

use crate::errors::Fullness;
use quackd_protocol::SessionId;
use quackd_protocol::client::PlacesInfo;
use quackd_protocol::limits::COMMANDS_PER_SESSION_ANYWAY;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use tokio::sync::oneshot;

/// One instance per daemon. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Places(Rc<RefCell<Table>>);

#[derive(Debug)]
struct Table {
    max: usize,
    max_jobs: usize,
    /// Commands that run, by session; none with zero.
    running: HashMap<SessionId, usize>,
    total: usize,
    /// Background jobs that run, by session; none with zero.
    jobs: HashMap<SessionId, usize>,
    /// In the order of arrival. Bounded by the calls that sessions may have.
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    session: SessionId,
    given: oneshot::Sender<Place>,
}

/// The right to run one command; given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Places,
    session: SessionId,
}

/// What is said to somebody who wants a place.
#[derive(Debug)]
pub(crate) enum Asked {
    /// Here it is.
    Given(Place),
    /// It comes by this channel, unless whoever waits drops it.
    Queued(oneshot::Receiver<Place>),
}

impl Places {
    pub(crate) fn new(max: usize, max_jobs: usize) -> Self {
        let table = Table {
            max,
            max_jobs,
            running: HashMap::new(),
            total: 0,
            jobs: HashMap::new(),
            waiting: Vec::new(),
        };
        Self(Rc::new(RefCell::new(table)))
    }

    /// Asks for a place.
    pub(crate) fn ask(&self, session: &SessionId) -> Asked {
        let mut table = self.0.borrow_mut();
        table.waiting.retain(|waiting| !waiting.given.is_closed());
        let is_anyone_before = table.waiting.iter().any(|waiting| waiting.session == *session);
        if !is_anyone_before && table.has_place_for(session) {
            table.take(session);
            drop(table);
            return Asked::Given(self.place(session));
        }
        let (given, queued) = oneshot::channel();
        table.waiting.push(Waiting { session: session.clone(), given });
        Asked::Queued(queued)
    }

    pub(crate) fn fullness(&self, session: &SessionId) -> Fullness {
        let table = self.0.borrow();
        Fullness { running: table.total, own: table.held_by(session), max: table.max }
    }

    /// How full it is, for people.
    pub(crate) fn describe(&self) -> PlacesInfo {
        let table = self.0.borrow();
        let waiting = table.waiting.iter().filter(|waiting| !waiting.given.is_closed()).count();
        let jobs = table.jobs.values().sum();
        PlacesInfo { running: table.total, waiting, max: table.max, jobs }
    }

    /// Takes note of how many background jobs a session has.
    pub(crate) fn set_jobs(&self, session: &SessionId, n: usize) {
        let jobs = &mut self.0.borrow_mut().jobs;
        match n {
            0 => drop(jobs.remove(session)),
            n => drop(jobs.insert(session.clone(), n)),
        }
    }

    /// The most background jobs that may run, if as many do.
    pub(crate) fn full_of_jobs(&self) -> Option<usize> {
        let table = self.0.borrow();
        (table.max_jobs <= table.jobs.values().sum()).then_some(table.max_jobs)
    }

    fn place(&self, session: &SessionId) -> Place {
        Place { places: self.clone(), session: session.clone() }
    }

    /// Gives free places to whoever waits for one.
    fn give(&self) {
        loop {
            let next = self.0.borrow_mut().next_waiting();
            let Some(Waiting { session, given }) = next else { return };
            // Who has left since drops the place, which comes back by `Drop` and is given to the next.
            drop(given.send(self.place(&session)));
        }
    }
}

impl Table {
    fn held_by(&self, session: &SessionId) -> usize {
        self.running.get(session).copied().unwrap_or(0)
    }

    fn has_place_for(&self, session: &SessionId) -> bool {
        let kept = self.max / 4;
        self.total + kept < self.max
            || self.total < self.max && self.held_by(session) < COMMANDS_PER_SESSION_ANYWAY
    }

    fn take(&mut self, session: &SessionId) {
        *self.running.entry(session.clone()).or_default() += 1;
        self.total += 1;
    }

    fn give_back(&mut self, session: &SessionId) {
        self.total = self.total.saturating_sub(1);
        let left = self.held_by(session).saturating_sub(1);
        match left {
            0 => drop(self.running.remove(session)),
            left => drop(self.running.insert(session.clone(), left)),
        }
    }

    /// Takes the next one whose turn it is out of the queue, with its place counted.
    fn next_waiting(&mut self) -> Option<Waiting> {
        self.waiting.retain(|waiting| !waiting.given.is_closed());
        let can_go = |(_, waiting): &(usize, &Waiting)| self.has_place_for(&waiting.session);
        // Of equal ones the first is the minimum.
        let (index, _) = self
            .waiting
            .iter()
            .enumerate()
            .filter(can_go)
            .min_by_key(|(_, waiting)| self.held_by(&waiting.session))?;
        let next = self.waiting.remove(index);
        self.take(&next.session);
        Some(next)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.0.borrow_mut().give_back(&self.session);
        self.places.give();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(name: &str) -> SessionId {
        SessionId(name.to_owned())
    }

    #[track_caller]
    fn given(asked: Asked) -> Place {
        match asked {
            Asked::Given(place) => place,
            Asked::Queued(_) => panic!("there was no place"),
        }
    }

    #[track_caller]
    fn queued(asked: Asked) -> oneshot::Receiver<Place> {
        match asked {
            Asked::Given(_) => panic!("there was a place"),
            Asked::Queued(queued) => queued,
        }
    }

    #[test]
    fn the_last_quarter_is_for_those_who_hold_few() {
        let (places, greedy, modest) = (Places::new(16, 1), session("a"), session("b"));
        let held: Vec<_> = (0..12).map(|_| given(places.ask(&greedy))).collect();
        let mut waits = queued(places.ask(&greedy));
        let modest_ones: Vec<_> = (0..4).map(|_| given(places.ask(&modest))).collect();
        assert_eq!(places.fullness(&modest), Fullness { running: 16, own: 4, max: 16 });
        let mut last = queued(places.ask(&session("c")));

        drop(modest_ones);
        // `c` was the first that could go; the greedy one still has its share.
        let place = last.try_recv().unwrap();
        assert!(waits.try_recv().is_err());
        drop((place, held));
        drop(waits.try_recv().unwrap());
        assert_eq!(places.fullness(&greedy), Fullness { running: 0, own: 0, max: 16 });
        assert!(places.0.borrow().running.is_empty());
    }

    #[test]
    fn a_free_place_goes_to_the_session_that_holds_fewest() {
        let places = Places::new(16, 1);
        let (a, b, c) = (session("a"), session("b"), session("c"));
        let mut of_a: Vec<_> = (0..12).map(|_| given(places.ask(&a))).collect();
        let of_others: Vec<_> =
            ["x", "y", "z", "x"].map(|name| given(places.ask(&session(name)))).into();
        let mut waiting = [&a, &b, &c, &b].map(|session| queued(places.ask(session)));
        let mut kept = Vec::new();
        for (n, expected) in [1, 2, 3].into_iter().enumerate() {
            drop(of_a.pop());
            let got: Vec<_> = waiting.iter_mut().map(|waiting| waiting.try_recv().ok()).collect();
            let who: Vec<_> = got.iter().positions();
            assert_eq!(who, [expected], "round {n}");
            // Kept: the place is not free again.
            kept.extend(got);
        }
        drop((of_a, of_others));
        assert!(waiting[0].try_recv().is_ok(), "the greedy one comes last, and comes");
        drop(kept);
    }

    /// Where something was given.
    trait Positions {
        fn positions(self) -> Vec<usize>;
    }

    impl<'a> Positions for std::slice::Iter<'a, Option<Place>> {
        fn positions(self) -> Vec<usize> {
            self.enumerate().filter(|(_, got)| got.is_some()).map(|(n, _)| n).collect()
        }
    }

    #[test]
    fn who_stops_waiting_holds_up_nobody() {
        let (places, a, b) = (Places::new(16, 1), session("a"), session("b"));
        let mut held: Vec<_> = (0..12).map(|_| given(places.ask(&a))).collect();
        let left = queued(places.ask(&a));
        let mut stays = queued(places.ask(&a));
        drop(left);
        drop(held.pop());
        let kept = stays.try_recv().unwrap();
        // Given, and nobody there any more to take it.
        let gone = queued(places.ask(&a));
        drop(held.pop());
        drop(gone);
        assert_eq!(places.fullness(&a).running, 11);
        drop(kept);
        drop(given(places.ask(&b)));
    }

    #[test]
    fn jobs_are_counted_over_all_sessions() {
        let places = Places::new(16, 3);
        places.set_jobs(&session("a"), 2);
        assert_eq!(places.full_of_jobs(), None);
        places.set_jobs(&session("b"), 1);
        assert_eq!(places.full_of_jobs(), Some(3));
        places.set_jobs(&session("a"), 0);
        assert_eq!(places.full_of_jobs(), None);
    }
}
