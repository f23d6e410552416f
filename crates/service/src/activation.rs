//! Takes the socket that the service manager has made (socket activation, sd_listen_fds(3)). Called by the
//! supervisor before anything else opens a descriptor.

use crate::Variable;
#[cfg(target_os = "linux")]
use rustix::net::sockopt::socket_acceptconn;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// What the socket is called in its unit.
pub const SOCKET_NAME: &str = "quackd";

/// Why a socket that the manager gave is not used.
#[derive(Debug, thiserror::Error)]
pub enum ActivationError {
    /// More than one, or one of another name.
    #[error(
        "the service manager gave {given} sockets named {names:?}; one named {SOCKET_NAME} was expected"
    )]
    Unexpected {
        /// How many.
        given: String,
        /// Their names.
        names: String,
    },
    /// It is none, or none that listens.
    #[error("what the service manager gave is not a Unix socket that listens: {0}")]
    NotListening(io::Error),
    /// Clients would look for it somewhere else.
    #[error("the service manager listens at {}, clients look for the daemon at {}", found.display(), wanted.display())]
    Elsewhere {
        /// Where it listens.
        found: PathBuf,
        /// Where clients look.
        wanted: PathBuf,
    },
}

/// The listening socket at `path` that this process was started with; `None` if it was started without one.
///
/// To be called once, while this process has one thread and has opened nothing: the descriptor is known by
/// its number alone. It is close-on-exec afterwards, and the variables that tell of it are gone.
///
/// # Errors
/// See [`ActivationError`]. What is said for another process is not for this one and no error.
pub fn activated_blocking(
    path: &Path,
    variable: Variable<'_>,
) -> Result<Option<UnixListener>, ActivationError> {
    let text = |name: &str| variable(name).and_then(|value| value.into_string().ok());
    let is_for_us = text("LISTEN_PID").and_then(|pid| pid.parse().ok()) == Some(std::process::id());
    let Some(given) = text("LISTEN_FDS").filter(|_| is_for_us) else { return Ok(None) };
    // An old manager gives no names.
    let names = text("LISTEN_FDNAMES").unwrap_or_else(|| SOCKET_NAME.to_owned());
    if given != "1" || names != SOCKET_NAME {
        return Err(ActivationError::Unexpected { given, names });
    }
    // It is checked to be a Unix stream socket there, and gets close-on-exec.
    let listener = listenfd::ListenFd::from_env().take_unix_listener(0);
    let none = || io::Error::from(io::ErrorKind::NotFound);
    let listener =
        listener.and_then(|taken| taken.ok_or_else(none)).map_err(ActivationError::NotListening)?;
    // Only systemd hands sockets over in this way.
    #[cfg(target_os = "linux")]
    if !socket_acceptconn(&listener).map_err(|e| ActivationError::NotListening(e.into()))? {
        let error = io::Error::other("it does not listen");
        return Err(ActivationError::NotListening(error));
    }
    let address = listener.local_addr().map_err(ActivationError::NotListening)?;
    let found = address.as_pathname().unwrap_or_else(|| Path::new("(no path)"));
    if found != path {
        return Err(ActivationError::Elsewhere { found: found.into(), wanted: path.into() });
    }
    Ok(Some(listener))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    fn activated(
        pid: u32,
        given: &str,
        names: &str,
    ) -> Result<Option<UnixListener>, ActivationError> {
        activated_blocking(Path::new("/s/daemon.sock"), &|name| match name {
            "LISTEN_PID" => Some(OsString::from(pid.to_string())),
            "LISTEN_FDS" => Some(given.into()),
            "LISTEN_FDNAMES" => Some(names.into()),
            _ => None,
        })
    }

    #[test]
    fn what_is_for_another_process_or_says_nothing_is_ignored() {
        assert!(matches!(activated(std::process::id() + 1, "1", SOCKET_NAME), Ok(None)));
        assert!(matches!(activated_blocking(Path::new("/s"), &|_| None), Ok(None)));
        let only_count = |name: &str| (name == "LISTEN_FDS").then(|| OsString::from("1"));
        assert!(matches!(activated_blocking(Path::new("/s"), &only_count), Ok(None)));
    }

    #[test]
    fn another_number_or_name_is_refused() {
        for (given, names) in [("2", "quackd:other"), ("1", "http"), ("0", ""), ("x", SOCKET_NAME)]
        {
            let refused = activated(std::process::id(), given, names);
            assert!(matches!(refused, Err(ActivationError::Unexpected { .. })), "{given} {names}");
        }
    }
}
