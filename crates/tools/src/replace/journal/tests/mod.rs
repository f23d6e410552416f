//! Tests of applying and undoing.

mod applying;
mod full_disk;
mod hostile;
mod kills;
mod undoing;
pub(super) mod world;
