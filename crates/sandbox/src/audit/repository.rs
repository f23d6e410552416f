//! Audits one repository: the programs and files that git would run or read, and the state of the files that
//! configure them. Called by `snapshot` and `report`.
//!
//! Unreadable files are reported like a setting: a link, a large size or missing rights may hide a dangerous setting.

use crate::git::gitdir::{self, LinkedRepository};
use crate::git::openat::{self, Node};
use crate::git::settings;
use crate::git::stamp::InodeStamp;
use crate::git::{NodeKind, open_directory};
use crate::git_config as config;
use quackd_protocol::client::{AuditCommand, RepositoryKind};
use quackd_protocol::foreign_text::one_line_cut;
use rustix::fs::{Access, AtFlags, Dir, accessat};
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Maximum number of findings of one repository.
const MAX_COMMANDS: usize = 32;

/// Maximum number of entries of a hooks directory that are read.
const MAX_HOOKS: usize = 256;

/// End of the name of a file that `set_aside` has renamed. Git runs no hook and reads no settings of such a name.
pub(super) const SET_ASIDE: &str = ".set-aside";

/// Ends of names that git does not run: its samples, and hooks that `set_aside` has renamed.
const UNUSED_HOOKS: [&str; 2] = [".sample", SET_ASIDE];

/// Directories of remotes in an old format, which git still reads.
const REMOTES: [&str; 2] = ["remotes", "branches"];

/// Maximum size of a file in bytes, the same as in [`openat::read`].
const MAX_FILE: u64 = 256 * 1024;

/// Maximum number of settings of one file, the same as in [`config`].
const MAX_SETTINGS: usize = 4096;

/// Maximum length of a reported value and path, in characters.
const MAX_VALUE: usize = 160;
const MAX_PATH: usize = 240;

/// Files of a repository that decide what git runs, in addition to its hooks.
const FILES: [&str; 5] =
    ["config", "config.worktree", "commondir", "rebase-merge/git-rebase-todo", "sequencer/todo"];

/// Path and layout of a repository.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RepositoryLocation {
    /// Path of the `.git`, or of the directory that looks like one, relative to the workspace.
    pub(super) at: PathBuf,
    pub(super) shape: RepositoryLayout,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RepositoryLayout {
    Directory,
    File,
    Other,
    Bare,
}

impl From<NodeKind> for RepositoryLayout {
    fn from(kind: NodeKind) -> Self {
        match kind {
            NodeKind::Directory => Self::Directory,
            NodeKind::File => Self::File,
            NodeKind::Other => Self::Other,
        }
    }
}

impl RepositoryLayout {
    pub(super) fn kind(self) -> RepositoryKind {
        match self {
            Self::Directory => RepositoryKind::Git,
            Self::File => RepositoryKind::GitFile,
            Self::Other => RepositoryKind::Other,
            Self::Bare => RepositoryKind::Bare,
        }
    }
}

/// A repository outside of the workspace that a `.git` file names and that names the workspace.
#[derive(Debug)]
pub(super) struct MainRepository {
    pub(super) path: PathBuf,
    handle: OwnedFd,
}

impl MainRepository {
    /// Returns the tree of the repository, and the location in it.
    pub(super) fn place(&self) -> (Base<'_>, RepositoryLocation) {
        let base = Base { handle: self.handle.as_fd(), path: &self.path };
        (base, RepositoryLocation { at: PathBuf::new(), shape: RepositoryLayout::Directory })
    }

    pub(super) fn stamps(&self) -> Vec<(PathBuf, InodeStamp)> {
        let (base, place) = self.place();
        stamps(base, &place)
    }
}

/// Returns the repositories outside of the workspace that belong to it, each once.
pub(super) fn mains(base: Base<'_>, places: &[RepositoryLocation]) -> Vec<MainRepository> {
    let mut mains = Vec::<MainRepository>::new();
    for place in places.iter().filter(|place| place.shape == RepositoryLayout::File) {
        if let LinkedRepository::Outside(main) = gitdir::follow(base.handle, base.path, &place.at)
            && mains.iter().all(|known| known.path != main.path)
        {
            mains.push(MainRepository { path: main.path, handle: main.handle });
        }
    }
    mains
}

/// Returns the git directories of the places: relative to the workspace, or absolute outside of it.
pub(super) fn git_directories(base: Base<'_>, places: &[RepositoryLocation]) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for place in places {
        match place.shape {
            RepositoryLayout::Directory => all.push(place.at.clone()),
            RepositoryLayout::File => match gitdir::follow(base.handle, base.path, &place.at) {
                LinkedRepository::Inside(inside) => all.extend(inside),
                LinkedRepository::Outside(main) => all.push(main.path),
                LinkedRepository::Nowhere => {}
            },
            RepositoryLayout::Other | RepositoryLayout::Bare => {}
        }
    }

    // Several `.git` files may name one directory.
    all.sort_unstable();
    all.dedup();
    all
}

/// A tree that contains repositories.
#[derive(Debug, Clone, Copy)]
pub(super) struct Base<'a> {
    pub(super) handle: BorrowedFd<'a>,
    /// Canonical path of the tree.
    pub(super) path: &'a Path,
}

/// Returns the state of all files that [`commands`] reads. Equal states give the same findings.
pub(super) fn stamps(base: Base<'_>, place: &RepositoryLocation) -> Vec<(PathBuf, InodeStamp)> {
    let mut stamps = Vec::new();
    let itself = InodeStamp::beneath(base.handle, or_dot(&place.at));

    match place.shape {
        RepositoryLayout::Directory | RepositoryLayout::Bare => {
            // Git creates and removes files there all the time.
            stamps.extend(itself.map(|stamp| (place.at.clone(), stamp.identity())));
            directory_stamps(base, &place.at, &mut stamps);
        }
        RepositoryLayout::Other => stamps.extend(itself.map(|stamp| (place.at.clone(), stamp))),
        RepositoryLayout::File => {
            stamps.extend(itself.map(|stamp| (place.at.clone(), stamp)));
            if let Some(inside) = git_file(base, &place.at).and_then(|(_, inside)| inside) {
                directory_stamps(base, &inside, &mut stamps);
            }
        }
    }
    stamps
}

fn directory_stamps(base: Base<'_>, at: &Path, stamps: &mut Vec<(PathBuf, InodeStamp)>) {
    for name in FILES {
        let path = at.join(name);
        // Ignore placeholders, which workers create and remove.
        let least = if name == "commondir" { 3 } else { 1 };
        let stamp = InodeStamp::beneath(base.handle, &path);
        stamps.extend(
            stamp.filter(|stamp| least <= stamp.size() || stamp.is_directory()).map(|s| (path, s)),
        );
    }

    let hooks = hooks(base, at).0.into_iter().map(|hook| at.join("hooks").join(hook));
    for path in hooks.chain(remotes(base, at).0) {
        let stamp = InodeStamp::beneath(base.handle, &path);
        stamps.extend(stamp.map(|stamp| (path, stamp)));
    }
}

/// Returns the files of remotes in an old format, and true if all entries were read.
fn remotes(base: Base<'_>, at: &Path) -> (Vec<PathBuf>, bool) {
    let (mut files, mut is_whole) = (Vec::new(), true);
    for directory in REMOTES.map(|name| at.join(name)) {
        let Ok(handle) = open_directory(base.handle, &directory) else { continue };
        let Ok(entries) = Dir::read_from(&handle) else {
            is_whole = false;
            continue;
        };

        for entry in entries {
            let Ok(entry) = entry else { return (files, false) };
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            if files.len() == MAX_HOOKS {
                return (files, false);
            }
            files.push(directory.join(name));
        }
    }

    files.sort();
    (files, is_whole)
}

/// Returns the programs and files that git would run or read in a repository. `is_listed` returns true for
/// repositories that are reported separately.
pub(super) fn commands(
    base: Base<'_>,
    place: &RepositoryLocation,
    is_listed: &dyn Fn(&Path) -> bool,
) -> Vec<AuditCommand> {
    let mut finding = Finding { found: Vec::new(), left_out: 0 };
    match place.shape {
        RepositoryLayout::Directory => finding.directory(base, &place.at, is_listed),
        RepositoryLayout::Bare => finding.directory(base, &place.at, is_listed),
        RepositoryLayout::Other => finding.add(&place.at, "link", "is no file and no directory"),
        RepositoryLayout::File => match git_file(base, &place.at) {
            Some((_, Some(inside))) if is_listed(&inside) => {}
            Some((_, Some(inside))) => finding.directory(base, &inside, is_listed),
            Some((value, None)) => finding.add(&place.at, "gitdir", &value),
            None => finding.add(&place.at, "gitdir", "cannot be read"),
        },
    }
    finding.finish()
}

/// Findings in one repository so far.
struct Finding {
    found: Vec<AuditCommand>,
    left_out: usize,
}

impl Finding {
    fn add(&mut self, file: &Path, key: &str, value: &str) {
        if self.found.len() == MAX_COMMANDS {
            self.left_out += 1;
            return;
        }
        self.found.push(AuditCommand {
            file: one_line_cut(&file.to_string_lossy(), MAX_PATH),
            key: one_line_cut(key, MAX_VALUE),
            value: one_line_cut(value, MAX_VALUE),
            named: Vec::new(),
        });
    }

    fn finish(mut self) -> Vec<AuditCommand> {
        if self.left_out != 0 {
            let value = format!("{} more", self.left_out);
            self.found
                .push(AuditCommand { key: "…".to_owned(), value, ..AuditCommand::default() });
        }
        self.found
    }

    fn directory(&mut self, base: Base<'_>, at: &Path, is_listed: &dyn Fn(&Path) -> bool) {
        self.settings(base, &at.join("config"));
        self.settings(base, &at.join("config.worktree"));
        self.hooks(base, at);
        self.remotes(base, at);
        for todo in ["rebase-merge/git-rebase-todo", "sequencer/todo"] {
            self.todo(base, &at.join(todo));
        }

        let common = at.join("commondir");
        let Some(value) = self.text(base, &common) else { return };
        // As git does. Other white space belongs to the path.
        let value = value.trim_end_matches(['\n', '\r']);
        match inside(base.path, at, value) {
            // The repository is its own common directory, as in the placeholder.
            Some(own) if own == at => {}
            // A linked worktree of a repository that is reported separately.
            Some(other) if is_listed(&other) => {}
            Some(other) => {
                self.add(&common, "commondir", value);
                self.settings(base, &other.join("config"));
                self.hooks(base, &other);
            }
            None => self.add(&common, "commondir", value),
        }
    }

    fn settings(&mut self, base: Base<'_>, file: &Path) {
        let Some(text) = self.text(base, file) else { return };
        let entries = config::parse(&text);
        for entry in &entries {
            if let Some(name) = settings::dangerous(entry) {
                self.add(file, &name, entry.value.as_deref().unwrap_or_default());
            }
        }
        if MAX_SETTINGS <= entries.len() {
            self.add(file, "settings", "has more settings than are read");
        }
    }

    /// Returns the text of a file if it exists. Reports an unreadable file.
    fn text(&mut self, base: Base<'_>, file: &Path) -> Option<String> {
        match openat::node_at(base.handle, file) {
            Ok(Node::Missing) => return None,
            Ok(Node::File) => {}
            Ok(Node::Directory) => return None,
            Ok(Node::Other) => {
                self.add(file, "link", "is a link, which is not followed here, and git follows it");
                return None;
            }
            Err(_) => {
                self.add(file, "unreadable", "cannot be looked at");
                return None;
            }
        }

        let size = InodeStamp::beneath(base.handle, file).map_or(0, InodeStamp::size);
        // The read below ends at the limit, and git reads on.
        if MAX_FILE <= size {
            self.add(file, "size", "is too large to be read here, and git reads it");
        }

        let text = openat::read(base.handle, file);
        if text.is_err() {
            self.add(file, "unreadable", "cannot be read");
        }
        text.ok()
    }

    fn hooks(&mut self, base: Base<'_>, at: &Path) {
        let directory = at.join("hooks");
        if openat::node_at(base.handle, &directory) == Ok(Node::Other) {
            self.add(
                &directory,
                "link",
                "is a link, which is not followed here, and git follows it",
            );
            return;
        }

        let (hooks, is_whole) = hooks(base, at);
        for hook in hooks {
            self.add(&directory.join(hook), "hook", "");
        }
        if !is_whole {
            self.add(&directory, "hooks", "has more files than are looked at");
        }
    }

    /// Adds the addresses of remotes in an old format.
    fn remotes(&mut self, base: Base<'_>, at: &Path) {
        let (files, is_whole) = remotes(base, at);
        for file in files {
            let text = self.text(base, &file).unwrap_or_default();
            self.add(&file, "remote", text.lines().next().unwrap_or_default());
        }
        if !is_whole {
            self.add(&at.join("remotes"), "remotes", "has more files than are looked at");
        }
    }

    /// Adds the commands of an unfinished rebase.
    fn todo(&mut self, base: Base<'_>, file: &Path) {
        let Some(text) = self.text(base, file) else { return };
        for line in text.lines() {
            let line = line.trim_start();
            // `x` is short for `exec` (git-rebase(1)).
            let command = ["exec", "x"].iter().find_map(|word| line.strip_prefix(word));
            if let Some(command) = command.filter(|rest| rest.starts_with([' ', '\t'])) {
                self.add(file, "exec", command.trim());
            }
        }
    }
}

/// Returns the names of the hooks that git would run, and true if all entries were read. Samples and non-executable
/// files do not count.
pub(super) fn hooks(base: Base<'_>, at: &Path) -> (Vec<PathBuf>, bool) {
    let mut names = Vec::new();
    let Ok(directory) = open_directory(base.handle, &at.join("hooks")) else {
        return (names, true);
    };
    let Ok(entries) = Dir::read_from(&directory) else { return (names, false) };
    for (n, entry) in entries.enumerate() {
        let Ok(entry) = entry else { return (names, false) };
        if n == MAX_HOOKS {
            return (names, false);
        }

        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        let is_unused = UNUSED_HOOKS.iter().any(|end| name.as_bytes().ends_with(end.as_bytes()));
        if is_unused || name == "." || name == ".." {
            continue;
        }

        let is_hook = match openat::node(&directory, name) {
            Ok(Node::File) => accessat(&directory, name, Access::EXEC_OK, AtFlags::EACCESS).is_ok(),
            // Git may run the target of a link, and a file that cannot be inspected.
            Ok(Node::Other) | Err(_) => true,
            Ok(Node::Directory | Node::Missing) => false,
        };
        if is_hook {
            names.push(PathBuf::from(name));
        }
    }

    names.sort();
    (names, true)
}

/// Returns the path in a `.git` file, as written and relative to the workspace.
fn git_file(base: Base<'_>, at: &Path) -> Option<(String, Option<PathBuf>)> {
    let text = openat::read(base.handle, at).ok()?;
    let value = text.strip_prefix("gitdir:")?.trim();
    let from = at.parent().unwrap_or_else(|| Path::new(""));
    Some((value.to_owned(), inside(base.path, from, value)))
}

/// Resolves a path by its text. `None` if it is outside the workspace.
fn inside(base_path: &Path, from: &Path, value: &str) -> Option<PathBuf> {
    if value.is_empty() {
        return None;
    }
    let absolute = openat::normalise(&base_path.join(from).join(value))?;
    absolute.strip_prefix(base_path).ok().map(Path::to_path_buf)
}

fn or_dot(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}
