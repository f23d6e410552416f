//! Every child of the supervisor is started and reaped on the process's main thread, and nowhere else.
//!
//! Two reasons. A worker asks the kernel to be killed when its parent *thread* ends, so that thread must
//! be the one that lives as long as the process. And starting a process and sweeping strays block for a
//! moment, which no actor may.
//!
//! The supervisor is a sub-reaper: when a monitor was killed, what it had below it becomes a child of
//! this process. After each reaping, every child that is not a known monitor is ended.

use crate::children::probing::ProbeError;
use crate::errors::chain;
use crate::metrics::Metrics;
use crate::workspaces::NoPlace;
use quackd_home::HomeError;
use quackd_process::{
    Exit, Launcher, ProcessHandle, SelfExe, SpawnError, SpawnedWorker, spawn_launched_blocking,
    spawn_worker_blocking, sweep_strays_blocking,
};
use quackd_protocol::limits::MAX_WORKERS;
use quackd_supervision::Cause;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;
use tokio::sync::oneshot;

/// Requests waiting for the main thread: every worker may be spawned and reaped at once.
const QUEUE: usize = 2 * MAX_WORKERS;

/// Longest time that ending strays may keep the main thread from starting workers and from reporting
/// ends. What is left then hangs in the kernel, and is swept again every [`SWEEP_AGAIN`].
const SWEEP_LIMIT: Duration = Duration::from_millis(200);
const SWEEP_AGAIN: Duration = Duration::from_secs(1);

/// Pause before a worker that could not be watched is tried again.
const WATCH_AGAIN: Duration = Duration::from_millis(200);

/// The verb of a session's worker.
pub(crate) const WORKER: &str = "worker";

#[derive(Debug)]
enum Job {
    Spawn {
        verb: &'static str,
        stdin: OwnedFd,
        answer: oneshot::Sender<Result<SpawnedWorker, SpawnFailure>>,
    },
    Reap {
        process: ProcessHandle,
        answer: oneshot::Sender<Option<Exit>>,
    },
    Stop,
}

/// Why there is no new worker process.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpawnFailure {
    #[error(transparent)]
    Refused(#[from] SpawnError),
    #[error("too many live workers ({0})")]
    TooManyWorkers(usize),
    #[error("the daemon is stopping or overloaded")]
    Unavailable,
    #[error("cannot make a control channel: {0}")]
    Channel(std::io::Error),
    #[error("cannot find out what confines here: {0}")]
    Probe(#[from] ProbeError),
    #[error("no run directory: {0}")]
    RunDir(HomeError),
    #[error("the workspace cannot be entered: {0}")]
    Workspace(std::io::Error),
    #[error("the workspace is refused: {0}")]
    NoPlace(NoPlace),
}

impl SpawnFailure {
    /// What it means for the worker: an executable that cannot be run is not tried again.
    pub(crate) fn cause(&self) -> Cause {
        match self {
            Self::Refused(
                error @ (SpawnError::Io(_) | SpawnError::Launcher { .. } | SpawnError::Replaced),
            ) => Cause::CannotExec(chain(error)),
            other => Cause::CannotStart(chain(other)),
        }
    }
}

/// The actors' handle of the main thread. The main thread's loop ends when all clones are gone.
#[derive(Debug, Clone)]
pub(crate) struct Spawner(SyncSender<Job>);

/// A handle and the work that [`serve_blocking`] takes.
pub(crate) fn spawner() -> (Spawner, Jobs) {
    let (sender, receiver) = sync_channel(QUEUE);
    (Spawner(sender), Jobs(receiver))
}

/// The main thread's side.
#[derive(Debug)]
pub(crate) struct Jobs(Receiver<Job>);

impl Spawner {
    /// Starts our own executable as `verb`, below a monitor. Its control channel, or all its input, is `stdin`.
    pub(crate) async fn spawn(
        &self,
        verb: &'static str,
        stdin: OwnedFd,
    ) -> Result<SpawnedWorker, SpawnFailure> {
        let (answer, answered) = oneshot::channel();
        self.offer(Job::Spawn { verb, stdin, answer })?;
        answered.await.unwrap_or(Err(SpawnFailure::Unavailable))
    }

    /// Waits until `process` has ended and takes its status. `None` if the status was lost.
    pub(crate) async fn ended(&self, process: ProcessHandle) -> Option<Exit> {
        // Watching takes a descriptor. Without one the worker is not dead: it is watched later.
        while let Err(error) = process.exited().await {
            tracing::error!(pid = process.pid(), %error, "cannot watch a worker yet");
            tokio::time::sleep(WATCH_AGAIN).await;
        }
        let (answer, answered) = oneshot::channel();
        self.offer(Job::Reap { process, answer }).ok()?;
        answered.await.ok().flatten()
    }

    /// Ends [`serve_blocking`]: the daemon is done.
    pub(crate) fn stop(&self) {
        // A full queue ends as well: every sender goes with the actors' thread.
        self.0.try_send(Job::Stop).ok();
    }

    fn offer(&self, job: Job) -> Result<(), SpawnFailure> {
        self.0.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) | TrySendError::Disconnected(_) => SpawnFailure::Unavailable,
        })
    }
}

/// Serves jobs on the calling thread, which must be the process's main thread, until every
/// [`Spawner`] is gone.
pub(crate) fn serve_blocking(jobs: &Jobs, children: &Children, metrics: &Arc<Metrics>) {
    // Children that came with the program that became this daemon are not ours to end.
    let mut live = children_blocking();
    // Those of them that serve a session, and are limited in number.
    let mut workers = BTreeSet::new();
    let mut is_swept = true;
    loop {
        let job = match is_swept {
            true => jobs.0.recv().map_err(|_closed| RecvTimeoutError::Disconnected),
            false => jobs.0.recv_timeout(SWEEP_AGAIN),
        };
        match job {
            Ok(Job::Stop) | Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => is_swept = sweep(&live, metrics),
            Ok(Job::Spawn { verb, stdin, answer }) => {
                let spawned = children.spawn(verb, stdin, workers.len());
                if let Ok(child) = &spawned {
                    live.insert(child.process.pid());
                    if verb == WORKER {
                        workers.insert(child.process.pid());
                    }
                }
                // The actor that asked may be gone; then the worker sees its channel close and ends.
                answer.send(spawned).ok();
            }
            Ok(Job::Reap { process, answer }) => {
                let exit = process.try_reap().unwrap_or_else(|error| {
                    tracing::error!(pid = process.pid(), %error, "cannot reap a worker");
                    None
                });
                live.remove(&process.pid());
                workers.remove(&process.pid());
                is_swept = sweep(&live, metrics);
                answer.send(exit).ok();
            }
        }
    }
}

/// The children of this thread, where the system tells.
fn children_blocking() -> BTreeSet<u32> {
    let list = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Ends every child that is not a known monitor. `false` if some are left.
fn sweep(live: &BTreeSet<u32>, metrics: &Arc<Metrics>) -> bool {
    let sweep = sweep_strays_blocking(live, SWEEP_LIMIT);
    if sweep.killed != 0 {
        metrics.strays_killed.add(u64::from(sweep.killed));
        tracing::warn!(
            killed = sweep.killed,
            all_gone = sweep.verified_empty,
            "ended stray processes"
        );
    }
    sweep.verified_empty
}

/// How children are started, and how many there may be.
#[derive(Debug)]
pub(crate) struct Children {
    pub(crate) exe: SelfExe,
    /// What workers are started through, if not directly.
    pub(crate) launcher: Option<Launcher>,
    /// Most workers that may live at the same time.
    pub(crate) max_live: usize,
}

impl Children {
    fn spawn(
        &self,
        verb: &'static str,
        stdin: OwnedFd,
        n_workers: usize,
    ) -> Result<SpawnedWorker, SpawnFailure> {
        if verb != WORKER {
            return Ok(spawn_worker_blocking(&self.exe, &[verb], stdin)?);
        }
        if self.max_live <= n_workers {
            return Err(SpawnFailure::TooManyWorkers(self.max_live));
        }
        Ok(match &self.launcher {
            Some(launcher) => spawn_launched_blocking(launcher, &[verb], stdin)?,
            None => spawn_worker_blocking(&self.exe, &[verb], stdin)?,
        })
    }
}
