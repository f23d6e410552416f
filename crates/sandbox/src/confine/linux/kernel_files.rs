//! Creates `/proc` and `/dev` of a worker: new, small, and without files that change or expose the machine. Called by
//! `mounts`.

use super::detached::{clone_tree, new_file_system};
use super::empty_mounts::EmptyMounts;
use super::error::{ConfineError, StepContext};
use super::new_root::{MountTargetKind, NewRoot};
use super::sys::{self, MountAttributes};
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::os::fd::OwnedFd;
use std::path::Path;

/// Files of `/proc` that are covered: memory and keys of the kernel and of other users, and `sysrq-trigger`, which
/// can restart the machine.
const HIDDEN: &[&str] = &[
    "/proc/kcore",
    "/proc/keys",
    "/proc/key-users",
    "/proc/kmsg",
    "/proc/sysrq-trigger",
    "/proc/timer_list",
    "/proc/sched_debug",
    "/proc/vmallocinfo",
    "/proc/slabinfo",
    "/proc/latency_stats",
    "/proc/acpi",
    "/proc/scsi",
];

/// Devices that programs expect. They expose and change nothing.
const DEVICES: &[&str] =
    &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// Standard links of `/dev`.
const LINKS: &[(&str, &str)] = &[
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
    ("/dev/ptmx", "pts/ptmx"),
];

/// Maximum number of objects of each kind in the worker's user namespace. The kernel also counts them for the user,
/// so without these limits one job could use up the user's whole limit. The system call filter forbids namespaces and
/// fanotify anyway. Mount namespaces are not limited, because building the tree uses some anonymous ones.
const COUNTS: &[(&str, Share)] = &[
    ("max_inotify_instances", Share::Of { file: "max_user_instances", parts: 4, least: 16 }),
    ("max_inotify_watches", Share::Of { file: "max_user_watches", parts: 2, least: 4096 }),
    ("max_fanotify_groups", Share::None),
    ("max_fanotify_marks", Share::None),
    ("max_cgroup_namespaces", Share::None),
    ("max_ipc_namespaces", Share::None),
    ("max_net_namespaces", Share::None),
    ("max_pid_namespaces", Share::None),
    ("max_time_namespaces", Share::None),
    ("max_user_namespaces", Share::None),
    ("max_uts_namespaces", Share::None),
];

/// Share of the user's limit.
#[derive(Debug, Clone, Copy)]
enum Share {
    None,
    /// The user's limit in `/proc/sys/fs/inotify` divided by `parts`, but at least `least`.
    Of {
        file: &'static str,
        parts: u64,
        least: u64,
    },
}

/// Sets [`COUNTS`] for the current user namespace. If the kernel lacks one of the counters, that kind stays
/// unlimited: see docs/security.md.
fn limit_counts(proc: &OwnedFd) {
    for (name, share) in COUNTS {
        let value = match share {
            Share::None => Some(0),
            Share::Of { file, parts, least } => {
                let text = read_small(proc, &format!("sys/fs/inotify/{file}"));
                text.and_then(|text| text.trim().parse::<u64>().ok())
                    .map(|most| (most / parts).max(*least))
            }
        };

        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let file = openat(proc, format!("sys/user/{name}"), flags, Mode::empty());
        if let (Some(value), Ok(file)) = (value, file) {
            // A failed write leaves this kind unlimited, as a missing counter does.
            rustix::io::write(&file, value.to_string().as_bytes()).ok();
        }
    }
}

fn read_small(proc: &OwnedFd, name: &str) -> Option<String> {
    let file = openat(proc, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = [0; 32];
    let n = rustix::io::read(&file, &mut text).ok()?;
    String::from_utf8(text.get(..n)?.to_vec()).ok()
}

/// Mounts a read-only `/proc` of the new process namespace. If it were writable, user 0 could write files that affect
/// the machine, and every user could lower the score by which the kernel chooses the process to kill when memory runs
/// out.
pub(crate) fn mount_proc(root: &NewRoot, empty: &EmptyMounts) -> Result<(), ConfineError> {
    let proc = new_file_system("proc", &[], MountAttributes::WRITABLE)?;
    // Before the mount becomes read-only.
    limit_counts(&proc);
    sys::set_attributes(&proc, MountAttributes::READ_ONLY, false).step("limit /proc")?;
    root.place(&proc, Path::new("/proc"), MountTargetKind::Directory)?;
    for hidden in HIDDEN {
        empty.cover(root, Path::new(hidden))?;
    }
    Ok(())
}

/// Mounts a `/dev` with few devices, a separate set of terminals, and private shared memory.
pub(crate) fn mount_dev(root: &NewRoot, store: &NewRoot) -> Result<(), ConfineError> {
    let dev = store.make_private("dev", 0o755)?;
    root.place(&dev, Path::new("/dev"), MountTargetKind::Directory)?;
    for device in DEVICES.iter().map(Path::new) {
        let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        // The kernel lets no user namespace make devices, so those of the host are mounted.
        let host = openat(CWD, device, flags, Mode::empty()).step_on("open a device", device)?;
        let tree = clone_tree(&host, "").step_on("show a device", device)?;
        sys::set_attributes(&tree, MountAttributes::DEVICE, false).step_on("limit", device)?;
        root.place(&tree, device, MountTargetKind::File)?;
    }

    for (at, to) in LINKS {
        root.link(Path::new(at), Path::new(to))?;
    }

    let options = [("ptmxmode", "0666"), ("mode", "0600")];
    let terminals = new_file_system("devpts", &options, MountAttributes::TERMINALS)?;
    root.place(&terminals, Path::new("/dev/pts"), MountTargetKind::Directory)?;

    let shared = store.make_private("shm", 0o1777)?;
    root.place(&shared, Path::new("/dev/shm"), MountTargetKind::Directory)?;

    // Last, because the mount points were created in it.
    sys::set_attributes(&dev, MountAttributes::READ_ONLY, false).step("limit /dev")
}
