//! Access of a worker: race-free file access under one directory, and the kernel's confinement of the worker's
//! processes.
//!
//! Owns the handle of a root directory and every rule about the names of files under it; the namespaces, mounts,
//! Landlock rules and system call filters ([`confine`]); and the macOS profile. Changes that the kernel cannot
//! prevent are found afterwards ([`audit`]). Called by `crates/tools`, for every path that a client names and every
//! file that a search opens, and by the worker's stage 0.
//!
//! Files: the kernel decides when it opens a file whether the file is under the root. No code here checks a path
//! first and opens it later, so a program that swaps directories and symlinks in between gains nothing. A write uses
//! the handle of the directory that contains the name.

pub mod audit;
pub mod confine;
pub mod git;
pub mod git_config;
mod pin;
mod protected;
mod root;
mod seatbelt;
mod target;

mod access;
mod error;
mod hidden;
mod lock;
mod names;
mod obeyed;
mod path_directories;
mod platform;
mod staged;
mod turns;
mod version;
mod workspace_place;

pub use error::{Kind, PathError, WriteError};
pub use names::canonicalise_existing;
pub use obeyed::{Held, Obeyed, Rule};
pub use path_directories::path_directories_blocking;
pub use pin::Pin;
pub use protected::{is_git_directory, protected_name};
pub use root::{CachedFile, Metadata, OpenFile, Root};
pub use seatbelt::{MANY_REPOSITORIES, MacPaths, SANDBOX_EXEC, Seatbelt};
pub use staged::StagedTag;
pub use target::{OtherNames, Purpose, StagedContent, Target};
pub use version::FileVersion;
pub use workspace_place::workspace_refusal;
