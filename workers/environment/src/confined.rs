//! Command line that starts the login shell confined: `quack login-shell [--hide DIRECTORY]... -- SHELL [ARGUMENT]...`
//! gives up writing, the network and other processes, and becomes the shell. [`crate::capture`] runs it, and
//! `become_shell` reads it.

use quackd_process::{SelfExe, Writable};
use std::ffi::OsString;

/// Subcommand of the wrapper.
const VERB: &str = "login-shell";

/// Exit code of the wrapper if the shell cannot be confined. Shells use other codes.
pub(crate) const CANNOT_CONFINE: u8 = 125;

/// Maximum size of the paths to hide, in bytes: they are arguments.
const MAX_HIDDEN_BYTES: usize = 1024 * 1024;

/// Starts shells confined, and knows the directories that they must not see.
#[derive(Debug)]
pub(crate) struct Wrapper {
    exe: SelfExe,
}

impl Wrapper {
    /// `None` if this system cannot confine a shell.
    pub(crate) fn find() -> Option<Self> {
        let can_confine = quackd_sandbox::confine::can_confine_login_shell();
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
