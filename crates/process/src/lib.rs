//! The subprocess manager: the only crate that starts, signals and reaps processes.
//!
//! Callers:
//! - the supervisor makes control groups ([`CgroupBase`]), starts workers ([`spawn_worker_blocking`]),
//!   watches them through their [`ProcessHandle`] and ends what a dead monitor left behind ([`sweep_strays_blocking`]);
//! - the worker splits off its monitor ([`split_off_monitor`]), prepares itself ([`harden`],
//!   [`Limits::impose`]) and runs commands ([`run`]) in its session's control group ([`Group`]);
//! - a session's Pi worker starts the one program that it talks to ([`launch_piped`]);
//! - the command line starts the daemon ([`spawn_detached_blocking`]).
//!
//! Nothing here uses `pre_exec`, so that a spawn stays on the vfork-like path of the standard library
//! however large the calling process is.
//!
//! Everything that finds processes in order to end them relies on the caller being a child
//! sub-reaper (Linux, [`harden`]): whatever loses its parent below us becomes our child, so an empty
//! list of children proves that nothing is left. Other systems have no such list; there only process
//! groups are ended, and the results say that the rest is unknown.
//!
//! Where control groups can be had ([`CgroupBase`]) each command has one of its own besides: it tells whose an
//! orphan is, it is ended as a whole, and the kernel counts what is in it.

mod capture;
mod cgroup;
mod command;
mod detached;
mod exit;
mod flow;
mod handle;
mod harden;
mod holders;
mod in_flight;
mod limits;
mod lineage;
mod live;
mod monitor;
mod oom;
mod output;
mod piped;
mod run;
mod self_exe;
mod shell;
mod spawn;
mod spawn_thread;
mod spill;
mod sweep;
mod wait;

pub use capture::{Captured, HEAD_BYTES, TAIL_BYTES};
pub use cgroup::{
    CgroupBase, DEFAULT_TOTAL_PROCESSES, Group, Kind as CgroupKind, SessionEnd, SessionPaths,
};
pub use command::{
    CALL_VARIABLE, Command, EndedBy, Finished, HOLDER_BYTES, Holder, LaunchError, MAX_HOLDERS,
    SpillTarget,
};
pub use detached::{
    DetachedChild, become_session_leader, redirect_stderr_to_null, spawn_detached_blocking,
    spawn_other_blocking,
};
pub use exit::Exit;
pub use flow::{Flow, FlowPiece, StreamName};
pub use handle::ProcessHandle;
pub use harden::{Role, harden, set_process_name, settle};
pub use limits::{DEFAULT_PROCESSES, Limits, MIN_OPEN_FILES};
pub use live::{LIVE_BYTES, Live, Piece};
#[cfg(target_os = "linux")]
pub use monitor::{Split, split_off_monitor_by};
pub use monitor::{
    die_with_parent, split_off_monitor, split_off_monitor_of, split_off_patient_monitor,
};
pub use oom::{OomScore, rank_above_parent};
pub use piped::{Piped, Pipes, launch_piped};
pub use run::run;
pub use self_exe::SelfExe;
pub use spawn::{
    Launcher, SYSTEM_PATH, SpawnError, SpawnedWorker, become_program, spawn_launched_blocking,
    spawn_worker_blocking, system_first,
};
pub use spawn_thread::SpawnThread;
pub use spill::Spilled;
pub use sweep::{Sweep, sweep_strays_blocking};
pub use wait::Usage;
