//! One process with a control channel.
//!
//! The supervisor starts the monitor; the worker runs below it. To stop them, the supervisor closes the control channel
//! and signals the monitor, which kills its descendants. The supervisor kills a monitor that does not react. The kernel
//! then kills the worker. The remaining processes become children of the supervisor, and its main thread kills them.

use super::kind::ChildKind;
use super::link::{ChannelEvent, ChannelTasks, SendError};
use super::stderr::stderr_tail;
use super::worker_source::LINK;
use crate::clock::now_text;
use actix::{Actor, Addr, Context, Handler};
use nix::sys::signal::Signal;
use quackd_ipc::first::write_length_with_descriptors;
use quackd_ipc::frames;
use quackd_process::{ProcessHandle, SpawnedChild};
use serde::Serialize;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Timeout for the stderr tail of a dead worker.
const STDERR_TIMEOUT: Duration = Duration::from_millis(100);

/// One process: its monitor, its control channel and its stderr.
#[derive(Debug)]
pub(crate) struct ChildProcess {
    /// When it was started, for display.
    pub(crate) started_at: Rc<str>,
    /// When it was started, to compute its lifetime.
    pub(crate) started: Instant,
    link: Option<ChannelTasks>,
    /// The channel has ended without the supervisor closing it.
    is_silent: bool,
    /// Whether the process first gets time to end what it has started elsewhere, after its channel was closed.
    is_patient: bool,
    spawned: Option<RunningProcess>,
}

#[derive(Debug)]
struct RunningProcess {
    process: ProcessHandle,
    stderr: JoinHandle<String>,
}

impl ChildProcess {
    /// Creates the control channel and writes the first frame into it, with `descriptors` for the process. The process is
    /// started later and gets the other end.
    pub(super) fn prepare<A>(
        generation: u64,
        start: &A::ToChild,
        descriptors: &[OwnedFd],
        actor: Addr<A>,
    ) -> std::io::Result<(Self, OwnedFd)>
    where
        A: ChildKind + Actor<Context = Context<A>> + Handler<ChannelEvent<A::FromChild>>,
    {
        let (channel, far_end) = quackd_ipc::link::pair()?;
        let first = frames::encode(start).map_err(std::io::Error::other)?;
        let borrowed: Vec<_> = descriptors.iter().map(OwnedFd::as_fd).collect();
        write_length_with_descriptors(channel.as_fd(), first.len(), &borrowed)?;
        let program = A::program(start);
        let link = ChannelTasks::start(channel, generation, first, program.decode, actor)?;
        let process = Self {
            started_at: now_text().into(),
            started: Instant::now(),
            link: Some(link),
            is_silent: false,
            is_patient: program.verb == LINK,
            spawned: None,
        };
        Ok((process, far_end))
    }

    /// Adds the started process.
    pub(super) fn spawned(&mut self, child: SpawnedChild) {
        let stderr = actix::spawn(stderr_tail(child.stderr));
        self.spawned = Some(RunningProcess { process: child.process, stderr });
    }

    /// Whether frames may still arrive.
    pub(crate) fn is_channel_open(&self) -> bool {
        self.link.is_some() && !self.is_silent
    }

    /// Marks the channel as ended. All its frames were handled.
    pub(super) fn on_channel_closed(&mut self) {
        self.is_silent = true;
    }

    /// Process id of the monitor.
    pub(crate) fn monitor_pid(&self) -> Option<u32> {
        self.spawned.as_ref().map(|spawned| spawned.process.pid())
    }

    /// Queues a frame.
    pub(super) fn try_send<T: Serialize>(&self, frame: &T) -> Result<(), SendError> {
        let body = frames::encode(frame).map_err(|_too_long| SendError::TooLong)?;
        match &self.link {
            Some(link) => link.try_send(body),
            None => Err(SendError::Closed),
        }
    }

    /// Kills the worker and everything below it. The second call also kills the monitor. The first call only closes the
    /// channel of a link process.
    pub(super) fn kill(&mut self) {
        let signal = match (self.link.take(), self.is_patient) {
            (Some(_), true) => return,
            (Some(_), false) | (None, true) => Signal::SIGTERM,
            (None, false) => Signal::SIGKILL,
        };
        self.is_patient = false;
        let Some(spawned) = &self.spawned else { return };
        // CONT, because a stopped monitor does not act on TERM.
        for signal in [signal, Signal::SIGCONT] {
            if let Err(error) = spawned.process.signal(signal) {
                tracing::error!(pid = spawned.process.pid(), %error, "cannot signal a monitor");
            }
        }
    }

    /// Returns the stderr tail of an exited process.
    pub(crate) async fn stderr_tail(self) -> String {
        let Some(RunningProcess { mut stderr, .. }) = self.spawned else { return String::new() };
        match tokio::time::timeout(STDERR_TIMEOUT, &mut stderr).await {
            Ok(Ok(tail)) => tail,
            Ok(Err(_)) => String::new(),
            // A descendant still holds the pipe, so the rest is not read.
            Err(_elapsed) => {
                stderr.abort();
                String::new()
            }
        }
    }
}
