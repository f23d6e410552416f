//! Finds the row of a name whose changes are reported. Called by the audit and by the search for repositories. Pure.

use super::unlisted::unlisted;
use crate::obeyed::{Held, Obeyed};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::LazyLock;

/// Rows with a plain last name, and rows with a pattern by its first byte.
type Index = (HashMap<&'static str, Vec<&'static Obeyed>>, HashMap<u8, Vec<&'static Obeyed>>);

/// The reported rows by their last name, because a walk looks up each entry of a tree.
static BY_LAST_NAME: LazyLock<Index> = LazyLock::new(|| {
    let (mut plain, mut patterns) = (HashMap::<_, Vec<_>>::new(), HashMap::<_, Vec<_>>::new());
    for row in Obeyed::all().filter(|row| row.held.is_reported()) {
        let last = row.last();
        match last.bytes().next() {
            Some(first) if last.contains('*') => patterns.entry(first).or_default().push(row),
            _ => plain.entry(last).or_default().push(row),
        }
    }
    (plain, patterns)
});

impl Obeyed {
    /// Finds the row for the entry `name` of `directory`, a path below the workspace, if changes of it are reported.
    pub(crate) fn reported(directory: &Path, name: &OsStr) -> Option<&'static Self> {
        let text = name.to_str()?;
        let (plain, patterns) = &*BY_LAST_NAME;
        let plain = plain.get(text).map(Vec::as_slice).unwrap_or_default().iter();
        let first = text.bytes().next().unwrap_or_default();
        let patterns = [first, b'*'].into_iter().filter_map(|first| patterns.get(&first)).flatten();
        let patterns = patterns.filter(|row| matches(row.last(), text));

        plain.chain(patterns).copied().find(|row| row.is_in(directory))
    }

    /// Like [`Obeyed::reported`], and applies the rule for names that the table does not have.
    pub(crate) fn watched(
        directory: &Path,
        name: &OsStr,
        is_directory: bool,
    ) -> Option<&'static Self> {
        Self::reported(directory, name).or_else(|| unlisted(directory, name, is_directory))
    }

    fn last(&self) -> &'static str {
        self.name.rsplit('/').next().unwrap_or(self.name)
    }

    /// Returns true if the last name counts in this directory.
    fn is_in(&self, directory: &Path) -> bool {
        let parents = self.name.rsplit_once('/').map(|(parents, _)| Path::new(parents));
        match (self.held, parents) {
            (Held::ReportedAtTop, parents) => directory == parents.unwrap_or_else(|| Path::new("")),
            (_, parents) => parents.is_none_or(|parents| directory.ends_with(parents)),
        }
    }
}

/// Returns true if `name` matches a pattern with one `*`, which matches any text.
fn matches(pattern: &str, name: &str) -> bool {
    pattern.split_once('*').is_some_and(|(first, last)| {
        // Without the check of the length, both parts could match the same bytes.
        first.len() + last.len() <= name.len() && name.starts_with(first) && name.ends_with(last)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_where_they_count() {
        let found = |directory: &str, name: &str| {
            Obeyed::reported(Path::new(directory), OsStr::new(name)).map(|row| row.name)
        };
        for (directory, name, expected) in [
            ("", ".envrc", Some(".envrc")),
            ("a/b", ".envrc", Some(".envrc")),
            ("", "mise.prod.toml", Some("mise.*.toml")),
            ("", "mise.toml", Some("mise.toml")),
            ("x/.config", "mise.toml", Some(".config/mise.toml")),
            (".hg", "hgrc", Some(".hg/hgrc")),
            ("hg", "hgrc", None),
            ("", "x.code-workspace", Some("*.code-workspace")),
            ("", "eslint.config.mjs", Some("eslint.config.*")),
            ("a", "eslint.config.mjs", Some("eslint.config.*")),
            ("a/.config", "prettierrc", Some(".config/prettierrc*")),
            ("a/b", ".prettierrc.ts", Some(".prettierrc*")),
            ("a", ".venv", None),
            ("", ".hg", None),
            ("", "Makefile", None),
            ("gradle/wrapper", "gradle-wrapper.jar", Some("gradle/wrapper/gradle-wrapper.jar")),
            ("wrapper", "gradle-wrapper.jar", None),
        ] {
            assert_eq!(found(directory, name), expected, "{directory} {name}");
        }
    }
}
