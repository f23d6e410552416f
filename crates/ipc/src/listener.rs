//! The client socket: private to its owner.
//!
//! The supervisor binds it while it holds the instance lock, and `quackd-client` connects. The library never removes
//! the file. The supervisor removes it, after checking that the file is still its own.

use crate::platform::private;
use interprocess::local_socket::tokio::{Listener, Stream};
use interprocess::local_socket::traits::tokio::{Listener as _, Stream as _};
use interprocess::local_socket::{GenericFilePath, ListenerOptions, ToFsName};
use interprocess::os::unix::uds_local_socket;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Connection of a client. The stream of interprocess would call the system twice for each line.
pub use tokio::net::UnixStream as ClientStream;

/// Error of binding the socket.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another file has this path: not a socket, or a socket of another user.
    #[error("{path} exists and cannot be replaced: {why}")]
    Occupied {
        /// Path of the socket.
        path: PathBuf,
        /// Description of the existing file.
        why: &'static str,
    },
    /// A daemon that does not hold our lock listens there.
    #[error("Daemon socket already in use: {0}")]
    InUse(PathBuf),
    /// The system call failed.
    #[error("cannot listen at {path} ({} bytes; the system's limit is 107 on Linux and 103 on macOS): {source}", path.as_os_str().len())]
    Bind {
        /// Path of the socket.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

/// The bound socket. Dropping it keeps the file; see [`SocketFile::unlink_blocking`].
#[derive(Debug)]
pub struct BoundSocket {
    listener: Listener,
    file: SocketFile,
}

/// The file of a bound socket, identified by device and inode, so that a successor at the same path is not confused
/// with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

/// Removes the socket that a crashed daemon left at `path`. The caller holds the instance lock, so a socket with a
/// listener belongs to a daemon that does not use the lock.
pub fn clear_stale_blocking(path: &Path) -> Result<(), BindError> {
    use std::os::unix::fs::FileTypeExt;
    let bind = |source| BindError::Bind { path: path.to_owned(), source };
    let occupied = |why| BindError::Occupied { path: path.to_owned(), why };

    let metadata = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(bind(error)),
    };

    if !metadata.file_type().is_socket() {
        return Err(occupied("it is not a socket"));
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(occupied("it belongs to another user"));
    }
    if answers(path).map_err(bind)? {
        return Err(BindError::InUse(path.to_owned()));
    }

    std::fs::remove_file(path).map_err(bind)
}

/// Returns true if `path` has a listener. Never blocks. A listener with a full queue, for example of a stopped process,
/// counts.
fn answers(path: &Path) -> io::Result<bool> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};
    let probe = socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    // Non-blocking, because a stopped process would never accept.
    rustix::io::ioctl_fionbio(&probe, true)?;
    match connect(&probe, &SocketAddrUnix::new(path)?) {
        Ok(()) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INPROGRESS) => Ok(true),
        Err(_refused) => Ok(false),
    }
}

impl BoundSocket {
    /// Binds at `path` with mode 0600 and registers with the current runtime. macOS cannot set the mode before the
    /// bind. There the private parent directory protects the socket.
    pub fn bind(path: &Path) -> Result<Self, BindError> {
        let bind = |source| BindError::Bind { path: path.to_owned(), source };
        let name = path.to_fs_name::<GenericFilePath>().map_err(bind)?;
        // The library would remove the file when the listener is dropped, also the one of a
        // successor.
        let options = ListenerOptions::new().name(name).reclaim_name(false);
        let listener = private(options).create_tokio().map_err(bind)?;

        let metadata = std::fs::symlink_metadata(path).map_err(bind)?;
        let file =
            SocketFile { path: path.to_owned(), device: metadata.dev(), inode: metadata.ino() };
        Ok(Self { listener, file })
    }

    /// Adopts a listening socket at `path` from the service manager, and registers it with the current runtime.
    pub fn adopt(listener: UnixListener, path: &Path) -> Result<Self, BindError> {
        let bind = |source| BindError::Bind { path: path.to_owned(), source };
        let listener = uds_local_socket::tokio::Listener::try_from(OwnedFd::from(listener));
        let metadata = std::fs::symlink_metadata(path).map_err(bind)?;
        let file =
            SocketFile { path: path.to_owned(), device: metadata.dev(), inode: metadata.ino() };
        Ok(Self { listener: listener.map_err(bind)?.into(), file })
    }

    /// Returns the file, for [`SocketFile::unlink_blocking`] after the listener was dropped.
    #[must_use]
    pub fn file(&self) -> SocketFile {
        self.file.clone()
    }

    /// Accepts the next client. After an error of the system (out of descriptors, connection aborted) the caller should
    /// wait and retry.
    pub async fn accept(&self) -> io::Result<ClientStream> {
        Ok(unwrapped(self.listener.accept().await?))
    }
}

/// State of the file at the path of a bound socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The bound socket.
    Ours,
    /// The file was deleted, so clients cannot find the daemon.
    Gone,
    /// Another file, or the check failed.
    Another,
}

impl SocketFile {
    /// Checks whether the file still exists.
    #[must_use]
    pub fn look_blocking(&self) -> Standing {
        match std::fs::symlink_metadata(&self.path) {
            Ok(metadata) if metadata.dev() == self.device && metadata.ino() == self.inode => {
                Standing::Ours
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Standing::Gone,
            Ok(_) | Err(_) => Standing::Another,
        }
    }

    /// Removes the file if it is still the one that was bound.
    pub fn unlink_blocking(&self) {
        if self.look_blocking() == Standing::Ours {
            // Another process may remove it at the same time. Then there is nothing to do.
            std::fs::remove_file(&self.path).ok();
        }
    }
}

/// Returns true if the peer process runs as our effective user.
pub fn peer_is_owner(stream: &ClientStream) -> io::Result<bool> {
    Ok(stream.peer_cred()?.uid() == rustix::process::geteuid().as_raw())
}

/// Connects to the daemon at `path`.
pub async fn connect(path: &Path) -> io::Result<ClientStream> {
    Ok(unwrapped(Stream::connect(path.to_fs_name::<GenericFilePath>()?).await?))
}

fn unwrapped(Stream::UdSocket(stream): Stream) -> ClientStream {
    stream.into()
}
