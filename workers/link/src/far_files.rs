//! Directories of the far side: `quackd-far` in the state directory of the user, with one directory for each session.

use quackd_environment_worker::Account;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Name of the directory.
const FAR: &str = "quackd-far";

/// Name of the directory of copies that were sent, in the data directory of the user.
const COPIES: &str = "quackd-sent";

/// Name of the directory of programs, as in the script that receives them.
const PROGRAMS: &str = "quackd";

/// Name of a session's socket.
const SOCKET: &str = "resume.sock";

/// Name of the worker's run directory in that of the session. Commands see it, and not the socket.
const RUN: &str = "run";

/// Time after which the directory of an ended session is removed.
const KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Maximum number of directories that one start checks for that.
const MAX_CHECKED: usize = 4096;

/// Longest id of a session, in bytes.
const MAX_ID: usize = 64;

/// Places of one session on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FarFiles {
    /// The user's home directory, canonical.
    pub(crate) home: PathBuf,
    /// Directory of all sessions.
    pub(crate) state: PathBuf,
    /// Directory of this session. Mode 0700.
    pub(crate) session: PathBuf,
    /// Directory of the session's copy, if it was sent. Mode 0700.
    pub(crate) copy: PathBuf,
    /// Directory of the programs that link processes have sent.
    pub(crate) programs: PathBuf,
}

impl FarFiles {
    /// Names the places. Creates nothing.
    ///
    /// # Errors
    /// The id is no name of a file, or there is no home directory.
    pub(crate) fn of(
        session: &str,
        account: Option<&Account>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> io::Result<Self> {
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        if session.is_empty() || MAX_ID < session.len() || !session.bytes().all(is_plain) {
            return Err(io::Error::other("the id of the session is malformed"));
        }

        let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|at| at.is_absolute());
        let home = absolute("HOME").or_else(|| account.map(|account| account.home.clone()));
        let home = home.ok_or_else(|| io::Error::other("there is no home directory"))?;
        let home = fs::canonicalize(&home)
            .map_err(|error| io::Error::other(format!("{}: {error}", home.display())))?;

        let state = absolute("XDG_STATE_HOME").unwrap_or_else(|| home.join(".local/state"));
        let state = state.join(FAR);
        let programs = absolute("XDG_CACHE_HOME").unwrap_or_else(|| home.join(".cache"));
        let programs = programs.join(PROGRAMS);
        let programs = fs::canonicalize(&programs).unwrap_or(programs);
        let copies = absolute("XDG_DATA_HOME").unwrap_or_else(|| home.join(".local/share"));
        let copy = copies.join(COPIES).join(session);
        Ok(Self { session: state.join(session), state, copy, home, programs })
    }

    /// Creates the directories.
    ///
    /// # Errors
    /// A directory cannot be created, or others may change it.
    pub(crate) fn create_blocking(&self) -> io::Result<()> {
        for directory in [&self.state, &self.session, &self.run_dir()] {
            DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
            let found = fs::symlink_metadata(directory)?;
            let is_ours = found.uid() == rustix::process::geteuid().as_raw();
            if !found.is_dir() || !is_ours || found.mode() & 0o077 != 0 {
                let text = format!("{} is not private to this user", directory.display());
                return Err(io::Error::other(text));
            }
        }
        Ok(())
    }

    /// The worker's run directory.
    pub(crate) fn run_dir(&self) -> PathBuf {
        self.session.join(RUN)
    }

    /// Socket of the process that has the session's worker.
    pub(crate) fn socket(&self) -> PathBuf {
        self.session.join(SOCKET)
    }

    /// Removes the directories of other sessions that ended long ago.
    pub(crate) fn clean_blocking(&self) {
        self.remove_older_blocking(KEPT);
    }

    /// Removes the directories of other sessions that nothing has changed for `kept`.
    fn remove_older_blocking(&self, kept: Duration) {
        let Ok(entries) = fs::read_dir(&self.state) else { return };
        for entry in entries.take(MAX_CHECKED).flatten() {
            let path = entry.path();
            if path != self.session && is_old(&path, kept) {
                // The next start tries again.
                fs::remove_dir_all(&path).ok();
            }
        }
    }
}

/// Returns a variable of this process.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Whether the directory is old, and no process has its session's worker.
fn is_old(session: &Path, kept: Duration) -> bool {
    let is_recent = |path: &Path| {
        let modified = fs::symlink_metadata(path).and_then(|metadata| metadata.modified());
        // A time in the future is recent.
        modified
            .is_ok_and(|time| time.elapsed().is_ok_and(|age| age < kept) || time.elapsed().is_err())
    };
    !is_recent(session)
        && !is_recent(&session.join(RUN))
        && UnixStream::connect(session.join(SOCKET)).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_testkit::TestDir;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    fn of(session: &str, home: &Path) -> io::Result<FarFiles> {
        let home = home.display().to_string();
        FarFiles::of(session, None, move |name| (name == "HOME").then(|| home.clone()))
    }

    #[test]
    fn a_session_has_a_private_directory_and_ids_are_no_paths() {
        let dir = TestDir::empty();
        for id in ["", ".", "..", "a/b", "a b", &"x".repeat(65)] {
            assert!(of(id, &dir).is_err(), "{id}");
        }
        let files = of("s-1_A", &dir).unwrap();
        files.create_blocking().unwrap();
        files.create_blocking().unwrap();
        let far = fs::canonicalize(dir.path()).unwrap().join(".local/state/quackd-far");
        assert_eq!((&files.state, files.socket()), (&far, far.join("s-1_A/resume.sock")));
        assert!(files.run_dir().is_dir());

        fs::set_permissions(&files.session, Permissions::from_mode(0o755)).unwrap();
        assert!(files.create_blocking().unwrap_err().to_string().contains("not private"));
    }

    #[test]
    fn directories_of_ended_sessions_are_removed_and_others_stay() {
        let dir = TestDir::empty();
        let [own, ended, running] = ["own", "ended", "running"].map(|id| of(id, &dir).unwrap());
        for files in [&own, &ended, &running] {
            files.create_blocking().unwrap();
        }
        drop(UnixListener::bind(ended.socket()).unwrap());
        let _listener = UnixListener::bind(running.socket()).unwrap();
        own.clean_blocking();
        assert!(ended.session.exists());
        own.remove_older_blocking(Duration::ZERO);
        assert!(own.session.exists() && running.session.exists() && !ended.session.exists());
    }
}
