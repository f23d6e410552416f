//! Git repositories inside a workspace: finds the files that make a later git run code, pins them, and manages
//! placeholders for missing ones. Called by stage 0 before namespaces exist.
//!
//! Repositories are hostile input: all reads have limits, use handles and follow no links.

mod carried;
mod config_paths;
pub(crate) mod gitdir;
mod named;
mod named_path;
pub(crate) mod openat;
mod placeholder;
mod protect;
mod protection;
pub(crate) mod settings;
pub(crate) mod stamp;
mod user_settings;
pub(crate) mod visited;
mod walk;
mod words;

pub(crate) use crate::git_config as config;
pub use carried::{ATTRIBUTES_NAME, CarriedSettings, EXCLUDES_NAME, SETTINGS_NAME};
pub use gitdir::Main;
pub use named::{NamedFile, NamedFiles, WritableTree, named_blocking};
pub use openat::{Node, hold_directory_blocking, node_at};
pub(crate) use openat::{normalise, open_directory};
pub use placeholder::{CleanupStats, Placeholders, clean_blocking};
pub use protect::{git_directories_blocking, protect_blocking};
pub use protection::{Protection, ProtectionGap, ProtectionSettings};
pub use user_settings::UserSettings;
pub use walk::{FoundRepositories, MAX_REPOSITORIES, NodeKind, Walk};
