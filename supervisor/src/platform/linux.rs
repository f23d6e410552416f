//! The names of [`super`] for Linux.

use nix::time::ClockId;
use rustix::event::epoll::{CreateFlags, EventData, EventFlags, add, create};
use std::io;
use std::os::fd::OwnedFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// True: workers confine themselves in namespaces, with mounts.
pub(crate) const HAS_NAMESPACES: bool = true;

/// True: `/proc` shows the memory of processes, and their programs.
pub(crate) const HAS_PROC: bool = true;

/// Clock of the time since the machine was started, including suspends.
pub(crate) const BOOT_CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;

/// Returns a future that ends when a connection or a packet waits in one of the sockets, by events of an epoll instance.
///
/// # Errors
/// No descriptor is left.
pub(crate) fn first_connection(
    sockets: &[OwnedFd],
) -> io::Result<impl Future<Output = io::Result<()>> + use<>> {
    let watch = create(CreateFlags::CLOEXEC)?;
    for socket in sockets {
        add(&watch, socket, EventData::new_u64(0), EventFlags::IN)?;
    }
    let watch = readable(watch)?;
    Ok(async move { watch.readable().await.map(drop) })
}

#[expect(
    deprecated,
    reason = "the other function is unsafe, for types that change their descriptor"
)]
fn readable(epoll: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(epoll, Interest::READABLE)
}
