//! Detects that a file or directory of the host which is mounted by itself has been replaced outside. The mount still shows
//! the old one then: a program outside that renames another file over a name does not change what is mounted elsewhere.

use super::mount::Mount;
use super::plan::MountPlan;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// List of the mounts of this process, with the path of what each mount shows (proc_pid_mountinfo(5)).
const LIST: &str = "/proc/self/mountinfo";

/// Read-only mounts of the host's files and directories, and what they showed at the start.
#[derive(Debug)]
pub struct MountSources {
    /// Mount points as the kernel writes them.
    points: BTreeSet<Vec<u8>>,
    shown: u64,
}

impl MountSources {
    /// Looks at the mounts of a plan that this process has carried out. `None` if there are none, or if the list cannot be
    /// read.
    #[must_use]
    pub fn look_blocking(plan: &MountPlan) -> Option<Self> {
        let is_source = |mount: &Mount| matches!(mount, Mount::Bind { writable: false, .. });
        let mounts = plan.mounts.iter().filter(|(_, mount)| is_source(mount));
        let points: BTreeSet<_> = mounts.map(|(at, _)| escaped(at)).collect();
        if points.is_empty() {
            return None;
        }
        let shown = shown_blocking(&points).ok()?;
        Some(Self { points, shown })
    }

    /// Whether one of them has been replaced, moved or removed since the start. The kernel keeps the path of a mounted file
    /// up to date: it ends in `//deleted` after another file has taken its name, also if the old one has a second name.
    #[must_use]
    pub fn have_changed_blocking(&self) -> bool {
        shown_blocking(&self.points).is_ok_and(|shown| shown != self.shown)
    }
}

/// Returns the hash of what is mounted at these points.
fn shown_blocking(points: &BTreeSet<Vec<u8>>) -> io::Result<u64> {
    Ok(shown(&std::fs::read(LIST)?, points))
}

fn shown(list: &[u8], points: &BTreeSet<Vec<u8>>) -> u64 {
    let mut hash = DefaultHasher::new();
    for line in list.split(|byte| *byte == b'\n') {
        // The fields before are the numbers of the mount and of its parent.
        let mut fields = line.split(|byte| *byte == b' ').skip(2);
        let (device, root, at) = (fields.next(), fields.next(), fields.next());
        if at.is_some_and(|at| points.contains(at)) {
            (device, root, at).hash(&mut hash);
        }
    }
    hash.finish()
}

/// Returns a path as the kernel writes it: blanks, line feeds and backslashes as octal numbers.
fn escaped(path: &Path) -> Vec<u8> {
    let mut text = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => {
                let mut octal = String::new();
                // Writing to a string does not fail.
                write!(octal, "\\{byte:03o}").ok();
                text.extend_from_slice(octal.as_bytes());
            }
            _ => text.push(*byte),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_mounted_at_the_points_counts() {
        let points = BTreeSet::from([escaped(Path::new("/etc/a b"))]);
        let line = |root: &str, at: &str| format!("7 1 98:0 {root} {at} ro - ext4 /dev/vda ro\n");
        let of = |lines: &[String]| shown(lines.concat().as_bytes(), &points);
        let before = of(&[line("/etc/a\\040b", "/etc/a\\040b"), line("/etc/c", "/etc/c")]);
        let other = line("/etc/c//deleted", "/etc/c");
        assert_eq!(of(&[line("/etc/a\\040b", "/etc/a\\040b"), other.clone()]), before);
        assert_ne!(of(&[line("/etc/a\\040b//deleted", "/etc/a\\040b"), other.clone()]), before);
        assert_ne!(of(&[line("/etc/a~", "/etc/a\\040b"), other.clone()]), before);
        assert_ne!(of(&[other]), before);
    }
}
