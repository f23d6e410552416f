//! Where the daemon's socket is: in the state directory, or under a short name in the temporary
//! directory when that path would not fit into a socket address.
//!
//! Clients of other makers compute the same path on their own, so the rule is upstream's to the
//! letter: the length is counted in UTF-16 units, and the hash is over the directory's text as the
//! environment gave it.

use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Upstream falls back from this length on, in UTF-16 units, on every platform.
const UPSTREAM_LIMIT: usize = 104;

/// Bytes that `sun_path` holds besides its NUL; see unix(7).
const MAX_SOCKET_BYTES: usize = if cfg!(target_os = "macos") { 103 } else { 107 };

/// The socket's path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketPath {
    /// Absolute path.
    pub path: PathBuf,
    /// True if it lies in the temporary directory, because the state directory's path is too long.
    pub fallback: bool,
}

impl SocketPath {
    pub(crate) fn choose(dir: &Path, given: &str, temp_dir: &Path) -> Self {
        let preferred = dir.join("daemon.sock");
        // Upstream counts what the environment gave, which is shorter if it is a relative path.
        let seen_by_clients =
            Path::new(given).join("daemon.sock").components().collect::<PathBuf>();
        let units = seen_by_clients.to_string_lossy().encode_utf16().count();
        if units < UPSTREAM_LIMIT && preferred.as_os_str().len() <= MAX_SOCKET_BYTES {
            return Self { path: preferred, fallback: false };
        }
        let mut name = "duck-".to_owned();
        for byte in Sha256::digest(given).iter().take(6) {
            // Writing to a String cannot fail.
            let _infallible = write!(name, "{byte:02x}");
        }
        name.push_str(".sock");
        Self { path: temp_dir.join(name), fallback: true }
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
        SocketPath::choose(&dir, given, Path::new("/tmp"))
    }

    #[test]
    fn the_preferred_path_ends_one_unit_before_upstreams_limit() {
        // "/daemon.sock" has 12 units.
        let longest = format!("/{}", "a".repeat(90));
        let path = PathBuf::from(format!("{longest}/daemon.sock"));
        assert_eq!(path.as_os_str().len(), 103);
        assert_eq!(choose(&longest), SocketPath { path, fallback: false });
        assert!(choose(&format!("{longest}a")).fallback);
        // Trailing slashes do not count.
        assert!(!choose(&format!("{longest}///")).fallback);
    }

    #[test]
    fn the_fallback_name_is_the_hash_of_the_text_as_given() {
        let long = format!("/{}", "a".repeat(200));
        // printf %s /aaa… | sha256sum
        let path = PathBuf::from("/tmp/duck-f7b36aaa140c.sock");
        assert_eq!(choose(&long), SocketPath { path, fallback: true });
        assert_ne!(choose(&long).path, choose(&format!("{long}/")).path);
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
