//! The named pipe through which a shell answers. Used by [`crate::capture`].
//!
//! Not the shell's stdout: start files print there what they like, send it elsewhere, or leave background
//! processes that go on printing. Not a file: the answer holds keys, and a disk keeps what a process that
//! was killed did not delete.

use crate::shell::END;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use quackd_protocol::environment::MAX_CAPTURE_BYTES;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tokio::net::unix::pipe::{OpenOptions, Receiver, Sender};

/// Bytes of one read.
const READ_BYTES: usize = 16 * 1024;

/// A pipe with a name, and what came through it. The name goes with it.
#[derive(Debug)]
pub(crate) struct Pipe {
    path: PathBuf,
    reader: Receiver,
    /// Held open, so that the pipe has no end between two writers.
    _keeper: Sender,
    bytes: Vec<u8>,
}

/// The answer is longer than [`MAX_CAPTURE_BYTES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooLong;

impl Pipe {
    /// Makes the pipe in `dir`. One at a time per process.
    ///
    /// # Errors
    /// The system's: the directory is missing, or no descriptor is left.
    pub(crate) fn create(dir: &Path) -> io::Result<Self> {
        let path = dir.join(format!("login-{}.pipe", std::process::id()));
        // Left by an earlier process with this number, if anything.
        drop(fs::remove_file(&path));
        mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR)?;
        // In this order: a pipe without a reader cannot be opened for writing without waiting.
        let open = || {
            let reader = OpenOptions::new().open_receiver(&path)?;
            Ok((reader, OpenOptions::new().open_sender(&path)?))
        };
        match open() {
            Ok((reader, keeper)) => Ok(Self { path, reader, _keeper: keeper, bytes: Vec::new() }),
            Err(error) => {
                drop(fs::remove_file(&path));
                Err(error)
            }
        }
    }

    /// Where the writer finds it.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until the answer is complete. May be dropped at any time without loss.
    ///
    /// # Errors
    /// [`TooLong`].
    pub(crate) async fn complete(&mut self) -> Result<(), TooLong> {
        while !self.take()? {
            if self.reader.readable().await.is_err() {
                // The runtime is shutting down, and with it whoever awaits this.
                std::future::pending::<()>().await;
            }
        }
        Ok(())
    }

    /// Reads what is there, without waiting. True if the answer is complete.
    ///
    /// # Errors
    /// [`TooLong`].
    pub(crate) fn take(&mut self) -> Result<bool, TooLong> {
        let mut chunk = [0; READ_BYTES];
        // An error says that there is nothing now.
        while let Ok(n @ 1..) = self.reader.try_read(&mut chunk) {
            self.bytes.extend_from_slice(chunk.get(..n).unwrap_or_default());
            if MAX_CAPTURE_BYTES + END.len() < self.bytes.len() {
                return Err(TooLong);
            }
        }
        Ok(self.answer().is_some())
    }

    /// The complete answer: `NAME=VALUE` entries, each followed by a NUL.
    pub(crate) fn answer(&self) -> Option<&[u8]> {
        let entries = self.bytes.strip_suffix(END)?;
        // What looks like the end may be a part of a value.
        matches!(entries.last(), None | Some(0)).then_some(entries)
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        // The supervisor clears the directory at its next start.
        drop(fs::remove_file(&self.path));
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
