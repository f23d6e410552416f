//! The agent without I/O and without a clock: an agent worker drives it.
//!
//! - [`message`]: the messages of a conversation;
//! - [`providers`]: requests to models, and their streams as state machines from bytes to deltas;
//! - [`transcript`]: session files, compatible with Pi's.

pub mod message;
pub mod providers;
