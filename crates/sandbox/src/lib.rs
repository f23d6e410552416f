//! What a worker may touch: race-free file access beneath one directory, and the kernel's confinement of
//! the worker's processes.
//!
//! Owns: the handle of a root directory and every rule about which names lead to files beneath it; the
//! namespaces, mounts, Landlock and the filter of system calls ([`confine`]); the macOS profile.
//! What no kernel can foresee is looked for afterwards ([`audit`]).
//! Called by: `crates/tools`, for every path that a client names and every file that a search opens; the
//! worker's stage 0.
//!
//! Files: the kernel decides at the moment of opening whether a file is beneath the root. Nothing here
//! checks a path first and opens it afterwards, so that a program that swaps directories and
//! symlinks meanwhile gains nothing. Writing goes by the handle of the directory that the name is in.

pub mod audit;
pub mod confine;
pub mod git_config;
mod protected;
mod root;
mod seatbelt;
mod target;

mod access;
mod error;
mod lock;
mod names;
mod obeyed;
mod staged;
mod version;

pub use error::{Kind, PathError, WriteError};
pub use obeyed::{Held, Obeyed, Rule};
pub use protected::protected_name;
pub use root::{Metadata, OpenFile, Root};
pub use seatbelt::{MacPlaces, SANDBOX_EXEC, Seatbelt};
pub use staged::StagedTag;
pub use target::{OtherNames, Purpose, StagedContent, Target};
pub use version::FileVersion;
