//! Command slots: limits how many commands run at the same time over all sessions.
//!
//! Keeps the number of running commands and background jobs of each session, and the queue of
//! waiting calls. The sessions use it on the actors' thread. No function blocks.
//!
//! Fairness: the last quarter of the slots is reserved for sessions that hold few, so that a session with many commands
//! cannot exhaust all slots. A free slot goes to the waiting session that holds fewest, then to the longest wait.

use crate::errors::SlotUsage;
use quackd_protocol::SessionId;
use quackd_protocol::client::PlacesInfo;
use quackd_protocol::limits::COMMANDS_PER_SESSION_ANYWAY;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use tokio::sync::oneshot;

/// Handle to the command slots. One instance per daemon. Clones share its state.
#[derive(Debug, Clone)]
pub(crate) struct CommandSlots(Rc<RefCell<SlotTable>>);

#[derive(Debug, Default)]
struct SlotTable {
    max: usize,
    max_jobs: usize,
    /// Running commands by session. Contains no zeros.
    running: HashMap<SessionId, usize>,
    /// Running background jobs by session. Contains no zeros.
    jobs: HashMap<SessionId, usize>,
    /// In the order of arrival. Bounded by the limit on calls per session.
    waiting: Vec<SlotWaiter>,
}

#[derive(Debug)]
struct SlotWaiter {
    session: SessionId,
    granted: oneshot::Sender<CommandSlot>,
}

/// Permit to run one command. Dropping it frees the slot.
#[derive(Debug)]
pub(crate) struct CommandSlot {
    slots: CommandSlots,
    session: SessionId,
}

/// Result of requesting a command slot.
#[derive(Debug)]
pub(crate) enum SlotRequest {
    /// A slot was free.
    Granted(CommandSlot),
    /// The slot arrives on this channel. Dropping the receiver cancels the request.
    Queued(oneshot::Receiver<CommandSlot>),
}

impl CommandSlots {
    pub(crate) fn new(max: usize, max_jobs: usize) -> Self {
        let table = SlotTable { max, max_jobs, ..SlotTable::default() };
        Self(Rc::new(RefCell::new(table)))
    }

    /// Requests a slot. Queues the request if none is free, or if the session already waits for one.
    pub(crate) fn acquire(&self, session: &SessionId) -> SlotRequest {
        let mut table = self.0.borrow_mut();
        // Receivers of canceled calls are dropped without notice.
        table.waiting.retain(|waiting| !waiting.granted.is_closed());

        // A session's calls start in the order of their arrival.
        let has_waiting = table.waiting.iter().any(|waiting| waiting.session == *session);
        if !has_waiting && table.has_slot_for(session) {
            table.take(session);
            drop(table);
            return SlotRequest::Granted(self.slot(session));
        }

        let (granted, queued) = oneshot::channel();
        table.waiting.push(SlotWaiter { session: session.clone(), granted });
        SlotRequest::Queued(queued)
    }

    pub(crate) fn fullness(&self, session: &SessionId) -> SlotUsage {
        let table = self.0.borrow();
        SlotUsage { running: table.total(), own: table.held_by(session), max: table.max }
    }

    /// Usage of the slots, for display only.
    pub(crate) fn describe(&self) -> PlacesInfo {
        let table = self.0.borrow();
        let waiting = table.waiting.iter().filter(|waiting| !waiting.granted.is_closed()).count();
        let jobs = table.jobs.values().sum();
        PlacesInfo { running: table.total(), waiting, max: table.max, jobs }
    }

    /// Sets the number of background jobs of a session.
    pub(crate) fn set_jobs(&self, session: &SessionId, n: usize) {
        let jobs = &mut self.0.borrow_mut().jobs;
        match n {
            0 => drop(jobs.remove(session)),
            n => drop(jobs.insert(session.clone(), n)),
        }
    }

    /// Whether the session has running background jobs.
    pub(crate) fn has_jobs(&self, session: &SessionId) -> bool {
        self.0.borrow().jobs.contains_key(session)
    }

    /// Returns the limit on background jobs if it is reached.
    pub(crate) fn job_limit_reached(&self) -> Option<usize> {
        let table = self.0.borrow();
        (table.max_jobs <= table.jobs.values().sum()).then_some(table.max_jobs)
    }

    fn slot(&self, session: &SessionId) -> CommandSlot {
        CommandSlot { slots: self.clone(), session: session.clone() }
    }

    /// Hands free slots to waiting calls.
    fn grant_free_slots(&self) {
        loop {
            // Borrowed for this line only: sending may drop a slot, which borrows the table again.
            let next = self.0.borrow_mut().next_waiting();
            let Some(SlotWaiter { session, granted }) = next else { return };
            // If the receiver is gone, dropping the slot returns it and the next waiter gets it.
            granted.send(self.slot(&session)).ok();
        }
    }
}

impl SlotTable {
    fn total(&self) -> usize {
        self.running.values().sum()
    }

    fn held_by(&self, session: &SessionId) -> usize {
        self.running.get(session).copied().unwrap_or(0)
    }

    fn has_slot_for(&self, session: &SessionId) -> bool {
        let (total, reserved) = (self.total(), self.max / 4);
        total + reserved < self.max
            || total < self.max && self.held_by(session) < COMMANDS_PER_SESSION_ANYWAY
    }

    fn take(&mut self, session: &SessionId) {
        *self.running.entry(session.clone()).or_default() += 1;
    }

    fn give_back(&mut self, session: &SessionId) {
        match self.held_by(session) {
            0 | 1 => drop(self.running.remove(session)),
            n => drop(self.running.insert(session.clone(), n - 1)),
        }
    }

    /// Removes the next waiter from the queue and counts its slot.
    fn next_waiting(&mut self) -> Option<SlotWaiter> {
        self.waiting.retain(|waiting| !waiting.granted.is_closed());
        let may_run = |(_, waiting): &(usize, &SlotWaiter)| self.has_slot_for(&waiting.session);

        // Among equals, `min_by_key` returns the first, which waited longest.
        let (index, _) = self
            .waiting
            .iter()
            .enumerate()
            .filter(may_run)
            .min_by_key(|(_, waiting)| self.held_by(&waiting.session))?;

        let next = self.waiting.remove(index);
        self.take(&next.session);
        Some(next)
    }
}

impl Drop for CommandSlot {
    fn drop(&mut self) {
        // Counted first, so that the freed slot is one of those that are granted.
        self.slots.0.borrow_mut().give_back(&self.session);
        self.slots.grant_free_slots();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(name: &str) -> SessionId {
        SessionId(name.to_owned())
    }

    #[track_caller]
    fn granted(request: SlotRequest) -> CommandSlot {
        match request {
            SlotRequest::Granted(slot) => slot,
            SlotRequest::Queued(_) => panic!("no slot was free"),
        }
    }

    #[track_caller]
    fn queued(request: SlotRequest) -> oneshot::Receiver<CommandSlot> {
        match request {
            SlotRequest::Granted(_) => panic!("a slot was free"),
            SlotRequest::Queued(queued) => queued,
        }
    }

    #[test]
    fn the_last_quarter_is_for_those_who_hold_few() {
        let (slots, greedy, modest) = (CommandSlots::new(16, 1), session("a"), session("b"));
        let held: Vec<_> = (0..12).map(|_| granted(slots.acquire(&greedy))).collect();
        let mut waits = queued(slots.acquire(&greedy));
        let modest_ones: Vec<_> = (0..4).map(|_| granted(slots.acquire(&modest))).collect();
        assert_eq!(slots.fullness(&modest), SlotUsage { running: 16, own: 4, max: 16 });
        let mut last = queued(slots.acquire(&session("c")));

        drop(modest_ones);
        // `c` goes first: it holds fewest.
        let slot = last.try_recv().unwrap();
        assert!(waits.try_recv().is_err());
        drop((slot, held));
        drop(waits.try_recv().unwrap());
        assert_eq!(slots.fullness(&greedy), SlotUsage { running: 0, own: 0, max: 16 });
        assert!(slots.0.borrow().running.is_empty());
    }

    #[test]
    fn a_free_place_goes_to_the_session_that_holds_fewest() {
        let slots = CommandSlots::new(16, 1);
        let (a, b, c) = (session("a"), session("b"), session("c"));
        let mut of_a: Vec<_> = (0..12).map(|_| granted(slots.acquire(&a))).collect();
        let of_others: Vec<_> =
            ["x", "y", "z", "x"].map(|name| granted(slots.acquire(&session(name)))).into();
        let mut waiting = [&a, &b, &c, &b].map(|session| queued(slots.acquire(session)));
        let mut kept = Vec::new();
        for (n, expected) in [1, 2, 3].into_iter().enumerate() {
            drop(of_a.pop());
            let got: Vec<_> = waiting.iter_mut().map(|waiting| waiting.try_recv().ok()).collect();
            let who: Vec<_> = got.iter().positions();
            assert_eq!(who, [expected], "round {n}");
            // Keeping the slot prevents the next round from granting it again.
            kept.extend(got);
        }
        drop((of_a, of_others));
        assert!(waiting[0].try_recv().is_ok(), "the greedy one comes last, and comes");
        drop(kept);
    }

    /// Indices of the waiters that got a slot.
    trait Positions {
        fn positions(self) -> Vec<usize>;
    }

    impl<'a> Positions for std::slice::Iter<'a, Option<CommandSlot>> {
        fn positions(self) -> Vec<usize> {
            self.enumerate().filter(|(_, got)| got.is_some()).map(|(n, _)| n).collect()
        }
    }

    #[test]
    fn who_stops_waiting_holds_up_nobody() {
        let (slots, a, b) = (CommandSlots::new(16, 1), session("a"), session("b"));
        let mut held: Vec<_> = (0..12).map(|_| granted(slots.acquire(&a))).collect();
        let left = queued(slots.acquire(&a));
        let mut stays = queued(slots.acquire(&a));
        drop(left);
        drop(held.pop());
        let kept = stays.try_recv().unwrap();
        // Granted, but the receiver is dropped before it takes the slot.
        let gone = queued(slots.acquire(&a));
        drop(held.pop());
        drop(gone);
        assert_eq!(slots.fullness(&a).running, 11);
        drop(kept);
        drop(granted(slots.acquire(&b)));
    }

    #[test]
    fn jobs_are_counted_over_all_sessions() {
        let slots = CommandSlots::new(16, 3);
        slots.set_jobs(&session("a"), 2);
        assert_eq!(slots.job_limit_reached(), None);
        slots.set_jobs(&session("b"), 1);
        assert_eq!(slots.job_limit_reached(), Some(3));
        slots.set_jobs(&session("a"), 0);
        assert_eq!(slots.job_limit_reached(), None);
    }
}
