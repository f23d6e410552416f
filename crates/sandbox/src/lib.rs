//! Race-free file access beneath one directory.
//!
//! Owns: the handle of a root directory and every rule about which names lead to files beneath it.
//! Called by: `crates/tools`, for every path that a client names and every file that a search opens.
//!
//! The kernel decides at the moment of opening whether a file is beneath the root. Nothing here
//! checks a path first and opens it afterwards, so that a program that swaps directories and
//! symlinks meanwhile gains nothing. Writing goes by the handle of the directory that the name is in.

mod root;
mod target;

mod access;
mod error;
mod lock;
mod names;
mod staged;
mod version;

pub use error::{Kind, PathError, WriteError};
pub use root::{Metadata, OpenFile, Root};
pub use target::{Purpose, Target};
pub use version::FileVersion;
