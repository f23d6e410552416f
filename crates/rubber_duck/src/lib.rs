//! Compatibility with Rubber Duck: `metadata.json`, a view of `quackd-state.json` for its macOS app, which writes it
//! too, and the rules of voice clients. Imports the app's changes, saves them with quackd's own, and exports the view.
//!
//! Used by the supervisor only, which holds the instance lock. It calls [`open_blocking`] once at start, then starts
//! one [`Writer`] for both files.
//!
//! Promises:
//! - An acknowledged change is on disk (P-10).
//! - A full disk fails only the request that needed space (P-06).
//! - Changes by another program are imported (P-12).

mod import;
mod open;
mod platform;
mod save;
mod tombstones;
mod voice;
mod watch;
mod writer;

#[cfg(feature = "fuzzing")]
pub mod fuzzing;

pub use import::{Gone, rebase};
pub use open::{Opened, open_blocking};
pub use save::{Files, Paths, Saved, SetAside};
pub use tombstones::{session_gone, trim_sessions, trim_workspaces};
pub use voice::{VoiceClients, VoiceRefusal, VoiceSession};
pub use watch::Watching;
pub use writer::{SAVE_WAITERS, Writer};
