//! Carries out what commands may change at the top of git directories, which they see read-only. Process 1 holds a
//! writable mount of each git directory that has no path, and resolves names under that handle only, without links.

use super::git_rules::{GitLayout, GitRule};
use super::own_files::{FileId, OwnFiles};
use rustix::fs::{
    AtFlags, FileType, MemfdFlags, Mode, OFlags, RenameFlags, ResolveFlags, chmod, fcntl_setfl,
    memfd_create, mkdirat, open, openat2, renameat_with, unlinkat,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Maximum number of attempts to open a file that is created and removed at the same time.
const MAX_ATTEMPTS: usize = 16;

/// Handle of a name, without links on the path to it.
const HANDLE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);
const RESOLVE: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// A git directory and its writable mount.
pub(crate) type TopMount = (PathBuf, OwnedFd);

/// Answer to a suspended call.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The kernel carries out the call as the command made it.
    Continue,
    /// The call has succeeded.
    Done,
    /// The call has opened this file. With a name, the call has also created it.
    Opened(OwnedFd, Option<CreatedName>),
}

/// A file that a call has created.
#[derive(Debug)]
pub(crate) struct CreatedName {
    parent: OwnedFd,
    name: std::ffi::OsString,
    id: FileId,
}

impl CreatedName {
    /// Removes the file again: the caller was killed before it got it, or the call is repeated after a signal.
    pub(crate) fn remove(self) {
        let handle = openat2(&self.parent, &self.name, HANDLE, Mode::empty(), RESOLVE);
        // By now, another program may have put its own file there.
        if handle.and_then(|handle| FileId::of(&handle)).is_ok_and(|(id, _)| id == self.id) {
            unlinkat(&self.parent, &self.name, AtFlags::empty()).ok();
        }
    }
}

/// Arguments of an `open` that can write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenArguments {
    pub(crate) flags: OFlags,
    /// Mode of a new file, reduced by the caller's umask.
    pub(crate) mode: Mode,
}

/// Writes in the git directories of one worker.
#[derive(Debug)]
pub(crate) struct GitWriter {
    mounts: GitMounts,
    own: OwnFiles,
}

#[derive(Debug)]
struct GitMounts {
    layout: GitLayout,
    tops: Vec<TopMount>,
}

/// One name at the top of a git directory.
struct Target<'a> {
    top: &'a OwnedFd,
    /// Path of the directory under `top`.
    parent: &'a Path,
    name: &'a OsStr,
    rule: GitRule,
    /// True for the `HEAD` of a git directory. Git replaces it by a rename. Without it, git takes a directory above for
    /// the repository.
    is_head: bool,
}

/// The node with a name.
struct Found {
    handle: OwnedFd,
    id: FileId,
    kind: FileType,
}

impl GitWriter {
    pub(crate) fn new(layout: GitLayout, tops: Vec<TopMount>) -> Self {
        Self { mounts: GitMounts { layout, tops }, own: OwnFiles::default() }
    }

    /// Returns true if a normalized absolute path is in one of the git directories.
    pub(crate) fn contains(&self, path: &Path) -> bool {
        self.mounts.tops.iter().any(|(at, _)| path.starts_with(at))
    }

    /// Opens a file for writing.
    ///
    /// # Errors
    /// Number for the caller.
    pub(crate) fn open(&mut self, path: &Path, call: OpenArguments) -> Result<Answer, Errno> {
        let Some(target) = self.mounts.target(path) else { return Ok(Answer::Continue) };
        let creates = call.flags.contains(OFlags::CREATE);

        if target.rule == GitRule::SettingsLock {
            let has_lock = target.find()?.is_some();
            return match (has_lock, creates) {
                (false, true) => {
                    let private = memfd_create("config.lock", MemfdFlags::CLOEXEC)?;
                    Ok(Answer::Opened(private, None))
                }
                _ => Ok(Answer::Continue),
            };
        }

        let parent = target.open_parent()?;
        for _ in 0..MAX_ATTEMPTS {
            if let Some(found) = target.find_in(&parent)? {
                let is_new = creates && call.flags.contains(OFlags::EXCL);
                if is_new
                    || target.is_head
                    || found.kind != FileType::RegularFile
                    || !self.own.may_change(&target, &found)
                {
                    return Ok(Answer::Continue);
                }
                return reopen(&found.handle, call.flags).map(|file| Answer::Opened(file, None));
            }

            if !creates {
                return Err(Errno::NOENT);
            }
            if !self.own.may_create(&target, &parent)? {
                return Ok(Answer::Continue);
            }

            // Without `O_EXCL`, a file that another program creates now would count as the session's.
            let flags = call.flags | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            match openat2(&parent, target.name, flags, call.mode, RESOLVE) {
                Ok(file) => {
                    let id = FileId::of(&file)?.0;
                    let name = target.name.to_owned();
                    self.own.insert(id);
                    return Ok(Answer::Opened(file, Some(CreatedName { parent, name, id })));
                }
                // Another program created it. The next attempt finds it.
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
        Err(Errno::BUSY)
    }

    /// Creates a directory.
    ///
    /// # Errors
    /// Number for the caller.
    pub(crate) fn make_directory(&mut self, path: &Path, mode: Mode) -> Result<Answer, Errno> {
        let Some(target) = self.mounts.target(path) else { return Ok(Answer::Continue) };
        let parent = target.open_parent()?;
        if !self.own.may_create(&target, &parent)? {
            return Ok(Answer::Continue);
        }

        mkdirat(&parent, target.name, mode)?;
        // Another program may have replaced it. Then it does not count as the session's.
        if let Some(made) = target.find_in(&parent)? {
            self.own.insert(made.id);
        }
        Ok(Answer::Done)
    }

    /// Removes a file, or an empty directory.
    ///
    /// # Errors
    /// Number for the caller.
    pub(crate) fn remove(&mut self, path: &Path, is_directory: bool) -> Result<Answer, Errno> {
        let Some(target) = self.mounts.target_or_mount(path) else { return Ok(Answer::Continue) };
        if target.rule == GitRule::SettingsLock {
            return target.answer_for_private_lock();
        }

        let parent = target.open_parent()?;
        // A read-only mount would hide from git that the name does not exist.
        let found = target.find_in(&parent)?.ok_or(Errno::NOENT)?;
        if !self.own.may_change(&target, &found)
            || target.is_head
            || is_directory != (found.kind == FileType::Directory)
        {
            return Ok(Answer::Continue);
        }

        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        unlinkat(&parent, target.name, flags)?;
        self.own.remove(&found.id);
        Ok(Answer::Done)
    }

    /// Renames within one git directory. Other renames cross mounts, and the kernel refuses them.
    ///
    /// # Errors
    /// Number for the caller.
    pub(crate) fn rename(
        &mut self,
        from: &Path,
        to: &Path,
        flags: RenameFlags,
    ) -> Result<Answer, Errno> {
        let (Some(source), Some(target)) =
            (self.mounts.target_or_mount(from), self.mounts.target_or_mount(to))
        else {
            return Ok(Answer::Continue);
        };

        let is_in_mounts = source.rule == GitRule::Kernel && target.rule == GitRule::Kernel;
        if is_in_mounts || !std::ptr::eq(source.top, target.top) {
            return Ok(Answer::Continue);
        }
        if source.rule == GitRule::SettingsLock {
            // The error that commands get for settings that are a mount.
            return Err(Errno::BUSY);
        }

        let from_parent = source.open_parent()?;
        let to_parent = target.open_parent()?;
        for _ in 0..MAX_ATTEMPTS {
            let moved = source.find_in(&from_parent)?.ok_or(Errno::NOENT)?;
            let replaced = target.find_in(&to_parent)?;
            let may_be_placed = match &replaced {
                Some(replaced) => self.own.may_change(&target, replaced),
                None => self.own.may_create(&target, &to_parent)?,
            };

            // The names in a directory have no rules while it has another name, and other programs may have put files
            // there.
            let is_directory = |found: &Found| found.kind == FileType::Directory;
            let is_any_directory =
                is_directory(&moved) || replaced.as_ref().is_some_and(is_directory);
            let is_movable =
                !is_any_directory || source.rule == GitRule::Git && target.rule == GitRule::Git;
            if !may_be_placed
                || !is_movable
                || source.is_head
                || !self.own.may_change(&source, &moved)
            {
                return Ok(Answer::Continue);
            }

            // A program outside may create the name now, for a file that it renames next.
            let kept =
                if replaced.is_none() { RenameFlags::NOREPLACE } else { RenameFlags::empty() };
            match renameat_with(&from_parent, source.name, &to_parent, target.name, flags | kept) {
                Ok(()) => {
                    // After an exchange, the file exists under the other name.
                    if let Some(replaced) =
                        replaced.filter(|_| !flags.contains(RenameFlags::EXCHANGE))
                    {
                        self.own.remove(&replaced.id);
                    }
                    return Ok(Answer::Done);
                }
                // Only `kept` forbade it. The next attempt finds the file that was created in between.
                Err(Errno::EXIST) if !flags.contains(RenameFlags::NOREPLACE) => {}
                Err(errno) => return Err(errno),
            }
        }
        Err(Errno::BUSY)
    }

    /// Changes the permissions of a file or directory.
    ///
    /// # Errors
    /// Number for the caller.
    pub(crate) fn change_mode(&mut self, path: &Path, mode: Mode) -> Result<Answer, Errno> {
        let Some(target) = self.mounts.target(path) else { return Ok(Answer::Continue) };
        if target.rule == GitRule::SettingsLock {
            return target.answer_for_private_lock();
        }

        let found = target.find()?.ok_or(Errno::NOENT)?;
        let has_mode = matches!(found.kind, FileType::RegularFile | FileType::Directory);
        if !has_mode || !self.own.may_change(&target, &found) {
            return Ok(Answer::Continue);
        }

        // `fchmod` refuses a handle of `O_PATH`.
        chmod(by_handle(&found.handle), mode)?;
        Ok(Answer::Done)
    }
}

impl GitMounts {
    /// Returns the name to change. `None` if the kernel decides.
    fn target<'a>(&'a self, path: &'a Path) -> Option<Target<'a>> {
        self.target_or_mount(path).filter(|target| target.rule != GitRule::Kernel)
    }

    fn target_or_mount<'a>(&'a self, path: &'a Path) -> Option<Target<'a>> {
        let (at, top) = self.tops.iter().find(|(at, _)| path.starts_with(at))?;
        let inside = path.strip_prefix(at).ok()?;
        let (parent, name) = (inside.parent()?, inside.file_name()?);
        let is_in_git_directory =
            path.parent().is_some_and(|at| self.layout.directories.contains_key(at));
        let is_head = is_in_git_directory && name == "HEAD";
        Some(Target { top, parent, name, rule: self.layout.rule(path), is_head })
    }
}

impl OwnFiles {
    fn may_change(&self, target: &Target<'_>, node: &Found) -> bool {
        match target.rule {
            GitRule::Git => true,
            GitRule::Own | GitRule::OwnDirectory => self.contains(&node.id),
            GitRule::Kernel | GitRule::SettingsLock => false,
        }
    }

    fn may_create(&self, target: &Target<'_>, parent: &OwnedFd) -> Result<bool, Errno> {
        Ok(match target.rule {
            GitRule::Git | GitRule::Own => true,
            GitRule::OwnDirectory => self.contains(&FileId::of(parent)?.0),
            GitRule::Kernel | GitRule::SettingsLock => false,
        })
    }
}

impl Target<'_> {
    fn open_parent(&self) -> Result<OwnedFd, Errno> {
        let path = if self.parent.as_os_str().is_empty() { Path::new(".") } else { self.parent };
        openat2(self.top, path, HANDLE | OFlags::DIRECTORY, Mode::empty(), RESOLVE)
    }

    fn find(&self) -> Result<Option<Found>, Errno> {
        self.find_in(&self.open_parent()?)
    }

    fn find_in(&self, parent: &OwnedFd) -> Result<Option<Found>, Errno> {
        match openat2(parent, self.name, HANDLE, Mode::empty(), RESOLVE) {
            Ok(handle) => {
                let (id, mode) = FileId::of(&handle)?;
                Ok(Some(Found { handle, id, kind: FileType::from_raw_mode(mode) }))
            }
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Succeeds for the private lock of the settings, which has no name. The kernel answers for a real one.
    fn answer_for_private_lock(&self) -> Result<Answer, Errno> {
        Ok(if self.find()?.is_some() { Answer::Continue } else { Answer::Done })
    }
}

/// Opens the file of a handle with the flags of a caller.
fn reopen(handle: &OwnedFd, flags: OFlags) -> Result<OwnedFd, Errno> {
    // The path below is a magic link to a file that exists.
    let by_name = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    // Another program's lease would delay the open, and with it the calls of all commands.
    let here = OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = open(by_handle(handle), flags.difference(by_name) | here, Mode::empty())?;

    // `O_NONBLOCK` was for the open. From here on the flags of the caller count.
    fcntl_setfl(
        &file,
        flags.intersection(OFlags::APPEND | OFlags::NONBLOCK | OFlags::DIRECT | OFlags::NOATIME),
    )?;
    Ok(file)
}

fn by_handle(handle: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", handle.as_raw_fd())
}
