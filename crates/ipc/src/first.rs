//! The first frame of a control channel, in each direction, before a runtime exists: a worker's stage 0 has one thread.

use crate::descriptors::{receive_with_descriptors, send_with_descriptors};
use crate::frames;
use bytes::BytesMut;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
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
    let body = read_body(control, max_bytes, |until| {
        let mut length = [0_u8; 4];
        read_exact(control, &mut length, until)?;
        Ok(length)
    })?;
    known(&body, tags)
}

fn known<T: DeserializeOwned>(body: &BytesMut, tags: &[&str]) -> io::Result<T> {
    match frames::decode(body, tags).map_err(io::Error::other)? {
        frames::Decoded::Known(message) => Ok(message),
        frames::Decoded::Unknown(tag) => {
            Err(io::Error::other(format!("unknown first frame {tag:.64}")))
        }
    }
}

/// Like [`read_first_blocking`], and returns the descriptors that came with the frame. More than `max_descriptors` are
/// closed by the kernel.
///
/// # Errors
/// As for [`read_first_blocking`].
pub fn read_first_with_descriptors_blocking<T: DeserializeOwned>(
    control: BorrowedFd<'_>,
    max_bytes: usize,
    tags: &[&str],
    max_descriptors: usize,
) -> io::Result<(T, Vec<OwnedFd>)> {
    let mut descriptors = Vec::new();
    let body = read_body(control, max_bytes, |until| {
        read_length_with(control, until, max_descriptors, &mut descriptors)
    })?;
    Ok((known(&body, tags)?, descriptors))
}

/// Writes the length of the first frame, with descriptors for the reader. The caller then writes the body. The channel
/// must be empty, so that this does not wait.
///
/// # Errors
/// The channel is closed, or there are too many descriptors.
pub fn write_length_with_descriptors(
    control: BorrowedFd<'_>,
    length: usize,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let length = u32::try_from(length).map_err(io::Error::other)?.to_be_bytes();
    match send_with_descriptors(control, &length, descriptors)? {
        n if n == length.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
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

fn read_body(
    control: BorrowedFd<'_>,
    max_bytes: usize,
    read_length: impl FnOnce(Instant) -> io::Result<[u8; 4]>,
) -> io::Result<BytesMut> {
    let until = Instant::now() + DEADLINE;
    let length = read_length(until)?;
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    // Checked before the memory is reserved.
    if max_bytes < length {
        return Err(io::Error::other(format!("a first frame of {length} bytes")));
    }

    let mut body = BytesMut::zeroed(length);
    read_exact(control, &mut body, until)?;
    Ok(body)
}

/// Reads the length, and the descriptors that come with its first bytes.
fn read_length_with(
    from: BorrowedFd<'_>,
    until: Instant,
    max_descriptors: usize,
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<[u8; 4]> {
    let mut length = [0_u8; 4];
    let mut read = 0;

    while let Some(rest @ [_, ..]) = length.get_mut(read..) {
        match receive_with_descriptors(from, rest, max_descriptors, descriptors) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => read += n,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => wait_readable(from, until)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }

    Ok(length)
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
        // A signal or an input: the caller reads again, and comes back if nothing is there.
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_protocol::agent::{FROM_PI_TAGS, FromPi};
    use quackd_protocol::worker::{TO_WORKER_TAGS, ToWorker};
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    fn read_body(control: BorrowedFd<'_>, max_bytes: usize) -> io::Result<BytesMut> {
        super::read_body(control, max_bytes, |until| {
            let mut length = [0_u8; 4];
            read_exact(control, &mut length, until)?;
            Ok(length)
        })
    }

    #[test]
    fn descriptors_come_with_the_length() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (passed, mut kept) = UnixStream::pair().unwrap();
        let body = serde_json::to_vec(&ToWorker::Ping { seq: 7 }).unwrap();
        let descriptors = [passed.as_fd(), passed.as_fd()];
        write_length_with_descriptors(theirs.as_fd(), body.len(), &descriptors).unwrap();
        theirs.write_all(&body).unwrap();
        drop(passed);
        let (read, got): (ToWorker, _) =
            read_first_with_descriptors_blocking(ours.as_fd(), 64, TO_WORKER_TAGS, 4).unwrap();
        assert!(matches!(read, ToWorker::Ping { seq: 7 }));
        assert_eq!(got.len(), 2);
        rustix::io::write(&got[1], b"x").unwrap();
        let mut byte = [0];
        std::io::Read::read_exact(&mut kept, &mut byte).unwrap();
        assert_eq!(byte, *b"x");
    }

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
        let error = read_first_blocking::<FromPi>(theirs.as_fd(), 64, FROM_PI_TAGS);
        assert!(error.unwrap_err().to_string().starts_with("unknown first frame"));
    }
}
