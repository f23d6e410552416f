//! Program, arguments, directory and limits of one command, and the answer for a command that cannot be started.
//! `bash` and its background jobs share it.

use crate::Output;
use quackd_process::{Command, Group, LaunchError, Limits, SpawnThread};
use quackd_protocol::limits;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The command of a bash call: a program with its arguments, environment and limits.
#[derive(Debug)]
pub(crate) struct CommandLine {
    pub(crate) line: String,
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
    pub(crate) cwd: PathBuf,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) limits: Limits,
    pub(crate) group: Option<Arc<Group>>,
    pub(crate) spawn_thread: Option<Arc<SpawnThread>>,
}

impl CommandLine {
    /// Returns the command with the maximum deadline and without a receiver for its output.
    pub(crate) fn command(self, tag: String) -> Command {
        Command {
            program: self.program,
            args: self.args,
            cwd: self.cwd,
            env: self.env,
            deadline: limits::MAX_JOB_TIME,
            grace: limits::DEADLINE_GRACE,
            abort_grace: limits::ABORT_GRACE,
            leave: Duration::ZERO,
            cancel: CancellationToken::new(),
            tag,
            spill: None,
            live: None,
            flow: None,
            input: None,
            terminal: None,
            limits: self.limits,
            group: self.group,
            spawn_thread: self.spawn_thread,
        }
    }
}

pub(crate) fn launch_failed(error: &LaunchError) -> Output {
    let hint = match error {
        LaunchError::Program { path, source } if source.kind() == io::ErrorKind::NotFound => {
            Some(format!(
                "no program is called `{}` in the directories of PATH; install it, or see PATH in `quack doctor`",
                path.display()
            ))
        }
        _ => None,
    };
    Output::error(format_args!("Failed to launch process: {}", explain(error))).with_hint(hint)
}

/// Writes one line with the cause, in the words of the Node daemon where it has a text for it.
pub(crate) fn explain(error: &LaunchError) -> String {
    match error {
        LaunchError::Program { path, source } if source.kind() == io::ErrorKind::NotFound => {
            format!("spawn {} ENOENT", path.display())
        }
        LaunchError::TooManyProcesses(cause) => format!(
            "no more processes can be started now: {cause}. Wait for running calls, or end background jobs \
             with job_kill"
        ),
        LaunchError::TooManyFiles(cause) => format!(
            "no more files can be opened now: {cause}. Wait for running calls, or end background jobs with \
             job_kill"
        ),
        LaunchError::TooLong => {
            "the command is too long: the system takes 128 KiB. Write it to a file \
                                 and run that"
                .to_owned()
        }
        other => match std::error::Error::source(other) {
            Some(cause) => format!("{other}: {cause}"),
            None => other.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_the_system_is_told_with_what_to_do() {
        let cause = || io::Error::from_raw_os_error(11);
        let told = |error: LaunchError| launch_failed(&error).text;
        let processes = told(LaunchError::TooManyProcesses(cause()));
        assert!(processes.starts_with(
            "Error: Failed to launch process: no more processes can be started now: "
        ));
        let files = told(LaunchError::TooManyFiles(cause()));
        for text in [processes, files] {
            assert!(text.ends_with("Wait for running calls, or end background jobs with job_kill"));
        }
        assert!(told(LaunchError::TooLong).ends_with("Write it to a file and run that"));
    }
}
