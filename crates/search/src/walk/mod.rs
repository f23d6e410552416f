//! Lists the files of a scope in result order. Called by search, find and replace.
//!
//! Several threads read the directories of a large tree, each by a separate handle. The kept entries of a
//! directory are one block of names, sorted so that walking the blocks gives the byte order of whole paths.

mod directory;
mod entries;
mod filter;
mod globs;
mod list;
mod rules;
mod start;
mod walker;

pub(crate) use entries::{EntryIndex, Meta, WalkResult};
pub(crate) use globs::{GlobOptions, Globs, Named};
pub(crate) use list::EntryType;
pub use rules::set_user_excludes;
pub(crate) use walker::{EntryFilter, WalkOptions, add, walk, words};

use crate::error::SearchError;
use crate::scope::{Scope, Sort};
use crate::tree::{Stop, Tree};

/// Maximum number of entries that one walk keeps or has queued. One entry takes about 30 to 100 bytes, so a
/// walk takes at most about 100 MB.
pub(crate) const MAX_ENTRIES: usize = 1_000_000;

/// Lists the regular files of a scope in its order. If `stop` is reached, returns the files found so far.
///
/// # Errors
/// [`SearchError`] for a glob, a type or a start that cannot be used.
pub(crate) fn files(
    scope: &Scope,
    tree: &dyn Tree,
    stop: &Stop,
) -> Result<WalkResult, SearchError> {
    let wanted = WalkOptions {
        files: true,
        dirs: false,
        symlinks: false,
        stat: scope.sort == Sort::Modified,
        ignore_case: false,
        names: &[],
        offer: None,
    };
    let mut walked = walk(scope, &wanted, tree, stop)?;
    if scope.sort == Sort::Modified {
        walked.sort_by_time();
    }
    Ok(walked)
}
