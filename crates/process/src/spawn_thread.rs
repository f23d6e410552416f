//! The thread that launches a worker's commands. A process inherits system call filters from the thread that
//! starts it, so a filter for commands alone is installed on a thread that only launches them; the
//! worker's other threads keep the calls that file tools need. Used by [`crate::run`].

use crate::oom::OomScore;
use std::fmt;
use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};

type Prepare = dyn Fn() -> io::Result<()> + Send + Sync;
type Job = Box<dyn FnOnce() + Send>;

/// Launches commands on a separate thread. The thread starts with the first command, so that an idle worker has
/// none.
pub struct SpawnThread {
    prepare: Arc<Prepare>,
    oom: Option<Arc<OomScore>>,
    jobs: OnceLock<SyncSender<Job>>,
}

impl SpawnThread {
    /// Creates a launcher whose thread calls `prepare` before its first launch. With `oom`, commands start with their
    /// own OOM score.
    #[must_use]
    pub fn new(
        prepare: impl Fn() -> io::Result<()> + Send + Sync + 'static,
        oom: Option<OomScore>,
    ) -> Self {
        Self { prepare: Arc::new(prepare), oom: oom.map(Arc::new), jobs: OnceLock::new() }
    }

    /// Runs `launch` on the thread and waits for its result. Blocks for as long as starting a process takes.
    ///
    /// # Errors
    /// The thread cannot be started or prepared, or the OOM score of a command cannot be set. Nothing was launched.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        launch: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let jobs = match self.jobs.get() {
            Some(jobs) => jobs,
            None => {
                let started = self.start()?;
                self.jobs.get_or_init(|| started)
            }
        };

        let oom = self.oom.clone();
        let (sender, result) = sync_channel(1);
        let job = move || {
            let launched = match oom {
                Some(oom) => oom.as_command(launch),
                None => Ok(launch()),
            };
            // The receiver waits below.
            sender.send(launched).ok();
        };

        // The thread runs until `self` is dropped.
        jobs.send(Box::new(job)).map_err(|_| io::ErrorKind::BrokenPipe)?;
        result.recv().map_err(io::Error::other)?
    }

    fn start(&self) -> io::Result<SyncSender<Job>> {
        let (jobs, queue) = sync_channel::<Job>(1);
        let (sender, is_prepared) = sync_channel(1);
        let prepare = Arc::clone(&self.prepare);
        let launches = move || {
            let prepared = prepare();
            let is_ready = prepared.is_ok();
            // A thread that is not prepared must launch nothing: its commands would run without the
            // filter.
            sender.send(prepared).ok();
            if is_ready {
                queue.into_iter().for_each(|job| job());
            }
        };

        std::thread::Builder::new().name("launch".to_owned()).spawn(launches)?;
        is_prepared.recv().map_err(io::Error::other)??;
        Ok(jobs)
    }
}

impl fmt::Debug for SpawnThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpawnThread").field("oom", &self.oom).finish_non_exhaustive()
    }
}
