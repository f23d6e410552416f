//! What is kept on disk: metadata and the daemon's own state. Load, validate, quarantine, durable replace.
//!
//! Called by the supervisor only, which holds the instance lock: [`load_blocking`] and
//! [`load_state_blocking`] once at start, then one [`Writer`] for both files. Promises: what was
//! acknowledged is on disk (P-10), a full disk costs the request and nothing else (P-06), a damaged
//! file is set aside and never reset in silence (P-11), and what another program makes of the metadata is
//! taken over (P-12).

mod document;
mod error;
mod load;
mod merge;
mod plain;
mod quarantine;
mod replace;
mod save;
mod shared;
mod stamp;
mod swap;
mod validate;
mod watch;
mod writer;

#[cfg(feature = "fuzzing")]
pub mod fuzzing;

pub use error::StoreError;
pub use load::{Loaded, LoadedState, Origin, load_blocking, load_state_blocking};
pub use merge::{Conflict, Gone, rebase};
pub use plain::{replace_file_blocking, set_aside_blocking};
pub use save::{Files, Paths, Snapshot};
pub use shared::{Saved, SetAside};
pub use validate::Duplicate;
pub use watch::Watching;
pub use writer::{SAVE_WAITERS, Writer};
