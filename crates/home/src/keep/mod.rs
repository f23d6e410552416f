//! Garbage collection in the state directory: finds expired and orphaned files and deletes them.
//!
//! Called by the supervisor periodically and for `quack.gc`, and by `quack gc` if no daemon runs. The caller
//! must hold the instance lock.
//!
//! Workers write the files in `run`, and workers are not trusted. So all access there uses directory handles
//! that were opened without following links. The age of a file is the time since its last change. A clock
//! step makes files expire early or late, and has no other effect.

mod agent_files;
mod agents;
mod caches;
mod find;
mod handles;
mod histories;
mod readable;
mod removal;
mod trees;
mod usage;

pub use agent_files::{
    AgentFile, Imported, copy_user_file_blocking, has_user_file_blocking, import_login_blocking,
    share_login_blocking,
};
pub use agents::{
    AgentUsage, Forgotten, agent_usage_blocking, agents_bytes_blocking, forget_agent_blocking,
};
pub use find::find_blocking;
pub use removal::{Tally, remove_blocking, trim_service_log_blocking};
pub use trees::remove_tree;
pub use usage::{DiskUsage, disk_usage_blocking};

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::time::Duration;

/// File in a session's run directory that lists the files which its tools have read, with their versions.
pub(crate) const READ_FILES: &str = "seen.jsonl";

/// Minimum age of files of an unknown session. The session may be in creation, or its deletion may be undone.
const ORPHAN_MIN_AGE: Duration = Duration::from_secs(60 * 60);

/// Category of deletable files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `run.old-*`: run directories of earlier daemons whose deletion was interrupted.
    Leftovers,
    /// Run directories, private copies and recorded states of sessions that do not exist.
    Runs,
    /// Temporary files of commands and unknown files, in run directories of sessions without a process.
    Temporary,
    /// Spill files.
    Outputs,
    /// Originals of replaced files, which undo needs.
    Undo,
    /// Temporary files of interrupted saves. Deleted only while no daemon runs.
    Unfinished,
    /// Quarantined files. Deleted only if configured.
    Quarantined,
    /// Histories of sessions that do not exist. Deleted only if configured.
    Histories,
    /// Package caches of workspaces.
    Caches,
    /// State of agents that ran inside of sessions.
    Agents,
}

impl Kind {
    /// All kinds, in display order.
    pub const ALL: [Self; 10] = [
        Self::Leftovers,
        Self::Runs,
        Self::Temporary,
        Self::Outputs,
        Self::Undo,
        Self::Unfinished,
        Self::Quarantined,
        Self::Histories,
        Self::Caches,
        Self::Agents,
    ];

    /// Returns the name in requests and replies.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Leftovers => "leftovers",
            Self::Runs => "runs",
            Self::Temporary => "temporary",
            Self::Outputs => "outputs",
            Self::Undo => "undo",
            Self::Unfinished => "unfinished",
            Self::Quarantined => "quarantined",
            Self::Histories => "histories",
            Self::Caches => "caches",
            Self::Agents => "agents",
        }
    }
}

/// Ages and limits of garbage collection.
#[derive(Debug, Clone)]
pub struct Rules {
    /// True if a daemon uses the directory. Files of running saves are kept then.
    pub is_served: bool,
    /// Maximum age of spill files and temporary files.
    pub outputs: Duration,
    /// Maximum age of originals.
    pub undo: Duration,
    /// Maximum total size of originals, in bytes. Above it, the oldest are deleted.
    pub undo_max_bytes: u64,
    /// Maximum total size of package caches, in bytes. Above it, the least recently used are deleted.
    pub caches_max_bytes: u64,
    /// Maximum age of quarantined files; `None` keeps them.
    pub quarantined: Option<Duration>,
    /// Maximum age of histories of deleted sessions; `None` keeps them.
    pub histories: Option<Duration>,
    /// Maximum age of the state of agents since its last change; `None` keeps it.
    pub agents: Option<Duration>,
}

/// Sessions and files that must be kept.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// Ids of all sessions.
    pub sessions: HashSet<String>,
    /// Ids of the sessions with a process.
    pub live: HashSet<String>,
    /// Ids of the sessions that are busy.
    pub busy: HashSet<String>,
    /// Names of the history files in use by Pi.
    pub pi_files: HashSet<String>,
    /// Paths of the sessions' workspaces.
    pub workspaces: HashSet<String>,
    /// Paths of all workspaces, also of those without sessions.
    pub all_workspaces: HashSet<String>,
}

/// One deletable file or directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Category of the item.
    pub kind: Kind,
    /// Path relative to the state directory. For display only.
    pub path: String,
    /// Disk usage in bytes.
    pub bytes: u64,
    /// Time since the last change.
    pub age: Duration,
    /// Directories from the state directory to the item.
    dirs: Vec<CString>,
    /// Name in the last directory.
    name: CString,
}

impl Item {
    /// Creates the item `name` in the last directory of `at`, which begins below the state directory.
    fn new(kind: Kind, at: &[CString], name: &CStr, bytes: u64, age: Duration) -> Self {
        let parts: Vec<_> =
            at.iter().map(CString::as_c_str).chain([name]).map(CStr::to_string_lossy).collect();
        Self { kind, path: parts.join("/"), bytes, age, dirs: at.to_vec(), name: name.to_owned() }
    }
}

/// Result of a scan.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// Items in the order of [`Kind::ALL`], oldest first within a kind.
    pub items: Vec<Item>,
    /// True if a limit stopped the scan. Scan again after deleting these items.
    pub is_cut: bool,
}

#[cfg(test)]
mod tests;
