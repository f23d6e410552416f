//! What is kept on disk: metadata and the daemon's own state. Load, validate, quarantine, durable replace.
//!
//! Called by the supervisor only, which holds the instance lock: [`load_blocking`] and
//! [`load_state_blocking`] once at start, then one [`Writer`] for both files. Promises: what was
//! acknowledged is on disk (P-10), a full disk costs the request and nothing else (P-06), and a damaged
//! file is set aside and never reset in silence (P-11).

mod document;
mod error;
mod load;
mod plain;
mod quarantine;
mod replace;
mod save;
mod validate;
mod writer;

pub use error::StoreError;
pub use load::{Loaded, LoadedState, Origin, load_blocking, load_state_blocking};
pub use plain::{replace_file_blocking, set_aside_blocking};
pub use save::{Files, Paths, Snapshot};
pub use validate::Duplicate;
pub use writer::{SAVE_WAITERS, Writer};
