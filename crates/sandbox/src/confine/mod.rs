//! Confinement of a worker: limits what its processes see and change on the machine. The kernel enforces it.
//!
//! Called by the worker's stage 0 (everything), by `quack probe` (the probe) and by the supervisor (tiers, and
//! removal of placeholders).
//!
//! The order of a start in tiers A and B, all while the process has one thread:
//! 1. [`HostFacts::gather_blocking`] inspects the machine, [`crate::git::Walk`] finds repositories, and [`MountPlan::new`]
//!    decides what is visible;
//! 2. [`split`] creates the namespaces: the calling process is the monitor, its child is process 1;
//! 3. [`Init::enter`] builds the planned tree, drops all privileges, and forks the worker.
//!
//! Tier D uses [`enter_alone`]. All of this is in `linux`. On other systems, this module only has the names of the tiers.

mod limits;
mod platform;
mod private_network;
mod tier;

pub use limits::ConfinementLimits;
pub use platform::*;
pub use private_network::PrivateNetwork;
pub use quackd_protocol::tiers::Probe;
pub use tier::{LANDLOCK_ALONE, LANDLOCK_WITH_NAMESPACES, TierError, choose};
