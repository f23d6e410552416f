//! Metadata on disk: load, validate, quarantine, durable replace.
//!
//! Called by the supervisor only, which holds the instance lock: [`load_blocking`] once at start,
//! then one [`Writer`]. Promises: what was acknowledged is on disk (P-10), a full disk costs the
//! request and nothing else (P-06), and a damaged file is set aside and never reset in silence (P-11).

mod error;
mod load;
mod quarantine;
mod replace;
mod save;
mod validate;
mod writer;

pub use error::StoreError;
pub use load::{Loaded, Origin, load_blocking};
pub use replace::replace_blocking;
pub use save::save_blocking;
pub use validate::Duplicate;
pub use writer::{SAVE_WAITERS, Writer};
