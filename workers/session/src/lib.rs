//! The session worker: one process per session, and the only process in which tools run.
//!
//! In reading order:
//! - [`stage0`]: single-threaded start: the first frame, the monitor process, limits.
//! - [`confinement`]: which tier, and entering it.
//! - [`caches`]: the directory that keeps package caches.
//! - [`link`]: frames in, frames out.
//! - [`executor`]: admits calls, keeps their cancel handles and answers each exactly once.
//! - [`updates`]: the output of running calls, for the clients that follow the session.
//! - [`jobs`]: reports of running background jobs.
//! - [`network`]: the pair to the network proxy outside.
//! - [`web`]: web searches that the supervisor performs for a call.
//!
//! The worker reads no configuration, no environment and no file of the supervisor. It has no secrets. It never links
//! `quackd-store`: it cannot write metadata.

#[cfg(target_os = "linux")]
mod caches;
#[cfg(target_os = "linux")]
mod command_variables;
#[cfg_attr(not(target_os = "linux"), path = "confinement_macos.rs")]
mod confinement;
mod confinement_result;
mod executor;
mod input;
mod jobs;
#[cfg(target_os = "linux")]
mod limited;
mod link;
mod network;
#[cfg(target_os = "linux")]
pub mod read_only;
mod real_paths;
mod stage0;
mod start_error;
mod streaming;
#[cfg(target_os = "linux")]
mod trees;
mod updates;
#[cfg(target_os = "linux")]
mod user_git;
mod web;
mod wrapper;

use quackd_process::abort_on_panic;
pub(crate) use quackd_process::complain;
use quackd_protocol::worker::EXIT_TERMINAL;
use std::process::ExitCode;

/// Runs as a worker until the supervisor stops it or exits. Called by `quack worker` before any other code in the
/// process.
///
/// In the first process that enters (the supervisor's direct child) this never returns: that process becomes the
/// monitor.
#[must_use]
pub fn main() -> ExitCode {
    abort_on_panic();
    match stage0::enter() {
        Ok(started) => executor::serve(started),
        Err(error) => {
            stage0::refuse(&error);
            complain(&format!("worker cannot start: {error}"));
            ExitCode::from(EXIT_TERMINAL)
        }
    }
}

/// Removes the placeholders of killed monitors from repositories, and exits. Called by `quack clean-repositories`.
/// The only input is the path of the registry, on stdin.
#[cfg(target_os = "linux")]
#[must_use]
pub fn clean_repositories() -> ExitCode {
    use std::io::Read;
    use std::os::unix::ffi::OsStringExt;

    const MAX_PATH: u64 = 4096;
    abort_on_panic();
    let mut path = Vec::new();
    let read = std::io::stdin().take(MAX_PATH).read_to_end(&mut path);
    let path = std::path::PathBuf::from(std::ffi::OsString::from_vec(path));
    let cleaned = read.and_then(|_| quackd_sandbox::confine::git::clean_blocking(&path));
    match cleaned {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("cannot clean repositories: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Writes the layers of confinement that work on this system to stdin, the channel to the supervisor, and exits.
/// Called by `quack probe`.
#[cfg(target_os = "linux")]
#[must_use]
pub fn probe() -> ExitCode {
    abort_on_panic();
    let found = quackd_process::die_with_parent()
        .map_err(|error| error.to_string())
        .and_then(|()| quackd_sandbox::confine::probe_blocking().map_err(|error| error.to_string()))
        .and_then(|probe| serde_json::to_vec(&probe).map_err(|error| error.to_string()))
        // The result is short and the first in the channel, so one call writes all of it.
        .and_then(|body| {
            let written = rustix::io::write(rustix::stdio::stdin(), &body);
            written.map_err(|error| error.to_string())
        });
    match found {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("cannot probe: {error}"));
            ExitCode::FAILURE
        }
    }
}
