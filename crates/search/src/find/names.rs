//! Compares names for find. Called for every entry that the scope accepts, from several threads.

use super::fuzzy::Fuzzy;
use super::{Find, NameRule};
use crate::error::SearchError;
use crate::glob::{Glob, folded};
use crate::request::Case;
use crate::scope::{Hidden, Scope};
use crate::tree::{Stop, Tree};
use crate::walk::{GlobOptions, Globs, Named, WalkResult, exists_in};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Entries between two checks of the deadline.
const CHECK_EVERY: usize = 1024;

/// Compiled name rule.
pub(super) enum NameMatcher {
    Everything,
    Minimatch { glob: Glob, starts: Vec<Vec<u8>> },
    Globs(Box<Globs>),
    Fuzzy(Fuzzy),
}

/// Whether globs ignore case.
pub(super) fn ignores_case(request: &Find) -> bool {
    let globs = match &request.name {
        NameRule::Globs(globs) => globs.as_slice(),
        NameRule::Minimatch(_) | NameRule::Fuzzy(_) | NameRule::Everything => &[],
    };
    match request.case {
        Case::Sensitive => false,
        Case::Insensitive => true,
        Case::Smart => !globs.iter().any(|glob| glob.chars().any(char::is_uppercase)),
    }
}

impl NameMatcher {
    /// Compiles the rule of a request. Its globs become the scope's globs if the scope has none.
    pub(super) fn new(
        request: &Find,
        scope: &mut Scope,
        tree: &dyn Tree,
    ) -> Result<Self, SearchError> {
        Ok(match &request.name {
            NameRule::Everything => Self::Everything,
            NameRule::Minimatch(pattern) => {
                let with_dot = scope.hidden == Hidden::Show;
                let glob = Glob::new(pattern, with_dot)?;
                // These globs match every remaining name.
                if matches!(pattern.trim(), "**/*" | "**" | "*") && scope.hidden != Hidden::Auto {
                    return Ok(Self::Everything);
                }

                let starts = scope.starts.iter().map(|start| start.as_os_str().as_bytes().to_vec());
                Self::Minimatch { glob, starts: starts.filter(|start| !start.is_empty()).collect() }
            }
            NameRule::Globs(globs) if scope.include.is_empty() => {
                scope.include.clone_from(globs);
                Self::Everything
            }
            NameRule::Globs(globs) => {
                let exists = |path: &Path| exists_in(tree, path);
                let reading = GlobOptions {
                    root: tree.path(),
                    starts: &scope.starts,
                    rule: scope.globs,
                    ignore_case: ignores_case(request),
                    beneath: false,
                    exists: &exists,
                };
                Self::Globs(Box::new(Globs::new(globs, reading)?))
            }
            NameRule::Fuzzy(text) => Self::Fuzzy(Fuzzy::new(text, request.case)),
        })
    }

    pub(super) fn is_match(&self, entry: Named<'_>) -> bool {
        match self {
            Self::Everything => true,
            Self::Globs(globs) => globs.is_match(entry),
            Self::Fuzzy(fuzzy) => fuzzy.is_match(entry.path),
            Self::Minimatch { glob, starts } => {
                let name = folded(&String::from_utf8_lossy(entry.name));
                if glob.is_match(std::slice::from_ref(&name)) {
                    return true;
                }

                // A pattern with slashes may also begin at a start path.
                let below = starts.iter().filter_map(|start| {
                    entry.path.strip_prefix(start.as_slice())?.strip_prefix(b"/")
                });

                !glob.is_by_name()
                    && std::iter::once(entry.path).chain(below).any(|path| {
                        let names = path.split(|byte| *byte == b'/');
                        let names = names.map(|name| folded(&String::from_utf8_lossy(name)));
                        // A pattern that begins with a slash has an empty first component.
                        let behind_slash: Vec<_> =
                            std::iter::once(Vec::new()).chain(names).collect();
                        glob.is_match(&behind_slash)
                            || glob.is_match(behind_slash.get(1..).unwrap_or_default())
                    })
            }
        }
    }

    /// Returns the score of each entry, or nothing if the rule is not fuzzy.
    pub(super) fn scores(&self, walked: &WalkResult, stop: &Stop) -> Vec<u32> {
        let Self::Fuzzy(fuzzy) = self else { return Vec::new() };
        let mut scores = Vec::with_capacity(walked.len());
        for (n, path) in walked.paths().enumerate() {
            if n % CHECK_EVERY == 0 && stop.is_reached() {
                break;
            }
            scores.push(fuzzy.score(path.as_os_str().as_bytes()).unwrap_or(0));
        }
        scores
    }
}
