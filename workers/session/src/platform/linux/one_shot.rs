//! Processes that do one thing for the supervisor and exit: `quack clean-repositories` and `quack probe`.

use quackd_process::abort_on_panic;
use quackd_process::complain;
use std::fmt::Display;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::process::ExitCode;

/// Removes the placeholders of killed monitors from repositories, and exits. Called by `quack clean-repositories`.
/// The only input is the path of the registry, on stdin.
#[must_use]
pub(crate) fn clean_repositories() -> ExitCode {
    const MAX_PATH: u64 = 4096;
    abort_on_panic();

    let mut path = Vec::new();
    let read = std::io::stdin().take(MAX_PATH).read_to_end(&mut path);
    let path = std::path::PathBuf::from(std::ffi::OsString::from_vec(path));

    let cleaned = read.and_then(|_| quackd_sandbox::confine::git_mounts::clean_blocking(&path));
    exit_code(cleaned, "cannot clean repositories")
}

/// Writes the layers of confinement that work on this system to stdin, the channel to the supervisor, and exits.
/// Called by `quack probe`.
#[must_use]
pub(crate) fn probe() -> ExitCode {
    abort_on_panic();
    let written = quackd_process::die_with_parent()
        .map_err(|error| error.to_string())
        .and_then(|()| quackd_sandbox::confine::probe_blocking().map_err(|error| error.to_string()))
        .and_then(|probe| serde_json::to_vec(&probe).map_err(|error| error.to_string()))
        // The result is short and the first in the channel, so one call writes all of it.
        .and_then(|body| {
            let written = rustix::io::write(rustix::stdio::stdin(), &body);
            written.map_err(|error| error.to_string())
        });

    exit_code(written, "cannot probe")
}

fn exit_code<T>(result: Result<T, impl Display>, problem: &str) -> ExitCode {
    match result {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("{problem}: {error}"));
            ExitCode::FAILURE
        }
    }
}
