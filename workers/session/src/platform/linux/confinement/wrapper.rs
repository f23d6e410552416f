//! Words in front of a command that make it start through another program. Built by the confinement.

use quackd_process::SelfExe;
use std::ffi::OsString;
use std::path::PathBuf;

/// Wrapper program that drops the right to write before it executes a command (`read_only`), with the
/// private directories that stay writable.
#[derive(Debug)]
pub(super) struct ReadOnlyWrapper {
    pub(super) exe: SelfExe,
    pub(super) private: Vec<PathBuf>,
    /// Maximum number of processes of a command. `None` if a control group or a namespace counts them.
    pub(super) processes: Option<u64>,
}

impl ReadOnlyWrapper {
    /// Returns the words in front of a command that must not write.
    pub(super) fn words(&self) -> Vec<OsString> {
        let mut words = self.program("read-only");
        for directory in &self.private {
            words.extend(["--private".into(), directory.into()]);
        }
        words.push("--".into());
        words
    }

    /// Returns the words in front of every other command. Empty if its processes are counted elsewhere.
    pub(super) fn limiting_words(&self) -> Vec<OsString> {
        let mut words = self.program("limited");
        words.push("--".into());
        if self.processes.is_some() { words } else { Vec::new() }
    }

    fn program(&self, verb: &str) -> Vec<OsString> {
        let mut words = vec![self.exe.path().into(), verb.into()];
        if let Some(processes) = self.processes {
            words.extend(["--processes".into(), processes.to_string().into()]);
        }
        words
    }
}
