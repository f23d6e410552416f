//! What comes of confining a worker: made by [`crate::confinement`], used by the executor.

use crate::confinement::ReadOnly;
use quackd_process::SpawnThread;
use quackd_protocol::worker::SandboxReport;
use quackd_sandbox::audit::Known;
use quackd_sandbox::confine::NoNetwork;
use std::ffi::OsString;
use std::path::PathBuf;

/// A worker that is as confined as it will be.
#[derive(Debug)]
pub(crate) struct Confined {
    /// What is in force.
    pub(crate) report: SandboxReport,
    /// Whether anything is.
    pub(crate) is_confined: bool,
    /// The worker's number as the supervisor's side of the machine sees it.
    pub(crate) pid: u32,
    /// What commands get differently than the supervisor said.
    pub(crate) env: Vec<(&'static str, String)>,
    /// Names upon which something is mounted that protects or hides them.
    pub(crate) pins: Vec<PathBuf>,
    /// What stands before every command.
    pub(crate) command_words: Vec<OsString>,
    /// How a command of a single call is kept from writing; `None` where the kernel cannot.
    pub(crate) read_only: Option<ReadOnly>,
    /// The thread that launches commands, with their filter and their rank when memory runs out.
    pub(crate) spawn_thread: Option<SpawnThread>,
    /// Where repositories were before any tool ran; `None` if nobody looked.
    pub(crate) known: Option<Known>,
    /// Sockets and counters of a separate network namespace.
    pub(crate) no_network: Option<NoNetwork>,
}
