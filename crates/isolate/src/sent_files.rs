//! The files of a copy that are sent to another machine, or back. Ignored directories that the copy did not have are left
//! out, as in a new copy.

use crate::error::{IsolateError, OnFile as _};
use crate::ignored::IgnoreRules;
use crate::node::MAX_FILE_BYTES;
use crate::notes::Notes;
use crate::tree::{Listed, Tree, open_file, read_link};
use crate::walk::{Visit, walk};
use rustix::fs::FileType;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::ops::Bound;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

/// Maximum size of a new file that git ignores, in bytes, as in a new copy.
const MAX_IGNORED_BYTES: u64 = 1024 * 1024;

/// Name that git takes for `.git` on other systems.
const SHORT_GIT: &str = "git~1";

/// A file or link that is sent.
#[derive(Debug)]
pub enum SentNode {
    /// A regular file.
    File {
        /// Open for reading.
        file: File,
        /// Size in bytes when it was opened.
        len: u64,
        /// Whether its owner may run it.
        is_executable: bool,
    },
    /// A symbolic link with its target, as written.
    Link(PathBuf),
}

/// Selection of the files.
#[derive(Debug)]
pub struct SentFiles<'a> {
    /// Directory with the files.
    pub tree: &'a Path,
    /// Text of the user's own file of ignored names.
    pub user_excludes: Option<&'a str>,
    /// Relative paths that were sent before. `None`: ignored directories are sent too.
    pub known: Option<&'a BTreeSet<PathBuf>>,
    /// Most files.
    pub max_files: u64,
    /// Largest size in bytes.
    pub max_bytes: u64,
}

/// Number of files, and what was left out.
#[derive(Debug, Default)]
pub struct SentSize {
    /// Number of files and links.
    pub files: u64,
    /// Lines about files that are left out.
    pub notes: Vec<String>,
}

impl SentFiles<'_> {
    /// Passes each file to `each`, in an order in which a directory's files come together.
    ///
    /// # Errors
    /// [`IsolateError::TooLarge`]; [`IsolateError::Io`] if a file cannot be read, because it would count as deleted on the
    /// other side; an error of `each`.
    pub fn for_each(
        &self,
        each: &mut dyn FnMut(&Path, SentNode) -> io::Result<()>,
    ) -> Result<SentSize, IsolateError> {
        let tree = Tree::open(self.tree).on("open", self.tree)?;
        let mut visit = Visitor {
            files: self,
            each,
            n: 0,
            bytes: 0,
            notes: Notes::default(),
            unreadable: None,
        };
        walk(&tree, self.user_excludes, &mut visit)?;

        let Visitor { n, notes, unreadable, .. } = visit;
        match unreadable {
            Some((path, why)) => Err(io::Error::other(why)).on("send", &path),
            None => Ok(SentSize { files: n, notes: notes.into_lines() }),
        }
    }
}

struct Visitor<'a, 'b> {
    files: &'a SentFiles<'b>,
    each: &'a mut dyn FnMut(&Path, SentNode) -> io::Result<()>,
    n: u64,
    bytes: u64,
    notes: Notes,
    /// The first directory that cannot be read, with the reason.
    unreadable: Option<(PathBuf, String)>,
}

impl Visitor<'_, '_> {
    fn count(&mut self, len: u64) -> Result<(), IsolateError> {
        (self.n, self.bytes) = (self.n + 1, self.bytes.saturating_add(len));
        let SentFiles { max_files, max_bytes, .. } = *self.files;
        if max_files < self.n || max_bytes < self.bytes {
            let (files, bytes) = (self.n, self.bytes);
            return Err(IsolateError::TooLarge { files, bytes, max_files, max_bytes });
        }
        Ok(())
    }

    /// Whether the file is new, ignored by git and large.
    fn is_left_out(&self, at: &Path, len: u64, rules: &IgnoreRules) -> bool {
        let is_new = self.files.known.is_some_and(|known| !known.contains(at));
        is_new && MAX_IGNORED_BYTES < len && rules.ignore(at, false)
    }
}

impl Visit for Visitor<'_, '_> {
    fn enters(&mut self, at: &Path, rules: &IgnoreRules) -> bool {
        if is_short_git(at) {
            self.notes.add(at, "has a name that git does not take, and is left out");
            return false;
        }
        self.files.known.is_none_or(|known| has_below(known, at) || !rules.ignore(at, true))
    }

    fn node(
        &mut self,
        directory: BorrowedFd<'_>,
        entry: &Listed,
        at: PathBuf,
        rules: &IgnoreRules,
    ) -> Result<(), IsolateError> {
        if is_short_git(&at) {
            self.notes.add(&at, "has a name that git does not take, and is left out");
            return Ok(());
        }
        match entry.kind() {
            FileType::Symlink => {
                self.count(0)?;
                let target = read_link(directory, &entry.name).on("read", &at)?;
                (self.each)(&at, SentNode::Link(target)).on("send", &at)
            }
            FileType::RegularFile => {
                let file = open_file(directory, &entry.name).on("read", &at)?;
                let metadata = file.metadata().on("read", &at)?;
                let len = metadata.len();
                if self.is_left_out(&at, len, rules) {
                    self.notes.add(&at, "is ignored and large, and is left out");
                    return Ok(());
                }
                if MAX_FILE_BYTES < len {
                    return Err(io::Error::from(io::ErrorKind::FileTooLarge)).on("send", &at);
                }
                self.count(len)?;
                let is_executable = entry.stat.st_mode & 0o100 != 0;
                (self.each)(&at, SentNode::File { file, len, is_executable }).on("send", &at)
            }
            _ => {
                self.notes.add(&at, "is a socket, pipe or device and is left out");
                Ok(())
            }
        }
    }

    fn unreadable(&mut self, at: &Path, why: &str) {
        self.unreadable.get_or_insert_with(|| (at.to_owned(), why.to_owned()));
    }
}

fn is_short_git(at: &Path) -> bool {
    at.file_name().is_some_and(|name| name.eq_ignore_ascii_case(SHORT_GIT))
}

/// Whether a path is `directory` or below it.
fn has_below(paths: &BTreeSet<PathBuf>, directory: &Path) -> bool {
    // Paths are ordered by component: those in the directory follow it without a gap.
    let mut after = paths.range::<Path, _>((Bound::Included(directory), Bound::Unbounded));
    after.next().is_some_and(|path| path.starts_with(directory))
}
