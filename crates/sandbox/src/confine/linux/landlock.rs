//! Landlock: limits the files, sockets and processes that this process and its children reach, independent of the
//! mounts. It is the second layer inside namespaces, and the only one for files in tier D. Called by `enter`.

use super::error::{ConfineError, StepContext};
use super::sys;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Newest Landlock version that this file supports. On an older kernel, missing rights are omitted. The choice of the
/// tier checks the minimum version.
const KNOWN: ABI = ABI::V9;

/// Rights for a file, or for a directory and everything inside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileRights {
    /// Read, list and run programs.
    Read,
    /// Read and list, without running programs.
    ReadFiles,
    /// Read and write everything.
    Write,
    /// List this directory only. For directories that contain granted ones.
    List,
    /// Read and change the content of existing files.
    Change,
}

impl FileRights {
    fn bits(self) -> BitFlags<AccessFs> {
        match self {
            Self::Read => AccessFs::from_read(KNOWN),
            Self::ReadFiles => AccessFs::ReadFile | AccessFs::ReadDir,
            Self::Write => AccessFs::from_all(KNOWN),
            Self::List => AccessFs::ReadDir.into(),
            Self::Change => AccessFs::ReadFile | AccessFs::WriteFile,
        }
    }
}

/// A file or directory and the rights for it.
#[derive(Debug)]
pub struct FileRule {
    /// Open handle, so that no program can swap a name between the check and the rule.
    pub what: OwnedFd,
    /// Rights for `what`.
    pub rights: FileRights,
}

impl FileRule {
    /// Opens `path` without following links. `None` if it does not exist or contains a link, which was created after
    /// the path was resolved.
    ///
    /// # Errors
    /// The system refuses for another reason.
    pub fn open(path: &Path, rights: FileRights) -> Result<Option<Self>, ConfineError> {
        let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let opened = match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
            // A command has no `openat2` (see `commands`). In safe mode it only opens fixed paths here.
            Err(Errno::NOSYS) => openat(CWD, path, flags, Mode::empty()),
            opened => opened,
        };
        match opened {
            Ok(what) => Ok(Some(Self { what, rights })),
            Err(errno) if sys::is_missing(errno) || errno == Errno::LOOP => Ok(None),
            Err(errno) => Err(errno).step_on("open for a Landlock rule", path),
        }
    }
}

/// Rules that the kernel enforces.
#[derive(Debug)]
pub(crate) struct LandlockRules {
    /// Rules for files. Files without a rule cannot be opened.
    pub(crate) files: Vec<FileRule>,
    /// True to forbid TCP completely. False inside a separate network namespace, where the worker keeps its loopback.
    pub(crate) forbid_tcp: bool,
}

/// Applies the rules permanently to this thread and its children, together with both scopes: no signals to processes
/// outside, and no connections to their abstract sockets. Sets `no_new_privs`.
pub(crate) fn apply(rules: LandlockRules) -> Result<(), ConfineError> {
    let status = restrict(rules).step("restrict by Landlock")?;
    match status {
        RulesetStatus::NotEnforced => {
            Err(ConfineError::new("restrict by Landlock", "the kernel does not enforce it"))
        }
        RulesetStatus::PartiallyEnforced | RulesetStatus::FullyEnforced => Ok(()),
    }
}

fn restrict(rules: LandlockRules) -> Result<RulesetStatus, std::io::Error> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(KNOWN))
        .and_then(|ruleset| ruleset.scope(Scope::from_all(KNOWN)))
        .map_err(std::io::Error::other)?;

    if rules.forbid_tcp {
        ruleset =
            ruleset.handle_access(AccessNet::from_all(KNOWN)).map_err(std::io::Error::other)?;
    }

    let mut created = ruleset.create().map_err(std::io::Error::other)?;
    for rule in rules.files {
        created = add(created, &rule)?;
    }
    Ok(created.restrict_self().map_err(std::io::Error::other)?.ruleset)
}

fn add(created: RulesetCreated, rule: &FileRule) -> Result<RulesetCreated, std::io::Error> {
    let mode = fstat(&rule.what)?.st_mode;
    let bits = if FileType::from_raw_mode(mode) == FileType::Directory {
        rule.rights.bits()
    } else {
        // The kernel refuses directory rights for a file.
        rule.rights.bits() & AccessFs::from_file(KNOWN)
    };
    if bits.is_empty() {
        return Ok(created);
    }
    created.add_rule(PathBeneath::new(rule.what.as_fd(), bits)).map_err(std::io::Error::other)
}
