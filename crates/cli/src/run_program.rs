//! Runs the programs of the service managers, such as `systemctl`. Limits their time and output, and kills every
//! process they leave behind. Used by `quack service` and `quack uninstall`.

use anyhow::Context;
use quackd_process::{Command, EndedBy, Exit, Limits};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Timeout of a program. A service manager waits until the daemon has exited.
const LIMIT: Duration = Duration::from_secs(90);

/// Time from TERM to KILL.
const GRACE: Duration = Duration::from_secs(2);

/// Result of a program.
#[derive(Debug)]
pub(crate) struct ProgramOutput {
    pub(crate) succeeded: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl ProgramOutput {
    /// Returns stderr, or stdout if stderr is empty, on one line of at most 300 columns.
    pub(crate) fn complaint(&self) -> String {
        let complaint = if self.stderr.trim().is_empty() { &self.stdout } else { &self.stderr };
        crate::display::cut(&complaint.trim().replace('\n', "; "), 300)
    }
}

/// Runs a program from the PATH and waits for its exit.
///
/// Must not be called in a process that has started a daemon: this function kills all remaining child processes.
///
/// # Errors
/// If the program is not found or does not exit in time.
pub(crate) async fn ask(words: &[impl AsRef<str>]) -> anyhow::Result<ProgramOutput> {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    let (program, args) = words.split_first().context("no program")?;
    let text = |value: std::ffi::OsString| value.into_string().ok();

    let command = Command {
        program: program.into(),
        args: args.iter().map(Into::into).collect(),
        cwd: "/".into(),
        // The manager's variables are needed to reach it.
        env: std::env::vars_os().filter_map(|(n, v)| Some((text(n)?, text(v)?))).collect(),
        deadline: LIMIT,
        grace: GRACE,
        abort_grace: GRACE,
        leave: Duration::ZERO,
        cancel: CancellationToken::new(),
        tag: "service".to_owned(),
        spill: None,
        live: None,
        flow: None,
        input: None,
        terminal: None,
        limits: Limits::default(),
        group: None,
        spawn_thread: None,
    };

    let finished =
        quackd_process::run(command).await.with_context(|| format!("cannot run {program}"))?;

    if finished.ended_by != EndedBy::Itself {
        anyhow::bail!("{} did not end within {} s", words.join(" "), LIMIT.as_secs());
    }

    let text = |stream: &quackd_process::Captured| {
        let bytes = [stream.head.as_slice(), stream.tail.as_slice()].concat();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    Ok(ProgramOutput {
        succeeded: finished.exit == Exit::Code(0),
        stdout: text(&finished.stdout),
        stderr: text(&finished.stderr),
    })
}

/// Runs a program and requires that it succeeds.
///
/// # Errors
/// Those of [`ask`], and an error with the program's output if it fails.
pub(crate) async fn must(words: &[impl AsRef<str>]) -> anyhow::Result<()> {
    let answer = ask(words).await?;
    if !answer.succeeded {
        let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
        anyhow::bail!("`{}` failed: {}", words.join(" "), answer.complaint());
    }
    Ok(())
}
