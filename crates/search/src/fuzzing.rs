//! Entry points for the programs in `fuzz/`: the pattern parsers. Exists only with the feature `fuzzing`, which
//! nothing else turns on.

use crate::basic;
use crate::glob::{Glob, folded};

/// Whether a pattern of find matches a path. `None` if the pattern is rejected.
#[must_use]
pub fn glob_matches(pattern: &str, path: &str, with_dot: bool) -> Option<bool> {
    let glob = Glob::new(pattern, with_dot).ok()?;
    Some(glob.is_match(&path.split('/').map(folded).collect::<Vec<_>>()))
}

/// Translates a basic regular expression into the syntax of the regex crate.
#[must_use]
pub fn translate_basic(pattern: &str) -> String {
    basic::translate(pattern)
}
