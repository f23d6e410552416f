//! The lifecycle of a child: starts it on demand, waits for its exit, and restarts it if the state machine requires it.

use super::cgroup::remove_cgroup;
use super::process::ChildProcess;
use super::{ChannelEvent, ChannelInput, ChildActor, EvictionReason, KillReason, StopReason};
use crate::children::spawner::SpawnRequestError;
use actix::prelude::*;
use quackd_process::{SessionPaths, SpawnedChild};
use quackd_supervision::{AfterExit, Cause, Demand, Demander, Exit, Load, Order, State};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// After the channel closes, time to wait for the exit, which explains the cause better.
const CLOSED_GRACE: Duration = Duration::from_millis(500);

/// The lifecycle that all kinds of children share.
pub(crate) trait LifecycleDriver: ChildActor {
    /// Reports a demand for the process to the state machine, and applies the result.
    fn demand(&mut self, demander: Demander, ctx: &mut Context<Self>) {
        let demand = self.child_mut().lifecycle.on_demand(Instant::now(), demander);
        self.apply_demand(demand, ctx);
    }

    /// Applies the state machine's reaction to a demand.
    fn apply_demand(&mut self, demand: Demand, ctx: &mut Context<Self>) {
        match demand {
            Demand::Start => {
                let child = self.child_mut();
                child.generation += 1;
                child.warnings = 0;
                self.start(ctx);
                self.arm_life(ctx);
            }
            Demand::WaitUntil(at) => self.retry_at(at, ctx),
            Demand::Use => self.on_already_running(ctx),
            Demand::WaitForReady => {}
            Demand::Refuse(cause) => self.fail_waiters(&cause, ctx),
        }
        self.publish_status();
    }

    fn retry_at(&mut self, at: Instant, ctx: &mut Context<Self>) {
        let wait = at.saturating_duration_since(Instant::now());
        let timer = ctx.run_later(wait, move |handle, ctx| {
            if handle.has_waiters() && handle.child().ending.is_none() {
                handle.demand(Demander::Call, ctx);
            }
        });
        self.set_life_timer(Some(timer), ctx);
    }

    fn set_life_timer(&mut self, timer: Option<SpawnHandle>, ctx: &mut Context<Self>) {
        if let Some(old) = std::mem::replace(&mut self.child_mut().life_timer, timer) {
            ctx.cancel_future(old);
        }
    }

    /// Schedules the next deadline of the state machine.
    fn arm_life(&mut self, ctx: &mut Context<Self>) {
        let timer = self.child().lifecycle.next_wakeup().map(|due| {
            ctx.run_later(due.saturating_duration_since(Instant::now()), move |handle, ctx| {
                handle.child_mut().life_timer = None;
                let order = handle.child_mut().lifecycle.on_timer(Instant::now());
                handle.apply_order(order, ctx);
            })
        });
        self.set_life_timer(timer, ctx);
    }

    fn apply_order(&mut self, order: Order, ctx: &mut Context<Self>) {
        // Before a kill, which can end the process at once and set the timer of a restart.
        self.publish_status();
        self.arm_life(ctx);
        match order {
            Order::Nothing => {}
            Order::Shutdown if self.child().try_send(&Self::shutdown()).is_ok() => {}
            Order::Shutdown | Order::Kill => self.kill_now(ctx),
        }
    }

    /// Kills a process that failed. `why` is shown to the user.
    fn kill_for(&mut self, cause: Cause, why: KillReason, ctx: &mut Context<Self>) {
        let (child, text) = (self.child(), why.text());
        tracing::warn!(session = child.label, child = Self::NAME, %cause, why = text, "killing a child process");
        self.on_kill(why);
        let order = self.child_mut().lifecycle.condemn(Instant::now(), cause);
        self.apply_order(order, ctx);
    }

    /// Asks the process to exit once it has no work.
    fn drain(&mut self, ctx: &mut Context<Self>) {
        let order = self.child_mut().lifecycle.drain(Instant::now());
        self.apply_order(order, ctx);
    }

    /// Evicts an idle process. Returns `false` if it is busy or exempt from eviction.
    fn evict(&mut self, why: EvictionReason, ctx: &mut Context<Self>) -> bool {
        let state = self.child().lifecycle.state();
        let is_alive = matches!(state, State::Ready { .. } | State::Starting { .. });
        if !is_alive || self.idle_deadline().is_none() {
            return false;
        }
        let label = &self.child().label;
        tracing::info!(
            session = label,
            child = Self::NAME,
            why = why.why(),
            "evicting an idle child process"
        );
        self.child_mut().evicted = Some(why);
        self.services().metrics.evictions.add(1);
        self.drain(ctx);
        true
    }

    /// Starts the process, with `start` as its first frame and these descriptors.
    fn launch(
        &mut self,
        start: &Self::ToChild,
        descriptors: &[OwnedFd],
        cgroup: Option<SessionPaths>,
        ctx: &mut Context<Self>,
    ) {
        self.child_mut().cgroup = cgroup;
        let generation = self.child().generation;
        match ChildProcess::prepare(generation, start, descriptors, ctx.address()) {
            Err(error) => self.spawn_failed(&SpawnRequestError::Channel(error), ctx),
            Ok((process, far_end)) => {
                self.child_mut().process = Some(process);
                let spawner = self.services().spawner.clone();
                let verb = Self::program(start).verb;
                let spawning = async move { spawner.spawn(verb, far_end).await };
                ctx.spawn(spawning.into_actor(self).map(move |result, handle, ctx| match result {
                    Ok(spawned) => handle.spawned(spawned, ctx),
                    Err(failure) => handle.spawn_failed(&failure, ctx),
                }));
                self.publish_status();
            }
        }
    }

    fn spawned(&mut self, spawned: SpawnedChild, ctx: &mut Context<Self>) {
        let order = self.child_mut().lifecycle.on_spawned(Instant::now());
        let spawner = self.services().spawner.clone();
        let watched = spawned.process.clone();
        let ended = async move { spawner.wait_and_reap(watched).await };
        ctx.spawn(ended.into_actor(self).map(move |exit, handle, ctx| handle.on_exit(exit, ctx)));
        if let Some(process) = &mut self.child_mut().process {
            process.spawned(spawned);
        }
        // If the start was canceled in the meantime, the order is to kill the process.
        self.apply_order(order, ctx);
    }

    fn spawn_failed(&mut self, failure: &SpawnRequestError, ctx: &mut Context<Self>) {
        let label = &self.child().label;
        tracing::error!(session = label, child = Self::NAME, error = %failure, "cannot start a child process");
        self.child_mut().process = None;
        self.end_cgroup();
        let waiting = self.has_waiters();
        let worker = &mut self.child_mut().lifecycle;
        let after = worker.on_spawn_failed(Instant::now(), failure.cause(), waiting, random());
        self.after_exit(after, ctx);
    }

    /// Handles a start that was not possible. The waiting callers already got an error.
    fn not_started(&mut self, ctx: &mut Context<Self>) {
        let after = self.child_mut().lifecycle.on_not_started(Instant::now());
        self.after_exit(after, ctx);
    }

    /// Records the exit of the process. Everything below it is gone. Returns the process and, after a crash, the cause.
    /// The caller continues with [`LifecycleDriver::after_exit`].
    fn note_exit(
        &mut self,
        exit: Exit,
        load: Load,
        ctx: &mut Context<Self>,
    ) -> (AfterExit, Option<ChildProcess>, Option<Cause>) {
        let child = self.child_mut();
        let crashes = child.lifecycle.crashes();
        let after = child.lifecycle.on_exit(Instant::now(), exit, load, random());
        let crashed = crashes != child.lifecycle.crashes();
        let cause = child.lifecycle.last_crash().filter(|_| crashed).cloned();
        let process = child.process.take();
        child.stopped = match (&cause, child.evicted.take()) {
            (Some(cause), _) => StopReason::Died(cause.clone()),
            (None, Some(why)) => StopReason::Evicted(why),
            (None, None) => StopReason::Ended,
        };
        if let Some((_, timer)) = child.heartbeat_timer.take() {
            ctx.cancel_future(timer);
        }
        self.end_cgroup();
        (after, process, cause)
    }

    fn after_exit(&mut self, after: AfterExit, ctx: &mut Context<Self>) {
        self.set_life_timer(None, ctx);
        for drained in self.child_mut().drained.drain(..) {
            // The daemon may have stopped waiting.
            drained.send(()).ok();
        }
        match after {
            AfterExit::Stay => {}
            AfterExit::RestartAt(at) if self.child().ending.is_none() => self.retry_at(at, ctx),
            AfterExit::RestartAt(_) => {}
            AfterExit::GaveUp => {
                if let State::Failed { cause, .. } = self.child().lifecycle.state().clone() {
                    let label = &self.child().label;
                    tracing::error!(session = label, child = Self::NAME, %cause, "child process failed");
                    self.fail_waiters(&cause, ctx);
                }
            }
        }
        self.publish_status();
    }

    /// Removes the control group of the last process. Its monitor has usually done so already.
    fn end_cgroup(&mut self) {
        if let Some(cgroup) = self.child_mut().cgroup.take() {
            let metrics = Arc::clone(&self.services().metrics);
            remove_cgroup(self.child().label.clone(), cgroup, metrics);
        }
    }

    /// Kills the process at `until` if it still runs. Returns a receiver for its exit, or `None` if there is no
    /// process.
    fn kill_at(
        &mut self,
        until: Instant,
        ctx: &mut Context<Self>,
    ) -> Option<oneshot::Receiver<()>> {
        let drained = self.gone()?;
        ctx.run_later(until.saturating_duration_since(Instant::now()), move |handle, ctx| {
            handle.kill_now(ctx);
        });
        Some(drained)
    }

    /// Returns a receiver for the exit of the process, or for the failure of its start. `None` if there is no process.
    fn gone(&mut self) -> Option<oneshot::Receiver<()>> {
        self.child().process.as_ref()?;
        let (done, gone) = oneshot::channel();
        self.child_mut().drained.push(done);
        Some(gone)
    }

    fn kill_now(&mut self, ctx: &mut Context<Self>) {
        if let Some(process) = &mut self.child_mut().process {
            process.kill();
            // Its channel is no longer read. The exit of a process that was reaped first may have waited for its end.
            self.on_channel_closed(ctx);
        }
    }

    /// Handles input from the channel. Input from an earlier process is dropped.
    fn on_channel_event(&mut self, event: ChannelEvent<Self::FromChild>, ctx: &mut Context<Self>) {
        let ChannelEvent { generation, input } = event;
        if self.child().current(generation).is_none() {
            return;
        }
        match input {
            ChannelInput::Frame(frame) => self.on_frame(frame, ctx),
            ChannelInput::Closed { violation } => self.link_closed(violation, ctx),
        }
    }

    /// Handles the end of the channel: the process exited, or violated the protocol.
    fn link_closed(&mut self, violation: Option<String>, ctx: &mut Context<Self>) {
        let generation = self.child().generation;
        if let Some(process) = &mut self.child_mut().process {
            process.on_channel_closed();
        }

        // Before the end of the channel, which can end the process at once and set the timer of a restart.
        if let Some(why) = &violation {
            let cause = Cause::Protocol(why.clone());
            self.kill_for(cause, KillReason::BrokeProtocol, ctx);
        }

        self.on_channel_closed(ctx);
        match violation {
            Some(_killed) => {}
            // Usually the exit follows shortly and contains more details. A process that keeps running without its
            // channel is useless.
            None => {
                ctx.run_later(CLOSED_GRACE, move |handle, ctx| {
                    if handle.child().current(generation).is_some() {
                        let cause = Cause::Protocol("closed its channel".into());
                        handle.kill_for(cause, KillReason::ClosedChannel, ctx);
                    }
                });
            }
        }
    }
}

impl<A: ChildActor> LifecycleDriver for A {}

/// Returns a pseudorandom number, for jitter only.
fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}
