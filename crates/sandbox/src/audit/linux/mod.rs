//! The audit on Linux. The parent module has what it is for.

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

use crate::audit::{Budget, Change, Report};

pub use names::WatchedNames;
pub use report::audit_blocking;
pub use set_aside::SetAside;
pub use snapshot::{Known, Snapshot};
pub use sweep::{Check, Checked};
