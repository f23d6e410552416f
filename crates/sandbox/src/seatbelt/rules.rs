//! A profile of macOS, the paths that it is about, and its rules about one path. Called by the profile and by its rules
//! about repositories.

use super::spelling::{self, Extent};
use crate::git::GitDirectories;
use crate::pin::Pin;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Names in the home in which programs keep keys. No command can read them.
pub(super) const HOME_SECRETS: [&str; 7] =
    [".ssh", ".aws", ".gnupg", ".netrc", "Library/Keychains", ".config/gh", ".docker"];

/// Absolute paths with every link resolved (`/private/tmp`, not `/tmp`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MacPaths {
    /// Workspace of the session.
    pub workspace: PathBuf,
    /// Run directory of the session.
    pub run_dir: PathBuf,
    /// State directory of the daemon.
    pub state_dir: PathBuf,
    /// Home directory of the user.
    pub home: PathBuf,
    /// Directory for temporary files of the session.
    pub temporary: PathBuf,
    /// Directories of `PATH` and toolchains in the home, readable only. A relative one, and one that contains the home, is
    /// left out.
    pub toolchains: Vec<PathBuf>,
    /// Git directories of the workspace and of the directories that the session may write.
    pub git: GitDirectories,
    /// Files that git's settings name, and the directories above them.
    pub pins: Vec<Pin>,
    /// Workspace of the user, if the session works in a copy of it.
    pub original: Option<PathBuf>,
    /// Directory of the user's repository with the objects that the copy of an isolated session borrows, read-only.
    pub objects: Option<PathBuf>,
    /// Port of the session's network proxy on 127.0.0.1, which
    /// [`quackd_protocol::policy::NetworkMode::Hosts`] needs. `None` without a proxy.
    pub proxy: Option<u16>,
}

/// A profile with its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seatbelt {
    /// Text for `-p`.
    pub text: String,
    /// Names and values, for `-D NAME=VALUE`.
    pub parameters: Vec<(String, PathBuf)>,
    /// Trees whose content the profile allows or forbids to read. The last one with a path decides.
    pub(super) readable: Vec<(PathBuf, bool)>,
    pub(super) repositories: Repositories,
}

/// Repositories in which git can write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repositories {
    /// Each.
    Each,
    /// So many of those that are a `.git` of a directory of the session, without their submodules and linked worktrees. All
    /// others are read-only as a whole.
    Nearest(usize),
}

impl Seatbelt {
    /// Records a rule about reading, for [`Seatbelt::may_read`].
    fn note(&mut self, action: &str, matcher: &str, path: &Path) {
        if action.contains("file-read*") && matcher == "subpath" {
            self.readable.push((path.to_path_buf(), action.starts_with("allow")));
        }
    }

    /// Adds a rule about a path, which becomes a parameter.
    pub(super) fn rule(&mut self, action: &str, matcher: &str, name: &str, path: &Path) {
        self.note(action, matcher, path);
        let parameter = self.parameter(name, path);
        // Writing to a string cannot fail.
        let _written = writeln!(self.text, "({action} ({matcher} (param \"{parameter}\")))");
    }

    /// Adds a rule that forbids something about every spelling of a path.
    pub(super) fn forbid(&mut self, action: &str, extent: Extent, name: &str, path: &Path) {
        let matcher = matcher(extent);
        if !spelling::has_other_spellings(path) {
            return self.rule(action, matcher, name, path);
        }
        let pattern = spelling::pattern_of(&[path], &[], extent);
        self.note(action, matcher, path);
        let parameter = self.parameter(name, path);
        let _written = writeln!(
            self.text,
            "({action} ({matcher} (param \"{parameter}\")) (regex #\"{pattern}\"))"
        );
    }

    /// Adds a parameter. Returns its name.
    pub(super) fn parameter(&mut self, name: &str, path: &Path) -> String {
        let name = format!("{name}_{}", self.parameters.len());
        self.parameters.push((name.clone(), path.to_path_buf()));
        name
    }

    /// Forbids renaming and removing a directory, so that nothing else can take its place.
    pub(super) fn pin(&mut self, directory: &Path) {
        self.rule("deny file-write-unlink", "literal", "PIN", directory);
    }
}

pub(super) fn matcher(extent: Extent) -> &'static str {
    match extent {
        Extent::Name => "literal",
        Extent::Tree => "subpath",
    }
}
