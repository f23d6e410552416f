//! The heartbeat of a child, and its idle timeout.

use super::{ChildActor, ChildKind, EvictionReason, KillReason, LifecycleDriver, beats_of};
use actix::prelude::*;
use quackd_supervision::{Action, Cause, Heartbeat};
use std::time::Instant;

/// Heartbeat of every child that is ready.
pub(crate) trait HeartbeatDriver<K: ChildKind>: ChildActor<K> {
    /// Starts the heartbeat after the child's hello frame.
    fn begin_heartbeat(&mut self, k: K, ctx: &mut Context<Self>) {
        let child = self.child_mut(k);
        child.heartbeat = Heartbeat::new(beats_of(child.lifecycle.spec()), Instant::now());
        child.pinged = None;
        let due = child.heartbeat.next_wakeup();
        self.arm_heartbeat(k, due, ctx);
    }

    /// Call this when the child gets work and had none.
    fn on_busy(&mut self, k: K, ctx: &mut Context<Self>) {
        let due = self.child_mut(k).heartbeat.on_busy(Instant::now());
        self.arm_heartbeat(k, due, ctx);
    }

    /// Call this when the child has finished its last work.
    fn on_idle(&mut self, k: K, ctx: &mut Context<Self>) {
        let due = self.child_mut(k).heartbeat.on_idle(Instant::now());
        self.arm_heartbeat(k, due, ctx);
    }

    /// Handles a pong. Returns `false` if no ping with this number is pending.
    #[must_use]
    fn on_pong(&mut self, k: K, seq: u64, ctx: &mut Context<Self>) -> bool {
        let child = self.child_mut(k);
        if child.pinged.take() != Some(seq) {
            return false;
        }
        let due = child.heartbeat.on_pong(seq, Instant::now());
        self.arm_heartbeat(k, due, ctx);
        self.publish_status(k);
        true
    }

    fn reset_heartbeat(&mut self, k: K, now: Instant, ctx: &mut Context<Self>) {
        let due = self.child_mut(k).heartbeat.renew(now);
        self.arm_heartbeat(k, due, ctx);
    }

    /// Schedules the next step at `due`, or at the idle deadline if that is earlier. Keeps an earlier timer, so that a
    /// short call does not replace it: polling too early is harmless.
    fn arm_heartbeat(&mut self, k: K, due: Instant, ctx: &mut Context<Self>) {
        let due = self.idle_deadline(k).map_or(due, |until| until.min(due));
        if self.child(k).heartbeat_timer.is_some_and(|(at, _)| at <= due) {
            return;
        }
        let wait = due.saturating_duration_since(Instant::now());
        let timer = ctx.run_later(wait, move |handle, ctx| {
            handle.child_mut(k).heartbeat_timer = None;
            handle.poll_heartbeat(k, ctx);
        });
        if let Some((_, old)) = self.child_mut(k).heartbeat_timer.replace((due, timer)) {
            ctx.cancel_future(old);
        }
    }

    fn poll_heartbeat(&mut self, k: K, ctx: &mut Context<Self>) {
        if !self.child(k).is_ready() {
            return;
        }
        let now = Instant::now();
        if self.idle_deadline(k).is_some_and(|until| until <= now) {
            self.evict(k, EvictionReason::Idle, ctx);
            return;
        }
        let (action, due) = self.child_mut(k).heartbeat.poll(now);
        let label = &self.child(k).label;
        match action {
            Action::Nothing => {}
            Action::Ping(seq) => {
                if self.child(k).try_send(&K::ping(seq)).is_err() {
                    // The child's queue is full. The missing reply counts like any other.
                    tracing::warn!(session = label, child = K::NAME, "cannot send a ping");
                }
                self.child_mut(k).pinged = Some(seq);
            }
            Action::Unresponsive => {
                tracing::warn!(session = label, child = K::NAME, "no answer to heartbeats");
            }
            Action::Kill => {
                return self.kill_for(k, Cause::NotResponding, KillReason::NoHeartbeat, ctx);
            }
        }
        self.arm_heartbeat(k, due, ctx);
        self.publish_status(k);
    }
}

impl<K: ChildKind, H: ChildActor<K>> HeartbeatDriver<K> for H {}
