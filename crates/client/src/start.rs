//! Makes sure that a daemon serves a state directory. Called by every verb that needs one; several may
//! do so at the same time.
//!
//! The socket is the only truth: a daemon runs if one listens there. Which of several daemons that are
//! started at once stays is decided by their lock, not here; the others exit 0.

use crate::{Client, ClientError};
use quackd_home::Home;
use quackd_process::{DetachedChild, Exit, SelfExe, SpawnError, spawn_detached_blocking};
use quackd_protocol::limits::SHUTDOWN_GRACE;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The arguments with which `exe` becomes a daemon.
const DAEMON_ARGS: [&str; 2] = ["daemon", "--background"];

/// Longest wait for a daemon to listen. It needs about 50 ms; a machine that is short of everything
/// needs more.
const START_DEADLINE: Duration = Duration::from_secs(5);

/// Longest wait for one attempt to connect.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// First and longest time between two looks at the socket.
const POLL_INTERVALS: (Duration, Duration) =
    (Duration::from_millis(10), Duration::from_millis(100));

/// Whether a daemon had to be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Started {
    /// One was listening.
    AlreadyRunning,
    /// One listens now.
    Started {
        /// From the first look at the socket until it listened.
        took: Duration,
    },
}

/// Why no daemon listens.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The socket can be neither used nor replaced.
    #[error(transparent)]
    Probe(ClientError),
    /// No process could be started.
    #[error("cannot start the daemon")]
    Spawn(#[from] SpawnError),
    /// It would look for its state somewhere else: it does not inherit the working directory.
    #[error("RUBBER_DUCK_APP_SUPPORT must be an absolute path to start the daemon")]
    RelativeStateDirectory,
    /// It ended before it listened.
    #[error("the daemon ended with {exit} before it listened{}{}", place(log.as_deref()), quote(stderr))]
    Exited {
        /// How it ended.
        exit: Exit,
        /// The last lines of its stderr.
        stderr: String,
        /// Where it writes its log; `None` if it came to none.
        log: Option<PathBuf>,
    },
    /// It runs, or another one that holds the lock does, and does not listen.
    #[error(
        "the daemon does not listen after {after:?}; `quack doctor` says more{}{}",
        place(log.as_deref()),
        quote(stderr)
    )]
    Silent {
        /// How long was waited.
        after: Duration,
        /// The last lines of its stderr.
        stderr: String,
        /// Where it writes its log; `None` if it came to none.
        log: Option<PathBuf>,
    },
}

/// Starts a daemon for `home` from `exe` unless one listens, and waits until one does.
///
/// Starting a process takes about a millisecond and happens on the calling thread.
///
/// # Errors
/// See [`StartError`]. A daemon that was started and is slow is left running.
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
        // The order matters: a daemon seen dead here may have left the socket to the one that serves.
        let ended = exit_of(&mut daemon);
        if listens(&socket).await? {
            return Ok(Started::Started { took: begun.elapsed() });
        }
        match ended {
            // Another one holds the lock: it starts and will listen, or it drains and will let go.
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

/// A child whose fate the system does not tell is one that may still listen.
fn exit_of(daemon: &mut DetachedChild) -> Option<Exit> {
    daemon.try_wait().unwrap_or_default()
}

async fn listens(socket: &Path) -> Result<bool, StartError> {
    match Client::connect(socket, PROBE_TIMEOUT).await {
        // A full queue is the queue of somebody who listens.
        Ok(_) | Err(ClientError::Timeout { .. }) => Ok(true),
        Err(ClientError::NotRunning { .. }) => Ok(false),
        Err(error) => Err(StartError::Probe(error)),
    }
}

/// The log, if there is one: a daemon that cannot write its state directory has none.
fn log_of(home: &Home) -> Option<PathBuf> {
    Some(home.log_file()).filter(|path| path.is_file())
}

/// Where the log is, as a part of an error text.
fn place(log: Option<&Path>) -> String {
    log.map_or_else(String::new, |path| format!("; log: {}", path.display()))
}

fn is_relative(dir: &std::ffi::OsStr) -> bool {
    let dir = dir.to_string_lossy();
    !dir.trim().is_empty() && Path::new(dir.trim()).is_relative()
}

/// The last lines of a daemon's stderr, as the tail of an error text; nothing if it said nothing.
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
