//! Other programs that verbs ask: those of the service managers. Bounded in time and output, and ended with
//! everything that they started. Used by `quack service` and `quack uninstall`.

use anyhow::Context;
use quackd_process::{Command, EndedBy, Exit, Limits};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Longest time for an answer: a service manager waits for the end of the daemon.
const LIMIT: Duration = Duration::from_secs(90);

/// Time from TERM to KILL.
const GRACE: Duration = Duration::from_secs(2);

/// How a program ended and what it said.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) succeeded: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Answer {
    /// Its last words, on one line.
    pub(crate) fn complaint(&self) -> String {
        let said = if self.stderr.trim().is_empty() { &self.stdout } else { &self.stderr };
        crate::display::cut(&said.trim().replace('\n', "; "), 300)
    }
}

/// Runs a program that is on the PATH to its end.
///
/// Must not be called in a process that has started a daemon: what such a process left is ended as well.
///
/// # Errors
/// It is not there, or does not end in time.
pub(crate) async fn ask(words: &[String]) -> anyhow::Result<Answer> {
    let (program, args) = words.split_first().context("no program")?;
    let text = |value: std::ffi::OsString| value.into_string().ok();
    let command = Command {
        program: program.into(),
        args: args.iter().map(Into::into).collect(),
        cwd: "/".into(),
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
    Ok(Answer {
        succeeded: finished.exit == Exit::Code(0),
        stdout: text(&finished.stdout),
        stderr: text(&finished.stderr),
    })
}

/// Runs a program of which nothing is expected but that it succeeds.
///
/// # Errors
/// As [`ask`]; or it fails, with its own words.
pub(crate) async fn must(words: &[String]) -> anyhow::Result<()> {
    let answer = ask(words).await?;
    if !answer.succeeded {
        anyhow::bail!("`{}` failed: {}", words.join(" "), answer.complaint());
    }
    Ok(())
}
