//! The link to a far worker: the link process `quack link` here, and `quack worker --stdio` where the code is.
//!
//! The supervisor starts the link process in place of a worker. The link process starts the client of an engine, such as
//! `ssh`, and carries the bytes of the control channel over the client's stdin and stdout. The far side starts the worker.
//!
//! In reading order:
//! - [`packet`], [`window`]: the resumable stream, without I/O;
//! - [`frame_guard`]: whole frames, for the supervisor;
//! - [`handshake`]: the text lines before the stream;
//! - [`local`], [`connection`]: the two ends of the bytes, and what moves them;
//! - [`program`], [`client`]: the file that is sent, and the engine's client;
//! - [`near`]: the link process;
//! - [`far`], [`far_files`], [`far_start`], [`far_worker`], [`holder`]: the far side;
//! - [`probe`]: tries an engine;
//! - [`errand`]: one piece of work with an engine, without a worker;
//! - [`transfer`], [`near_copy`], [`far_copy`]: move the copy of a session.

mod client;
mod connection;
mod errand;
mod error;
mod far;
mod far_copy;
mod far_files;
mod far_start;
mod far_worker;
mod frame_guard;
mod handshake;
mod holder;
mod local;
mod near;
mod near_copy;
mod packet;
mod probe;
mod program;
mod transfer;
mod window;

pub use errand::main as errand_main;
pub use error::LinkError;
pub use far::main as far_main;
pub use near::main;
pub use probe::{ProbeReport, probe};
