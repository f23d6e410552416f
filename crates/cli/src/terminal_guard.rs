//! Restores the user's terminal if the client that shows a program on it is killed.
//!
//! The client starts this program again as the guard, with a pipe, and reports on it what undoes its changes. When the pipe
//! ends with changes that are not undone, the guard undoes them. It leads its own session, so that signals of the terminal
//! and of the client's process group do not end it, and it may change the terminal from the background.

use quackd_process::{SelfExe, become_session_leader, spawn_terminal_guard_blocking};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{
    ControlModes, InputModes, LocalModes, OptionalActions, OutputModes, QueueSelector,
    SpecialCodeIndex, Termios, tcflush, tcgetattr, tcsetattr,
};
use std::io::{self, BufRead, Read};
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// First argument of the guard's process. The second one is the text of [`LineModes`].
pub(crate) const ROLE: &str = "restore-terminal";

/// Longest wait until the terminal takes the bytes that restore it.
pub(crate) const RESTORE_WAIT: Duration = Duration::from_secs(1);

/// Bytes of one write while restoring. A terminal that can be written takes them without waiting.
const MAX_AT_ONCE: usize = 256;

/// First byte of a report of changes. A report without it means that the terminal is as it was.
const CHANGED: u8 = b'c';

/// Last byte of a report. No sequence has it.
const END: u8 = 0;

/// Maximum size of a report, in bytes. A pipe takes it as a whole or not at all.
const MAX_REPORT: u64 = 4096;

/// The client's end.
#[derive(Debug)]
pub(crate) struct TerminalGuard {
    /// `None`: the guard could not be started.
    pipe: Option<OwnedFd>,
    /// The last report.
    told: Vec<u8>,
}

impl TerminalGuard {
    /// Starts the guard of the terminal on stdin and stdout, which has these modes. If that fails, a killed client leaves
    /// its changes.
    pub(crate) fn start_blocking(before: &Termios) -> Self {
        let modes = LineModes::of(before).text();
        let exe = SelfExe::open().ok();
        let pipe = exe.and_then(|exe| spawn_terminal_guard_blocking(&exe, &[ROLE, &modes]).ok());
        Self { pipe, told: vec![END] }
    }

    /// Reports the bytes that undo the client's changes. `None`: the terminal is as it was.
    pub(crate) fn tell(&mut self, undo: Option<&[u8]>) {
        let mut report = Vec::new();
        if let Some(undo) = undo {
            report.push(CHANGED);
            report.extend_from_slice(undo);
        }
        report.push(END);

        let Some(pipe) = self.pipe.as_ref().filter(|_| self.told != report) else { return };
        // Without space in the pipe, the next call tries again.
        if rustix::io::write(pipe, &report).is_ok() {
            self.told = report;
        }
    }
}

/// Runs the guard, until the client has ended. stdin is the pipe, stdout the terminal for output, and stderr the one for
/// input.
pub(crate) fn main() -> ExitCode {
    become_session_leader();
    let modes = std::env::args_os().nth(2).and_then(|text| LineModes::parse(text.to_str()?));
    let mut last = Vec::new();
    let mut pipe = io::stdin().lock();
    loop {
        let mut report = Vec::new();
        match pipe.by_ref().take(MAX_REPORT).read_until(END, &mut report) {
            Ok(_) if report.last() == Some(&END) => last = report,
            Ok(_) | Err(_) => break,
        }
    }

    last.pop();
    if let (Some(modes), Some((&CHANGED, undo))) = (modes, last.split_first()) {
        write_within_blocking(undo, RESTORE_WAIT);
        // The calls fail if the terminal was closed.
        modes.restore_blocking().ok();
    }
    ExitCode::SUCCESS
}

/// Modes of a terminal that raw mode changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LineModes {
    input: InputModes,
    output: OutputModes,
    control: ControlModes,
    local: LocalModes,
    min: u8,
    time: u8,
}

impl LineModes {
    fn of(all: &Termios) -> Self {
        Self {
            input: all.input_modes,
            output: all.output_modes,
            control: all.control_modes,
            local: all.local_modes,
            min: all.special_codes[SpecialCodeIndex::VMIN],
            time: all.special_codes[SpecialCodeIndex::VTIME],
        }
    }

    fn text(self) -> String {
        let Self { input, output, control, local, min, time } = self;
        let (input, output) = (input.bits(), output.bits());
        let (control, local) = (control.bits(), local.bits());
        format!("{input} {output} {control} {local} {min} {time}")
    }

    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split(' ');
        Some(Self {
            input: InputModes::from_bits_retain(numbers.next()?.parse().ok()?),
            output: OutputModes::from_bits_retain(numbers.next()?.parse().ok()?),
            control: ControlModes::from_bits_retain(numbers.next()?.parse().ok()?),
            local: LocalModes::from_bits_retain(numbers.next()?.parse().ok()?),
            min: numbers.next()?.parse().ok()?,
            time: numbers.next()?.parse().ok()?,
        })
    }

    /// Sets these modes, if the terminal has those that the client gave it. With others, the shell uses it again.
    fn restore_blocking(self) -> io::Result<()> {
        let terminal = io::stderr();
        let now = tcgetattr(&terminal)?;
        let mut before = now.clone();
        before.input_modes = self.input;
        before.output_modes = self.output;
        before.control_modes = self.control;
        before.local_modes = self.local;
        before.special_codes[SpecialCodeIndex::VMIN] = self.min;
        before.special_codes[SpecialCodeIndex::VTIME] = self.time;

        let mut raw = before.clone();
        raw.make_raw();
        if Self::of(&raw) == Self::of(&now) {
            // The shell must not read pending reports of the mouse and of keys.
            tcflush(&terminal, QueueSelector::IFlush)?;
            tcsetattr(&terminal, OptionalActions::Now, &before)?;
        }
        Ok(())
    }
}

/// Writes to stdout as far as it takes bytes in time, and returns the others. Uses no lock of stdout, which a blocked write
/// may hold.
pub(crate) fn write_within_blocking(bytes: &[u8], limit: Duration) -> Vec<u8> {
    let (stdout, begun) = (io::stdout(), Instant::now());
    let mut rest = bytes;

    while !rest.is_empty() {
        let left = limit.saturating_sub(begun.elapsed());
        let Ok(left) = Timespec::try_from(left) else { break };
        let mut watched = [PollFd::new(&stdout, PollFlags::OUT)];
        match poll(&mut watched, Some(&left)) {
            Ok(0) => break,
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => break,
        }

        let piece = rest.get(..MAX_AT_ONCE).unwrap_or(rest);
        match rustix::io::write(&stdout, piece) {
            Ok(written) => rest = rest.get(written..).unwrap_or_default(),
            Err(Errno::INTR | Errno::AGAIN) => {}
            // The terminal was closed.
            Err(_) => break,
        }
    }
    rest.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_survive_their_text() {
        let modes = LineModes {
            input: InputModes::ICRNL,
            output: OutputModes::OPOST,
            control: ControlModes::CS8,
            local: LocalModes::ICANON | LocalModes::ECHO,
            min: 1,
            time: 255,
        };
        assert_eq!(LineModes::parse(&modes.text()), Some(modes));
        for bad in ["", "1 2 3 4 5", "1 2 3 4 5 256", "-1 2 3 4 5 6", "a 2 3 4 5 6"] {
            assert_eq!(LineModes::parse(bad), None, "{bad}");
        }
    }
}
