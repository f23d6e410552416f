//! A subcommand that runs until it is stopped, and its output so far.

use super::{PATIENCE, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;

/// The running program; killed at the end of its test.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Running {
    /// Starts a subcommand that prints lines.
    #[track_caller]
    pub(crate) fn start(mut command: Command) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("start a verb");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    /// The next line.
    #[track_caller]
    pub(crate) fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("a line in time")
    }

    /// The next line, if it arrives within `time`.
    pub(crate) fn line_within(&self, time: std::time::Duration) -> Option<String> {
        self.lines.recv_timeout(time).ok()
    }

    /// The next line; `None` at the end of the output.
    #[track_caller]
    pub(crate) fn line_until_end(&self) -> Option<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("neither a line nor the end in time"),
        }
    }

    /// The next lines, up to a line that contains `part`.
    #[track_caller]
    pub(crate) fn lines_to(&self, part: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            lines.push(line.unwrap_or_else(|_| panic!("no line with {part:?} after {lines:#?}")));
            if lines.last().is_some_and(|line| line.contains(part)) {
                return lines;
            }
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("signal a verb");
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a pid"))
    }

    /// Waits until the program exits. Returns its exit code and its stderr.
    #[track_caller]
    pub(crate) fn wait(self) -> (Option<i32>, String) {
        let (status, stderr) = self.status();
        (status.code(), stderr)
    }

    /// Like [`Running::wait`], with the signal that ended the program.
    #[track_caller]
    pub(crate) fn status(mut self) -> (ExitStatus, String) {
        let status = wait_for("a verb to end", || self.child.try_wait().expect("wait"));
        let mut stderr = String::new();
        let pipe = self.child.stderr.as_mut().expect("a pipe");
        pipe.read_to_string(&mut stderr).expect("read stderr");
        (status, stderr)
    }

    /// Presses Ctrl-C and waits until the program exits.
    #[track_caller]
    pub(crate) fn interrupt(self) -> (Option<i32>, String) {
        self.signal(Signal::SIGINT);
        self.wait()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
