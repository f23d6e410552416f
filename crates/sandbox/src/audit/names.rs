//! The names at the top of a workspace that later programs run or obey, and what became of them. Called by
//! `snapshot`, after every command that could write: some dozens of system calls.
//!
//! Of a directory its direct entries are watched. What is deeper shows itself only by what it changes there.

use super::Change;
use super::plain::plain;
use super::stamp::Stamp;
use crate::confine::git::open_directory;
use crate::protected::{Rule, watched};
use quackd_protocol::client::AuditChange;
use rustix::fs::Dir;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

/// Most entries of one directory that are watched one by one.
const MAX_ENTRIES: usize = 64;

/// Longest path that is told, in characters.
const MAX_SHOWN: usize = 120;

/// The watched names as they were at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Names(BTreeMap<&'static str, Watched>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Watched {
    rule: Rule,
    stamp: Stamp,
    entries: BTreeMap<OsString, Stamp>,
    /// There are more entries than are watched.
    has_more: bool,
}

impl Names {
    /// Looks at the names in an open directory.
    ///
    /// # Errors
    /// The directory cannot be looked into.
    pub fn look_blocking(root: impl AsFd) -> io::Result<Self> {
        let root = open_directory(root, Path::new(""))?;
        let mut names = BTreeMap::new();
        for (name, rule) in watched() {
            let Some(stamp) = Stamp::at(&root, name) else { continue };
            let mut watched = Watched { rule, stamp, entries: BTreeMap::new(), has_more: false };
            if stamp.is_directory() {
                // One that cannot be read is judged by itself.
                watched.has_more = list(&root, name, &mut watched.entries).is_none();
            }
            names.insert(name, watched);
        }
        Ok(Self(names))
    }

    /// What is different in `now`, each name once.
    #[must_use]
    pub fn changes(&self, now: &Self) -> Vec<Change> {
        let gone = self.0.iter().filter(|(name, _)| !now.0.contains_key(*name));
        let gone = gone.map(|(name, was)| change(name, None, AuditChange::Removed, was.rule));
        let there = now.0.iter().filter_map(|(name, is)| match self.0.get(name) {
            None => Some(change(name, None, AuditChange::Made, is.rule)),
            Some(was) if was == is => None,
            Some(was) => Some(was.inside(name, is)),
        });
        gone.chain(there).collect()
    }
}

impl Watched {
    /// What changed about a name that was and is there: one entry if it was only that, or all of it.
    fn inside(&self, name: &str, now: &Self) -> Change {
        let whole = || change(name, None, AuditChange::Changed, now.rule);
        if self.stamp.identity() != now.stamp.identity() || self.has_more || now.has_more {
            return whole();
        }
        let mut different = Vec::new();
        for (entry, stamp) in &now.entries {
            match self.entries.get(entry) {
                None => different.push((entry, AuditChange::Made)),
                Some(was) if was != stamp => different.push((entry, AuditChange::Changed)),
                Some(_) => {}
            }
        }
        let gone = self.entries.keys().filter(|entry| !now.entries.contains_key(*entry));
        different.extend(gone.map(|entry| (entry, AuditChange::Removed)));
        match different.as_slice() {
            [(entry, what)] => change(name, Some(entry), *what, now.rule),
            _ => whole(),
        }
    }
}

fn change(name: &str, entry: Option<&OsString>, change: AuditChange, rule: Rule) -> Change {
    let path = match entry {
        Some(entry) => format!("{name}/{}", entry.to_string_lossy()),
        None => name.to_owned(),
    };
    Change { path: plain(&path, MAX_SHOWN), change, why: rule.reason().to_owned() }
}

/// The entries of a directory; `None` if there are too many or they cannot be read.
fn list(root: impl AsFd, name: &str, entries: &mut BTreeMap<OsString, Stamp>) -> Option<()> {
    let directory = open_directory(root, Path::new(name)).ok()?;
    for entry in Dir::read_from(&directory).ok()? {
        let entry = entry.ok()?;
        let file = entry.file_name();
        if file == c"." || file == c".." {
            continue;
        }
        if entries.len() == MAX_ENTRIES {
            return None;
        }
        if let Some(stamp) = Stamp::at(&directory, file) {
            // Of a directory in it only that it is another one: that something in it changed is not looked at.
            let stamp = if stamp.is_directory() { stamp.identity() } else { stamp };
            entries.insert(OsString::from_vec(file.to_bytes().to_vec()), stamp);
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    struct World(tempfile::TempDir);

    impl World {
        fn at(&self, path: &str) -> PathBuf {
            self.0.path().join(path)
        }

        fn look(&self) -> Names {
            Names::look_blocking(fs::File::open(self.0.path()).unwrap()).unwrap()
        }

        fn write(&self, path: &str, text: &str) {
            fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
            fs::write(self.at(path), text).unwrap();
        }
    }

    fn told(was: &Names, is: &Names) -> Vec<String> {
        let changes = was.changes(is);
        changes.iter().map(|c| format!("{} {}", c.path, c.change.name())).collect()
    }

    #[test]
    fn what_is_made_changed_and_removed_is_told_by_name() {
        let world = World(tempfile::tempdir().unwrap());
        world.write(".npmrc", "a");
        world.write(".vscode/settings.json", "{}");
        world.write(".husky/pre-commit", "x");
        world.write("src/main.rs", "x");
        let start = world.look();
        assert_eq!(told(&start, &world.look()), [""; 0]);
        world.write("src/main.rs", "y");
        world.write("src/.envrc", "not at the top");
        assert_eq!(told(&start, &world.look()), [""; 0]);
        world.write(".envrc", "x");
        world.write(".vscode/tasks.json", "{}");
        fs::remove_file(world.at(".npmrc")).unwrap();
        let now = world.look();
        let expected = [".npmrc removed", ".envrc made", ".vscode/tasks.json made"];
        assert_eq!(told(&start, &now), expected);
        world.write(".husky/pre-commit", "another");
        world.write(".husky/pre-push", "x");
        assert_eq!(told(&now, &world.look()), [".husky changed"]);
    }

    #[test]
    fn a_change_with_the_old_size_and_time_is_seen() {
        let world = World(tempfile::tempdir().unwrap());
        world.write(".envrc", "abc");
        let modified = fs::metadata(world.at(".envrc")).unwrap().modified().unwrap();
        let start = world.look();
        world.write(".envrc", "xyz");
        let file = fs::File::options().write(true).open(world.at(".envrc")).unwrap();
        file.set_modified(modified).unwrap();
        assert_eq!(told(&start, &world.look()), [".envrc changed"]);
    }

    #[test]
    fn a_directory_with_many_files_is_told_as_one() {
        let world = World(tempfile::tempdir().unwrap());
        for n in 0..=MAX_ENTRIES {
            world.write(&format!(".claude/{n}"), "");
        }
        let start = world.look();
        assert_eq!(told(&start, &world.look()), [""; 0]);
        world.write(".claude/new", "");
        assert_eq!(told(&start, &world.look()), [".claude changed"]);
    }

    #[test]
    #[ignore = "prints how long a look takes"]
    #[expect(clippy::print_stderr, reason = "that is what it is for")]
    fn a_look_is_timed() {
        let world = World(tempfile::tempdir().unwrap());
        let time = |what: &str| {
            let root = fs::File::open(world.0.path()).unwrap();
            let start = std::time::Instant::now();
            for _ in 0..1000 {
                Names::look_blocking(&root).unwrap();
            }
            eprintln!("{what}: {:?}", start.elapsed() / 1000);
        };
        time("nothing there");
        for directory in [".vscode", ".husky", ".claude", ".cargo"] {
            for n in 0..MAX_ENTRIES {
                world.write(&format!("{directory}/{n}"), "");
            }
        }
        time("four full directories");
    }

    #[test]
    fn a_link_in_the_place_of_a_name_is_a_change_and_is_not_followed() {
        let world = World(tempfile::tempdir().unwrap());
        world.write(".claude/a", "");
        let start = world.look();
        fs::remove_dir_all(world.at(".claude")).unwrap();
        std::os::unix::fs::symlink("/etc", world.at(".claude")).unwrap();
        let now = world.look();
        assert_eq!(told(&start, &now), [".claude changed"]);
        assert!(now.0[".claude"].entries.is_empty());
    }
}
