//! The client socket: bound privately, answered only to its owner.
//!
//! The supervisor binds it under the instance lock; `quackd-client` connects. The name is never
//! reclaimed by the library: the supervisor unlinks it itself, after it has checked that the file is
//! still its own.

use interprocess::local_socket::tokio::{Listener, Stream};
use interprocess::local_socket::traits::tokio::{Listener as _, Stream as _};
use interprocess::local_socket::{GenericFilePath, ListenerOptions, ToFsName};
use interprocess::os::unix::uds_local_socket;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

pub use interprocess::local_socket::tokio::Stream as ClientStream;

/// Why the socket cannot be bound.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Something else is at the path: not a socket, or a socket of another user.
    #[error("{path} is in the way: {why}")]
    Occupied {
        /// The socket's path.
        path: PathBuf,
        /// What is there.
        why: &'static str,
    },
    /// A daemon that does not hold our lock answers there.
    #[error("Daemon socket already in use: {0}")]
    InUse(PathBuf),
    /// The system refused.
    #[error("cannot listen at {path} ({} bytes; the system's limit is 107 on Linux and 103 on macOS): {source}", path.as_os_str().len())]
    Bind {
        /// The socket's path.
        path: PathBuf,
        /// The refusal.
        source: io::Error,
    },
}

/// The bound socket. Dropping it leaves the file; see [`SocketFile::unlink_blocking`].
#[derive(Debug)]
pub struct BoundSocket {
    listener: Listener,
    file: SocketFile,
}

/// The file of a bound socket, told apart from a successor's at the same path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

/// Removes what a daemon that ended badly left at `path`. The caller holds the instance lock, so a
/// socket that still answers belongs to a daemon that knows nothing of the lock.
pub fn clear_stale_blocking(path: &Path) -> Result<(), BindError> {
    use std::os::unix::fs::FileTypeExt;
    let bind = |source| BindError::Bind { path: path.to_owned(), source };
    let occupied = |why| BindError::Occupied { path: path.to_owned(), why };
    let found = match std::fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(bind(error)),
    };
    if !found.file_type().is_socket() {
        return Err(occupied("it is not a socket"));
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(occupied("it belongs to another user"));
    }
    if answers(path).map_err(bind)? {
        return Err(BindError::InUse(path.to_owned()));
    }
    std::fs::remove_file(path).map_err(bind)
}

/// Whether somebody listens at `path`. Never waits: a listener whose queue is full, for example that
/// of a stopped process, is a listener too.
fn answers(path: &Path) -> io::Result<bool> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};
    let probe = socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    rustix::io::ioctl_fionbio(&probe, true)?;
    match connect(&probe, &SocketAddrUnix::new(path)?) {
        Ok(()) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INPROGRESS) => Ok(true),
        Err(_refused) => Ok(false),
    }
}

impl BoundSocket {
    /// Binds at `path` with mode 0600 and registers with the current runtime. On macOS the mode cannot
    /// be set before the bind, so the private directory above is what protects the socket there.
    pub fn bind(path: &Path) -> Result<Self, BindError> {
        let bind = |source| BindError::Bind { path: path.to_owned(), source };
        let name = path.to_fs_name::<GenericFilePath>().map_err(bind)?;
        let options = ListenerOptions::new().name(name).reclaim_name(false);
        #[cfg(target_os = "linux")]
        let options =
            interprocess::os::unix::local_socket::ListenerOptionsExt::mode(options, 0o600);
        let listener = options.create_tokio().map_err(bind)?;
        let found = std::fs::symlink_metadata(path).map_err(bind)?;
        let file = SocketFile { path: path.to_owned(), device: found.dev(), inode: found.ino() };
        Ok(Self { listener, file })
    }

    /// Takes over a socket that listens at `path` already, made by the service manager, and registers it
    /// with the current runtime.
    pub fn adopt(listener: UnixListener, path: &Path) -> Result<Self, BindError> {
        let bind = |source| BindError::Bind { path: path.to_owned(), source };
        let listener = uds_local_socket::tokio::Listener::try_from(OwnedFd::from(listener));
        let found = std::fs::symlink_metadata(path).map_err(bind)?;
        let file = SocketFile { path: path.to_owned(), device: found.dev(), inode: found.ino() };
        Ok(Self { listener: listener.map_err(bind)?.into(), file })
    }

    /// The file, for [`SocketFile::unlink_blocking`] after the listener is gone.
    #[must_use]
    pub fn file(&self) -> SocketFile {
        self.file.clone()
    }

    /// The next client. Errors are the system's (descriptors used up, connection aborted): the caller
    /// backs off and goes on.
    pub async fn accept(&self) -> io::Result<Stream> {
        self.listener.accept().await
    }
}

/// What stands where a socket was bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The socket.
    Ours,
    /// Nothing: somebody deleted it, and no client finds it any more.
    Gone,
    /// Something else, or nobody can tell.
    Another,
}

impl SocketFile {
    /// Looks whether the file is still there.
    #[must_use]
    pub fn look_blocking(&self) -> Standing {
        match std::fs::symlink_metadata(&self.path) {
            Ok(found) if found.dev() == self.device && found.ino() == self.inode => Standing::Ours,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Standing::Gone,
            Ok(_) | Err(_) => Standing::Another,
        }
    }

    /// Removes the file if it is still the one that was bound.
    pub fn unlink_blocking(&self) {
        if self.look_blocking() == Standing::Ours {
            // Somebody else may remove it at the same moment; then there is nothing to do.
            drop(std::fs::remove_file(&self.path));
        }
    }
}

/// True if the process at the other end runs as our effective user.
pub fn peer_is_owner(stream: &Stream) -> io::Result<bool> {
    use interprocess::local_socket::traits::StreamCommon as _;
    let creds = stream.peer_creds()?;
    Ok(creds.euid() == Some(rustix::process::geteuid().as_raw()))
}

/// Connects to the daemon at `path`.
pub async fn connect(path: &Path) -> io::Result<Stream> {
    Stream::connect(path.to_fs_name::<GenericFilePath>()?).await
}
