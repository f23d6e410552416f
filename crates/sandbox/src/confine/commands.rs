//! The additional system call filter of commands. It is installed on the thread that launches commands, and they
//! inherit it.
//!
//! - `openat2` fails with ENOSYS: its mode is in memory, which a filter cannot read, and could create a set-id file.
//!   Programs fall back to `openat`, whose mode is an argument. File tools need `openat2`.
//! - [`super::links`] creates symbolic links for commands and refuses them in git directories: the user's own git
//!   would write through them.

use super::error::{ConfineError, StepContext};
use super::links::Links;
use super::sys;
use nix::libc;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

/// Setting that controls whether one process may read the memory of another. 0 and 1 allow it for descendants.
const PTRACE_SCOPE: &str = "/proc/sys/kernel/yama/ptrace_scope";

/// The filter of a worker's commands.
#[derive(Debug, Clone, Default)]
pub struct CommandFilter {
    /// Mounts of git directories.
    mounts: BTreeSet<u64>,
}

impl CommandFilter {
    /// Creates a filter that also forbids links in the mounts at `git_directories`.
    ///
    /// # Errors
    /// `statx` fails for one of them.
    pub fn new(git_directories: &[PathBuf]) -> Result<Self, ConfineError> {
        let mount = |path: &PathBuf| {
            let found = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::MNT_ID);
            found.map(|found| found.stx_mnt_id).step_on("find the mount of a repository", path)
        };
        Ok(Self { mounts: git_directories.iter().map(mount).collect::<Result<_, _>>()? })
    }

    /// Returns true if this system lets a worker create the links of its commands. Otherwise links in git directories
    /// are only found and removed when a command ends.
    #[must_use]
    pub fn can_hold_links() -> bool {
        let scope = fs::read_to_string(PTRACE_SCOPE).ok();
        scope.and_then(|scope| scope.trim().parse().ok()).is_none_or(|scope: u32| scope <= 1)
    }

    /// Installs the filter on this thread and on the processes and threads that it starts from now on. It cannot be
    /// removed.
    ///
    /// # Errors
    /// The kernel refuses. Then this thread must not start a command.
    pub fn apply_to_thread(&self) -> Result<(), ConfineError> {
        let step = "filter the system calls of commands";
        let links =
            (!self.mounts.is_empty() && Self::can_hold_links()).then(|| self.mounts.clone());
        let Some(mounts) = links else {
            return sys::filter(&mut program(&[])).step(step);
        };
        // Start the link thread first, because it must not have the filter.
        let links = Links::start(mounts).step("start the thread that makes links")?;
        let mut program = program(Links::CALLS);
        let listener = sys::filter_with_listener(&mut program).step(step)?;
        links.serve(listener).step(step)
    }
}

/// Builds the filter. The calls in `held` wait for [`super::links`]. It need not check the architecture: the worker's
/// filter is also in force, and kills or refuses calls of another architecture.
fn program(held: &[libc::c_long]) -> Vec<libc::sock_filter> {
    let load_number = sock(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0);
    let no_such_call = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs();
    let mut program = vec![load_number];
    let calls = held.iter().map(|call| (*call, libc::SECCOMP_RET_USER_NOTIF));
    for (call, action) in calls.chain([(libc::SYS_openat2, no_such_call)]) {
        let number = u32::try_from(call).unwrap_or(u32::MAX);
        // Skip the next instruction if the call is another one.
        program.push(sock(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, number));
        program.push(sock(libc::BPF_RET | libc::BPF_K, 0, action));
    }
    program.push(sock(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW));
    program
}

fn sock(code: u32, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: u16::try_from(code).unwrap_or(0), jt: 0, jf, k }
}
