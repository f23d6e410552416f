//! The subprocess manager: the only crate that starts, signals and reaps processes.
//!
//! Three callers:
//! - the supervisor starts workers ([`spawn_worker_blocking`]), watches them through their
//!   [`ProcessHandle`] and ends what a dead monitor left behind ([`sweep_strays_blocking`]);
//! - the worker splits off its monitor ([`split_off_monitor`]), prepares itself ([`harden`]) and runs
//!   commands ([`run`]);
//! - the command line starts the daemon ([`spawn_detached_blocking`]).
//!
//! Nothing here uses `pre_exec`, so that a spawn stays on the vfork-like path of the standard library
//! however large the calling process is.
//!
//! Everything that finds processes in order to end them relies on the caller being a child
//! sub-reaper (Linux, [`harden`]): whatever loses its parent below us becomes our child, so an empty
//! list of children proves that nothing is left. Other systems have no such list; there only process
//! groups are ended, and the results say that the rest is unknown.

mod capture;
mod command;
mod detached;
mod exit;
mod handle;
mod harden;
mod in_flight;
mod lineage;
mod live;
mod monitor;
mod output;
mod run;
mod self_exe;
mod shell;
mod spawn;
mod spill;
mod sweep;
mod wait;

pub use capture::{Captured, HEAD_BYTES, TAIL_BYTES};
pub use command::{CALL_VARIABLE, Command, EndedBy, Finished, LaunchError, SpillTarget};
pub use detached::{
    DetachedChild, become_session_leader, redirect_stderr_to_null, spawn_detached_blocking,
};
pub use exit::Exit;
pub use handle::ProcessHandle;
pub use harden::{Role, harden, set_process_name};
pub use live::{LIVE_BYTES, Live, Piece};
pub use monitor::{die_with_parent, split_off_monitor};
pub use run::run;
pub use self_exe::SelfExe;
pub use spawn::{
    Launcher, SpawnError, SpawnedWorker, spawn_launched_blocking, spawn_worker_blocking,
};
pub use spill::Spilled;
pub use sweep::{Sweep, sweep_strays_blocking};
pub use wait::Usage;
