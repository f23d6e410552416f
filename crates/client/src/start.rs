//! Makes sure that a daemon serves a state directory. Called by every subcommand that needs one, possibly by several
//! processes at the same time.
//!
//! The socket decides: a daemon runs if there is a listener. Of several daemons that start at once, the lock selects
//! one, and the others exit with 0.

use crate::{Client, ClientError};
use quackd_home::Home;
use quackd_process::{DetachedChild, Exit, SelfExe, SpawnError, spawn_detached_blocking};
use quackd_protocol::limits::SHUTDOWN_GRACE;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Arguments that make `exe` a daemon.
const DAEMON_ARGS: [&str; 2] = ["daemon", "--background"];

/// Timeout of a daemon's start. It takes about 50 ms, and longer on an overloaded machine.
const START_DEADLINE: Duration = Duration::from_secs(5);

/// Timeout of one attempt to connect.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// First and longest interval between two checks of the socket.
const POLL_INTERVALS: (Duration, Duration) =
    (Duration::from_millis(10), Duration::from_millis(100));

/// Result of [`ensure_daemon`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Started {
    /// A daemon already listened.
    AlreadyRunning,
    /// A new daemon listens.
    Started {
        /// Time from the first check of the socket until the daemon listened.
        took: Duration,
    },
}

/// Reason why no daemon listens.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The socket can be neither used nor replaced.
    #[error(transparent)]
    Probe(ClientError),
    /// The process could not be started.
    #[error("cannot start the daemon")]
    Spawn(#[from] SpawnError),
    /// The daemon would use another state directory, because it does not inherit the working directory.
    #[error("RUBBER_DUCK_APP_SUPPORT must be an absolute path to start the daemon")]
    RelativeStateDirectory,
    /// The daemon exited before it listened.
    #[error("the daemon ended with {exit} before it listened{}{}", place(log.as_deref()), quote(stderr))]
    Exited {
        /// Exit status of the daemon.
        exit: Exit,
        /// Last lines of the daemon's stderr.
        stderr: String,
        /// Path of the log, or `None` if there is none.
        log: Option<PathBuf>,
    },
    /// The daemon runs, or another one holds the lock, but it does not listen.
    #[error(
        "the daemon does not listen after {after:?}; `quack doctor` says more{}{}",
        place(log.as_deref()),
        quote(stderr)
    )]
    Silent {
        /// The timeout.
        after: Duration,
        /// Last lines of the daemon's stderr.
        stderr: String,
        /// Path of the log, or `None` if there is none.
        log: Option<PathBuf>,
    },
}

/// Starts a daemon for `home` from `exe` unless one listens, and waits until it listens.
///
/// Starting a process takes about a millisecond and blocks the calling thread.
///
/// # Errors
/// See [`StartError`]. A slow daemon keeps running after the timeout.
pub async fn ensure_daemon(home: &Home, exe: &SelfExe) -> Result<Started, StartError> {
    let socket = home.socket().path;
    if listens(&socket).await? {
        return Ok(Started::AlreadyRunning);
    }
    if std::env::var_os("RUBBER_DUCK_APP_SUPPORT").is_some_and(|dir| is_relative(&dir)) {
        return Err(StartError::RelativeStateDirectory);
    }

    let begun = Instant::now();
    let (mut pause, longest_pause) = POLL_INTERVALS;
    let mut daemon = spawn_detached_blocking(exe, &DAEMON_ARGS)?;
    let mut deadline = START_DEADLINE;
    loop {
        sleep(pause).await;
        pause = (pause * 2).min(longest_pause);

        // Check the exit before the socket: a daemon that has exited may have left the socket to another one.
        let ended = exit_of(&mut daemon);
        if listens(&socket).await? {
            return Ok(Started::Started { took: begun.elapsed() });
        }

        match ended {
            // Another daemon holds the lock. It starts and will listen, or it drains and will release the lock.
            Some(Exit::Code(0)) => {
                deadline = START_DEADLINE + SHUTDOWN_GRACE;
                daemon = spawn_detached_blocking(exe, &DAEMON_ARGS)?;
            }
            Some(exit) => {
                let stderr = daemon.stderr_so_far();
                return Err(StartError::Exited { exit, stderr, log: log_of(home) });
            }
            None => {}
        }

        if deadline < begun.elapsed() {
            let stderr = daemon.stderr_so_far();
            return Err(StartError::Silent { after: deadline, stderr, log: log_of(home) });
        }
    }
}

/// Returns the exit status. Treats a child whose status is not available as running.
fn exit_of(daemon: &mut DetachedChild) -> Option<Exit> {
    daemon.try_wait().unwrap_or_default()
}

async fn listens(socket: &Path) -> Result<bool, StartError> {
    match Client::connect(socket, PROBE_TIMEOUT).await {
        // A full queue implies a listener.
        Ok(_) | Err(ClientError::Timeout { .. }) => Ok(true),
        Err(ClientError::NotRunning { .. }) => Ok(false),
        Err(error) => Err(StartError::Probe(error)),
    }
}

/// Returns the path of the log if it exists. A daemon that cannot write its state directory has none.
fn log_of(home: &Home) -> Option<PathBuf> {
    Some(home.log_file()).filter(|path| path.is_file())
}

/// Returns the path of the log as a part of an error text.
fn place(log: Option<&Path>) -> String {
    log.map_or_else(String::new, |path| format!("; log: {}", path.display()))
}

fn is_relative(dir: &std::ffi::OsStr) -> bool {
    let dir = dir.to_string_lossy();
    !dir.trim().is_empty() && Path::new(dir.trim()).is_relative()
}

/// Returns the last lines of a daemon's stderr as the end of an error text. Empty if there are none.
fn quote(stderr: &str) -> String {
    const MAX_LINES: usize = 10;
    let lines: Vec<&str> = stderr.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = lines.iter().skip(lines.len().saturating_sub(MAX_LINES));
    last.map(|line| format!("\n  {}", line.trim_end())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_start_tells_the_daemons_last_lines_and_where_its_log_is() {
        let stderr = (0..20).map(|n| format!("line {n}\n\n")).collect();
        let log = Some(PathBuf::from("/s/duck-daemon.log"));
        let text = StartError::Exited { exit: Exit::Code(1), stderr, log: log.clone() }.to_string();
        assert!(
            text.starts_with(
                "the daemon ended with exit code 1 before it listened; log: /s/duck-daemon.log\n  line 10\n"
            ),
            "{text}"
        );
        assert!(text.ends_with("\n  line 19"), "{text}");
        let silent = StartError::Silent { after: START_DEADLINE, stderr: String::new(), log };
        assert_eq!(
            silent.to_string(),
            "the daemon does not listen after 5s; `quack doctor` says more; log: /s/duck-daemon.log"
        );
        let without =
            StartError::Exited { exit: Exit::Code(1), stderr: "why\n".to_owned(), log: None };
        assert_eq!(
            without.to_string(),
            "the daemon ended with exit code 1 before it listened\n  why"
        );
    }

    #[test]
    fn only_a_path_that_depends_on_the_working_directory_is_relative() {
        for (dir, relative) in
            [("state", true), ("./x", true), ("/x", false), ("", false), (" ", false)]
        {
            assert_eq!(is_relative(dir.as_ref()), relative, "{dir:?}");
        }
    }
}
