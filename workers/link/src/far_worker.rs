//! The worker as a child of the far process.

use crate::packet::FarExit;
use quackd_process::{ProcessHandle, SelfExe, SpawnError, spawn_worker_blocking};
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::time::timeout;

/// Role of the worker on the command line.
const WORKER: &str = "worker";

/// Time for the worker's exit after its channel was closed, after TERM, and after KILL.
const LEAVE: Duration = Duration::from_secs(2);
const TERMINATE: Duration = Duration::from_secs(1);
const KILL: Duration = Duration::from_secs(1);

/// Bytes of the worker's stderr that are read at once.
const CHUNK: usize = 1024;

/// The running worker. On Linux the child is its monitor, which exits with its status.
#[derive(Debug)]
pub(crate) struct FarWorker {
    process: ProcessHandle,
}

impl FarWorker {
    /// Starts it with this end of its channel. Call it only from the main thread.
    pub(crate) fn start_blocking(channel: OwnedFd) -> Result<Self, SpawnError> {
        let child = spawn_worker_blocking(&SelfExe::open()?, &[WORKER], channel)?;
        tokio::spawn(pass_on(pipe::Receiver::from_owned_fd(child.stderr)?));
        Ok(Self { process: child.process })
    }

    /// Returns the exit of a worker whose channel is closed. Ends the worker if it does not exit in time.
    pub(crate) async fn exit(&self) -> FarExit {
        if timeout(LEAVE, self.process.exited()).await.is_err() {
            // The monitor kills the worker and its commands at once.
            self.process.terminate().ok();
            if timeout(TERMINATE, self.process.exited()).await.is_err() {
                self.process.kill().ok();
                timeout(KILL, self.process.exited()).await.ok();
            }
        }
        match self.process.try_reap() {
            Ok(Some(exit)) => exit.into(),
            // It hangs in the kernel.
            Ok(None) | Err(_) => FarExit::Code(1),
        }
    }
}

/// Passes the worker's stderr on to the engine's client, which the link process reads.
async fn pass_on(mut from: pipe::Receiver) {
    let mut stderr = tokio::io::stderr();
    let mut chunk = vec![0; CHUNK];
    while let Ok(n @ 1..) = from.read(&mut chunk).await {
        // While the link is lost, no process reads it.
        stderr.write_all(chunk.get(..n).unwrap_or_default()).await.ok();
    }
}
