//! Requests to the actor of one child, from the supervisor's own tasks or from the user, and their handling.

use super::heartbeat::HeartbeatDriver;
use super::lifecycle::LifecycleDriver;
use super::{ChildActor, DrainReason, EvictionReason, KillReason};
use actix::prelude::*;
use quackd_supervision::{Cause, State};
use std::time::Instant;

/// Stop the process if it is idle. The reply is whether it was.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "bool")]
pub(crate) struct Evict(pub(crate) EvictionReason);

/// The machine was suspended, or this process was stopped: restart all deadlines.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub(crate) struct ResetTimers;

/// Kill the process because its session is over its memory limit.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub(crate) struct MemoryLimitExceeded {
    /// Process id of the monitor above the processes.
    pub(crate) monitor: u32,
    /// Memory of the session, in MiB.
    pub(crate) mb: u64,
    /// The session's limit, in MiB.
    pub(crate) limit_mb: u64,
}

/// Kill the process because the user asked for it. The reply is whether a process runs or starts.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "bool")]
pub(crate) struct Kill;

/// Accept no more work, let running work finish until `until`, then stop the process. The reply arrives after its exit.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub(crate) struct Drain {
    pub(crate) until: Instant,
    pub(crate) ending: DrainReason,
}

/// Does nothing: earlier requests have been handled when it is answered.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub(crate) struct Settle;

/// Address of a child's actor for the requests of the supervisor's own tasks.
#[derive(Debug)]
pub(crate) struct ChildRequests {
    pub(crate) evict: Recipient<Evict>,
    pub(crate) reset_timers: Recipient<ResetTimers>,
    pub(crate) memory_limit: Recipient<MemoryLimitExceeded>,
}

impl<A> From<&Addr<A>> for ChildRequests
where
    A: Actor<Context = Context<A>>
        + Handler<Evict>
        + Handler<ResetTimers>
        + Handler<MemoryLimitExceeded>,
{
    fn from(actor: &Addr<A>) -> Self {
        Self {
            evict: actor.clone().recipient(),
            reset_timers: actor.clone().recipient(),
            memory_limit: actor.clone().recipient(),
        }
    }
}

/// Handler of requests that all kinds of children share.
pub(crate) trait ManageDriver: ChildActor {
    /// Handles a request to stop an idle process.
    fn on_evict(&mut self, why: EvictionReason, ctx: &mut Context<Self>) -> bool {
        let is_evicted = self.evict(why, ctx);
        // A process that was not evicted has work again.
        self.publish_status();
        is_evicted
    }

    /// Kills the process because the user asked for it. Returns false if there is none, or if it is already stopping.
    fn kill(&mut self, ctx: &mut Context<Self>) -> bool {
        let state = self.child().lifecycle.state();
        let is_alive = matches!(state, State::Starting { .. } | State::Ready { .. });
        if is_alive && self.child().ending.is_none() {
            self.kill_for(Cause::KilledByPerson, KillReason::UserRequest, ctx);
        }
        is_alive
    }

    /// Kills the process because its session is over the memory limit and this process tree uses most of it.
    fn on_memory_exceeded(&mut self, exceeded: MemoryLimitExceeded, ctx: &mut Context<Self>) {
        let MemoryLimitExceeded { monitor, mb, limit_mb } = exceeded;
        let is_ending =
            !matches!(self.child().lifecycle.state(), State::Starting { .. } | State::Ready { .. });
        // The message may refer to an earlier process.
        if self.child().monitor_pid() == Some(monitor) && !is_ending {
            let cause = Cause::MemoryLimit { mb, limit_mb };
            self.kill_for(cause, KillReason::OverMemory, ctx);
        }
    }

    /// Resets all deadlines after a suspend.
    fn reset_timers(&mut self, ctx: &mut Context<Self>) {
        let now = Instant::now();
        self.child_mut().lifecycle.renew(now);
        if self.child().lifecycle.next_wakeup().is_some() {
            self.arm_life(ctx);
        }
        if self.child().is_ready() {
            self.reset_heartbeat(now, ctx);
        }
    }
}

impl<A: ChildActor> ManageDriver for A {}
