//! What ignore files say: read once per directory, asked for each entry.
//!
//! The meaning is ripgrep's. The nearest file that says something of a name decides, each kind of file
//! for itself: `.rgignore` before `.ignore` before `.gitignore` before git's `info/exclude` before the
//! file of `core.excludesFile`. A repository inside another one does not hear the outer one's git rules.
//! Called by `visit`.

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
use std::sync::Arc;

/// Bytes read of one ignore file. Rules take some hundred times their size in memory.
const MAX_RULE_BYTES: u64 = 1024 * 1024;

/// What the rules say of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Nothing,
    /// Leave it out.
    Ignore,
    /// Keep it, even if it is hidden.
    Keep,
}

/// Which names of ignore files a directory has, if its listing is known.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    pub(crate) rgignore: bool,
    pub(crate) ignore: bool,
    pub(crate) gitignore: bool,
    pub(crate) git: bool,
    pub(crate) jj: bool,
}

impl Seen {
    /// Nothing is known: all have to be tried.
    const UNKNOWN: Self =
        Self { rgignore: true, ignore: true, gitignore: true, git: true, jj: true };

    /// Whether there is anything to read.
    pub(crate) fn any(self) -> bool {
        self.rgignore || self.ignore || self.gitignore || self.git || self.jj
    }
}

/// The rules that hold in one directory.
#[derive(Debug)]
pub(crate) struct Rules {
    common: Arc<Common>,
    parent: Option<Arc<Self>>,
    /// Bytes of the absolute path of the directory with its slash: what is cut off paths that are asked.
    cut: usize,
    rgignore: Gitignore,
    ignore: Gitignore,
    gitignore: Gitignore,
    exclude: Gitignore,
    has_git: bool,
    /// Git's rules count here: a repository is around, or none is needed.
    heeds_git: bool,
}

/// What is the same in the whole walk.
#[derive(Debug)]
struct Common {
    mode: Ignore,
    /// Outside of a work tree, git's files count without one.
    require_git: bool,
    global: Gitignore,
    global_cut: usize,
}

impl Rules {
    /// The rules that hold above `root`; nothing if none are wanted.
    ///
    /// In a work tree these are the files of all directories above, and git's rules end with a
    /// repository. Elsewhere the root is the end of the world, and git's files count without a repository.
    pub(crate) fn above(root: &Path, mode: Ignore) -> Option<Arc<Self>> {
        if mode == Ignore::None {
            return None;
        }
        let require_git = root.ancestors().any(is_repository);
        let (global, _) = GitignoreBuilder::new("").build_global();
        let global_cut = cut_after(root);
        let common = Arc::new(Common { mode, require_git, global, global_cut });
        let mut rules = Arc::new(Self::empty(common, None, 0));
        if require_git {
            let mut above: Vec<_> = root.ancestors().skip(1).collect();
            above.reverse();
            for directory in above {
                // What cannot be opened has nothing to say, as for ripgrep.
                if let Ok(handle) = File::open(directory) {
                    rules = Self::enter(&rules, &handle, directory, Seen::UNKNOWN);
                }
            }
        }
        Some(rules)
    }

    fn empty(common: Arc<Common>, parent: Option<Arc<Self>>, cut: usize) -> Self {
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

    /// The rules in a directory, from those around it, without knowing its listing.
    pub(crate) fn enter_unlisted(around: &Arc<Self>, handle: &File, path: &Path) -> Arc<Self> {
        Self::enter(around, handle, path, Seen::UNKNOWN)
    }

    /// The rules in a directory, from those around it. `path` is its absolute path.
    pub(crate) fn enter(around: &Arc<Self>, handle: &File, path: &Path, seen: Seen) -> Arc<Self> {
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
        if says_something { Arc::new(here) } else { Arc::clone(around) }
    }

    /// What is said of the entry with this absolute path.
    pub(crate) fn verdict(&self, path: &[u8], is_dir: bool) -> Verdict {
        let mut said = [Verdict::Nothing; 4];
        let mut is_outside = !self.heeds_git;
        let mut next = Some(self);
        while let Some(rules) = next {
            let below = below(path, rules.cut);
            let heard = [
                (&rules.rgignore, true),
                (&rules.ignore, true),
                (&rules.gitignore, !is_outside),
                (&rules.exclude, !is_outside),
            ];
            for (said, (rules, counts)) in said.iter_mut().zip(heard) {
                if *said == Verdict::Nothing && counts && !rules.is_empty() {
                    *said = verdict(rules, below, is_dir);
                }
            }
            is_outside |= rules.has_git;
            next = rules.parent.as_deref();
        }
        let said = said.into_iter().find(|said| *said != Verdict::Nothing);
        said.unwrap_or_else(|| {
            if self.heeds_git {
                verdict(&self.common.global, below(path, self.common.global_cut), is_dir)
            } else {
                Verdict::Nothing
            }
        })
    }
}

fn verdict(rules: &Gitignore, path: &Path, is_dir: bool) -> Verdict {
    match rules.matched(path, is_dir) {
        Match::None => Verdict::Nothing,
        Match::Ignore(_) => Verdict::Ignore,
        Match::Whitelist(_) => Verdict::Keep,
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

/// The rules of a file in an open directory. A link, FIFO or the like has none.
fn read_in(directory: impl AsFd, name: &str) -> Gitignore {
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
    // A directory or a file that cannot be read has no rules; what was read before an error counts.
    let _n_or_error = file.take(MAX_RULE_BYTES).read_to_end(&mut bytes);
    bytes
}

/// Rules up to the first line that is not UTF-8. A rule that cannot be read is left out.
fn parse(file: File) -> Gitignore {
    let bytes = read_some(file);
    let mut builder = GitignoreBuilder::new("");
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    for line in text.split(|byte| *byte == b'\n') {
        let Ok(line) = str::from_utf8(line) else { break };
        let _bad_rule = builder.add_line(None, line.strip_suffix('\r').unwrap_or(line));
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}

/// Where the repository of a directory keeps what all its work trees share (gitrepository-layout(5)).
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
