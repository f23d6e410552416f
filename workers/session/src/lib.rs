//! The session worker: one process per session, the only place where tools run.
//!
//! In reading order:
//! - [`stage0`]: single-threaded start: the first frame, the monitor process, limits.
//! - [`confinement`]: which tier, and entering it.
//! - [`link`]: frames in, frames out.
//! - [`executor`]: the actor that admits calls, keeps their cancel handles and answers each exactly once.
//! - [`updates`]: what running calls print, as far as the supervisor wants to hear it.
//! - [`jobs`]: which background jobs run.
//! - [`deny`]: answers at once what commands ask of a network that is off.
//! - [`web`]: searches that the supervisor makes for a call.
//!
//! The worker reads no configuration, no environment and no file of the supervisor. It holds no secret.
//! It never links `quackd-store`: it cannot write metadata.

mod confined;
#[cfg_attr(not(target_os = "linux"), path = "confinement_elsewhere.rs")]
mod confinement;
mod deny;
mod executor;
mod jobs;
#[cfg(target_os = "linux")]
mod limited;
mod link;
#[cfg(target_os = "linux")]
pub mod read_only;
mod stage0;
mod streaming;
mod updates;
mod web;

use quackd_protocol::worker::EXIT_TERMINAL;
use std::process::ExitCode;

/// Runs as a worker until the supervisor says so or is gone. Called by `quack worker` before anything
/// else has happened in the process.
///
/// In the first process that enters (the supervisor's direct child) this never returns: it becomes the
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

/// Removes what monitors that were killed have left in repositories, and ends. Called by
/// `quack clean-repositories`; the only input is the path of the registry, on stdin.
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
    let cleaned = read.and_then(|_| quackd_sandbox::confine::git::clean_blocking(&path, None));
    match cleaned {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("cannot clean repositories: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Writes which layers of confinement work here to stdin, the channel to the supervisor, and exits. Called by
/// `quack probe`, which runs nothing else.
#[cfg(target_os = "linux")]
#[must_use]
pub fn probe() -> ExitCode {
    abort_on_panic();
    let found = quackd_process::die_with_parent()
        .map_err(|error| error.to_string())
        .and_then(|()| quackd_sandbox::confine::probe_blocking().map_err(|error| error.to_string()))
        .and_then(|probe| serde_json::to_vec(&probe).map_err(|error| error.to_string()))
        // A result is short and the first bytes in the channel, so that one call writes all of it.
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

/// Ends the process at the first panic, whatever the build profile: a worker whose executor is gone but
/// whose process lives would be found by its silence only.
fn abort_on_panic() {
    std::panic::set_hook(Box::new(|info| {
        complain(&format!("panic: {info}").replace('\n', " "));
        std::process::abort();
    }));
}

/// One line for the supervisor, which keeps the last lines of a worker's stderr for its death report.
fn complain(text: &str) {
    use std::io::Write;
    // There is nobody else to tell.
    drop(writeln!(std::io::stderr(), "{text}"));
}
