//! Finds changes that no mount and no rule can prevent: files that make a later program run code, and that were
//! created or changed while a worker ran.
//!
//! Owns the tables of names and git settings that count, the snapshot of a workspace at a worker's start
//! ([`Snapshot`]), and the comparison. Called by `crates/tools`: [`Snapshot::changes_blocking`] and
//! [`Snapshot::check_blocking`] after commands that could write, [`audit_blocking`] when the user requests an audit.
//!
//! All reads use handles, have limits and follow no links. Git is never run. Every reported name is one line of
//! bounded length.

mod budget;
mod git_names;
mod hidden;
mod manifest;
mod names;
mod planted;
mod report;
mod reported;
mod repository;
mod set_aside;
mod snapshot;
mod sweep;
mod unlisted;
mod wanted;

/// Change of one watched name.
pub use quackd_protocol::client::AuditFile as Change;

/// A name in a git directory by which git would write to another file.
pub use quackd_protocol::client::AuditPlanted as Planted;

/// Result of an audit.
pub use quackd_protocol::client::AuditReport as Report;

pub use budget::Budget;
pub use names::WatchedNames;
pub use report::{Before, add_report, audit_blocking};
pub use set_aside::SetAside;
pub use snapshot::{Known, Snapshot};
pub use sweep::{Check, Checked};
