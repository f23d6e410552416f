//! Which files a scope means, in the one order that results have. Called by search, find and replace.
//!
//! Directories are read by several threads if there are many, each by a handle of its own. What is kept of
//! a directory is one block: names, sorted so that walking the blocks gives byte order of whole paths.

mod directory;
mod globs;
mod list;
mod order;
mod rules;
mod select;
mod start;
mod visit;

pub(crate) use globs::{Globs, Named, Reading};
pub(crate) use list::Kind;
pub(crate) use order::{Meta, Place, Walked};
pub(crate) use visit::{Offer, Wanted, add, walk, words};

use crate::error::SearchError;
use crate::scope::{Scope, Sort};
use crate::tree::{Stop, Tree};

/// Entries that one walk keeps or has still to look at. One takes some 30 to 100 bytes, so this bounds
/// the memory of a walk to about 100 MB.
pub(crate) const MAX_ENTRIES: usize = 1_000_000;

/// Lists the regular files of a scope in its order. Ends early when `stop` says so, with what was found so
/// far.
///
/// # Errors
/// [`SearchError`] for a glob, a type or a start that cannot be used.
pub(crate) fn files(scope: &Scope, tree: &dyn Tree, stop: &Stop) -> Result<Walked, SearchError> {
    let wanted = Wanted {
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
