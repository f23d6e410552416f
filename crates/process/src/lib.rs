//! The subprocess manager: the only crate that starts, signals and reaps processes.
//!
//! Callers:
//! - the supervisor creates control groups ([`CgroupBase`]), starts workers ([`spawn_worker_blocking`]), watches them
//!   through their [`ProcessHandle`] and kills what a dead monitor left behind ([`sweep_strays_blocking`]);
//! - the worker splits off its monitor ([`split_off_monitor`]), prepares itself ([`harden`],
//!   [`Limits::impose`]) and runs commands ([`run`]) in its session's control group ([`Group`]);
//! - a session's Pi worker starts Pi and exchanges lines with it ([`launch_piped`]);
//! - the command line starts the daemon ([`spawn_detached_blocking`]) and the guard of the terminal
//!   ([`spawn_terminal_guard_blocking`]).
//!
//! Only commands on a terminal and programs of the desktop use `pre_exec`. For all others the standard library keeps its
//! vfork-like spawn path, so that the cost of a spawn does not depend on the size of the calling process.
//!
//! All functions that find processes in order to kill them need a caller that is a child sub-reaper (Linux,
//! [`harden`]). A descendant that loses its parent becomes a child of the sub-reaper, so an empty list of children
//! proves that nothing is left. macOS has no such list: there the processes of a command are found in the list of all
//! processes, by group, descent and a variable (`members.rs`), and the results do not say that none is left.
//!
//! If control groups are available ([`CgroupBase`]), each command also has its own. The group identifies the command
//! of an orphan, is killed as a whole, and lets the kernel count its processes.

mod capture;
mod cgroup;
mod command;
mod complain;
mod detached;
mod exit;
mod exit_as;
mod flow;
mod handle;
mod harden;
mod input;
mod limits;
mod live_output;
mod members;
mod memory;
mod memory_watch;
mod oom;
mod output;
mod outside;
mod pid;
mod pipe_holders;
mod piped;
mod platform;
mod process_facts;
mod process_tree;
mod run;
mod shell;
mod shell_registry;
mod spawn;
mod spawn_thread;
mod spill;
mod start_files;
mod sweep;
mod terminal;
mod wait;

pub use capture::{Captured, HEAD_BYTES, TAIL_BYTES};
pub use cgroup::{
    CgroupBase, CgroupKillReport, CgroupKind, DEFAULT_TOTAL_PROCESSES, Group, OomKills,
    SessionPaths,
};
pub use command::{
    CALL_VARIABLE, Ceiling, Command, EndedBy, Finished, HOLDER_BYTES, Holder, LaunchError,
    MAX_HOLDERS,
};
pub use complain::{abort_on_panic, complain};
pub use detached::{
    DetachedChild, become_session_leader, redirect_stderr_to_null, spawn_detached_blocking,
    spawn_on_desktop_blocking, spawn_other_blocking, spawn_terminal_guard_blocking,
};
pub use exit::Exit;
pub use exit_as::exit_as;
pub use flow::{Flow, FlowPiece, StreamName};
pub use handle::ProcessHandle;
pub use harden::{Role, harden, restore_after_fork};
pub use input::{CommandInput, Wanted};
pub use limits::{DEFAULT_PROCESSES, Limits, MIN_OPEN_FILES};
pub use live_output::{LIVE_BYTES, Live, Piece};
pub use members::{
    end_commands_blocking, end_left_commands_blocking, find_processes_by_list, mark_commands_with,
};
pub use memory::{MemoryAccounting, memory_kb_blocking, number_after, used_memory_kb_blocking};
pub use oom::{OomScore, rank_above_parent};
pub use outside::{Held, Writable};
pub use piped::{Piped, Pipes, launch_piped};
pub use platform::*;
pub use run::run;
pub use spawn::{
    Launcher, SYSTEM_PATH, SpawnError, SpawnedChild, become_program, spawn_launched_blocking,
    spawn_worker_blocking, system_first,
};
pub use spawn_thread::SpawnThread;
pub use spill::{SpillTarget, Spilled};
pub use start_files::{start_files_blocking, with_entries_blocking};
pub use sweep::{SweepReport, sweep_strays_blocking};
pub use terminal::{KeptTerminal, TerminalMaster, TerminalSlave, open_terminal};
pub use wait::Usage;
