//! One process with a control channel: its identity, and how it is ended.
//!
//! The process that the supervisor started is the monitor; the worker is below it. Ending means closing
//! the control channel and telling the monitor, which kills everything below itself. A monitor that does
//! not act is killed: the kernel then ends the worker, and what is left comes to the supervisor, whose
//! main thread sweeps it.

use super::Supervised;
use super::link::{Link, stderr_tail};
use crate::clock::now_text;
use actix::Addr;
use nix::sys::signal::Signal;
use quackd_ipc::frames;
use quackd_process::{ProcessHandle, SpawnedWorker};
use serde::Serialize;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// How long the last words of a dead worker may take to arrive.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct ChildProcess {
    /// When it was started, for display.
    pub(crate) started_at: String,
    /// The same for how long it lived.
    pub(crate) started: Instant,
    link: Option<Link>,
    /// The channel has ended by itself.
    is_silent: bool,
    spawned: Option<Spawned>,
}

#[derive(Debug)]
struct Spawned {
    process: ProcessHandle,
    stderr: JoinHandle<String>,
}

/// Why a frame was not queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It does not fit into a frame.
    TooLong,
    /// The worker does not take its frames.
    NotTaken,
}

impl ChildProcess {
    /// Makes the control channel and writes the first frame into it; the process comes later, and is given
    /// the far end.
    pub(super) fn prepare<H: Supervised>(
        generation: u64,
        start: &H::Told,
        handle: Addr<H>,
    ) -> std::io::Result<(Self, OwnedFd)> {
        let (channel, far_end) = quackd_ipc::link::pair()?;
        let link = Link::start(channel, generation, handle);
        let first = frames::encode(start).map_err(std::io::Error::other)?;
        if !link.offer(first) {
            return Err(std::io::Error::other("the first frame was not taken"));
        }
        let process = Self {
            started_at: now_text(),
            started: Instant::now(),
            link: Some(link),
            is_silent: false,
            spawned: None,
        };
        Ok((process, far_end))
    }

    /// The process exists.
    pub(super) fn spawned(&mut self, worker: SpawnedWorker) {
        let stderr = actix::spawn(stderr_tail(worker.stderr));
        self.spawned = Some(Spawned { process: worker.process, stderr });
    }

    /// Whether frames of it may still come.
    pub(crate) fn may_speak(&self) -> bool {
        self.link.is_some() && !self.is_silent
    }

    /// The channel has ended: all that it said was taken.
    pub(super) fn fell_silent(&mut self) {
        self.is_silent = true;
    }

    /// Process id of the monitor.
    pub(crate) fn monitor_pid(&self) -> Option<u32> {
        self.spawned.as_ref().map(|spawned| spawned.process.pid())
    }

    /// Queues a frame.
    pub(super) fn offer<T: Serialize>(&self, frame: &T) -> Result<(), Refused> {
        let body = frames::encode(frame).map_err(|_too_long| Refused::TooLong)?;
        match &self.link {
            Some(link) if link.offer(body) => Ok(()),
            _ => Err(Refused::NotTaken),
        }
    }

    /// Ends the worker and everything below it. Repeated, it kills the monitor too.
    pub(super) fn kill(&mut self) {
        let again = self.link.take().is_none();
        let signal = if again { Signal::SIGKILL } else { Signal::SIGTERM };
        let Some(spawned) = &self.spawned else { return };
        // CONT, because a stopped monitor does not act on TERM.
        for signal in [signal, Signal::SIGCONT] {
            if let Err(error) = spawned.process.signal(signal) {
                tracing::error!(pid = spawned.process.pid(), %error, "cannot signal a monitor");
            }
        }
    }

    /// The last lines of the process's stderr, once it has ended.
    pub(crate) async fn last_words(self) -> String {
        let Some(Spawned { mut stderr, .. }) = self.spawned else { return String::new() };
        match tokio::time::timeout(LAST_WORDS, &mut stderr).await {
            Ok(Ok(tail)) => tail,
            Ok(Err(_)) => String::new(),
            // Something still holds the pipe; its words do not matter any more.
            Err(_elapsed) => {
                stderr.abort();
                String::new()
            }
        }
    }
}
