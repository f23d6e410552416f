//! Errors of the methods of terminals.

use quackd_protocol::limits::MAX_VIEWERS;
use quackd_protocol::terminal::TerminalExit;

/// Reason why a request about a terminal was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TerminalRefusal {
    /// The session has no terminal.
    None,
    /// The session has no terminal with this id.
    Unknown(String),
    /// The program has ended.
    Exited(String, TerminalExit),
    /// The terminal has the maximum number of viewers.
    TooManyViewers(String),
    /// The worker has not answered earlier requests for the screen.
    Busy(String),
    /// The client is not attached to the terminal.
    NotAttached(String),
    /// The client is attached to read only.
    ReadOnly(String),
}

/// A refused request, with the label of the session.
#[derive(Debug, thiserror::Error)]
#[error("{}", text(session, refusal))]
pub(crate) struct RefusedTerminal {
    pub(crate) session: String,
    pub(crate) refusal: TerminalRefusal,
}

fn text(session: &str, refusal: &TerminalRefusal) -> String {
    match refusal {
        TerminalRefusal::None => {
            format!("session {session} has no terminal: start one with quack run --in {session}")
        }
        TerminalRefusal::Unknown(terminal) => {
            let terminal: String = terminal.chars().take(100).collect();
            format!("session {session} has no terminal {terminal}")
        }
        TerminalRefusal::Exited(terminal, exit) => {
            let how = how(exit);
            format!(
                "{terminal} of {session} exited{how}; quack jobs -f {terminal} --session {session}"
            )
        }
        TerminalRefusal::TooManyViewers(terminal) => {
            format!("{MAX_VIEWERS} viewers are attached to {terminal}, the maximum")
        }
        TerminalRefusal::Busy(terminal) => {
            format!("terminal {terminal} of {session} has not shown its screen yet: try again")
        }
        TerminalRefusal::NotAttached(terminal) => {
            format!("this client is not attached to {terminal} of {session}")
        }
        TerminalRefusal::ReadOnly(terminal) => {
            format!("this client is attached to {terminal} of {session} to read only")
        }
    }
}

fn how(exit: &TerminalExit) -> String {
    match exit {
        TerminalExit { reason: Some(reason), .. } => format!(": {reason}"),
        TerminalExit { exit_code: Some(code), .. } => format!(" with code {code}"),
        TerminalExit { signal: Some(signal), .. } => format!(" by signal {signal}"),
        TerminalExit { .. } => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_terminal_and_what_to_do() {
        let check = |refusal, expected: &str| assert_eq!(text("web", &refusal), expected);
        let term = || "term-1".to_owned();
        let exit = TerminalExit { exit_code: Some(3), ..TerminalExit::default() };
        let none = "session web has no terminal: start one with quack run --in web";
        check(TerminalRefusal::None, none);
        check(
            TerminalRefusal::Exited(term(), exit),
            "term-1 of web exited with code 3; quack jobs -f term-1 --session web",
        );
        let unknown = TerminalExit::default();
        let text = "term-1 of web exited; quack jobs -f term-1 --session web";
        check(TerminalRefusal::Exited(term(), unknown), text);
        let viewers = "16 viewers are attached to term-1, the maximum";
        check(TerminalRefusal::TooManyViewers(term()), viewers);
    }
}
