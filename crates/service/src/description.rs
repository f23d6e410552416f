//! Description of the service, from which the files for both managers are generated. Created by the command
//! line.

use crate::Variable;
use crate::platform::HAS_LAUNCHD;
use quackd_protocol::limits::SHUTDOWN_GRACE;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Service manager that starts and monitors the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manager {
    /// The user's manager, `systemd --user`.
    Systemd,
    /// launchd, as a LaunchAgent.
    Launchd,
}

impl Manager {
    /// Service manager of this system.
    pub const CURRENT: Self = if HAS_LAUNCHD { Self::Launchd } else { Self::Systemd };

    /// Name in arguments and in the protocol.
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
            .ok_or_else(|| "expected systemd or launchd".to_owned())
    }
}

/// Time from SIGTERM to SIGKILL: the grace of calls, stopping workers, the last writes, and a reserve for an
/// overloaded machine. The daemon needs at most about 10 s.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(SHUTDOWN_GRACE.as_secs() + 15);

/// Time until the daemon must be ready. It needs about 50 ms.
pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Timeout of the watchdog: a daemon that sends nothing for this time is killed.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(30);

/// Pause before a restart.
pub(crate) const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// Maximum number of starts in [`START_WINDOW`]. Then the manager gives up until the user starts the service.
pub(crate) const START_BURST: u32 = 10;

/// Window for [`START_BURST`].
pub(crate) const START_WINDOW: Duration = Duration::from_secs(60);

/// Limit of open files, equal to systemd's default hard limit. The daemon raises its soft limit to it.
pub(crate) const OPEN_FILES: u64 = 524_288;

/// Variables that select the daemon's files. The daemon needs the same values as clients.
const PATH_VARIABLES: [&str; 2] = ["RUBBER_DUCK_APP_SUPPORT", "QUACKD_CONFIG"];

/// The service cannot be described.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum DescriptionError {
    /// A relative path, which a manager would resolve differently.
    #[error("{what} must be an absolute path, not {}", path.display())]
    Relative {
        /// Name of the value, for the error.
        what: String,
        /// The relative path.
        path: PathBuf,
    },
    /// A value that does not fit on one line of a text file.
    #[error(
        "{what} cannot be written into a service file: it contains a control character or is not UTF-8"
    )]
    NotText {
        /// Name of the value, for the error.
        what: String,
    },
}

/// Values of the service that both managers get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Path of the executable.
    pub(crate) program: String,
    /// Path of the socket that clients connect to.
    pub(crate) socket: String,
    /// Absolute path of the state directory.
    pub(crate) state_dir: String,
    /// Environment variables of the daemon.
    pub(crate) environment: Vec<(String, String)>,
}

impl Service {
    /// Describes the service of a daemon with its state in `state_dir` and its socket at `socket`. Copies the
    /// variables that select the daemon's files.
    ///
    /// `in_temporary_directory`: the socket is in the temporary directory, because its path would be too long
    /// otherwise. Then `TMPDIR` is copied too.
    ///
    /// # Errors
    /// A path is relative, or is not valid text.
    pub fn new(
        program: &Path,
        state_dir: &Path,
        socket: &Path,
        in_temporary_directory: bool,
        variable: Variable<'_>,
    ) -> Result<Self, DescriptionError> {
        let mut environment = Vec::new();
        for name in PATH_VARIABLES {
            let value = variable(name).filter(|value| !value.to_string_lossy().trim().is_empty());
            if let Some(value) = value {
                let value = text(name, value.as_os_str())?;
                absolute(name, Path::new(value.trim()))?;
                environment.push((name.to_owned(), value.trim().to_owned()));
            }
        }

        // The daemon ignores relative values of these variables too.
        let kept = [("XDG_STATE_HOME", true), ("TMPDIR", in_temporary_directory)];
        for (name, is_copied) in kept {
            let value = variable(name).filter(|value| is_copied && Path::new(value).is_absolute());
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

    /// Returns the path of the executable.
    #[must_use]
    pub fn program(&self) -> &Path {
        Path::new(&self.program)
    }

    /// Returns a warning if the executable is in a directory from which it will probably be deleted.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        complaint_about(self.program())
    }

    /// Returns the command line. `--service` tells the daemon which manager started it.
    pub(crate) fn arguments(&self, manager: Manager) -> [&str; 4] {
        [&self.program, "daemon", "--service", manager.name()]
    }
}

/// Returns a warning if the executable at `path` is in a directory from which it will probably be deleted.
#[must_use]
pub fn complaint_about(path: &Path) -> Option<String> {
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

fn absolute<'a>(name: &str, path: &'a Path) -> Result<&'a Path, DescriptionError> {
    if path.is_absolute() {
        Ok(path)
    } else {
        Err(DescriptionError::Relative { what: name.to_owned(), path: path.to_owned() })
    }
}

fn text(name: &str, value: &std::ffi::OsStr) -> Result<String, DescriptionError> {
    let text = value.to_str().filter(|text| !text.contains(char::is_control));
    text.map(str::to_owned).ok_or_else(|| DescriptionError::NotText { what: name.to_owned() })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::ffi::OsString;

    /// A service whose values need every kind of escaping.
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
