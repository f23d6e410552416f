//! The stderr of a child, for the report of its exit.

use quackd_protocol::limits::WORKER_STDERR_BYTES;
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::io::AsyncReadExt;

/// Bytes of stderr that are read without delay. After each further read, the reader pauses for `STDERR_PAUSE`.
const STDERR_FREE_BYTES: usize = 64 * 1024;
const STDERR_PAUSE: Duration = Duration::from_millis(10);

/// Reads a child's stderr to its end and returns the last bytes, for the crash report.
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
            // A flood stays in the pipe, so the writer blocks.
            tokio::time::sleep(STDERR_PAUSE).await;
        }
        tail.extend_from_slice(chunk.get(..n).unwrap_or_default());
        let excess = tail.len().saturating_sub(WORKER_STDERR_BYTES);
        tail.drain(..excess);
    }
    String::from_utf8_lossy(&tail).into_owned()
}
