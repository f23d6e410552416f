//! Git repositories inside a workspace: which of their files make a later git run code, how they are pinned,
//! and what of them is made only to be pinned. Called by stage 0 before namespaces exist.
//!
//! A repository is hostile input: everything is read with limits, by handle, and without following links.

pub(crate) mod beneath;
pub(crate) mod elsewhere;
mod identity;
mod leads;
mod placeholder;
mod protect;
mod walk;

pub(crate) use crate::git_config as config;
pub(crate) use beneath::open_directory;
pub use beneath::{Node, hold_directory_blocking, node_at};
pub use elsewhere::Main;
pub use identity::Identity;
pub use placeholder::{Cleaned, Placeholders, clean_blocking};
pub use protect::{Protection, Trouble, git_directories_blocking, protect_blocking};
pub use walk::{Found, NodeKind, Walk};
