//! Supervised child processes: the parts that workers and agents share.
//!
//! The actor of a process contains a [`Child`] and implements [`ChildKind`] and [`ChildActor`]. `quackd-supervision`
//! makes the decisions, from the child's row in its table, and [`LifecycleDriver`] executes them. [`lifecycle`] starts, kills and reaps; [`heartbeat`] detects hangs; [`manage`] handles requests about
//! a child; [`process`] is the process, [`link`] its channel, [`cgroup`] its control group and [`snapshot`] its
//! published state. [`deaths`] records exits. [`one_shot`] runs children that run once and exit.

mod cgroup;
pub(crate) mod command_env;
mod credentials;
mod deaths;
pub(crate) mod errands;
mod heartbeat;
pub(crate) mod isolate;
mod kill_reason;
mod kind;
mod lifecycle;
mod link;
pub(crate) mod login_env;
mod manage;
mod one_shot;
mod oom_watch;
pub(crate) mod pi_env;
pub(crate) mod probing;
mod process;
pub(crate) mod repo_cleanup;
mod snapshot;
pub(crate) mod spawner;
mod stderr;
pub(crate) mod tool_registries;
mod worker_source;

pub(crate) use cgroup::{create_cgroup, group_name};
pub(crate) use credentials::Credentials;
pub(crate) use deaths::{Death, Deaths};
pub(crate) use heartbeat::HeartbeatDriver;
pub(crate) use kill_reason::KillReason;
pub(crate) use kind::{ChannelLimits, ChildKind, Program};
pub(crate) use lifecycle::LifecycleDriver;
pub(crate) use link::{ChannelEvent, ChannelInput, SendError};
pub(crate) use manage::{
    ChildRequests, Drain, Evict, Kill, ManageDriver, MemoryLimitExceeded, ResetTimers, Settle,
};
pub(crate) use one_shot::{OneShot, reap_or_kill};
pub(crate) use process::ChildProcess;
pub(crate) use snapshot::ChildSnapshot;
pub(crate) use stderr::stderr_tail;
pub(crate) use worker_source::{LINK, WORKER};

use crate::errors::CallError;
use crate::metrics::Metrics;
use actix::prelude::*;
use errands::Errands;
use isolate::Isolation;
use login_env::LoginEnv;
use probing::Probing;
use quackd_process::{CgroupBase, SessionPaths};
use quackd_supervision::{
    Cause, ChildSpec, Exit, Heartbeat, HeartbeatSpec, Lifecycle, State, WORKER_HEARTBEAT,
};
use repo_cleanup::RepoCleanup;
use serde::Serialize;
use spawner::Spawner;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tool_registries::ToolRegistries;

/// A timer that fires later than this means that the daemon was suspended. The awaited event may already be queued.
pub(crate) const STALL_THRESHOLD: Duration = Duration::from_secs(2);

/// Services that the supervisor's child processes share. One instance per daemon.
#[derive(Debug)]
pub(crate) struct ChildServices {
    /// Starts and reaps processes on the main thread.
    pub(crate) spawner: Spawner,
    /// Environment of commands.
    pub(crate) login: Rc<LoginEnv>,
    /// Confinement that works on this system.
    pub(crate) probing: Probing,
    /// Parent of the sessions' control groups; `None` if the system offers none.
    pub(crate) cgroups: Option<Arc<CgroupBase>>,
    pub(crate) repo_cleanup: Rc<RepoCleanup>,
    pub(crate) tool_registries: Rc<ToolRegistries>,
    pub(crate) isolation: Rc<Isolation>,
    pub(crate) credentials: Rc<Credentials>,
    pub(crate) errands: Rc<Errands>,
    pub(crate) deaths: Rc<Deaths>,
    pub(crate) metrics: Arc<Metrics>,
}

/// Kind of a session's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessKind {
    Worker,
    Agent,
}

/// An actor that owns one process. Methods with a body are optional hooks.
pub(crate) trait ChildActor:
    ChildKind + Actor<Context = Context<Self>> + Handler<ChannelEvent<<Self as ChildKind>::FromChild>>
{
    fn child(&self) -> &Child;
    fn child_mut(&mut self) -> &mut Child;
    fn services(&self) -> &ChildServices;

    /// Prepares the start, and calls [`LifecycleDriver::launch`] or [`LifecycleDriver::spawn_failed`] at the end.
    fn start(&mut self, ctx: &mut Context<Self>);
    /// Whether a caller waits for the process.
    fn has_waiters(&self) -> bool;
    /// Handles a frame of the current process.
    fn on_frame(&mut self, frame: Self::FromChild, ctx: &mut Context<Self>);
    /// Hook: the process already runs.
    fn on_already_running(&mut self, _: &mut Context<Self>) {}
    /// Cause of the death of a process that does not answer its heartbeat.
    fn silence(&self) -> Cause {
        Cause::NotResponding
    }
    /// Returns an error to the waiting callers, because no process will start.
    fn fail_waiters(&mut self, cause: &Cause, ctx: &mut Context<Self>);
    /// Hook: the process will be killed, for the given reason.
    fn on_kill(&mut self, _why: KillReason) {}
    /// Hook: the process was reaped.
    fn on_exit(&mut self, exit: Option<Exit>, ctx: &mut Context<Self>);
    /// Hook: the channel has ended.
    fn on_channel_closed(&mut self, _: &mut Context<Self>) {}
    /// Hook: the state may have changed.
    fn publish_status(&mut self);
    /// Time at which the idle timeout ends the process. `None` if it is busy or exempt.
    fn idle_deadline(&self) -> Option<Instant>;
}

/// Reason for evicting an idle process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EvictionReason {
    /// The idle timeout of the configuration expired.
    Idle,
    /// Another session needed the slot.
    Room,
    /// Memory was low.
    Memory,
    /// The user has thrown away the private copy in which it works.
    Discarded,
    /// The repository of that copy may be made again.
    Refreshed,
}

impl EvictionReason {
    /// Reason in words.
    pub(crate) fn why(self) -> &'static str {
        match self {
            Self::Idle => "it was idle for long",
            Self::Room => "another session needed its place",
            Self::Memory => "memory was short",
            Self::Discarded => "its copy of the workspace was discarded",
            Self::Refreshed => "its copy of the workspace is brought up to date",
        }
    }
}

/// The reason why a process does not run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// No call has needed it yet.
    #[default]
    Unasked,
    /// It was evicted while idle.
    Evicted(EvictionReason),
    /// It exited as requested.
    Ended,
    /// It crashed for this reason.
    Died(Cause),
}

/// The reason why a session accepts no more work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DrainReason {
    /// The daemon is shutting down.
    Shutdown,
    Deleted,
}

impl DrainReason {
    /// Error for a new call.
    pub(crate) fn refusal(self) -> CallError {
        match self {
            Self::Shutdown => CallError::ShuttingDown,
            Self::Deleted => CallError::SessionGone,
        }
    }

    /// Reason in words, a sentence.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Shutdown => "Daemon is shutting down",
            Self::Deleted => "Session was deleted",
        }
    }

    /// Error for a call that was running.
    pub(crate) fn cut_short(self) -> CallError {
        match self {
            Self::Shutdown => CallError::CutShort,
            Self::Deleted => CallError::Deleted,
        }
    }
}

/// State of one supervised process, with its heartbeat and timers.
#[derive(Debug)]
pub(crate) struct Child {
    /// Session id, for the log.
    label: String,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) process: Option<ChildProcess>,
    /// Control group of the child's own processes.
    pub(crate) cgroup: Option<SessionPaths>,
    /// Number of starts so far. Input and timers have the number of their process; those of an earlier process are
    /// dropped.
    pub(crate) generation: u64,
    heartbeat: Heartbeat,
    /// Sequence number of the pending ping.
    pinged: Option<u64>,
    /// Time of the pending ping. `None` if it does not measure the latency.
    pinged_at: Option<Instant>,
    /// Time from the last ping to its pong.
    latency: Option<Duration>,
    /// When the timer of the heartbeat expires.
    heartbeat_timer: Option<(Instant, SpawnHandle)>,
    life_timer: Option<SpawnHandle>,
    /// Number of warnings that the process has sent.
    warnings: u32,
    /// Set once the child accepts no more work.
    pub(crate) ending: Option<DrainReason>,
    drained: Vec<oneshot::Sender<()>>,
    /// The reason why the last process ended.
    pub(crate) stopped: StopReason,
    /// The reason why the current process is evicted.
    evicted: Option<EvictionReason>,
}

impl Child {
    /// Creates the state without a process.
    pub(crate) fn new(spec: ChildSpec, label: String) -> Self {
        let now = Instant::now();
        Self {
            label,
            lifecycle: Lifecycle::new(spec),
            process: None,
            cgroup: None,
            generation: 0,
            heartbeat: Heartbeat::new(beats_of(&spec), now),
            pinged: None,
            pinged_at: None,
            latency: None,
            heartbeat_timer: None,
            life_timer: None,
            warnings: 0,
            ending: None,
            drained: Vec::new(),
            stopped: StopReason::default(),
            evicted: None,
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.lifecycle.state(), State::Ready { .. })
    }

    /// Whether the process has stopped answering heartbeats.
    pub(crate) fn is_unresponsive(&self) -> bool {
        self.heartbeat.is_unresponsive()
    }

    /// The answer to the pending ping does not measure the latency.
    pub(crate) fn forget_ping_time(&mut self) {
        self.pinged_at = None;
    }

    /// Returns the process if `generation` is the current one.
    pub(crate) fn current(&self, generation: u64) -> Option<&ChildProcess> {
        self.process.as_ref().filter(|_| self.generation == generation)
    }

    /// Counts a warning of the process. Returns `None` if it has already sent `max`.
    pub(crate) fn warned(&mut self, max: u32) -> Option<()> {
        self.warnings = self.warnings.checked_add(1).filter(|n| *n <= max)?;
        Some(())
    }

    /// Process id of the monitor.
    pub(crate) fn monitor_pid(&self) -> Option<u32> {
        self.process.as_ref().and_then(ChildProcess::monitor_pid)
    }

    /// Queues a frame.
    pub(crate) fn try_send<T: Serialize>(&self, frame: &T) -> Result<(), SendError> {
        self.process.as_ref().map_or(Err(SendError::Closed), |process| process.try_send(frame))
    }
}

/// Heartbeat intervals of a child. A child without a heartbeat gets the default, which is never used.
fn beats_of(spec: &ChildSpec) -> HeartbeatSpec {
    spec.heartbeat.unwrap_or(WORKER_HEARTBEAT)
}
