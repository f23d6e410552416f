//! The client of an engine, such as `ssh`: a program with pipes.

use crate::error::LinkError;
use quackd_process::{Command, Limits, Piped, launch_piped, run};
use quackd_protocol::foreign_text::{message_line, stripped_line};
use std::ffi::OsString;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Bytes of the client's stderr that are kept, from its end.
const TAIL: usize = 2 * 1024;

/// Longest line of it that the user gets, in characters.
const MAX_WORDS: usize = 300;

/// Time for the rest of stderr after the exit, and for the exit after a kill.
const REST_TIME: Duration = Duration::from_millis(300);
const KILL_TIME: Duration = Duration::from_secs(1);

/// Time for the last output after the exit.
const LAST_OUTPUT: Duration = Duration::from_secs(1);

/// Timeout of a short command, and the time between TERM and KILL.
const SHORT_TIME: Duration = Duration::from_secs(5);
const GRACE: Duration = Duration::from_millis(500);

/// Bytes of a short command's output that are read, and characters of its line.
const MAX_OUTPUT: usize = 4 * 1024;
const MAX_REASON: usize = 200;

/// A running client. Dropping it kills the client and its processes.
#[derive(Debug)]
pub(crate) struct Client {
    piped: Piped,
    stderr: watch::Receiver<Vec<u8>>,
}

/// Output and input of a client.
#[derive(Debug)]
pub(crate) struct ClientPipes {
    /// Read end of its stdout.
    pub(crate) stdout: pipe::Receiver,
    /// Write end of its stdin.
    pub(crate) stdin: pipe::Sender,
}

impl Client {
    /// Starts it.
    pub(crate) fn start(
        words: &[String],
        env: &[(String, String)],
    ) -> Result<(Self, ClientPipes), LinkError> {
        let (piped, pipes) =
            launch_piped(&command("link-client", words, env)).map_err(|source| {
                let program = words.first().cloned().unwrap_or_default();
                LinkError::Client { program, source }
            })?;

        let stderr = pipe::Receiver::from_owned_fd(pipes.stderr)?;
        let (tail, kept) = watch::channel(Vec::new());
        tokio::spawn(keep_tail(stderr, tail));
        let stdout = pipe::Receiver::from_owned_fd(pipes.stdout)?;
        let stdin = pipe::Sender::from_owned_fd(pipes.stdin)?;
        Ok((Self { piped, stderr: kept }, ClientPipes { stdout, stdin }))
    }

    /// Waits until the client has exited and its last output could be read. Another process may still hold its pipes.
    /// Cancel-safe.
    pub(crate) async fn gone(&mut self) {
        self.piped.exited().await;
        sleep(LAST_OUTPUT).await;
    }

    /// Waits for the exit for at most `patience`, kills the client and its processes, and returns the last line that it
    /// wrote to stderr, or an empty one. Its pipes must be closed.
    pub(crate) async fn end(mut self, patience: Duration) -> String {
        let has_exited = timeout(patience, self.piped.exited()).await.is_ok();
        self.piped.kill();
        timeout(KILL_TIME, self.piped.exited()).await.ok();
        if has_exited {
            // The channel is closed at the end of stderr.
            timeout(REST_TIME, async { while self.stderr.changed().await.is_ok() {} }).await.ok();
        }
        let words = last_line(&self.stderr.borrow());
        // The exit of the client has no meaning: its last words and the lost link have.
        self.piped.end().ok();
        words
    }
}

async fn keep_tail(mut stderr: pipe::Receiver, tail: watch::Sender<Vec<u8>>) {
    let mut chunk = vec![0; TAIL];
    while let Ok(n @ 1..) = stderr.read(&mut chunk).await {
        tail.send_modify(|tail| {
            tail.extend_from_slice(chunk.get(..n).unwrap_or_default());
            tail.drain(..tail.len().saturating_sub(TAIL));
        });
    }
}

fn last_line(tail: &[u8]) -> String {
    let text = String::from_utf8_lossy(tail);
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    message_line(line.unwrap_or_default(), MAX_WORDS)
}

/// Runs a short command to its end. Returns the first line of its output, for the user. `None` without one.
pub(crate) async fn first_line_of(words: &[String], env: &[(String, String)]) -> Option<String> {
    let finished = run(command("link-command", words, env)).await.ok()?;
    let output = finished.stdout.head.get(..MAX_OUTPUT).unwrap_or(&finished.stdout.head);
    let text = String::from_utf8_lossy(output);
    let line = stripped_line(text.lines().next()?.trim(), MAX_REASON);
    let words = line.split(' ').map(calm).collect::<Vec<_>>();
    Some(words.join(" ")).filter(|line| !line.is_empty())
}

/// States of schedulers are words in capitals.
fn calm(word: &str) -> String {
    let is_loud = 1 < word.len() && !word.contains(|c: char| c.is_lowercase());
    if is_loud { word.to_lowercase() } else { word.to_owned() }
}

/// `tag` tells the processes of the client from those of short commands, which run at the same time.
pub(crate) fn command(tag: &str, words: &[String], env: &[(String, String)]) -> Command {
    let (program, args): (OsString, Vec<OsString>) =
        words.split_first().map_or_else(Default::default, |(first, rest)| {
            (first.into(), rest.iter().map(Into::into).collect())
        });
    Command {
        program,
        args,
        cwd: "/".into(),
        env: env.to_vec(),
        deadline: SHORT_TIME,
        grace: GRACE,
        abort_grace: GRACE,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_other_programs_become_one_calm_line() {
        assert_eq!(last_line(b"a\nssh: no route\x1b[m to host\r\n\n"), "ssh: no route [m to host");
        assert_eq!(last_line(b""), "");
        let words = ["PENDING", "(Resources)", "A", "job", "7"].map(calm);
        assert_eq!(words.join(" "), "pending (Resources) A job 7");
    }
}
