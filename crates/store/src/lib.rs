//! Durable files: loads, validates, quarantines and replaces them. `quackd-state.json` has everything that the daemon
//! keeps.
//!
//! `quackd-rubber-duck` saves the state together with `metadata.json`. The supervisor and the command line replace
//! single small files.
//!
//! Promises:
//! - A damaged file is quarantined and never reset silently (P-11).
//! - A replaced file is complete at every moment: the old one or the new one.

mod document;
mod duplicates;
mod error;
mod exchange;
mod load;
mod quarantine;
mod replace;
mod stamp;
mod state;
mod validate;

pub use document::{DurableDocument, Earlier, StateFile, to_bytes};
pub use duplicates::Duplicate;
pub use error::StoreError;
pub use exchange::exchange_blocking;
pub use load::{
    FILE_IS_MISSING, FileContent, Good, Loaded, Origin, load_blocking, read_blocking,
    read_good_blocking,
};
pub use quarantine::{quarantine_blocking, set_aside_blocking};
pub use replace::{
    Temporary, keep_as_backup_blocking, replace_file_blocking, with_suffix, write_synced_blocking,
};
pub use stamp::FileStamp;
pub use state::{Snapshot, StoredState};
