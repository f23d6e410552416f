//! A subcommand that runs until it is stopped, and its output so far.

use super::{KillOnDrop, LineReader, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::Read;
use std::process::{Command, ExitStatus, Stdio};

/// The running program; killed at the end of its test.
pub(crate) struct Running {
    child: KillOnDrop,
    lines: LineReader,
}

impl Running {
    /// Starts a subcommand that prints lines.
    #[track_caller]
    pub(crate) fn start(mut command: Command) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("start a verb");
        let lines = LineReader::new(child.stdout.take().expect("a pipe"));
        Self { child: child.into(), lines }
    }

    /// The next line.
    #[track_caller]
    pub(crate) fn line(&self) -> String {
        self.lines.line()
    }

    /// The next line, if it arrives within `time`.
    pub(crate) fn line_within(&self, time: std::time::Duration) -> Option<String> {
        self.lines.line_within(time)
    }

    /// The next line; `None` at the end of the output.
    #[track_caller]
    pub(crate) fn line_until_end(&self) -> Option<String> {
        self.lines.next_line()
    }

    /// The next lines, up to a line that contains `part`.
    #[track_caller]
    pub(crate) fn lines_to(&self, part: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let line = self.lines.next_line();
            lines.push(line.unwrap_or_else(|| panic!("no line with {part:?} after {lines:#?}")));
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
