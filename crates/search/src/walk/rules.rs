//! Ignore rules. Reads ignore files once per directory, and checks them for each entry.
//!
//! The rules are the same as ripgrep's. The nearest file with a matching rule decides, separately for each kind
//! of file: `.rgignore` before `.ignore` before `.gitignore` before git's `info/exclude` before the file of
//! `core.excludesFile`. The git rules of an outer repository do not apply in an inner one. Called by `walker`.

use crate::scope::Ignore;
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{Mode, OFlags, openat};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Maximum number of bytes read from one ignore file. Compiled rules take about 100 times their size in memory.
const MAX_RULE_BYTES: u64 = 1024 * 1024;

/// Result of the ignore rules for a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IgnoreMatch {
    Nothing,
    /// Exclude the entry.
    Ignore,
    /// Include the entry, even if it is hidden.
    Keep,
}

/// Ignore files that a listing contains.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct IgnoreFilesPresent {
    pub(crate) rgignore: bool,
    pub(crate) ignore: bool,
    pub(crate) gitignore: bool,
    pub(crate) git: bool,
    pub(crate) jj: bool,
}

impl IgnoreFilesPresent {
    /// The listing is unknown: try every ignore file.
    const UNKNOWN: Self =
        Self { rgignore: true, ignore: true, gitignore: true, git: true, jj: true };

    /// Whether any ignore file may exist.
    pub(crate) fn any(self) -> bool {
        self.rgignore || self.ignore || self.gitignore || self.git || self.jj
    }
}

/// Ignore rules that apply in one directory.
#[derive(Debug)]
pub(crate) struct IgnoreRules {
    common: Arc<WalkRules>,
    parent: Option<Arc<Self>>,
    /// Length in bytes of the directory's absolute path with its slash: the prefix removed from queried paths.
    cut: usize,
    rgignore: Gitignore,
    ignore: Gitignore,
    gitignore: Gitignore,
    exclude: Gitignore,
    has_git: bool,
    /// Whether git's rules apply here: the directory is in a repository, or no repository is required.
    heeds_git: bool,
}

/// Rules that apply to the whole walk.
#[derive(Debug)]
struct WalkRules {
    mode: Ignore,
    /// Whether git's files apply only inside a repository. False outside of a work tree.
    require_git: bool,
    global: &'static Gitignore,
    global_cut: usize,
}

/// Rules of the user for all repositories.
static USER_EXCLUDES: OnceLock<Gitignore> = OnceLock::new();

/// Sets the rules of the user for all repositories, before the first search of this process. Without it, they are those of
/// git's settings in the home of this process.
pub fn set_user_excludes(text: &str) {
    // The first call counts.
    USER_EXCLUDES.set(parse_text(text.as_bytes())).ok();
}

impl IgnoreRules {
    /// Returns the rules that apply above `root`, or `None` if `mode` is off.
    ///
    /// In a work tree, reads the files of all directories above; git's rules end at a repository's root.
    /// Elsewhere reads no files above the root, and git's files apply without a repository.
    pub(crate) fn above(root: &Path, mode: Ignore) -> Option<Arc<Self>> {
        if mode == Ignore::None {
            return None;
        }

        let require_git = root.ancestors().any(is_repository);
        let global = USER_EXCLUDES.get_or_init(|| GitignoreBuilder::new("").build_global().0);
        let global_cut = cut_after(root);
        let common = Arc::new(WalkRules { mode, require_git, global, global_cut });
        let mut rules = Arc::new(Self::empty(common, None, 0));

        if require_git {
            let mut above: Vec<_> = root.ancestors().skip(1).collect();
            above.reverse();
            for directory in above {
                // As in ripgrep, a directory that cannot be opened has no rules.
                if let Ok(handle) = File::open(directory) {
                    rules = Self::enter(&rules, &handle, directory, IgnoreFilesPresent::UNKNOWN);
                }
            }
        }

        Some(rules)
    }

    fn empty(common: Arc<WalkRules>, parent: Option<Arc<Self>>, cut: usize) -> Self {
        let heeds_git = !common.require_git || parent.as_ref().is_some_and(|up| up.heeds_git);
        Self {
            common,
            parent,
            cut,
            rgignore: Gitignore::empty(),
            ignore: Gitignore::empty(),
            gitignore: Gitignore::empty(),
            exclude: Gitignore::empty(),
            has_git: false,
            heeds_git,
        }
    }

    /// Returns the rules of a directory, given its parent's rules, without knowing its listing.
    pub(crate) fn enter_unlisted(around: &Arc<Self>, handle: &File, path: &Path) -> Arc<Self> {
        Self::enter(around, handle, path, IgnoreFilesPresent::UNKNOWN)
    }

    /// Returns the rules of a directory, given its parent's rules. `path` is the directory's absolute path.
    pub(crate) fn enter(
        around: &Arc<Self>,
        handle: &File,
        path: &Path,
        seen: IgnoreFilesPresent,
    ) -> Arc<Self> {
        let all = around.common.mode == Ignore::All;
        let mut here =
            Self::empty(Arc::clone(&around.common), Some(Arc::clone(around)), cut_after(path));

        if seen.rgignore && all {
            here.rgignore = read_in(handle, ".rgignore");
        }
        if seen.ignore && all {
            here.ignore = read_in(handle, ".ignore");
        }
        if seen.gitignore {
            here.gitignore = read_in(handle, ".gitignore");
        }

        let mut says_something =
            ![&here.rgignore, &here.ignore, &here.gitignore].iter().all(|rules| rules.is_empty());

        if seen.git {
            if let Some(directory) = common_git_directory(path) {
                here.exclude = read_file(&directory.join("info/exclude"));
            }
            here.has_git = around.common.require_git && path.join(".git").exists();
        }
        if seen.jj {
            here.has_git |= around.common.require_git && path.join(".jj").exists();
        }

        here.heeds_git |= here.has_git;
        says_something |= here.has_git || !here.exclude.is_empty();
        // A directory without rules shares those of its parent.
        if says_something { Arc::new(here) } else { Arc::clone(around) }
    }

    /// Checks the entry with this absolute path.
    pub(crate) fn verdict(&self, path: &[u8], is_dir: bool) -> IgnoreMatch {
        let mut found = [IgnoreMatch::Nothing; 4];
        let mut is_outside = !self.heeds_git;
        let mut next = Some(self);

        while let Some(rules) = next {
            let below = below(path, rules.cut);
            let files = [
                (&rules.rgignore, true),
                (&rules.ignore, true),
                (&rules.gitignore, !is_outside),
                (&rules.exclude, !is_outside),
            ];
            for (found, (rules, counts)) in found.iter_mut().zip(files) {
                if *found == IgnoreMatch::Nothing && counts && !rules.is_empty() {
                    *found = verdict(rules, below, is_dir);
                }
            }

            // The git rules of an outer repository do not apply in this one.
            is_outside |= rules.has_git;
            next = rules.parent.as_deref();
        }

        let found = found.into_iter().find(|found| *found != IgnoreMatch::Nothing);
        found.unwrap_or_else(|| {
            if self.heeds_git {
                verdict(self.common.global, below(path, self.common.global_cut), is_dir)
            } else {
                IgnoreMatch::Nothing
            }
        })
    }
}

fn verdict(rules: &Gitignore, path: &Path, is_dir: bool) -> IgnoreMatch {
    match rules.matched(path, is_dir) {
        Match::None => IgnoreMatch::Nothing,
        Match::Ignore(_) => IgnoreMatch::Ignore,
        Match::Whitelist(_) => IgnoreMatch::Keep,
    }
}

fn below(path: &[u8], cut: usize) -> &Path {
    Path::new(OsStr::from_bytes(path.get(cut..).unwrap_or_default()))
}

fn cut_after(directory: &Path) -> usize {
    let bytes = directory.as_os_str().as_bytes();
    if bytes.ends_with(b"/") { bytes.len() } else { bytes.len() + 1 }
}

fn is_repository(directory: &Path) -> bool {
    directory.join(".git").exists() || directory.join(".jj").exists()
}

/// Reads an ignore file in an open directory. A link, FIFO or other special file has no rules.
fn read_in(directory: impl AsFd, name: &str) -> Gitignore {
    // Without NONBLOCK, a FIFO would wait for a writer.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match openat(directory, name, flags, Mode::empty()) {
        Ok(file) => parse(File::from(file)),
        Err(_) => Gitignore::empty(),
    }
}

fn read_file(path: &Path) -> Gitignore {
    open_regular(path).map_or_else(|_| Gitignore::empty(), parse)
}

fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

fn read_some(file: File) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A directory or an unreadable file has no rules. Rules read before an error apply.
    file.take(MAX_RULE_BYTES).read_to_end(&mut bytes).ok();
    bytes
}

/// Parses rules up to the first line that is not UTF-8. Invalid rules are skipped.
fn parse(file: File) -> Gitignore {
    parse_text(&read_some(file))
}

fn parse_text(bytes: &[u8]) -> Gitignore {
    let mut builder = GitignoreBuilder::new("");
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    for line in text.split(|byte| *byte == b'\n') {
        let Ok(line) = str::from_utf8(line) else { break };
        // An invalid rule has no effect on the others.
        builder.add_line(None, line.strip_suffix('\r').unwrap_or(line)).ok();
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}

/// Returns the directory that all work trees of the repository share (gitrepository-layout(5)).
fn common_git_directory(directory: &Path) -> Option<PathBuf> {
    let git = directory.join(".git");
    if !git.metadata().ok()?.is_file() {
        return Some(git);
    }

    let first_line = |path: &Path| {
        let bytes = read_some(open_regular(path).ok()?);
        let line = bytes.split(|byte| *byte == b'\n').next()?.to_vec();
        Some(PathBuf::from(std::ffi::OsString::from_vec(line)))
    };

    let line = first_line(&git)?;
    let own =
        directory.join(OsStr::from_bytes(line.as_os_str().as_bytes().strip_prefix(b"gitdir: ")?));
    Some(own.join(first_line(&own.join("commondir"))?))
}
