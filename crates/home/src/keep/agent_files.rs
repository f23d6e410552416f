//! Copies files into the state of agents: logins that workspaces share, the user's own logins and other files of the user.
//! Called by the supervisor when a worker starts and ends, and by `quack run --import-login`.
//!
//! Commands of sessions write in the state at the same time, so it is hostile. No link is followed below the directories
//! that quackd creates, and no pipe is waited for. A copy replaces a file by renaming.

use super::handles::open_dir;
use crate::private_dir::{FinalLink, own_dir_blocking, restrict_blocking};
use crate::{Home, HomeError};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;
use std::ffi::CString;
use std::fs::{File, Metadata};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Maximum size of a copied file, in bytes. Larger and empty files count as missing.
const MAX_COPIED_FILE_BYTES: u64 = 1024 * 1024;

/// A file in the state of an agent, which has the same place in the user's home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentFile<'a> {
    /// The kept directory, as [`Home::prepare_agents_blocking`] gets it.
    kept: String,
    /// Path in it.
    inside: &'a str,
    /// Path in the user's home.
    path: &'a str,
}

impl<'a> AgentFile<'a> {
    /// Returns the file at `path` of the home. `kept` is the directory that keeps `state` of the home. `None` if the path
    /// is not inside of `state`.
    #[must_use]
    pub fn of(kept: String, state: &str, path: &'a str) -> Option<Self> {
        let inside = path.strip_prefix(state)?.strip_prefix('/')?;
        Some(Self { kept, inside, path })
    }
}

/// Result of [`import_login_blocking`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Imported {
    /// The user has no such file.
    Missing,
    /// The file of the sessions is not older, and is kept.
    Older,
    /// The file was copied.
    Copied,
}

/// Makes a login in the state `own` of a workspace and the one that all workspaces share the same: the newer one replaces
/// the older one. Without `gives`, the shared one never changes.
///
/// # Errors
/// A directory or a file cannot be read or written, for example because a command has put a directory in its place.
pub fn share_login_blocking(
    home: &Home,
    own: &Path,
    login: &AgentFile<'_>,
    gives: bool,
) -> Result<(), HomeError> {
    let (own, shared) = (own.join(&login.kept), home.shared_logins_dir().join(&login.kept));
    let failed = |path: &Path, source: io::Error| HomeError::io("copy a login in", path, source);
    let ours = read(&own, login.inside).map_err(|error| failed(&own, error))?;
    let theirs = read(&shared, login.inside).map_err(|error| failed(&shared, error))?;

    match (&ours, &theirs) {
        (ours, Some(theirs))
            if ours.as_ref().is_none_or(|ours| ours.modified < theirs.modified) =>
        {
            write(&own, login.inside, theirs, private()).map_err(|error| failed(&own, error))
        }
        (Some(ours), theirs) if theirs.as_ref().is_none_or(|it| it.modified < ours.modified) => {
            if !gives {
                return Ok(());
            }
            restrict_blocking(&own_dir_blocking(&shared, FinalLink::Refuse)?, &shared)?;
            write(&shared, login.inside, ours, private()).map_err(|error| failed(&shared, error))
        }
        _ => Ok(()),
    }
}

/// Copies the user's own login into the state `own` of a workspace, unless that has a newer one.
///
/// # Errors
/// A file cannot be read or written.
pub fn import_login_blocking(
    user_home: &Path,
    own: &Path,
    login: &AgentFile<'_>,
) -> io::Result<Imported> {
    let Some(theirs) = read(user_home, login.path)? else { return Ok(Imported::Missing) };
    let own = own.join(&login.kept);
    if read(&own, login.inside)?.is_some_and(|ours| theirs.modified <= ours.modified) {
        return Ok(Imported::Older);
    }
    write(&own, login.inside, &theirs, private())?;
    Ok(Imported::Copied)
}

/// Returns true if the user has the file, outside of sessions.
#[must_use]
pub fn has_user_file_blocking(user_home: &Path, file: &AgentFile<'_>) -> bool {
    read(user_home, file.path).is_ok_and(|found| found.is_some())
}

/// Copies a file of the user into the state `own` of a workspace, read-only. Returns false if the user has no such file.
///
/// # Errors
/// A file cannot be read or written.
pub fn copy_user_file_blocking(
    user_home: &Path,
    own: &Path,
    file: &AgentFile<'_>,
) -> io::Result<bool> {
    let Some(theirs) = read(user_home, file.path)? else { return Ok(false) };
    let own = own.join(&file.kept);
    // A copy that is the same would count as use of the state.
    if read(&own, file.inside)?.is_none_or(|ours| ours.bytes != theirs.bytes) {
        write(&own, file.inside, &theirs, Mode::RUSR)?;
    }
    Ok(true)
}

fn private() -> Mode {
    Mode::RUSR | Mode::WUSR
}

struct Content {
    bytes: Vec<u8>,
    modified: SystemTime,
}

/// Opens the directory of the file at `path` in `root`, and returns it with the name of the file. Follows links to `root`
/// only. With `creates`, creates missing directories below it.
fn open_parent(root: &Path, path: &str, creates: bool) -> Result<(OwnedFd, CString), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut dir = openat(CWD, root, flags, Mode::empty())?;
    let name_of = |part: &str| CString::new(part).map_err(|_nul| Errno::INVAL);
    let mut parts: Vec<&str> = path.split('/').collect();
    let name = name_of(parts.pop().unwrap_or_default())?;
    for part in parts {
        let part = name_of(part)?;
        if creates {
            match mkdirat(&dir, &part, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
        }
        dir = open_dir(&dir, &part, false)?;
    }
    Ok((dir, name))
}

/// Reads a file. `None` if there is no regular one of a usual size.
fn read(root: &Path, path: &str) -> io::Result<Option<Content>> {
    // O_NONBLOCK: opening a FIFO would wait for its other end.
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = open_parent(root, path, false)
        .and_then(|(dir, name)| openat(&dir, &name, flags, Mode::empty()));
    let file = match opened {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO) => return Ok(None),
        opened => File::from(opened?),
    };

    let found = file.metadata()?;
    if !found.is_file() {
        return Ok(None);
    }
    let (mut bytes, modified) = (Vec::new(), modified(&found)?);
    file.take(MAX_COPIED_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    let is_usual = !bytes.is_empty()
        && u64::try_from(bytes.len()).is_ok_and(|length| length <= MAX_COPIED_FILE_BYTES);
    Ok(is_usual.then_some(Content { bytes, modified }))
}

/// Returns the time of the last write. A command can choose one in the future, which would be the newer one at each start:
/// then the time of the last change, which no program can choose.
fn modified(found: &Metadata) -> io::Result<SystemTime> {
    let modified = found.modified()?;
    if modified <= SystemTime::now() {
        return Ok(modified);
    }
    let seconds = u64::try_from(found.ctime()).unwrap_or_default();
    let nanoseconds = u32::try_from(found.ctime_nsec()).unwrap_or_default();
    Ok(SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds))
}

/// Replaces or creates a file, also in place of a link.
fn write(root: &Path, path: &str, content: &Content, mode: Mode) -> io::Result<()> {
    let (dir, name) = open_parent(root, path, true)?;
    let random = RandomState::new().hash_one(path);
    let temporary = CString::new(format!(".quackd-{random:016x}"))?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(openat(&dir, &temporary, flags, mode)?);

    let written = fill(file, content)
        .and_then(|()| renameat(&dir, &temporary, &dir, &name).map_err(io::Error::from));
    if written.is_err() {
        // The error of the write is more useful.
        unlinkat(&dir, &temporary, AtFlags::empty()).ok();
    }
    written
}

fn fill(mut file: File, content: &Content) -> io::Result<()> {
    file.write_all(&content.bytes)?;
    // The same time shows that the files are the same. The clock may have been set back since the time was read.
    file.set_modified(content.modified.min(SystemTime::now()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::PathBuf;

    const LOGIN: &str = ".claude/auth.json";

    fn login() -> AgentFile<'static> {
        AgentFile::of("claude/.claude".to_owned(), ".claude", LOGIN).unwrap()
    }

    struct World {
        base: tempfile::TempDir,
        home: Home,
    }

    impl World {
        fn new() -> Self {
            let base = tempfile::tempdir().unwrap();
            fs::create_dir_all(base.path().join("user/.claude")).unwrap();
            let state = base.path().join("state");
            let var =
                |name: &str| (name == "RUBBER_DUCK_APP_SUPPORT").then(|| state.clone().into());
            let home = Home::resolve_blocking(&var).unwrap();
            home.prepare_blocking().unwrap();
            Self { base, home }
        }

        fn user(&self) -> PathBuf {
            self.base.path().join("user")
        }

        /// State of a workspace.
        fn own(&self, workspace: &str) -> PathBuf {
            let names = ["claude/.claude".to_owned()];
            self.home.prepare_agents_blocking(workspace, None, &names).unwrap()
        }

        /// Writes a login that is so many seconds old, and returns its path.
        fn log_in(&self, workspace: &str, text: &str, age_s: u64) -> PathBuf {
            let path = self.own(workspace).join("claude").join(LOGIN);
            fs::write(&path, text).unwrap();
            age(&path, age_s);
            path
        }

        fn share(&self, workspace: &str, gives: bool) {
            share_login_blocking(&self.home, &self.own(workspace), &login(), gives).unwrap();
        }
    }

    fn age(path: &Path, seconds: u64) {
        let then = SystemTime::now() - Duration::from_secs(seconds);
        fs::File::open(path).unwrap().set_modified(then).unwrap();
    }

    #[test]
    fn the_newer_login_replaces_the_older_one_and_an_isolated_session_only_takes() {
        let world = World::new();
        let a = world.log_in("/a", "old", 100);
        world.share("/a", true);
        world.share("/b", true);
        let b = world.own("/b").join("claude").join(LOGIN);
        assert_eq!(fs::read_to_string(&b).unwrap(), "old");
        assert_eq!(fs::metadata(&b).unwrap().permissions().mode() & 0o777, 0o600);

        world.log_in("/b", "new", 50);
        world.share("/b", false);
        world.share("/a", true);
        assert_eq!(fs::read_to_string(&a).unwrap(), "old", "the other one does not give");
        world.share("/b", true);
        world.share("/a", true);
        assert_eq!(fs::read_to_string(&a).unwrap(), "new");
        let left = fs::read_dir(a.parent().unwrap()).unwrap().count();
        assert_eq!(left, 1, "no temporary file is left");
    }

    #[test]
    fn links_pipes_and_large_files_are_no_logins_and_are_replaced() {
        let world = World::new();
        let secret = world.base.path().join("secret");
        fs::write(&secret, "secret").unwrap();
        world.log_in("/a", "login", 100);
        world.share("/a", true);
        let hostile: [&dyn Fn(&Path); 3] = [
            &|path| symlink(&secret, path).unwrap(),
            &|path| nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap(),
            &|path| fs::write(path, vec![b'x'; 1024 * 1024 + 1]).unwrap(),
        ];
        for (number, make) in hostile.iter().enumerate() {
            let path = world.own("/b").join("claude").join(LOGIN);
            fs::remove_file(&path).ok();
            make(path.as_path());
            world.share("/b", true);
            assert_eq!(fs::read_to_string(&path).unwrap(), "login", "{number}");
            assert!(!path.is_symlink());
        }
        assert_eq!(fs::read_to_string(secret).unwrap(), "secret");
    }

    #[test]
    fn a_time_in_the_future_is_not_given_to_other_workspaces_and_does_not_win() {
        let world = World::new();
        let path = world.log_in("/a", "login", 0);
        let future = SystemTime::now() + Duration::from_secs(1000);
        fs::File::open(&path).unwrap().set_modified(future).unwrap();
        world.share("/a", true);
        let shared = world.home.shared_logins_dir().join("claude").join(LOGIN);
        assert!(fs::metadata(shared).unwrap().modified().unwrap() <= SystemTime::now());

        world.log_in("/b", "newer", 0);
        for workspace in ["/a", "/b", "/a"] {
            world.share(workspace, true);
        }
        assert_eq!(fs::read_to_string(path).unwrap(), "newer");
    }

    #[test]
    fn an_import_takes_the_users_login_and_overwrites_no_newer_one() {
        let world = World::new();
        let own = world.own("/a");
        let import = || import_login_blocking(&world.user(), &own, &login()).unwrap();
        assert_eq!(import(), Imported::Missing);
        let users = world.user().join(LOGIN);
        fs::write(&users, "mine").unwrap();
        age(&users, 100);
        assert_eq!(import(), Imported::Copied);
        assert_eq!(import(), Imported::Older);
        let path = world.log_in("/a", "inside", 50);
        assert_eq!(import(), Imported::Older);
        assert_eq!(fs::read_to_string(path).unwrap(), "inside");
    }

    #[test]
    fn a_file_of_the_user_is_copied_read_only_and_no_link_is_followed() {
        let world = World::new();
        let own = world.own("/a");
        let file = AgentFile::of("claude/.claude".to_owned(), ".claude", ".claude/a/b.md").unwrap();
        let copy = || copy_user_file_blocking(&world.user(), &own, &file);
        assert!(!copy().unwrap());
        fs::create_dir(world.user().join(".claude/a")).unwrap();
        fs::write(world.user().join(".claude/a/b.md"), "text").unwrap();
        assert!(copy().unwrap());
        let made = own.join("claude/.claude/a/b.md");
        assert_eq!(fs::read_to_string(&made).unwrap(), "text");
        assert_eq!(fs::metadata(&made).unwrap().permissions().mode() & 0o777, 0o400);

        // A command puts a link in the place of a directory.
        let outside = world.base.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::remove_dir_all(made.parent().unwrap()).unwrap();
        symlink(&outside, made.parent().unwrap()).unwrap();
        copy().unwrap_err();
        assert_eq!(fs::read_dir(outside).unwrap().count(), 0);
    }
}
