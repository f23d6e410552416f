//! The two byte streams of the product.
//!
//! - [`listener`], [`alias`] and [`lines`]: the client socket, newline-delimited JSON. Used by the supervisor and by
//!   `quackd-client`.
//! - [`link`], [`first`] and [`frames`]: the control channel between the supervisor and one worker, length-delimited
//!   JSON over a socketpair. Used by the supervisor and by `quackd-session-worker`.
//!
//! Both directions of both are bounded by [`quackd_protocol::limits::MAX_LINE_BYTES`]. Nothing here knows
//! what a message means.

pub mod alias;
pub mod first;
pub mod frames;
pub mod lines;
pub mod link;
pub mod listener;
