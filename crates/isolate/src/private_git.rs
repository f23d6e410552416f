//! The repository of a copy: its own references, index and harmless settings. It borrows the objects of the workspace's
//! repository, which the session sees read-only, and has no hooks.

use crate::error::{IsolateError, OnFile as _};
use crate::manifest::CopyPaths;
use crate::node::ContentHash;
use crate::tree::{Tree, is_absent, list};
use quackd_protocol::isolate::OBJECTS_INSIDE;
use quackd_sandbox::git_config::{Entry, parse, to_text};
use rustix::fs::{FileType, Mode, RenameFlags};
use sha2::{Digest as _, Sha256};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

/// Maximum size of a copied file, in bytes. The largest is the index.
const MAX_BYTES: u64 = 512 * 1024 * 1024;

/// Maximum size of a file that is parsed, in bytes.
const MAX_TEXT_BYTES: u64 = 1024 * 1024;

/// Maximum size of a file with references whose changes are noticed, in bytes.
const MAX_PACKED_BYTES: u64 = 64 * 1024 * 1024;

/// Maximum number of loose references, and their depth.
const MAX_REFERENCES: usize = 100_000;
const MAX_DEPTH: usize = 16;

/// Settings that a copy takes over, by section. They run nothing and name no file.
const SETTINGS: &[(&str, &[&str])] = &[
    (
        "core",
        &[
            "repositoryformatversion",
            "filemode",
            "ignorecase",
            "precomposeunicode",
            "autocrlf",
            "eol",
            "safecrlf",
            "symlinks",
            "quotepath",
            "whitespace",
            "sparsecheckout",
            "sparsecheckoutcone",
        ],
    ),
    ("user", &["name", "email"]),
    ("remote", &["url", "pushurl", "fetch", "tagopt"]),
    ("branch", &["remote", "merge", "rebase"]),
    ("extensions", &["objectformat", "refstorage"]),
    ("init", &["defaultbranch"]),
    ("pull", &["rebase"]),
    ("merge", &["conflictstyle"]),
];

/// Settings of every copy. Its files keep their times, but have other inodes: with these settings the index stays valid.
const OWN_SETTINGS: &str = "[core]\n\tbare = false\n\tlogallrefupdates = true\n\tcheckStat = minimal\n\ttrustctime = false\n";

/// Directories of a repository. For a linked worktree they differ.
struct Repository {
    /// HEAD and index.
    own: Tree,
    /// References, settings and objects.
    common: Tree,
    common_path: PathBuf,
}

/// Creates `.git` in the copy. Returns the directory of objects that it borrows, and notes.
pub(crate) fn make(
    workspace: &Path,
    base: &Tree,
    copy: &Tree,
) -> Result<(Option<PathBuf>, Vec<String>), IsolateError> {
    let git = Path::new(".git");
    if base.stat(git).on("read", git)?.is_none() {
        return Ok((None, Vec::new()));
    }
    let repository = match repository(workspace, base) {
        Ok(repository) => repository,
        Err(error) => {
            return Ok((
                None,
                vec![format!("the copy has no repository: .git cannot be used: {error}")],
            ));
        }
    };

    let mut writing = Writing { copy, left: MAX_REFERENCES };
    // Git takes a directory without `objects` and `refs` for no repository.
    writing.directory("objects/pack")?;
    writing.directory("objects/info")?;
    writing.directory("refs/heads")?;

    let Repository { own, common, common_path } = &repository;
    for name in ["HEAD", "index", "ORIG_HEAD", "info/sparse-checkout"] {
        writing.file(own, Path::new(name))?;
    }

    // With `core.splitIndex`, the index names a second file.
    for entry in list(own.top(), MAX_REFERENCES).on("list", git)? {
        if entry.name.as_encoded_bytes().starts_with(b"sharedindex.") {
            writing.file(own, Path::new(&entry.name))?;
        }
    }

    for name in ["packed-refs", "shallow", "info/exclude", "info/attributes"] {
        writing.file(common, Path::new(name))?;
    }
    for name in ["refs", "reftable"] {
        writing.all(common, Path::new(name), 0)?;
    }

    let config = text(common, Path::new("config")).on("read", &git.join("config"))?;
    let kept: Vec<Entry> = parse(&config).into_iter().filter(is_kept).collect();
    writing.write("config", format!("{}{OWN_SETTINGS}", to_text(kept.iter())).as_bytes())?;
    // The copy has no objects of the past. The session sees those of the workspace under this path.
    writing.write("objects/info/alternates", format!("{OBJECTS_INSIDE}\n").as_bytes())?;

    let mut notes = Vec::new();
    if common.stat(Path::new("objects/info/alternates")).is_ok_and(|stat| stat.is_some()) {
        notes.push(
            "the repository borrows objects of another one, which the copy does not see".to_owned(),
        );
    }
    Ok((Some(common_path.join("objects")), notes))
}

/// Names in a repository that exist during a longer work of git, or that have commits which no reference names.
const WORK: &[&str] = &[
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "BISECT_START",
    "rebase-merge",
    "rebase-apply",
    "sequencer",
    "modules",
    "worktrees",
];

/// Whether the copy's repository has work that a new one would not have.
pub(crate) fn has_work(copy: &Tree) -> bool {
    let git = Path::new(".git");
    WORK.iter().any(|name| copy.stat(&git.join(name)).is_ok_and(|stat| stat.is_some()))
}

/// Replaces `.git` of the copy in one step with a new one, if its references still are `known`. Returns those of the new
/// one. The earlier one is kept until the next time.
pub(crate) fn renew(
    workspace: &Path,
    base: &Tree,
    copy: &Tree,
    known: Option<ContentHash>,
    paths: &CopyPaths,
) -> Result<Option<ContentHash>, IsolateError> {
    let (staged, replaced) = (paths.staged_git(), paths.replaced_git());
    // An interrupted refresh may have left it.
    remove_tree(&staged)?;
    std::fs::create_dir(&staged).on("create", &staged)?;

    let new = Tree::open(&staged).on("open", &staged)?;
    let (objects, _) = make(workspace, base, &new)?;
    let references = references_of_copy(&new);
    if objects.is_none() || references.is_none() {
        return Ok(None);
    }

    let exchange = || {
        let flags = RenameFlags::EXCHANGE;
        rustix::fs::renameat_with(new.top(), ".git", copy.top(), ".git", flags)
            .on("replace", Path::new(".git"))
    };
    exchange()?;
    // A command of the session may have committed since the decision.
    if references_of_copy(&new) != known {
        exchange()?;
        return Ok(None);
    }

    remove_tree(&replaced)?;
    rustix::fs::rename(&staged, &replaced).on("keep", &replaced)?;
    Ok(references)
}

fn remove_tree(path: &Path) -> Result<(), IsolateError> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).on("remove", path),
        _ => Ok(()),
    }
}

/// Digest of the references of the workspace's repository. `None` without one, or with too many of them.
pub(crate) fn references_of_workspace(workspace: &Path, base: &Tree) -> Option<ContentHash> {
    let Repository { own, common, .. } = repository(workspace, base).ok()?;
    references(&own, &common).ok()
}

/// As [`references_of_workspace`], of the copy's repository.
pub(crate) fn references_of_copy(copy: &Tree) -> Option<ContentHash> {
    let git = copy.below(Path::new(".git")).ok()?;
    references(&git, &git).ok()
}

fn references(own: &Tree, common: &Tree) -> io::Result<ContentHash> {
    let mut digest = ReferenceDigest { hasher: Sha256::new(), n_left: MAX_REFERENCES };
    digest.file(own, Path::new("HEAD"))?;
    digest.file(common, Path::new("packed-refs"))?;
    for name in ["refs", "reftable"] {
        digest.all(common, Path::new(name), 0)?;
    }
    Ok(digest.hasher.into())
}

/// Hashes the files with references. A session may have written any of them.
struct ReferenceDigest {
    hasher: Sha256,
    /// Number of files that may still be read.
    n_left: usize,
}

impl ReferenceDigest {
    /// Adds a file, if it exists.
    fn file(&mut self, tree: &Tree, path: &Path) -> io::Result<()> {
        let file = match tree.file(path) {
            Err(error) if is_absent(&error) => return Ok(()),
            opened => opened?,
        };
        let mut content = Vec::new();
        file.take(MAX_PACKED_BYTES + 1).read_to_end(&mut content)?;
        if MAX_PACKED_BYTES < content.len() as u64 {
            return Err(io::ErrorKind::FileTooLarge.into());
        }

        let name = path.as_os_str().as_encoded_bytes();
        // With the lengths, no other files have the same input.
        self.hasher.update(format!("{} {} ", name.len(), content.len()));
        self.hasher.update(name);
        self.hasher.update(&content);
        Ok(())
    }

    /// Adds the files of a directory, if it exists.
    fn all(&mut self, tree: &Tree, path: &Path, depth: usize) -> io::Result<()> {
        let directory = match tree.directory(path) {
            Err(error) if is_absent(&error) => return Ok(()),
            opened => opened?,
        };

        for entry in list(directory.as_fd(), self.n_left)? {
            self.n_left = self.n_left.saturating_sub(1);
            let at = path.join(&entry.name);
            match entry.kind() {
                FileType::Directory if depth < MAX_DEPTH => self.all(tree, &at, depth + 1)?,
                FileType::RegularFile => self.file(tree, &at)?,
                _ => {}
            }
        }
        Ok(())
    }
}

fn is_kept(entry: &Entry) -> bool {
    SETTINGS
        .iter()
        .any(|(section, keys)| entry.section == *section && keys.contains(&entry.key.as_str()))
}

/// Opens the repository of the workspace.
fn repository(workspace: &Path, base: &Tree) -> io::Result<Repository> {
    let kind = base.stat(Path::new(".git"))?.map(|stat| FileType::from_raw_mode(stat.st_mode));
    match kind {
        Some(FileType::Directory) => directory(workspace),
        Some(FileType::RegularFile) => linked(workspace, base),
        _ => Err(io::Error::other("it is neither a directory nor a file")),
    }
}

fn directory(workspace: &Path) -> io::Result<Repository> {
    let common_path = workspace.canonicalize()?.join(".git");
    let own = Tree::open(&common_path)?;
    let common = Tree::open(&common_path)?;
    // A link would lead to the objects of another repository.
    drop(common.directory(Path::new("objects"))?);
    Ok(Repository { own, common, common_path })
}

/// Finds the repository of a linked worktree. It must name this workspace as one of its worktrees: otherwise a session
/// could write a `.git` that names any repository, and read that.
fn linked(workspace: &Path, base: &Tree) -> io::Result<Repository> {
    let named = text(base, Path::new(".git"))?;
    let named = named.trim_end().strip_prefix("gitdir: ").unwrap_or_default().to_owned();
    let workspace = workspace.canonicalize()?;
    let own_path = workspace.join(named).canonicalize()?;
    let own = Tree::open(&own_path)?;

    let back = text(&own, Path::new("gitdir"))?;
    let back = own_path.join(back.trim_end());
    if back.parent().and_then(|above| above.canonicalize().ok()) != Some(workspace) {
        return Err(io::Error::other("the repository does not list this worktree"));
    }

    let common_path =
        own_path.join(text(&own, Path::new("commondir"))?.trim_end()).canonicalize()?;
    let common = Tree::open(&common_path)?;
    // As in `directory`: a link would lead to the objects of another repository.
    drop(common.directory(Path::new("objects"))?);
    Ok(Repository { own, common, common_path })
}

/// Reads a short text file.
fn text(tree: &Tree, path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    tree.file(path)?.take(MAX_TEXT_BYTES + 1).read_to_end(&mut bytes)?;
    if MAX_TEXT_BYTES < bytes.len() as u64 {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

struct Writing<'a> {
    copy: &'a Tree,
    /// Number of references that may still be copied.
    left: usize,
}

impl Writing<'_> {
    fn directory(&self, path: &str) -> Result<(), IsolateError> {
        let path = Path::new(".git").join(path);
        // `place_made` makes the directories above the last name.
        self.copy.place_made(&path.join("x")).on("create", &path).map(drop)
    }

    fn write(&self, path: &str, content: &[u8]) -> Result<(), IsolateError> {
        let path = Path::new(".git").join(path);
        let place = self.copy.place_made(&path).on("create", &path)?;
        let mut file = place.create(&place.name, Mode::from_raw_mode(0o644)).on("create", &path)?;
        file.write_all(content).on("write", &path)
    }

    /// Copies a file, if it exists.
    fn file(&self, from: &Tree, path: &Path) -> Result<(), IsolateError> {
        let file = match from.file(path) {
            Err(error) if is_absent(&error) => return Ok(()),
            opened => opened.on("open", path)?,
        };

        let at = Path::new(".git").join(path);
        let place = self.copy.place_made(&at).on("create", &at)?;
        let mut target = place.create(&place.name, Mode::from_raw_mode(0o644)).on("create", &at)?;
        // One byte more shows that the file is too large.
        let copied = io::copy(&mut file.take(MAX_BYTES + 1), &mut target).on("copy", &at)?;
        if MAX_BYTES < copied {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge)).on("copy", &at);
        }
        Ok(())
    }

    /// Copies the files of a directory, if it exists.
    fn all(&mut self, from: &Tree, path: &Path, depth: usize) -> Result<(), IsolateError> {
        let directory = match from.directory(path) {
            Err(error) if is_absent(&error) => return Ok(()),
            opened => opened.on("open", path)?,
        };

        for entry in list(directory.as_fd(), self.left).on("list", path)? {
            self.left = self.left.saturating_sub(1);
            let at = path.join(&entry.name);
            match entry.kind() {
                FileType::Directory if depth < MAX_DEPTH => self.all(from, &at, depth + 1)?,
                FileType::RegularFile => self.file(from, &at)?,
                _ => {}
            }
        }
        Ok(())
    }
}
