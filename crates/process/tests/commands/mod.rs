//! Commands for the tests of this directory.

use quackd_process::{Command, Finished, LaunchError, Limits};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Limit for everything that must happen. A wait for the wrong thing takes longer, because that takes [`NEVER`].
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const NEVER: Duration = Duration::from_secs(600);

/// A script without a time limit. When it has to end, it is killed at once.
pub(crate) fn bash(tag: &str, script: &str) -> Command {
    Command {
        program: "/bin/bash".into(),
        args: vec!["-c".into(), script.into()],
        cwd: "/tmp".into(),
        env: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
        deadline: NEVER,
        grace: Duration::ZERO,
        abort_grace: Duration::ZERO,
        leave: Duration::ZERO,
        cancel: CancellationToken::new(),
        tag: tag.to_owned(),
        spill: None,
        live: None,
        flow: None,
        input: None,
        terminal: None,
        limits: Limits::default(),
        group: None,
        spawn_thread: None,
    }
}

/// Runs a command, and fails if it does not end.
pub(crate) async fn run(command: Command) -> Result<Finished, LaunchError> {
    tokio::time::timeout(PATIENCE, quackd_process::run(command)).await.unwrap()
}

/// The kept output of a command.
pub(crate) fn stdout(finished: &Finished) -> String {
    String::from_utf8([finished.stdout.head.clone(), finished.stdout.tail.clone()].concat())
        .unwrap()
}
