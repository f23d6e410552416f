//! Confinement of a worker: limits what its processes see and change on the machine. The kernel enforces it.
//!
//! Called by the worker's stage 0 (everything), by `quack probe` (the probe) and by the supervisor (tiers, and
//! removal of placeholders).
//!
//! The order of a start in tiers A and B, all while the process has one thread:
//! 1. [`HostFacts::gather_blocking`] inspects the machine, [`git::Walk`] finds repositories, and [`MountPlan::new`]
//!    decides what is visible;
//! 2. [`split`] creates the namespaces: the calling process is the monitor, its child is process 1;
//! 3. [`Init::enter`] builds the planned tree, drops all privileges, and forks the worker.
//!
//! Tier D uses [`enter_alone`]. On other systems than Linux, this module only has the names of the tiers.

mod limits;

mod tier;

#[cfg(target_os = "linux")]
mod commands;
#[cfg(target_os = "linux")]
mod enter;
#[cfg(target_os = "linux")]
mod entries;
#[cfg(target_os = "linux")]
mod error;
#[cfg(target_os = "linux")]
pub mod git;
#[cfg(target_os = "linux")]
mod held;
#[cfg(target_os = "linux")]
mod host_facts;
#[cfg(target_os = "linux")]
mod kernel_files;
#[cfg(target_os = "linux")]
mod landlock;
#[cfg(target_os = "linux")]
mod landlock_only;
#[cfg(target_os = "linux")]
mod login_shell;
#[cfg(target_os = "linux")]
mod loopback;
#[cfg(target_os = "linux")]
mod mounts;
#[cfg(target_os = "linux")]
mod new_root;
#[cfg(target_os = "linux")]
mod overlay;
#[cfg(target_os = "linux")]
mod pin_check;
#[cfg(target_os = "linux")]
mod plan;
mod private_network;
#[cfg(target_os = "linux")]
mod privilege;
#[cfg(target_os = "linux")]
mod probe;
#[cfg(target_os = "linux")]
mod proxy;
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
#[cfg(not(target_os = "linux"))]
mod unsupported;

pub use limits::ConfinementLimits;
pub use private_network::PrivateNetwork;
pub use quackd_protocol::tiers::Probe;
pub use tier::{LANDLOCK_ALONE, LANDLOCK_WITH_NAMESPACES, TierError, choose};

#[cfg(target_os = "linux")]
pub use commands::CommandFilter;
#[cfg(target_os = "linux")]
pub use enter::{ConfinedProcess, enter_alone};
#[cfg(target_os = "linux")]
pub use error::ConfineError;
#[cfg(target_os = "linux")]
pub use held::GitLayout;
#[cfg(target_os = "linux")]
pub use host_facts::{HostFacts, ReadOnlyBind, SessionDirs, SystemDirectory};
#[cfg(target_os = "linux")]
pub use landlock::{FileRights, FileRule};
#[cfg(target_os = "linux")]
pub use landlock_only::rules_alone_blocking;
#[cfg(target_os = "linux")]
pub use login_shell::{become_login_shell, can_confine_login_shell};
#[cfg(target_os = "linux")]
pub use overlay::{CacheDirectory, CacheDirectoryError};
#[cfg(target_os = "linux")]
pub use pin_check::{first_unpinned_blocking, is_mount_point};
#[cfg(target_os = "linux")]
pub use plan::{Mount, MountPlan, Pin, PlanError};
#[cfg(target_os = "linux")]
pub use probe::{landlock_version, probe_blocking};
#[cfg(target_os = "linux")]
pub use proxy::{enter_agent, enter_proxy};
#[cfg(target_os = "linux")]
pub use read_only::become_read_only;
#[cfg(target_os = "linux")]
pub use spawn::{Init, Monitor, Side, split};
#[cfg(not(target_os = "linux"))]
pub use unsupported::{enter_agent, enter_proxy};
