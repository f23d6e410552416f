//! The process between the worker and a command that must change nothing (`quack read-only`): it gives up
//! writing, then becomes the command. For safe mode of a single call; a session in safe mode has a worker
//! that cannot write at all.
//!
//! `quack read-only [--private DIR]... -- PROGRAM [ARGUMENT]...`

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// As shells say it of a program that cannot be executed.
const CANNOT_EXECUTE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Runs as that process. Returns only if the command could not be started.
#[must_use]
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let (private, mut command) = read(arguments);
    if command.is_empty() {
        crate::complain("read-only: no program");
        return ExitCode::from(CANNOT_EXECUTE);
    }
    let private: Vec<&Path> = private.iter().map(PathBuf::as_path).collect();
    if let Err(error) = quackd_sandbox::confine::become_read_only(&private) {
        crate::complain(&format!("safe mode cannot be enforced: {error}"));
        return ExitCode::from(CANNOT_EXECUTE);
    }
    let program = command.remove(0);
    // What it may write to is where temporary files go.
    let env = private.first().map(|first| ("TMPDIR", first.as_os_str()));
    let error = quackd_process::become_program(&program, command, env);
    let shown = program.to_string_lossy();
    match error.kind() {
        io::ErrorKind::NotFound => {
            crate::complain(&format!("{shown}: command not found"));
            ExitCode::from(NOT_FOUND)
        }
        _ => {
            crate::complain(&format!("{shown}: {error}"));
            ExitCode::from(CANNOT_EXECUTE)
        }
    }
}

fn read(mut arguments: impl Iterator<Item = OsString>) -> (Vec<PathBuf>, Vec<OsString>) {
    let mut private = Vec::new();
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--private") => private.extend(arguments.next().map(PathBuf::from)),
            Some("--") => return (private, arguments.collect()),
            _ => return (private, Vec::new()),
        }
    }
    (private, Vec::new())
}
