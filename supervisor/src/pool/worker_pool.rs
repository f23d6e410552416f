//! The worker pool: limits the number of live workers and evicts idle ones.
//!
//! Evicts the least recently used worker if another session needs a slot or memory is low. Never evicts a pinned or
//! busy worker: the worker's handle makes the final decision. The next call starts an evicted worker again. Updated by
//! the worker handles, on the actors' thread.

use crate::children::spawner::SpawnRequestError;
use crate::children::{EvictionReason, Manage, MemoryLimitExceeded};
use actix::prelude::*;
use quackd_protocol::SessionId;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Timeout for a slot of a worker that is being evicted. Shorter than the time that a call waits for its worker.
const ACQUIRE_TIMEOUT: Duration = Duration::from_millis(1500);

/// Stage of a worker in the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PoolStage {
    /// No process runs or starts.
    Gone,
    /// The worker was asked to exit.
    Leaving,
    /// The worker runs or is starting.
    Here,
}

/// Pool entry of one session's worker.
#[derive(Debug, Clone)]
struct PoolMember {
    handle: Recipient<Manage>,
    /// Process id of its monitor.
    monitor: Option<u32>,
    /// Whether the worker runs or is starting.
    holds_slot: bool,
    /// Whether the worker was asked to exit.
    is_leaving: bool,
    /// Since when the worker is idle. `None` if it must not be evicted.
    idle_since: Option<Instant>,
}

/// All workers. One instance per daemon.
#[derive(Debug)]
pub(crate) struct WorkerPool {
    max: usize,
    members: RefCell<HashMap<SessionId, PoolMember>>,
    left: Notify,
    evictions: Cell<u64>,
}

impl WorkerPool {
    /// Creates an empty pool for at most `max` workers.
    pub(crate) fn new(max: usize) -> Self {
        Self { max, members: RefCell::default(), left: Notify::new(), evictions: Cell::new(0) }
    }

    /// Adds the worker handle of a session. The worker holds no slot yet.
    pub(crate) fn register<A>(&self, session: &SessionId, handle: &Addr<A>)
    where
        A: Actor<Context = Context<A>> + Handler<Manage>,
    {
        let none = PoolMember {
            handle: handle.clone().recipient(),
            monitor: None,
            holds_slot: false,
            is_leaving: false,
            idle_since: None,
        };
        self.members.borrow_mut().insert(session.clone(), none);
    }

    /// Removes a deleted session.
    pub(crate) fn forget(&self, session: &SessionId) {
        self.members.borrow_mut().remove(session);
        self.left.notify_waiters();
    }

    /// Updates the entry of a worker. `idle_since` is `None` if the worker must not be evicted. `monitor` is the
    /// process id of its monitor.
    pub(crate) fn set(
        &self,
        session: &SessionId,
        stage: PoolStage,
        idle_since: Option<Instant>,
        monitor: Option<u32>,
    ) {
        let mut members = self.members.borrow_mut();
        let Some(member) = members.get_mut(session) else { return };
        member.idle_since = idle_since;
        member.monitor = monitor;
        member.is_leaving = stage == PoolStage::Leaving;
        if stage == PoolStage::Gone && member.holds_slot {
            member.holds_slot = false;
            self.left.notify_waiters();
        }
    }

    /// Acquires a slot for a session's worker. Evicts an idle worker if the pool is full.
    ///
    /// # Errors
    /// All slots are held by busy or pinned workers.
    pub(crate) async fn acquire(&self, session: &SessionId) -> Result<(), SpawnRequestError> {
        let until = tokio::time::Instant::now() + ACQUIRE_TIMEOUT;
        loop {
            // Created before the check, so that a slot freed in between is not missed.
            let left = self.left.notified();
            match self.try_acquire(session) {
                AcquireStep::Taken => return Ok(()),
                AcquireStep::Wait => {}
                AcquireStep::Ask(handle) => {
                    // A worker that refuses is busy again, and its handle has updated the entry.
                    if !handle.send(Manage::Evict(EvictionReason::Room)).await.unwrap_or(false) {
                        continue;
                    }
                }
                AcquireStep::Full => return Err(SpawnRequestError::TooManyWorkers(self.max)),
            }
            if tokio::time::timeout_at(until, left).await.is_err() {
                return Err(SpawnRequestError::TooManyWorkers(self.max));
            }
        }
    }

    fn try_acquire(&self, session: &SessionId) -> AcquireStep {
        let mut members = self.members.borrow_mut();
        let taken = members.iter().filter(|(id, one)| one.holds_slot && *id != session).count();
        if taken < self.max {
            if let Some(member) = members.get_mut(session) {
                member.holds_slot = true;
            }
            return AcquireStep::Taken;
        }
        let is_leaving = members.values().any(|one| one.holds_slot && one.is_leaving);
        let free =
            |one: &&mut PoolMember| one.holds_slot && !one.is_leaving && one.idle_since.is_some();
        let oldest = members.values_mut().filter(free);
        match oldest.min_by_key(|one| one.idle_since) {
            Some(oldest) => {
                oldest.is_leaving = true;
                oldest.idle_since = None;
                AcquireStep::Ask(oldest.handle.clone())
            }
            None if is_leaving => AcquireStep::Wait,
            None => AcquireStep::Full,
        }
    }

    /// When the worker that was idle longest became idle, of those that may be evicted.
    pub(crate) fn idle_longest(&self) -> Option<Instant> {
        let members = self.members.borrow();
        members.values().filter(|one| !one.is_leaving).filter_map(|one| one.idle_since).min()
    }

    /// Evicts the worker that was idle longest.
    pub(crate) fn evict_idle_longest(&self, why: EvictionReason) {
        let mut members = self.members.borrow_mut();
        let free = members.values_mut().filter(|one| !one.is_leaving && one.idle_since.is_some());
        if let Some(oldest) = free.min_by_key(|one| one.idle_since) {
            // A full mailbox means that the worker is busy: do not evict it.
            oldest.is_leaving = oldest.handle.try_send(Manage::Evict(why)).is_ok();
            oldest.idle_since = None;
        }
    }

    /// Number of workers that could be evicted now.
    pub(crate) fn n_evictable(&self) -> usize {
        self.members.borrow().values().filter(|one| one.idle_since.is_some()).count()
    }

    /// Counts one eviction.
    pub(crate) fn count_eviction(&self) {
        self.evictions.set(self.evictions.get().saturating_add(1));
    }

    /// Number of evictions since the daemon started.
    pub(crate) fn evictions(&self) -> u64 {
        self.evictions.get()
    }

    /// Resets the timers of all workers after a suspend.
    pub(crate) fn reset_timers(&self) {
        for member in self.members.borrow().values().filter(|one| one.holds_slot) {
            // If the mailbox is full, the heartbeat detects the suspend itself.
            member.handle.try_send(Manage::ResetTimers).ok();
        }
    }

    /// Sessions with a running worker, and the process id of its monitor.
    pub(crate) fn monitors(&self) -> Vec<(SessionId, u32)> {
        let members = self.members.borrow();
        members.iter().filter_map(|(id, one)| Some((id.clone(), one.monitor?))).collect()
    }

    /// Tells the worker's handle that the session is over its memory limit.
    pub(crate) fn report_memory_exceeded(
        &self,
        session: &SessionId,
        exceeded: MemoryLimitExceeded,
    ) {
        if let Some(member) = self.members.borrow().get(session) {
            // If the mailbox is full, the next sample reports it again.
            member.handle.try_send(Manage::OverMemory(exceeded)).ok();
        }
    }

    /// Whether any worker runs or is starting.
    pub(crate) fn any(&self) -> bool {
        self.members.borrow().values().any(|one| one.holds_slot)
    }
}

enum AcquireStep {
    /// A slot is reserved.
    Taken,
    /// All slots are in use, but this idle worker may be evicted.
    Ask(Recipient<Manage>),
    /// All slots are in use, and an evicted worker is exiting.
    Wait,
    /// All slots are in use, and no worker may be evicted.
    Full,
}
