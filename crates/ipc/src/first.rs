//! The first frame of a control channel, in each direction, before a runtime exists: a worker's stage 0 has one thread.

use crate::frames;
use bytes::BytesMut;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// Timeout of the first frame. The supervisor writes it before it spawns the worker, so a longer wait means that no
/// supervisor is connected.
const DEADLINE: Duration = Duration::from_secs(10);

/// Reads the first frame from `control`, at most `max_bytes` of it. `tags` are the variants of `T`, as for
/// [`frames::decode`].
///
/// # Errors
/// The channel was closed, the timeout of 10 s expired, or the frame is longer or of another version.
pub fn read_first_blocking<T: DeserializeOwned>(
    control: BorrowedFd<'_>,
    max_bytes: usize,
    tags: &[&str],
) -> io::Result<T> {
    match frames::decode(&read_body(control, max_bytes)?, tags).map_err(io::Error::other)? {
        frames::Decoded::Known(message) => Ok(message),
        frames::Decoded::Unknown(tag) => {
            Err(io::Error::other(format!("unknown first frame {tag:.64}")))
        }
    }
}

/// Writes one frame to a channel that is still empty, so that the frame fits into the socket's buffer.
///
/// # Errors
/// The channel is closed, or the frame is too long for the buffer.
pub fn write_first_blocking<T: Serialize>(control: BorrowedFd<'_>, message: &T) -> io::Result<()> {
    let body = frames::encode(message).map_err(io::Error::other)?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?.to_be_bytes();
    let frame = [length.as_slice(), &body].concat();
    match rustix::io::write(control, &frame)? {
        n if n == frame.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

fn read_body(control: BorrowedFd<'_>, max_bytes: usize) -> io::Result<BytesMut> {
    let until = Instant::now() + DEADLINE;
    let mut length = [0_u8; 4];
    read_exact(control, &mut length, until)?;
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if max_bytes < length {
        return Err(io::Error::other(format!("a first frame of {length} bytes")));
    }
    let mut body = BytesMut::zeroed(length);
    read_exact(control, &mut body, until)?;
    Ok(body)
}

/// Polls, because the channel is non-blocking and there is no runtime yet.
fn read_exact(from: BorrowedFd<'_>, mut into: &mut [u8], until: Instant) -> io::Result<()> {
    while !into.is_empty() {
        match rustix::io::read(from, &mut *into) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => into = into.get_mut(n..).unwrap_or_default(),
            Err(rustix::io::Errno::AGAIN) => wait_readable(from, until)?,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

fn wait_readable(from: BorrowedFd<'_>, until: Instant) -> io::Result<()> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let timeout = Timespec::try_from(left).ok();
    match poll(&mut [PollFd::new(&from, PollFlags::IN)], timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_protocol::pi::{FROM_PI_WORKER_TAGS, FromPiWorker};
    use quackd_protocol::worker::{TO_WORKER_TAGS, ToWorker};
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_frame_is_read_whole_and_no_further() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let writing = std::thread::spawn(move || {
            for part in [&b"\0\0"[..], b"\0\x03a", b"bcrest"] {
                theirs.write_all(part).unwrap();
            }
            theirs
        });
        assert_eq!(read_body(ours.as_fd(), 3).unwrap(), "abc");
        drop(writing.join().unwrap());
    }

    #[test]
    fn a_frame_that_is_too_long_and_a_closed_channel_are_errors() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(b"\0\0\0\x04abcd").unwrap();
        assert!(read_body(ours.as_fd(), 3).is_err());
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        assert!(read_body(ours.as_fd(), 3).is_err());
    }

    #[test]
    fn what_is_written_first_can_be_read() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let ping = ToWorker::Ping { seq: 7 };
        write_first_blocking(ours.as_fd(), &ping).unwrap();
        let read: ToWorker = read_first_blocking(theirs.as_fd(), 64, TO_WORKER_TAGS).unwrap();
        assert!(matches!(read, ToWorker::Ping { seq: 7 }));
        write_first_blocking(ours.as_fd(), &ping).unwrap();
        let error = read_first_blocking::<FromPiWorker>(theirs.as_fd(), 64, FROM_PI_WORKER_TAGS);
        assert!(error.unwrap_err().to_string().starts_with("unknown first frame"));
    }
}
