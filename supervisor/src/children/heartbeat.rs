//! The heartbeat of a child, and its end when nobody has used it for long.

use super::{Eviction, Life, Supervised, beats_of};
use actix::prelude::*;
use quackd_supervision::{Action, Cause, Heartbeat};
use std::time::Instant;

/// What watches every child that is ready.
pub(crate) trait Beats: Supervised {
    /// It said hello: from here on it is asked whether it is alive.
    fn begin_heartbeat(&mut self, ctx: &mut Context<Self>) {
        let child = self.child_mut();
        child.heartbeat = Heartbeat::new(beats_of(child.worker.spec()), Instant::now());
        child.pinged = None;
        let due = child.heartbeat.next_wakeup();
        self.arm_heartbeat(due, ctx);
    }

    /// The first piece of work was given to it.
    fn is_busy_now(&mut self, ctx: &mut Context<Self>) {
        let due = self.child_mut().heartbeat.on_busy(Instant::now());
        self.arm_heartbeat(due, ctx);
    }

    /// The last piece of work is done.
    fn is_idle_now(&mut self, ctx: &mut Context<Self>) {
        let due = self.child_mut().heartbeat.on_idle(Instant::now());
        self.arm_heartbeat(due, ctx);
    }

    /// It answered. `false` if nobody had asked.
    #[must_use]
    fn pong(&mut self, seq: u64, ctx: &mut Context<Self>) -> bool {
        let child = self.child_mut();
        if child.pinged.take() != Some(seq) {
            return false;
        }
        let due = child.heartbeat.on_pong(seq, Instant::now());
        self.arm_heartbeat(due, ctx);
        true
    }

    fn renew_heartbeat(&mut self, now: Instant, ctx: &mut Context<Self>) {
        let due = self.child_mut().heartbeat.renew(now);
        self.arm_heartbeat(due, ctx);
    }

    /// Beats next at `due`, or when its time without use is over.
    fn arm_heartbeat(&mut self, due: Instant, ctx: &mut Context<Self>) {
        let due = self.idle_until().map_or(due, |until| until.min(due));
        let wait = due.saturating_duration_since(Instant::now());
        let timer = ctx.run_later(wait, |handle, ctx| {
            handle.child_mut().heartbeat_timer = None;
            handle.beat(ctx);
        });
        if let Some(old) = self.child_mut().heartbeat_timer.replace(timer) {
            ctx.cancel_future(old);
        }
    }

    fn beat(&mut self, ctx: &mut Context<Self>) {
        if !self.child().is_ready() {
            return;
        }
        self.changed();
        let now = Instant::now();
        if self.idle_until().is_some_and(|until| until <= now) {
            self.evict(Eviction::Idle, ctx);
            return;
        }
        let (action, due) = self.child_mut().heartbeat.poll(now);
        let label = &self.child().label;
        match action {
            Action::Nothing => {}
            Action::Ping(seq) => {
                if self.child().offer(&Self::ping(seq)).is_err() {
                    // Its queue is full: the silence that follows is counted like any other.
                    tracing::warn!(session = label, child = Self::VERB, "a ping was not taken");
                }
                self.child_mut().pinged = Some(seq);
            }
            Action::Unresponsive => {
                tracing::warn!(session = label, child = Self::VERB, "no answer to heartbeats");
            }
            Action::Kill => {
                return self.end_for(Cause::NotResponding, "its worker did not answer", ctx);
            }
        }
        self.arm_heartbeat(due, ctx);
    }
}

impl<H: Supervised> Beats for H {}
