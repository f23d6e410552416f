//! Detects which layers of confinement work on this system for this user, by trying them in a process that exits
//! afterwards. Called by `quack probe`, and by stage 0 of a worker without a probe result, while the process has one
//! thread.
//!
//! A failure that may not repeat, such as too many processes, is an error and not a result. Otherwise a busy
//! system would choose a lower tier.

use super::commands::CommandFilter;
use super::detached::{clone_tree, new_file_system};
use super::error::{ConfineError, StepContext};
use super::held;
use super::spawn;
use super::sys::{self, MountAttributes};
use nix::libc;
use nix::sys::wait::WaitStatus;
use nix::unistd::ForkResult;
use quackd_protocol::tiers::Probe;
use rustix::fs::CWD;
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::pipe::{PipeFlags, pipe_with};
use std::io::{self, Read};
use std::os::fd::OwnedFd;

/// Maximum length of the test process's message in bytes.
const MAX_TEXT: u64 = 1024;

/// Messages of success: with and without overlays for caches.
const WITH_LAYERS: &str = "1";
const WITHOUT_LAYERS: &str = "0";

/// Prefix of the message of a failure that may not repeat.
const TRANSIENT: &str = "?";

/// Returns the kernel's version of Landlock, 0 without Landlock.
#[must_use]
pub fn landlock_version() -> i32 {
    sys::landlock_version()
}

/// Probes this system.
///
/// # Errors
/// This process has several threads, a step failed for lack of memory, processes or descriptors, or the test process
/// was killed.
pub fn probe_blocking() -> Result<Probe, ConfineError> {
    sys::require_single_thread().step("probe")?;
    let uid = rustix::process::geteuid();
    let mut probe = Probe {
        landlock_abi: sys::landlock_version(),
        seccomp: sys::has_seccomp_filters(),
        is_root: uid.is_root(),
        ..Probe::default()
    };

    probe.held_calls = CommandFilter::can_hold_calls() && try_held_calls()?;

    match try_namespaces(uid.as_raw(), rustix::process::getegid().as_raw()) {
        Ok(text) if text == WITH_LAYERS => probe.overlay = true,
        Ok(text) if text == WITHOUT_LAYERS => {}
        Ok(text) => match text.strip_prefix(TRANSIENT) {
            Some(text) => return Err(ConfineError::new("try namespaces", text)),
            None => probe.namespaces_fail = Some(text),
        },
        Err(error) if is_transient(&error) => return Err(error),
        Err(error) => probe.namespaces_fail = Some(error.to_string()),
    }
    Ok(probe)
}

/// Returns true if another process can answer system calls with files. Tries it in a separate process, because the
/// thread keeps its filter.
fn try_held_calls() -> Result<bool, ConfineError> {
    match sys::fork_once().step("try held calls")? {
        ForkResult::Child => sys::end_process(i32::from(!held::works())),
        ForkResult::Parent { child } => {
            let status = nix::sys::wait::waitpid(child, None);
            Ok(matches!(status, Ok(WaitStatus::Exited(_, libc::EXIT_SUCCESS))))
        }
    }
}

fn try_namespaces(uid: u32, gid: u32) -> Result<String, ConfineError> {
    let (from_child, to_parent) = pipe_with(PipeFlags::CLOEXEC).step("make a pipe")?;
    match sys::clone_into(spawn::namespaces(false)).step("make namespaces")? {
        Some(child) => {
            // Otherwise the read would not end with the child.
            drop(to_parent);
            let text = read_text(from_child);
            // Reaps this child only: other children belong to other code. Its text is the result.
            nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(child), None).ok();
            text
        }
        None => {
            let text = match try_inside(uid, gid) {
                Ok(true) => WITH_LAYERS.to_owned(),
                Ok(false) => WITHOUT_LAYERS.to_owned(),
                Err(error) if is_transient(&error) => format!("{TRANSIENT}{error}"),
                Err(error) => error.to_string(),
            };

            // Without a text, the parent reports that this process was killed.
            rustix::io::write(&to_parent, text.as_bytes()).ok();
            sys::end_process(libc::EXIT_SUCCESS)
        }
    }
}

fn read_text(from: OwnedFd) -> Result<String, ConfineError> {
    let mut text = String::new();
    let read = std::fs::File::from(from).take(MAX_TEXT).read_to_string(&mut text);
    read.step("read the result")?;
    if text.is_empty() {
        let killed =
            io::Error::new(io::ErrorKind::Interrupted, "the process that tried was killed");
        return Err(killed).step("try namespaces");
    }
    Ok(text)
}

/// Returns true if the same step may succeed later.
fn is_transient(error: &ConfineError) -> bool {
    const SHORT_OF: [libc::c_int; 4] = [libc::EAGAIN, libc::ENOMEM, libc::EMFILE, libc::ENFILE];
    error.source.kind() == io::ErrorKind::Interrupted
        || error.source.raw_os_error().is_some_and(|code| SHORT_OF.contains(&code))
}

/// Returns true if overlays also work.
fn try_inside(uid: u32, gid: u32) -> Result<bool, ConfineError> {
    spawn::map_identity(uid, gid)?;
    super::loopback::bring_up()?;
    let flags = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", flags).step("make mounts private")?;

    // The kernel refuses this if the host's /proc is partly covered, as in some containers.
    let _proc = new_file_system("proc", &[], MountAttributes::READ_ONLY)?;
    // A container may have no /usr.
    let copied = clone_tree(CWD, "/usr").or_else(|_missing| clone_tree(CWD, "/bin"));
    let _copied = copied.step("copy a mount")?;
    Ok(super::overlay::works())
}
