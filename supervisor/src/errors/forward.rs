//! Errors of `quack.forward`.

use quackd_protocol::limits::{MAX_FORWARDS, MAX_FORWARDS_PER_SESSION};
use quackd_protocol::network::ForwardError;

/// Reason why a forward was not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ForwardRefusal {
    /// The proxy could not listen.
    Listen(ForwardError),
    /// The session or the daemon has too many.
    TooMany,
    /// The port is forwarded already, from this port of the machine.
    Open(u16),
    /// The worker or its proxy has ended.
    Gone,
}

/// Text for a client that asked for `port` of a session on `local` of this machine.
pub(super) fn text(port: u16, local: u16, refusal: ForwardRefusal) -> String {
    match refusal {
        ForwardRefusal::Listen(ForwardError::InUse) => format!(
            "Port {local} is in use on this machine: choose another, such as quack forward SESSION {port}:{}, or take a \
             link by name with --link",
            local.checked_add(1).unwrap_or(8080)
        ),
        ForwardRefusal::Listen(ForwardError::Privileged) => format!(
            "Port {local} needs rights that quackd does not use: choose one above 1023, such as quack forward SESSION \
             {port}:8{local:03}"
        ),
        ForwardRefusal::Listen(ForwardError::Failed) => {
            format!("Port {local} of this machine cannot be used")
        }
        ForwardRefusal::TooMany => format!(
            "Too many forwards: a session may have {MAX_FORWARDS_PER_SESSION}, all sessions {MAX_FORWARDS}; close one first"
        ),
        ForwardRefusal::Open(known) => {
            format!("Port {port} of this session is already at 127.0.0.1:{known}")
        }
        ForwardRefusal::Gone => "The session's worker or its proxy has ended: try again".to_owned(),
    }
}
