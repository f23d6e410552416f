//! One supervised process and its life, whatever it is for: the part that every owner of a process shares.
//!
//! [`crate::session::worker::WorkerHandle`] and the handle of a Pi are actors that have a [`Child`] and say
//! through [`Supervised`] what is special about theirs. What to do when is decided by `quackd-supervision`,
//! from the row of its table that the child was made with; [`Life`] does it: [`lifecycle`] starts, ends and reaps,
//! [`heartbeat`] watches, [`process`] is the process, [`link`] its channel, [`cgroup`] its control group.
//! [`deaths`] remembers how children ended, [`one_shot`] runs those that do one thing and end.

mod cgroup;
pub(crate) mod command_env;
mod deaths;
mod heartbeat;
mod lifecycle;
mod link;
pub(crate) mod login_env;
mod one_shot;
pub(crate) mod pi_env;
pub(crate) mod probing;
mod process;
pub(crate) mod repo_cleanup;
pub(crate) mod spawner;

pub(crate) use cgroup::{control_group, group_name};
pub(crate) use deaths::{Death, Deaths};
pub(crate) use heartbeat::Beats;
pub(crate) use lifecycle::Life;
pub(crate) use link::{ChannelEvent, ChannelInput, stderr_tail};
pub(crate) use one_shot::{Errand, see_off};
pub(crate) use process::{ChildProcess, Refused};

use crate::errors::CallError;
use crate::metrics::Metrics;
use actix::prelude::*;
use login_env::Login;
use probing::Probing;
use quackd_process::{CgroupBase, Exit as ProcessExit, SessionPaths};
use quackd_protocol::client::LifeInfo;
use quackd_supervision::{
    Cause, ChildSpec, Heartbeat, HeartbeatSpec, State, WORKER_HEARTBEAT, Worker,
};
use repo_cleanup::RepoCleanup;
use serde::Serialize;
use serde::de::DeserializeOwned;
use spawner::Spawner;
use std::fmt::Debug;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// A timer that is later tells of a process that was stopped: what it has waited for may have come meanwhile and
/// not been taken yet.
pub(crate) const LATE: Duration = Duration::from_secs(2);

/// What the supervisor's child processes share. One instance per daemon.
#[derive(Debug)]
pub(crate) struct ChildServices {
    /// Starts and reaps processes on the main thread.
    pub(crate) spawner: Spawner,
    /// Environment of commands.
    pub(crate) login: Rc<Login>,
    /// Confinement that works on this system.
    pub(crate) probing: Probing,
    /// Parent of the sessions' control groups; `None` if the system offers none.
    pub(crate) cgroups: Option<Arc<CgroupBase>>,
    pub(crate) repo_cleanup: Rc<RepoCleanup>,
    pub(crate) deaths: Rc<Deaths>,
    pub(crate) metrics: Arc<Metrics>,
}

/// What is special about one kind of supervised process. The methods with a body are for kinds that have
/// something to do then.
pub(crate) trait Supervised:
    Actor<Context = Context<Self>> + Handler<ChannelEvent<Self::Says>>
{
    /// What the process says.
    type Says: DeserializeOwned + Debug + Send + 'static;
    /// What it is told.
    type Told: Serialize;
    /// How its channel is read.
    const WIRE: Wire;
    /// The verb of our own executable that it is.
    const VERB: &'static str;

    fn child(&self) -> &Child;
    fn child_mut(&mut self) -> &mut Child;
    fn services(&self) -> &ChildServices;

    fn ping(seq: u64) -> Self::Told;
    fn shutdown() -> Self::Told;

    /// Makes ready what the process needs, and ends in [`Life::launch`] or [`Life::spawn_failed`].
    fn start(&mut self, ctx: &mut Context<Self>);
    /// Whether somebody waits for a process.
    fn is_wanted(&self) -> bool;
    /// The process is there already.
    fn is_there(&mut self, _: &mut Context<Self>) {}
    /// Answers those who wait: there will be no process for them.
    fn refuse(&mut self, cause: &Cause, ctx: &mut Context<Self>);
    /// It is to go, for a reason of ours in a few words.
    fn condemned(&mut self, _why: &'static str) {}
    /// It was reaped.
    fn reaped(&mut self, exit: Option<ProcessExit>, ctx: &mut Context<Self>);
    /// Its channel has ended.
    fn fell_silent(&mut self, _: &mut Context<Self>) {}
    /// Its state may be another one.
    fn changed(&mut self);
    /// When it has been without use for long enough to be ended; `None` while it must not be.
    fn idle_until(&self) -> Option<Instant>;
    /// It is ended because nobody uses it.
    fn evicted(&mut self, why: Eviction);
}

/// How a child's channel is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wire {
    /// The frames of this version.
    pub(crate) tags: &'static [&'static str],
    /// Frames of another version that are skipped; one more ends the child.
    pub(crate) max_unknown: u32,
    /// Frames that may come at once, and in each second; `None` if each is paid for in another way.
    pub(crate) pace: Option<(u32, u32)>,
}

/// Why a process that nobody used was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Eviction {
    /// For as long as the configuration says.
    Idle,
    /// Another session wanted its place.
    Room,
    /// Memory was short.
    Memory,
}

impl Eviction {
    /// The reason in words.
    pub(crate) fn why(self) -> &'static str {
        match self {
            Self::Idle => "it was idle for long",
            Self::Room => "another session needed its place",
            Self::Memory => "memory was short",
        }
    }
}

/// Why a session takes no more work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The daemon stops.
    Shutdown,
    /// The session was deleted.
    Deleted,
}

impl Ending {
    /// The answer to a call that comes now.
    pub(crate) fn refusal(self) -> CallError {
        match self {
            Self::Shutdown => CallError::ShuttingDown,
            Self::Deleted => CallError::SessionGone,
        }
    }

    /// The answer to a call that was cut short.
    pub(crate) fn cut_short(self) -> CallError {
        match self {
            Self::Shutdown => CallError::CutShort,
            Self::Deleted => CallError::Deleted,
        }
    }
}

/// The state of one supervised process and of what watches it.
#[derive(Debug)]
pub(crate) struct Child {
    /// Whose it is, for the log.
    label: String,
    pub(crate) worker: Worker,
    pub(crate) process: Option<ChildProcess>,
    /// Where what it starts lives.
    pub(crate) cgroup: Option<SessionPaths>,
    /// Tells the process that there is from its predecessors.
    pub(crate) generation: u64,
    heartbeat: Heartbeat,
    /// The ping that is not answered yet.
    pinged: Option<u64>,
    heartbeat_timer: Option<SpawnHandle>,
    life_timer: Option<SpawnHandle>,
    /// Warnings that the process has sent.
    warnings: u32,
    /// Set once no more work is taken.
    pub(crate) ending: Option<Ending>,
    drained: Vec<oneshot::Sender<()>>,
}

impl Child {
    /// Nothing runs yet.
    pub(crate) fn new(spec: ChildSpec, label: String) -> Self {
        let now = Instant::now();
        Self {
            label,
            worker: Worker::new(spec),
            process: None,
            cgroup: None,
            generation: 0,
            heartbeat: Heartbeat::new(beats_of(&spec), now),
            pinged: None,
            heartbeat_timer: None,
            life_timer: None,
            warnings: 0,
            ending: None,
            drained: Vec::new(),
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.worker.state(), State::Ready { .. })
    }

    /// It stopped answering, and has not answered since.
    pub(crate) fn is_unresponsive(&self) -> bool {
        self.heartbeat.is_unresponsive()
    }

    /// The process, if `generation` means the one that there is.
    pub(crate) fn current(&self, generation: u64) -> Option<&ChildProcess> {
        self.process.as_ref().filter(|_| self.generation == generation)
    }

    /// Another warning of the process; `None` if it has sent `max` already.
    pub(crate) fn warned(&mut self, max: u32) -> Option<()> {
        self.warnings = self.warnings.checked_add(1).filter(|n| *n <= max)?;
        Some(())
    }

    /// Process id of the monitor.
    pub(crate) fn monitor_pid(&self) -> Option<u32> {
        self.process.as_ref().and_then(ChildProcess::monitor_pid)
    }

    /// When the process was started, for display.
    pub(crate) fn started_at(&self) -> Option<String> {
        self.process.as_ref().map(|process| process.started_at.clone())
    }

    /// Queues a frame.
    pub(crate) fn offer<T: Serialize>(&self, frame: &T) -> Result<(), Refused> {
        self.process.as_ref().map_or(Err(Refused::NotTaken), |process| process.offer(frame))
    }

    /// Where it is in its life, for people.
    pub(crate) fn describe(&self, now: Instant) -> LifeInfo {
        let until = |at: Instant| ms(at.saturating_duration_since(now));
        let worker = &self.worker;
        LifeInfo {
            state: match worker.state() {
                State::Ready { .. } if self.is_unresponsive() => "unresponsive",
                state => state.name(),
            }
            .to_owned(),
            state_ms: worker.in_state_for(now).map(ms),
            crashes: worker.crashes(),
            restarts_in_window: worker.recent_restarts(now),
            backoff_ms: match worker.state() {
                State::Backoff { until: at, .. } => Some(until(*at)),
                _ => None,
            },
            forgiven_ms: match worker.state() {
                State::Failed { at, .. } => Some(until(*at + worker.spec().forgiveness)),
                _ => None,
            },
            last_cause: worker.last_crash().map(Cause::to_string),
            heartbeat_age_ms: self.is_ready().then(|| ms(self.heartbeat.age(now))),
        }
    }
}

/// The heartbeat of a child; one that is never asked is given the intervals of the others.
fn beats_of(spec: &ChildSpec) -> HeartbeatSpec {
    spec.heartbeat.unwrap_or(WORKER_HEARTBEAT)
}

/// Milliseconds for the wire.
pub(crate) fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Request to a child's handle from the supervisor's own tasks, or from the user. Answered with whether it applied.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "bool")]
pub(crate) enum Manage {
    /// Stop the process if it is idle.
    Evict(Eviction),
    /// The machine was suspended, or this process was stopped: restart all deadlines.
    ResetTimers,
    /// Kill the process because its session is over its memory limit.
    OverMemory(Outgrown),
    /// Kill the process because the user asked for it.
    Kill,
}

/// See [`Manage::OverMemory`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outgrown {
    /// Process id of the monitor above the processes.
    pub(crate) monitor: u32,
    /// Memory of the session, in MiB.
    pub(crate) mb: u64,
    /// The session's limit, in MiB.
    pub(crate) limit_mb: u64,
}
