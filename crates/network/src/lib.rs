//! Parsers for the bytes that the network proxy of a session reads from commands, which are hostile. Bounded, without I/O.
//!
//! - [`http`]: the head of a request to an HTTP proxy, and of a request to a server;
//! - [`link`]: the host of a request for a server of a session;
//! - [`socks`]: the two messages of SOCKS5;
//! - [`dns`]: queries for names, and their answers;
//! - [`hello`]: the server name in the first message of TLS;
//! - [`synthetic`]: addresses that stand for names.
//!
//! Used by `quackd-network-worker`, and [`dns`] by the worker of a session without a network.

pub mod dns;
pub mod hello;
pub mod http;
pub mod link;
pub mod socks;
pub mod synthetic;
