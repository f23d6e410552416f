//! Control groups (Linux, cgroups(7)): one for each session and one for each of its commands. A process cannot leave
//! its group by forking, by starting a new session or by cleaning its environment, and the kernel counts the
//! processes in it. Where control groups are not available, [`crate::run`] works without them.
//!
//! | process | type | task |
//! |---|---|---|
//! | supervisor | [`CgroupBase`] | creates a directory for itself at its start and one in it for each session |
//! | monitor, supervisor | [`SessionPaths`] | kill the remaining processes of a session, and remove its directory |
//! | worker | [`Group`] | starts each command in a leaf of its session's directory |
//!
//! A command starts in its own group, its leaf. The thread that starts it moves into the leaf, starts the command and
//! moves back. The kernel moves a thread that moves itself at once. Moving another process, or the whole own process,
//! waits for all processors: about 10 ms on an idle machine. So neither supervisor nor worker moves for a command,
//! and a command cannot act before its group is set. In version 2 only a tree of `threaded` directories allows a
//! single thread to move. `cgroup.kill` does not work there, so the code freezes a directory, kills the listed
//! processes and checks again.
//!
//! | kind | counts processes | holds a directory by |
//! |---|---|---|
//! | [`CgroupKind::Unified`] | if its `pids` controller is available | `cgroup.freeze` |
//! | [`CgroupKind::Pids`] | yes | `pids.max`: no new process can start |
//! | [`CgroupKind::Freezer`] | no | `freezer.state` |
//!
//! Where the kernel can limit memory, it limits that of each session: in version 2 if the `memory` controller is
//! available, in version 1 in a second directory ([`CgroupKind::Memory`]) of each session.

mod base;
mod controllers;
mod directory;
mod discover;
mod group;
mod leaf;
mod memory;
mod session_paths;

pub use base::{CgroupBase, DEFAULT_TOTAL_PROCESSES};
pub use group::Group;
pub(crate) use leaf::CommandCgroup;
pub(crate) use memory::MemoryGroup;
pub use memory::OomKills;
pub use session_paths::{CgroupKillReport, SessionPaths};

use serde::{Deserialize, Serialize};

/// Control group hierarchy of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CgroupKind {
    /// The unified hierarchy of version 2.
    Unified,
    /// The `pids` controller of version 1.
    Pids,
    /// The `freezer` controller of version 1.
    Freezer,
    /// The `memory` controller of version 1. Next to one of the other two, and without leaves.
    Memory,
}

impl CgroupKind {
    /// File that lists a directory's threads. Writing a thread's number to it moves the thread into the directory.
    fn threads_file(self) -> &'static str {
        match self {
            Self::Unified => "cgroup.threads",
            Self::Pids | Self::Freezer | Self::Memory => "tasks",
        }
    }

    /// Name of the controller in version 1; `None` for version 2.
    fn controller(self) -> Option<&'static str> {
        match self {
            Self::Unified => None,
            Self::Pids => Some("pids"),
            Self::Freezer => Some("freezer"),
            Self::Memory => Some("memory"),
        }
    }
}

/// Written to a threads file, it moves the writing thread only. Moving the whole process would wait for all
/// processors.
const MYSELF: &str = "0";
