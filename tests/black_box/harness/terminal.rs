//! A subcommand on a terminal: its output and the keys of the user.

use super::screen::Screen;
use super::{KillOnDrop, PATIENCE, Process, wait_for};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::Pid;
use quackd_terminal::TerminalSize;
use std::cell::RefCell;
use std::fs::File;
use std::io::{Read, Write};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

/// The running program and the other end of its terminal; killed at the end of its test.
pub(crate) struct Terminal {
    child: KillOnDrop,
    keyboard: File,
    pieces: Receiver<Vec<u8>>,
    /// Output that no check has consumed yet.
    shown: RefCell<String>,
    /// Content of the screen.
    screen: RefCell<Screen>,
    /// All output.
    raw: RefCell<String>,
    /// State of a whole terminal emulator.
    emulator: RefCell<quackd_terminal::Screen>,
}

impl Terminal {
    /// Starts a subcommand with a terminal as its input, output and stderr.
    #[track_caller]
    pub(crate) fn start(command: Command) -> Self {
        Self::sized(command, None)
    }

    /// Like [`Terminal::start`], with a terminal of the given columns and rows. `None` leaves the
    /// size at 0, as on some terminals.
    #[track_caller]
    pub(crate) fn sized(command: Command, size: Option<(u16, u16)>) -> Self {
        Self::with_input(command, size, "")
    }

    /// Like [`Terminal::sized`], with keys that were pressed before the subcommand starts.
    #[track_caller]
    pub(crate) fn with_input(mut command: Command, size: Option<(u16, u16)>, input: &str) -> Self {
        let cells =
            size.map_or(TerminalSize::DEFAULT, |(cols, rows)| TerminalSize::new(cols, rows));
        let emulator = RefCell::new(quackd_terminal::Screen::new(cells, 0));
        let size =
            size.map(|(ws_col, ws_row)| Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 });
        let pty = openpty(size.as_ref(), None).expect("a terminal");
        let slave = |slave: &std::os::fd::OwnedFd| slave.try_clone().expect("a terminal");
        let keyboard = File::from(pty.master);
        (&keyboard).write_all(input.as_bytes()).expect("type");
        command.stdin(slave(&pty.slave)).stdout(slave(&pty.slave)).stderr(pty.slave);
        let child = command.spawn().expect("start a verb");
        // `Command` holds the other end: without this drop the terminal would not end with the
        // subcommand.
        drop(command);
        let mut screen = keyboard.try_clone().expect("a terminal");
        let (sender, pieces) = channel();
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            // On Linux, the end of a terminal is an error.
            while let Ok(n @ 1..) = screen.read(&mut piece) {
                if sender.send(piece[..n].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self {
            child: child.into(),
            keyboard,
            pieces,
            shown: RefCell::default(),
            screen: RefCell::default(),
            raw: RefCell::default(),
            emulator,
        }
    }

    /// Waits until `part` is displayed. Returns the unconsumed output up to its end, without
    /// styles. Erased output is included.
    #[track_caller]
    pub(crate) fn see(&self, part: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            {
                let mut shown = self.shown.borrow_mut();
                if let Some(at) = shown.find(part) {
                    let rest = shown.split_off(at + part.len());
                    return std::mem::replace(&mut *shown, rest);
                }
            }
            assert!(self.take_until(deadline), "no {part:?} in {:?}", self.shown.borrow());
        }
    }

    /// Waits until a line of the screen contains `part`, regardless of its position and age.
    #[track_caller]
    pub(crate) fn stands(&self, part: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.screen.borrow().text().contains(part) {
            let text = self.screen.borrow().text();
            assert!(self.take_until(deadline), "no {part:?} on\n{text}");
        }
    }

    /// Waits until no line of the screen contains `part`.
    #[track_caller]
    pub(crate) fn stands_no_more(&self, part: &str) {
        let deadline = Instant::now() + PATIENCE;
        while self.screen.borrow().text().contains(part) {
            let text = self.screen.borrow().text();
            assert!(self.take_until(deadline), "still {part:?} on\n{text}");
        }
    }

    /// All output that was read, with its escape sequences.
    pub(crate) fn raw(&self) -> String {
        self.raw.borrow().clone()
    }

    /// The content of the screen.
    pub(crate) fn text(&self) -> String {
        self.screen.borrow().text()
    }

    /// Waits until the emulator's screen contains `part`.
    #[track_caller]
    pub(crate) fn shows(&self, part: &str) {
        self.until(part, |screen| screen.text().contains(part));
    }

    /// Waits until a condition of the emulator holds.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, holds: impl Fn(&quackd_terminal::Screen) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !self.emulated(&holds) {
            let text = self.picture();
            assert!(self.take_until(deadline), "no {what:?} on\n{text}");
        }
    }

    /// The content of the emulator's screen.
    pub(crate) fn picture(&self) -> String {
        self.emulator.borrow().text()
    }

    /// Returns a value of the emulator, such as a mode.
    pub(crate) fn emulated<T>(&self, read: impl Fn(&quackd_terminal::Screen) -> T) -> T {
        read(&self.emulator.borrow())
    }

    /// Changes the size of the window.
    #[track_caller]
    pub(crate) fn resize(&self, cols: u16, rows: u16) {
        let size =
            rustix::termios::Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&self.keyboard, size).expect("a terminal");
        self.emulator.borrow_mut().resize(TerminalSize::new(cols, rows));
        // It is the controlling terminal of no process, so the kernel sends the signal to none.
        self.signal(Signal::SIGWINCH);
    }

    /// Reads the next output. Returns `false` if there is none before the deadline.
    fn take_until(&self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        let Ok(piece) = self.pieces.recv_timeout(left) else { return false };
        // No query of a program may get here, so there is nothing to answer.
        drop(self.emulator.borrow_mut().feed(&piece));
        let text = String::from_utf8_lossy(&piece).replace("\r\n", "\n");
        self.screen.borrow_mut().feed(&text);
        self.raw.borrow_mut().push_str(&text);
        self.shown.borrow_mut().push_str(&unstyled(&text));
        true
    }

    /// Waits until the program exits. Returns the remaining output and the exit code.
    #[track_caller]
    pub(crate) fn end(mut self) -> (String, Option<i32>) {
        let status = wait_for("a verb to end", || self.child.try_wait().expect("wait"));
        let rest: Vec<u8> = self.pieces.iter().flatten().collect();
        let text = String::from_utf8_lossy(&rest).replace("\r\n", "\n");
        (self.shown.take() + &unstyled(&text), status.code())
    }

    /// Types a line and Return.
    #[track_caller]
    pub(crate) fn type_line(&self, line: &str) {
        (&self.keyboard).write_all(format!("{line}\n").as_bytes()).expect("type");
    }

    /// Presses keys.
    #[track_caller]
    pub(crate) fn press(&self, keys: &str) {
        (&self.keyboard).write_all(keys.as_bytes()).expect("type");
    }

    /// Returns true if the terminal echoes input and delivers lines, like at a prompt.
    pub(crate) fn is_cooked(&self) -> bool {
        let flags = tcgetattr(&self.keyboard).expect("a terminal").local_flags;
        flags.contains(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG)
    }

    /// Returns true if the terminal passes on keys such as Ctrl-C: the subcommand shows a program.
    pub(crate) fn is_raw(&self) -> bool {
        let flags = tcgetattr(&self.keyboard).expect("a terminal").local_flags;
        !flags.intersects(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG)
    }

    /// Sends the subcommand a signal.
    #[track_caller]
    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("signal a verb");
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a pid"))
    }

    /// Returns true if the subcommand is stopped by a signal.
    pub(crate) fn is_stopped(&self) -> bool {
        Process::find(self.pid().as_raw()).is_some_and(|process| process.state == 'T')
    }

    /// Presses Ctrl-D.
    #[track_caller]
    pub(crate) fn ctrl_d(&self) {
        (&self.keyboard).write_all(b"\x04").expect("type");
    }

    /// Sends the same signal as Ctrl-C.
    #[track_caller]
    pub(crate) fn interrupt(&self) {
        self.signal(Signal::SIGINT);
    }
}

/// Removes `ESC [ … m`.
fn unstyled(text: &str) -> String {
    let mut pieces = text.split("\u{1b}[");
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let end = piece.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(0);
        match piece.as_bytes().get(end) {
            Some(b'm') => plain.push_str(&piece[end + 1..]),
            _ => {
                plain.push_str("\u{1b}[");
                plain.push_str(piece);
            }
        }
    }
    plain
}
