//! File rules of tier D, which has Landlock only. Rules can only add rights, so every directory that is granted must
//! contain no file that must stay read-only. Called by stage 0.

use super::error::{ConfineError, StepContext};
use super::host_facts::{HostFacts, SystemDirectory};
use super::landlock::{FileRights, FileRule};
use crate::git::FoundRepositories;
use quackd_protocol::policy::Policy;
use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags, openat2};
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Maximum number of rules. A workspace with many repositories needs one rule for each directory next to a
/// repository.
const MAX_RULES: usize = 10_000;

/// Usable devices. No terminals: without a mount namespace, the user's terminals are among them. `/dev/tty` is only the
/// one that the process has already, and the worker has none.
const DEVICES: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// Returns the rules for reading and writing without namespaces. They grant no write access to a `.git` in `found`,
/// and no creating or removing of names in a directory that contains one. In such a directory, only its other
/// directories and the content of its files are writable.
///
/// # Errors
/// A file cannot be opened, the walk was not complete, the policy hides a file in a granted directory, or there are
/// too many rules.
pub fn rules_alone_blocking(
    policy: &Policy,
    facts: &HostFacts,
    workspace: BorrowedFd<'_>,
    found: &FoundRepositories,
) -> Result<Vec<FileRule>, ConfineError> {
    let written = policy.writable_roots.iter().chain(std::iter::once(&facts.places.workspace));
    if let Some(hidden) = policy.hidden.iter().find(|h| written.clone().any(|w| h.starts_with(w))) {
        let text = "rules only add rights: nothing in the workspace can be hidden in tier D";
        return Err(std::io::Error::other(text)).step_on("hide", hidden);
    }

    let mut rules = Vec::new();
    let mut push = |path: &Path, rights| -> Result<(), ConfineError> {
        rules.extend(FileRule::open(path, rights)?);
        Ok(())
    };

    for one in &facts.system {
        if let SystemDirectory::Directory(path) = one {
            push(path, FileRights::Read)?;
        }
    }

    for path in ["/proc", "/sys/devices/system/cpu"] {
        push(Path::new(path), FileRights::Read)?;
    }

    let shown = facts.shown.iter().map(|one| &one.from);
    for path in shown.chain(&facts.caches).chain(&facts.resolver) {
        push(path, FileRights::Read)?;
    }

    for device in DEVICES {
        push(Path::new(device), FileRights::Write)?;
    }
    push(&facts.places.run_dir, FileRights::Write)?;

    let rights = if policy.may_write() { FileRights::Write } else { FileRights::Read };
    for root in &policy.writable_roots {
        push(root, rights)?;
    }

    if !policy.may_write() {
        rules.push(open(workspace, Path::new("."), FileRights::Read)?);
        return Ok(rules);
    }

    if !found.complete {
        let text = "it is too large to find every repository in it, which tier D needs";
        return Err(ConfineError::new("grant the workspace", text));
    }

    let root = &facts.places.workspace;
    let closed = crate::git::git_directories_blocking(workspace, root, found);
    let closed = closed.iter().filter_map(|at| Some(at.strip_prefix(root).ok()?.to_owned()));
    grant(workspace, Path::new(""), &closed.collect::<Vec<_>>(), &mut rules)?;
    Ok(rules)
}

/// Grants a directory, or, if it contains a git directory, everything else in it.
fn grant(
    workspace: BorrowedFd<'_>,
    at: &Path,
    closed: &[PathBuf],
    rules: &mut Vec<FileRule>,
) -> Result<(), ConfineError> {
    if MAX_RULES < rules.len() {
        return Err(ConfineError::new("grant the workspace", "it needs too many rules"));
    }
    let here = if at.as_os_str().is_empty() { Path::new(".") } else { at };
    if !closed.iter().any(|git| git.starts_with(at)) {
        rules.push(open(workspace, here, FileRights::Write)?);
        return Ok(());
    }

    // A right to change names here would hold for `.git` too.
    let directory = open(workspace, here, FileRights::Read)?;
    for (name, kind) in list(workspace, here)? {
        let child = at.join(name);
        if closed.contains(&child) {
            continue;
        }
        match kind {
            FileType::Directory => grant(workspace, &child, closed, rules)?,
            FileType::RegularFile => rules.push(open(workspace, &child, FileRights::Write)?),
            _ => {}
        }
    }
    rules.push(directory);
    Ok(())
}

fn list(workspace: BorrowedFd<'_>, at: &Path) -> Result<Vec<(PathBuf, FileType)>, ConfineError> {
    let read = || {
        let directory = crate::git::open_directory(workspace, at)?;
        let mut entries = Vec::new();
        for entry in Dir::read_from(&directory)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." {
                entries.push((PathBuf::from(name), entry.file_type()));
            }
        }
        Ok::<_, rustix::io::Errno>(entries)
    };

    read().step_on("list a directory", at)
}

fn open(
    workspace: BorrowedFd<'_>,
    at: &Path,
    rights: FileRights,
) -> Result<FileRule, ConfineError> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    // A link that a command made could lead the right out of the workspace.
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let what = openat2(workspace.as_fd(), at, flags, Mode::empty(), resolve);
    Ok(FileRule { what: what.step_on("open for a Landlock rule", at)?, rights })
}
