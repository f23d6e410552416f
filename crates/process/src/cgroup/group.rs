//! A session's control group as its worker holds it: where commands get their leaves. Made in stage 0, while
//! paths still mean what they meant to the supervisor; from then on everything goes by descriptor.

use super::directory::Directory;
use super::leaf::Leaf;
use super::{MYSELF, SessionPaths, discover};
use rustix::fs::OFlags;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Most leaves: one for each command that can run at a time ([`crate::in_flight`]).
const MAX_LEAVES: usize = 256;

/// Used leaves that are looked at for whether their last process has ended, when a new one is wanted.
const LOOKS: usize = 4;

/// There is no directory.
const ABSENT: u8 = 0;
/// The directory is empty, and nobody's.
const FREE: u8 = 1;
/// A command's.
const TAKEN: u8 = 2;
/// A command's that is over, but something in it would not end.
const STUCK: u8 = 3;

/// The control group of one session, as its worker holds it. Its directories are used again for later
/// commands; they are removed with the session ([`SessionPaths::end_blocking`]).
#[derive(Debug)]
pub struct Group {
    session: Directory,
    /// Takes a thread back to where its process is.
    home: File,
    processes: Option<u32>,
    slots: [AtomicU8; MAX_LEAVES],
}

/// In which leaf a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Located {
    /// In the one with this number, which a command has.
    Leaf(usize),
    /// In none of this group, or in one whose command is over.
    Elsewhere,
}

impl Group {
    /// Opens a session's group, and tries once that the calling thread can go there and back.
    ///
    /// Call it in stage 0, before the process, or the one that it forks to be the worker, is confined: later
    /// it needs neither paths nor rights but those beneath [`Group::directories`]. Commands may be started by
    /// any thread.
    ///
    /// # Errors
    /// The directories are not there, this process lives in another group than the supervisor expected, for
    /// example because a launcher moved it, or the kernel refuses the move.
    pub fn open(paths: &SessionPaths) -> io::Result<Self> {
        let own = discover::own_cgroup(paths.kind)?;
        if own != paths.home_cgroup {
            return Err(io::Error::other(format!("this process is in the control group {own}")));
        }
        let session = Directory::open(paths.kind, &paths.directory, paths.cgroup.clone())?;
        let home = Directory::open(paths.kind, &paths.home, own)?;
        let home = home.file(paths.kind.threads_file(), OFlags::WRONLY)?;
        let slots = [const { AtomicU8::new(ABSENT) }; MAX_LEAVES];
        let group = Self { session, home, processes: paths.processes, slots };
        // The second way back, when this is dropped, does nothing.
        group.enter()?.leave()?;
        Ok(group)
    }

    /// The directories beneath which the worker makes, reads and writes files as long as it lives. A filter
    /// for files must allow that.
    pub fn directories(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.session.as_fd())
    }

    /// Most processes and threads of the session's commands; `None` if they are not counted.
    #[must_use]
    pub fn processes(&self) -> Option<u32> {
        self.processes
    }

    /// A leaf for a command that is about to be started, from which every process that it starts is born.
    pub(crate) fn leaf(self: &Arc<Self>) -> io::Result<Leaf> {
        let take = |from| {
            move |slot: &(usize, &AtomicU8)| {
                slot.1.compare_exchange(from, TAKEN, Ordering::SeqCst, Ordering::SeqCst).is_ok()
            }
        };
        let slots = || self.slots.iter().enumerate();
        if let Some((number, _)) = slots().find(take(FREE)) {
            return self.leaf_at(number, FREE, self.session.child(&name(number)));
        }
        for (number, slot) in slots().filter(take(STUCK)).take(LOOKS) {
            let directory = self.session.child(&name(number));
            let is_empty = |directory: &Directory| directory.is_empty().unwrap_or(false);
            match directory {
                Ok(directory) if is_empty(&directory) && directory.release().is_ok() => {
                    return Ok(Leaf::new(Arc::clone(self), number, directory));
                }
                _ => slot.store(STUCK, Ordering::SeqCst),
            }
        }
        let (number, _) = slots().find(take(ABSENT)).ok_or(io::ErrorKind::QuotaExceeded)?;
        let made = self.session.make_threaded(&name(number)).or_else(|error| match error.kind() {
            // Made before, but it could not be opened.
            io::ErrorKind::AlreadyExists => self.session.child(&name(number)),
            _ => Err(error),
        });
        self.leaf_at(number, ABSENT, made)
    }

    fn leaf_at(
        self: &Arc<Self>,
        number: usize,
        before: u8,
        directory: io::Result<Directory>,
    ) -> io::Result<Leaf> {
        match directory {
            Ok(directory) => Ok(Leaf::new(Arc::clone(self), number, directory)),
            Err(error) => {
                self.give_back(number, Some(before));
                Err(error)
            }
        }
    }

    /// A leaf is not used any more: its state from now on, or that something is still in it.
    pub(super) fn give_back(&self, number: usize, state: Option<u8>) {
        if let Some(slot) = self.slots.get(number) {
            slot.store(state.unwrap_or(STUCK), Ordering::SeqCst);
        }
    }

    /// In which leaf of this group a process is.
    pub(super) fn locate(&self, pid: u32) -> Located {
        let found = discover::cgroup_of(pid, self.session.kind());
        let number = found.ok().and_then(|found| {
            let below = found.strip_prefix(self.session.cgroup())?.strip_prefix("/c-")?;
            let number: usize = below.split('/').next()?.parse().ok()?;
            (self.slots.get(number)?.load(Ordering::SeqCst) == TAKEN).then_some(number)
        });
        number.map_or(Located::Elsewhere, Located::Leaf)
    }

    /// Moves the calling thread into the session's group, but into no leaf: what it starts is counted.
    pub(crate) fn enter(&self) -> io::Result<Inside<'_>> {
        self.enter_in(&self.session)
    }

    pub(super) fn enter_in(&self, directory: &Directory) -> io::Result<Inside<'_>> {
        directory.write(directory.kind().threads_file(), MYSELF)?;
        Ok(Inside { group: self })
    }
}

/// The calling thread is in a session's group, and what it starts is born there. It leaves when this is
/// dropped.
#[derive(Debug)]
pub(crate) struct Inside<'a> {
    group: &'a Group,
}

impl Inside<'_> {
    fn leave(&self) -> io::Result<()> {
        (&self.group.home).write_all(MYSELF.as_bytes())
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        // Only for lack of memory can this fail, and the thread's next command brings it away. Until then
        // nobody who ends the leaf ends this process with it (`Directory::kill`).
        drop(self.leave());
    }
}

/// What a free leaf becomes.
pub(super) const AGAIN: u8 = FREE;

fn name(number: usize) -> String {
    format!("c-{number}")
}
