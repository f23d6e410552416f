//! The supervisor's end of one worker's control channel: a task that writes what the
//! [`WorkerHandle`] queued and one that reads frames into its mailbox.
//!
//! A worker may be hostile: its frames are bounded in size, decoded here, and one is handled before the
//! next is read. Anything that is no frame ends the link, and with it the worker.

use crate::worker_handle::{FrameArrived, LinkClosed, WorkerHandle};
use actix::Addr;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use quackd_ipc::frames::{self, Decoded};
use quackd_protocol::limits::{WORKER_OUTBOX_FRAMES, WORKER_STDERR_BYTES};
use quackd_protocol::worker::{FROM_WORKER_TAGS, FromWorker};
use std::os::fd::OwnedFd;
use tokio::io::{AsyncReadExt, ReadHalf};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio_util::codec::{FramedRead, FramedWrite};

/// Frames of one worker that this version does not know: the first are logged, and a worker that sends
/// more than a neighbouring version ever would is ended.
const UNKNOWN_LOGGED: u32 = 10;
const MAX_UNKNOWN: u32 = 10_000;

/// What a worker may write to stderr at full speed, and the pause after each kilobyte beyond it.
const STDERR_FREE_BYTES: usize = 64 * 1024;
const STDERR_PAUSE: std::time::Duration = std::time::Duration::from_millis(10);

/// Queues frames for one worker. Dropping it closes the writing side.
#[derive(Debug)]
pub(crate) struct Link {
    frames: mpsc::Sender<Bytes>,
    tasks: [tokio::task::JoinHandle<()>; 2],
}

impl Drop for Link {
    /// Closes the channel, whatever the tasks wait for: the worker and its monitor see it at once.
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Link {
    /// Starts both tasks. `generation` tells this worker's messages from its predecessors'.
    pub(crate) fn start(channel: UnixStream, generation: u64, handle: Addr<WorkerHandle>) -> Self {
        let (reading, writing) = tokio::io::split(channel);
        let (sender, mut queue) = mpsc::channel::<Bytes>(WORKER_OUTBOX_FRAMES);
        let mut writer = FramedWrite::new(writing, frames::codec());
        let writing = actix::spawn(async move {
            while let Some(body) = queue.recv().await {
                // A worker that is gone is noticed by the reading task and by its exit.
                if writer.send(body).await.is_err() {
                    break;
                }
            }
        });
        let reading = actix::spawn(read(reading, generation, handle));
        Self { frames: sender, tasks: [writing, reading] }
    }

    /// Queues a frame's body. `false` if the worker does not take its frames fast enough.
    #[must_use]
    pub(crate) fn offer(&self, body: Bytes) -> bool {
        self.frames.try_send(body).is_ok()
    }
}

async fn read(half: ReadHalf<UnixStream>, generation: u64, handle: Addr<WorkerHandle>) {
    let mut reader = FramedRead::new(half, frames::codec());
    let mut unknown = 0_u32;
    let violation = loop {
        let body = match reader.next().await {
            None => break None,
            Some(Err(error)) if error.kind() == std::io::ErrorKind::InvalidData => {
                break Some(error.to_string());
            }
            Some(Err(_broken)) => break None,
            Some(Ok(body)) => body,
        };
        match frames::decode::<FromWorker>(&body, FROM_WORKER_TAGS) {
            Ok(Decoded::Known(frame)) => {
                // One frame at a time: what the handle has not taken stays in the socket.
                if handle.send(FrameArrived { generation, frame }).await.is_err() {
                    return;
                }
            }
            Ok(Decoded::Unknown(tag)) => {
                unknown = unknown.saturating_add(1);
                if unknown <= UNKNOWN_LOGGED {
                    let tag: String = tag.chars().take(64).collect();
                    tracing::warn!(tag, "skipped a frame of another version");
                } else if MAX_UNKNOWN < unknown {
                    break Some("too many unknown frames".to_owned());
                }
            }
            Err(error) => break Some(error.to_string()),
        }
    };
    handle.send(LinkClosed { generation, violation }).await.ok();
}

/// Reads a worker's stderr until it ends and gives its last bytes, for the death report.
pub(crate) async fn stderr_tail(stderr: OwnedFd) -> String {
    let Ok(mut pipe) = tokio::net::unix::pipe::Receiver::from_owned_fd(stderr) else {
        return String::new();
    };
    let mut tail: Vec<u8> = Vec::new();
    let mut chunk = [0_u8; 1024];
    let mut total = 0_usize;
    while let Ok(n @ 1..) = pipe.read(&mut chunk).await {
        total = total.saturating_add(n);
        if STDERR_FREE_BYTES < total {
            // A flood waits in its own pipe, and whoever writes it waits with it.
            tokio::time::sleep(STDERR_PAUSE).await;
        }
        tail.extend_from_slice(chunk.get(..n).unwrap_or_default());
        let excess = tail.len().saturating_sub(WORKER_STDERR_BYTES);
        tail.drain(..excess);
    }
    String::from_utf8_lossy(&tail).into_owned()
}
