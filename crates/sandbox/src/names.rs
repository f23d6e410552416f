//! Resolves names: normalizes paths as text, and follows symlinks. Called by `root`.
//!
//! These functions grant no access. A wrong or outdated result is caught when the name is opened under the root.

use rustix::io::Errno;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

/// Maximum number of symlinks on one path, as in Linux (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// Removes `.` and `..` by text only: `link/../a` becomes `a`, regardless of the link's target. A `..` at the root of
/// the file system has no effect.
pub(crate) fn normalise(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => (),
            Component::ParentDir => {
                plain.pop();
            }
            Component::RootDir | Component::Prefix(_) | Component::Normal(_) => {
                plain.push(component);
            }
        }
    }
    plain
}

/// Returns the system's spelling of `path`, which is absolute and without `.` and `..`. Canonicalizes the nearest
/// existing ancestor and keeps the rest. `None` for a relative path without an existing ancestor.
#[must_use]
pub fn canonicalise_existing(path: &Path) -> Option<PathBuf> {
    path.ancestors().find_map(|ancestor| {
        let real = fs::canonicalize(ancestor).ok()?;
        let rest = path.strip_prefix(ancestor).ok()?;
        Some(real.join(rest))
    })
}

/// Follows every symlink on `path` below `base`, a canonical path. Keeps missing components, so a dangling link
/// resolves to the path where it would create a file.
///
/// # Errors
/// `ELOOP` after [`MAX_LINKS`] links; `EACCES` and similar errors if a directory may not be entered.
pub(crate) fn follow_links(base: &Path, path: &Path) -> io::Result<PathBuf> {
    follow_trusted_links(base, path, |_link| true)
}

/// Like [`follow_links`], but calls `is_trusted` with the path of each link before following it.
///
/// # Errors
/// Same as [`follow_links`], and `EACCES` for a link that is not trusted.
pub(crate) fn follow_trusted_links(
    base: &Path,
    path: &Path,
    is_trusted: impl Fn(&Path) -> bool,
) -> io::Result<PathBuf> {
    let mut resolved = base.to_path_buf();
    let mut pending = Vec::new();
    push_reversed(&mut pending, path);

    let mut n_links = 0;
    while let Some(name) = pending.pop() {
        if name == ".." {
            resolved.pop();
            continue;
        }
        resolved.push(&name);
        match fs::read_link(&resolved) {
            Ok(_) if n_links == MAX_LINKS => return Err(Errno::LOOP.into()),
            Ok(_) if !is_trusted(&resolved) => return Err(Errno::ACCESS.into()),
            Ok(target) => {
                n_links += 1;
                resolved.pop();
                if target.is_absolute() {
                    resolved = PathBuf::from("/");
                }
                push_reversed(&mut pending, &target);
            }
            // EINVAL means that it is not a link (readlink(2)).
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::InvalidInput
                        | io::ErrorKind::NotFound
                        | io::ErrorKind::NotADirectory
                ) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(resolved)
}

fn push_reversed(pending: &mut Vec<OsString>, path: &Path) {
    pending.extend(path.components().rev().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_testkit::TestDir;
    use std::os::unix::fs::symlink;

    #[test]
    fn dots_are_removed_by_text_alone() {
        let cases = [
            ("/w/a/./b", "/w/a/b"),
            ("/w/link/../a", "/w/a"),
            ("/w/../../..", "/"),
            ("/w//a///b/", "/w/a/b"),
            ("/w/..a/...", "/w/..a/..."),
        ];
        for (path, expected) in cases {
            assert_eq!(normalise(Path::new(path)), Path::new(expected), "{path}");
        }
    }

    #[test]
    fn links_are_followed_also_when_they_dangle() {
        let base = TestDir::with(&["d"]);
        symlink("d", base.join("relative")).unwrap();
        symlink(base.join("d"), base.join("absolute")).unwrap();
        symlink("../../gone", base.join("d/dangling")).unwrap();
        symlink("/nowhere/file", base.join("d/outside")).unwrap();
        let cases = [
            ("relative/f", base.join("d/f")),
            ("absolute/x/y", base.join("d/x/y")),
            ("relative/dangling", base.parent().unwrap().join("gone")),
            ("d/outside", PathBuf::from("/nowhere/file")),
        ];
        for (path, expected) in cases {
            assert_eq!(follow_links(&base, Path::new(path)).unwrap(), expected, "{path}");
        }
    }

    #[test]
    fn a_loop_of_links_ends() {
        let dir = tempfile::tempdir().unwrap();
        symlink("b", dir.path().join("a")).unwrap();
        symlink("a", dir.path().join("b")).unwrap();
        let error = follow_links(dir.path(), Path::new("a")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::LOOP.raw_os_error()));
    }
}
