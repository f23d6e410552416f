//! Requests to evict or kill one child, or to restart its deadlines. Handled by the session's actor.

use super::heartbeat::HeartbeatDriver;
use super::lifecycle::LifecycleDriver;
use super::{ChildActor, ChildKind, EvictionReason, KillReason, ProcessKind};
use actix::prelude::*;
use quackd_supervision::{Cause, State};
use std::time::Instant;

/// Request to a session's actor about one of its processes, from the supervisor's own tasks or from the user. Answered
/// with whether it applied.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "bool")]
pub(crate) struct Manage(pub(crate) ProcessKind, pub(crate) Request);

/// Content of [`Manage`].
#[derive(Debug, Clone, Copy)]
pub(crate) enum Request {
    /// Stop the process if it is idle.
    Evict(EvictionReason),
    /// The machine was suspended, or this process was stopped: restart all deadlines.
    ResetTimers,
    /// Kill the process because its session is over its memory limit.
    OverMemory(MemoryLimitExceeded),
    /// Kill the process because the user asked for it.
    Kill,
}

/// Details of [`Request::OverMemory`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemoryLimitExceeded {
    /// Process id of the monitor above the processes.
    pub(crate) monitor: u32,
    /// Memory of the session, in MiB.
    pub(crate) mb: u64,
    /// The session's limit, in MiB.
    pub(crate) limit_mb: u64,
}

/// Handler of requests that all kinds of children share.
pub(crate) trait ManageDriver<K: ChildKind>: ChildActor<K> {
    /// Handles a request of the supervisor's own tasks or of the user.
    fn manage(&mut self, k: K, request: Request, ctx: &mut Context<Self>) -> bool {
        match request {
            Request::Evict(why) => {
                let is_evicted = self.evict(k, why, ctx);
                // A process that was not evicted has work again.
                self.publish_status(k);
                return is_evicted;
            }
            Request::ResetTimers => self.reset_timers(k, ctx),
            Request::OverMemory(exceeded) => self.on_memory_exceeded(k, exceeded, ctx),
            Request::Kill => return self.kill(k, ctx),
        }
        true
    }

    /// Kills the process because the user asked for it. Returns false if there is none, or if it is already stopping.
    fn kill(&mut self, k: K, ctx: &mut Context<Self>) -> bool {
        let state = self.child(k).lifecycle.state();
        let is_alive = matches!(state, State::Starting { .. } | State::Ready { .. });
        if is_alive && self.child(k).ending.is_none() {
            self.kill_for(k, Cause::KilledByPerson, KillReason::UserRequest, ctx);
        }
        is_alive
    }

    /// Kills the process because its session is over the memory limit and this process tree uses most of it.
    fn on_memory_exceeded(&mut self, k: K, exceeded: MemoryLimitExceeded, ctx: &mut Context<Self>) {
        let MemoryLimitExceeded { monitor, mb, limit_mb } = exceeded;
        let is_ending = !matches!(
            self.child(k).lifecycle.state(),
            State::Starting { .. } | State::Ready { .. }
        );
        // The message may refer to an earlier process.
        if self.child(k).monitor_pid() == Some(monitor) && !is_ending {
            let cause = Cause::MemoryLimit { mb, limit_mb };
            self.kill_for(k, cause, KillReason::OverMemory, ctx);
        }
    }

    /// Resets all deadlines after a suspend.
    fn reset_timers(&mut self, k: K, ctx: &mut Context<Self>) {
        let now = Instant::now();
        self.child_mut(k).lifecycle.renew(now);
        if self.child(k).lifecycle.next_wakeup().is_some() {
            self.arm_life(k, ctx);
        }
        if self.child(k).is_ready() {
            self.reset_heartbeat(k, now, ctx);
        }
    }
}

impl<K: ChildKind, H: ChildActor<K>> ManageDriver<K> for H {}
