//! The event for a crashed process of a session, in upstream's format.

use super::Events;
use quackd_protocol::SessionId;
use quackd_protocol::client::{DeadProcess, ProcessDeath};
use quackd_supervision::Exit;

impl Events {
    /// Publishes that a session's process has died. `cause` is the same text that running calls
    /// get.
    pub(crate) fn process_died(
        &self,
        session: &SessionId,
        name: &str,
        cause: &str,
        exit: Exit,
        stderr_tail: &str,
    ) {
        const NAME: &str = "extension_error";

        let (exit_code, signal) = match exit {
            Exit::Code(code) => (Some(code), None),
            Exit::Signal(signal) => (None, Some(signal)),
            // The kernel kills a process for memory with this signal.
            Exit::OutOfMemory => (None, Some(nix::libc::SIGKILL)),
        };

        let error = format!("Worker for session \"{name}\" died unexpectedly ({cause})");
        self.publish(session, NAME, || ProcessDeath {
            kind: NAME,
            extension_path: "daemon",
            event: "process_death",
            error: &error,
            signal,
            exit_code,
            stderr_tail,
            process: DeadProcess::Worker,
        });
    }
}
