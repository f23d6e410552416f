//! Race-free file access beneath one directory.
//!
//! Owns: the handle of a root directory and every rule about which names lead to files beneath it.
//! Called by: `crates/tools`, for every path that a client names and every file that a search opens.
//!
//! The kernel decides at the moment of opening whether a file is beneath the root. Nothing here
//! checks a path first and opens it afterwards, so that a program that swaps directories and
//! symlinks meanwhile gains nothing.

mod root;

mod access;
mod error;
mod names;

pub use error::{Kind, PathError};
pub use root::{Metadata, OpenFile, Root};
