//! The durable files of the daemon: `metadata.json` and `quackd-state.json`. Loads, validates, quarantines,
//! merges and replaces them.
//!
//! Used by the supervisor only, which holds the instance lock. It calls [`load_blocking`] and
//! [`load_state_blocking`] once at start, then starts one [`Writer`] for both files.
//!
//! Promises:
//! - An acknowledged change is on disk (P-10).
//! - A full disk fails only the request that needed space (P-06).
//! - A damaged file is quarantined and never reset silently (P-11).
//! - Changes by another program are merged (P-12).

mod atomic_file;
mod document;
mod duplicates;
mod error;
mod exchange;
mod load;
mod merge;
mod quarantine;
mod replace;
mod save;
mod shared_metadata;
mod stamp;
mod validate;
mod watch;
mod writer;

#[cfg(feature = "fuzzing")]
pub mod fuzzing;

pub use atomic_file::{replace_file_blocking, set_aside_blocking};
pub use duplicates::Duplicate;
pub use error::StoreError;
pub use load::{Loaded, LoadedState, Origin, load_blocking, load_state_blocking};
pub use merge::{Conflict, Gone, rebase};
pub use save::{Files, Paths, Snapshot};
pub use shared_metadata::{Saved, SetAside};
pub use watch::Watching;
pub use writer::{SAVE_WAITERS, Writer};
