//! The isolate worker: makes, compares or applies the private copy of one isolated session, or records or restores the
//! state of a session's files, once, and exits.
//!
//! The supervisor touches no file of the user and parses none of a session, so this separate process does. It is confined
//! to the workspace and the directory of the copy before it reads the first of them (`quackd_sandbox::confine`). The work
//! itself is `crates/isolate`.

mod states;
mod tracked;

use quackd_ipc::first::read_first_blocking;
use quackd_ipc::{frames, link};
use quackd_isolate::{CopyOptions, IsolateError, IsolatedCopy, copy_workspace};
use quackd_process::{
    Role, abort_on_panic, complain, harden, rank_above_parent, set_process_name, split_off_monitor,
};
use quackd_protocol::isolate::{
    FromIsolate, IsolateRequest, IsolateTask, TO_ISOLATE_TAGS, ToIsolate,
};
use quackd_protocol::worker::EXIT_TERMINAL;
use quackd_sandbox::confine::{enter_isolate, user_excludes_blocking};
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;

/// Longest request in bytes: paths.
const MAX_REQUEST: usize = 1024 * 1024;

/// Runs as the isolate worker. Called by `quack isolate` and `quack record-states` before any other code in the process.
///
/// In the first process that enters (the supervisor's direct child) this never returns: that process becomes the monitor.
#[must_use]
pub fn main() -> ExitCode {
    abort_on_panic();
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("cannot work on the copy: {error}"));
            ExitCode::from(EXIT_TERMINAL)
        }
    }
}

fn serve() -> io::Result<()> {
    split_off_monitor()?;
    set_process_name("quack-isolate");
    harden(Role::Worker)?;
    // If memory runs out, this process ends before the supervisor.
    drop(rank_above_parent());
    let request = read_first_blocking(rustix::stdio::stdin(), MAX_REQUEST, TO_ISOLATE_TAGS)?;
    let control = link::take_control_channel()?;
    let answer = match request {
        ToIsolate::Isolate(request) => answer(request),
        ToIsolate::Checkpoints(request) => states::answer(request),
    };
    let body = frames::encode(&answer).map_err(io::Error::other)?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    let mut channel = UnixStream::from(control);
    channel.set_nonblocking(false)?;
    channel.write_all(&length.to_be_bytes())?;
    channel.write_all(&body)
}

/// Confines this process and does the work.
fn answer(request: IsolateRequest) -> FromIsolate {
    let failed = |text: String| FromIsolate::Failed { text };
    let IsolateRequest { mut workspace, directory, home, task } = request;
    // The rules of the confinement name directories without links.
    match workspace.canonicalize() {
        Ok(real) => workspace = real,
        Err(error) => return failed(format!("cannot open {}: {error}", workspace.display())),
    }
    let excludes = user_excludes_blocking(&home, &workspace);
    let (readable, writable): (Vec<PathBuf>, Vec<PathBuf>) = match &task {
        IsolateTask::Copy { .. } => (tracked::repository_of(&workspace), vec![directory.clone()]),
        IsolateTask::Diff { .. } | IsolateTask::Apply { .. } | IsolateTask::Undo {} => {
            (Vec::new(), vec![workspace.clone(), directory.clone()])
        }
    };
    if let Err(error) = enter_isolate(&readable, &writable) {
        return failed(error.to_string());
    }
    let done = match task {
        IsolateTask::Copy { hidden, max_files, max_bytes } => {
            let tracked = tracked::files(&workspace);
            let options =
                CopyOptions { hidden, max_files, max_bytes, user_excludes: excludes, tracked };
            copy_workspace(&workspace, &directory, &options).map(FromIsolate::Copied)
        }
        IsolateTask::Diff { choice, text } => {
            let opened = IsolatedCopy::open(&workspace, &directory, excludes);
            opened.and_then(|opened| opened.diff(&choice, text)).map(FromIsolate::Compared)
        }
        IsolateTask::Apply { choice, merge, dry_run, expect } => {
            let opened = IsolatedCopy::open(&workspace, &directory, excludes);
            let applied =
                opened.and_then(|opened| opened.apply(&choice, merge, dry_run, expect.as_deref()));
            applied.map(FromIsolate::Compared)
        }
        IsolateTask::Undo {} => {
            let opened = IsolatedCopy::open(&workspace, &directory, excludes);
            opened.and_then(IsolatedCopy::undo).map(FromIsolate::Compared)
        }
    };
    done.unwrap_or_else(|error: IsolateError| failed(error.to_string()))
}
