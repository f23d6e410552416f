//! Confinement of a worker: what its processes see of the machine and may do to it, held by the kernel.
//!
//! Called by the worker's stage 0 (everything), by `quack probe` (the probe) and by the supervisor (tiers, and
//! cleaning up what was made only to be pinned).
//!
//! The order of a start in tiers A and B, all while the process has one thread:
//! 1. [`Facts::gather_blocking`] looks at the machine, [`git::Walk`] finds repositories, and [`Plan::new`]
//!    says what is shown;
//! 2. [`split`] makes the namespaces: the caller's process is the monitor, its child is process 1;
//! 3. [`Init::enter`] builds the plan's tree, gives up all rights, and forks the worker.
//!
//! Tier D is [`enter_alone`]. Outside Linux there are only the tiers' names here.

mod limits;
mod no_network;
mod tier;

#[cfg(target_os = "linux")]
mod alone;
#[cfg(target_os = "linux")]
mod commands;
#[cfg(target_os = "linux")]
mod enter;
#[cfg(target_os = "linux")]
mod error;
#[cfg(target_os = "linux")]
mod facts;
#[cfg(target_os = "linux")]
pub mod git;
#[cfg(target_os = "linux")]
mod kernel_files;
#[cfg(target_os = "linux")]
mod landlock;
#[cfg(target_os = "linux")]
mod layer;
#[cfg(target_os = "linux")]
mod links;
#[cfg(target_os = "linux")]
mod loopback;
#[cfg(target_os = "linux")]
mod mounts;
#[cfg(target_os = "linux")]
mod pinned;
#[cfg(target_os = "linux")]
mod plan;
#[cfg(target_os = "linux")]
mod privilege;
#[cfg(target_os = "linux")]
mod probe;
#[cfg(target_os = "linux")]
mod read_only;
#[cfg(target_os = "linux")]
mod requests;
#[cfg(target_os = "linux")]
mod seccomp;
#[cfg(target_os = "linux")]
mod spawn;
#[cfg(target_os = "linux")]
mod sys;
#[cfg(target_os = "linux")]
mod toolchains;
#[cfg(target_os = "linux")]
mod tree;

pub use limits::Limits;
pub use no_network::{NoNetwork, PROXY_PORT};
pub use quackd_protocol::worker::Probe;
pub use tier::{LANDLOCK_ALONE, LANDLOCK_WITH_NAMESPACES, Refusal, Tier, choose};

#[cfg(target_os = "linux")]
pub use alone::rules_alone_blocking;
#[cfg(target_os = "linux")]
pub use commands::CommandFilter;
#[cfg(target_os = "linux")]
pub use enter::{Entered, enter_alone};
#[cfg(target_os = "linux")]
pub use error::ConfineError;
#[cfg(target_os = "linux")]
pub use facts::{Facts, Places, Shown, SystemDirectory};
#[cfg(target_os = "linux")]
pub use landlock::{FileRights, FileRule};
#[cfg(target_os = "linux")]
pub use pinned::first_unpinned_blocking;
#[cfg(target_os = "linux")]
pub use plan::{Mount, Pin, Plan, PlanError};
#[cfg(target_os = "linux")]
pub use probe::{landlock_version, probe_blocking};
#[cfg(target_os = "linux")]
pub use read_only::become_read_only;
#[cfg(target_os = "linux")]
pub use spawn::{Init, Monitor, Side, split};
