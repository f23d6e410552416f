//! Which sessions' workers have a place among those that may live at the same time, and which of them nobody
//! uses: those are ended when another session needs the place, or memory is short, the one that was idle for
//! longest first. Never one that is pinned, or in which anything runs; its handle has the last word.
//!
//! On the actors' thread. Written by the worker handles; the next call starts a worker again.

use crate::children::spawner::SpawnFailure;
use crate::children::{Eviction, Manage, Outgrown};
use actix::prelude::*;
use quackd_protocol::SessionId;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// How long a start waits for the place of a worker that is being ended: less than a call waits for its worker.
const PLACE_WAIT: Duration = Duration::from_millis(1500);

/// What a worker is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// There is no process, and none is being started.
    Gone,
    /// It was asked to end.
    Leaving,
    /// It lives, or is being started.
    Here,
}

/// One session's worker.
#[derive(Debug, Clone)]
struct Tenant {
    handle: Recipient<Manage>,
    /// Process id of its monitor.
    monitor: Option<u32>,
    /// It lives, or is being started.
    has_place: bool,
    /// It was asked to go.
    is_leaving: bool,
    /// It is ready and may be ended, and nobody has used it since then.
    free_since: Option<Instant>,
}

/// All workers. One instance per daemon.
#[derive(Debug)]
pub(crate) struct Tenants {
    max: usize,
    tenants: RefCell<HashMap<SessionId, Tenant>>,
    left: Notify,
    evictions: Cell<u64>,
}

impl Tenants {
    /// Nobody lives here yet, and at most `max` may.
    pub(crate) fn new(max: usize) -> Self {
        Self { max, tenants: RefCell::default(), left: Notify::new(), evictions: Cell::new(0) }
    }

    /// A session has a handle now.
    pub(crate) fn enter<A>(&self, session: &SessionId, handle: &Addr<A>)
    where
        A: Actor<Context = Context<A>> + Handler<Manage>,
    {
        let none = Tenant {
            handle: handle.clone().recipient(),
            monitor: None,
            has_place: false,
            is_leaving: false,
            free_since: None,
        };
        self.tenants.borrow_mut().insert(session.clone(), none);
    }

    /// A session was deleted.
    pub(crate) fn forget(&self, session: &SessionId) {
        self.tenants.borrow_mut().remove(session);
        self.left.notify_waiters();
    }

    /// What a worker is at, since when nobody uses it, if it may be ended, and its monitor's process id.
    pub(crate) fn set(
        &self,
        session: &SessionId,
        stage: Stage,
        free_since: Option<Instant>,
        monitor: Option<u32>,
    ) {
        let mut tenants = self.tenants.borrow_mut();
        let Some(tenant) = tenants.get_mut(session) else { return };
        tenant.free_since = free_since;
        tenant.monitor = monitor;
        tenant.is_leaving = stage == Stage::Leaving;
        if stage == Stage::Gone && tenant.has_place {
            tenant.has_place = false;
            self.left.notify_waiters();
        }
    }

    /// Takes a place for a session's worker, if need be that of one that nobody uses.
    ///
    /// # Errors
    /// All places are taken by workers that are used or pinned.
    pub(crate) async fn take_place(&self, session: &SessionId) -> Result<(), SpawnFailure> {
        let until = tokio::time::Instant::now() + PLACE_WAIT;
        loop {
            // From before the look: what leaves in between is not missed.
            let left = self.left.notified();
            match self.look(session) {
                Look::Taken => return Ok(()),
                Look::Wait => {}
                Look::Ask(handle) => {
                    // One that refuses is used again, and its handle has said so.
                    if !handle.send(Manage::Evict(Eviction::Room)).await.unwrap_or(false) {
                        continue;
                    }
                }
                Look::Full => return Err(SpawnFailure::TooManyWorkers(self.max)),
            }
            if tokio::time::timeout_at(until, left).await.is_err() {
                return Err(SpawnFailure::TooManyWorkers(self.max));
            }
        }
    }

    fn look(&self, session: &SessionId) -> Look {
        let mut tenants = self.tenants.borrow_mut();
        let taken = tenants.iter().filter(|(id, one)| one.has_place && *id != session).count();
        if taken < self.max {
            if let Some(tenant) = tenants.get_mut(session) {
                tenant.has_place = true;
            }
            return Look::Taken;
        }
        let is_leaving = tenants.values().any(|one| one.has_place && one.is_leaving);
        let free = |one: &&mut Tenant| one.has_place && !one.is_leaving && one.free_since.is_some();
        let oldest = tenants.values_mut().filter(free);
        match oldest.min_by_key(|one| one.free_since) {
            Some(oldest) => {
                oldest.is_leaving = true;
                oldest.free_since = None;
                Look::Ask(oldest.handle.clone())
            }
            None if is_leaving => Look::Wait,
            None => Look::Full,
        }
    }

    /// When the worker that was idle longest became idle, of those that may be evicted.
    pub(crate) fn idle_longest(&self) -> Option<Instant> {
        let tenants = self.tenants.borrow();
        tenants.values().filter(|one| !one.is_leaving).filter_map(|one| one.free_since).min()
    }

    /// Evicts the worker that was idle longest.
    pub(crate) fn evict_idle_longest(&self, why: Eviction) {
        let mut tenants = self.tenants.borrow_mut();
        let free = tenants.values_mut().filter(|one| !one.is_leaving && one.free_since.is_some());
        if let Some(oldest) = free.min_by_key(|one| one.free_since) {
            // A full mailbox means that the worker is busy: it stays.
            oldest.is_leaving = oldest.handle.try_send(Manage::Evict(why)).is_ok();
            oldest.free_since = None;
        }
    }

    /// How many workers could be ended now.
    pub(crate) fn n_free(&self) -> usize {
        self.tenants.borrow().values().filter(|one| one.free_since.is_some()).count()
    }

    /// Another process was ended because nobody used it.
    pub(crate) fn count_eviction(&self) {
        self.evictions.set(self.evictions.get().saturating_add(1));
    }

    /// Processes that were ended because nobody used them.
    pub(crate) fn evictions(&self) -> u64 {
        self.evictions.get()
    }

    /// The machine slept, or this process was stopped.
    pub(crate) fn renew(&self) {
        for tenant in self.tenants.borrow().values().filter(|one| one.has_place) {
            // Without it the heartbeat finds out by itself.
            tenant.handle.try_send(Manage::ResetTimers).ok();
        }
    }

    /// The sessions whose worker has a process, and the process id of its monitor.
    pub(crate) fn monitors(&self) -> Vec<(SessionId, u32)> {
        let tenants = self.tenants.borrow();
        tenants.iter().filter_map(|(id, one)| Some((id.clone(), one.monitor?))).collect()
    }

    /// A session's worker has too much memory.
    pub(crate) fn outgrown(&self, session: &SessionId, outgrown: Outgrown) {
        if let Some(tenant) = self.tenants.borrow().get(session) {
            // A full mailbox has its turn at the next look.
            tenant.handle.try_send(Manage::OverMemory(outgrown)).ok();
        }
    }

    /// Whether any worker lives.
    pub(crate) fn any(&self) -> bool {
        self.tenants.borrow().values().any(|one| one.has_place)
    }
}

enum Look {
    /// There is a place.
    Taken,
    /// This one can be asked to go.
    Ask(Recipient<Manage>),
    /// Somebody is on the way out.
    Wait,
    /// Neither.
    Full,
}
