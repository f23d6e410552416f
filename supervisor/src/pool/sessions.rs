//! The table of sessions, with the published state of each, and the slots of their processes.
//!
//! The session's actors publish snapshots; every view and the eviction read them. If another
//! session needs a slot or memory is low, the process that was idle longest is evicted, never one
//! that is busy or pinned: the actor makes the final decision. The next call starts it again.

use super::snapshot::{ProcessSnapshot, SessionSnapshot, Stage};
use crate::children::{
    ChildRequests, Evict, EvictionReason, MemoryLimitExceeded, ProcessKind, ResetTimers,
};
use quackd_protocol::SessionId;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Timeout for a slot of a process that is being evicted. Shorter than the time that a call waits for its worker.
const ACQUIRE_TIMEOUT: Duration = Duration::from_millis(1500);

impl ProcessKind {
    const ALL: [Self; 2] = [Self::Worker, Self::Agent];

    /// Returns whether a process keeps its slot until it has exited. The slot of an agent is free when it was asked to
    /// exit, because no start waits for the exit of an agent.
    fn keeps_slot(self) -> bool {
        self == Self::Worker
    }

    fn of(self, snapshot: &SessionSnapshot) -> &ProcessSnapshot {
        match self {
            Self::Worker => &snapshot.worker.process,
            Self::Agent => &snapshot.agent.process,
        }
    }
}

/// All slots are held by processes that are busy or pinned. Contains their number.
#[derive(Debug)]
pub(crate) struct Full(pub(crate) usize);

/// Entry of one session that was used since the daemon started.
#[derive(Debug)]
pub(crate) struct SessionEntry {
    pub(crate) id: SessionId,
    seats: [Seat; 2],
    snapshot: RefCell<Rc<SessionSnapshot>>,
}

/// One process of a session, for counting slots.
#[derive(Debug)]
struct Seat {
    actor: ChildRequests,
    holds_slot: Cell<bool>,
    /// An eviction was requested, and the actor has published nothing since.
    is_asked: Cell<bool>,
}

impl SessionEntry {
    /// Creates the entry of a session without a process.
    pub(crate) fn new(id: SessionId, worker: ChildRequests, agent: ChildRequests) -> Self {
        let seat = |actor| Seat { actor, holds_slot: Cell::new(false), is_asked: Cell::new(false) };
        Self { id, seats: [seat(worker), seat(agent)], snapshot: RefCell::default() }
    }

    pub(crate) fn snapshot(&self) -> Rc<SessionSnapshot> {
        Rc::clone(&self.snapshot.borrow())
    }

    fn seat(&self, kind: ProcessKind) -> &Seat {
        let [worker, agent] = &self.seats;
        if kind == ProcessKind::Worker { worker } else { agent }
    }
}

/// All sessions that were used since the daemon started. One instance per daemon.
#[derive(Debug)]
pub(crate) struct SessionTable {
    entries: RefCell<HashMap<SessionId, Rc<SessionEntry>>>,
    /// Sessions whose processes are exempt from eviction. The registry makes them durable.
    pinned: RefCell<HashSet<SessionId>>,
    max_workers: usize,
    max_agents: usize,
    /// A worker has exited. No start waits for the exit of an agent.
    left: Notify,
}

/// A process that may be evicted: since when it is idle, its entry and its kind.
type Evictable = (Instant, Rc<SessionEntry>, ProcessKind);

impl SessionTable {
    /// Creates an empty table for at most this number of live workers and agents.
    pub(crate) fn new(max_workers: usize, max_agents: usize) -> Self {
        Self {
            entries: RefCell::default(),
            pinned: RefCell::default(),
            max_workers,
            max_agents,
            left: Notify::new(),
        }
    }

    pub(crate) fn insert(&self, entry: Rc<SessionEntry>) {
        self.entries.borrow_mut().insert(entry.id.clone(), entry);
    }

    pub(crate) fn get(&self, session: &SessionId) -> Option<Rc<SessionEntry>> {
        self.entries.borrow().get(session).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Rc<SessionEntry>> {
        self.entries.borrow().values().cloned().collect()
    }

    /// Returns the state of a session, also of one that nothing has used.
    pub(crate) fn snapshot(&self, session: &SessionId) -> Rc<SessionSnapshot> {
        self.get(session).map(|entry| entry.snapshot()).unwrap_or_default()
    }

    /// Removes a deleted session. Wakes the callers that wait for a slot, because its slots are
    /// free.
    pub(crate) fn remove(&self, session: &SessionId) {
        self.entries.borrow_mut().remove(session);
        self.left.notify_waiters();
    }

    /// Publishes the number of open questions to the user.
    pub(crate) fn publish_asked(&self, session: &SessionId, n_asked: usize) {
        let Some(entry) = self.get(session) else { return };
        let mut snapshot = entry.snapshot.borrow_mut();
        Rc::make_mut(&mut snapshot).change(|snapshot| snapshot.n_asked = n_asked);
    }

    /// Publishes a change of the state of one process of a session.
    pub(crate) fn publish(
        &self,
        entry: &Weak<SessionEntry>,
        kind: ProcessKind,
        change: impl FnOnce(&mut SessionSnapshot),
    ) {
        // The session was deleted: its state is not read.
        let Some(entry) = entry.upgrade() else { return };
        // Readers keep the snapshot that they have: it is copied while one holds it.
        let mut snapshot = entry.snapshot.borrow_mut();
        Rc::make_mut(&mut snapshot).change(change);

        let seat = entry.seat(kind);
        // The actor has published since a request to evict, so the request no longer counts.
        seat.is_asked.set(false);

        let is_freed = kind.of(&snapshot).stage == Stage::Gone && seat.holds_slot.replace(false);
        // Another wake-up would evict one process too many.
        if is_freed && kind.keeps_slot() {
            self.left.notify_waiters();
        }
    }

    /// Returns whether the session's processes are exempt from eviction.
    pub(crate) fn is_pinned(&self, session: &SessionId) -> bool {
        self.pinned.borrow().contains(session)
    }

    /// Replaces the set of pinned sessions.
    pub(crate) fn set_pinned(&self, sessions: impl Iterator<Item = SessionId>) {
        self.pinned.replace(sessions.collect());
    }

    /// Acquires a slot for a process of a session. Evicts an idle process of that kind if all slots are in use.
    ///
    /// # Errors
    /// All slots are held by busy or pinned processes.
    pub(crate) async fn acquire(&self, session: &SessionId, kind: ProcessKind) -> Result<(), Full> {
        let max = if kind == ProcessKind::Worker { self.max_workers } else { self.max_agents };

        let waiting = async {
            loop {
                // Created before the check, so that a slot freed in between is not missed.
                let left = self.left.notified();
                match self.try_acquire(session, kind, max) {
                    AcquireStep::Taken => return Ok(()),
                    AcquireStep::Full => return Err(Full(max)),
                    AcquireStep::Wait => left.await,
                    // An actor that refuses is busy again, and has published that.
                    AcquireStep::Ask(entry) => {
                        let evicted =
                            entry.seat(kind).actor.evict.send(Evict(EvictionReason::Room));
                        if evicted.await.unwrap_or(false) && kind.keeps_slot() {
                            left.await;
                        }
                    }
                }
            }
        };

        tokio::time::timeout(ACQUIRE_TIMEOUT, waiting).await.unwrap_or(Err(Full(max)))
    }

    fn try_acquire(&self, session: &SessionId, kind: ProcessKind, max: usize) -> AcquireStep {
        let entries = self.entries.borrow();
        let holds = |entry: &Rc<SessionEntry>| entry.seat(kind).holds_slot.get();
        let is_leaving = |entry: &Rc<SessionEntry>| {
            entry.seat(kind).is_asked.get() || kind.of(&entry.snapshot()).stage == Stage::Leaving
        };
        // The session's own slot is not counted: a process that starts again takes it over.
        let holders = || entries.values().filter(|entry| entry.id != *session && holds(entry));
        let taken = holders().filter(|entry| kind.keeps_slot() || !is_leaving(entry)).count();
        if taken < max {
            if let Some(entry) = entries.get(session) {
                entry.seat(kind).holds_slot.set(true);
            }
            return AcquireStep::Taken;
        }

        let free = self.evictable().into_iter();
        let mut free = free.filter(|(_, entry, of)| *of == kind && holds(entry));
        match free.next() {
            Some((_, oldest, _)) => {
                // Set at once, so that another caller does not choose the same process.
                oldest.seat(kind).is_asked.set(true);
                AcquireStep::Ask(oldest)
            }
            None if kind.keeps_slot() && holders().any(is_leaving) => AcquireStep::Wait,
            None => AcquireStep::Full,
        }
    }

    /// Returns the processes that may be evicted, the longest idle first.
    fn evictable(&self) -> Vec<Evictable> {
        let mut free: Vec<Evictable> = Vec::new();
        for entry in self.all() {
            let snapshot = entry.snapshot();

            for kind in ProcessKind::ALL {
                let process = kind.of(&snapshot);
                let is_here = process.stage == Stage::Here && !entry.seat(kind).is_asked.get();
                let is_evictable = is_here && !self.is_pinned(&entry.id);
                if let Some(since) = process.free_since.filter(|_| is_evictable) {
                    free.push((since, Rc::clone(&entry), kind));
                }
            }
        }
        free.sort_by_key(|(since, ..)| *since);
        free
    }

    /// Returns the number of processes that could be evicted now.
    pub(crate) fn n_evictable(&self) -> usize {
        self.evictable().len()
    }

    /// Evicts at most `n` processes that have been idle since `before`, the longest idle first, because memory is low.
    pub(crate) fn evict(&self, n: usize, before: Instant) {
        let old = self.evictable().into_iter().take_while(|(since, ..)| *since <= before);
        // A process that is only being started uses no memory.
        let old = old.filter(|(_, entry, kind)| kind.of(&entry.snapshot()).is_alive());
        for (_, entry, kind) in old.take(n) {
            // A full mailbox means that the actor is busy: do not evict its process.
            let seat = entry.seat(kind);
            let asked = seat.actor.evict.try_send(Evict(EvictionReason::Memory));
            seat.is_asked.set(asked.is_ok());
        }
    }

    /// Has a process killed that uses too much memory. If the mailbox of its actor is full, the request is lost.
    pub(crate) fn kill_for_memory(
        &self,
        session: &SessionId,
        kind: ProcessKind,
        exceeded: MemoryLimitExceeded,
    ) {
        if let Some(entry) = self.get(session) {
            entry.seat(kind).actor.memory_limit.try_send(exceeded).ok();
        }
    }

    /// Resets the timers of all processes after a suspend.
    pub(crate) fn reset_timers(&self) {
        for entry in self.all() {
            // If a mailbox is full, the heartbeat detects the suspend itself.
            for seat in entry.seats.iter().filter(|seat| seat.holds_slot.get()) {
                seat.actor.reset_timers.try_send(ResetTimers).ok();
            }
        }
    }

    /// Returns whether any process runs or is starting.
    pub(crate) fn is_any_live(&self) -> bool {
        let entries = self.entries.borrow();
        entries.values().any(|entry| entry.seats.iter().any(|seat| seat.holds_slot.get()))
    }
}

/// Next step of a caller that needs a slot.
enum AcquireStep {
    /// A slot is reserved.
    Taken,
    /// All slots are in use, but the process of this session may be evicted.
    Ask(Rc<SessionEntry>),
    /// All slots are in use, and an evicted process is exiting.
    Wait,
    /// All slots are in use, and no process may be evicted.
    Full,
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix::prelude::*;

    /// Leaves when it is evicted, and is gone a little later.
    struct Evicted(Rc<SessionTable>, Weak<SessionEntry>, ProcessKind);

    impl Actor for Evicted {
        type Context = Context<Self>;
    }

    impl Handler<Evict> for Evicted {
        type Result = bool;

        fn handle(&mut self, _: Evict, ctx: &mut Self::Context) -> bool {
            publish(&self.0, &self.1, self.2, Stage::Leaving, None);
            ctx.run_later(Duration::from_millis(20), move |evicted, _| {
                publish(&evicted.0, &evicted.1, evicted.2, Stage::Gone, None);
            });
            true
        }
    }

    impl Handler<ResetTimers> for Evicted {
        type Result = ();

        fn handle(&mut self, _: ResetTimers, _: &mut Self::Context) {}
    }

    impl Handler<MemoryLimitExceeded> for Evicted {
        type Result = ();

        fn handle(&mut self, _: MemoryLimitExceeded, _: &mut Self::Context) {}
    }

    fn publish(
        table: &SessionTable,
        entry: &Weak<SessionEntry>,
        kind: ProcessKind,
        stage: Stage,
        free_since: Option<Instant>,
    ) {
        table.publish(entry, kind, |session| {
            let process = match kind {
                ProcessKind::Worker => &mut session.worker.process,
                ProcessKind::Agent => &mut session.agent.process,
            };
            process.child.has_process = stage != Stage::Gone;
            (process.stage, process.free_since) = (stage, free_since);
        });
    }

    fn sessions<const N: usize>(table: &Rc<SessionTable>) -> [Rc<SessionEntry>; N] {
        std::array::from_fn(|n| {
            let (worker, agent) = (Context::new(), Context::new());
            let [of_worker, of_agent] =
                [&worker, &agent].map(|ctx| ChildRequests::from(&ctx.address()));
            let entry = SessionEntry::new(SessionId(n.to_string()), of_worker, of_agent);
            let entry = Rc::new(entry);
            for (ctx, kind) in [(worker, ProcessKind::Worker), (agent, ProcessKind::Agent)] {
                ctx.run(Evicted(Rc::clone(table), Rc::downgrade(&entry), kind));
            }
            table.insert(Rc::clone(&entry));
            entry
        })
    }

    /// Starts a process of the session. It is idle since `free_since`, or busy.
    async fn start(
        table: &SessionTable,
        entry: &Rc<SessionEntry>,
        kind: ProcessKind,
        free_since: Option<Instant>,
    ) -> bool {
        let has_slot = table.acquire(&entry.id, kind).await.is_ok();
        if has_slot {
            publish(table, &Rc::downgrade(entry), kind, Stage::Here, free_since);
        }
        has_slot
    }

    #[actix::test]
    async fn the_worker_that_was_idle_longest_makes_room_and_no_busy_or_pinned_one() {
        const WORKER: ProcessKind = ProcessKind::Worker;
        let table = Rc::new(SessionTable::new(2, 1));
        let [a, b, c, d] = sessions(&table);
        let now = Instant::now();
        assert!(start(&table, &a, WORKER, Some(now + Duration::from_secs(1))).await);
        assert!(start(&table, &b, WORKER, Some(now)).await);
        assert!(start(&table, &c, WORKER, None).await);
        let stage = |entry: &SessionEntry| entry.snapshot().worker.process.stage;
        assert_eq!([&a, &b, &c].map(|one| stage(one)), [Stage::Here, Stage::Gone, Stage::Here]);
        table.set_pinned([a.id.clone()].into_iter());
        assert!(!start(&table, &d, WORKER, None).await);
        table.set_pinned(std::iter::empty());
        assert!(start(&table, &d, WORKER, None).await);
        assert_eq!([&a, &c].map(|one| stage(one)), [Stage::Gone, Stage::Here]);
    }

    #[actix::test]
    async fn a_pi_that_leaves_needs_no_slot() {
        const PI: ProcessKind = ProcessKind::Agent;
        let table = Rc::new(SessionTable::new(1, 1));
        let [a, b, c] = sessions(&table);
        assert!(start(&table, &a, PI, Some(Instant::now())).await);
        assert!(start(&table, &b, PI, None).await);
        assert_eq!(a.snapshot().agent.process.stage, Stage::Leaving);
        assert!(!start(&table, &c, PI, None).await);
    }

    #[actix::test]
    async fn processes_of_both_kinds_are_evicted_while_memory_is_short() {
        let table = Rc::new(SessionTable::new(4, 4));
        let [a, b, c] = sessions(&table);
        let now = Instant::now();
        let later = now + Duration::from_secs(9);
        assert!(start(&table, &a, ProcessKind::Worker, Some(now)).await);
        assert!(start(&table, &b, ProcessKind::Agent, Some(now)).await);
        assert!(start(&table, &c, ProcessKind::Worker, Some(later)).await);
        assert_eq!(table.n_evictable(), 3);
        table.evict(9, now);
        assert_eq!(table.n_evictable(), 1, "the others were asked");
        let gone = async {
            while a.snapshot().worker.process.stage != Stage::Gone
                || b.snapshot().agent.process.stage != Stage::Gone
            {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), gone).await.unwrap();
        assert_eq!(c.snapshot().worker.process.stage, Stage::Here);
    }
}
