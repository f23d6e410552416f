//! Exits with the status of another process. Used by the monitor for its worker, and by the link process for a far one.

use crate::Exit;
use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal};
use nix::sys::signal::{kill, sigaction, sigprocmask};

/// Exits like another process did: with its code, or by its signal. A signal that does not end a process becomes the code
/// 128 plus its number, as in shells. Runs no exit handlers.
pub fn exit_as(exit: Exit) -> ! {
    match exit {
        Exit::Code(code) => end_process(code),
        Exit::Signal(number) => {
            if let Ok(signal) = Signal::try_from(number) {
                // If the signal does not kill this process, use the exit code of shells.
                raise_by_default(signal).ok();
            }
            end_process(128 + number)
        }
    }
}

#[expect(unsafe_code, reason = "sigaction(2) has no safe form")]
fn raise_by_default(signal: Signal) -> nix::Result<()> {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    if signal != Signal::SIGKILL {
        // SAFETY: the default disposition runs no code of this program.
        unsafe { sigaction(signal, &default) }?;
    }
    // Not raise(3): it may use a thread number that the C library has kept from before the fork.
    kill(nix::unistd::Pid::this(), signal)?;
    sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&SigSet::from(signal)), None)
}

#[expect(unsafe_code, reason = "_exit(2) has no safe form")]
pub(crate) fn end_process(code: i32) -> ! {
    // SAFETY: exits without running the exit handlers of the program it split from.
    unsafe { libc::_exit(code) }
}
