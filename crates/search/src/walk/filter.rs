//! Filters names by a compiled scope, except for ignore files: globs, types, excluded and hidden names. Called
//! by `walker` for every entry.

use super::globs::{GlobOptions, Globs, Named};
use super::options::WalkOptions;
use crate::error::SearchError;
use crate::scope::{GlobRule, Hidden, Scope};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use ignore::types::{Types, TypesBuilder};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Directories of version control systems.
const VCS_DIRS: [&[u8]; 4] = [b".git", b".hg", b".svn", b".jj"];

/// Compiled scope.
#[derive(Debug)]
pub(crate) struct ScopeFilter {
    include: Option<Globs>,
    exclude: Option<Globs>,
    exclude_dirs: Option<Globs>,
    types: Option<Types>,
    hidden: Hidden,
    /// Globs for the hidden names that an include glob contains.
    named_hidden: GlobSet,
    vcs_dirs: bool,
}

impl ScopeFilter {
    /// Compiles `scope` for a walk with these `options`.
    pub(crate) fn new(
        scope: &Scope,
        options: &WalkOptions<'_>,
        root: &Path,
        exists: &dyn Fn(&Path) -> bool,
    ) -> Result<Self, SearchError> {
        let reading = GlobOptions {
            root,
            starts: &scope.starts,
            rule: scope.globs,
            ignore_case: false,
            beneath: false,
            exists,
        };

        let globs = |list: &[String], reading: GlobOptions<'_>| {
            (!list.is_empty()).then(|| Globs::new(list, reading)).transpose()
        };
        let by_name = GlobOptions { rule: GlobRule::Names, ..reading };

        Ok(Self {
            include: globs(
                &scope.include,
                GlobOptions {
                    ignore_case: options.ignore_case,
                    beneath: options.offer.is_none(),
                    ..reading
                },
            )?,
            exclude: globs(&scope.exclude, reading)?,
            exclude_dirs: globs(&scope.exclude_dirs, by_name)?,
            types: types(scope)?,
            hidden: scope.hidden,
            named_hidden: if scope.hidden == Hidden::Auto {
                dot_components(scope.include.iter().chain(options.names))
            } else {
                GlobSet::empty()
            },
            vcs_dirs: scope.vcs_dirs,
        })
    }

    /// Returns the include globs that can be retried at any depth.
    pub(crate) fn anchored(&self) -> &[String] {
        self.include.as_ref().map(|include| include.anchored.as_slice()).unwrap_or_default()
    }

    /// Whether the name is a directory of a version control system.
    pub(crate) fn is_vcs(&self, name: &[u8]) -> bool {
        !self.vcs_dirs && name.first() == Some(&b'.') && VCS_DIRS.contains(&name)
    }

    /// Whether a name without a matching ignore rule is excluded for its leading dot. `shown` is true if the
    /// request named a hidden parent directory.
    pub(crate) fn is_left_out_as_hidden(&self, name: &[u8], shown: bool) -> bool {
        name.first() == Some(&b'.')
            && match self.hidden {
                Hidden::Show => false,
                Hidden::Leave => true,
                Hidden::Auto => !shown && !self.is_named_hidden(name),
            }
    }

    /// Whether a glob names this hidden name.
    pub(crate) fn is_named_hidden(&self, name: &[u8]) -> bool {
        !self.named_hidden.is_empty()
            && self.named_hidden.is_match(Path::new(OsStr::from_bytes(name)))
    }

    /// Whether to enter a directory.
    pub(crate) fn enters(&self, entry: Named<'_>) -> bool {
        let matches =
            |globs: &Option<Globs>| globs.as_ref().is_some_and(|globs| globs.is_match(entry));
        !matches(&self.exclude_dirs) && !matches(&self.exclude)
    }

    /// Whether to keep a directory as a result. Types do not apply to directories.
    pub(crate) fn wants_directory(&self, entry: Named<'_>) -> bool {
        self.include.as_ref().is_none_or(|globs| globs.is_match(entry))
    }

    /// Whether to keep an entry that is not a directory.
    pub(crate) fn wants(&self, entry: Named<'_>) -> bool {
        self.include.as_ref().is_none_or(|globs| globs.is_match(entry))
            && !self.exclude.as_ref().is_some_and(|globs| globs.is_match(entry))
            && self.types.as_ref().is_none_or(|types| {
                !types.matched(Path::new(OsStr::from_bytes(entry.name)), false).is_ignore()
            })
    }
}

fn types(scope: &Scope) -> Result<Option<Types>, SearchError> {
    if scope.types.is_empty() && scope.types_not.is_empty() {
        return Ok(None);
    }
    let mut builder = TypesBuilder::new();
    builder.add_defaults();

    for name in &scope.types {
        builder.select(name);
    }
    for name in &scope.types_not {
        builder.negate(name);
    }

    builder.build().map(Some).map_err(|error| {
        let requested = scope.types.iter().chain(&scope.types_not);
        let names: Vec<_> =
            builder.definitions().iter().map(|known| known.name().to_owned()).collect();
        let unknown = requested.clone().find(|name| *name != "all" && !names.contains(name));
        let name = unknown.cloned().unwrap_or_else(|| error.to_string());
        SearchError::UnknownType { nearest: nearest(&name, &names), name }
    })
}

/// Returns the most similar name, if one is similar enough.
fn nearest(text: &str, names: &[String]) -> Option<String> {
    let distances = names.iter().map(|name| (strsim::damerau_levenshtein(text, name), name));
    let (distance, name) = distances.min()?;

    // `javascript` begins with `j` but is far from `js`. Among the longer names, prefer one that the text
    // begins with.
    (distance <= 1.max(text.len() / 3)).then(|| name.clone())
}

/// Returns the components in which an alternative begins with a dot, as globs of names.
fn dot_components<'a>(globs: impl Iterator<Item = &'a String>) -> GlobSet {
    let mut set = GlobSetBuilder::new();
    for glob in globs {
        let crosses = glob.contains('{') && glob.split('/').any(|part| !is_balanced(part));
        for part in if crosses { vec![glob.as_str()] } else { glob.split('/').collect() } {
            let is_dot = part.starts_with('.') && !part.trim_matches('.').is_empty();
            if !is_dot && !part.contains("{.") && !part.contains(",.") {
                continue;
            }

            // Alternatives with slashes cannot be split by component. Accept any hidden name: the glob itself
            // is still checked.
            let text = if crosses { ".*" } else { part };
            if let Ok(compiled) = GlobBuilder::new(text).literal_separator(true).build() {
                set.add(compiled);
            }
        }
    }

    set.build().unwrap_or_else(|_| GlobSet::empty())
}

fn is_balanced(part: &str) -> bool {
    part.matches('{').count() == part.matches('}').count()
}
