//! Selection of files for searching, finding and replacing.

use std::path::PathBuf;

/// Selection of files.
///
/// A file is selected if all of this is true: it is under a start path; no rule of `ignore` and `hidden`
/// excludes it; a glob of `include` matches it, if there are any; no glob of `exclude` matches it; the types
/// allow it. A file that is itself a start path is always selected.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scope {
    /// Start paths: files or directories relative to the root, without symlinks. The empty path is the root.
    pub starts: Vec<PathBuf>,
    /// Globs of which one must match. Empty for everything. They only narrow the result of the other rules.
    pub include: Vec<String>,
    /// Globs of files and directories to exclude. An excluded directory excludes its contents.
    pub exclude: Vec<String>,
    /// Rule for comparing a glob without a slash.
    pub globs: GlobRule,
    /// Names or globs of directories that are not entered. A start path is always entered.
    pub exclude_dirs: Vec<String>,
    /// Names of ripgrep's file types. One must match.
    pub types: Vec<String>,
    /// Names of ripgrep's file types. None may match.
    pub types_not: Vec<String>,
    /// Ignore files to read.
    pub ignore: Ignore,
    /// Treatment of names that begin with a dot.
    pub hidden: Hidden,
    /// Enter `.git`, `.hg`, `.svn` and `.jj` too. By default, they are entered only if they are or contain a
    /// start path.
    pub vcs_dirs: bool,
    /// Follow symlinks that stay inside the root. Loops become warnings.
    pub follow: bool,
    /// Maximum number of levels below a start path. 1 means its direct entries.
    pub max_depth: Option<usize>,
    /// Maximum file size in bytes. Larger files are skipped and counted.
    pub max_filesize: Option<u64>,
    /// The order of results.
    pub sort: Sort,
}

impl Default for Scope {
    /// Selects the whole root with ripgrep's defaults, sorted by path.
    fn default() -> Self {
        Self {
            starts: vec![PathBuf::new()],
            include: Vec::new(),
            exclude: Vec::new(),
            globs: GlobRule::Names,
            exclude_dirs: Vec::new(),
            types: Vec::new(),
            types_not: Vec::new(),
            ignore: Ignore::All,
            hidden: Hidden::Auto,
            vcs_dirs: false,
            follow: false,
            max_depth: None,
            max_filesize: None,
            sort: Sort::Path,
        }
    }
}

/// Rule for comparing a glob without a slash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum GlobRule {
    /// Base names, at any depth.
    #[default]
    Names,
    /// Names directly in the root.
    Anchored,
}

/// Ignore files to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Ignore {
    /// No ignore files.
    None,
    /// `.gitignore`, `.git/info/exclude` and the file that git's `core.excludesFile` names.
    Git,
    /// Git's files, `.ignore` and `.rgignore`.
    #[default]
    All,
}

/// Treatment of files and directories whose name begins with a dot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Hidden {
    /// They are treated like other files.
    Show,
    /// They are excluded, unless an ignore file includes them with `!`.
    Leave,
    /// As [`Hidden::Leave`], but a file is included if a dot component of a start path or an include glob names
    /// it.
    #[default]
    Auto,
}

/// The order of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Sort {
    /// Byte order of the whole relative path.
    #[default]
    Path,
    /// Last modified first. Ties are sorted by path.
    Modified,
    /// Any fast order. At present the path order.
    None,
}
