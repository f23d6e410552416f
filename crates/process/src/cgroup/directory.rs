//! One directory of control groups, held open: what is in it, stopping and ending it. Used by its neighbours.
//!
//! Everything goes by descriptor: a worker that lives in another mount namespace has no path to it.

use super::Kind;
use crate::handle::to_pid;
use crate::sweep::{FIRST_PAUSE, LONGEST_PAUSE};
use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, unlinkat};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

/// Longest list of threads that is read, in bytes: some 150,000.
const MAX_LIST_BYTES: u64 = 1024 * 1024;

/// Directories within one that are looked at, and how deep.
const MAX_DIRECTORIES: usize = 4096;
const MAX_DEPTH: usize = 16;

#[derive(Debug)]
pub(super) struct Directory {
    kind: Kind,
    cgroup: String,
    descriptor: OwnedFd,
}

/// What ending a directory came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) killed: u32,
    /// Threads that were still there.
    pub(super) left: u32,
}

impl Directory {
    pub(super) fn open(kind: Kind, path: &Path, cgroup: String) -> io::Result<Self> {
        let descriptor = openat(rustix::fs::CWD, path, directory_flags(), Mode::empty())?;
        Ok(Self { kind, cgroup, descriptor })
    }

    /// A directory in this one.
    pub(super) fn child(&self, name: &str) -> io::Result<Self> {
        let descriptor = openat(&self.descriptor, name, directory_flags(), Mode::empty())?;
        let cgroup = format!("{}/{name}", self.cgroup.trim_end_matches('/'));
        Ok(Self { kind: self.kind, cgroup, descriptor })
    }

    /// Makes a directory in this one.
    pub(super) fn make(&self, name: &str) -> io::Result<Self> {
        mkdirat(&self.descriptor, name, Mode::RWXU | Mode::RGRP | Mode::XGRP)?;
        self.child(name)
    }

    /// Makes a directory to which a thread of this tree may move alone.
    pub(super) fn make_threaded(&self, name: &str) -> io::Result<Self> {
        let made = self.make(name)?;
        if self.kind == Kind::Unified
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

    pub(super) fn kind(&self) -> Kind {
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

    /// Whether the process or thread is in this directory or below it.
    #[cfg(target_os = "linux")]
    pub(super) fn contains(&self, pid: u32) -> bool {
        let found = super::discover::cgroup_of(pid, self.kind);
        found.is_ok_and(|found| {
            found
                .strip_prefix(&self.cgroup)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    /// Threads that run in this directory. A thread that has ended is not among them, also unreaped.
    pub(super) fn threads(&self) -> io::Result<Vec<u32>> {
        let list = self.read(self.kind.threads_file())?;
        // Each number ends its line. Without that the last one was cut off.
        let whole = list.rfind('\n').and_then(|end| list.get(..end)).unwrap_or_default();
        // Zero is a thread that this process's namespace does not show.
        Ok(whole.lines().filter_map(|pid| pid.parse().ok()).filter(|pid| *pid != 0).collect())
    }

    /// Whether no thread runs in this directory or below it.
    pub(super) fn is_empty(&self) -> io::Result<bool> {
        if self.kind == Kind::Unified {
            return Ok(self.read("cgroup.events")?.lines().any(|line| line == "populated 0"));
        }
        Ok(self.all_threads(0)?.is_empty())
    }

    /// Threads in this directory and below it.
    fn all_threads(&self, depth: usize) -> io::Result<Vec<u32>> {
        let mut threads = self.threads()?;
        if depth < MAX_DEPTH {
            for name in self.names()? {
                // It may just be removed.
                let Ok(child) = self.child(&name) else { continue };
                threads.extend(child.all_threads(depth + 1).unwrap_or_default());
            }
        }
        Ok(threads)
    }

    /// Names of the directories in this one.
    pub(super) fn names(&self) -> io::Result<Vec<String>> {
        // Two links and one for each directory in it: mostly there is none, and nothing to read.
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

    /// Keeps what is here from starting more, or from running at all, until [`Directory::release`].
    pub(super) fn hold(&self) -> io::Result<()> {
        match self.kind {
            Kind::Unified => self.write("cgroup.freeze", "1"),
            Kind::Pids => self.write("pids.max", "0"),
            Kind::Freezer => self.write("freezer.state", "FROZEN"),
        }
    }

    pub(super) fn release(&self) -> io::Result<()> {
        match self.kind {
            Kind::Unified => self.write("cgroup.freeze", "0"),
            Kind::Pids => self.write("pids.max", "max"),
            Kind::Freezer => self.write("freezer.state", "THAWED"),
        }
    }

    /// Kills once what is in this directory and below it, and adds it to `killed`. Returns how many threads
    /// there were. This process itself is left alone: a thread of it that could not leave must not be its
    /// end; then nothing is held either.
    pub(super) fn kill(&self, killed: &mut BTreeSet<u32>) -> io::Result<usize> {
        let is_other = |thread: &u32| leader(*thread) != std::process::id();
        let mut threads = self.all_threads(0)?;
        if threads.is_empty() {
            return Ok(0);
        }
        let is_held = threads.iter().all(is_other) && self.hold().is_ok();
        // Now it cannot grow.
        threads = self.all_threads(0).unwrap_or(threads);
        threads.retain(is_other);
        for thread in &threads {
            killed.extend(self.kill_process_of(*thread));
        }
        if is_held && self.kind == Kind::Freezer {
            // Here a frozen process does not even die.
            self.release()?;
        }
        Ok(threads.len())
    }

    /// The processes that run in this directory or below it.
    pub(super) fn processes(&self) -> io::Result<BTreeSet<u32>> {
        Ok(self.all_threads(0)?.into_iter().map(leader).collect())
    }

    /// Returns the process if it was signalled.
    #[cfg(target_os = "linux")]
    fn kill_process_of(&self, thread: u32) -> Option<u32> {
        use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

        let process = leader(thread);
        // The handle first, then the look: the number may belong to a stranger by now.
        let handle = pidfd_open(to_pid(process).ok()?, PidfdFlags::empty()).ok()?;
        let is_ours = process != std::process::id() && self.contains(thread);
        (is_ours && pidfd_send_signal(handle, Signal::KILL).is_ok()).then_some(process)
    }

    #[cfg(not(target_os = "linux"))]
    fn kill_process_of(&self, thread: u32) -> Option<u32> {
        to_pid(thread).ok().and(None)
    }

    /// Kills all that is in this directory and below it, and removes what is below it. Blocks until `until`
    /// at the latest, and one look more.
    pub(super) fn end_blocking(&self, until: Instant) -> io::Result<Ended> {
        let mut killed = BTreeSet::new();
        let mut pause = FIRST_PAUSE;
        loop {
            let left = self.kill(&mut killed)?;
            let is_over = left == 0 && self.clear(0);
            if is_over || until <= Instant::now() {
                // A directory that stays is of no use while it is held.
                drop(self.release());
                return Ok(Ended { killed: count(killed.len()), left: count(left) });
            }
            #[expect(clippy::disallowed_methods, reason = "a blocking function, and it says so")]
            std::thread::sleep(pause);
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    /// Removes the directories in this one. Says whether none is left.
    fn clear(&self, depth: usize) -> bool {
        let Ok(names) = self.names() else { return false };
        let remove = |name: &str| {
            let is_clear =
                depth < MAX_DEPTH && self.child(name).is_ok_and(|child| child.clear(depth + 1));
            is_clear && self.remove(name).is_ok()
        };
        // All of them, also after one that stays.
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

/// The process of a thread.
fn leader(thread: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let leader = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
    leader.unwrap_or(thread)
}
