//! Sets aside what makes git run a program in repositories that a session made or changed and that no mount protects.
//! Called by [`super::sweep`] after a command.
//!
//! Nothing is deleted: a file keeps its content under another name, which git does not read. `config` gets a new file
//! with the harmless settings. Only a file that changed while something of the session ran counts, by its change time,
//! which no program can set: another one is the user's.

use super::repository::{self, Base, RepositoryLayout, RepositoryLocation, SET_ASIDE};
use crate::git::gitdir::{self, LinkedRepository};
use crate::git::openat::{self, Node};
use crate::git::settings as git_settings;
use crate::git::stamp::InodeStamp;
use crate::git::visited::Visited;
use crate::git_config::{self as config, Entry};
use crate::hidden::HiddenPaths;
use quackd_protocol::foreign_text::one_line_cut;
use rustix::fs::{Mode, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Maximum number of git directories that one check reads.
const MAX_DIRECTORIES: usize = 512;

/// Maximum number of files that one check sets aside.
const MAX_FILES: usize = 128;

/// Maximum number of files with the same name that are set aside.
const MAX_SAME: usize = 64;

/// Files with settings.
const SETTINGS: [&str; 2] = ["config", "config.worktree"];

/// Settings that `git lfs install --local` writes. The program comes from the user's `PATH`.
const LFS: [&str; 5] = [
    "git-lfs clean -- %f",
    "git-lfs smudge -- %f",
    "git-lfs smudge --skip -- %f",
    "git-lfs filter-process",
    "git-lfs filter-process --skip",
];

/// Maximum length of a reported path and of a reported reason, in characters.
const MAX_PATH: usize = 120;
const MAX_WHY: usize = 80;

/// A file that makes git run a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    /// Relative to the workspace, or absolute outside of it. One line.
    pub path: String,
    /// The setting or kind of file. One line.
    pub why: String,
    /// Path of the file now. `None` if it could not be set aside.
    pub kept_as: Option<String>,
}

/// Result of a check.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) files: Vec<SetAside>,
    /// Number of repositories and files that were left as they are, because the check reached a limit.
    pub(super) n_unchecked: usize,
}

/// Git directories that are left as they are.
#[derive(Clone, Copy)]
pub(super) struct Exempt<'a> {
    /// Mounts protect them.
    pub(super) held: &'a [PathBuf],
    /// The session does not see them.
    pub(super) hidden: &'a HiddenPaths,
}

/// Sets aside files in the git directories of `places` that changed since the time `since`, except in those of `exempt`.
/// Adds the files that it reads to `visited`.
pub(super) fn set_aside(
    base: Base<'_>,
    places: &BTreeSet<RepositoryLocation>,
    exempt: Exempt<'_>,
    since: Duration,
    until: Instant,
    visited: &mut Visited,
) -> Done {
    let mut work =
        Work { base, exempt, since, visited, seen: BTreeSet::new(), done: Done::default() };

    for (n_checked, place) in places.iter().enumerate() {
        if until <= Instant::now() || MAX_DIRECTORIES <= work.seen.len() {
            work.done.n_unchecked += places.len() - n_checked;
            break;
        }
        work.place(place);
    }
    work.done
}

struct Work<'a> {
    base: Base<'a>,
    exempt: Exempt<'a>,
    since: Duration,
    visited: &'a mut Visited,
    seen: BTreeSet<PathBuf>,
    done: Done,
}

impl Work<'_> {
    fn place(&mut self, place: &RepositoryLocation) {
        match place.shape {
            RepositoryLayout::Directory | RepositoryLayout::Bare => {
                self.directory(&place.at);
            }
            // Git follows the link to any directory.
            RepositoryLayout::Other => self.file(&place.at, "a link"),
            RepositoryLayout::File => {
                let inside = match gitdir::follow(self.base.handle, self.base.path, &place.at) {
                    LinkedRepository::Inside(inside) => inside,
                    LinkedRepository::Outside(_) | LinkedRepository::Nowhere => return,
                };
                // A session cannot write in a directory that mounts protect, and this check cannot either. Without its
                // `.git` file, the user's git does not read it.
                let dangerous = inside.iter().filter(|git| !self.directory(git)).count();
                if 0 < dangerous {
                    self.file(&place.at, "it leads to settings that git obeys");
                }
            }
        }
    }

    /// Checks a git directory. Returns false if git would run a program there that could not be set aside.
    fn directory(&mut self, at: &Path) -> bool {
        let is_exempt =
            self.exempt.hidden.contains(at) || self.exempt.held.iter().any(|held| held == at);
        if is_exempt || !self.seen.insert(at.to_owned()) {
            return true;
        }

        let before = self.done.files.len();
        for name in SETTINGS {
            let file = at.join(name);
            self.visited.note_name(self.base.handle, &file);
            if let Some(why) = self.danger_of(&file) {
                self.settings(&file, &why);
            }
        }

        self.visited.note_name(self.base.handle, &at.join("hooks"));
        if openat::node_at(self.base.handle, &at.join("hooks")) == Ok(Node::Other) {
            self.file(&at.join("hooks"), "a link");
        }

        for hook in repository::hooks(self.base, at).0 {
            let hook = at.join("hooks").join(hook);
            self.visited.note_name(self.base.handle, &hook);
            self.file(&hook, "a hook");
        }

        self.common(at);
        self.done.files.iter().skip(before).all(|one| one.kept_as.is_some())
    }

    /// Checks the directory that `commondir` names: git reads its settings and hooks.
    fn common(&mut self, at: &Path) {
        let file = at.join("commondir");
        self.visited.note_name(self.base.handle, &file);
        let text = match openat::node_at(self.base.handle, &file) {
            Ok(Node::Missing) => return,
            Ok(Node::File) => openat::read(self.base.handle, &file).ok(),
            _ => None,
        };

        let named =
            text.and_then(|text| openat::normalise(&self.base.path.join(at).join(text.trim_end())));

        match named.as_deref().map(|named| named.strip_prefix(self.base.path)) {
            Some(Ok(inside))
                if openat::node_at(self.base.handle, inside) == Ok(Node::Directory) =>
            {
                self.directory(inside);
            }
            // The main repository of a linked worktree elsewhere, or nothing.
            Some(Err(_)) if self.is_held(at) => {}
            _ => self.file(&file, "it leads elsewhere"),
        }
    }

    fn is_held(&self, at: &Path) -> bool {
        self.exempt.held.iter().any(|held| at.starts_with(held))
    }

    /// Returns the settings that make git run a program.
    fn danger_of(&self, file: &Path) -> Option<String> {
        match openat::node_at(self.base.handle, file) {
            Ok(Node::Missing | Node::Directory) => return None,
            Ok(Node::File) => {}
            _ => return Some("a link".to_owned()),
        }

        let size = InodeStamp::beneath(self.base.handle, file).map_or(0, InodeStamp::size);
        if openat::MAX_FILE <= size {
            return Some("it is too large to be checked".to_owned());
        }
        let Ok(text) = openat::read(self.base.handle, file) else {
            return Some("it cannot be read".to_owned());
        };

        let entries = config::parse(&text);
        if config::MAX_ENTRIES <= entries.len() {
            return Some("it has too many settings to be checked".to_owned());
        }
        let names: BTreeSet<String> = entries.iter().filter_map(danger).collect();
        (!names.is_empty()).then(|| names.into_iter().collect::<Vec<_>>().join(", "))
    }

    /// Sets aside a file with settings, and writes the harmless ones to a new one.
    fn settings(&mut self, file: &Path, why: &str) {
        if !self.is_new(file) {
            return;
        }
        let text = openat::read(self.base.handle, file).unwrap_or_default();
        let harmless: Vec<Entry> =
            config::parse(&text).into_iter().filter(|entry| danger(entry).is_none()).collect();

        let kept_as = self.moved(file);
        if kept_as.is_some() {
            // Without this file, git works with its defaults.
            self.write(file, &crate::git_config::to_text(harmless.iter())).ok();
        }
        self.report(file, why, kept_as);
    }

    /// Sets aside a file, unless it is the user's.
    fn file(&mut self, file: &Path, why: &str) {
        if self.is_new(file) {
            let kept_as = self.moved(file);
            self.report(file, why, kept_as);
        }
    }

    /// Returns true if the file changed while something of the session ran, and may still be set aside.
    fn is_new(&mut self, file: &Path) -> bool {
        let stamp = InodeStamp::beneath(self.base.handle, file);
        let is_new = stamp.is_some_and(|stamp| !stamp.changed_before(self.since));
        if is_new && MAX_FILES <= self.done.files.len() {
            self.done.n_unchecked += 1;
            return false;
        }
        is_new
    }

    /// Gives a file another name. Returns its new path.
    fn moved(&self, file: &Path) -> Option<PathBuf> {
        let (parent, name) = (file.parent()?, file.file_name()?);
        let directory = openat::hold(self.base.handle, parent).ok()?;
        (0..MAX_SAME).find_map(|number| {
            let to = new_name(name, number);
            // An earlier file that was set aside stays.
            match renameat_with(&directory, name, &directory, &to, RenameFlags::NOREPLACE) {
                Ok(()) => Some(Some(parent.join(&to))),
                Err(Errno::EXIST) => None,
                Err(_) => Some(None),
            }
        })?
    }

    fn write(&self, file: &Path, text: &str) -> io::Result<()> {
        let parent: OwnedFd =
            openat::hold(self.base.handle, file.parent().unwrap_or_else(|| Path::new("")))?;
        let name = Path::new(file.file_name().unwrap_or_default());
        let made = openat::create(&parent, name, Mode::from_raw_mode(0o644))?;
        File::from(made).write_all(text.as_bytes())
    }

    fn report(&mut self, file: &Path, why: &str, kept_as: Option<PathBuf>) {
        let shown = |path: &Path| one_line_cut(&path.to_string_lossy(), MAX_PATH);
        self.done.files.push(SetAside {
            path: shown(file),
            why: one_line_cut(why, MAX_WHY),
            kept_as: kept_as.as_deref().map(shown),
        });
    }
}

/// Returns the name of a setting that makes git run a program, except those of Git LFS.
fn danger(entry: &Entry) -> Option<String> {
    let is_lfs = entry.section == "filter"
        && entry.subsection == "lfs"
        && entry.value.as_deref().is_some_and(|value| LFS.contains(&value));
    git_settings::dangerous(entry).filter(|_| !is_lfs)
}

fn new_name(name: &OsStr, number: usize) -> OsString {
    let mut new = name.to_owned();
    if 0 < number {
        new.push(format!(".{number}"));
    }
    new.push(SET_ASIDE);
    new
}
