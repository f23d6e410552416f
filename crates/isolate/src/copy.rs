//! Copies a workspace: everything outside of ignored directories, and small ignored files such as `.env`.

use crate::error::{IsolateError, OnFile as _};
use crate::ignored::IgnoreRules;
use crate::manifest::{Common, CopyPaths, MAX_MERGED_BYTES, Manifest, Texts, identity};
use crate::node::{ContentHash, MAX_FILE_BYTES, Node, Stamp};
use crate::notes::Notes;
use crate::private_git;
use crate::tree::{Listed, Place, Tree, list, open_directory, open_file, read_link};
use quackd_protocol::isolate::{CopiedTree, MAX_OUTPUTS};
use rustix::fs::{FileType, Mode, Timespec, Timestamps, fchmod, futimens, mkdirat, symlinkat};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::ops::Bound;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};

/// Maximum size of one copied file that git ignores, and of all of them, in bytes. Larger ones can be made again.
const MAX_IGNORED_BYTES: u64 = 1024 * 1024;
const MAX_ALL_IGNORED_BYTES: u64 = 64 * 1024 * 1024;

/// Maximum depth of directories. Each level has two open directories.
const MAX_DEPTH: usize = 200;

/// Maximum number of entries of one directory.
const MAX_ENTRIES: usize = 200_000;

/// Maximum number of files to count in a workspace that is too large.
const MAX_COUNTED_FILES: u64 = 2_000_000;

/// Number of attempts to copy a file that another program changes at the same time.
const MAX_ATTEMPTS: usize = 3;

/// Input of a copy.
#[derive(Debug, Clone, Default)]
pub struct CopyOptions {
    /// Absolute paths that are not copied.
    pub hidden: Vec<PathBuf>,
    /// Most files.
    pub max_files: u64,
    /// Largest size in bytes, without that of the repository.
    pub max_bytes: u64,
    /// Text of the user's own file of ignored names.
    pub user_excludes: Option<String>,
    /// Relative paths that git tracks. A directory with one of them is copied although git ignores its name.
    pub tracked: BTreeSet<PathBuf>,
}

/// Copies `workspace` into the empty private `directory`.
///
/// # Errors
/// See [`IsolateError`]. The directory is then not complete and must be removed.
pub fn copy_workspace(
    workspace: &Path,
    directory: &Path,
    options: &CopyOptions,
) -> Result<CopiedTree, IsolateError> {
    let paths = CopyPaths::of(directory);
    let base = Tree::open(workspace).on("open", workspace)?;
    std::fs::create_dir(paths.tree()).on("create", &paths.tree())?;
    let copy = Tree::open(&paths.tree()).on("open", &paths.tree())?;
    let mut copying = Copying {
        workspace,
        options,
        rules: IgnoreRules::of_tree(&base, options.user_excludes.as_deref()),
        texts: Texts::open(&paths.texts())?,
        entries: BTreeMap::new(),
        copied: CopiedTree::default(),
        notes: Notes::default(),
        ignored_bytes: 0,
    };

    let directories = Directories { from: base.top(), to: copy.top() };
    copying.directory(directories, Path::new(""), 0)?;
    // Above a limit the walk only counts, so that the error has the true size.
    copying.check_size()?;

    let (objects, notes) = private_git::make(workspace, &base, &copy)?;
    let Copying { texts, entries, mut copied, notes: mut all, .. } = copying;
    all.extend(notes);
    copied.objects = objects;
    copied.notes = all.into_lines();

    // The record comes last: a copy without it counts as incomplete.
    texts.sync()?;
    let opened = File::open(workspace).on("open", workspace)?;
    let base = identity(&opened).on("read", workspace)?;
    let references = private_git::references_of_copy(&copy);
    let manifest = Manifest { base, copied, references, refreshed: BTreeMap::new(), entries };
    manifest.write(&paths.manifest())?;
    Ok(manifest.copied)
}

/// A directory of the workspace, and that of the copy for its content.
#[derive(Clone, Copy)]
struct Directories<'a> {
    from: BorrowedFd<'a>,
    to: BorrowedFd<'a>,
}

struct Copying<'a> {
    workspace: &'a Path,
    options: &'a CopyOptions,
    rules: IgnoreRules,
    texts: Texts,
    entries: BTreeMap<PathBuf, Common>,
    copied: CopiedTree,
    notes: Notes,
    ignored_bytes: u64,
}

impl Copying<'_> {
    /// Copies the content of a directory of the workspace to one of the copy.
    fn directory(
        &mut self,
        directories: Directories<'_>,
        path: &Path,
        depth: usize,
    ) -> Result<(), IsolateError> {
        let Directories { from, to } = directories;
        let listed = list(from, MAX_ENTRIES).on("list", path)?;
        self.rules.enter(from, path);

        for entry in listed {
            let at = path.join(&entry.name);
            if self.options.hidden.iter().any(|hidden| *hidden == self.workspace.join(&at)) {
                continue;
            }

            // `private_git` makes the repository of the copy.
            if is_git(&entry.name) {
                if !path.as_os_str().is_empty() {
                    self.notes.add(&at, "is a repository of its own, which the copy does not have");
                }
                continue;
            }

            let is_ignored = self.rules.ignore(&at, entry.kind() == FileType::Directory);
            match entry.kind() {
                // Such directories are large and can be made again. The session gets them as overlays.
                FileType::Directory if is_ignored && !self.has_tracked(&at) => {
                    self.output(to, &entry, at)?;
                }
                FileType::Directory if MAX_DEPTH <= depth => {
                    self.notes.add(&at, "is too deep and is left out");
                }
                FileType::Directory => self.subdirectory(directories, &entry, &at, depth)?,
                FileType::Symlink => self.link(directories, &entry, at)?,
                FileType::RegularFile => self.file(directories, &entry, at, is_ignored)?,
                _ => self.notes.add(&at, "is a socket, pipe or device and is left out"),
            }
        }
        self.rules.leave();
        Ok(())
    }

    /// Notes an ignored directory, and creates its mount point.
    fn output(
        &mut self,
        to: BorrowedFd<'_>,
        entry: &Listed,
        at: PathBuf,
    ) -> Result<(), IsolateError> {
        if MAX_OUTPUTS <= self.copied.outputs.len() {
            self.notes.add(&at, "is ignored and left out: there are too many such directories");
            return Ok(());
        }

        mkdirat(to, &entry.name, Mode::RWXU).on("create", &at)?;
        self.copied.outputs.push(at);
        Ok(())
    }

    fn subdirectory(
        &mut self,
        directories: Directories<'_>,
        entry: &Listed,
        at: &Path,
        depth: usize,
    ) -> Result<(), IsolateError> {
        let Directories { from, to } = directories;
        let from = match open_directory(from, &entry.name) {
            Ok(from) => from,
            Err(error) => {
                self.notes.add(at, &format!("cannot be read and is left out: {error}"));
                return Ok(());
            }
        };

        // The owner needs all rights, to write and to delete the copy.
        let mode = Mode::from_raw_mode(entry.stat.st_mode)
            & Mode::RWXU.union(Mode::RWXG).union(Mode::RWXO);
        mkdirat(to, &entry.name, mode | Mode::RWXU).on("create", at)?;
        let to = open_directory(to, &entry.name).on("open", at)?;

        let directories = Directories { from: from.as_fd(), to: to.as_fd() };
        self.directory(directories, at, depth + 1)
    }

    fn link(
        &mut self,
        directories: Directories<'_>,
        entry: &Listed,
        at: PathBuf,
    ) -> Result<(), IsolateError> {
        let Directories { from, to } = directories;

        if !self.count(0)? {
            return Ok(());
        }

        let target = read_link(from, &entry.name).on("read", &at)?;
        symlinkat(&target, to, &entry.name).on("create", &at)?;
        let place = place(to, &entry.name, &at)?;
        let base = Some(Stamp::of(&entry.stat));
        let common = Common { node: Node::Link(target), base, copy: None, text: None };
        self.record(&place, at, common)
    }

    fn file(
        &mut self,
        directories: Directories<'_>,
        entry: &Listed,
        at: PathBuf,
        is_ignored: bool,
    ) -> Result<(), IsolateError> {
        let Directories { from, to } = directories;
        let len = u64::try_from(entry.stat.st_size).unwrap_or(0);
        if is_ignored && !self.options.tracked.contains(&at) {
            if MAX_IGNORED_BYTES < len || MAX_ALL_IGNORED_BYTES < self.ignored_bytes + len {
                self.notes.add(&at, "is ignored and large, and is left out");
                return Ok(());
            }
            self.ignored_bytes += len;
        }

        if MAX_FILE_BYTES < len {
            self.notes.add(&at, "is larger than 1 GiB and is left out");
            return Ok(());
        }
        if !self.count(len)? {
            return Ok(());
        }

        let place = place(to, &entry.name, &at)?;
        for _ in 0..MAX_ATTEMPTS {
            let source = match open_file(from, &entry.name) {
                Ok(source) => source,
                Err(error) => {
                    self.notes.add(&at, &format!("cannot be read and is left out: {error}"));
                    return Ok(());
                }
            };
            // A file that changes while it is copied would be a mix of two versions.
            let before = Stamp::of(&rustix::fs::fstat(&source).on("read", &at)?);
            let copied = copy_content(&source, &place, &at)?;
            let after = rustix::fs::fstat(&source).on("read", &at)?;
            if before == Stamp::of(&after) {
                let Copied { hash, len, text } = copied;
                let text = text.map(|text| self.texts.keep(&text)).transpose()?.flatten();
                let node = Node::File { hash, len, is_executable: after.st_mode & 0o100 != 0 };
                let common = Common { node, base: Some(before), copy: None, text };
                return self.record(&place, at, common);
            }
            rustix::fs::unlinkat(to, &entry.name, rustix::fs::AtFlags::empty())
                .on("remove", &at)?;
        }
        self.notes.add(&at, "changed all the time and is left out");
        Ok(())
    }

    /// Records a copied node. `common` has everything but the stamp of the copy.
    fn record(&mut self, place: &Place, at: PathBuf, common: Common) -> Result<(), IsolateError> {
        let copy = place.stat().on("read", &at)?.map(|stat| Stamp::of(&stat));
        self.entries.insert(at, Common { copy, ..common });
        Ok(())
    }

    /// Counts a file. Returns whether it is copied: above a limit files are only counted, for the error.
    fn count(&mut self, len: u64) -> Result<bool, IsolateError> {
        self.copied.files += 1;
        self.copied.bytes += len;
        let size = self.check_size();
        if size.is_err() && self.copied.files <= MAX_COUNTED_FILES {
            return Ok(false);
        }
        size.map(|()| true)
    }

    /// Checks that the files so far are within the limits.
    fn check_size(&self) -> Result<(), IsolateError> {
        let CopiedTree { files, bytes, .. } = self.copied;
        let CopyOptions { max_files, max_bytes, .. } = *self.options;
        if max_files < files || max_bytes < bytes {
            return Err(IsolateError::TooLarge { files, bytes, max_files, max_bytes });
        }
        Ok(())
    }

    fn has_tracked(&self, directory: &Path) -> bool {
        let mut after =
            self.options.tracked.range::<Path, _>((Bound::Included(directory), Bound::Unbounded));
        after.next().is_some_and(|path| path.starts_with(directory))
    }
}

fn place(directory: BorrowedFd<'_>, name: &OsStr, at: &Path) -> Result<Place, IsolateError> {
    let directory = directory.try_clone_to_owned().on("open", at)?;
    Ok(Place { directory, name: name.to_owned() })
}

/// Copies the content, permissions and time of an open file.
fn copy_content(mut source: &File, place: &Place, at: &Path) -> Result<Copied, IsolateError> {
    let stat = rustix::fs::fstat(source).on("read", at)?;
    // The original may be private, so other users get their rights only at the end.
    let mut target = place.create(&place.name, Mode::RUSR | Mode::WUSR).on("create", at)?;
    let (mut hasher, mut len, mut text) = (Sha256::new(), 0_u64, Some(Vec::new()));
    let mut piece = vec![0; 128 * 1024];
    // The file may grow without end.
    while len <= MAX_FILE_BYTES {
        let n = match source.read(&mut piece) {
            Ok(0) => break,
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error).on("read", at),
        };
        let read = piece.get(..n).unwrap_or_default();
        hasher.update(read);
        target.write_all(read).on("write", at)?;
        len += n as u64;
        match &mut text {
            Some(kept) if len <= MAX_MERGED_BYTES => kept.extend_from_slice(read),
            _ => text = None,
        }
    }

    fchmod(&target, Mode::from_raw_mode(stat.st_mode & 0o777)).on("write", at)?;

    // The copied index of git stays valid if the files keep their times.
    let modified = Timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec as _ };
    futimens(&target, &Timestamps { last_access: modified, last_modification: modified })
        .on("write", at)?;
    Ok(Copied { hash: ContentHash::from(hasher), len, text })
}

struct Copied {
    hash: ContentHash,
    len: u64,
    /// Content, if it is small.
    text: Option<Vec<u8>>,
}

/// Whether the name is that of a repository. Case and invisible characters do not count: the workspace may be on another
/// file system later.
pub(crate) fn is_git(name: &OsStr) -> bool {
    quackd_sandbox::is_git_directory(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_is_found_in_every_spelling() {
        for name in [".git", ".GIT", ".g\u{200c}it"] {
            assert!(is_git(OsStr::new(name)), "{name}");
        }
        for name in ["git", ".gitignore", ".github"] {
            assert!(!is_git(OsStr::new(name)), "{name}");
        }
    }
}
