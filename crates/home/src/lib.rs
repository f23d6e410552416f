//! The state directory: its paths, ownership, instance lock and garbage collection. Also creates ids and
//! resolves workspaces.
//!
//! Called by the supervisor at start and at `attach`, and by the command line before it connects. Functions
//! that access the disk end in `_blocking`; all others only compute.

pub mod call_journal;
mod dir_identity;
mod disk;
mod error;
mod foreign;
mod home;
mod ids;
pub mod keep;
mod locate;
mod lock;
pub mod own_file;
mod ownership;
mod pid_file;
mod platform;
mod private_dir;
mod socket;
mod spill_quota;
mod workspace;

pub use dir_identity::Tenure;
pub use disk::DiskRoom;
pub use error::HomeError;
pub use foreign::Foreign;
pub use home::{Home, IsolatedUsage};
pub use ids::{new_id, workspace_id};
pub use lock::{InstanceLock, lock_blocking};
pub use pid_file::{remove_pid_file_blocking, write_pid_file_blocking};
pub use socket::SocketPath;
pub use spill_quota::{TrimStats, trim_spills_blocking};
pub use workspace::{
    Workspace, WorkspaceError, is_risky_workspace, look_up_workspace_blocking,
    resolve_workspace_blocking,
};
