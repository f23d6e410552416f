//! What the service is: the one description from which the files for both managers are made. Made by the
//! command line.

use crate::Variable;
use quackd_protocol::limits::SHUTDOWN_GRACE;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Who starts the daemon and looks after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manager {
    /// `systemd --user`.
    Systemd,
    /// launchd, as a LaunchAgent.
    Launchd,
}

impl Manager {
    /// The one of this system.
    pub const CURRENT: Self = if cfg!(target_os = "macos") { Self::Launchd } else { Self::Systemd };

    /// What it is called in arguments and on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Systemd => "systemd",
            Self::Launchd => "launchd",
        }
    }
}

impl std::str::FromStr for Manager {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        [Self::Systemd, Self::Launchd]
            .into_iter()
            .find(|manager| manager.name() == name)
            .ok_or_else(|| "the managers are systemd and launchd".to_owned())
    }
}

/// Time from TERM to KILL: the grace of calls, the end of workers, the last writes, and then some for a
/// machine that is short of everything. The daemon itself needs at most about ten seconds.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(SHUTDOWN_GRACE.as_secs() + 15);

/// Time until the daemon must serve. It needs some 50 ms.
pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A daemon that says nothing for so long hangs, and is killed.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(30);

/// Pause before the next start.
pub(crate) const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// More starts than this in [`START_WINDOW`], and the manager gives up until a person asks.
pub(crate) const START_BURST: u32 = 10;

/// See [`START_BURST`].
pub(crate) const START_WINDOW: Duration = Duration::from_secs(60);

/// Open files: the hard limit that systemd gives as well. The daemon raises its soft limit to that.
pub(crate) const OPEN_FILES: u64 = 524_288;

/// Variables that decide where the daemon's files are: it must see the ones that clients see.
const PLACES: [&str; 2] = ["RUBBER_DUCK_APP_SUPPORT", "QUACKD_CONFIG"];

/// Why there can be no service.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum DescriptionError {
    /// A path that is not absolute means something else to a manager.
    #[error("{what} must be an absolute path, not {}", path.display())]
    Relative {
        /// Which path.
        what: String,
        /// As it was given.
        path: PathBuf,
    },
    /// Files for managers are text, line by line.
    #[error(
        "{what} cannot be written into a service's file: it has a control character or is no UTF-8"
    )]
    NotText {
        /// Which value.
        what: String,
    },
}

/// The service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// The executable's path, as it is to be started.
    pub(crate) program: String,
    /// Where clients find the daemon.
    pub(crate) socket: String,
    /// The state directory.
    pub(crate) state_dir: String,
    /// Variables that the daemon must have.
    pub(crate) environment: Vec<(String, String)>,
}

impl Service {
    /// Describes the service of a daemon whose state is in `state_dir` and that clients find at `socket`.
    /// Of the variables those are taken along that say where its files are.
    ///
    /// `in_temporary_directory`: the socket lies there because its path would be too long. Which directory
    /// that is depends on variables too.
    ///
    /// # Errors
    /// A path is relative, or no text.
    pub fn new(
        program: &Path,
        state_dir: &Path,
        socket: &Path,
        in_temporary_directory: bool,
        variable: Variable<'_>,
    ) -> Result<Self, DescriptionError> {
        let mut environment = Vec::new();
        for name in PLACES {
            let value = variable(name).filter(|value| !value.to_string_lossy().trim().is_empty());
            if let Some(value) = value {
                let value = text(name, value.as_os_str())?;
                absolute(name, Path::new(value.trim()))?;
                environment.push((name.to_owned(), value.trim().to_owned()));
            }
        }
        // What is relative there is ignored by the daemon as well.
        let kept = [("XDG_STATE_HOME", true), ("TMPDIR", in_temporary_directory)];
        for (name, is_wanted) in kept {
            let value = variable(name).filter(|value| is_wanted && Path::new(value).is_absolute());
            if let Some(value) = value {
                environment.push((name.to_owned(), text(name, value.as_os_str())?));
            }
        }
        Ok(Self {
            program: text("the program", absolute("the program", program)?.as_os_str())?,
            socket: text("the socket", absolute("the socket", socket)?.as_os_str())?,
            state_dir: text(
                "the state directory",
                absolute("the state directory", state_dir)?.as_os_str(),
            )?,
            environment,
        })
    }

    /// The executable's path.
    #[must_use]
    pub fn program(&self) -> &Path {
        Path::new(&self.program)
    }

    /// Why the program's path is a bad one for a service, if it is: it will not be there for long.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        let path = self.program();
        let is_in = |name: &str| path.components().any(|part| part.as_os_str() == name);
        let temporary = ["/tmp", "/var/tmp", "/private/tmp", "/dev/shm", "/run"];
        if is_in("target") && (is_in("debug") || is_in("release")) {
            return Some(format!("{} lies in a build directory", path.display()));
        }
        temporary
            .iter()
            .any(|directory| path.starts_with(directory))
            .then(|| format!("{} lies in a temporary directory", path.display()))
    }

    /// What is executed. The daemon learns from it who started it.
    pub(crate) fn arguments(&self, manager: Manager) -> [&str; 4] {
        [&self.program, "daemon", "--service", manager.name()]
    }
}

fn absolute<'a>(what: &str, path: &'a Path) -> Result<&'a Path, DescriptionError> {
    match path.is_absolute() {
        true => Ok(path),
        false => Err(DescriptionError::Relative { what: what.to_owned(), path: path.to_owned() }),
    }
}

fn text(what: &str, value: &std::ffi::OsStr) -> Result<String, DescriptionError> {
    let text = value.to_str().filter(|text| !text.contains(char::is_control));
    text.map(str::to_owned).ok_or_else(|| DescriptionError::NotText { what: what.to_owned() })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::ffi::OsString;

    /// A service with a value of every kind that needs care.
    pub(crate) fn service() -> Service {
        let variable = |name: &str| match name {
            "RUBBER_DUCK_APP_SUPPORT" => Some(OsString::from(" /home/u/a 100% \"state\" ")),
            "QUACKD_CONFIG" => Some("/home/u/$HOME/quackd.toml".into()),
            "XDG_STATE_HOME" => Some("relative".into()),
            "TMPDIR" => Some("/tmp".into()),
            "EXA_API_KEY" => Some("secret".into()),
            _ => None,
        };
        let state = Path::new("/home/u/a 100% \"state\"");
        let socket = state.join("daemon.sock");
        Service::new(Path::new("/opt/my tools/quack"), state, &socket, false, &variable).unwrap()
    }

    #[test]
    fn only_variables_that_say_where_files_are_are_taken_along() {
        let expected = [
            ("RUBBER_DUCK_APP_SUPPORT", "/home/u/a 100% \"state\""),
            ("QUACKD_CONFIG", "/home/u/$HOME/quackd.toml"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(service().environment, expected);
    }

    #[test]
    fn what_cannot_be_written_down_is_refused() {
        let none = |_: &str| None;
        let describe = |program: &str| {
            let (state, socket) = (Path::new("/s"), Path::new("/s/daemon.sock"));
            Service::new(Path::new(program), state, socket, false, &none).map(drop)
        };
        assert_eq!(describe("/usr/bin/quack"), Ok(()));
        assert!(matches!(describe("quack"), Err(DescriptionError::Relative { .. })));
        assert!(matches!(describe("/a\nExecStartPre=/b"), Err(DescriptionError::NotText { .. })));
        let relative = |name: &str| (name == "QUACKD_CONFIG").then(|| OsString::from("here.toml"));
        let (program, state) = (Path::new("/q"), Path::new("/s"));
        let refused = Service::new(program, state, &state.join("daemon.sock"), false, &relative);
        assert!(matches!(refused, Err(DescriptionError::Relative { .. })));
    }

    #[test]
    fn a_program_that_will_not_stay_where_it_is_is_complained_about() {
        for (program, is_bad) in [
            ("/home/u/.cargo/bin/quack", false),
            ("/usr/bin/quack", false),
            ("/home/u/target/quack", false),
            ("/home/u/src/target/debug/quack", true),
            ("/home/u/src/target/x86_64-unknown-linux-gnu/release/quack", true),
            ("/tmp/quack", true),
        ] {
            let service = Service { program: program.to_owned(), ..service() };
            assert_eq!(service.complaint().is_some(), is_bad, "{program}");
        }
    }
}
