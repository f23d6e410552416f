//! Looking afterwards for what no mount and no rule can foresee: files that make a later program run code, and
//! that were made or changed while a worker lived.
//!
//! Owns: which names and which of git's settings count, what is remembered of a workspace when a worker begins
//! ([`Snapshot`]), and the comparison. Called by `crates/tools`: [`Snapshot::changes_blocking`] and
//! [`Snapshot::check_blocking`] after commands that could write, [`audit_blocking`] when a person asks.
//!
//! Everything here is read by handle, with limits and without following links, and git is never run. What is
//! told is one line of bounded length, whatever it was called.
//!
//! Outside Linux nothing is found, and the report says that it is not complete.

mod plain;

#[cfg(target_os = "linux")]
mod names;
#[cfg(target_os = "linux")]
mod planted;
#[cfg(target_os = "linux")]
mod report;
#[cfg(target_os = "linux")]
mod repository;
#[cfg(target_os = "linux")]
mod settings;
#[cfg(target_os = "linux")]
mod snapshot;
#[cfg(target_os = "linux")]
mod stamp;
#[cfg(target_os = "linux")]
mod sweep;
#[cfg(target_os = "linux")]
pub(crate) mod visited;

#[cfg(not(target_os = "linux"))]
mod absent;

pub use plain::plain;

#[cfg(not(target_os = "linux"))]
pub use absent::{Checked, Known, Names, Snapshot, audit_blocking};
#[cfg(target_os = "linux")]
pub use names::Names;
#[cfg(target_os = "linux")]
pub use report::audit_blocking;
#[cfg(target_os = "linux")]
pub use snapshot::{Known, Snapshot};
#[cfg(target_os = "linux")]
pub use sweep::Checked;

/// What became of one watched name.
pub use quackd_protocol::client::AuditFile as Change;

/// A name in a git directory by which git would write to another file.
pub use quackd_protocol::client::AuditPlanted as Planted;

/// What an audit found.
pub use quackd_protocol::client::AuditReport as Report;

/// How far an audit goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Entries of directories that are looked at, at most.
    pub entries: u64,
    /// When it ends, done or not.
    pub until: std::time::Instant,
}
