//! Control group of a session, used in its worker to create groups of commands. Opened in stage 0, before confinement
//! changes the meaning of paths. Later accesses use descriptors only.

use super::directory::Directory;
use super::memory::MemoryGroup;
use super::{MYSELF, SessionPaths, discover};
use rustix::fs::OFlags;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU8, Ordering};

/// Maximum number of leaves: one for each command that can run at a time ([`crate::shell_registry`]).
const MAX_LEAVES: usize = 256;

/// Maximum number of stuck leaves that are checked for being empty when a command needs a leaf.
const LOOKS: usize = 4;

/// The directory does not exist.
const ABSENT: u8 = 0;
/// The directory is empty and unused.
const FREE: u8 = 1;
/// A running command uses the directory.
const TAKEN: u8 = 2;
/// The command is over, but a process in the directory did not die.
const STUCK: u8 = 3;

/// Control group of one session, in its worker. Its directories are reused for later commands. They are removed with
/// the session ([`SessionPaths::end_blocking`]).
#[derive(Debug)]
pub struct Group {
    session: Directory,
    /// Threads file of the worker's own group. Moves a thread back to its process.
    home: File,
    processes: Option<u32>,
    memory: Option<MemoryGroup>,
    slots: [AtomicU8; MAX_LEAVES],
}

/// Leaf of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcessLocation {
    /// In the leaf with this number, which a command uses.
    CommandCgroup(usize),
    /// In no leaf of this group, or in a leaf whose command is over.
    Elsewhere,
}

impl Group {
    /// Opens a session's group, and checks that the calling thread can move there and back. In version 2 moves this
    /// process into the session's group first if that limits memory, which takes about 10 ms.
    ///
    /// Call it in stage 0, before the process or its forked worker is confined. Later it needs no paths, and rights
    /// only in [`Group::directories`]. Any thread may start commands.
    ///
    /// # Errors
    /// The directories do not exist, the kernel refuses the move, or this process is in another group than the
    /// supervisor expected, for example because a launcher moved it.
    pub fn open(paths: &SessionPaths) -> io::Result<Self> {
        // Without a memory limit, commands still run. If the process did not move, the check below fails.
        let memory = paths.memory.as_deref().and_then(|paths| MemoryGroup::open(paths).ok());
        let own = discover::own_cgroup(paths.kind)?;
        if own != paths.home_cgroup {
            return Err(io::Error::other(format!("this process is in the control group {own}")));
        }

        let session = Directory::open(paths.kind, &paths.directory, paths.cgroup.clone())?;
        let home = Directory::open(paths.kind, &paths.home, own)?;
        let home = home.file(paths.kind.threads_file(), OFlags::WRONLY)?;
        let slots = [const { AtomicU8::new(ABSENT) }; MAX_LEAVES];
        let group = Self { session, home, processes: paths.processes, memory, slots };

        // Dropping the guard moves the thread back again, which has no effect.
        group.enter()?.leave()?;
        Ok(group)
    }

    /// Returns the directories in which the worker creates, reads and writes files while it runs. A
    /// file access filter must allow that.
    pub fn directories(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.session.as_fd())
    }

    /// Returns the maximum number of processes and threads of the session's commands. `None` if
    /// they are not counted.
    #[must_use]
    pub fn processes(&self) -> Option<u32> {
        self.processes
    }

    /// Returns the group that limits the memory of the session. `None` if the kernel does not limit it.
    pub(crate) fn memory(&self) -> Option<&MemoryGroup> {
        self.memory.as_ref()
    }

    /// Takes a directory for the leaf of a command. Returns its number and its handle. The caller must give it
    /// back with [`Group::give_back`].
    pub(super) fn take_directory(&self) -> io::Result<(usize, Directory)> {
        let take = |from| {
            move |slot: &(usize, &AtomicU8)| {
                slot.1.compare_exchange(from, TAKEN, Ordering::SeqCst, Ordering::SeqCst).is_ok()
            }
        };
        let slots = || self.slots.iter().enumerate();
        // A free directory needs no check. A stuck one is checked before another one is created, so
        // that they do not pile up.
        if let Some((number, _)) = slots().find(take(FREE)) {
            return self.taken(number, FREE, self.session.child(&name(number)));
        }
        for (number, slot) in slots().filter(take(STUCK)).take(LOOKS) {
            let directory = self.session.child(&name(number));
            let is_empty = |directory: &Directory| directory.is_empty().unwrap_or(false);
            match directory {
                Ok(directory) if is_empty(&directory) && directory.release().is_ok() => {
                    return Ok((number, directory));
                }
                _ => slot.store(STUCK, Ordering::SeqCst),
            }
        }

        let (number, _) = slots().find(take(ABSENT)).ok_or(io::ErrorKind::QuotaExceeded)?;
        let made = self.session.make_threaded(&name(number)).or_else(|error| match error.kind() {
            // The directory was created earlier, but could not be opened.
            io::ErrorKind::AlreadyExists => self.session.child(&name(number)),
            _ => Err(error),
        });
        self.taken(number, ABSENT, made)
    }

    /// Returns the taken directory. If it could not be opened, its slot is `before` again.
    fn taken(
        &self,
        number: usize,
        before: u8,
        directory: io::Result<Directory>,
    ) -> io::Result<(usize, Directory)> {
        match directory {
            Ok(directory) => Ok((number, directory)),
            Err(error) => {
                self.give_back(number, Some(before));
                Err(error)
            }
        }
    }

    /// Releases a leaf. `state` is its new state, or `None` if a process is still in it.
    pub(super) fn give_back(&self, number: usize, state: Option<u8>) {
        if let Some(slot) = self.slots.get(number) {
            slot.store(state.unwrap_or(STUCK), Ordering::SeqCst);
        }
    }

    /// Finds the leaf of a process.
    pub(super) fn locate(&self, pid: u32) -> ProcessLocation {
        let cgroup = discover::cgroup_of(pid, self.session.kind());
        let number = cgroup.ok().and_then(|cgroup| {
            let below = cgroup.strip_prefix(self.session.cgroup())?.strip_prefix("/c-")?;
            let number: usize = below.split('/').next()?.parse().ok()?;
            // A leaf of a command that is over can be reused at any time, so it identifies nothing.
            (self.slots.get(number)?.load(Ordering::SeqCst) == TAKEN).then_some(number)
        });
        number.map_or(ProcessLocation::Elsewhere, ProcessLocation::CommandCgroup)
    }

    /// Moves the calling thread into the session's group, but into no leaf. The processes that it starts are counted.
    pub(crate) fn enter(&self) -> io::Result<CgroupGuard<'_>> {
        self.enter_in(&self.session)
    }

    pub(super) fn enter_in(&self, directory: &Directory) -> io::Result<CgroupGuard<'_>> {
        directory.write(directory.kind().threads_file(), MYSELF)?;
        // If the next step fails, dropping the guard moves the thread back.
        let guard = CgroupGuard { group: self };
        self.memory.as_ref().map_or(Ok(()), MemoryGroup::enter)?;
        Ok(guard)
    }
}

/// Guard for a calling thread that is in a session's group, where its new processes start. Moves the thread back when
/// dropped.
#[derive(Debug)]
pub(crate) struct CgroupGuard<'a> {
    group: &'a Group,
}

impl CgroupGuard<'_> {
    fn leave(&self) -> io::Result<()> {
        let left = self.group.memory.as_ref().map_or(Ok(()), MemoryGroup::leave);
        (&self.group.home).write_all(MYSELF.as_bytes())?;
        left
    }
}

impl Drop for CgroupGuard<'_> {
    fn drop(&mut self) {
        // This fails only without free memory. The thread's next command moves it away then. Until that, killing the
        // leaf spares this process (`Directory::kill`).
        self.leave().ok();
    }
}

/// State of a leaf after its release.
pub(super) const AGAIN: u8 = FREE;

fn name(number: usize) -> String {
    format!("c-{number}")
}
