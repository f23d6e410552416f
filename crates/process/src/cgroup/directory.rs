//! One open directory of control groups: lists, holds and kills its processes. Used by the modules next to it.
//!
//! All accesses use descriptors: a worker in another mount namespace has no path to the directory.

use super::CgroupKind;
use crate::pid::to_pid;
use crate::platform::signal_if;
use crate::sweep::{FIRST_PAUSE, LONGEST_PAUSE};
use nix::sys::signal::Signal;
use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, unlinkat};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Maximum size of a list of threads in bytes, about 150,000 threads.
const MAX_LIST_BYTES: u64 = 1024 * 1024;

/// Maximum number of directories read inside one directory, and maximum depth.
const MAX_DIRECTORIES: usize = 4096;
const MAX_DEPTH: usize = 16;

#[derive(Debug)]
pub(super) struct Directory {
    kind: CgroupKind,
    cgroup: String,
    descriptor: OwnedFd,
    /// True from [`Directory::hold`] to [`Directory::release`].
    is_held: AtomicBool,
}

/// Result of killing the processes in a directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct KillReport {
    pub(super) killed: u32,
    /// Number of threads left.
    pub(super) left: u32,
}

impl Directory {
    pub(super) fn open(kind: CgroupKind, path: &Path, cgroup: String) -> io::Result<Self> {
        let descriptor = openat(rustix::fs::CWD, path, directory_flags(), Mode::empty())?;
        Ok(Self { kind, cgroup, descriptor, is_held: AtomicBool::new(false) })
    }

    /// Opens a directory in this one.
    pub(super) fn child(&self, name: &str) -> io::Result<Self> {
        let descriptor = openat(&self.descriptor, name, directory_flags(), Mode::empty())?;
        let cgroup = format!("{}/{name}", self.cgroup.trim_end_matches('/'));
        Ok(Self { kind: self.kind, cgroup, descriptor, is_held: AtomicBool::new(false) })
    }

    /// Creates a directory in this one.
    pub(super) fn make(&self, name: &str) -> io::Result<Self> {
        mkdirat(&self.descriptor, name, Mode::RWXU | Mode::RGRP | Mode::XGRP)?;
        self.child(name)
    }

    /// Creates a directory to which a single thread of this tree can move.
    pub(super) fn make_threaded(&self, name: &str) -> io::Result<Self> {
        let made = self.make(name)?;
        if self.kind == CgroupKind::Unified
            && let Err(error) = made.write("cgroup.type", "threaded")
        {
            self.remove(name)?;
            return Err(error);
        }
        Ok(made)
    }

    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.descriptor, name, AtFlags::REMOVEDIR)?)
    }

    pub(super) fn kind(&self) -> CgroupKind {
        self.kind
    }

    pub(super) fn cgroup(&self) -> &str {
        &self.cgroup
    }

    pub(super) fn write(&self, file: &str, value: &str) -> io::Result<()> {
        self.file(file, OFlags::WRONLY)?.write_all(value.as_bytes())
    }

    pub(super) fn read(&self, file: &str) -> io::Result<String> {
        let mut text = String::new();
        self.file(file, OFlags::RDONLY)?.take(MAX_LIST_BYTES).read_to_string(&mut text)?;
        Ok(text)
    }

    pub(super) fn file(&self, name: &str, access: OFlags) -> io::Result<File> {
        let flags = access | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(openat(&self.descriptor, name, flags, Mode::empty())?.into())
    }

    /// Returns true if the process or thread is in this directory or inside it.
    pub(super) fn contains(&self, pid: u32) -> bool {
        let cgroup = super::discover::cgroup_of(pid, self.kind);
        cgroup.is_ok_and(|cgroup| {
            cgroup
                .strip_prefix(&self.cgroup)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    /// Lists the threads in this directory. Excludes exited threads, even unreaped ones.
    pub(super) fn threads(&self) -> io::Result<Vec<u32>> {
        let list = self.read(self.kind.threads_file())?;
        // Each number ends with a newline. A number without one was cut off.
        let whole = list.rfind('\n').and_then(|end| list.get(..end)).unwrap_or_default();
        // Zero is a thread that is not visible in this process namespace.
        Ok(whole.lines().filter_map(|pid| pid.parse().ok()).filter(|pid| *pid != 0).collect())
    }

    /// Returns true if no thread runs in this directory or inside it.
    pub(super) fn is_empty(&self) -> io::Result<bool> {
        if self.kind == CgroupKind::Unified {
            return Ok(self.read("cgroup.events")?.lines().any(|line| line == "populated 0"));
        }
        Ok(self.all_threads(0)?.is_empty())
    }

    /// Lists the threads in this directory and inside it.
    fn all_threads(&self, depth: usize) -> io::Result<Vec<u32>> {
        let mut threads = self.threads()?;
        if depth < MAX_DEPTH {
            for name in self.names()? {
                // The directory may have been removed since it was listed.
                let Ok(child) = self.child(&name) else { continue };
                threads.extend(child.all_threads(depth + 1).unwrap_or_default());
            }
        }
        Ok(threads)
    }

    /// Lists the names of the directories in this one.
    pub(super) fn names(&self) -> io::Result<Vec<String>> {
        // The link count is two plus the number of directories inside. Usually there are none, and nothing to read.
        if rustix::fs::fstat(&self.descriptor)?.st_nlink <= 2 {
            return Ok(Vec::new());
        }
        let names = rustix::fs::Dir::read_from(&self.descriptor)?.flatten().filter_map(|entry| {
            let is_directory = entry.file_type() == rustix::fs::FileType::Directory;
            let name = entry.file_name().to_str().ok().filter(|_| is_directory)?;
            (name != "." && name != "..").then(|| name.to_owned())
        });
        Ok(names.take(MAX_DIRECTORIES).collect())
    }

    /// Prevents the processes here from starting new ones, or from running at all, until [`Directory::release`].
    pub(super) fn hold(&self) -> io::Result<()> {
        self.is_held.store(true, Ordering::SeqCst);
        match self.kind {
            CgroupKind::Unified => self.write("cgroup.freeze", "1"),
            CgroupKind::Pids => self.write("pids.max", "0"),
            CgroupKind::Freezer => self.write("freezer.state", "FROZEN"),
            CgroupKind::Memory => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    pub(super) fn release(&self) -> io::Result<()> {
        match self.kind {
            CgroupKind::Unified => self.write("cgroup.freeze", "0"),
            CgroupKind::Pids => self.write("pids.max", "max"),
            CgroupKind::Freezer => self.write("freezer.state", "THAWED"),
            CgroupKind::Memory => Ok(()),
        }?;
        self.is_held.store(false, Ordering::SeqCst);
        Ok(())
    }

    /// Returns true if this handle may have held the directory and has not released it. That can be so although
    /// [`Directory::kill`] found nothing to kill: the last process may exit between its two lists.
    pub(super) fn is_held(&self) -> bool {
        self.is_held.load(Ordering::SeqCst)
    }

    /// Kills the processes in this directory and inside it once, and adds them to `killed`. Returns the number of
    /// threads found. Spares this process: a thread of it that could not leave must not kill it. In that case nothing
    /// is held either.
    pub(super) fn kill(&self, killed: &mut BTreeSet<u32>) -> io::Result<usize> {
        let is_other = |thread: &u32| leader(*thread) != std::process::id();
        let mut threads = self.all_threads(0)?;
        if threads.is_empty() {
            return Ok(0);
        }

        let is_held = threads.iter().all(is_other) && self.hold().is_ok();
        // The directory is held and cannot grow, so the second list is complete.
        threads = self.all_threads(0).unwrap_or(threads);
        threads.retain(is_other);

        for thread in &threads {
            killed.extend(self.kill_process_of(*thread));
        }

        if is_held && self.kind == CgroupKind::Freezer {
            // In this hierarchy a frozen process does not die before it is thawed.
            self.release()?;
        }
        Ok(threads.len())
    }

    /// Lists the processes in this directory or inside it.
    pub(super) fn processes(&self) -> io::Result<BTreeSet<u32>> {
        Ok(self.all_threads(0)?.into_iter().map(leader).collect())
    }

    /// Returns the process if it was signalled.
    fn kill_process_of(&self, thread: u32) -> Option<u32> {
        let process = leader(thread);
        let is_ours = || process != std::process::id() && self.contains(thread);
        signal_if(to_pid(process).ok()?, Signal::SIGKILL, is_ours).then_some(process)
    }

    /// Kills all processes in this directory and inside it, and removes the directories inside it. Blocks until
    /// `until` plus one more check.
    pub(super) fn end_blocking(&self, until: Instant) -> io::Result<KillReport> {
        let mut killed = BTreeSet::new();
        let mut pause = FIRST_PAUSE;
        loop {
            let left = self.kill(&mut killed)?;
            let is_over = left == 0 && self.clear(0);

            if is_over || until <= Instant::now() {
                // A directory that could not be removed is reused, so it must not stay held.
                // A leaf that stays held is not used again.
                self.release().ok();
                return Ok(KillReport { killed: count(killed.len()), left: count(left) });
            }
            #[expect(clippy::disallowed_methods, reason = "a blocking function, and it says so")]
            std::thread::sleep(pause);
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    /// Removes the directories in this one. Returns true if none is left.
    fn clear(&self, depth: usize) -> bool {
        let Ok(names) = self.names() else { return false };
        let remove = |name: &str| {
            let is_clear =
                depth < MAX_DEPTH && self.child(name).is_ok_and(|child| child.clear(depth + 1));
            is_clear && self.remove(name).is_ok()
        };
        // `count` visits every name, even after a failure.
        names.iter().filter(|name| !remove(name)).count() == 0
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

fn directory_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Returns the process of a thread.
fn leader(thread: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let leader = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
    leader.unwrap_or(thread)
}
