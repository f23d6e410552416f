//! The durable files of the daemon: `quackd-state.json`, which is the truth, and `metadata.json`, a view of it that
//! another program writes too. Loads, validates, quarantines, imports and replaces them.
//!
//! Used by the supervisor only, which holds the instance lock. It calls [`open_blocking`] once at start, then starts
//! one [`Writer`] for both files.
//!
//! Promises:
//! - An acknowledged change is on disk (P-10).
//! - A full disk fails only the request that needed space (P-06).
//! - A damaged file is quarantined and never reset silently (P-11).
//! - Changes by another program are imported (P-12).

mod document;
mod duplicates;
mod error;
mod exchange;
mod import;
mod load;
mod open;
mod platform;
mod quarantine;
mod replace;
mod save;
mod stamp;
mod validate;
mod watch;
mod writer;

#[cfg(feature = "fuzzing")]
pub mod fuzzing;

pub use document::{DurableDocument, StateFile};
pub use duplicates::Duplicate;
pub use error::StoreError;
pub use import::{Gone, rebase};
pub use load::{Loaded, Origin, load_blocking};
pub use open::{Opened, open_blocking};
pub use quarantine::set_aside_blocking;
pub use replace::replace_file_blocking;
pub use save::{Files, Paths, Saved, SetAside, Snapshot};
pub use watch::Watching;
pub use writer::{SAVE_WAITERS, Writer};
