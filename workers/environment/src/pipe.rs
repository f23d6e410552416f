//! The named pipe for the answer of a shell. Used by [`crate::capture`].
//!
//! The shell's stdout is not usable: start files print to it, redirect it, or leave background processes that
//! continue to print. A file is not usable either: the answer contains keys, and a killed process would leave them on
//! the disk.

use crate::shell::END;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use quackd_protocol::environment::MAX_CAPTURE_BYTES;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tokio::net::unix::pipe::{OpenOptions, Receiver, Sender};

/// Size of one read in bytes.
const READ_BYTES: usize = 16 * 1024;

/// A named pipe and the bytes read from it. The name is removed when dropped.
#[derive(Debug)]
pub(crate) struct Pipe {
    path: PathBuf,
    reader: Receiver,
    /// Write end that stays open, so that the pipe has no end of file between two writers.
    _keeper: Sender,
    bytes: Vec<u8>,
}

/// The answer is longer than [`MAX_CAPTURE_BYTES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooLong;

impl Pipe {
    /// Creates the pipe in `dir`. At most one per process at a time.
    ///
    /// # Errors
    /// The directory is missing, or no descriptor is left.
    pub(crate) fn create(dir: &Path) -> io::Result<Self> {
        let path = dir.join(format!("login-{}.pipe", std::process::id()));
        // An earlier process with this id may have left a pipe.
        fs::remove_file(&path).ok();
        mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR)?;

        // Open the read end first: opening a pipe for writing without a reader would block or fail.
        let open = || {
            let reader = OpenOptions::new().open_receiver(&path)?;
            Ok((reader, OpenOptions::new().open_sender(&path)?))
        };
        match open() {
            Ok((reader, keeper)) => Ok(Self { path, reader, _keeper: keeper, bytes: Vec::new() }),
            Err(error) => {
                // The error of the pipe is more useful.
                fs::remove_file(&path).ok();
                Err(error)
            }
        }
    }

    /// Returns the path of the pipe, for the shell.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until the answer is complete. Cancel-safe.
    ///
    /// # Errors
    /// [`TooLong`].
    pub(crate) async fn complete(&mut self) -> Result<(), TooLong> {
        while !self.take()? {
            if self.reader.readable().await.is_err() {
                // The runtime is shutting down and drops the awaiting task.
                std::future::pending::<()>().await;
            }
        }
        Ok(())
    }

    /// Reads the available bytes without waiting. Returns true if the answer is complete.
    ///
    /// # Errors
    /// [`TooLong`].
    pub(crate) fn take(&mut self) -> Result<bool, TooLong> {
        let mut chunk = [0; READ_BYTES];
        // An error means that no bytes are available now.
        while let Ok(n @ 1..) = self.reader.try_read(&mut chunk) {
            self.bytes.extend_from_slice(chunk.get(..n).unwrap_or_default());
            if MAX_CAPTURE_BYTES + END.len() < self.bytes.len() {
                return Err(TooLong);
            }
        }
        Ok(self.answer().is_some())
    }

    /// Returns the complete answer: `NAME=VALUE` entries, each followed by a NUL.
    pub(crate) fn answer(&self) -> Option<&[u8]> {
        let entries = self.bytes.strip_suffix(END)?;
        // The end marker may also occur inside a value.
        matches!(entries.last(), None | Some(0)).then_some(entries)
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        // The supervisor clears the directory at its next start.
        fs::remove_file(&self.path).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn write(pipe: &Pipe, bytes: &[u8]) {
        fs::OpenOptions::new().write(true).open(pipe.path()).unwrap().write_all(bytes).unwrap();
    }

    #[tokio::test]
    async fn an_answer_is_complete_with_its_end_and_not_before() {
        let dir = tempfile::tempdir().unwrap();
        let mut pipe = Pipe::create(dir.path()).unwrap();
        assert_eq!(pipe.take(), Ok(false));
        for part in [&b"A=1\0B=x\nend=1\n"[..], b"y\0C=3", b"\0"] {
            write(&pipe, part);
            assert_eq!(pipe.take(), Ok(false));
            assert_eq!(pipe.answer(), None);
        }
        write(&pipe, END);
        pipe.complete().await.unwrap();
        assert_eq!(pipe.answer(), Some(&b"A=1\0B=x\nend=1\ny\0C=3\0"[..]));
    }

    #[tokio::test]
    async fn a_longer_answer_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut pipe = Pipe::create(dir.path()).unwrap();
        let path = pipe.path().to_owned();
        let writer = std::thread::spawn(move || {
            let mut file = fs::OpenOptions::new().write(true).open(path).unwrap();
            // Ends with an error when the reader is gone.
            file.write_all(&vec![b'x'; 2 * MAX_CAPTURE_BYTES])
        });
        assert_eq!(pipe.complete().await, Err(TooLong));
        assert!(pipe.bytes.len() <= MAX_CAPTURE_BYTES + END.len() + READ_BYTES);
        drop(pipe);
        writer.join().unwrap().unwrap_err();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn what_an_earlier_process_left_is_no_obstacle() {
        let dir = tempfile::tempdir().unwrap();
        let left = dir.path().join(format!("login-{}.pipe", std::process::id()));
        fs::write(left, "old").unwrap();
        let mut pipe = Pipe::create(dir.path()).unwrap();
        write(&pipe, END);
        pipe.complete().await.unwrap();
        assert_eq!(pipe.answer(), Some(&b""[..]));
    }
}
