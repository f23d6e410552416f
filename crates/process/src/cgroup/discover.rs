//! Finds the control group of a process and its directory in the file system. Used by the modules next to it.
//!
//! The kernel writes both files, but other programs choose the names in them. Every unexpected line counts as "not
//! found".

use super::CgroupKind;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

/// Maximum size of the list of mounts in bytes.
const MAX_MOUNTS: u64 = 4 * 1024 * 1024;

/// Maximum size of the list of control groups of one process in bytes. It has one line for each of about 15
/// hierarchies.
const MAX_GROUPS: u64 = 128 * 1024;

/// Name and directory of a control group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CgroupLocation {
    /// Name in `/proc/PID/cgroup`.
    pub(super) cgroup: String,
    /// Path of its directory.
    pub(super) directory: PathBuf,
}

/// Finds the control group of this process.
///
/// # Errors
/// The hierarchy does not exist or is not mounted, or this process is outside of the mounted part.
pub(super) fn own(kind: CgroupKind) -> io::Result<CgroupLocation> {
    let cgroup = own_cgroup(kind)?;
    let mounts = read("/proc/self/mountinfo", MAX_MOUNTS)?;
    let directory = directory_of(kind, &cgroup, &mounts)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the hierarchy is not mounted"))?;
    Ok(CgroupLocation { cgroup, directory })
}

/// Returns the name of this process's control group. Also works if `/proc` belongs to another namespace.
///
/// # Errors
/// The hierarchy does not exist.
pub(super) fn own_cgroup(kind: CgroupKind) -> io::Result<String> {
    cgroup_in("/proc/self/cgroup", kind)
}

/// Returns the name of the control group of a process or thread.
///
/// # Errors
/// The process is gone, or the hierarchy does not exist.
pub(super) fn cgroup_of(pid: u32, kind: CgroupKind) -> io::Result<String> {
    cgroup_in(&format!("/proc/{pid}/cgroup"), kind)
}

fn cgroup_in(path: &str, kind: CgroupKind) -> io::Result<String> {
    let groups = read(path, MAX_GROUPS)?;
    parse_groups(&groups, kind).map(str::to_owned).ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn read(path: impl AsRef<Path>, limit: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    // A name that is not UTF-8 is not one of quackd's.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Finds the line of one hierarchy: `NUMBER:CONTROLLERS:NAME`.
fn parse_groups(groups: &str, kind: CgroupKind) -> Option<&str> {
    groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, name) = (fields.next()?, fields.next()?, fields.next()?);
        let fits = match kind.controller() {
            None => number == "0" && controllers.is_empty(),
            Some(expected) => controllers.split(',').any(|controller| controller == expected),
        };
        (fits && name.starts_with('/')).then_some(name)
    })
}

/// `ID PARENT DEVICE ROOT MOUNTPOINT OPTIONS … - TYPE SOURCE SUPEROPTIONS`, see proc_pid_mountinfo(5).
fn directory_of(kind: CgroupKind, cgroup: &str, mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (mount, filesystem) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let (root, point) = (unescape(mount.next()?)?, unescape(mount.next()?)?);
        let mut filesystem = filesystem.split(' ');
        let (name, options) = (filesystem.next()?, filesystem.nth(1)?);

        let fits = match kind.controller() {
            None => name == "cgroup2",
            Some(expected) => {
                name == "cgroup" && options.split(',').any(|option| option == expected)
            }
        };

        // Only a part of the hierarchy may be mounted. A name with `..` is outside of the visible part.
        let below = Path::new(cgroup).strip_prefix(root).ok().filter(|_| fits)?;
        let is_plain = below.components().all(|part| matches!(part, Component::Normal(_)));
        is_plain.then(|| Path::new(&point).join(below))
    })
}

/// Decodes the kernel's octal escapes, such as `\040` for a space.
fn unescape(field: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();

    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'\\' {
            let (digits, after) = rest.split_at_checked(3)?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()?);
            rest = after;
        } else {
            bytes.push(byte);
        }
    }

    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime shared:7 - cgroup cgroup rw,freezer
39 31 0:36 / /sys/fs/cgroup/pids\\040and rw,relatime - cgroup cgroup rw,pids,misc
41 31 0:38 /box /sys/fs/cgroup/unified rw,relatime shared:9 master:1 - cgroup2 cgroup2 rw
";

    #[test]
    fn each_kind_has_its_line() {
        let groups = "12:name=pids:/no\n8:misc,pids:/a:b/c\n6:freezer:/\n0::/d e (deleted)\n";
        assert_eq!(parse_groups(groups, CgroupKind::Pids), Some("/a:b/c"));
        assert_eq!(parse_groups(groups, CgroupKind::Freezer), Some("/"));
        assert_eq!(parse_groups(groups, CgroupKind::Unified), Some("/d e (deleted)"));
        for hostile in ["", "0", "0:", "0::", "0::x", "::::/", "1::/", "\u{fffd}:pids"] {
            assert_eq!(parse_groups(hostile, CgroupKind::Unified), None, "{hostile}");
            assert_eq!(parse_groups(hostile, CgroupKind::Pids), None, "{hostile}");
        }
    }

    #[test]
    fn a_group_is_found_where_its_hierarchy_is_mounted() {
        let find = |kind, cgroup| directory_of(kind, cgroup, HYBRID);
        assert_eq!(find(CgroupKind::Freezer, "/"), Some("/sys/fs/cgroup/freezer".into()));
        assert_eq!(find(CgroupKind::Pids, "/x/y"), Some("/sys/fs/cgroup/pids and/x/y".into()));
        assert_eq!(find(CgroupKind::Unified, "/box/y"), Some("/sys/fs/cgroup/unified/y".into()));
    }

    #[test]
    fn what_is_outside_or_garbage_is_not_found() {
        for cgroup in ["/", "/boxes", "/../box", "/box/../..", "box"] {
            assert_eq!(directory_of(CgroupKind::Unified, cgroup, HYBRID), None, "{cgroup}");
        }
        for mounts in ["", "1 2 3", "1 2 3 / - cgroup2", "1 2 3 /\\9 /p o - cgroup2 x rw"] {
            assert_eq!(directory_of(CgroupKind::Unified, "/", mounts), None, "{mounts}");
        }
    }

    #[test]
    fn escapes_are_undone() {
        assert_eq!(unescape("a\\040b\\134c\\303\\251"), Some("a b\\cé".to_owned()));
        for hostile in ["\\", "\\04", "\\888", "\\777", "\\377", "a\\é1"] {
            assert_eq!(unescape(hostile), None, "{hostile}");
        }
    }
}
