//! What applying and undoing promise.

mod applying;
mod full_disk;
mod hostile;
mod kills;
mod undoing;
pub(super) mod world;
