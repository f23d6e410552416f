//! Checks that a directory is a state directory before anything in it changes. The daemon restricts its mode,
//! writes into it and clears its `run`. So a wrong value of `RUBBER_DUCK_APP_SUPPORT` must not destroy files
//! of other programs. Used by [`crate::Home`] only. The only write is the marker file in quackd's own `run`.
//!
//! A directory is accepted in one of these cases:
//! - The platform's rule names it.
//! - It is empty.
//! - It contains a file that only a daemon of quackd or Rubber Duck creates.
//! - It contains only names that such a daemon may have created.
//! - It contains an empty `quackd.lock`, with which the user accepts it.
//! - It is already private and contains none of those names. The daemon then changes no existing file. Rubber
//!   Duck's own tests keep workspaces inside such a directory.
//!
//! Three directories are always refused: the root of the file system, the user's home, and the root of a git
//! repository without a daemon's files.

use crate::HomeError;
use crate::own_file::read_blocking;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, openat, statat};
use rustix::io::Errno;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::ffi::CStr;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Marker file that identifies `run` as quackd's. No session name starts with a dot.
pub(crate) const MARK: &CStr = c".quackd";

/// Explains the directory to the user.
const MARK_TEXT: &[u8] =
    b"quackd made this directory, and deletes it with everything in it at each start.\n";

const CACHES_TEXT: &[u8] = b"Package caches of quackd's workspaces. `quack gc` deletes them.\n";

const AGENTS_TEXT: &[u8] =
    b"State and logins of agents in quackd's sessions. `quack agents forget` deletes them.\n";

/// Prefix of the names of retired run directories.
pub(crate) const RETIRED: &str = "run.old-";

/// Files that only one of the two daemons creates.
const MARKER_FILES: [&CStr; 4] =
    [c"quackd-state.json", c"quackd-state.json.bak", c"duck-daemon.log", c"duck-daemon.pid"];

/// Metadata files of both daemons. The content is checked, because other programs use such names too.
const METADATA: [&str; 3] = ["metadata.json", "metadata.json.bak", "metadata.json.ours"];

/// Maximum size of the checked metadata, in bytes. Equal to the store's limit.
const MAX_METADATA_BYTES: u64 = 64 * 1024 * 1024;

/// Names that a directory may contain if no daemon has used it yet, or if its marker files are damaged. Names
/// with a suffix (`.tmp`, `.corrupt-1`) are included.
const KNOWN_NAMES: [&str; 28] = [
    "metadata.json",
    "quackd-state.json",
    "config.json",
    "remote-auth-token",
    "page-tokens.json",
    "login-environment.json",
    "interrupted.json",
    "spending.json",
    "model-lists.json",
    "mcp-install.json",
    "mcp-token",
    "provider-keys.json",
    "approvals.jsonl",
    "network.jsonl",
    "quackd.toml",
    "service.env",
    "launchd.log",
    "duck-daemon.pid",
    "duck-daemon.log",
    "daemon.sock",
    "quackd.lock",
    "placeholders",
    "pi-package",
    "pi-sessions",
    "prompts",
    "journal",
    "isolated",
    "checkpoints",
];

/// Files that operating systems put into any directory.
const ANYWHERE: [&str; 2] = [".DS_Store", "lost+found"];

/// The app's directory on macOS. Accepted even if an environment variable names it.
const APP_SUPPORT: &str = "Library/Application Support/RubberDuck";

/// Maximum number of unknown names in an error.
const MAX_REPORTED: usize = 3;

/// Maximum number of unknown names to count.
const MAX_COUNTED: usize = 1000;

/// Maximum length of each name in an error, in characters.
const MAX_NAME: usize = 40;

/// A candidate for the state directory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnershipCheck<'a> {
    /// Path as configured.
    pub(crate) path: &'a Path,
    /// The user's home directory; `None` if unknown.
    pub(crate) user_home: Option<&'a Path>,
    /// True if the platform's rule chose the directory, false if an environment variable did.
    pub(crate) is_by_rule: bool,
}

impl OwnershipCheck<'_> {
    /// Checks that the directory and its `run` may be used. Changes nothing.
    ///
    /// # Errors
    /// [`HomeError::Reserved`], [`HomeError::Foreign`], [`HomeError::ForeignRun`], or [`HomeError::Io`].
    pub(crate) fn check_blocking(&self, dir: &File) -> Result<(), HomeError> {
        let io = |error: Errno| HomeError::io("inspect", self.path, error);
        let metadata = dir.metadata().map_err(|e| HomeError::io("inspect", self.path, e))?;

        // Compare device and inode: one directory has many paths.
        let is_here = |other: &Path| {
            other
                .metadata()
                .is_ok_and(|entry| (entry.dev(), entry.ino()) == (metadata.dev(), metadata.ino()))
        };

        let reserved = |what| Err(HomeError::Reserved { path: self.path.to_owned(), what });
        if is_here(Path::new("/")) {
            return reserved("the root of the file system");
        }
        if self.user_home.is_some_and(is_here) {
            return reserved("your home directory");
        }

        let is_ours = self.is_by_rule || self.path.ends_with(APP_SUPPORT);
        if !is_ours {
            let is_used = self.is_used(dir);
            if !is_used && statat(dir, c".git", AtFlags::SYMLINK_NOFOLLOW).is_ok() {
                return reserved("the root of a git repository");
            }
            let is_private = metadata.mode() & 0o077 == 0;
            if !is_used
                && !is_claimed(dir)
                && let Some(found) = unknown_names(dir, |name| is_known(dir, name)).map_err(io)?
                && !(is_private && has_no_daemon_file(dir).map_err(io)?)
            {
                return Err(HomeError::Foreign { path: self.path.to_owned(), found });
            }
        }

        match openat(dir, c"run", RUN_FLAGS, Mode::empty()) {
            Ok(run) => check_current_run(dir, &run, &self.path.join("run")),
            // Missing, or not a directory: making it private reports that.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(()),
            Err(errno) => Err(io(errno)),
        }
    }

    /// Returns true if a daemon has used the directory.
    fn is_used(&self, dir: &File) -> bool {
        has_marker_file(dir) || METADATA.iter().any(|name| is_metadata(&self.path.join(name)))
    }
}

/// Permissions of group and others.
const OTHERS: Mode = Mode::RWXG.union(Mode::RWXO);

fn regular(dir: impl AsFd, name: &CStr) -> Option<Stat> {
    let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    is(&stat, FileType::RegularFile).then_some(stat)
}

fn has_marker_file(dir: impl AsFd) -> bool {
    MARKER_FILES.iter().any(|name| regular(dir.as_fd(), name).is_some())
}

/// Returns true if the user has created an empty `quackd.lock` to accept the directory. Quackd never writes
/// into the lock file.
fn is_claimed(dir: &File) -> bool {
    regular(dir, c"quackd.lock").is_some_and(|stat| stat.st_size == 0)
}

/// Flags for opening `run`.
pub(crate) const RUN_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Checks that `run` in the directory `above` is quackd's: it has the marker file, is empty, or resembles one
/// of a version without markers.
///
/// # Errors
/// [`HomeError::ForeignRun`], or [`HomeError::Io`].
pub(crate) fn check_run(above: impl AsFd, run: impl AsFd, path: &Path) -> Result<(), HomeError> {
    let run = run.as_fd();
    if is_marked(run) {
        return Ok(());
    }

    let is_used = has_marker_file(above);
    let strange = unknown_names(run, |name| {
        // Another daemon may create the marker at the same time.
        name.as_bytes() == MARK.to_bytes()
            || statat(run, name, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|stat| is_of_a_session(name, &stat, is_used))
    });

    match strange {
        Ok(None) => Ok(()),
        // The other daemon has created the marker since the check.
        Ok(Some(_)) if is_marked(run) => Ok(()),
        Ok(Some(found)) => Err(HomeError::ForeignRun { path: path.to_owned(), found }),
        Err(errno) => Err(HomeError::io("inspect", path, errno)),
    }
}

/// Like [`check_run`], but accepts a directory that is no longer `run`: a starting daemon has moved it aside and deletes
/// it.
pub(crate) fn check_current_run(
    above: &File,
    run: impl AsFd,
    path: &Path,
) -> Result<(), HomeError> {
    check_run(above, &run, path).or_else(|error| {
        let named = statat(above, c"run", AtFlags::SYMLINK_NOFOLLOW);
        let open = rustix::fs::fstat(run);
        match (named, open) {
            (Ok(a), Ok(b)) if (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino) => Err(error),
            _ => Ok(()),
        }
    })
}

/// Returns true if a directory has quackd's marker file.
pub(crate) fn is_marked(dir: impl AsFd) -> bool {
    let stat = statat(dir, MARK, AtFlags::SYMLINK_NOFOLLOW);
    stat.is_ok_and(|stat| is(&stat, FileType::RegularFile))
}

/// Returns true for the name of a retired run directory.
fn is_retired(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    name.strip_prefix(RETIRED).is_some_and(|rest| {
        let (pid, n) = rest.split_once('-').unwrap_or((rest, "1"));
        is_number(pid) && is_number(n)
    })
}

/// Returns true if an entry of the state directory is a retired run directory of quackd.
pub(crate) fn is_retired_run(state: impl AsFd, name: &str) -> bool {
    if !is_retired(name) {
        return false;
    }
    let run = openat(state.as_fd(), name, RUN_FLAGS, Mode::empty());
    run.is_ok_and(|run| check_run(state, &run, Path::new(name)).is_ok())
}

/// Creates the marker file in a `run` that [`check_run`] has accepted.
///
/// # Errors
/// [`HomeError::Io`].
pub(crate) fn mark_run(run: impl AsFd, path: &Path) -> Result<(), HomeError> {
    mark(run, path, MARK_TEXT)
}

/// Creates the marker file in a directory for package caches, if it has one or is empty.
///
/// # Errors
/// [`HomeError::ForeignRun`] for a directory with files and without the marker file, or [`HomeError::Io`].
pub(crate) fn mark_caches(caches: impl AsFd, path: &Path) -> Result<(), HomeError> {
    mark_empty(caches, path, CACHES_TEXT)
}

/// Like [`mark_caches`], for the directory with the state of agents.
///
/// # Errors
/// As [`mark_caches`].
pub(crate) fn mark_agents(agents: impl AsFd, path: &Path) -> Result<(), HomeError> {
    mark_empty(agents, path, AGENTS_TEXT)
}

fn mark_empty(dir: impl AsFd, path: &Path, text: &[u8]) -> Result<(), HomeError> {
    if is_marked(&dir) {
        return Ok(());
    }
    match unknown_names(&dir, |_| false) {
        Ok(None) => mark(dir, path, text),
        // Another thread may have created the marker.
        Ok(Some(_)) if is_marked(&dir) => Ok(()),
        Ok(Some(found)) => Err(HomeError::ForeignRun { path: path.to_owned(), found }),
        Err(errno) => Err(HomeError::io("inspect", path, errno)),
    }
}

fn mark(run: impl AsFd, path: &Path, text: &[u8]) -> Result<(), HomeError> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    match openat(run, MARK, flags, Mode::RUSR | Mode::WUSR) {
        // The existence of the file is sufficient. It is empty on a full disk.
        Ok(mark) => {
            File::from(mark).write_all(text).ok();
        }
        Err(Errno::EXIST) => {}
        Err(errno) => return Err(HomeError::io("mark", path, errno)),
    }
    Ok(())
}

/// Returns true if an entry of `run` is one that a daemon without markers creates: a session's private
/// directory, or a login shell's pipe. Other programs use session ids of any form. So the form is not checked
/// if a daemon has used the directory (`is_used`).
fn is_of_a_session(name: &str, stat: &Stat, is_used: bool) -> bool {
    if is(stat, FileType::Fifo) {
        return name.starts_with("login-") && name.ends_with(".pipe");
    }

    let is_id = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
    // Our ids have 22 characters; Rubber Duck's are UUIDs.
    let has_shape = matches!(name.len(), 22 | 36) && name.bytes().all(is_id);
    let is_private = !Mode::from_raw_mode(stat.st_mode).intersects(OTHERS);
    is(stat, FileType::Directory) && (has_shape || is_used) && is_private
}

/// Returns true if the file is the metadata of one of the two daemons.
fn is_metadata(path: &Path) -> bool {
    #[derive(Deserialize)]
    struct DocumentShape {
        #[serde(rename = "workspaces")]
        _workspaces: Vec<IgnoredAny>,
        #[serde(rename = "sessions")]
        _sessions: Vec<IgnoredAny>,
    }

    let bytes = read_blocking(path, MAX_METADATA_BYTES);
    bytes.is_ok_and(|bytes| serde_json::from_slice::<DocumentShape>(&bytes).is_ok())
}

fn is_known(dir: &File, name: &str) -> bool {
    is_ours(name) || is_retired_run(dir, name) || ANYWHERE.contains(&name) || name == "run"
}

/// Returns true for the name of a daemon's file, also with a suffix. `run` is checked separately.
fn is_ours(name: &str) -> bool {
    KNOWN_NAMES.iter().any(|base| {
        name.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

/// Returns true if the directory contains no entry that a daemon would change.
fn has_no_daemon_file(dir: &File) -> Result<bool, Errno> {
    Ok(unknown_names(dir, |name| !is_ours(name))?.is_none())
}

/// Returns the first unknown names in the directory, for an error text; `None` if all are known.
fn unknown_names(dir: impl AsFd, is_known: impl Fn(&str) -> bool) -> Result<Option<String>, Errno> {
    let (mut list, mut n) = (Vec::new(), 0_usize);

    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy();
        if matches!(&*name, "." | "..") || is_known(&name) {
            continue;
        }

        n += 1;
        if list.len() < MAX_REPORTED {
            list.push(name.chars().take(MAX_NAME).flat_map(char::escape_debug).collect::<String>());
        }
        if MAX_COUNTED <= n {
            break;
        }
    }

    list.sort();
    let more = n - list.len();
    Ok(match (list.join(", "), more) {
        (_, _) if n == 0 => None,
        (list, 0) => Some(list),
        (list, more) => Some(format!("{list} and {more} more")),
    })
}

fn is(stat: &Stat, kind: FileType) -> bool {
    FileType::from_raw_mode(stat.st_mode) == kind
}

#[cfg(test)]
mod tests {
    use crate::{Home, HomeError};
    use std::fs;
    use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, symlink};
    use std::path::{Path, PathBuf};

    const METADATA: &str = r#"{"version":1,"workspaces":[],"sessions":[],"more":1}"#;

    /// A candidate for the state directory.
    struct World(tempfile::TempDir);

    impl World {
        /// Creates the entries: `name/` is a directory, `run/x/` a private one, and `name=text` a file.
        fn with(entries: &[&str]) -> Self {
            let world = Self(tempfile::tempdir().unwrap());
            fs::create_dir_all(world.dir()).unwrap();
            fs::set_permissions(world.dir(), fs::Permissions::from_mode(0o755)).unwrap();
            for entry in entries {
                if let Some(dir) = entry.strip_suffix('/') {
                    let dir = world.dir().join(dir);
                    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).unwrap();
                    continue;
                }
                let (name, text) = entry.split_once('=').unwrap_or((entry, ""));
                let path = world.dir().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            world
        }

        fn dir(&self) -> PathBuf {
            self.0.path().join("home/state")
        }

        fn named(&self, dir: &Path) -> Home {
            let var = |name: &str| match name {
                "RUBBER_DUCK_APP_SUPPORT" => Some(dir.into()),
                "HOME" => Some(self.0.path().join("home").into()),
                _ => None,
            };
            Home::resolve_blocking(&var).unwrap()
        }

        /// Returns all paths in the directory with their modes.
        fn tree(&self) -> Vec<(PathBuf, u32)> {
            let (mut found, mut left) = (Vec::new(), vec![self.dir()]);
            while let Some(path) = left.pop() {
                let metadata = path.symlink_metadata().unwrap();
                if metadata.is_dir() {
                    left.extend(fs::read_dir(&path).unwrap().map(|it| it.unwrap().path()));
                }
                found.push((path, metadata.mode()));
            }
            found.sort();
            found
        }

        /// Asserts that the directory is refused and unchanged. Returns the error.
        fn refused(&self, dir: &Path) -> HomeError {
            let before = self.tree();
            let home = self.named(dir);
            let look = home.check_blocking().unwrap_err().to_string();
            let error = home.prepare_blocking().unwrap_err();
            assert_eq!(look, error.to_string());
            assert_eq!(self.tree(), before, "{error}");
            error
        }
    }

    #[test]
    fn a_directory_of_somebody_is_refused_and_nothing_in_it_is_changed() {
        let cases: &[(&[&str], &str)] = &[
            (&["notes.txt"], "notes.txt"),
            (&["src/", "run/data", "config.json={}"], "src"),
            (&["metadata.json={\"name\":\"x\"}", "data/"], "data"),
            (&["quackd.lock=text", "b", "a", "c", "d", "e"], "2 more"),
            (&["quackd.toml", "Makefile"], "Makefile"),
            (&["run.old-backup/x"], "run.old-backup"),
            (&["run.old-2024/data"], "run.old-2024"),
        ];
        for (entries, told) in cases {
            let world = World::with(entries);
            let error = world.refused(&world.dir());
            assert!(matches!(error, HomeError::Foreign { .. }), "{entries:?}: {error}");
            assert!(error.to_string().contains(told), "{entries:?}: {error}");
        }
    }

    #[test]
    fn what_either_daemon_has_left_is_used_and_so_is_an_empty_directory() {
        let metadata = format!("metadata.json={METADATA}");
        let backup = format!("metadata.json.bak={METADATA}");
        let cases: &[&[&str]] = &[
            &[],
            &["quackd.toml", "service.env", ".DS_Store", "lost+found/"],
            &["quackd.lock", "notes.txt"],
            &["quackd-state.json=damaged", "notes.txt"],
            &["duck-daemon.log", "duck", "duck.version", "sessions/x.jsonl", "notes.txt"],
            &[&metadata, "sessions/metadata.sqlite", "notes.txt"],
            &["metadata.json=damaged", &backup, "notes.txt"],
            &["metadata.json=damaged", "metadata.json.corrupt-1", "config.json={}"],
            &["run.old-12/.quackd", "run.old-12-3/.quackd", "run/.quackd", "run/anything"],
        ];
        for entries in cases {
            let world = World::with(entries);
            let home = world.named(&world.dir());
            home.check_blocking().unwrap();
            home.prepare_blocking().unwrap_or_else(|error| panic!("{entries:?}: {error}"));
            assert_eq!(world.dir().metadata().unwrap().mode() & 0o777, 0o700, "{entries:?}");
            assert!(world.dir().join("run/.quackd").is_file(), "{entries:?}");
        }
    }

    #[test]
    fn a_directory_that_is_closed_already_is_used_with_what_is_in_it_but_not_with_a_run_of_others()
    {
        let world = World::with(&["workspace-a/", "notes.txt"]);
        fs::set_permissions(world.dir(), fs::Permissions::from_mode(0o700)).unwrap();
        let before = world.tree();
        world.named(&world.dir()).prepare_blocking().unwrap();
        let after = world.tree();
        assert!(before.iter().all(|entry| after.contains(entry)), "{before:?} {after:?}");
        let world = World::with(&["workspace-a/", "run/data"]);
        fs::set_permissions(world.dir(), fs::Permissions::from_mode(0o700)).unwrap();
        let error = world.refused(&world.dir());
        assert!(matches!(error, HomeError::ForeignRun { .. }), "{error}");
        // Files that the daemon would read, move or overwrite, without a marker file of a daemon.
        for name in ["config.json", "metadata.json", "service.env", "metadata.json.corrupt-1"] {
            let world = World::with(&["workspace-a/", name]);
            fs::set_permissions(world.dir(), fs::Permissions::from_mode(0o700)).unwrap();
            let error = world.refused(&world.dir());
            assert!(matches!(error, HomeError::Foreign { .. }), "{name}: {error}");
        }
    }

    #[test]
    fn a_run_directory_that_somebody_put_aside_is_not_deleted_with_ours() {
        let world = World::with(&["quackd.lock", "run.old-2024/data", "run.old-12/.quackd"]);
        let home = world.named(&world.dir());
        home.prepare_blocking().unwrap();
        home.remove_retired_blocking().unwrap();
        assert!(world.dir().join("run.old-2024/data").is_file());
        assert!(!world.dir().join("run.old-12").exists());
    }

    #[test]
    fn a_repository_in_which_a_daemon_has_served_is_used_on() {
        let world = World::with(&["quackd.lock", "quackd-state.json={}", ".git/HEAD"]);
        world.named(&world.dir()).prepare_blocking().unwrap();
    }

    #[test]
    fn sessions_of_another_program_may_have_any_id_where_a_daemon_has_served() {
        let world = World::with(&["quackd-state.json={}", "run/custom-id/"]);
        world.named(&world.dir()).prepare_blocking().unwrap();
        let world = World::with(&["quackd.lock", "run/custom-id/"]);
        let error = world.refused(&world.dir());
        assert!(matches!(error, HomeError::ForeignRun { .. }), "{error}");
    }

    #[test]
    fn the_home_directory_the_root_and_a_repository_are_refused_by_name_whatever_is_in_them() {
        let world = World::with(&["quackd.lock", ".git/HEAD"]);
        let above = world.dir().parent().unwrap().to_owned();
        fs::write(above.join("quackd.lock"), "").unwrap();
        symlink(&above, world.0.path().join("link")).unwrap();
        let link = world.0.path().join("link");
        for (dir, told) in [
            (world.dir(), "the root of a git repository"),
            (above, "your home directory"),
            (link, "your home directory"),
        ] {
            let error = world.refused(&dir);
            assert!(matches!(error, HomeError::Reserved { .. }), "{dir:?}: {error}");
            assert!(error.to_string().contains(told), "{dir:?}: {error}");
        }
        // Only root may inspect root's directory. For other users the owner check fails first.
        if rustix::process::geteuid().is_root() {
            let error = world.named(Path::new("/")).prepare_blocking().unwrap_err();
            assert!(error.to_string().contains("the root of the file system"), "{error}");
        }
    }

    #[test]
    fn a_run_that_we_did_not_make_is_neither_used_nor_put_aside() {
        let of_a_session = "run/abcdefghijklmnopqrstuv/";
        for strange in ["run/notes", "run/abc/", "run/abcdefghijklmnopqrstuvw", "run/pid=1"] {
            let world = World::with(&["quackd.lock", of_a_session, strange]);
            let error = world.refused(&world.dir());
            assert!(matches!(error, HomeError::ForeignRun { .. }), "{strange}: {error}");
            let before = world.tree();
            world.named(&world.dir()).retire_run_dir_blocking().unwrap_err();
            assert_eq!(world.tree(), before);
        }
        // A run directory of an earlier version has no marker file.
        let world = World::with(&["quackd.lock", of_a_session]);
        let home = world.named(&world.dir());
        home.prepare_blocking().unwrap();
        home.retire_run_dir_blocking().unwrap();
        assert!(!home.run_dir().exists());
        home.remove_retired_blocking().unwrap();
        home.prepare_blocking().unwrap();
        let names = fs::read_dir(world.dir()).unwrap().map(|it| it.unwrap().file_name());
        let mut names: Vec<_> = names.collect();
        names.sort();
        assert_eq!(names, ["quackd.lock", "run"]);
    }

    #[test]
    fn where_the_platforms_rule_looks_everything_is_ours() {
        let world = World::with(&[]);
        let shared = world.dir().parent().unwrap().join(super::APP_SUPPORT);
        fs::create_dir_all(&shared).unwrap();
        fs::write(shared.join("anything"), "").unwrap();
        let user_home = world.dir().parent().unwrap().to_owned();
        let var = |name: &str| (name == "HOME").then(|| user_home.clone().into());
        Home::resolve_blocking(&var).unwrap().prepare_blocking().unwrap();
        assert!(shared.join("run/.quackd").is_file());
        // An environment variable may name the app's directory as well.
        fs::remove_dir_all(shared.join("run")).unwrap();
        world.named(&shared).prepare_blocking().unwrap();
    }
}
