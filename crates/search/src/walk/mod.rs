//! Lists the files of a scope in result order. Called by search, find and replace.
//!
//! Several threads read the directories of a large tree, each by a separate handle. The kept entries of a
//! directory are one block of names, sorted so that walking the blocks gives the byte order of whole paths.

mod directory;
mod entries;
mod filter;
mod globs;
mod list;
mod options;
mod pending;
mod rules;
mod start;
mod walker;

pub(crate) use entries::{EntryIndex, Meta, WalkResult};
pub(crate) use globs::{GlobOptions, Globs, Named};
pub(crate) use list::EntryType;
pub(crate) use options::{EntryFilter, WalkOptions};
pub use rules::set_user_excludes;
pub(crate) use walker::{exists_in, walk};

use crate::error::SearchError;
use crate::scope::{Scope, Sort};
use crate::tree::{Stop, Tree};

/// Lists the regular files of a scope in its order. If `stop` is reached, returns the files found so far.
///
/// # Errors
/// [`SearchError`] for a glob, a type or a start that cannot be used.
pub(crate) fn files(
    scope: &Scope,
    tree: &dyn Tree,
    stop: &Stop,
) -> Result<WalkResult, SearchError> {
    let options = WalkOptions {
        files: true,
        dirs: false,
        symlinks: false,
        stat: scope.sort == Sort::Modified,
        ignore_case: false,
        names: &[],
        offer: None,
    };

    let mut walked = walk(scope, &options, tree, stop)?;
    if scope.sort == Sort::Modified {
        walked.sort_by_time();
    }
    Ok(walked)
}
