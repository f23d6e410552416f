//! The names of [`super`] for macOS.

use nix::time::ClockId;
use std::io;
use std::os::fd::OwnedFd;

/// False: the system's sandbox confines each command, and mounts nothing.
pub(crate) const HAS_NAMESPACES: bool = false;

/// False: the memory of other processes is not read.
pub(crate) const HAS_PROC: bool = false;

/// Clock of the time since the machine was started, including suspends. `Instant` reads `CLOCK_UPTIME_RAW`, which stops
/// during a suspend.
pub(crate) const BOOT_CLOCK: ClockId = ClockId::from_raw(nix::libc::CLOCK_MONOTONIC_RAW);

/// Returns a future that ends at once if there are sockets: watching a socket without owning it needs unsafe code here. So
/// a session with hosts always has a proxy.
#[expect(clippy::unnecessary_wraps, reason = "as on Linux")]
pub(crate) fn first_connection(
    sockets: &[OwnedFd],
) -> io::Result<impl Future<Output = io::Result<()>> + use<>> {
    let has_sockets = !sockets.is_empty();
    Ok(async move { if has_sockets { Ok(()) } else { std::future::pending().await } })
}
