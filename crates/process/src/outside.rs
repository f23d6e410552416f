//! Decides whether a command of a session could change a file that quackd runs or obeys outside of the confinement: a
//! start file of the login shell, `quackd.toml`, a program, a file that a variable names.
//!
//! A file is out of reach if its path leads through no directory that commands may write, whatever links the path has,
//! and if the file has no second name that could be in such a directory. Used by the supervisor, the environment worker
//! and the command line.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Symbolic links followed on one path, as in Linux (`path_resolution(7)`).
const MAX_LINKS: usize = 40;

/// Directories that commands of sessions may write, canonical. In order, so that a lookup takes no longer with a thousand
/// sessions than with one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Writable {
    paths: BTreeSet<PathBuf>,
    /// The same directories by device and inode, which other spellings and bind mounts share.
    identities: HashMap<(u64, u64), PathBuf>,
}

/// The reason why commands of a session could change a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    /// The path leads through a directory that they may write.
    Way {
        /// The directory, canonical.
        directory: PathBuf,
        /// The last symbolic link before it. `None` if the path names the directory without a link.
        link: Option<PathBuf>,
    },
    /// The file has a second name, which may be in a directory that they may write.
    SecondName {
        /// A writable directory of the same file system, canonical.
        directory: PathBuf,
    },
    /// They could change the file earlier, and it was not replaced since.
    Earlier {
        /// The directory that they could write then.
        directory: PathBuf,
    },
}

impl Held {
    /// Returns the directory that commands may write.
    #[must_use]
    pub fn directory(&self) -> &Path {
        match self {
            Self::Way { directory, .. }
            | Self::SecondName { directory }
            | Self::Earlier { directory } => directory,
        }
    }
}

/// Follows the path of the file: `quackd.toml leads into /ws (link /home/u/quackd.toml)`.
impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Way { directory, link } => {
                write!(f, "leads into {}, which sessions may write", directory.display())?;
                match link {
                    Some(link) => write!(f, " (link {})", link.display()),
                    None => Ok(()),
                }
            }
            Self::SecondName { .. } => {
                f.write_str("has a second name (hard link), which may be in a directory that sessions may write")
            }
            Self::Earlier { .. } => {
                f.write_str("could be changed by sessions earlier, and was not replaced since")
            }
        }
    }
}

impl Writable {
    /// Canonicalizes the directories. Leaves out those that contain the home: no worker starts there, and no file of the
    /// user could ever be used. Reads the file system.
    #[must_use]
    pub fn of_blocking(directories: impl IntoIterator<Item = PathBuf>, home: &Path) -> Self {
        let canonical = |path: PathBuf| fs::canonicalize(&path).unwrap_or(path);
        let home = canonical(home.to_owned());
        let directories = directories.into_iter().map(canonical);
        let paths: BTreeSet<_> = directories.filter(|path| !home.starts_with(path)).collect();
        let identity = |path: &PathBuf| Some((identity(&fs::metadata(path).ok()?), path.clone()));
        let identities = paths.iter().filter_map(identity).collect();
        Self { paths, identities }
    }

    /// Returns the directories, canonical and in order.
    pub fn iter(&self) -> impl Iterator<Item = &Path> {
        self.paths.iter().map(PathBuf::as_path)
    }

    /// Returns the first of the directories that is `real` or in it. `real` must be canonical.
    #[must_use]
    pub fn inside(&self, real: &Path) -> Option<&Path> {
        let next = self.paths.range(real.to_owned()..).next();
        next.filter(|directory| directory.starts_with(real)).map(PathBuf::as_path)
    }

    /// Returns a `PATH` without relative directories and without those that these directories hold.
    #[must_use]
    pub fn clean_path_blocking(&self, path: &str) -> String {
        let is_safe = |entry: &&str| {
            entry.starts_with('/') && self.holds_blocking(Path::new(entry)).is_none()
        };
        path.split(':').filter(is_safe).collect::<Vec<_>>().join(":")
    }

    /// Returns the writable directory that `path` is in or leads through. For directories and programs; see
    /// [`Self::held_blocking`] for files. Reads the file system.
    #[must_use]
    pub fn holds_blocking(&self, path: &Path) -> Option<&Path> {
        let directory = self.way_blocking(path)?.directory().to_owned();
        self.paths.get(&directory).map(PathBuf::as_path)
    }

    /// Returns the reason why commands could change the file `path`. A missing file is held if commands could create it.
    /// Reads the file system.
    #[must_use]
    pub fn held_blocking(&self, path: &Path) -> Option<Held> {
        self.way_blocking(path).or_else(|| self.second_name_blocking(path))
    }

    /// Follows the path of a program. Every symbolic link on the way counts: a link inside a writable directory can be
    /// changed, whatever it names now. Missing parts count as plain names. Reads the file system.
    #[must_use]
    pub fn way_blocking(&self, path: &Path) -> Option<Held> {
        let mut pending = Vec::new();
        push_reversed(&mut pending, path);
        let (mut at, mut last_link, mut n_links) = (PathBuf::from("/"), None, 0);
        while let Some(name) = pending.pop() {
            // Links are resolved as they are met, so `..` is the parent of the real directory.
            if name == ".." {
                at.pop();
                continue;
            }
            at.push(&name);
            let metadata = fs::symlink_metadata(&at).ok();
            // The directories above were looked up in earlier rounds.
            let held = self.paths.get(&at);
            let held = held.or_else(|| self.identities.get(&identity(metadata.as_ref()?)));

            if let Some(directory) = held {
                return Some(Held::Way { directory: directory.clone(), link: last_link });
            }

            if !metadata.is_some_and(|metadata| metadata.is_symlink()) {
                continue;
            }
            let Ok(target) = fs::read_link(&at) else { continue };

            n_links += 1;
            // The kernel refuses such a path too.
            if MAX_LINKS < n_links {
                return None;
            }

            last_link = Some(at.clone());
            at.pop();
            if target.is_absolute() {
                // The link's own directory stays the base of a relative target.
                at = PathBuf::from("/");
            }
            push_reversed(&mut pending, &target);
        }
        None
    }

    /// Returns the reason if the file has a second name. A second name can only be in a directory
    /// of the same file system, and only matters if this user can write the file. Names of programs
    /// are not checked: rustup and package managers link those.
    fn second_name_blocking(&self, path: &Path) -> Option<Held> {
        let metadata = fs::metadata(path).ok()?;
        let is_writable =
            metadata.uid() == rustix::process::geteuid().as_raw() || metadata.mode() & 0o022 != 0;
        if !metadata.is_file() || metadata.nlink() < 2 || !is_writable {
            return None;
        }

        let same = self.identities.iter().filter(|((device, _), _)| *device == metadata.dev());
        let directory = same.map(|(_, directory)| directory).max()?;
        Some(Held::SecondName { directory: directory.clone() })
    }
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
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

    /// A directory with `ws` (writable), `home` and `out`.
    fn world() -> (TestDir, Writable) {
        let base = TestDir::with(&["ws/bin", "home", "out"]);
        let directories = vec![base.join("ws"), "/".into(), base.to_path_buf()];
        let writable = Writable::of_blocking(directories, &base.join("home"));
        (base, writable)
    }

    #[test]
    fn every_way_into_a_writable_directory_counts_whatever_its_links_name() {
        let (base, writable) = world();
        for (target, link) in [
            (base.join("out"), "ws/back"),
            ("ws/back".into(), "through"),
            ("loop".into(), "loop"),
            ("../ws".into(), "home/relative"),
            ("home/relative/../ws/x".into(), "chain"),
            ("chain".into(), "chained"),
            (base.join("out"), "home/fine"),
        ] {
            symlink(target, base.join(link)).unwrap();
        }
        for path in [
            "ws",
            "ws/bin",
            "ws/not/there/yet",
            "through",
            "through/x",
            "out/../ws/z",
            "home/relative/y",
            "chained",
            "ws/../out",
        ] {
            assert_eq!(
                writable.holds_blocking(&base.join(path)),
                Some(&*base.join("ws")),
                "{path}"
            );
        }
        for path in ["out", "out/x", "wsx", "home", "loop", "home/fine/x", "none/x"] {
            assert_eq!(writable.held_blocking(&base.join(path)), None, "{path}");
        }
        let held = writable.held_blocking(&base.join("chained")).unwrap();
        let link = Some(base.join("home/relative"));
        assert_eq!(held, Held::Way { directory: base.join("ws"), link });
        assert_eq!(writable.inside(&base), Some(&*base.join("ws")));
        assert_eq!(writable.inside(&base.join("out")), None);
    }

    #[test]
    fn a_file_with_a_second_name_counts_and_a_program_does_not() {
        let (base, writable) = world();
        let file = base.join("home/quackd.toml");
        fs::write(&file, "").unwrap();
        assert_eq!(writable.held_blocking(&file), None);
        fs::hard_link(&file, base.join("ws/settings.toml")).unwrap();
        assert!(matches!(writable.held_blocking(&file), Some(Held::SecondName { .. })));
        assert_eq!(writable.holds_blocking(&file), None);
        // Without sessions nothing can have the second name.
        assert_eq!(Writable::default().held_blocking(&file), None);
    }

    #[test]
    fn a_directory_under_another_name_is_found_by_its_identity() {
        // The identity of `out` replaces a bind mount, which needs privileges.
        let (base, mut writable) = world();
        let out = identity(&fs::metadata(base.join("out")).unwrap());
        writable.identities.insert(out, base.join("ws"));
        assert_eq!(writable.holds_blocking(&base.join("out/x/y")), Some(&*base.join("ws")));
    }
}
