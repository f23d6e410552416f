//! Control group of one command. [`crate::shell`] takes one when a command starts.

use super::directory::Directory;
use super::group::{AGAIN, CgroupGuard, Group, ProcessLocation};
use super::memory::MemoryGroup;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Directory that contains the processes of one command and no others. Empty when taken. When dropped, another
/// command can reuse it as soon as it is empty.
#[derive(Debug)]
pub(crate) struct CommandCgroup {
    group: Arc<Group>,
    number: usize,
    directory: Directory,
    /// True if the last check after the command's end found no process. An empty directory stays empty.
    is_empty: AtomicBool,
}

impl Group {
    /// Returns a leaf for a command that is about to start. All of its processes will start in the leaf.
    pub(crate) fn leaf(self: &Arc<Self>) -> io::Result<CommandCgroup> {
        let (number, directory) = self.take_directory()?;
        Ok(CommandCgroup { group: Arc::clone(self), number, directory, is_empty: false.into() })
    }
}

impl CommandCgroup {
    /// Moves the calling thread here. The processes that it starts start here.
    pub(crate) fn enter(&self) -> io::Result<CgroupGuard<'_>> {
        self.group.enter_in(&self.directory)
    }

    /// Returns `Some(true)` if a process is here, `Some(false)` if it is in the leaf of another running command, and
    /// `None` if it is in no leaf.
    pub(crate) fn holds(&self, pid: u32) -> Option<bool> {
        match self.group.locate(pid) {
            ProcessLocation::CommandCgroup(number) => Some(number == self.number),
            ProcessLocation::Elsewhere => None,
        }
    }

    /// Returns true if the number of processes is limited here.
    pub(crate) fn is_counted(&self) -> bool {
        self.group.processes().is_some()
    }

    /// Returns the group that limits the memory of the processes here.
    pub(crate) fn memory(&self) -> Option<&MemoryGroup> {
        self.group.memory()
    }

    /// Kills the processes here once, and adds them to `killed`. Returns the number of threads found. Call it only
    /// after the command was started.
    pub(crate) fn kill(&self, killed: &mut BTreeSet<u32>) -> io::Result<usize> {
        let n_threads = self.directory.kill(killed)?;
        self.is_empty.store(n_threads == 0, Ordering::SeqCst);
        Ok(n_threads)
    }

    /// Lists the processes here.
    pub(crate) fn processes(&self) -> BTreeSet<u32> {
        self.directory.processes().unwrap_or_default()
    }
}

impl Drop for CommandCgroup {
    fn drop(&mut self) {
        let is_empty =
            self.is_empty.load(Ordering::SeqCst) || self.directory.is_empty().unwrap_or(false);
        // The next command could not fork in a held leaf, or would not run at all.
        let is_free = is_empty && (!self.directory.is_held() || self.directory.release().is_ok());
        self.group.give_back(self.number, is_free.then_some(AGAIN));
    }
}

// Version 2 moves the whole process, which other tests of this process would notice.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;
    use crate::cgroup::{CgroupBase, CgroupKind};

    /// The last process of a command may exit after its leaf was held and before the processes in it are listed.
    #[test]
    fn a_leaf_in_which_nothing_was_killed_is_not_given_back_held() {
        for (kind, file, released) in [
            (CgroupKind::Pids, "pids.max", "max\n"),
            (CgroupKind::Freezer, "freezer.state", "THAWED\n"),
        ] {
            let Ok(base) = CgroupBase::open_as_blocking(kind, 4096) else { continue };
            let paths = base.session_blocking("first", &Limits::default()).unwrap();
            let group = Arc::new(Group::open(&paths).unwrap());
            let leaf = group.leaf().unwrap();
            leaf.directory.hold().unwrap();
            assert_eq!(leaf.kill(&mut BTreeSet::new()).unwrap(), 0);
            let number = leaf.number;
            drop(leaf);
            let leaf = group.leaf().unwrap();
            assert_eq!(leaf.number, number, "the same leaf");
            assert_eq!(leaf.directory.read(file).unwrap(), released, "{kind:?}");
        }
    }
}
