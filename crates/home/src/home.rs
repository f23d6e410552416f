//! The state directory and the paths in it.
//!
//! A [`Home`] holds only strings, no descriptor and no lock. The supervisor and every client compute the same
//! paths from the environment.

mod agents;
mod isolated;
mod prepare;
mod undo_data;

pub use isolated::IsolatedUsage;

use crate::HomeError;
use crate::ids::workspace_id;
use crate::keep;
use crate::locate::{Platform, locate_blocking};
use crate::ownership::{
    OwnershipCheck, RETIRED, RUN_FLAGS, check_run, is_marked, is_retired_run, mark_caches,
};
use crate::private_dir::{FinalLink, own_dir_blocking, private_dir_blocking, restrict_blocking};
use crate::socket::{Around, SocketPath, temp_dir};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Maximum length of a session id as a file name, in bytes. Our ids have 22 and upstream's 36. File systems
/// allow 255, and file names add a suffix to the id.
const MAX_ID_BYTES: usize = 200;

/// Maximum number of names to try for a retired run directory.
const MAX_RETIRED: u32 = 100;

/// Paths of the state directory and its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    /// Absolute, no trailing slash. UTF-8, as are all paths below.
    dir: PathBuf,
    /// The directory as the environment gave it.
    given: String,
    temp_dir: PathBuf,
    /// `XDG_RUNTIME_DIR`, if it is an absolute path.
    runtime_dir: Option<PathBuf>,
    rival: Option<PathBuf>,
    /// The user's directory of configurations; `None` on macOS, where the state directory is the place, unless
    /// `XDG_CONFIG_HOME` names one.
    config_home: Option<PathBuf>,
    /// The user's home directory, which is never the state directory.
    user_home: Option<PathBuf>,
    /// True if the platform's rule chose the directory, false if an environment variable did.
    is_by_rule: bool,
}

impl Home {
    /// Finds the state directory from the environment of this process. The directory may be missing.
    ///
    /// # Errors
    /// As [`Home::resolve_blocking`].
    pub fn from_process_env_blocking() -> Result<Self, HomeError> {
        Self::resolve_blocking(&|name| std::env::var_os(name))
    }

    /// Finds the state directory from the environment variables that `var` returns: `RUBBER_DUCK_APP_SUPPORT`
    /// if it is not blank, else the platform's rule. The directory may be missing.
    ///
    /// # Errors
    /// [`HomeError::NoHome`] if `HOME` is needed and not usable, [`HomeError::NotUtf8`], or
    /// [`HomeError::Io`] if a relative path cannot be made absolute.
    pub fn resolve_blocking(var: &dyn Fn(&str) -> Option<OsString>) -> Result<Self, HomeError> {
        Self::resolve_for_blocking(Platform::CURRENT, var)
    }

    /// Finds the directory that Rubber Duck's programs use in this environment. They apply the macOS rule on
    /// all systems.
    ///
    /// # Errors
    /// As [`Home::resolve_blocking`].
    pub fn of_rubber_duck_blocking() -> Result<Self, HomeError> {
        Self::resolve_for_blocking(Platform::MacOs, &|name| std::env::var_os(name))
    }

    fn resolve_for_blocking(
        platform: Platform,
        var: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<Self, HomeError> {
        let located = locate_blocking(platform, var)?;
        let dir = absolute_blocking(Path::new(&located.given))?;
        // The located text is UTF-8, so the working directory in front of it is not.
        if dir.to_str().is_none() {
            return Err(HomeError::NotUtf8 { variable: "the working directory" });
        }

        let temp_dir = absolute_blocking(&temp_dir(var))?;
        // Without `HOME`, use the home directory from the user database.
        let user_home = var("HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let user_home = user_home.or_else(std::env::home_dir);
        // The XDG specification says to ignore relative paths.
        let runtime_dir = var("XDG_RUNTIME_DIR").map(PathBuf::from);
        let runtime_dir = runtime_dir.filter(|path| path.is_absolute());

        let is_by_rule = located.is_by_rule;
        let config_home =
            var("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let of_platform = user_home.as_ref().filter(|_| platform != Platform::MacOs);
        let config_home = config_home.or_else(|| of_platform.map(|home| home.join(".config")));
        let config_home = config_home.filter(|path| path.to_str().is_some());

        Ok(Self {
            dir,
            given: located.given,
            temp_dir,
            runtime_dir,
            rival: located.rival,
            config_home,
            user_home,
            is_by_rule,
        })
    }

    /// Returns an error if [`Home::prepare_dir_blocking`] would refuse the directory. Changes nothing.
    ///
    /// # Errors
    /// As [`Home::prepare_dir_blocking`]. A missing directory is fine.
    pub fn check_blocking(&self) -> Result<(), HomeError> {
        match self.open_dir_blocking()? {
            Some(dir) => self.ownership().check_blocking(&dir),
            None => Ok(()),
        }
    }

    /// Returns true if `run` exists. Changes nothing.
    ///
    /// # Errors
    /// [`HomeError::ForeignRun`] if quackd did not create it, or [`HomeError::Io`].
    pub fn check_run_blocking(&self) -> Result<bool, HomeError> {
        let path = self.run_dir();
        let Some(dir) = self.open_dir_blocking()? else { return Ok(false) };
        match openat(&dir, c"run", RUN_FLAGS, Mode::empty()) {
            Ok(run) => check_run(&dir, &run, &path).map(|()| true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(HomeError::io("open", &path, errno)),
        }
    }

    /// Opens the directory; `None` if it does not exist. Does not block on a FIFO.
    fn open_dir_blocking(&self) -> Result<Option<File>, HomeError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match openat(CWD, &self.dir, flags, Mode::empty()) {
            Ok(dir) => Ok(Some(dir.into())),
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::NOTDIR) => Err(HomeError::NotADirectory { path: self.dir.clone() }),
            Err(errno) => Err(HomeError::io("open", &self.dir, errno)),
        }
    }

    fn ownership(&self) -> OwnershipCheck<'_> {
        let user_home = self.user_home.as_deref();
        OwnershipCheck { path: &self.dir, user_home, is_by_rule: self.is_by_rule }
    }

    /// Creates the session's private run directory and returns its path.
    ///
    /// # Errors
    /// As [`Home::session_run_dir`] and [`Home::prepare_blocking`]. Call the latter first.
    pub fn prepare_session_run_dir_blocking(&self, id: &str) -> Result<PathBuf, HomeError> {
        let dir = self.session_run_dir(id)?;
        private_dir_blocking(&dir, FinalLink::Refuse)?;
        Ok(dir)
    }

    /// Creates the directory with the package caches of the workspace at this path, private, and records its use.
    ///
    /// # Errors
    /// [`HomeError::ForeignRun`] if quackd did not create `caches`, and as [`Home::prepare_blocking`]. Call the latter
    /// first.
    pub fn prepare_caches_blocking(&self, workspace: &str) -> Result<PathBuf, HomeError> {
        let path = self.caches_dir();
        let caches = own_dir_blocking(&path, FinalLink::Refuse)?;
        mark_caches(&caches, &path)?;
        restrict_blocking(&caches, &path)?;

        let path = path.join(workspace_id(workspace));
        let own = own_dir_blocking(&path, FinalLink::Refuse)?;
        restrict_blocking(&own, &path)?;
        // Garbage collection deletes the least recently used caches.
        own.set_modified(SystemTime::now()).map_err(|e| HomeError::io("touch", &path, e))?;
        Ok(path)
    }

    /// Returns true if `caches` exists and quackd created it.
    #[must_use]
    pub fn owns_caches_blocking(&self) -> bool {
        openat(CWD, self.caches_dir(), RUN_FLAGS, Mode::empty()).is_ok_and(is_marked)
    }

    /// Creates Pi's conversation directory if it is missing, private. Upstream uses the same path.
    ///
    /// # Errors
    /// As [`Home::prepare_blocking`]. Call it first.
    pub fn prepare_pi_sessions_blocking(&self) -> Result<PathBuf, HomeError> {
        let dir = self.dir.join("pi-sessions");
        private_dir_blocking(&dir, FinalLink::Follow)?;
        Ok(dir)
    }

    /// Creates the directory of the prompts that the user typed, one file for each workspace. Returns its path.
    ///
    /// # Errors
    /// As [`Home::prepare_blocking`]. Call it first.
    pub fn prepare_prompts_blocking(&self) -> Result<PathBuf, HomeError> {
        let dir = self.dir.join("prompts");
        private_dir_blocking(&dir, FinalLink::Refuse)?;
        Ok(dir)
    }

    /// Path of the state directory. Absolute, UTF-8.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Path of a second directory with metadata that is **not** used. The daemon warns about it.
    #[must_use]
    pub fn rival(&self) -> Option<&Path> {
        self.rival.as_deref()
    }

    /// Path of the workspaces and sessions, shared with the macOS app.
    #[must_use]
    pub fn metadata(&self) -> PathBuf {
        self.dir.join("metadata.json")
    }

    /// Path of quackd's own session state. It is a separate file because the macOS app drops unknown keys of
    /// the metadata.
    #[must_use]
    pub fn state_file(&self) -> PathBuf {
        self.dir.join("quackd-state.json")
    }

    /// Path of the last login environment, which the next daemon starts with.
    #[must_use]
    pub fn login_environment(&self) -> PathBuf {
        self.dir.join("login-environment.json")
    }

    /// Path of the list of calls that the last shutdown interrupted.
    #[must_use]
    pub fn interrupted_file(&self) -> PathBuf {
        self.dir.join("interrupted.json")
    }

    /// Path of the cost of quackd's own agents on the last day.
    #[must_use]
    pub fn spending_file(&self) -> PathBuf {
        self.dir.join("spending.json")
    }

    /// Path of the lists of models that providers have given.
    #[must_use]
    pub fn model_lists(&self) -> PathBuf {
        self.dir.join("model-lists.json")
    }

    /// Path of the record of the user's answers to questions about permissions.
    #[must_use]
    pub fn approvals_file(&self) -> PathBuf {
        self.dir.join("approvals.jsonl")
    }

    /// Path of the record of requests of commands for hosts.
    #[must_use]
    pub fn network_file(&self) -> PathBuf {
        self.dir.join("network.jsonl")
    }

    /// Path of the file with the keys that `quack login` stored.
    #[must_use]
    pub fn provider_keys(&self) -> PathBuf {
        self.dir.join("provider-keys.json")
    }

    /// Path of the directory with the journal of calls; see [`crate::call_journal`].
    #[must_use]
    pub fn journal_dir(&self) -> PathBuf {
        self.dir.join("journal")
    }

    /// Path of the record of what `quack mcp install` changed in the files of other programs.
    #[must_use]
    pub fn mcp_install(&self) -> PathBuf {
        self.dir.join("mcp-install.json")
    }

    /// Path of the file whose lock selects the running daemon; see [`crate::lock_blocking`].
    #[must_use]
    pub fn lock_file(&self) -> PathBuf {
        self.dir.join("quackd.lock")
    }

    /// Path of the file with the daemon's process id, for the user and for upstream's programs.
    #[must_use]
    pub fn pid_file(&self) -> PathBuf {
        self.dir.join("duck-daemon.pid")
    }

    /// Path of the current log file.
    #[must_use]
    pub fn log_file(&self) -> PathBuf {
        self.dir.join("duck-daemon.log")
    }

    /// Path of the configuration file in the state directory, where earlier versions had it.
    #[must_use]
    pub fn config_in_state(&self) -> PathBuf {
        self.dir.join("quackd.toml")
    }

    /// Path of the configuration file in the user's directory of configurations, if the platform has one.
    #[must_use]
    pub fn config_of_user(&self) -> Option<PathBuf> {
        self.config_home.as_ref().map(|directory| directory.join("quackd").join("quackd.toml"))
    }

    /// Whether the platform's rule chose the directory, and no variable did.
    #[must_use]
    pub fn is_by_rule(&self) -> bool {
        self.is_by_rule
    }

    /// Path of the configuration file if `QUACKD_CONFIG` is not set, whether it exists or not: the one of the user, or that
    /// in the state directory if only it exists.
    #[must_use]
    pub fn config_blocking(&self) -> PathBuf {
        // A link that leads nowhere is a file that was meant.
        let exists = |path: &PathBuf| path.symlink_metadata().is_ok();
        match self.config_of_user() {
            Some(path) if exists(&path) || !exists(&self.config_in_state()) => path,
            _ => self.config_in_state(),
        }
    }

    /// Path of upstream's configuration file, mainly for remote control.
    #[must_use]
    pub fn daemon_config(&self) -> PathBuf {
        self.dir.join("config.json")
    }

    /// Path of the token that agents need to connect over HTTP on this machine.
    #[must_use]
    pub fn mcp_token(&self) -> PathBuf {
        self.dir.join("mcp-token")
    }

    /// Path of the plain-text token of remote control, which the user needs to pair a phone.
    #[must_use]
    pub fn remote_token(&self) -> PathBuf {
        self.dir.join("remote-auth-token")
    }

    /// Path of the hashes of page tokens.
    #[must_use]
    pub fn page_tokens(&self) -> PathBuf {
        self.dir.join("page-tokens.json")
    }

    /// Directory of the macOS app's history files, one per session.
    #[must_use]
    pub fn app_histories(&self) -> PathBuf {
        self.dir.join("sessions")
    }

    /// Directory of the sessions' run directories.
    #[must_use]
    pub fn run_dir(&self) -> PathBuf {
        self.dir.join("run")
    }

    /// Directory of the package caches of workspaces.
    #[must_use]
    pub fn caches_dir(&self) -> PathBuf {
        self.dir.join("caches")
    }

    /// Private run directory of one session, for spill files and journals.
    ///
    /// # Errors
    /// [`HomeError::InvalidSessionId`]. Other programs write the file that ids come from.
    pub fn session_run_dir(&self, id: &str) -> Result<PathBuf, HomeError> {
        Ok(self.run_dir().join(file_name(id)?))
    }

    /// Deletes the session's run directory recursively. A missing directory counts as deleted.
    ///
    /// # Errors
    /// As [`Home::session_run_dir`], or [`HomeError::Io`].
    pub fn remove_session_run_dir_blocking(&self, id: &str) -> Result<(), HomeError> {
        let dir = self.session_run_dir(id)?;
        keep::remove_tree(&dir).map_err(|e| HomeError::io("delete", &dir, e))
    }

    /// Deletes the list of the files that a session has read. A missing file counts as deleted.
    ///
    /// # Errors
    /// As [`Home::session_run_dir`], or [`HomeError::Io`].
    pub fn forget_read_files_blocking(&self, id: &str) -> Result<(), HomeError> {
        let file = self.session_run_dir(id)?.join(keep::READ_FILES);
        match std::fs::remove_file(&file) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(HomeError::io("delete", &file, error))
            }
            _ => Ok(()),
        }
    }

    /// Deletes all run directories that [`Home::retire_run_dir_blocking`] has moved aside, including those of
    /// earlier daemons. After a failure it continues with the others and returns the first error.
    ///
    /// # Errors
    /// [`HomeError::Io`].
    pub fn remove_retired_blocking(&self) -> Result<(), HomeError> {
        let Some(dir) = self.open_dir_blocking()? else { return Ok(()) };
        let entries = std::fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let is_ours = |name: &str| is_retired_run(&dir, name);
        let retired = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_ours));
        let failed =
            |path: PathBuf| keep::remove_tree(&path).map_err(|e| HomeError::io("delete", &path, e));
        // Collect first, so that all directories are tried.
        let ends: Vec<_> = retired.map(|entry| failed(entry.path())).collect();
        ends.into_iter().collect()
    }

    /// Returns true if an entry of the directory is a retired run directory of quackd.
    #[must_use]
    pub fn is_retired_blocking(&self, name: &str) -> bool {
        self.open_dir_blocking().is_ok_and(|dir| dir.is_some_and(|dir| is_retired_run(&dir, name)))
    }

    /// Moves the run directories of all sessions aside. The caller holds the instance lock.
    ///
    /// # Errors
    /// [`HomeError::ForeignRun`] or [`HomeError::Io`]: `run` was not moved.
    pub fn retire_run_dir_blocking(&self) -> Result<(), HomeError> {
        let (run, pid) = (self.run_dir(), std::process::id());
        if !self.check_run_blocking()? {
            return Ok(());
        }

        let mut retired = self.dir.join(format!("{RETIRED}{pid}"));
        // The name is taken if an earlier process had the same pid.
        let mut n = 1;
        while retired.symlink_metadata().is_ok() && n < MAX_RETIRED {
            n += 1;
            retired = self.dir.join(format!("{RETIRED}{pid}-{n}"));
        }
        #[expect(clippy::disallowed_methods, reason = "nothing durable: if it fails, they stay")]
        std::fs::rename(&run, retired).map_err(|e| HomeError::io("put aside", &run, e))
    }

    /// Path of the macOS app's history file for a session.
    ///
    /// # Errors
    /// [`HomeError::InvalidSessionId`], as [`Home::session_run_dir`].
    pub fn app_history(&self, id: &str) -> Result<PathBuf, HomeError> {
        Ok(self.app_histories().join(format!("{}.jsonl", file_name(id)?)))
    }

    /// Path of the socket.
    #[must_use]
    pub fn socket(&self) -> SocketPath {
        let around = Around {
            temp_dir: &self.temp_dir,
            user_home: self.user_home.as_deref(),
            runtime_dir: self.runtime_dir.as_deref(),
        };
        SocketPath::choose(&self.dir, &self.given, &around)
    }
}

/// Removes trailing slashes, repeated slashes and `.`. Keeps `..` and links.
fn absolute_blocking(path: &Path) -> Result<PathBuf, HomeError> {
    let absolute = std::path::absolute(path);
    let absolute = absolute.map_err(|e| HomeError::io("find the absolute path of", path, e))?;
    Ok(absolute.components().collect())
}

/// Returns the id if it is a valid name of a visible directory entry (neither `.` nor `..`).
fn file_name(id: &str) -> Result<&str, HomeError> {
    let plain = !id.contains(|c: char| c == '/' || c.is_control()) && !id.contains("..");
    if plain && !id.is_empty() && !id.starts_with('.') && id.len() <= MAX_ID_BYTES {
        Ok(id)
    } else {
        Err(HomeError::InvalidSessionId { id: id.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    pub(super) fn home_at(dir: &Path) -> Home {
        let var = |name: &str| (name == "RUBBER_DUCK_APP_SUPPORT").then(|| dir.into());
        Home::resolve_blocking(&var).unwrap()
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_relative_directory_is_made_absolute_against_the_working_directory() {
        let home = home_at(Path::new("some//./state/"));
        assert_eq!(home.dir(), std::env::current_dir().unwrap().join("some/state"));
    }

    #[test]
    fn every_file_has_its_name() {
        let home = home_at(Path::new("/s/"));
        let names = [
            (home.metadata(), "/s/metadata.json"),
            (home.state_file(), "/s/quackd-state.json"),
            (home.login_environment(), "/s/login-environment.json"),
            (home.interrupted_file(), "/s/interrupted.json"),
            (home.lock_file(), "/s/quackd.lock"),
            (home.pid_file(), "/s/duck-daemon.pid"),
            (home.log_file(), "/s/duck-daemon.log"),
            (home.config_in_state(), "/s/quackd.toml"),
            (home.daemon_config(), "/s/config.json"),
            (home.remote_token(), "/s/remote-auth-token"),
            (home.page_tokens(), "/s/page-tokens.json"),
            (home.run_dir(), "/s/run"),
            (home.caches_dir(), "/s/caches"),
            (home.session_run_dir("a-B_9").unwrap(), "/s/run/a-B_9"),
            (home.app_history("a-B_9").unwrap(), "/s/sessions/a-B_9.jsonl"),
        ];
        for (path, name) in names {
            assert_eq!(path, Path::new(name));
        }
    }

    #[test]
    fn an_id_that_is_not_one_plain_file_name_is_refused() {
        let home = home_at(Path::new("/s"));
        let long = "x".repeat(MAX_ID_BYTES + 1);
        for id in ["", ".", "..", "/", "a/b", "../a", "a..b", ".hidden", "a\0b", "a\nb", &long] {
            let refused = home.session_run_dir(id).unwrap_err();
            assert!(matches!(refused, HomeError::InvalidSessionId { .. }), "{id:?}");
            assert!(home.app_history(id).is_err(), "{id:?}");
        }
    }

    #[test]
    fn preparing_makes_private_directories_and_can_be_repeated() {
        let parent = tempfile::tempdir().unwrap();
        let home = home_at(&parent.path().join("deep/state"));
        for _ in 0..2 {
            home.prepare_blocking().unwrap();
            let run = home.prepare_session_run_dir_blocking("s1").unwrap();
            assert_eq!([mode(home.dir()), mode(&home.run_dir()), mode(&run)], [0o700; 3]);
        }
    }

    #[test]
    fn the_directory_can_be_prepared_while_a_daemon_replaces_run() {
        let dir = tempfile::tempdir().unwrap();
        let home = home_at(dir.path());
        home.prepare_blocking().unwrap();
        std::thread::scope(|scope| {
            let replacing = scope.spawn(|| {
                for _ in 0..100 {
                    home.prepare_session_run_dir_blocking("s1").unwrap();
                    fs::write(home.run_dir().join("unknown"), "").unwrap();
                    home.retire_run_dir_blocking().unwrap();
                    home.prepare_blocking().unwrap();
                    home.remove_retired_blocking().unwrap();
                }
            });
            while !replacing.is_finished() {
                home.prepare_dir_blocking().unwrap();
                home.prepare_blocking().unwrap();
            }
        });
    }

    #[test]
    fn a_directory_that_others_may_enter_is_made_private() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        home_at(dir.path()).prepare_blocking().unwrap();
        assert_eq!(mode(dir.path()), 0o700);
    }

    #[test]
    fn a_file_or_a_fifo_in_the_place_of_the_directory_is_refused_without_blocking() {
        let parent = tempfile::tempdir().unwrap();
        let (file, fifo) = (parent.path().join("file"), parent.path().join("fifo"));
        fs::write(&file, "").unwrap();
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for path in [file, fifo] {
            let refused = home_at(&path).prepare_blocking().unwrap_err();
            assert!(matches!(refused, HomeError::NotADirectory { .. }), "{path:?}: {refused}");
        }
    }

    #[test]
    fn the_state_directory_may_be_a_link_but_run_may_not() {
        let parent = tempfile::tempdir().unwrap();
        let (real, link) = (parent.path().join("real"), parent.path().join("link"));
        fs::create_dir(&real).unwrap();
        symlink(&real, &link).unwrap();
        home_at(&link).prepare_blocking().unwrap();
        assert_eq!(mode(&real), 0o700);

        fs::remove_dir_all(real.join("run")).unwrap();
        symlink("/", real.join("run")).unwrap();
        let refused = home_at(&link).prepare_blocking().unwrap_err();
        assert!(matches!(refused, HomeError::NotADirectory { .. }), "{refused}");
    }

    #[test]
    fn a_directory_of_another_user_is_refused() {
        // For root, every file counts as its own until the test changes the owner.
        let dir = tempfile::tempdir().unwrap();
        let (path, somebody) = if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(dir.path(), Some(12_345), None).unwrap();
            (dir.path(), 12_345)
        } else {
            (Path::new("/"), 0)
        };
        match home_at(path).prepare_blocking() {
            Err(HomeError::NotOurs { owner, .. }) => assert_eq!(owner, somebody),
            other => panic!("not refused: {other:?}"),
        }
    }
}
