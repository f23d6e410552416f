//! Plans the mounts that protect a workspace's repositories. Commits work, but no file that makes a later git run code
//! can be written, created, replaced or moved away. Called by stage 0 with the result of a walk.
//!
//! | in every `.git` | [`GitProtection::Top`] | [`GitProtection::Names`] |
//! |---|---|---|
//! | the node itself and every directory above it | cannot be renamed or removed | the same |
//! | `objects` without `info`, `refs`, `logs` | writable | writable |
//! | `hooks`, `remotes`, `branches`, `config`, `config.worktree`, `commondir`, `info/attributes`, `objects/info/alternates` | read-only with everything else; process 1 carries out permitted changes | read-only, created if missing |
//! | the same in `modules/*`; `gitdir` and `commondir` in `worktrees/*` | the same | read-only |
//! | the paths in `include.path`, `includeIf.*.path` and `core.hooksPath` | read-only if they exist | the same |
//!
//! If one of these is a link, which cannot be a mount point, the whole `.git` is read-only.

use super::leads::leads;
use super::placeholder::{PlaceholderKind, Placeholders};
use super::protection::{Protection, ProtectionSettings};
use crate::git::gitdir::{self, LinkedRepository};
use crate::git::openat::{self, Node};
use crate::git::protected_names::{MODULE_MARKS, NAMES, PARENTS};
use crate::git::{FoundRepositories, NodeKind, ProtectionGap};
use crate::pin::Pin;
use quackd_protocol::tiers::GitProtection;
use rustix::fs::Dir;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Maximum number of pins of one worker.
const MAX_PINS: usize = 8192;

/// Number of repositories in which git can write. Each needs about a dozen mounts. Every further one is one read-only
/// mount, so that none is without protection.
const MAX_WRITABLE: usize = 128;

/// Maximum number of submodules, and of linked worktrees, of one repository.
const MAX_CHILDREN: usize = 128;

/// Maximum depth of a submodule's name: `modules/a/b/c`.
const MAX_MODULE_DEPTH: usize = 4;

/// Directories in a git directory that are writable mounts in [`GitProtection::Top`].
const WRITABLE: [&str; 3] = ["objects", "refs", "logs"];

/// Plans the protection of the repositories in `found`. With [`GitProtection::Names`], creates placeholders for
/// missing names. `workspace` is an open directory with the canonical path `path`. Not needed for a read-only
/// workspace.
///
/// # Errors
/// A placeholder or its record cannot be created, a repository cannot be read, or the deadline has passed. Then a name
/// would stay writable, and the worker must not start.
pub fn protect_blocking(
    workspace: impl AsFd,
    path: &Path,
    found: &FoundRepositories,
    settings: ProtectionSettings<'_>,
    placeholders: &mut Placeholders,
) -> io::Result<Protection> {
    let base = Base { handle: workspace.as_fd(), path };
    let (pins, rest) = (BTreeMap::new(), Protection::default());
    let mut builder = Builder { placeholders, settings, pins, done: BTreeSet::new(), rest };

    for (number, (at, kind)) in found.repositories.iter().enumerate() {
        builder.check()?;
        builder.pin_above(base, at);
        match kind {
            NodeKind::Directory | NodeKind::File if MAX_WRITABLE <= number => {
                builder.whole(base, at, *kind);
            }
            NodeKind::Directory | NodeKind::File if !openat::is_own_repository(base.handle, at) => {
                // Git refuses such a repository. Its settings are ignored and it gets no placeholders.
                builder.pin(base, at, true);
                builder.trouble(
                    base,
                    at,
                    "or its directory belongs to another user and is read-only",
                );
            }
            NodeKind::Directory => builder.git_directory(base, at)?,
            NodeKind::File => builder.git_file(base, at)?,
            NodeKind::Other => builder.trouble(base, at, "is a link and cannot be pinned"),
        }
    }

    if MAX_WRITABLE < found.repositories.len() {
        builder.trouble(
            base,
            Path::new(""),
            "has more than 128 git repositories: in those farthest from its top, git cannot write",
        );
    }
    if !found.complete {
        builder.trouble(base, Path::new(""), "is too large to find every repository in it");
    }
    builder.finish()
}

/// Returns the placeholder of a protected name that does not exist.
fn placeholder_of(name: &str) -> PlaceholderKind {
    match name {
        "hooks" | "remotes" | "branches" => PlaceholderKind::Directory,
        "commondir" => PlaceholderKind::CommonDir,
        _ => PlaceholderKind::EmptyFile,
    }
}

/// Returns true if no link is in place of a protected name in an open git directory.
fn can_be_top(git: &OwnedFd) -> Result<bool, Errno> {
    let mut names = NAMES.into_iter().chain(PARENTS).chain(WRITABLE);
    names.try_fold(true, |fits, name| {
        Ok(fits && openat::node_at(git, Path::new(name))? != Node::Other)
    })
}

/// A tree that contains repositories.
#[derive(Clone, Copy)]
struct Base<'a> {
    handle: BorrowedFd<'a>,
    path: &'a Path,
}

struct Builder<'a> {
    placeholders: &'a mut Placeholders,
    settings: ProtectionSettings<'a>,
    /// Pins by path. The value is true for read-only.
    pins: BTreeMap<PathBuf, bool>,
    /// Git directories whose names are pinned.
    done: BTreeSet<PathBuf>,
    rest: Protection,
}

impl Builder<'_> {
    fn finish(mut self) -> io::Result<Protection> {
        self.check()?;
        let pins = self.pins.into_iter();
        self.rest.pins = pins.map(|(at, read_only)| Pin { at, read_only }).collect();
        Ok(self.rest)
    }

    /// Fails after the deadline or with too many pins. Called for each directory, before placeholders are created.
    fn check(&self) -> io::Result<()> {
        if self.settings.until <= Instant::now() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "reading them takes too long"));
        }
        if MAX_PINS < self.pins.len() {
            return Err(io::Error::other("the workspace's repositories need too many mounts"));
        }
        Ok(())
    }

    fn trouble(&mut self, base: Base<'_>, at: &Path, what: &'static str) {
        let path = if at.as_os_str().is_empty() { base.path.into() } else { base.path.join(at) };
        self.rest.troubles.push(ProtectionGap { path, what });
    }

    fn pin(&mut self, base: Base<'_>, at: &Path, read_only: bool) {
        let path = if at.as_os_str().is_empty() { base.path.into() } else { base.path.join(at) };
        // Of two pins of one path, the read-only one counts.
        *self.pins.entry(path).or_default() |= read_only;
    }

    /// Pins the directories between the base and `at`.
    fn pin_above(&mut self, base: Base<'_>, at: &Path) {
        for above in at.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
            self.pin(base, above, false);
        }
    }

    /// Pins a repository, its submodules, its linked worktrees, and the paths that its configuration names.
    fn git_directory(&mut self, base: Base<'_>, at: &Path) -> io::Result<()> {
        self.check()?;
        // A `.git` file often names a directory of a repository that was found before.
        if !self.done.insert(base.path.join(at)) {
            return Ok(());
        }

        let git = openat::open_directory(base.handle, at)?;
        let is_top = self.settings.mode == GitProtection::Top;
        self.pin(base, at, is_top);
        self.rest.git_directories.push(base.path.join(at));

        let has_names = if is_top { can_be_top(&git)? } else { self.names(base, at, &git)? };
        if !has_names {
            self.pin(base, at, true);
            self.trouble(base, at, "has links in place of protected names and is read-only");
            return Ok(());
        }

        let worktree = at.parent().unwrap_or(at);
        let Ok(leads) = leads(base.handle, base.path, at, worktree) else {
            self.pin(base, at, true);
            self.trouble(base, at, "has settings that another program holds and is read-only");
            return Ok(());
        };

        if is_top {
            self.rest.layout.directories.insert(base.path.join(at), true);
            self.writable(base, at, &git)?;
        }

        for lead in leads {
            // In a read-only top, a rule of process 1 is enough.
            if is_top && lead.starts_with(at) {
                self.rest.layout.read_only.insert(base.path.join(lead));
            } else {
                self.lead(base, &lead)?;
            }
        }

        self.modules(base, &at.join("modules"), MAX_MODULE_DEPTH)?;
        self.worktrees(base, &at.join("worktrees"))
    }

    /// Makes a `.git`, and the directories in the workspace that a `.git` file names, read-only as a whole.
    fn whole(&mut self, base: Base<'_>, at: &Path, kind: NodeKind) {
        self.pin(base, at, true);
        if kind != NodeKind::File {
            return;
        }

        // A repository outside is not mounted, so git does not work there.
        if let LinkedRepository::Inside(repositories) = gitdir::follow(base.handle, base.path, at) {
            for git in repositories {
                if !self.done.contains(&base.path.join(&git)) {
                    self.pin_above(base, &git);
                    self.pin(base, &git, true);
                }
            }
        }
    }

    /// Adds the writable mounts of a git directory.
    fn writable(&mut self, base: Base<'_>, at: &Path, git: &OwnedFd) -> io::Result<()> {
        let is_directory =
            |name: &str| Ok::<_, Errno>(openat::node_at(git, Path::new(name))? == Node::Directory);
        for name in WRITABLE {
            // Without `info`, a command could create `info/alternates` in a writable mount. Process 1 refuses it.
            if !is_directory(name)? || name == "objects" && !is_directory("objects/info")? {
                continue;
            }

            self.pin(base, &at.join(name), false);
            self.rest.layout.writable.insert(base.path.join(at).join(name));
            if name == "objects" {
                self.pin(base, &at.join("objects/info"), true);
            }
        }
        Ok(())
    }

    /// Pins the protected names of a repository. False if that is impossible.
    fn names(&mut self, base: Base<'_>, at: &Path, git: &OwnedFd) -> io::Result<bool> {
        let path = base.path.join(at);
        self.placeholders.join(git, &path)?;

        for parent in PARENTS {
            if !self.one_name(base, at, git, parent, PlaceholderKind::Directory, false)? {
                return Ok(false);
            }
        }

        for name in NAMES {
            if !self.one_name(base, at, git, name, placeholder_of(name), true)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn one_name(
        &mut self,
        base: Base<'_>,
        at: &Path,
        git: &OwnedFd,
        name: &str,
        shape: PlaceholderKind,
        read_only: bool,
    ) -> io::Result<bool> {
        let name = Path::new(name);
        let mut node = openat::node_at(git, name)?;
        if node == Node::Missing {
            self.placeholders.make(git, &base.path.join(at), name, shape)?;
            // Another program may have created a node of another kind.
            node = openat::node_at(git, name)?;
        }

        let fits = matches!(node, Node::Directory) == (shape == PlaceholderKind::Directory);
        if node == Node::Other || !fits {
            return Ok(false);
        }
        self.pin(base, &at.join(name), read_only);
        Ok(true)
    }

    /// Pins a file or directory that a repository's configuration names.
    fn lead(&mut self, base: Base<'_>, lead: &Path) -> io::Result<()> {
        match openat::node_at(base.handle, lead)? {
            Node::Directory | Node::File => {
                self.pin_above(base, lead);
                self.pin(base, lead, true);
            }
            Node::Missing => {
                self.trouble(
                    base,
                    lead,
                    "is named by git's configuration, does not exist and can be made",
                );
            }
            Node::Other => {
                self.trouble(base, lead, "is named by git's configuration and reached by a link");
            }
        }
        Ok(())
    }

    /// Protects submodules: directories at any depth of `modules` that look like a repository.
    fn modules(&mut self, base: Base<'_>, at: &Path, depth: usize) -> io::Result<()> {
        let Some(names) = self.children(base, at)? else { return Ok(()) };
        if self.settings.mode == GitProtection::Names {
            self.pin(base, at, false);
        }

        for name in names {
            let child = at.join(&name);
            let is_repository = MODULE_MARKS.iter().any(|mark| {
                openat::node_at(base.handle, &child.join(mark)).is_ok_and(|n| n != Node::Missing)
            });
            if is_repository {
                self.git_directory(base, &child)?;
            } else if depth == 0 {
                self.trouble(base, &child, "is too deep for a submodule and not protected");
            } else {
                self.modules(base, &child, depth - 1)?;
            }
        }
        Ok(())
    }

    /// Pins the files of linked worktrees that name the repository and its settings.
    fn worktrees(&mut self, base: Base<'_>, at: &Path) -> io::Result<()> {
        let Some(names) = self.children(base, at)? else { return Ok(()) };
        if self.settings.mode == GitProtection::Top {
            for name in names {
                let path = base.path.join(at).join(name);
                let file = gitdir::named_by(base.handle, base.path, &path);
                let is_visible = file.as_ref().is_some_and(|file| self.sees(file));
                self.note_unseen(file.filter(|_| !is_visible), &path);
                self.rest.layout.directories.insert(path, is_visible);
            }
            return Ok(());
        }

        self.pin(base, at, false);
        for name in names {
            let child = at.join(&name);
            let path = base.path.join(&child);
            let file =
                gitdir::named_by(base.handle, base.path, &path).filter(|file| !self.sees(file));
            self.note_unseen(file, &path);

            let git = openat::open_directory(base.handle, &child)?;
            self.pin(base, &child, false);
            self.placeholders.join(&git, &base.path.join(&child))?;
            // Git creates the first two with the worktree. The third may be missing, and a command could create it.
            for (name, make) in [("gitdir", false), ("commondir", false), ("config.worktree", true)]
            {
                let is_missing = openat::node_at(&git, Path::new(name))? == Node::Missing;
                let can_be = make || !is_missing;
                if can_be
                    && !self.one_name(base, &child, &git, name, PlaceholderKind::EmptyFile, true)?
                {
                    self.pin(base, &child, true);
                    self.trouble(
                        base,
                        &child,
                        "has links in place of protected names and is read-only",
                    );
                }
            }
        }
        Ok(())
    }

    /// Returns true if the session sees the `.git` file of a linked worktree.
    fn sees(&self, file: &Path) -> bool {
        self.settings.visible.iter().any(|root| file.starts_with(root))
    }

    /// Notes a worktree that the session does not see. A command could have made the git directory at `path` to learn
    /// whether the `file` exists, so it only counts if it names that directory.
    fn note_unseen(&mut self, file: Option<PathBuf>, path: &Path) {
        let Some(file) = file.filter(|file| file.file_name() == Some(OsStr::new(".git"))) else {
            return;
        };
        let Some(worktree) = file.parent() else { return };

        let text = openat::read_own(&file, openat::MAX_FILE).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let back = text.strip_prefix("gitdir:").map(|back| worktree.join(back.trim()));
        if back.and_then(|back| openat::normalise(&back)).as_deref() == Some(path) {
            self.rest.unseen_worktrees.push(worktree.to_owned());
        }
    }

    /// Returns the names of the directories in a directory. `None` if the directory does not exist.
    fn children(&mut self, base: Base<'_>, at: &Path) -> io::Result<Option<Vec<PathBuf>>> {
        self.check()?;
        match openat::node_at(base.handle, at)? {
            Node::Directory => {}
            Node::Missing => return Ok(None),
            Node::File | Node::Other => {
                self.trouble(base, at, "is not a directory and cannot be pinned");
                return Ok(None);
            }
        }

        let directory = openat::open_directory(base.handle, at)?;
        let mut names = Vec::new();
        for entry in Dir::read_from(&directory)? {
            let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned();
            if name == "." || name == ".." || openat::node(&directory, &name)? != Node::Directory {
                continue;
            }
            if names.len() == MAX_CHILDREN {
                // A command may have created them so that some stay unprotected. Process 1 changes nothing in
                // directories that are not in the layout.
                self.trouble(base, at, "has too many directories, and at least some are read-only");
                if self.settings.mode == GitProtection::Names {
                    self.pin(base, at, true);
                }
                break;
            }
            names.push(PathBuf::from(name));
        }
        Ok(Some(names))
    }

    /// Protects the repository of a `.git` file.
    fn git_file(&mut self, base: Base<'_>, at: &Path) -> io::Result<()> {
        self.pin(base, at, true);

        match gitdir::follow(base.handle, base.path, at) {
            LinkedRepository::Inside(repositories) => {
                for git in repositories {
                    self.pin_above(base, &git);
                    self.git_directory(base, &git)?;
                }
            }
            LinkedRepository::Outside(main) => {
                // Several worktrees in the workspace can belong to one repository.
                if self.rest.repositories.iter().any(|known| known.path == main.path) {
                    return Ok(());
                }
                let outside = Base { handle: main.handle.as_fd(), path: &main.path };
                self.git_directory(outside, Path::new(""))?;
                self.rest.repositories.push(main);
            }
            LinkedRepository::Nowhere => self.trouble(
                base,
                at,
                "leads to a repository that does not lead back, belongs to another user or is reached by a link; \
                 git does not work there",
            ),
        }

        Ok(())
    }
}
