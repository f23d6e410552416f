//! Chooses the path of the daemon's socket. It is in the state directory if that path fits into a socket
//! address. Otherwise it is a short name in a private directory of the user.
//!
//! Upstream's clients compute a path in the temporary directory, where another user can create a file first.
//! The daemon therefore only creates a link there for them; quackd's own clients do not use it. The link follows
//! upstream's rule exactly: the length is counted in UTF-16 units, and the hash covers the directory's text as the
//! environment gave it.

use crate::platform::MAX_SOCKET_BYTES;
use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Upstream falls back from this length on, in UTF-16 units, on every platform.
const UPSTREAM_LIMIT: usize = 104;

/// The directory for sockets: in the home, else in the user's runtime directory if the home's path is too long.
const IN_HOME: &str = ".quackd";
const IN_RUNTIME_DIR: &str = "quackd";

/// The socket's path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketPath {
    /// Absolute path.
    pub path: PathBuf,
    /// True if it is not in the state directory, whose path is too long.
    pub fallback: bool,
    /// Path at which upstream's clients expect the socket in that case.
    pub alias: Option<PathBuf>,
}

/// Directories that the choice depends on, in addition to the state directory.
#[derive(Debug)]
pub(crate) struct Around<'a> {
    pub(crate) temp_dir: &'a Path,
    pub(crate) user_home: Option<&'a Path>,
    pub(crate) runtime_dir: Option<&'a Path>,
}

impl SocketPath {
    pub(crate) fn choose(dir: &Path, given: &str, around: &Around<'_>) -> Self {
        let preferred = dir.join("daemon.sock");

        // Upstream counts what the environment gave, which is shorter if it is a relative path.
        let seen_by_clients =
            Path::new(given).join("daemon.sock").components().collect::<PathBuf>();
        let units = seen_by_clients.to_string_lossy().encode_utf16().count();
        if units < UPSTREAM_LIMIT && preferred.as_os_str().len() <= MAX_SOCKET_BYTES {
            return Self { path: preferred, fallback: false, alias: None };
        }

        let mut name = "duck-".to_owned();
        for byte in Sha256::digest(given).iter().take(6) {
            // Writing to a String cannot fail.
            write!(name, "{byte:02x}").ok();
        }
        name.push_str(".sock");

        let alias = around.temp_dir.join(&name);
        let in_home = around.user_home.map(|home| home.join(IN_HOME).join(&name));
        let in_runtime_dir = around.runtime_dir.map(|dir| dir.join(IN_RUNTIME_DIR).join(&name));
        let fits = |path: &PathBuf| path.as_os_str().len() <= MAX_SOCKET_BYTES;
        let place = in_home.clone().filter(fits);

        match place.or_else(|| in_runtime_dir.filter(fits)).or(in_home) {
            Some(path) => Self { path, fallback: true, alias: Some(alias) },
            // Without a home directory, a foreign file at this path is an error at the bind.
            None => Self { path: alias, fallback: true, alias: None },
        }
    }
}

/// The temporary directory as Node's `os.tmpdir()` finds it. It may be relative.
pub(crate) fn temp_dir(var: &dyn Fn(&str) -> Option<OsString>) -> PathBuf {
    let set = ["TMPDIR", "TMP", "TEMP"].iter().find_map(|name| var(name).filter(|v| !v.is_empty()));
    set.map_or_else(|| PathBuf::from("/tmp"), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(given: &str) -> SocketPath {
        let dir: PathBuf = std::path::absolute(given).unwrap().components().collect();
        SocketPath::choose(&dir, given, &around(Some("/home/u"), Some("/run/user/7")))
    }

    fn around<'a>(home: Option<&'a str>, runtime_dir: Option<&'a str>) -> Around<'a> {
        Around {
            temp_dir: Path::new("/tmp"),
            user_home: home.map(Path::new),
            runtime_dir: runtime_dir.map(Path::new),
        }
    }

    #[test]
    fn the_preferred_path_ends_one_unit_before_upstreams_limit() {
        // "/daemon.sock" has 12 units.
        let longest = format!("/{}", "a".repeat(90));
        let path = PathBuf::from(format!("{longest}/daemon.sock"));
        assert_eq!(path.as_os_str().len(), 103);
        assert_eq!(choose(&longest), SocketPath { path, fallback: false, alias: None });
        assert!(choose(&format!("{longest}a")).fallback);
        // Trailing slashes do not count.
        assert!(!choose(&format!("{longest}///")).fallback);
    }

    #[test]
    fn the_fallback_name_is_the_hash_of_the_text_as_given() {
        let long = format!("/{}", "a".repeat(200));
        // printf %s /aaa… | sha256sum
        let path = PathBuf::from("/home/u/.quackd/duck-f7b36aaa140c.sock");
        let alias = Some(PathBuf::from("/tmp/duck-f7b36aaa140c.sock"));
        assert_eq!(choose(&long), SocketPath { path, fallback: true, alias });
        assert_ne!(choose(&long).path, choose(&format!("{long}/")).path);
    }

    #[test]
    fn a_home_with_a_long_path_has_the_runtime_directory_and_no_home_the_temporary_one() {
        let long = format!("/{}", "a".repeat(200));
        let place = |home, runtime_dir| {
            let chosen = SocketPath::choose(Path::new(&long), &long, &around(home, runtime_dir));
            chosen.path.parent().unwrap().to_owned()
        };
        assert_eq!(place(Some(&*long), Some("/run/user/7")), Path::new("/run/user/7/quackd"));
        assert_eq!(place(Some(&*long), None), Path::new(&long).join(".quackd"));
        assert_eq!(place(None, Some("/run/user/7")), Path::new("/run/user/7/quackd"));
        assert_eq!(place(None, None), Path::new("/tmp"));
    }

    #[test]
    fn a_path_that_is_short_in_units_but_long_in_bytes_falls_back_too() {
        let path = format!("/{}", "é".repeat(60));
        assert!(choose(&path).fallback);
        assert!(!choose(&format!("/{}", "é".repeat(40))).fallback);
    }

    #[test]
    fn the_temporary_directory_is_the_first_that_is_set() {
        let table: [(&[(&str, &str)], &str); 4] = [
            (&[], "/tmp"),
            (&[("TEMP", "/c"), ("TMP", "/b")], "/b"),
            (&[("TMPDIR", ""), ("TEMP", "/c")], "/c"),
            (&[("TMPDIR", "/a"), ("TMP", "/b")], "/a"),
        ];
        for (vars, wanted) in table {
            let var = |name: &str| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| v.into());
            assert_eq!(temp_dir(&var), Path::new(wanted));
        }
    }
}
