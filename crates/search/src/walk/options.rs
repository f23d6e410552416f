//! Options of a walk, for its callers and its threads.

use super::entries::Meta;
use super::globs::Named;
use super::list::EntryType;

/// Options of a walk.
#[derive(Clone, Copy)]
pub(crate) struct WalkOptions<'a> {
    pub(crate) files: bool,
    pub(crate) dirs: bool,
    pub(crate) symlinks: bool,
    /// Record size, time and mode too.
    pub(crate) stat: bool,
    /// Include globs ignore case.
    pub(crate) ignore_case: bool,
    /// Globs that may name hidden files, in addition to the scope's globs.
    pub(crate) names: &'a [String],
    /// Additional filter.
    pub(crate) offer: Option<&'a dyn EntryFilter>,
}

/// Filters the entries that the scope accepts. Called from several threads.
pub(crate) trait EntryFilter: Sync {
    /// Whether to keep an entry with this name.
    fn wants(&self, entry: Named<'_>) -> bool;
    /// Whether to keep an entry with this metadata.
    fn wants_meta(&self, kind: EntryType, meta: &Meta) -> bool;
}
