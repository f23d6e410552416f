//! The order in which the kernel kills processes when memory runs out: commands first, then workers, then
//! the supervisor. Set by workers; the scores are relative to the one that the supervisor runs with, which a
//! service manager may have raised.
//!
//! A command must not change its score. The kernel lets an ordinary user lower it again, so the confinement
//! shows commands a `/proc` without a writable `oom_score_adj`. That also hides the file from the
//! worker, which therefore opens its own before it is confined and keeps it.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

/// A worker's score above the supervisor's.
const ABOVE_SUPERVISOR: i32 = 200;

/// A command's score above its worker's.
const ABOVE_WORKER: i32 = 300;

/// Highest score of a worker: leaves a command's below the kernel's maximum of 1,000.
const HIGHEST_WORKER: i32 = 1000 - ABOVE_WORKER;

/// The file of this process.
const FILE: &str = "/proc/self/oom_score_adj";

/// Raises the score of this process above its parent's, once, when a worker starts.
///
/// # Errors
/// `/proc` is read-only or missing: the kernel may then kill the supervisor before this process.
pub fn rank_above_parent() -> io::Result<()> {
    let file = File::options().read(true).write(true).open(FILE)?;
    write(&file, (read(&file)? + ABOVE_SUPERVISOR).min(HIGHEST_WORKER))
}

/// The score of this process, through a file that was opened before confinement.
#[derive(Debug)]
pub struct OomScore {
    file: File,
    own: i32,
}

impl OomScore {
    /// Opens this process's own file.
    ///
    /// # Errors
    /// As [`OomScore::from_file`], or the file cannot be opened.
    pub fn open() -> io::Result<Self> {
        Self::from_file(File::options().read(true).write(true).open(FILE)?.into())
    }

    /// Takes this process's `oom_score_adj`, open for reading and writing, and tries both changes that a
    /// launch makes.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn from_file(file: OwnedFd) -> io::Result<Self> {
        let file = File::from(file);
        let own = read(&file)?.min(HIGHEST_WORKER);
        write(&file, own + ABOVE_WORKER)?;
        write(&file, own)?;
        Ok(Self { file, own })
    }

    /// Runs `launch` with the score of a command. A process that `launch` starts has that score from its first
    /// instruction: a write after the start would miss what the command forks before it.
    ///
    /// # Errors
    /// The score cannot be raised; `launch` was not called.
    pub(crate) fn as_command<T>(&self, launch: impl FnOnce() -> T) -> io::Result<T> {
        write(&self.file, self.own + ABOVE_WORKER)?;
        let launched = launch();
        // Succeeded when the file was opened. If it failed now, this worker would rank with its commands.
        let _lowered = write(&self.file, self.own);
        Ok(launched)
    }
}

fn read(file: &File) -> io::Result<i32> {
    let mut text = [0; 16];
    let n = file.read_at(&mut text, 0)?;
    let text = text.get(..n).and_then(|text| std::str::from_utf8(text).ok());
    text.and_then(|text| text.trim().parse().ok())
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

fn write(file: &File, score: i32) -> io::Result<()> {
    file.write_all_at(score.to_string().as_bytes(), 0)
}
