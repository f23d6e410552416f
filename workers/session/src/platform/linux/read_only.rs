//! Wrapper process between the worker and a command. It drops rights before it executes the command.
//!
//! - `quack read-only [--processes N] [--private DIR]... -- PROGRAM [ARGUMENT]...` drops the right to write, for safe
//!   mode of a single call. A session in safe mode has a worker that cannot write at all.
//! - `quack limited --processes N -- PROGRAM [ARGUMENT]...` only limits the number of processes
//!   ([`limited`]).

mod limited;

use crate::private_files::make_directory_blocking;
use limited::limit_processes;
use quackd_process::complain;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Exit codes of shells for a program that cannot be executed.
const CANNOT_EXECUTE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Rights that the wrapper drops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GivesUp {
    /// Writing, and processes if a limit is given.
    Writing,
    /// Processes only.
    Processes,
}

/// Parsed arguments.
#[derive(Debug, Default)]
struct Order {
    processes: Option<u64>,
    private: Vec<PathBuf>,
    command: Vec<OsString>,
}

/// Runs the wrapper. Returns only if the command could not be started.
#[must_use]
pub(crate) fn main(gives_up: GivesUp, arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let mut order = read(arguments);
    if order.command.is_empty() {
        return refuse("no program");
    }

    if let Some(Err(error)) = order.processes.map(limit_processes) {
        return refuse(&format!("the number of processes cannot be limited: {error}"));
    }
    let private: Vec<&Path> = order.private.iter().map(PathBuf::as_path).collect();
    if gives_up == GivesUp::Writing
        && let Err(error) = quackd_sandbox::confine::become_read_only(&private)
    {
        return refuse(&format!("safe mode cannot be enforced: {error}"));
    }

    let program = order.command.remove(0);
    // The command may write temporary files to the first private directory.
    let env = private.first().map(|first| ("TMPDIR", first.as_os_str()));
    let error = quackd_process::become_program(&program, order.command, env);
    let program = program.to_string_lossy();
    if error.kind() == io::ErrorKind::NotFound {
        complain(&format!("{program}: command not found"));
        return ExitCode::from(NOT_FOUND);
    }
    refuse(&format!("{program}: {error}"))
}

fn refuse(why: &str) -> ExitCode {
    complain(why);
    ExitCode::from(CANNOT_EXECUTE)
}

/// Parses the arguments. An unknown argument leaves the command empty.
fn read(mut arguments: impl Iterator<Item = OsString>) -> Order {
    let mut order = Order::default();
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--private") => order.private.extend(arguments.next().map(PathBuf::from)),
            Some("--processes") => {
                let number = arguments.next().and_then(|number| number.to_str()?.parse().ok());
                let Some(number) = number else { return order };
                order.processes = Some(number);
            }
            Some("--") => {
                order.command = arguments.collect();
                return order;
            }
            _ => return order,
        }
    }
    order
}

/// Returns the directory in which commands of safe mode may write. It is private to the worker and contains no
/// mounts, unlike `/tmp`, which may contain a mounted workspace. If it cannot be created, they may write nowhere.
pub(crate) fn private_of_safe_mode() -> Vec<PathBuf> {
    let path = PathBuf::from("/tmp/.quack-safe-mode");
    make_directory_blocking(&path).map(|()| path).into_iter().collect()
}
