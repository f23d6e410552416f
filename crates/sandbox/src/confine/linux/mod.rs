//! The confinement of Linux: namespaces, mounts, Landlock and filters of system calls. The parent module has the order.

mod commands;
mod enter;
mod entries;
mod error;
pub mod git;
mod held;
mod host_facts;
mod kernel_files;
mod landlock;
mod landlock_only;
mod login_shell;
mod loopback;
mod mount_sources;
mod mounts;
mod new_root;
mod overlay;
mod pin_check;
mod plan;
mod privilege;
mod probe;
mod proxy;
mod read_only;
mod requests;
mod seccomp;
mod spawn;
mod sys;
mod toolchains;

use super::{limits, private_network};

pub use commands::CommandFilter;
pub use enter::{ConfinedProcess, enter_alone};
pub use error::ConfineError;
pub use held::GitLayout;
pub use host_facts::{HostFacts, ReadOnlyBind, SessionDirs, SystemDirectory};
pub use landlock::{FileRights, FileRule};
pub use landlock_only::rules_alone_blocking;
pub use login_shell::{become_login_shell, can_confine_login_shell};
pub use mount_sources::MountSources;
pub use overlay::{CacheDirectory, CacheDirectoryError};
pub use pin_check::{first_unpinned_blocking, is_mount_point};
pub use plan::{Mount, MountPlan, Pin, PlanError};
pub use probe::{landlock_version, probe_blocking};
pub use proxy::{enter_agent, enter_proxy};
pub use read_only::become_read_only;
pub use spawn::{Init, Monitor, Side, split};
