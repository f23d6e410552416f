//! Names: what a path means as text, and where symlinks lead. Called by `root`.
//!
//! Nothing here grants access. A name that is wrong, or becomes wrong a moment later, is caught when
//! it is opened beneath the root.

use rustix::io::Errno;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

/// Symlinks followed on one path, as in Linux (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// Removes `.` and `..` by text alone, so that `link/../a` is `a` wherever `link` leads. A `..` at
/// the file system's root stays there.
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

/// The spelling that the system itself uses for `path`, which is absolute and normalised: the
/// nearest ancestor that exists is canonicalised, the rest is kept.
pub(crate) fn canonicalise_existing(path: &Path) -> Option<PathBuf> {
    path.ancestors().find_map(|ancestor| {
        let real = fs::canonicalize(ancestor).ok()?;
        let rest = path.strip_prefix(ancestor).ok()?;
        Some(real.join(rest))
    })
}

/// Follows every symlink on `path` below `base`, a canonical path. What does not exist is kept as it
/// is, so that a dangling link gives the place where it would create a file.
///
/// # Errors
/// `ELOOP` after [`MAX_LINKS`] links; `EACCES` and the like where a directory may not be entered.
pub(crate) fn follow_links(base: &Path, path: &Path) -> io::Result<PathBuf> {
    follow_trusted_links(base, path, |_link| true)
}

/// Like [`follow_links`], but calls `is_trusted` with the path of each link before following it.
///
/// # Errors
/// As [`follow_links`], and `EACCES` for a link that is not trusted.
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
            // EINVAL says that it is not a link (readlink(2)).
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
        let dir = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir(base.join("d")).unwrap();
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
