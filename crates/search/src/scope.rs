//! Which files a request is about; the same for searching, finding and replacing.

use std::path::PathBuf;

/// Which files are looked at.
///
/// A file is looked at if it lies beneath a start, no rule of `ignore` and `hidden` leaves it out, some
/// glob of `include` matches it (if there are any), and none of `exclude` and the types speaks against
/// it. A file that is itself a start passes all of that.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scope {
    /// Files or directories, relative to the root and free of symlinks; empty path for the root.
    pub starts: Vec<PathBuf>,
    /// Globs of which one must match; none for everything. They only narrow what the other rules leave.
    pub include: Vec<String>,
    /// Globs of files and directories that are left out, a directory with all that is beneath it.
    pub exclude: Vec<String>,
    /// What a glob without a slash is compared with.
    pub globs: GlobRule,
    /// Names or globs of directories that are not entered; a start is entered in any case.
    pub exclude_dirs: Vec<String>,
    /// Names of ripgrep's file types of which one must fit.
    pub types: Vec<String>,
    /// Names of ripgrep's file types of which none may fit.
    pub types_not: Vec<String>,
    /// Which ignore files are read.
    pub ignore: Ignore,
    /// What becomes of names that begin with a dot.
    pub hidden: Hidden,
    /// Enter `.git`, `.hg`, `.svn` and `.jj` too; else only a start among them or below is.
    pub vcs_dirs: bool,
    /// Follow symlinks that stay beneath the root; loops are warnings.
    pub follow: bool,
    /// Levels below a start; 1 is what lies in it.
    pub max_depth: Option<usize>,
    /// Larger files are left out and counted, in bytes.
    pub max_filesize: Option<u64>,
    /// The order of results.
    pub sort: Sort,
}

impl Default for Scope {
    /// Everything beneath the root, as ripgrep chooses by itself, in the order of paths.
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

/// What a glob without a slash is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum GlobRule {
    /// Base names, at any depth.
    #[default]
    Names,
    /// Names directly in the root.
    Anchored,
}

/// Which ignore files are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Ignore {
    /// None.
    None,
    /// `.gitignore`, `.git/info/exclude` and the file that git's `core.excludesFile` names.
    Git,
    /// Those, `.ignore` and `.rgignore`.
    #[default]
    All,
}

/// What becomes of files and directories whose name begins with a dot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Hidden {
    /// They are like others.
    Show,
    /// They are left out, unless an ignore file says `!` of them.
    Leave,
    /// As [`Hidden::Leave`], but what a dot component of a start or an include glob names is like others.
    #[default]
    Auto,
}

/// The order of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Sort {
    /// Byte order of the whole relative path.
    #[default]
    Path,
    /// Last modified first; the path decides between equals.
    Modified,
    /// Any order that is quick; at present that of the path.
    None,
}
