//! Takes over the listening socket of the service manager (socket activation, sd_listen_fds(3)). The
//! supervisor calls it before it opens any other descriptor.

use crate::Variable;
use crate::platform::is_listening;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Name of the socket in its unit (`FileDescriptorName`).
pub const SOCKET_NAME: &str = "quackd";

/// The socket of the service manager is not usable.
#[derive(Debug, thiserror::Error)]
pub enum ActivationError {
    /// More than one socket, or a socket with another name.
    #[error(
        "the service manager passed {given} sockets named {names:?}, expected one named {SOCKET_NAME}"
    )]
    Unexpected {
        /// Number of sockets, from `LISTEN_FDS`.
        given: String,
        /// Names of the sockets, from `LISTEN_FDNAMES`.
        names: String,
    },
    /// Not a Unix stream socket, or not in the listening state.
    #[error("the socket passed by the service manager is not a listening Unix socket: {0}")]
    NotListening(io::Error),
    /// Clients would connect to another path.
    #[error("the service manager listens at {}, clients connect to {}", found.display(), wanted.display())]
    Elsewhere {
        /// Path of the listening socket.
        found: PathBuf,
        /// Path that clients connect to.
        wanted: PathBuf,
    },
}

/// Returns the listening socket at `path` from the service manager; `None` without one.
///
/// Call this once, while the process has one thread and no other open descriptors, because the descriptor is
/// known only by its number. Makes the descriptor close-on-exec and removes the variables.
///
/// # Errors
/// [`ActivationError`]. Variables for another process (`LISTEN_PID`) are ignored.
pub fn activated_blocking(
    path: &Path,
    variable: Variable<'_>,
) -> Result<Option<UnixListener>, ActivationError> {
    let text = |name: &str| variable(name).and_then(|value| value.into_string().ok());
    let is_for_us = text("LISTEN_PID").and_then(|pid| pid.parse().ok()) == Some(std::process::id());
    let Some(given) = text("LISTEN_FDS").filter(|_| is_for_us) else { return Ok(None) };

    // Old versions of systemd do not set names.
    let names = text("LISTEN_FDNAMES").unwrap_or_else(|| SOCKET_NAME.to_owned());
    if given != "1" || names != SOCKET_NAME {
        return Err(ActivationError::Unexpected { given, names });
    }

    // `take_unix_listener` checks for a Unix stream socket and sets close-on-exec.
    let listener = listenfd::ListenFd::from_env().take_unix_listener(0);
    let none = || io::Error::from(io::ErrorKind::NotFound);
    let listener =
        listener.and_then(|taken| taken.ok_or_else(none)).map_err(ActivationError::NotListening)?;

    // A bound socket that does not listen would accept no client.
    if !is_listening(&listener).map_err(ActivationError::NotListening)? {
        let error = io::Error::other("it does not listen");
        return Err(ActivationError::NotListening(error));
    }

    let address = listener.local_addr().map_err(ActivationError::NotListening)?;
    let bound = address.as_pathname().unwrap_or_else(|| Path::new("(no path)"));
    if bound != path {
        return Err(ActivationError::Elsewhere { found: bound.into(), wanted: path.into() });
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
