//! The place of one command among the control groups. Taken by [`crate::shell`] when a command is started.

use super::directory::Directory;
use super::group::{AGAIN, Group, Inside, Located};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A directory that holds the processes of one command and nothing else. Empty when it was taken; when it is
/// dropped it is taken again for another command, as soon as it is empty.
#[derive(Debug)]
pub(crate) struct Leaf {
    group: Arc<Group>,
    number: usize,
    directory: Directory,
    /// It was kept from growing.
    is_held: AtomicBool,
    /// The last look found nothing, after the command was over: what is empty stays so.
    is_empty: AtomicBool,
}

impl Leaf {
    pub(super) fn new(group: Arc<Group>, number: usize, directory: Directory) -> Self {
        Self { group, number, directory, is_held: false.into(), is_empty: false.into() }
    }

    /// Moves the calling thread here; what it starts meanwhile is born here.
    pub(crate) fn enter(&self) -> io::Result<Inside<'_>> {
        self.group.enter_in(&self.directory)
    }

    /// Whether a process is here, in the leaf of another command that is not over (`Some(false)`), or in none
    /// (`None`).
    pub(crate) fn holds(&self, pid: u32) -> Option<bool> {
        match self.group.locate(pid) {
            Located::Leaf(number) => Some(number == self.number),
            Located::Elsewhere => None,
        }
    }

    /// Whether the number of processes is limited here.
    pub(crate) fn is_counted(&self) -> bool {
        self.group.processes().is_some()
    }

    /// Kills once what is here, and adds it to `killed`. Returns how many threads there were. Not before the
    /// command was started.
    pub(crate) fn kill(&self, killed: &mut BTreeSet<u32>) -> io::Result<usize> {
        let before = killed.len();
        let n_threads = self.directory.kill(killed)?;
        self.is_empty.store(n_threads == 0, Ordering::SeqCst);
        if n_threads != 0 || before != killed.len() {
            self.is_held.store(true, Ordering::SeqCst);
        }
        Ok(n_threads)
    }

    /// The processes that run here.
    pub(crate) fn processes(&self) -> BTreeSet<u32> {
        self.directory.processes().unwrap_or_default()
    }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        let is_empty =
            self.is_empty.load(Ordering::SeqCst) || self.directory.is_empty().unwrap_or(false);
        let is_free =
            is_empty && (!self.is_held.load(Ordering::SeqCst) || self.directory.release().is_ok());
        self.group.give_back(self.number, is_free.then_some(AGAIN));
    }
}
