//! The heartbeat of a child, and its idle timeout.

use super::{ChildActor, EvictionReason, KillReason, LifecycleDriver, beats_of};
use actix::prelude::*;
use quackd_supervision::{Action, Heartbeat};
use std::time::Instant;

/// Heartbeat of every child that is ready.
pub(crate) trait HeartbeatDriver: ChildActor {
    /// Starts the heartbeat after the child's hello frame.
    fn begin_heartbeat(&mut self, ctx: &mut Context<Self>) {
        let child = self.child_mut();
        child.heartbeat = Heartbeat::new(beats_of(child.lifecycle.spec()), Instant::now());
        child.pinged = None;
        (child.pinged_at, child.latency) = (None, None);
        let due = child.heartbeat.next_wakeup();
        self.arm_heartbeat(due, ctx);
    }

    /// Call this when the child gets work and had none.
    fn on_busy(&mut self, ctx: &mut Context<Self>) {
        let due = self.child_mut().heartbeat.on_busy(Instant::now());
        self.arm_heartbeat(due, ctx);
    }

    /// Call this when the child has finished its last work.
    fn on_idle(&mut self, ctx: &mut Context<Self>) {
        let due = self.child_mut().heartbeat.on_idle(Instant::now());
        self.arm_heartbeat(due, ctx);
    }

    /// Handles a pong. Returns `false` if no ping with this number is pending.
    #[must_use]
    fn on_pong(&mut self, seq: u64, ctx: &mut Context<Self>) -> bool {
        let child = self.child_mut();
        if child.pinged.take() != Some(seq) {
            return false;
        }
        let now = Instant::now();
        let pinged_at = child.pinged_at.take();
        child.latency = pinged_at.map(|at| now.saturating_duration_since(at)).or(child.latency);
        let due = child.heartbeat.on_pong(seq, now);
        self.arm_heartbeat(due, ctx);
        self.publish_status();
        true
    }

    fn reset_heartbeat(&mut self, now: Instant, ctx: &mut Context<Self>) {
        let due = self.child_mut().heartbeat.renew(now);
        self.arm_heartbeat(due, ctx);
    }

    /// Schedules the next step at `due`, or at the idle deadline if that is earlier. Keeps an earlier timer, so that a
    /// short call does not replace it: polling too early is harmless.
    fn arm_heartbeat(&mut self, due: Instant, ctx: &mut Context<Self>) {
        let due = self.idle_deadline().map_or(due, |until| until.min(due));
        if self.child().heartbeat_timer.is_some_and(|(at, _)| at <= due) {
            return;
        }
        let wait = due.saturating_duration_since(Instant::now());
        let timer = ctx.run_later(wait, move |handle, ctx| {
            handle.child_mut().heartbeat_timer = None;
            handle.poll_heartbeat(ctx);
        });
        if let Some((_, old)) = self.child_mut().heartbeat_timer.replace((due, timer)) {
            ctx.cancel_future(old);
        }
    }

    fn poll_heartbeat(&mut self, ctx: &mut Context<Self>) {
        if !self.child().is_ready() {
            return;
        }

        let now = Instant::now();
        if self.idle_deadline().is_some_and(|until| until <= now) {
            self.evict(EvictionReason::Idle, ctx);
            return;
        }

        let (action, due) = self.child_mut().heartbeat.poll(now);
        let label = &self.child().label;
        match action {
            Action::Nothing => {}
            Action::Ping(seq) => {
                if self.child().try_send(&Self::ping(seq)).is_err() {
                    // The child's queue is full. The missing reply counts like any other.
                    tracing::warn!(session = label, child = Self::NAME, "cannot send a ping");
                }
                let child = self.child_mut();
                (child.pinged, child.pinged_at) = (Some(seq), Some(now));
            }
            Action::Unresponsive => {
                tracing::warn!(session = label, child = Self::NAME, "no answer to heartbeats");
            }
            Action::Kill => {
                return self.kill_for(self.silence(), KillReason::NoHeartbeat, ctx);
            }
        }

        self.arm_heartbeat(due, ctx);
        self.publish_status();
    }
}

impl<A: ChildActor> HeartbeatDriver for A {}
