//! Keeping house: what in the state directory nobody needs any more, and deleting it.
//!
//! Owns: which names there are of what kind, what may go, and how it goes. Called by the supervisor for what it
//! deletes by itself and for `quack.gc`, and by `quack gc` where no daemon runs. Who may call it holds the
//! instance lock, or asks the daemon that does.
//!
//! What is beneath `run` was written by workers, which are not trusted: everything there goes by handles of
//! directories that were opened without following links. Age is that of the last change of a file: a clock that
//! jumps makes something go early or late, and nothing else.

mod find;
mod histories;
mod removal;
mod trees;

pub use find::find_blocking;
pub use removal::{Tally, remove_blocking, remove_tree, trim_service_log_blocking};

use std::collections::HashSet;
use std::ffi::CString;
use std::time::Duration;

/// What something is that can go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `run.old-*`: run directories of earlier daemons that were not deleted to the end.
    Leftovers,
    /// Run directories of sessions that do not exist.
    Runs,
    /// What commands left in run directories of sessions that have no process: their temporary files, and
    /// files that are nobody's.
    Temporary,
    /// Long outputs.
    Outputs,
    /// Originals of replaced files, by which a replacement is undone.
    Undo,
    /// What saves left that were cut short. Only while no daemon runs.
    Unfinished,
    /// Damaged files that were set aside. Only if asked for.
    Quarantined,
    /// Histories of sessions that do not exist. Only if asked for.
    Histories,
}

impl Kind {
    /// Every kind, in the order in which they are shown.
    pub const ALL: [Self; 8] = [
        Self::Leftovers,
        Self::Runs,
        Self::Temporary,
        Self::Outputs,
        Self::Undo,
        Self::Unfinished,
        Self::Quarantined,
        Self::Histories,
    ];

    /// Its name on the wire.
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
        }
    }
}

/// What may go.
#[derive(Debug, Clone)]
pub struct Rules {
    /// A daemon uses the directory. What it may be about to write is left alone.
    pub is_served: bool,
    /// Long outputs, and what commands left, go when they are older.
    pub outputs: Duration,
    /// So do originals.
    pub undo: Duration,
    /// All originals together may have so many bytes; beyond that the oldest go.
    pub undo_max_bytes: u64,
    /// Damaged files that were set aside go when they are older; `None`: they stay.
    pub quarantined: Option<Duration>,
    /// So do histories of sessions that do not exist.
    pub histories: Option<Duration>,
}

/// What exists. Without it nothing goes that could belong to a session.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// Ids of the sessions.
    pub sessions: HashSet<String>,
    /// Those of them that have a process.
    pub live: HashSet<String>,
    /// Those of them in which something runs.
    pub busy: HashSet<String>,
    /// File names of the histories that their Pis write.
    pub pi_files: HashSet<String>,
    /// Workspaces of the sessions.
    pub workspaces: HashSet<String>,
}

/// Something that may go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// What it is.
    pub kind: Kind,
    /// Where it is, from the state directory; for people.
    pub path: String,
    /// What it takes of the disk, in bytes.
    pub bytes: u64,
    /// How long ago it was changed last.
    pub age: Duration,
    /// The directories from the state directory to it.
    dirs: Vec<CString>,
    /// Its name in the last of them.
    name: CString,
}

/// What was found.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// What may go, in the order of [`Kind::ALL`], the oldest of each kind first.
    pub items: Vec<Item>,
    /// There is more than was looked at: look again when these are gone.
    pub is_cut: bool,
}

#[cfg(test)]
mod tests;
