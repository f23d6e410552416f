//! Git repositories inside a workspace: finds them, the files that make a later git run code, and the user's settings.
//! Called by stage 0 before the confinement exists, by the confinement, and by the audit.
//!
//! Repositories are hostile input: all reads have limits, use handles and follow no links.

mod carried;
pub(crate) mod config_paths;
mod directories;
pub(crate) mod gitdir;
mod named;
pub(crate) mod named_path;
pub(crate) mod openat;
mod platform;
pub(crate) mod protected_names;
mod protection_gap;
pub(crate) mod settings;
pub(crate) mod stamp;
mod user_credentials;
mod user_settings;
pub(crate) mod visited;
mod walk;
mod words;

pub use carried::{
    ATTRIBUTES_NAME, CarriedSettings, EXCLUDES_NAME, SETTINGS_NAME, user_excludes_blocking,
};
pub use directories::{GitDirectories, KEEP_WORKTREES, git_directories_blocking};
pub use gitdir::Main;
pub use named::{NamedFile, NamedFiles, WritableTree, named_blocking};
pub(crate) use openat::open_directory;
pub use openat::{Node, hold_directory_blocking, node_at};
pub use protection_gap::ProtectionGap;
pub use user_credentials::Unsigned;
pub use user_settings::{CredentialFiles, UserSettings};
pub use walk::{FoundRepositories, MAX_REPOSITORIES, NodeKind, Walk};
