//! Compiles and matches lists of globs. Called by `filter` and by `find`.
//!
//! `*` and `?` do not match a slash, `**` does. `{a,b}` nests, and a backslash escapes. A name that is spelled
//! exactly like the glob matches too, regardless of special characters.

use crate::error::SearchError;
use crate::scope::GlobRule;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Maximum number of globs in one request, in all lists.
const MAX_GLOBS: usize = 1000;

/// Maximum length of a glob in bytes: the longest path of the kernel (`PATH_MAX`).
const MAX_GLOB_BYTES: usize = 4096;

/// Maximum compiled size of one glob in bytes.
const MAX_COMPILED_BYTES: usize = 2 * 1024 * 1024;

/// Interpretation of the globs of one list.
#[derive(Clone, Copy)]
pub(crate) struct GlobOptions<'a> {
    pub(crate) root: &'a Path,
    /// Globs with a slash are also compared with paths relative to these start paths.
    pub(crate) starts: &'a [PathBuf],
    pub(crate) rule: GlobRule,
    pub(crate) ignore_case: bool,
    /// A glob that matches a directory also matches its contents.
    pub(crate) beneath: bool,
    /// Returns whether an entry with this relative path exists.
    pub(crate) exists: &'a dyn Fn(&Path) -> bool,
}

/// A list of globs of which one must match.
#[derive(Debug)]
pub(crate) struct Globs {
    by_name: GlobSet,
    by_path: GlobSet,
    /// Compared with paths from the root only: absolute globs and globs with a leading slash.
    from_root: GlobSet,
    /// Like `by_name`, for directories only.
    dirs_by_name: GlobSet,
    dirs_by_path: GlobSet,
    /// Globs as literal names, sorted: base names, and paths.
    literal_names: Vec<Vec<u8>>,
    literal_paths: Vec<Vec<u8>>,
    starts: Vec<Vec<u8>>,
    ignore_case: bool,
    beneath: bool,
    /// Globs that can be retried at any depth.
    pub(crate) anchored: Vec<String>,
}

/// Entry to compare.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Named<'a> {
    /// Path relative to the root.
    pub(crate) path: &'a [u8],
    /// Last component of the path.
    pub(crate) name: &'a [u8],
    pub(crate) is_dir: bool,
}

impl Globs {
    /// Compiles a list.
    pub(crate) fn new(globs: &[String], reading: GlobOptions<'_>) -> Result<Self, SearchError> {
        if MAX_GLOBS < globs.len() {
            let reason = format!("more than {MAX_GLOBS} globs");
            return Err(SearchError::BadGlob { glob: String::new(), reason });
        }

        let mut sets: [GlobSetBuilder; 5] = std::array::from_fn(|_| GlobSetBuilder::new());
        let (mut literal_names, mut literal_paths) = (Vec::new(), Vec::new());
        let mut anchored = Vec::new();
        for glob in globs {
            let read = Self::read(glob, reading)?;
            let literals = if read.place == GlobAnchor::Name {
                &mut literal_names
            } else {
                &mut literal_paths
            };
            literals.push(read.text.as_bytes().to_vec());

            let compiled = match compile(&read.text, reading.ignore_case) {
                Ok(compiled) => compiled,
                // A text that is not a valid glob may still be a name.
                Err(_) if Self::is_a_name(&read.text, reading) => continue,
                Err(reason) => return Err(SearchError::BadGlob { glob: glob.clone(), reason }),
            };

            if read.place == GlobAnchor::Anywhere && !read.text.starts_with("**/") {
                anchored.push(read.text);
            }

            let set = match (read.place, read.only_dirs) {
                (GlobAnchor::Name, false) => 0,
                (GlobAnchor::Anywhere, false) => 1,
                (GlobAnchor::Root, _) => 2,
                (GlobAnchor::Name, true) => 3,
                (GlobAnchor::Anywhere, true) => 4,
            };
            if let Some(set) = sets.get_mut(set) {
                set.add(compiled);
            }
        }

        literal_names.sort_unstable();
        literal_paths.sort_unstable();
        let [by_name, by_path, from_root, dirs_by_name, dirs_by_path] = sets.map(|set| {
            set.build().map_err(|error| SearchError::BadGlob {
                glob: globs.join(","),
                reason: error.kind().to_string(),
            })
        });

        let starts = reading.starts.iter().map(|start| start.as_os_str().as_bytes().to_vec());
        Ok(Self {
            by_name: by_name?,
            by_path: by_path?,
            from_root: from_root?,
            dirs_by_name: dirs_by_name?,
            dirs_by_path: dirs_by_path?,
            literal_names,
            literal_paths,
            starts: starts.filter(|start| !start.is_empty()).collect(),
            ignore_case: reading.ignore_case,
            beneath: reading.beneath,
            anchored,
        })
    }

    fn is_a_name(text: &str, reading: GlobOptions<'_>) -> bool {
        let beneath = reading.starts.iter().map(|start| start.join(text));
        std::iter::once(PathBuf::from(text)).chain(beneath).any(|path| (reading.exists)(&path))
    }

    fn read(glob: &str, reading: GlobOptions<'_>) -> Result<Read, SearchError> {
        if MAX_GLOB_BYTES < glob.len() {
            let reason = format!("longer than {MAX_GLOB_BYTES} bytes");
            return Err(SearchError::BadGlob { glob: glob.chars().take(80).collect(), reason });
        }

        let only_dirs = glob.len() > 1 && glob.ends_with('/');
        let text = if only_dirs { glob.trim_end_matches('/') } else { glob };

        if let Some(absolute) = text.strip_prefix('/') {
            let text = beneath_root(text, reading).or_else(|| {
                let first = absolute.split('/').next().unwrap_or_default();
                let is_here =
                    first.contains(['*', '?', '[', '{']) || Self::is_a_name(first, reading);
                is_here.then(|| absolute.to_owned())
            });
            let text = text.ok_or_else(|| SearchError::GlobOutside { glob: glob.to_owned() })?;
            return Ok(Read { text, place: GlobAnchor::Root, only_dirs });
        }

        let mut bare = text;
        while let Some(rest) = bare.strip_prefix("./") {
            bare = rest.trim_start_matches('/');
        }

        let is_name = !text.contains('/') && reading.rule == GlobRule::Names;
        let place = if is_name { GlobAnchor::Name } else { GlobAnchor::Anywhere };
        Ok(Read { text: bare.to_owned(), place, only_dirs })
    }

    /// Whether one of the globs matches.
    pub(crate) fn is_match(&self, entry: Named<'_>) -> bool {
        let name = Path::new(OsStr::from_bytes(entry.name));
        if self.by_name.is_match(name) || (entry.is_dir && self.dirs_by_name.is_match(name)) {
            return true;
        }
        if self.is_literal(entry) {
            return true;
        }

        let has_paths =
            !(self.by_path.is_empty() && self.from_root.is_empty() && self.dirs_by_path.is_empty());
        if has_paths && self.matches_path(entry) {
            return true;
        }

        self.beneath
            && !(self.dirs_by_name.is_empty() && self.dirs_by_path.is_empty())
            && self.lies_beneath(entry.path)
    }

    /// Whether a glob matches one of the parent directories.
    fn lies_beneath(&self, path: &[u8]) -> bool {
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        slashes.filter_map(|(at, _)| path.get(..at)).any(|path| {
            let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
            let name = Path::new(OsStr::from_bytes(name));
            let is_match =
                |path: &[u8]| self.dirs_by_path.is_match(Path::new(OsStr::from_bytes(path)));
            self.dirs_by_name.is_match(name)
                || is_match(path)
                || self.starts.iter().filter_map(|start| below(path, start)).any(is_match)
        })
    }

    fn matches_path(&self, entry: Named<'_>) -> bool {
        let matches = |bytes: &[u8]| {
            let path = Path::new(OsStr::from_bytes(bytes));
            self.by_path.is_match(path) || (entry.is_dir && self.dirs_by_path.is_match(path))
        };
        if matches(entry.path) || self.from_root.is_match(Path::new(OsStr::from_bytes(entry.path)))
        {
            return true;
        }
        self.starts.iter().filter_map(|start| below(entry.path, start)).any(matches)
    }

    fn is_literal(&self, entry: Named<'_>) -> bool {
        let is_in = |list: &[Vec<u8>], bytes: &[u8]| {
            !list.is_empty()
                && list.binary_search_by(|literal| literal.as_slice().cmp(bytes)).is_ok()
        };
        !self.ignore_case
            && (is_in(&self.literal_names, entry.name) || is_in(&self.literal_paths, entry.path))
    }
}

/// A parsed glob.
struct Read {
    text: String,
    place: GlobAnchor,
    only_dirs: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GlobAnchor {
    /// Compared with base names.
    Name,
    /// Compared with paths from the root and from the starts.
    Anywhere,
    /// Compared with paths from the root.
    Root,
}

/// Returns the part of an absolute glob after the root's path.
fn beneath_root(glob: &str, reading: GlobOptions<'_>) -> Option<String> {
    let rest = glob.strip_prefix(reading.root.to_str()?)?;
    let rest = if rest.is_empty() { "/**" } else { rest };
    rest.strip_prefix('/').map(str::to_owned)
}

fn below<'p>(path: &'p [u8], directory: &[u8]) -> Option<&'p [u8]> {
    path.strip_prefix(directory)?.strip_prefix(b"/")
}

fn compile(glob: &str, ignore_case: bool) -> Result<globset::Glob, String> {
    // A `*` must not match a slash, or `src/*.rs` would match at every depth.
    let compiled = GlobBuilder::new(glob)
        .literal_separator(true)
        .backslash_escape(true)
        .case_insensitive(ignore_case)
        .build()
        .map_err(|error| error.kind().to_string())?;

    // Braces multiply, so the size of the expansion is limited.
    if MAX_COMPILED_BYTES < compiled.regex().len() {
        return Err("stands for too many patterns".to_owned());
    }
    Ok(compiled)
}
