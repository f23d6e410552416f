//! Paths under a root that count as missing, for a worker that the kernel does not confine. Pure. Called by `root`.
//!
//! Names are compared as volumes of macOS compare them: without case, normalization of letters and invisible characters.
//! So every spelling of a hidden name is hidden, also of a name that does not exist yet.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use unicode_normalization::UnicodeNormalization as _;

/// Hidden paths under one root.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct HiddenPaths {
    /// Each path relative to the root, as folded names. At least one name.
    paths: Vec<Vec<String>>,
}

impl HiddenPaths {
    /// Selects the paths that are under `root`. All paths are absolute. The root itself stays visible.
    pub(crate) fn under<'a>(root: &Path, hidden: impl Iterator<Item = &'a PathBuf>) -> Self {
        let root = folded_names(root);
        let below = |path: &PathBuf| {
            let names = folded_names(path);
            let below = names.strip_prefix(root.as_slice()).filter(|below| !below.is_empty());
            below.map(<[String]>::to_vec)
        };
        Self { paths: hidden.filter_map(below).collect() }
    }

    /// Returns true if no path is hidden.
    pub(crate) fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Returns true if a path relative to the root is hidden or in a hidden directory.
    pub(crate) fn contains(&self, relative: &Path) -> bool {
        self.contains_names(relative.iter())
    }

    /// Like [`HiddenPaths::contains`], for a name in a directory that is relative to the root.
    pub(crate) fn contains_in(&self, directory: &Path, name: &OsStr) -> bool {
        self.contains_names(directory.iter().chain([name]))
    }

    fn contains_names<'a>(&self, names: impl Iterator<Item = &'a OsStr> + Clone) -> bool {
        self.paths.iter().any(|hidden| {
            let mut names = names.clone();
            hidden.iter().all(|hidden| names.next().is_some_and(|name| is_same(hidden, name)))
        })
    }
}

fn folded_names(path: &Path) -> Vec<String> {
    path.iter().map(fold).collect()
}

/// Returns true if a name is another spelling of a folded name.
fn is_same(folded: &str, name: &OsStr) -> bool {
    // Almost every name is ASCII, and needs no copy.
    if name.is_ascii() { name.eq_ignore_ascii_case(folded) } else { fold(name) == folded }
}

/// Returns the same text for all spellings of a name.
fn fold(name: &OsStr) -> String {
    let text = name.to_string_lossy().into_owned();
    // The upper case also unites ß with ss, and a ligature with its letters. The lower case before it unites ẞ with ß:
    // ẞ is an upper case already.
    let upper = text.as_str().nfd().flat_map(char::to_lowercase).flat_map(char::to_uppercase);
    upper.flat_map(char::to_lowercase).nfd().filter(|one| !is_invisible(*one)).collect()
}

/// Whether file systems ignore a character.
fn is_invisible(one: char) -> bool {
    matches!(
        one,
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(paths: &[&str]) -> HiddenPaths {
        let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
        HiddenPaths::under(Path::new("/Users/u/w"), paths.iter())
    }

    #[test]
    fn every_spelling_of_a_hidden_path_and_what_is_in_it_are_hidden() {
        for (path, other) in [
            (".env", ".env"),
            (".env", ".ENV"),
            (".env", ".e\u{200c}nv"),
            ("a/keys", "A/Keys"),
            ("a/keys", "a/\u{212a}ey\u{17f}"),
            ("office", "O\u{fb03}ce"),
            ("pass", "pa\u{df}"),
            ("passwords.txt", "pa\u{1e9e}words.txt"),
            ("pa\u{1e9e}words.txt", "PASSwords.txt"),
            ("pa\u{df}words.txt", "pa\u{1e9e}words.txt"),
            ("cl\u{e9}s", "cle\u{301}s"),
            ("cle\u{301}s", "CL\u{c9}S"),
            ("\u{304c}", "\u{304b}\u{3099}"),
        ] {
            let hidden = hidden(&[&format!("/users/U/w/{path}")]);
            assert!(hidden.contains(Path::new(other)), "{path} {other}");
            assert!(hidden.contains(&Path::new(other).join("x/y")), "{path} {other}");
            assert!(hidden.contains_in(Path::new(other), OsStr::new("x")), "{path} {other}");
        }
    }

    #[test]
    fn other_names_are_shown() {
        let hidden = hidden(&["/Users/u/w/a/.env", "/Users/u/v", "/w", "/Users/u/w/cl\u{e9}s"]);
        for path in ["", "a", "a/.env.example", "a/x.env", ".env", "b/.env", "cles", "c", "v", "w"]
        {
            assert!(!hidden.contains(Path::new(path)), "{path}");
        }
        assert!(!hidden.contains_in(Path::new(""), OsStr::new("a")));
        assert!(hidden.contains_in(Path::new("a"), OsStr::new(".env")));
    }

    #[test]
    fn paths_outside_of_the_root_and_the_root_itself_hide_nothing() {
        for path in ["/Users/u", "/Users/u/w", "/Users/u/v", "/Users/u/w.env"] {
            assert!(hidden(&[path]).is_empty(), "{path}");
        }
        assert!(!hidden(&["/Users/u/w/x"]).is_empty());
    }
}
