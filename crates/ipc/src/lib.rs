//! The two byte streams of quackd.
//!
//! - [`listener`], [`alias`] and [`lines`]: the client socket, newline-delimited JSON. Used by the supervisor and by
//!   `quackd-client`.
//! - [`link`], [`first`] and [`frames`]: the control channel between the supervisor and one worker, length-delimited
//!   JSON over a socketpair. Used by the supervisor and by `quackd-session-worker`.
//! - [`sockets`]: pairs of sockets, and questions about a socket.
//! - [`halves`]: reading from and writing to the sockets of both.
//!
//! Both streams are bounded by [`quackd_protocol::limits::MAX_LINE_BYTES`] in both directions. The crate does not
//! interpret messages.

pub mod alias;
pub mod descriptors;
pub mod first;
pub mod frames;
pub mod halves;
pub mod lines;
pub mod link;
pub mod listener;
mod platform;
pub mod sockets;
