//! Starts and reaps all children of the supervisor on the main thread.
//!
//! There are two reasons. A worker is killed by the kernel when its parent *thread* exits, so that thread must run as
//! long as the process. Starting a process and killing strays also block, which no actor may do.
//!
//! The supervisor is a subreaper: if a monitor was killed, its descendants become children of the supervisor. After
//! each reaping, the main thread kills every child that is not a known monitor.

use crate::children::oom_watch::{OomWatch, SAMPLE_INTERVAL};
use crate::children::worker_source::{LINK, WORKER, WorkerSource};
use crate::errors::chain;
use crate::metrics::Metrics;
use crate::obeyed::HeldFile;
use crate::workspaces::NoPlace;
use quackd_home::HomeError;
use quackd_process::{
    Exit as ProcessExit, Launcher, ProcessHandle, SelfExe, SpawnError, SpawnedChild,
    end_commands_blocking, spawn_launched_blocking, spawn_worker_blocking, sweep_strays_blocking,
};
use quackd_protocol::limits::MAX_WORKERS;
use quackd_supervision::{Cause, Exit};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;
use tokio::sync::oneshot;

/// Requests waiting for the main thread: every worker may be spawned and reaped at once.
const QUEUE: usize = 2 * MAX_WORKERS;

/// Time limit for killing strays, during which the main thread starts and reaps no workers. Strays that are still left
/// hang in the kernel; the main thread tries again every [`SWEEP_AGAIN`].
const SWEEP_LIMIT: Duration = Duration::from_millis(200);
const SWEEP_AGAIN: Duration = Duration::from_secs(1);

/// Time without a start or an end of a process after which the supervisor gives back the memory that only those
/// needed.
const RELEASE_PAGES_AFTER: Duration = Duration::from_secs(1);

/// Delay before the supervisor watches a child process again after a failure.
const WATCH_AGAIN: Duration = Duration::from_millis(200);

#[derive(Debug)]
enum SpawnerRequest {
    Spawn {
        verb: &'static str,
        stdin: OwnedFd,
        answer: oneshot::Sender<Result<SpawnedChild, SpawnRequestError>>,
    },
    Reap {
        process: ProcessHandle,
        answer: oneshot::Sender<Option<Exit>>,
    },
    Stop,
}

/// The reason why no child process was started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpawnRequestError {
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
    #[error("worker.launcher is not run: {0}")]
    Launcher(Box<HeldFile>),
}

/// Reason why there is no result of the probe.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProbeError {
    #[error("cannot make a channel: {0}")]
    Channel(#[source] std::io::Error),
    #[error(transparent)]
    Spawn(#[from] Box<SpawnRequestError>),
    #[error("no result after {0:?}")]
    Silent(Duration),
    #[error("the process ended without a result ({0})")]
    Ended(String),
    #[error("the result is malformed: {0}")]
    Malformed(String),
}

impl SpawnRequestError {
    /// Cause for the state machine. An executable that cannot be run is not tried again.
    pub(crate) fn cause(&self) -> Cause {
        match self {
            Self::Refused(
                error @ (SpawnError::Io(_) | SpawnError::Launcher { .. } | SpawnError::Replaced),
            ) => Cause::CannotExec(chain(error)),
            other => Cause::CannotStart(chain(other)),
        }
    }
}

/// Handle of the main thread for the actors. The main thread's loop ends when all clones are dropped.
#[derive(Debug, Clone)]
pub(crate) struct Spawner(SyncSender<SpawnerRequest>);

/// Creates a handle and the queue for [`serve_blocking`].
pub(crate) fn spawner() -> (Spawner, SpawnerQueue) {
    let (sender, receiver) = sync_channel(QUEUE);
    (Spawner(sender), SpawnerQueue(receiver))
}

/// The main thread's end of the queue.
#[derive(Debug)]
pub(crate) struct SpawnerQueue(Receiver<SpawnerRequest>);

impl Spawner {
    /// Starts quackd's executable with the subcommand `verb`, below a monitor. `stdin` is its control channel or its
    /// input.
    pub(crate) async fn spawn(
        &self,
        verb: &'static str,
        stdin: OwnedFd,
    ) -> Result<SpawnedChild, SpawnRequestError> {
        let (answer, answered) = oneshot::channel();
        self.try_send(SpawnerRequest::Spawn { verb, stdin, answer })?;
        answered.await.unwrap_or(Err(SpawnRequestError::Unavailable))
    }

    /// Waits for the exit of `process` and reaps it. Returns `None` if the status was lost.
    pub(crate) async fn wait_and_reap(&self, process: ProcessHandle) -> Option<Exit> {
        // Watching needs a file descriptor. If none is available, the process still runs, so try again later.
        while let Err(error) = process.exited().await {
            tracing::error!(pid = process.pid(), %error, "cannot watch a child process, trying again");
            tokio::time::sleep(WATCH_AGAIN).await;
        }
        let (answer, answered) = oneshot::channel();
        self.try_send(SpawnerRequest::Reap { process, answer }).ok()?;
        answered.await.ok().flatten()
    }

    /// Ends [`serve_blocking`].
    pub(crate) fn stop(&self) {
        // A full queue is fine: the loop also ends when the actors' thread drops all senders.
        self.0.try_send(SpawnerRequest::Stop).ok();
    }

    fn try_send(&self, job: SpawnerRequest) -> Result<(), SpawnRequestError> {
        self.0.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) | TrySendError::Disconnected(_) => SpawnRequestError::Unavailable,
        })
    }
}

/// Serves requests on the calling thread until every [`Spawner`] is dropped. The caller must be the process's main
/// thread.
pub(crate) fn serve_blocking(
    jobs: &SpawnerQueue,
    children: &SpawnSettings,
    metrics: &Arc<Metrics>,
) {
    // Children that this process inherited across `exec` must not be killed.
    let mut live = children_blocking();
    let mut workers_from = WorkerSource::default();
    // The children that serve sessions. Their number is limited.
    let mut workers = BTreeSet::new();
    let mut is_swept = true;
    let mut are_pages_released = false;
    let mut oom = OomWatch::start_blocking();

    loop {
        oom.sample_blocking();
        let job = match (is_swept, are_pages_released) {
            (true, true) if live.is_empty() => {
                jobs.0.recv().map_err(|_closed| RecvTimeoutError::Disconnected)
            }
            (true, true) => jobs.0.recv_timeout(SAMPLE_INTERVAL),
            (true, false) => jobs.0.recv_timeout(RELEASE_PAGES_AFTER),
            (false, _) => jobs.0.recv_timeout(SWEEP_AGAIN),
        };
        let was_quiet = std::mem::take(&mut are_pages_released);

        match job {
            Ok(SpawnerRequest::Stop) | Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) if is_swept => {
                if !was_quiet {
                    quackd_process::release_program_pages_blocking();
                }
                are_pages_released = true;
            }
            Err(RecvTimeoutError::Timeout) => is_swept = sweep(&live, &workers_from, metrics),
            Ok(SpawnerRequest::Spawn { verb, stdin, answer }) => {
                let spawned = children.spawn(verb, stdin, workers.len(), &mut workers_from);
                if let Ok(child) = &spawned {
                    live.insert(child.process.pid());
                    if matches!(verb, WORKER | LINK) {
                        workers.insert(child.process.pid());
                    }
                }
                if matches!(spawned, Err(SpawnRequestError::Refused(SpawnError::Template(_)))) {
                    is_swept = sweep(&live, &workers_from, metrics);
                }
                // If the actor is gone, the process sees its channel close and exits.
                answer.send(spawned).ok();
                if verb == WORKER && children.launcher.is_none() {
                    workers_from.prepare(&children.exe);
                }
            }
            Ok(SpawnerRequest::Reap { process, answer }) => {
                let exit = process.try_reap().unwrap_or_else(|error| {
                    tracing::error!(pid = process.pid(), %error, "cannot reap a child process");
                    None
                });
                live.remove(&process.pid());
                if workers.remove(&process.pid()) {
                    end_commands(&process, metrics);
                }
                if exit.is_some_and(may_be_an_attack) {
                    workers_from.discard();
                }
                is_swept = sweep(&live, &workers_from, metrics);
                answer.send(exit.map(|exit| oom.exit_blocking(exit))).ok();
            }
        }
    }

    workers_from.discard();
}

/// Children of this thread. Empty on systems without `/proc`.
fn children_blocking() -> BTreeSet<u32> {
    let list = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Kills every child that is not a known monitor. Returns `false` if some remain.
fn sweep(live: &BTreeSet<u32>, workers_from: &WorkerSource, metrics: &Arc<Metrics>) -> bool {
    let mut known = live.clone();
    known.extend(workers_from.pid());
    let sweep = sweep_strays_blocking(&known, SWEEP_LIMIT);
    if sweep.killed != 0 {
        metrics.strays_killed.add(u64::from(sweep.killed));
        tracing::warn!(
            killed = sweep.killed,
            all_gone = sweep.verified_empty,
            "killed stray processes"
        );
    }
    sweep.verified_empty
}

/// Kills the commands of a worker that has exited, on macOS. On Linux, [`sweep`] does.
fn end_commands(worker: &ProcessHandle, metrics: &Arc<Metrics>) {
    let Some(sweep) = end_commands_blocking(worker, SWEEP_LIMIT) else { return };
    metrics.strays_killed.add(u64::from(sweep.killed));
    if sweep.killed != 0 {
        tracing::warn!(killed = sweep.killed, "killed commands of a worker that has exited");
    }
    if !sweep.verified_empty {
        let pid = worker.pid();
        tracing::warn!(pid, "commands of a worker that has exited may still run");
    }
}

/// Settings for starting children, and their maximum number.
#[derive(Debug)]
pub(crate) struct SpawnSettings {
    pub(crate) exe: SelfExe,
    /// Program that starts the workers, if configured.
    pub(crate) launcher: Option<Launcher>,
    /// Maximum number of live workers.
    pub(crate) max_live: usize,
}

impl SpawnSettings {
    fn spawn(
        &self,
        verb: &'static str,
        stdin: OwnedFd,
        n_workers: usize,
        workers_from: &mut WorkerSource,
    ) -> Result<SpawnedChild, SpawnRequestError> {
        if !matches!(verb, WORKER | LINK) {
            return Ok(spawn_worker_blocking(&self.exe, &[verb], stdin)?);
        }
        if self.max_live <= n_workers {
            return Err(SpawnRequestError::TooManyWorkers(self.max_live));
        }
        if verb == LINK {
            return Ok(spawn_worker_blocking(&self.exe, &[verb], stdin)?);
        }
        Ok(match &self.launcher {
            Some(launcher) => spawn_launched_blocking(launcher, &[verb], stdin)?,
            None => workers_from.spawn(&self.exe, stdin)?,
        })
    }
}

/// Whether a worker that ended in this way may have been attacked through its memory. All forks of a template have the
/// same address layout, so the next worker gets another one.
fn may_be_an_attack(exit: ProcessExit) -> bool {
    use nix::libc::{SIGABRT, SIGBUS, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};
    matches!(exit, ProcessExit::Signal(SIGABRT | SIGBUS | SIGILL | SIGSEGV | SIGSYS | SIGTRAP))
}
