//! Async client of the daemon, used by the verbs of `quack` and by the tests.
//!
//! - [`Client`]: one connection; any number of requests in flight, matched by id.
//! - [`ensure_daemon`]: makes sure that a daemon serves a state directory, starting one if none does.
//!
//! Needs a tokio runtime with I/O and time. The daemon is another process of the same user, possibly of
//! another version, possibly stopped or dead at any moment: every wait here has an end.

mod client;
mod connection;
mod error;
mod events;
mod start;

pub use client::Client;
pub use error::ClientError;
pub use events::{Event, Events};
pub use start::{StartError, Started, ensure_daemon};
