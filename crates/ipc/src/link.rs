//! The control channel of one worker: a socketpair whose far end becomes the worker's stdin.
//!
//! The supervisor creates a pair per worker. The worker moves its end off descriptor 0 in stage 0, so that no child
//! process can inherit it.

use crate::sockets::stream_pair;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use tokio::net::UnixStream;

/// Creates a pair: the supervisor's end, registered with the current runtime, and the worker's end. Both are
/// non-blocking and close-on-exec.
pub fn pair() -> io::Result<(UnixStream, OwnedFd)> {
    let (ours, theirs) = stream_pair()?;
    Ok((UnixStream::from_std(StdStream::from(ours))?, theirs))
}

/// Moves the control channel off descriptor 0, which becomes `/dev/null`. Called by the worker.
pub fn take_control_channel() -> io::Result<OwnedFd> {
    // At least 3, because 0 to 2 are the standard streams.
    let control = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let null = std::fs::File::open("/dev/null")?;
    // Descriptor 0 stays open. Otherwise the next file that is opened would get this number.
    rustix::stdio::dup2_stdin(&null)?;
    Ok(control)
}

/// Registers the worker's end with the current runtime.
pub fn adopt(control: OwnedFd) -> io::Result<UnixStream> {
    rustix::io::ioctl_fionbio(&control, true)?;
    UnixStream::from_std(StdStream::from(control))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames;
    use futures_util::{SinkExt, StreamExt};
    use tokio_util::codec::Framed;

    #[test]
    fn a_frame_crosses_the_pair_and_the_end_is_seen() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let (ours, theirs) = pair().unwrap();
            let mut ours = Framed::new(ours, frames::codec());
            let mut theirs = Framed::new(adopt(theirs).unwrap(), frames::codec());
            ours.send(bytes::Bytes::from_static(b"hello")).await.unwrap();
            assert_eq!(theirs.next().await.unwrap().unwrap(), "hello");
            drop(ours);
            assert!(theirs.next().await.is_none());
        });
    }
}
