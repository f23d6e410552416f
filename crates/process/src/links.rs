//! Follows the symbolic links of a path. Used before a program or a file outside of the confinement is used.

use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Symbolic links followed on one path, as in Linux (`path_resolution(7)`).
const MAX_LINKS: usize = 40;

/// Returns the first directory or link on the way to `path` that `is_held` selects. Every symbolic link on the way
/// counts: a link inside a workspace can be changed, whatever it names now. Missing parts count as plain names. Reads the
/// file system.
pub fn held_on_the_way_blocking(path: &Path, is_held: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let mut pending = Vec::new();
    push_reversed(&mut pending, path);
    let (mut at, mut n_links) = (PathBuf::from("/"), 0);
    while let Some(name) = pending.pop() {
        if name == ".." {
            at.pop();
            continue;
        }
        at.push(&name);
        // The directories above were looked up in earlier rounds.
        if is_held(&at) {
            return Some(at);
        }
        let Ok(target) = fs::read_link(&at) else { continue };
        n_links += 1;
        if MAX_LINKS < n_links {
            return None;
        }
        at.pop();
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
        push_reversed(&mut pending, &target);
    }
    None
}

fn push_reversed(pending: &mut Vec<OsString>, path: &Path) {
    pending.extend(path.components().rev().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    }));
}
