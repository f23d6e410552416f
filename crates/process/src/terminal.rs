//! A pseudo terminal for a command. This process keeps the master, which it reads and writes. The command gets the slave
//! as stdin, stdout, stderr and controlling terminal. Used by [`crate::run`].

use crate::platform::{open_master, open_slave};
use nix::sys::signal::{Signal, killpg};
use quackd_protocol::terminal::TerminalSignal;
use rustix::io::Errno;
use rustix::process::{Pid, getsid, ioctl_tiocsctty, setsid};
use rustix::termios::{
    Action, OptionalActions, QueueSelector, Termios, Winsize, tcflow, tcflush, tcgetattr,
    tcgetpgrp, tcsetattr, tcsetwinsize,
};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Master of a pseudo terminal: output of the program, and input for it. Clones share it. Non-blocking, close-on-exec.
#[derive(Debug, Clone)]
pub struct TerminalMaster(Arc<Master>);

#[derive(Debug)]
struct Master {
    descriptor: AsyncFd<OwnedFd>,
    /// Process that leads the session of the terminal, until it is reaped. 0: none.
    leader: AtomicU32,
    /// Whether the last process that had the slave has closed it, at some time.
    was_closed: AtomicBool,
}

/// Slave of a pseudo terminal, for [`crate::Command::terminal`]. Close-on-exec.
#[derive(Debug)]
pub struct TerminalSlave {
    descriptor: OwnedFd,
    master: TerminalMaster,
}

/// Opens a pseudo terminal with this size in cells. Needs a tokio runtime with I/O.
///
/// # Errors
/// The system has no terminal or no descriptor left, or the confinement forbids terminals.
pub fn open_terminal(cols: u16, rows: u16) -> io::Result<(TerminalMaster, TerminalSlave)> {
    let master = open_master()?;
    let slave = open_slave(&master)?;
    pair(master, slave, cols, rows)
}

/// Error of [`KeptTerminal::reopen`] after `TIOCEXCL`, which only a process with the slave could take back.
const RESERVED: &str =
    "a program of this session keeps its terminal for itself; restart the session's worker";

/// A pseudo terminal that was opened before the confinement of this process forbade that. It serves one command after the
/// other.
#[derive(Debug)]
pub struct KeptTerminal {
    master: OwnedFd,
    /// Settings of an unused terminal.
    settings: Termios,
}

impl KeptTerminal {
    /// Opens it. The result also has its slave, for the rule that lets this process open the slave again. All commands
    /// that may open it by its name share it.
    ///
    /// # Errors
    /// The system has no terminal or no descriptor left.
    pub fn open() -> io::Result<(Self, OwnedFd)> {
        let master = open_master()?;
        let slave = open_slave(&master)?;
        let settings = tcgetattr(&slave)?;
        Ok((Self { master, settings }, slave))
    }

    /// Like [`open_terminal`], for the next command. The one before must have ended. Nothing of its input, its output and
    /// its settings is left.
    ///
    /// # Errors
    /// The system has no descriptor left, the confinement forbids the slave, or a command has reserved it (`TIOCEXCL`).
    pub fn reopen(&self, cols: u16, rows: u16) -> io::Result<(TerminalMaster, TerminalSlave)> {
        let slave = open_slave(&self.master).map_err(|error| match error.kind() {
            kind @ io::ErrorKind::ResourceBusy => io::Error::new(kind, RESERVED),
            _ => error,
        })?;
        // The kernel keeps all of this for the next process that opens the slave.
        tcsetattr(&slave, OptionalActions::Now, &self.settings)?;
        tcflush(&self.master, QueueSelector::IOFlush)?;
        // Output stopped by a program or by Ctrl-S. The kernel starts it only after it was stopped in this way.
        tcflow(&slave, Action::OOff)?;
        tcflow(&slave, Action::OOn)?;
        pair(self.master.try_clone()?, slave, cols, rows)
    }
}

/// Returns both ends with this size in cells.
fn pair(
    master: OwnedFd,
    slave: OwnedFd,
    cols: u16,
    rows: u16,
) -> io::Result<(TerminalMaster, TerminalSlave)> {
    rustix::io::ioctl_fionbio(&master, true)?;
    let descriptor = register(master)?;
    let master = TerminalMaster(Arc::new(Master {
        descriptor,
        leader: AtomicU32::new(0),
        was_closed: AtomicBool::new(false),
    }));
    master.resize(cols, rows)?;
    Ok((master.clone(), TerminalSlave { descriptor: slave, master }))
}

#[expect(unsafe_code, reason = "registering a descriptor with the runtime has no safe form")]
fn register(master: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the registered object owns the open descriptor, always returns the same number, and closes it only when it
    // is dropped.
    Ok(unsafe { AsyncFd::register(master) }?)
}

impl TerminalMaster {
    /// Sets the size in cells. The kernel notifies the program (SIGWINCH).
    ///
    /// # Errors
    /// The system refuses.
    pub fn resize(&self, cols: u16, rows: u16) -> io::Result<()> {
        let size = Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
        Ok(tcsetwinsize(self.0.descriptor.get_ref(), size)?)
    }

    /// Types bytes, as many as the terminal takes now, and returns their number. Waits while it takes none: until the
    /// program reads. Cancel-safe.
    ///
    /// # Errors
    /// No process has the terminal any longer, and its buffer is full.
    pub async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            let mut guard = self.0.descriptor.writable().await?;
            let was_closed = guard.ready().is_write_closed();
            match guard.try_io(|master| Ok(rustix::io::write(master, bytes)?)) {
                Ok(written) => return written,
                // The runtime takes a terminal that was closed once as writable for ever.
                Err(_full) if was_closed => return Err(io::ErrorKind::BrokenPipe.into()),
                Err(_full) => {}
            }
        }
    }

    /// Signals the group of processes in the foreground, if it belongs to the session of the command. Without one, does
    /// nothing.
    ///
    /// # Errors
    /// The system refuses the signal.
    pub fn signal_foreground(&self, signal: TerminalSignal) -> io::Result<()> {
        let leader = self.0.leader.load(Ordering::SeqCst);
        let Some(group) = self.foreground_of(leader) else { return Ok(()) };
        let (signal, must_continue) = match signal {
            TerminalSignal::Hup => (Signal::SIGHUP, true),
            TerminalSignal::Int => (Signal::SIGINT, false),
            TerminalSignal::Quit => (Signal::SIGQUIT, false),
            TerminalSignal::Term => (Signal::SIGTERM, true),
            TerminalSignal::Kill => (Signal::SIGKILL, false),
        };

        let group = nix::unistd::Pid::from_raw(group.as_raw_nonzero().get());
        killpg(group, signal)?;
        if must_continue {
            // A stopped process gets the signal only when it continues.
            killpg(group, Signal::SIGCONT).ok();
        }
        Ok(())
    }

    /// Returns the group in the foreground, if it belongs to the session that `leader` leads.
    fn foreground_of(&self, leader: u32) -> Option<Pid> {
        let leader = Pid::from_raw(i32::try_from(leader).ok()?)?;
        let group = tcgetpgrp(self.0.descriptor.get_ref()).ok()?;
        // The terminal keeps the number of a group whose processes have all exited, and another process may have got
        // it since.
        let is_ours = group == leader
            || match getsid(Some(group)) {
                Ok(session) => session == leader,
                // The first process of the group has exited. While others of the group run, no process gets its number.
                Err(errno) => errno == Errno::SRCH,
            };
        is_ours.then_some(group)
    }

    /// Resolves when data or the end can be read.
    pub(crate) async fn readable(&self) {
        // An error means that the runtime is shutting down. The read fails then too.
        if let Ok(mut guard) = self.0.descriptor.readable().await {
            if guard.ready().is_read_closed() {
                self.0.was_closed.store(true, Ordering::SeqCst);
            }
            guard.retain_ready();
        }
    }

    /// Reads once without waiting, if the runtime has reported the terminal as readable. Fails at the end (EIO).
    pub(crate) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let read =
            |master: &OwnedFd| -> io::Result<usize> { Ok(rustix::io::read(master, buffer)?) };
        match self.0.descriptor.try_io(Interest::READABLE, read) {
            // Another process has opened the slave since. The runtime would report it as readable without end.
            Err(error)
                if error.kind() == io::ErrorKind::WouldBlock
                    && self.0.was_closed.load(Ordering::SeqCst) =>
            {
                Err(Errno::IO.into())
            }
            read => read,
        }
    }

    /// Reads once without waiting and without the runtime.
    pub(crate) fn read_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(self.0.descriptor.get_ref(), buffer)?)
    }

    /// Notes the process that leads the session of the terminal.
    pub(crate) fn note_leader(&self, pid: u32) {
        self.0.leader.store(pid, Ordering::SeqCst);
    }

    /// Notes that the leader is about to be reaped. Its number may then belong to another process.
    pub(crate) fn note_no_leader(&self) {
        self.note_leader(0);
    }
}

impl TerminalSlave {
    /// Returns the other end.
    pub(crate) fn master(&self) -> &TerminalMaster {
        &self.master
    }

    /// Makes the terminal stdin, stdout, stderr and controlling terminal of a program, which leads a new session and
    /// process group.
    #[expect(unsafe_code, reason = "code between fork and exec has no safe form")]
    #[expect(clippy::disallowed_methods, reason = "no vfork-like spawn makes a session")]
    pub(crate) fn attach(&self, program: &mut std::process::Command) -> io::Result<()> {
        let end = || self.descriptor.try_clone().map(Stdio::from);
        program.stdin(end()?).stdout(end()?).stderr(end()?);
        // SAFETY: the function makes two system calls, allocates nothing and takes no lock.
        unsafe { program.pre_exec(lead_session) };
        Ok(())
    }
}

/// Makes this process the leader of a new session whose controlling terminal is its stdin. Runs between fork and exec.
fn lead_session() -> io::Result<()> {
    setsid()?;
    Ok(ioctl_tiocsctty(rustix::stdio::stdin())?)
}
