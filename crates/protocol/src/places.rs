//! The list of directories in which a session may not work: system directories, the home directory, and their
//! parents. Used by the supervisor for workspaces and `--writable`, and by the worker's stage 0.
//!
//! This module reads no files: callers pass canonical paths. The supervisor compares device and inode numbers to
//! recognise a listed directory under another path, for example a bind mount.

use std::path::Path;

/// System directories, refused with their contents.
pub const SYSTEM: &[&str] = &[
    "/bin",
    "/boot",
    "/dev",
    "/efi",
    "/etc",
    "/gnu",
    "/lib",
    "/lib32",
    "/lib64",
    "/libexec",
    "/libo32",
    "/libx32",
    "/lost+found",
    "/nix",
    "/ostree",
    "/proc",
    "/run",
    "/sbin",
    "/snap",
    "/sys",
    "/sysroot",
    "/usr",
    "/var/account",
    "/var/adm",
    "/var/backups",
    "/var/cache",
    "/var/crash",
    "/var/db",
    "/var/empty",
    "/var/games",
    "/var/guix",
    "/var/kerberos",
    "/var/lib",
    "/var/lock",
    "/var/log",
    "/var/mail",
    "/var/nis",
    "/var/preserve",
    "/var/run",
    "/var/snap",
    "/var/spool",
    "/var/usrlocal",
    "/var/yp",
    // macOS, where /etc, /var and /tmp lead into /private.
    "/Applications",
    "/Library",
    "/Network",
    "/System",
    "/cores",
    "/private/etc",
    "/private/var/at",
    "/private/var/audit",
    "/private/var/db",
    "/private/var/log",
    "/private/var/root",
    "/private/var/run",
    "/private/var/spool",
];

/// Allowed exceptions under [`SYSTEM`]: paths with at least this many components under the directory.
const OPEN: &[(&str, usize)] =
    &[("/dev/shm", 1), ("/run/media", 1), ("/run/user", 2), ("/usr/local/src", 1), ("/usr/src", 1)];

/// Shared directories, refused themselves. Their subdirectories are allowed.
const SHARED: &[&str] = &[
    "/Users",
    "/Volumes",
    "/home",
    "/media",
    "/opt",
    "/private",
    "/private/tmp",
    "/private/var",
    "/root",
    "/tmp",
    "/var",
    "/var/home",
    "/var/opt",
    "/var/tmp",
];

/// Parent of the home directories of system services.
const SERVICE_HOMES: &str = "/var/lib";

/// Directory of the daemon's socket in the home, for a state directory with a long path.
pub const SOCKET_IN_HOME: &str = ".quackd";

/// Directory of the daemon's socket in the runtime directory of a user, for the same case, and the usual parent of the
/// runtime directories.
pub const SOCKET_IN_RUNTIME_DIR: &str = "quackd";
const RUNTIME_DIRS: &str = "/run/user";

/// Reason to refuse a directory with the daemon's socket.
pub const HOLDS_SOCKET: &str = "holds the daemon's socket";

/// Whether a path is in a usual directory of the daemon's socket. Commands that write there could replace the socket.
fn is_of_socket(path: &Path, home: &Path) -> bool {
    let in_runtime_dir = path.strip_prefix(RUNTIME_DIRS).ok().and_then(|path| path.iter().nth(1));
    path.starts_with(home.join(SOCKET_IN_HOME))
        || in_runtime_dir.is_some_and(|name| name == SOCKET_IN_RUNTIME_DIR)
}

/// Returns the reason why a session may not work in `path`, worded to follow the path, or `None` if it may. Both
/// paths must be canonical.
#[must_use]
pub fn refusal(path: &Path, home: &Path) -> Option<&'static str> {
    if path.parent().is_none() {
        return Some("is the root of the file system");
    }
    if path == home {
        return Some("is the home directory, which holds keys");
    }
    if home.starts_with(path) {
        return Some("is above the home directory, which holds keys");
    }
    if is_of_socket(path, home) {
        return Some(HOLDS_SOCKET);
    }

    // A service may have its home directory in a directory of the system.
    let in_service_home = path.starts_with(home)
        && home.parent().is_some_and(|above| above == Path::new(SERVICE_HOMES));
    let is_open = |(place, names): &(&str, usize)| {
        path.strip_prefix(place).is_ok_and(|beneath| *names <= beneath.components().count())
    };

    if in_service_home || OPEN.iter().any(is_open) {
        return None;
    }
    if SYSTEM.iter().any(|place| path.starts_with(place)) {
        return Some("belongs to the system");
    }
    let is_shared = SHARED.iter().any(|place| path == Path::new(place));
    is_shared.then_some("is a shared system directory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_the_system_and_the_home_are_refused_and_ordinary_ones_are_not() {
        for path in [
            "/",
            "/home",
            "/home/u",
            "/usr",
            "/usr/lib",
            "/usr/local/bin",
            "/usr/src",
            "/usr/local/src",
            "/etc",
            "/etc/x/y",
            "/boot/efi",
            "/lib64/x",
            "/proc/self",
            "/run",
            "/run/user/1000",
            "/run/systemd/x",
            "/dev/shm",
            "/var",
            "/var/lib",
            "/var/lib/dpkg/info",
            "/var/spool/cron",
            "/nix/store/x",
            "/snap/core",
            "/opt",
            "/tmp",
            "/var/tmp",
            "/System/Library",
            "/private/etc/x",
            "/home/u/.quackd",
            "/home/u/.quackd/x",
            "/run/user/1000/quackd",
            "/run/user/1000/quackd/x",
        ] {
            assert!(refusal(Path::new(path), Path::new("/home/u")).is_some(), "{path}");
        }
        for path in [
            "/home/u/x",
            "/home/v",
            "/home/u/.quackd-x",
            "/home/u/x/.quackd",
            "/run/user/1000/quackd-x",
            "/tmp/x",
            "/var/tmp/x",
            "/srv",
            "/srv/x",
            "/opt/x",
            "/mnt/x",
            "/media/u/stick",
            "/var/www/x",
            "/var/home/u/x",
            "/usr/src/app",
            "/usr/local/src/x",
            "/run/user/1000/x",
            "/dev/shm/x",
            "/libs/x",
            "/etcetera",
            "/workspace",
            "/private/tmp/x",
            "/Users/u/x",
        ] {
            assert_eq!(refusal(Path::new(path), Path::new("/home/u")), None, "{path}");
        }
    }

    #[test]
    fn the_home_of_a_service_may_lie_among_the_systems_directories_and_no_other_home_opens_them() {
        let in_home = |path: &str, home: &str| refusal(Path::new(path), Path::new(home));
        assert_eq!(in_home("/var/lib/ci/work", "/var/lib/ci"), None);
        assert!(in_home("/var/lib/ci", "/var/lib/ci").is_some());
        assert!(in_home("/var/lib/dpkg", "/var/lib/ci").is_some());
        assert!(in_home("/var/lib/dpkg", "/var/lib").is_some());
        assert!(in_home("/usr/lib", "/usr").is_some());
        assert!(in_home("/etc", "/").is_some());
    }
}
