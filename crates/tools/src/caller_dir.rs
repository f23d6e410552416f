//! The directory of a caller: relative paths and globs of a call are read from it, and paths in the answer are
//! relative to it.

use quackd_protocol::white_space::trim;
use quackd_search::{FileHits, FindOutcome, SearchOutcome, Warning};
use std::borrow::Cow;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Directory of a caller, relative to the workspace. Empty: the workspace itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallerDir(PathBuf);

impl CallerDir {
    pub(crate) fn new(relative: &Path) -> Self {
        Self(relative.to_owned())
    }

    fn is_workspace(&self) -> bool {
        self.0.as_os_str().is_empty()
    }

    /// Returns a given path relative to the workspace. Absolute paths and those of the home directory are not changed.
    #[must_use]
    pub fn path<'a>(&self, given: &'a str) -> Cow<'a, str> {
        let trimmed = trim(given);
        if self.is_workspace() || trimmed.starts_with(['/', '~']) {
            return Cow::Borrowed(given);
        }
        match trimmed {
            "" | "." => Cow::Owned(self.0.to_string_lossy().into_owned()),
            relative => Cow::Owned(self.0.join(relative).to_string_lossy().into_owned()),
        }
    }

    /// Like [`Self::path`], for an argument.
    #[must_use]
    pub fn path_of(&self, given: Option<String>) -> Option<String> {
        given.map(|given| self.path(&given).into_owned())
    }

    /// Returns a given glob relative to the workspace. A glob without a slash matches names in any directory.
    #[must_use]
    pub fn glob(&self, given: &str) -> String {
        let (not, glob) = given.strip_prefix('!').map_or(("", given), |glob| ("!", glob));
        let is_anchored = glob.trim_end_matches('/').contains('/');
        if self.is_workspace() || !is_anchored || glob.starts_with('/') || glob.starts_with("**/") {
            return given.to_owned();
        }
        format!("{not}{}", self.anchored(glob.strip_prefix("./").unwrap_or(glob)))
    }

    /// Returns a glob that begins at the directory, even one without a slash.
    #[must_use]
    pub fn anchored(&self, glob: &str) -> String {
        if self.is_workspace() {
            return glob.to_owned();
        }

        let (mut base, mut glob) = (self.0.as_path(), glob);
        // Each `../` removes one directory of the caller. A `../` out of the workspace stays in the glob.
        while let (Some(parent), Some(rest)) = (base.parent(), glob.strip_prefix("../")) {
            (base, glob) = (parent, rest);
        }

        if base.as_os_str().is_empty() {
            return glob.to_owned();
        }

        // The name of a directory must match literally.
        let mut whole = String::new();
        for c in base.to_string_lossy().chars() {
            if matches!(c, '*' | '?' | '[' | ']' | '{' | '}' | '!' | '\\') {
                whole.push('\\');
            }
            whole.push(c);
        }

        whole.push('/');
        whole.push_str(glob);
        whole
    }

    /// Returns a path of an answer, given relative to the workspace, relative to the directory.
    #[must_use]
    pub fn shown<'a>(&self, path: &'a Path) -> Cow<'a, Path> {
        if self.is_workspace() {
            return Cow::Borrowed(path);
        }

        if let Ok(below) = path.strip_prefix(&self.0)
            && !below.as_os_str().is_empty()
        {
            return Cow::Borrowed(below);
        }

        let is_name = |one: &Component<'_>| *one != Component::CurDir;
        // The path is not in the directory: go up to the common ancestor first.
        let (mut path, mut base) =
            (path.components().filter(is_name), self.0.components().filter(is_name));
        let mut ahead = (path.next(), base.next());
        while let (Some(one), Some(other)) = ahead
            && one == other
        {
            ahead = (path.next(), base.next());
        }

        let up = ahead.1.into_iter().chain(base).map(|_| Component::ParentDir);
        let relative: PathBuf = up.chain(ahead.0).chain(path).collect();
        if relative.as_os_str().is_empty() {
            Cow::Borrowed(Path::new("."))
        } else {
            Cow::Owned(relative)
        }
    }

    fn change(&self, path: &mut PathBuf) {
        let relative = self.shown(path).into_owned();
        *path = relative;
    }

    /// Makes the paths of a list relative to the directory.
    pub(crate) fn show_all<'a>(&self, paths: impl Iterator<Item = &'a mut PathBuf>) {
        if !self.is_workspace() {
            paths.for_each(|path| self.change(path));
        }
    }

    pub(crate) fn show_file(&self, mut file: FileHits) -> FileHits {
        if !self.is_workspace() {
            file.path = Arc::from(self.shown(&file.path));
        }
        file
    }

    /// Makes all paths of a result relative to the directory.
    pub fn show_search(&self, outcome: &mut SearchOutcome) {
        if !self.is_workspace() {
            for file in &mut outcome.files {
                file.path = Arc::from(self.shown(&file.path));
            }
            self.show_warnings(&mut outcome.warnings);
            self.show_warnings(&mut outcome.unfinished);
        }
    }

    /// Makes all paths of a result relative to the directory.
    pub fn show_find(&self, outcome: &mut FindOutcome) {
        self.show_all(outcome.entries.iter_mut().map(|entry| &mut entry.path));
        self.show_warnings(&mut outcome.warnings);
    }

    pub(crate) fn show_warnings(&self, warnings: &mut [Warning]) {
        self.show_all(warnings.iter_mut().map(|warning| &mut warning.path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir(relative: &str) -> CallerDir {
        CallerDir::new(Path::new(relative))
    }

    #[test]
    fn paths_go_to_the_workspace_and_come_back_to_the_directory() {
        for (base, given, path, shown) in [
            ("", "src", "src", "src"),
            ("", ".", ".", "."),
            ("a/b", "c", "a/b/c", "c"),
            ("a/b", ".", "a/b", "."),
            ("a/b", " ./d/e ", "a/b/./d/e", "d/e"),
            ("a/b", "/ws/x", "/ws/x", "/ws/x"),
            ("a/b", "~/x", "~/x", "../../~/x"),
        ] {
            assert_eq!(dir(base).path(given), path, "{base} {given}");
            if !path.starts_with('/') {
                assert_eq!(dir(base).shown(Path::new(path)), Path::new(shown), "{base} {given}");
            }
        }
        for (base, path, shown) in [
            ("a/b", "a/c", "../c"),
            ("a/b", "x", "../../x"),
            ("a/b", "a", ".."),
            ("a/b", ".", "../.."),
            ("a/b", "a/bc/d", "../bc/d"),
        ] {
            assert_eq!(dir(base).shown(Path::new(path)), Path::new(shown), "{base} {path}");
        }
    }

    #[test]
    fn a_glob_with_a_slash_begins_at_the_directory() {
        for (base, given, meant) in [
            ("", "src/*.rs", "src/*.rs"),
            ("a", "*.rs", "*.rs"),
            ("a", "!*.rs", "!*.rs"),
            ("a", "src/*.rs", "a/src/*.rs"),
            ("a", "!src/*.rs", "!a/src/*.rs"),
            ("", "./src/*.rs", "./src/*.rs"),
            ("a", "./src/*.rs", "a/src/*.rs"),
            ("a", "./*.rs", "a/*.rs"),
            ("a/b", "../c/*.rs", "a/c/*.rs"),
            ("a/b", "../../*.rs", "*.rs"),
            ("a", "../../*.rs", "../*.rs"),
            ("a", "**/x/*.rs", "**/x/*.rs"),
            ("a", "target/", "target/"),
            ("a", "/ws/b/*", "/ws/b/*"),
            ("[x]{y}", "s/*", "\\[x\\]\\{y\\}/s/*"),
        ] {
            assert_eq!(dir(base).glob(given), meant, "{base} {given}");
        }
        assert_eq!(dir("a").anchored("*.rs"), "a/*.rs");
    }
}
