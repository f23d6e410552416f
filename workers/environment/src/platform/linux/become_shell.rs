//! Confines this process and becomes the login shell. Reads the command line of [`crate::confined`].

use crate::confined::CANNOT_CONFINE;
use crate::shell::PIPE_VARIABLE;
use quackd_process::complain;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Confines this process and becomes the shell. Returns only on failure. Called by `quack login-shell`.
pub(crate) fn become_shell(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let failed = |problem: &dyn std::fmt::Display| {
        complain(&format!("{problem}"));
        ExitCode::from(CANNOT_CONFINE)
    };

    let mut hidden = Vec::new();
    while let Some(word) = arguments.next() {
        match word.to_str() {
            Some("--hide") => hidden.extend(arguments.next().map(PathBuf::from)),
            Some("--") => break,
            _ => return failed(&"an unknown argument"),
        }
    }

    let Some(shell) = arguments.next() else { return failed(&"no shell") };
    let real = |path: &OsStr| std::fs::canonicalize(Path::new(path));
    let answer = match real(&std::env::var_os(PIPE_VARIABLE).unwrap_or_default()) {
        Ok(answer) => answer,
        Err(error) => return failed(&error),
    };

    let used = [std::env::var_os("HOME").unwrap_or_default(), shell.clone()];
    let used: Vec<PathBuf> = used.iter().filter_map(|path| real(path).ok()).collect();
    let used: Vec<&Path> = used.iter().map(PathBuf::as_path).collect();
    if let Err(error) = quackd_sandbox::confine::become_login_shell(&answer, &used, &hidden) {
        return failed(&error);
    }

    let error = quackd_process::become_program(&shell, arguments.collect(), []);
    failed(&error)
}
