//! Mounts as the worker sees them (proc_pid_mountinfo(5)). The kernel writes the table, but the names in it are
//! untrusted. Pure except for reading the table.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Maximum number of bytes read from the table.
const MAX_TABLE: u64 = 8 * 1024 * 1024;

/// Content of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MountContent {
    /// Files of the machine.
    Machine,
    /// A private layer over files of the machine.
    Layer,
    /// An empty directory or file in place of the original.
    Empty,
    /// A private directory of the worker.
    Own,
    /// The empty root in which everything is mounted.
    Frame,
    /// Files of the kernel, such as `/proc`.
    Kernel,
}

/// A mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) at: PathBuf,
    pub(super) shows: MountContent,
    pub(super) is_read_only: bool,
}

/// Returns the table of this process. Empty if there is none.
pub(super) fn table_blocking() -> Vec<Mount> {
    use std::io::Read;
    let mut text = String::new();
    let read = std::fs::File::open("/proc/self/mountinfo")
        .and_then(|file| file.take(MAX_TABLE).read_to_string(&mut text));
    if read.is_err() {
        return Vec::new();
    }
    text.lines().filter_map(parse).collect()
}

/// Returns the mount that contains a path: the deepest one, and the last of several at one path.
pub(super) fn of<'a>(table: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    let above = table.iter().filter(|mount| path.starts_with(&mount.at));
    above.max_by_key(|mount| mount.at.components().count())
}

fn parse(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    // The ids of the mount and its parent, and the device.
    let mut fields = left.split(' ').skip(3);
    let (root, at, options) = (fields.next()?, fields.next()?, fields.next()?);
    let kind = right.split(' ').next()?;

    let shows = match (kind, root) {
        ("proc" | "sysfs" | "devtmpfs" | "devpts", _) => MountContent::Kernel,
        ("overlay", _) => MountContent::Layer,
        // The confinement gives its empty file and directory these names.
        ("tmpfs", "/empty.f" | "/empty.d") => MountContent::Empty,
        ("tmpfs", "/") if at == "/" => MountContent::Frame,
        // The worker's private directories are numbered. Other such file systems belong to the machine.
        ("tmpfs", root) if is_numbered(root) => MountContent::Own,
        _ => MountContent::Machine,
    };

    let is_read_only = options.split(',').any(|option| option == "ro");
    Some(Mount { at: unescape(at), shows, is_read_only })
}

fn is_numbered(root: &str) -> bool {
    let name = root.strip_prefix('/').unwrap_or_default();
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit())
}

/// Decodes blanks and backslashes, which are written as three octal digits.
fn unescape(name: &str) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = name.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let octal = (*first == b'\\').then(|| after.get(..3)).flatten();
        let byte =
            octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());

        match byte {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
        1 0 0:1 / / ro,nosuid - tmpfs none rw,size=16384k\n\
        2 1 8:1 /usr /usr ro,relatime - ext4 /dev/vda rw\n\
        3 1 0:2 /19 /tmp rw - tmpfs none rw\n\
        4 1 8:1 /src/a\\040b /src/a\\040b rw - ext4 /dev/vda rw\n\
        5 4 8:1 /src/a\\040b/.git/config /src/a\\040b/.git/config ro - ext4 /dev/vda rw\n\
        6 1 0:2 /empty.f /etc/shadow ro - tmpfs none rw\n\
        7 1 0:3 / /root/.cargo/registry rw - overlay none rw,lowerdir=x\n\
        8 1 0:4 / /proc ro - proc none rw\n";

    #[test]
    fn a_path_is_on_its_deepest_mount() {
        let table: Vec<Mount> = TABLE.lines().filter_map(parse).collect();
        assert_eq!(table.len(), 8);
        let look = |path: &str| of(&table, Path::new(path)).map(|m| (m.shows, m.is_read_only));
        for (path, expected) in [
            ("/usr/bin/env", (MountContent::Machine, true)),
            ("/tmp/x", (MountContent::Own, false)),
            ("/src/a b/file", (MountContent::Machine, false)),
            ("/src/a b/.git/config", (MountContent::Machine, true)),
            ("/etc/shadow", (MountContent::Empty, true)),
            ("/root/.cargo/registry/x", (MountContent::Layer, false)),
            ("/home/u/.ssh", (MountContent::Frame, true)),
            ("/proc/1", (MountContent::Kernel, true)),
        ] {
            assert_eq!(look(path), Some(expected), "{path}");
        }
    }

    #[test]
    fn rubbish_is_no_mount() {
        for line in ["", " - ", "a b c d", "1 2 3 4 5 - ", "\\", "1 0 0:1 / \\0 ro - x"] {
            let _mount = parse(line);
        }
        assert_eq!(unescape("a\\04"), PathBuf::from("a\\04"));
        assert_eq!(unescape("a\\999b"), PathBuf::from("a\\999b"));
    }
}
