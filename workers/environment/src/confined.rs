//! Starts the login shell confined: `quack login-shell [--hide DIRECTORY]... -- SHELL [ARGUMENT]...` gives up writing, the
//! network and other processes, and becomes the shell. Built and read here; [`crate::capture`] runs it.

use crate::shell::PIPE_VARIABLE;
use quackd_process::{SelfExe, Writable, complain};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Subcommand of the wrapper.
const VERB: &str = "login-shell";

/// Exit code of the wrapper if the shell cannot be confined. Shells use other codes.
pub(crate) const CANNOT_CONFINE: u8 = 125;

/// Most bytes of the paths to hide: they are arguments.
const MAX_HIDDEN_BYTES: usize = 1024 * 1024;

/// Starts shells confined, and knows the directories that they must not see.
#[derive(Debug)]
pub(crate) struct Wrapper {
    exe: SelfExe,
}

impl Wrapper {
    /// `None` if this system cannot confine a shell.
    pub(crate) fn find() -> Option<Self> {
        #[cfg(target_os = "linux")]
        let can_confine = quackd_sandbox::confine::can_confine_login_shell();
        #[cfg(not(target_os = "linux"))]
        let can_confine = false;
        let exe = can_confine.then(SelfExe::open)?.ok()?;
        Some(Self { exe })
    }

    /// Returns the program and the arguments in front of the shell. `None` for more directories than arguments can have.
    pub(crate) fn words(&self, hidden: &Writable) -> Option<(OsString, Vec<OsString>)> {
        let mut words = vec![OsString::from(VERB)];
        let mut n_bytes = 0;
        for directory in hidden.iter() {
            n_bytes += directory.as_os_str().len();
            words.extend(["--hide".into(), directory.into()]);
        }
        words.push("--".into());
        (n_bytes <= MAX_HIDDEN_BYTES).then(|| (self.exe.path().into(), words))
    }
}

/// Confines this process and becomes the shell. Returns only on failure. Called by `quack login-shell`.
#[cfg(target_os = "linux")]
#[must_use]
pub fn become_shell(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let failed = |why: &dyn std::fmt::Display| {
        complain(&format!("{why}"));
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
