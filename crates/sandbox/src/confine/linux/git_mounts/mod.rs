//! Mounts that protect the git repositories of a workspace, and the placeholders that these mounts need for missing names.
//! Called by stage 0 before namespaces exist.

mod leads;
mod placeholder;
mod protect;
mod protection;

pub use placeholder::{CleanupStats, Placeholders, clean_blocking};
pub use protect::protect_blocking;
pub use protection::{Protection, ProtectionSettings};
