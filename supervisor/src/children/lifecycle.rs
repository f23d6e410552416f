//! The life of a child: started when somebody wants it, watched until it has ended, started again if the
//! state machine says so.

use super::cgroup::end_group;
use super::heartbeat::Beats;
use super::process::ChildProcess;
use super::{Eviction, Manage, Outgrown, Supervised};
use crate::children::spawner::SpawnFailure;
use actix::prelude::*;
use quackd_process::{SessionPaths, SpawnedWorker};
use quackd_supervision::{AfterExit, Cause, Demand, Demander, Exit, Load, Order, State};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// How long a closed control channel waits for the exit that explains it.
const CLOSED_GRACE: Duration = Duration::from_millis(500);

/// What is the same for every child.
pub(crate) trait Life: Supervised {
    /// Somebody wants the process: does what that asks for.
    fn demand(&mut self, demander: Demander, ctx: &mut Context<Self>) {
        let demand = self.child_mut().worker.on_demand(Instant::now(), demander);
        self.follow(demand, ctx);
    }

    /// Does what a demand asks for besides using the process.
    fn follow(&mut self, demand: Demand, ctx: &mut Context<Self>) {
        match demand {
            Demand::Start => {
                let child = self.child_mut();
                child.generation += 1;
                child.warnings = 0;
                self.start(ctx);
                self.arm_life(ctx);
            }
            Demand::WaitUntil(at) => self.ask_again_at(at, ctx),
            Demand::Use => self.is_there(ctx),
            Demand::WaitForReady => {}
            Demand::Refuse(cause) => self.refuse(&cause, ctx),
        }
        self.changed();
    }

    fn ask_again_at(&mut self, at: Instant, ctx: &mut Context<Self>) {
        let wait = at.saturating_duration_since(Instant::now());
        let timer = ctx.run_later(wait, |handle, ctx| {
            if handle.is_wanted() && handle.child().ending.is_none() {
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

    /// Lets the state machine know when its next deadline has come.
    fn arm_life(&mut self, ctx: &mut Context<Self>) {
        let timer = self.child().worker.next_wakeup().map(|due| {
            ctx.run_later(due.saturating_duration_since(Instant::now()), |handle, ctx| {
                handle.child_mut().life_timer = None;
                let order = handle.child_mut().worker.on_timer(Instant::now());
                handle.obey(order, ctx);
            })
        });
        self.set_life_timer(timer, ctx);
    }

    fn obey(&mut self, order: Order, ctx: &mut Context<Self>) {
        if let Some(process) = &mut self.child_mut().process {
            match order {
                Order::Nothing => {}
                Order::Shutdown if process.offer(&Self::shutdown()).is_ok() => {}
                Order::Shutdown | Order::Kill => process.kill(),
            }
        }
        self.changed();
        self.arm_life(ctx);
    }

    /// Ends a process that is of no use any more; `why` is for people.
    fn end_for(&mut self, cause: Cause, why: &'static str, ctx: &mut Context<Self>) {
        let child = self.child();
        tracing::warn!(session = child.label, child = Self::VERB, %cause, why, "ending a worker");
        self.condemned(why);
        let order = self.child_mut().worker.condemn(Instant::now(), cause);
        self.obey(order, ctx);
    }

    /// The session has too much memory, and this process with what is below it most of it.
    fn outgrown(&mut self, outgrown: Outgrown, ctx: &mut Context<Self>) {
        let Outgrown { monitor, mb, limit_mb } = outgrown;
        let is_ending =
            !matches!(self.child().worker.state(), State::Starting { .. } | State::Ready { .. });
        // It may be another one by now.
        if self.child().monitor_pid() == Some(monitor) && !is_ending {
            let why = "its session has too much memory";
            self.end_for(Cause::MemoryLimit { mb, limit_mb }, why, ctx);
        }
    }

    /// Asks the process to end, once nothing runs in it.
    fn retire(&mut self, ctx: &mut Context<Self>) {
        let order = self.child_mut().worker.drain(Instant::now());
        self.obey(order, ctx);
    }

    /// Handles a request of the supervisor's own tasks or of the user.
    fn manage(&mut self, msg: Manage, ctx: &mut Context<Self>) -> bool {
        match msg {
            Manage::Evict(why) => return self.evict(why, ctx),
            Manage::ResetTimers => self.renew(ctx),
            Manage::OverMemory(outgrown) => self.outgrown(outgrown, ctx),
            Manage::Kill => return self.kill(ctx),
        }
        true
    }

    /// Kills the process because the user asked for it. Returns false if there is none, or if it is already stopping.
    fn kill(&mut self, ctx: &mut Context<Self>) -> bool {
        let state = self.child().worker.state();
        let is_alive = matches!(state, State::Starting { .. } | State::Ready { .. });
        if is_alive && self.child().ending.is_none() {
            self.end_for(Cause::KilledByPerson, "a person wants it killed", ctx);
        }
        is_alive
    }

    /// Ends a process that nobody uses. `false` if somebody does, or it must stay.
    fn evict(&mut self, why: Eviction, ctx: &mut Context<Self>) -> bool {
        let state = self.child().worker.state();
        let is_alive = matches!(state, State::Ready { .. } | State::Starting { .. });
        if !is_alive || self.idle_until().is_none() {
            return false;
        }
        let label = &self.child().label;
        tracing::info!(
            session = label,
            child = Self::VERB,
            why = why.why(),
            "ending an idle worker"
        );
        self.evicted(why);
        self.retire(ctx);
        true
    }

    /// Starts the process, with `start` as its first frame.
    fn launch(
        &mut self,
        start: &Self::Told,
        cgroup: Option<SessionPaths>,
        ctx: &mut Context<Self>,
    ) {
        self.child_mut().cgroup = cgroup;
        match ChildProcess::prepare(self.child().generation, start, ctx.address()) {
            Err(error) => self.spawn_failed(&SpawnFailure::Channel(error), ctx),
            Ok((process, far_end)) => {
                self.child_mut().process = Some(process);
                let spawner = self.services().spawner.clone();
                let spawning = async move { spawner.spawn(Self::VERB, far_end).await };
                ctx.spawn(spawning.into_actor(self).map(|result, handle, ctx| match result {
                    Ok(spawned) => handle.spawned(spawned, ctx),
                    Err(failure) => handle.spawn_failed(&failure, ctx),
                }));
                self.changed();
            }
        }
    }

    fn spawned(&mut self, spawned: SpawnedWorker, ctx: &mut Context<Self>) {
        let order = self.child_mut().worker.on_spawned(Instant::now());
        let spawner = self.services().spawner.clone();
        let watched = spawned.process.clone();
        let ended = async move { spawner.ended(watched).await };
        ctx.spawn(ended.into_actor(self).map(|exit, handle, ctx| handle.reaped(exit, ctx)));
        if let Some(process) = &mut self.child_mut().process {
            process.spawned(spawned);
        }
        // One that was given up while it was being started is ended now.
        self.obey(order, ctx);
    }

    fn spawn_failed(&mut self, failure: &SpawnFailure, ctx: &mut Context<Self>) {
        let label = &self.child().label;
        tracing::error!(session = label, child = Self::VERB, error = %failure, "cannot start a worker");
        self.child_mut().process = None;
        self.end_cgroup();
        let waiting = self.is_wanted();
        let worker = &mut self.child_mut().worker;
        let after = worker.on_spawn_failed(Instant::now(), failure.cause(), waiting, random());
        self.after_exit(after, ctx);
    }

    /// There is nothing to start, and who waited was told.
    fn not_started(&mut self, ctx: &mut Context<Self>) {
        let after = self.child_mut().worker.on_not_started(Instant::now());
        self.after_exit(after, ctx);
    }

    /// The process was reaped, and everything below it is gone. Gives it, and the cause if that was a crash;
    /// the caller goes on with [`Life::after_exit`].
    fn note_exit(
        &mut self,
        exit: Exit,
        load: Load,
        ctx: &mut Context<Self>,
    ) -> (AfterExit, Option<ChildProcess>, Option<Cause>) {
        let child = self.child_mut();
        let crashes = child.worker.crashes();
        let after = child.worker.on_exit(Instant::now(), exit, load, random());
        let crashed = crashes != child.worker.crashes();
        let cause = child.worker.last_crash().filter(|_| crashed).cloned();
        let process = child.process.take();
        if let Some(timer) = child.heartbeat_timer.take() {
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
            AfterExit::RestartAt(at) if self.child().ending.is_none() => self.ask_again_at(at, ctx),
            AfterExit::RestartAt(_) => {}
            AfterExit::GaveUp => {
                if let State::Failed { cause, .. } = self.child().worker.state().clone() {
                    let label = &self.child().label;
                    tracing::error!(session = label, child = Self::VERB, %cause, "worker has failed");
                    self.refuse(&cause, ctx);
                }
            }
        }
        self.changed();
    }

    /// Ends what is left in the control group of the last process, and removes it. Usually its monitor has.
    fn end_cgroup(&mut self) {
        if let Some(cgroup) = self.child_mut().cgroup.take() {
            let metrics = Arc::clone(&self.services().metrics);
            end_group(self.child().label.clone(), cgroup, metrics);
        }
    }

    /// Kills the process at `until` at the latest. Gives what is told when it is gone; `None` if there is none.
    fn gone_by(
        &mut self,
        until: Instant,
        ctx: &mut Context<Self>,
    ) -> Option<oneshot::Receiver<()>> {
        self.child().process.as_ref()?;
        let (done, drained) = oneshot::channel();
        self.child_mut().drained.push(done);
        ctx.run_later(until.saturating_duration_since(Instant::now()), |handle, _| {
            if let Some(process) = &mut handle.child_mut().process {
                process.kill();
            }
        });
        Some(drained)
    }

    /// The channel has ended: the process is gone, or broke the protocol.
    fn link_closed(&mut self, violation: Option<String>, ctx: &mut Context<Self>) {
        let generation = self.child().generation;
        if let Some(process) = &mut self.child_mut().process {
            process.fell_silent();
        }
        self.fell_silent(ctx);
        match violation {
            Some(why) => self.end_for(Cause::Protocol(why), "its worker broke the protocol", ctx),
            // Usually the exit is on its way, and tells more. A process that lives on without its channel is
            // of no use.
            None => {
                ctx.run_later(CLOSED_GRACE, move |handle, ctx| {
                    if handle.child().current(generation).is_some() {
                        let cause = Cause::Protocol("closed its channel".into());
                        handle.end_for(cause, "its worker closed its channel", ctx);
                    }
                });
            }
        }
    }

    /// The machine slept, or this process was stopped.
    fn renew(&mut self, ctx: &mut Context<Self>) {
        let now = Instant::now();
        self.child_mut().worker.renew(now);
        if self.child().worker.next_wakeup().is_some() {
            self.arm_life(ctx);
        }
        if self.child().is_ready() {
            self.renew_heartbeat(now, ctx);
        }
    }
}

impl<H: Supervised> Life for H {}

/// A number that differs from one to the next, for jitter only.
fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}
