//! Control groups (Linux, cgroups(7)): a place for each session and for each of its commands. A process cannot
//! leave it by forking, by a session of its own or by cleaning its environment, and the kernel counts how many
//! there are. Where none can be had, [`crate::run`] does without.
//!
//! | who | holds | does |
//! |---|---|---|
//! | supervisor | [`CgroupBase`] | makes a directory for itself at its start and one in it for each session |
//! | monitor, supervisor | [`SessionPaths`] | end what is left of a session, and remove its directory |
//! | worker | [`Group`] | starts each command in a leaf of its session's directory |
//!
//! A command is born in its leaf. The thread that starts it goes there, starts it and comes back. A thread
//! that moves itself is let through at once, whereas whoever moves another process, or its whole own, waits
//! for all processors: some 10 ms on a machine that is idle. So neither supervisor nor worker is moved for a
//! command, and nothing that a command does can come before its place is known. In the second version of
//! control groups only a tree of `threaded` directories lets a thread move alone, and there `cgroup.kill` does
//! not work; stopping a directory, killing what is listed in it and looking again does.
//!
//! | kind | counts processes | stops a directory by |
//! |---|---|---|
//! | [`Kind::Unified`] | if its `pids` controller can be had | `cgroup.freeze` |
//! | [`Kind::Pids`] | yes | `pids.max`: nothing new is started |
//! | [`Kind::Freezer`] | no | `freezer.state` |

mod base;
mod directory;
mod discover;
mod group;
mod leaf;

pub use base::{CgroupBase, DEFAULT_TOTAL_PROCESSES, SessionEnd, SessionPaths};
pub use group::Group;
pub(crate) use leaf::Leaf;

use serde::{Deserialize, Serialize};

/// Which of the kernel's hierarchies is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The one of version 2.
    Unified,
    /// The `pids` controller of version 1.
    Pids,
    /// The `freezer` of version 1.
    Freezer,
}

impl Kind {
    /// The file that lists a directory's threads and takes the number of one to be moved there.
    fn threads_file(self) -> &'static str {
        match self {
            Self::Unified => "cgroup.threads",
            Self::Pids | Self::Freezer => "tasks",
        }
    }

    /// The controller of version 1.
    fn controller(self) -> Option<&'static str> {
        match self {
            Self::Unified => None,
            Self::Pids => Some("pids"),
            Self::Freezer => Some("freezer"),
        }
    }
}

/// Moves the thread that writes it (not its process: that would wait for all processors).
const MYSELF: &str = "0";
