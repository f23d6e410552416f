//! Mounts of a new tree, and files that are shown read-only. `plan`, `host_facts` and `entries` choose them, and `mounts`
//! carries them out.

use std::borrow::Cow;
use std::path::PathBuf;

/// Content at one path of the new tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mount {
    /// Bind mount of the host's file or directory `from`, including mounts inside it.
    Bind {
        /// Path on the host, without links.
        from: PathBuf,
        /// False mounts it read-only.
        writable: bool,
        /// True for a directory.
        is_directory: bool,
        /// False to omit the mount if `from` no longer exists when it is mounted, or may not be opened.
        required: bool,
    },
    /// Bind mount of the workspace, from its open directory.
    Workspace {
        /// False mounts it read-only.
        writable: bool,
    },
    /// Empty private directory of the worker.
    Private {
        /// Permission bits.
        mode: u32,
    },
    /// Read-only directory inside a private one. It contains only the mount points below it.
    Way,
    /// Overlay of a host directory with a layer for changes. Read-only if the kernel refuses overlays.
    Layer {
        /// Path on the host.
        from: PathBuf,
    },
    /// Directory in [`super::MountPlan::caches`], for a package cache that the user does not have.
    Kept,
    /// Overlay of an ignored directory of the workspace with a layer for the changes of an isolated session.
    Output {
        /// Path on the host.
        from: PathBuf,
    },
    /// Symbolic link.
    Link {
        /// Target of the link, as written.
        to: PathBuf,
    },
    /// Small private file of the worker.
    File {
        /// Content of the file.
        content: String,
    },
    /// Small read-only file that covers the host's file at this path.
    Over {
        /// Content of the file.
        content: Cow<'static, str>,
    },
    /// Empty read-only file or directory that covers the node at this path, if one exists.
    Empty,
}

/// A file or directory outside the workspace that is mounted read-only at its own path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadOnlyBind {
    /// Path inside.
    pub at: PathBuf,
    /// The same path without links.
    pub from: PathBuf,
    /// True for a directory.
    pub is_directory: bool,
}
