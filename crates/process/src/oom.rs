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

/// A worker's score above the supervisor's, where there is room for it.
const ABOVE_SUPERVISOR: i32 = 200;

/// A command's score above its worker's, where there is room for it.
const ABOVE_WORKER: i32 = 300;

/// The kernel's maximum. A service manager may start the supervisor close to it.
const HIGHEST: i32 = 1000;

/// Returns the score for the worker of a supervisor with the score `supervisor`. Takes at most half
/// of the remaining range, so that commands rank above the worker.
fn of_worker(supervisor: i32) -> i32 {
    supervisor + ABOVE_SUPERVISOR.min((HIGHEST - supervisor) / 2)
}

/// Returns the score for a command of a worker with the score `worker`.
fn of_command(worker: i32) -> i32 {
    (worker + ABOVE_WORKER).min(HIGHEST)
}

/// File with the score of this process.
const FILE: &str = "/proc/self/oom_score_adj";

/// Raises the score of this process above its parent's, when a worker starts. A second call changes nothing.
///
/// # Errors
/// `/proc` is read-only or missing: the kernel may then kill the supervisor before this process.
pub fn rank_above_parent() -> io::Result<()> {
    let file = File::options().read(true).write(true).open(FILE)?;
    let own = read(&file)?;
    // A fork of the template has the template's score, which is raised already.
    let parent = rustix::process::getppid().map(rustix::process::Pid::as_raw_nonzero);
    let parent = parent.and_then(|pid| File::open(format!("/proc/{pid}/oom_score_adj")).ok());

    let above = parent.and_then(|parent| read(&parent).ok()).unwrap_or(own);
    write(&file, of_worker(above).max(own))
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
    /// Same as [`OomScore::from_file`], or the file cannot be opened.
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

        let own = read(&file)?;
        // A refusal must show here, and not at the first command.
        write(&file, of_command(own))?;
        write(&file, own)?;
        Ok(Self { file, own })
    }

    /// Runs `launch` with the score of a command. A process that `launch` starts has that score from its first
    /// instruction: a write after the start would miss what the command forks before it.
    ///
    /// # Errors
    /// The score cannot be raised; `launch` was not called.
    pub(crate) fn as_command<T>(&self, launch: impl FnOnce() -> T) -> io::Result<T> {
        write(&self.file, of_command(self.own))?;
        let launched = launch();
        // The same write succeeded when the file was opened. If it fails here, this worker keeps the rank of its
        // commands.
        write(&self.file, self.own).ok();
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

#[cfg(test)]
mod tests {
    use super::{HIGHEST, of_command, of_worker};

    #[test]
    fn commands_rank_above_workers_and_workers_above_any_supervisor_with_room() {
        for supervisor in -1000..HIGHEST - 1 {
            let worker = of_worker(supervisor);
            assert!(supervisor < worker, "{supervisor}");
            assert!(worker < of_command(worker) && of_command(worker) <= HIGHEST, "{supervisor}");
        }
    }
}
