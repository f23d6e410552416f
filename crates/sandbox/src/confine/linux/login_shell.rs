//! Confinement of the user's login shell while its environment is captured: its start files can read what the user can
//! read, except directories that sessions may write, and can change nothing. Called by the process that becomes the
//! shell. The process that becomes the user's git only hides the directories of sessions.
//!
//! In namespaces all mounts are read-only, directories of sessions are empty, and `/tmp` is private. Landlock and the
//! filter of system calls hold as well, and alone where the system allows no namespaces: then directories of sessions
//! are readable, and no temporary file can be made.

use super::detached::{clone_tree, new_file_system};
use super::error::{ConfineError, StepContext};
use super::landlock::{self, FileRights, FileRule, LandlockRules};
use super::privilege;
use super::seccomp;
use super::spawn::map_identity;
use super::sys::{self, MountAttributes};
use nix::libc;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::ForkResult;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, MoveMountFlags, mount_change, move_mount};
use rustix::process::{getgid, getuid};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Oldest Landlock that forbids to cut files (Linux 6.2), and the one that forbids signals (Linux 6.12).
const WITH_TRUNCATE: i32 = 3;
const WITH_SIGNALS: i32 = 6;

/// Directories for temporary files.
const TEMPORARY: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

/// Limits of each directory for temporary files, which are in memory.
const TEMPORARY_BYTES: &str = "64m";
const TEMPORARY_FILES: &str = "10000";

/// Devices that the shell can write.
const DEVICES: [&str; 4] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/tty"];

/// Whether this system can confine the shell.
#[must_use]
pub fn can_confine_login_shell() -> bool {
    WITH_TRUNCATE <= sys::landlock_version() && sys::has_seccomp_filters()
}

/// Confines this process, which must have one thread and then becomes the shell. `answer` is the pipe that the shell
/// writes. `used` are files and directories that must stay visible: the home and the shell. `hidden` are the directories
/// that sessions may write. All paths are canonical.
///
/// # Errors
/// A step failed. The shell must not be started.
pub fn become_login_shell(
    answer: &Path,
    used: &[&Path],
    hidden: &[PathBuf],
) -> Result<(), ConfineError> {
    let has_namespaces = enter_namespaces(read_only_mounts)?;

    let mut files = Vec::new();
    files.extend(FileRule::open(Path::new("/"), FileRights::Read)?);

    if has_namespaces {
        let needed = || used.iter().copied().chain([answer]);
        for at in TEMPORARY.map(Path::new) {
            // A private mount must not hide files that the shell needs.
            if !needed().any(|path| path.starts_with(at)) && mount_temporary(at)? {
                files.extend(FileRule::open(at, FileRights::Write)?);
            }
        }
        hide(hidden)?;
        privilege::drop_capabilities()?;
    } else {
        privilege::drop_held()?;
    }

    for writable in DEVICES.iter().map(Path::new).chain([answer]) {
        files.extend(FileRule::open(writable, FileRights::Change)?);
    }

    privilege::forbid_new_rights()?;
    landlock::apply(LandlockRules { files, forbid_tcp: true })?;
    let forbids_signals = sys::landlock_version() < WITH_SIGNALS;
    if !has_namespaces {
        // Start files ask whether they may write before they wait for a lock.
        seccomp::apply(&seccomp::build_for_attributes()?)?;
        seccomp::apply(&seccomp::build_against_write_checks()?)?;
    }
    seccomp::apply(&seccomp::build_for_login_shell(forbids_signals)?)
}

/// Makes `hidden` empty for this process, which must have one thread, and for the programs that it starts. Other files,
/// sockets and the network stay usable. The paths are canonical. Returns false if the system allows no namespaces.
///
/// # Errors
/// A step failed. No program of the user must be started.
pub fn hide_directories(hidden: &[PathBuf]) -> Result<bool, ConfineError> {
    let has_namespaces = enter_namespaces(private_mounts)?;
    if has_namespaces {
        hide(hidden)?;
    }
    Ok(has_namespaces)
}

/// Enters new namespaces by `enter`. Returns false if the system does not allow them.
fn enter_namespaces(enter: fn() -> Result<(), ConfineError>) -> Result<bool, ConfineError> {
    // Some systems allow a new user namespace, but nothing in it, and a process cannot leave it. So another one tries.
    match sys::fork_once().step("try namespaces")? {
        ForkResult::Child => {
            let code = if enter().is_ok() { libc::EXIT_SUCCESS } else { libc::EXIT_FAILURE };
            sys::end_process(code)
        }
        ForkResult::Parent { .. } => {
            let (_, status) = sys::wait_for_any().step("try namespaces")?;
            if status != 0 {
                return Ok(false);
            }
        }
    }

    enter().map(|()| true)
}

/// Enters a mount namespace.
fn private_mounts() -> Result<(), ConfineError> {
    // User 0 needs no user namespace, in which it could not use files of other users.
    if unshare(CloneFlags::CLONE_NEWNS).is_err() {
        split_user(CloneFlags::CLONE_NEWNS)?;
    }
    detach_mounts()
}

/// Enters a user namespace, and others.
fn split_user(others: CloneFlags) -> Result<(), ConfineError> {
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    unshare(CloneFlags::CLONE_NEWUSER | others).step("make namespaces")?;
    map_identity(uid, gid)
}

/// Keeps later mounts of the host away, and mounts of this process from the host.
fn detach_mounts() -> Result<(), ConfineError> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).step("make mounts private")
}

fn read_only_mounts() -> Result<(), ConfineError> {
    split_user(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWIPC)?;
    detach_mounts()?;
    let root = open(Path::new("/")).step("open the root")?;
    sys::set_attributes(&root, MountAttributes::UNCHANGED, true).step("make mounts read-only")
}

/// Mounts a private directory for temporary files. Returns false if there is no such directory.
fn mount_temporary(at: &Path) -> Result<bool, ConfineError> {
    let options = [("size", TEMPORARY_BYTES), ("nr_inodes", TEMPORARY_FILES), ("mode", "1777")];
    let Some(target) = existing(at)? else { return Ok(false) };
    place(&new_file_system("tmpfs", &options, MountAttributes::WRITABLE)?, &target, at)?;
    Ok(true)
}

/// Mounts an empty directory on each of these directories that exists.
fn hide(hidden: &[PathBuf]) -> Result<(), ConfineError> {
    if hidden.is_empty() {
        return Ok(());
    }

    let options = [("size", "4k"), ("nr_inodes", "2"), ("mode", "0555")];
    let empty = new_file_system("tmpfs", &options, MountAttributes::MASK)?;
    let mut is_placed = false;
    for at in hidden {
        // A missing directory may be inside one that is hidden already.
        let Some(target) = existing(at)? else { continue };
        // Before Linux 6.15, only a mount that is in a tree can be cloned.
        if is_placed {
            place(&clone_tree(&empty, "").step_on("hide", at)?, &target, at)?;
        } else {
            place(&empty, &target, at)?;
            is_placed = true;
        }
    }
    Ok(())
}

fn existing(at: &Path) -> Result<Option<OwnedFd>, ConfineError> {
    match open(at) {
        Ok(target) => Ok(Some(target)),
        Err(errno) if sys::is_missing(errno) => Ok(None),
        Err(errno) => Err(errno).step_on("open a directory to hide", at),
    }
}

fn open(at: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::DIRECTORY;
    openat2(CWD, at, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
}

fn place(tree: &OwnedFd, target: &OwnedFd, at: &Path) -> Result<(), ConfineError> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(tree, "", target, "", flags).step_on("mount", at)
}
