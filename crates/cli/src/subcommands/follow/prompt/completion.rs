//! Completes `/commands` and `@files` of a prompt. Used by [`super`].

use super::super::slash::COMMANDS;
use crate::display::plain;
use std::path::Path;

/// Limits of a completion: the entries of a directory that are read, and the completions that are kept.
const MAX_ENTRIES: usize = 20_000;
const MAX_WORDS: usize = 200;

/// Completions of the word before the cursor.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Completions {
    /// Bytes of the word that a completion replaces.
    pub(super) old: usize,
    /// Sorted.
    pub(super) words: Vec<String>,
}

impl Completions {
    /// Finds the completions of the end of `before`, the text before the cursor. Files are those below `directory`.
    pub(super) fn find_blocking(before: &str, directory: &Path) -> Self {
        let word = before.rsplit([' ', '\n', '\t']).next().unwrap_or_default();
        if let Some(path) = word.strip_prefix('@') {
            return Self { old: path.len(), words: files_blocking(path, directory) };
        }

        if word.len() == before.len() && word.starts_with('/') {
            let names = COMMANDS.iter().map(|command| format!("/{}", command.name));
            let words = names.filter(|name| name.starts_with(word)).collect();
            return Self { old: word.len(), words };
        }
        Self::default()
    }

    /// Returns the longest text with which all completions begin, if it is longer than the word.
    pub(super) fn common(&self) -> Option<&str> {
        let (first, rest) = self.words.split_first()?;
        let mut end = first.len();
        for other in rest {
            let same = first.chars().zip(other.chars()).take_while(|(a, b)| a == b);
            end = end.min(same.map(|(a, _)| a.len_utf8()).sum());
        }
        first.get(..end).filter(|common| self.old < common.len() || rest.is_empty())
    }
}

/// Returns the entries of a directory whose path begins with `path`. Names with characters that cannot be shown are left
/// out, and hidden ones too unless the name begins with a dot.
fn files_blocking(path: &str, directory: &Path) -> Vec<String> {
    let (parent, name) = match path.rfind('/') {
        Some(at) => path.split_at(at + 1),
        None => ("", path),
    };

    let Ok(entries) = std::fs::read_dir(directory.join(parent)) else { return Vec::new() };
    let mut paths = Vec::new();
    for entry in entries.take(MAX_ENTRIES).flatten() {
        let Ok(file_name) = entry.file_name().into_string() else { continue };
        let is_hidden = file_name.starts_with('.') && !name.starts_with('.');
        if is_hidden || !file_name.starts_with(name) || plain(&file_name) != file_name {
            continue;
        }

        let slash = if entry.path().is_dir() { "/" } else { "" };
        paths.push(format!("{parent}{file_name}{slash}"));
    }

    // Sorted before the limit, so that the same completions are kept each time.
    paths.sort_unstable();
    paths.truncate(MAX_WORDS);
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_files_are_completed() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["main.rs", "mod.rs", ".git", "a\nb"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        std::fs::create_dir_all(dir.path().join("src/deep")).unwrap();
        let find = |text: &str| Completions::find_blocking(text, dir.path());
        let all = find("see @");
        assert_eq!(all.words, ["main.rs", "mod.rs", "src/"]);
        assert_eq!((find("see @m").common(), find("see @ma").common()), (None, Some("main.rs")));
        assert_eq!(find("@src/d").words, ["src/deep/"]);
        assert_eq!(find("@.g").words, [".git"]);
        assert_eq!(find("/he").words, ["/help"]);
        assert_eq!(find("run /he"), Completions::default());
        assert_eq!(find("@nowhere/x"), Completions { old: 9, words: Vec::new() });
    }
}
