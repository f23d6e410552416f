//! Where things live: state directory, socket path, instance lock, ids, workspace resolution, and what of it can go.
//!
//! Called by the supervisor at start and at `attach`, and by the command line before it connects.
//! Functions that touch the disk end in `_blocking`; the rest only compute.

mod claim;
mod disk;
mod error;
mod foreign;
mod home;
mod ids;
pub mod keep;
mod locate;
mod lock;
pub mod own_file;
mod pid_file;
mod private_dir;
mod socket;
mod spills;
mod tenure;
mod workspace;

pub use disk::DiskRoom;
pub use error::HomeError;
pub use foreign::Foreign;
pub use home::Home;
pub use ids::{new_id, workspace_id};
pub use lock::{InstanceLock, lock_blocking};
pub use pid_file::{remove_pid_file_blocking, write_pid_file_blocking};
pub use socket::SocketPath;
pub use spills::{Trimmed, trim_spills_blocking};
pub use tenure::Tenure;
pub use workspace::{
    Workspace, WorkspaceError, is_risky_workspace, look_up_workspace_blocking,
    resolve_workspace_blocking,
};
