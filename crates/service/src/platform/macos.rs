//! The names of [`super`] for macOS.

use std::io;
use std::os::unix::net::{SocketAddr, UnixListener};

/// True: the service manager is launchd.
pub(crate) const HAS_LAUNCHD: bool = true;

/// Always true: only systemd passes sockets by variables, and macOS cannot report that a socket listens.
#[expect(clippy::unnecessary_wraps, reason = "as on Linux")]
pub(crate) fn is_listening(_socket: &UnixListener) -> io::Result<bool> {
    Ok(true)
}

/// Always an error: addresses are paths.
pub(crate) fn abstract_address(_name: &[u8]) -> io::Result<SocketAddr> {
    Err(io::ErrorKind::InvalidInput.into())
}
