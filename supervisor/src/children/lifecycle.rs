//! The lifecycle of a child: starts it on demand, waits for its exit, and restarts it if the state machine requires it.

use super::cgroup::remove_cgroup;
use super::process::ChildProcess;
use super::{
    ChannelEvent, ChannelInput, ChildActor, ChildKind, EvictionReason, KillReason, StopReason,
};
use crate::children::spawner::SpawnRequestError;
use actix::prelude::*;
use quackd_process::{SessionPaths, SpawnedWorker};
use quackd_supervision::{AfterExit, Cause, Demand, Demander, Exit, Load, Order, State};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// After the channel closes, time to wait for the exit, which explains the cause better.
const CLOSED_GRACE: Duration = Duration::from_millis(500);

/// The lifecycle that all kinds of children share.
pub(crate) trait LifecycleDriver<K: ChildKind>: ChildActor<K> {
    /// Reports a demand for the process to the state machine, and applies the result.
    fn demand(&mut self, k: K, demander: Demander, ctx: &mut Context<Self>) {
        let demand = self.child_mut(k).lifecycle.on_demand(Instant::now(), demander);
        self.apply_demand(k, demand, ctx);
    }

    /// Applies the state machine's reaction to a demand.
    fn apply_demand(&mut self, k: K, demand: Demand, ctx: &mut Context<Self>) {
        match demand {
            Demand::Start => {
                let child = self.child_mut(k);
                child.generation += 1;
                child.warnings = 0;
                self.start(k, ctx);
                self.arm_life(k, ctx);
            }
            Demand::WaitUntil(at) => self.retry_at(k, at, ctx),
            Demand::Use => self.on_already_running(k, ctx),
            Demand::WaitForReady => {}
            Demand::Refuse(cause) => self.fail_waiters(k, &cause, ctx),
        }
        self.publish_status(k);
    }

    fn retry_at(&mut self, k: K, at: Instant, ctx: &mut Context<Self>) {
        let wait = at.saturating_duration_since(Instant::now());
        let timer = ctx.run_later(wait, move |handle, ctx| {
            if handle.has_waiters(k) && handle.child(k).ending.is_none() {
                handle.demand(k, Demander::Call, ctx);
            }
        });
        self.set_life_timer(k, Some(timer), ctx);
    }

    fn set_life_timer(&mut self, k: K, timer: Option<SpawnHandle>, ctx: &mut Context<Self>) {
        if let Some(old) = std::mem::replace(&mut self.child_mut(k).life_timer, timer) {
            ctx.cancel_future(old);
        }
    }

    /// Schedules the next deadline of the state machine.
    fn arm_life(&mut self, k: K, ctx: &mut Context<Self>) {
        let timer = self.child(k).lifecycle.next_wakeup().map(|due| {
            ctx.run_later(due.saturating_duration_since(Instant::now()), move |handle, ctx| {
                handle.child_mut(k).life_timer = None;
                let order = handle.child_mut(k).lifecycle.on_timer(Instant::now());
                handle.apply_order(k, order, ctx);
            })
        });
        self.set_life_timer(k, timer, ctx);
    }

    fn apply_order(&mut self, k: K, order: Order, ctx: &mut Context<Self>) {
        // Before a kill, which can end the process at once and set the timer of a restart.
        self.publish_status(k);
        self.arm_life(k, ctx);
        match order {
            Order::Nothing => {}
            Order::Shutdown if self.child(k).try_send(&K::shutdown()).is_ok() => {}
            Order::Shutdown | Order::Kill => self.kill_now(k, ctx),
        }
    }

    /// Kills a process that failed. `why` is shown to the user.
    fn kill_for(&mut self, k: K, cause: Cause, why: KillReason, ctx: &mut Context<Self>) {
        let (child, text) = (self.child(k), why.text());
        tracing::warn!(session = child.label, child = K::NAME, %cause, why = text, "killing a worker");
        self.on_kill(k, why);
        let order = self.child_mut(k).lifecycle.condemn(Instant::now(), cause);
        self.apply_order(k, order, ctx);
    }

    /// Asks the process to exit once it has no work.
    fn drain(&mut self, k: K, ctx: &mut Context<Self>) {
        let order = self.child_mut(k).lifecycle.drain(Instant::now());
        self.apply_order(k, order, ctx);
    }

    /// Evicts an idle process. Returns `false` if it is busy or exempt from eviction.
    fn evict(&mut self, k: K, why: EvictionReason, ctx: &mut Context<Self>) -> bool {
        let state = self.child(k).lifecycle.state();
        let is_alive = matches!(state, State::Ready { .. } | State::Starting { .. });
        if !is_alive || self.idle_deadline(k).is_none() {
            return false;
        }
        let label = &self.child(k).label;
        tracing::info!(
            session = label,
            child = K::NAME,
            why = why.why(),
            "evicting an idle worker"
        );
        self.child_mut(k).evicted = Some(why);
        self.services(k).metrics.evictions.add(1);
        self.drain(k, ctx);
        true
    }

    /// Starts the process, with `start` as its first frame and these descriptors.
    fn launch(
        &mut self,
        k: K,
        start: &K::ToChild,
        descriptors: &[OwnedFd],
        cgroup: Option<SessionPaths>,
        ctx: &mut Context<Self>,
    ) {
        self.child_mut(k).cgroup = cgroup;
        let generation = self.child(k).generation;
        match ChildProcess::prepare::<K, Self>(generation, start, descriptors, ctx.address()) {
            Err(error) => self.spawn_failed(k, &SpawnRequestError::Channel(error), ctx),
            Ok((process, far_end)) => {
                self.child_mut(k).process = Some(process);
                let spawner = self.services(k).spawner.clone();
                let verb = K::program(start).verb;
                let spawning = async move { spawner.spawn(verb, far_end).await };
                ctx.spawn(spawning.into_actor(self).map(move |result, handle, ctx| match result {
                    Ok(spawned) => handle.spawned(k, spawned, ctx),
                    Err(failure) => handle.spawn_failed(k, &failure, ctx),
                }));
                self.publish_status(k);
            }
        }
    }

    fn spawned(&mut self, k: K, spawned: SpawnedWorker, ctx: &mut Context<Self>) {
        let order = self.child_mut(k).lifecycle.on_spawned(Instant::now());
        let spawner = self.services(k).spawner.clone();
        let watched = spawned.process.clone();
        let ended = async move { spawner.ended(watched).await };
        ctx.spawn(
            ended.into_actor(self).map(move |exit, handle, ctx| handle.on_exit(k, exit, ctx)),
        );
        if let Some(process) = &mut self.child_mut(k).process {
            process.spawned(spawned);
        }
        // If the start was canceled in the meantime, the order is to kill the process.
        self.apply_order(k, order, ctx);
    }

    fn spawn_failed(&mut self, k: K, failure: &SpawnRequestError, ctx: &mut Context<Self>) {
        let label = &self.child(k).label;
        tracing::error!(session = label, child = K::NAME, error = %failure, "cannot start a worker");
        self.child_mut(k).process = None;
        self.end_cgroup(k);
        let waiting = self.has_waiters(k);
        let worker = &mut self.child_mut(k).lifecycle;
        let after = worker.on_spawn_failed(Instant::now(), failure.cause(), waiting, random());
        self.after_exit(k, after, ctx);
    }

    /// Handles a start that was not possible. The waiting callers already got an error.
    fn not_started(&mut self, k: K, ctx: &mut Context<Self>) {
        let after = self.child_mut(k).lifecycle.on_not_started(Instant::now());
        self.after_exit(k, after, ctx);
    }

    /// Records the exit of the process. Everything below it is gone. Returns the process and, after a crash, the cause.
    /// The caller continues with [`LifecycleDriver::after_exit`].
    fn note_exit(
        &mut self,
        k: K,
        exit: Exit,
        load: Load,
        ctx: &mut Context<Self>,
    ) -> (AfterExit, Option<ChildProcess>, Option<Cause>) {
        let child = self.child_mut(k);
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
        self.end_cgroup(k);
        (after, process, cause)
    }

    fn after_exit(&mut self, k: K, after: AfterExit, ctx: &mut Context<Self>) {
        self.set_life_timer(k, None, ctx);
        for drained in self.child_mut(k).drained.drain(..) {
            // The daemon may have stopped waiting.
            drained.send(()).ok();
        }
        match after {
            AfterExit::Stay => {}
            AfterExit::RestartAt(at) if self.child(k).ending.is_none() => self.retry_at(k, at, ctx),
            AfterExit::RestartAt(_) => {}
            AfterExit::GaveUp => {
                if let State::Failed { cause, .. } = self.child(k).lifecycle.state().clone() {
                    let label = &self.child(k).label;
                    tracing::error!(session = label, child = K::NAME, %cause, "worker failed");
                    self.fail_waiters(k, &cause, ctx);
                }
            }
        }
        self.publish_status(k);
    }

    /// Removes the control group of the last process. Its monitor has usually done so already.
    fn end_cgroup(&mut self, k: K) {
        if let Some(cgroup) = self.child_mut(k).cgroup.take() {
            let metrics = Arc::clone(&self.services(k).metrics);
            remove_cgroup(self.child(k).label.clone(), cgroup, metrics);
        }
    }

    /// Kills the process at `until` if it still runs. Returns a receiver for its exit, or `None` if there is no
    /// process.
    fn kill_at(
        &mut self,
        k: K,
        until: Instant,
        ctx: &mut Context<Self>,
    ) -> Option<oneshot::Receiver<()>> {
        let drained = self.gone(k)?;
        ctx.run_later(until.saturating_duration_since(Instant::now()), move |handle, ctx| {
            handle.kill_now(k, ctx);
        });
        Some(drained)
    }

    /// Returns a receiver for the exit of the process, or for the failure of its start. `None` if there is no process.
    fn gone(&mut self, k: K) -> Option<oneshot::Receiver<()>> {
        self.child(k).process.as_ref()?;
        let (done, gone) = oneshot::channel();
        self.child_mut(k).drained.push(done);
        Some(gone)
    }

    fn kill_now(&mut self, k: K, ctx: &mut Context<Self>) {
        if let Some(process) = &mut self.child_mut(k).process {
            process.kill();
            // Its channel is no longer read. The exit of a process that was reaped first may have waited for its end.
            self.on_channel_closed(k, ctx);
        }
    }

    /// Handles input from the channel. Input from an earlier process is dropped.
    fn on_channel_event(
        &mut self,
        k: K,
        event: ChannelEvent<K::FromChild>,
        ctx: &mut Context<Self>,
    ) {
        let ChannelEvent { generation, input } = event;
        if self.child(k).current(generation).is_none() {
            return;
        }
        match input {
            ChannelInput::Frame(frame) => self.on_frame(k, frame, ctx),
            ChannelInput::Closed { violation } => self.link_closed(k, violation, ctx),
        }
    }

    /// Handles the end of the channel: the process exited, or violated the protocol.
    fn link_closed(&mut self, k: K, violation: Option<String>, ctx: &mut Context<Self>) {
        let generation = self.child(k).generation;
        if let Some(process) = &mut self.child_mut(k).process {
            process.on_channel_closed();
        }
        // Before the end of the channel, which can end the process at once and set the timer of a restart.
        if let Some(why) = &violation {
            let cause = Cause::Protocol(why.clone());
            self.kill_for(k, cause, KillReason::BrokeProtocol, ctx);
        }
        self.on_channel_closed(k, ctx);
        match violation {
            Some(_killed) => {}
            // Usually the exit follows shortly and contains more details. A process that keeps running without its
            // channel is useless.
            None => {
                ctx.run_later(CLOSED_GRACE, move |handle, ctx| {
                    if handle.child(k).current(generation).is_some() {
                        let cause = Cause::Protocol("closed its channel".into());
                        handle.kill_for(k, cause, KillReason::ClosedChannel, ctx);
                    }
                });
            }
        }
    }
}

impl<K: ChildKind, H: ChildActor<K>> LifecycleDriver<K> for H {}

/// Returns a pseudorandom number, for jitter only.
fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}
