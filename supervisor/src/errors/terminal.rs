//! Errors of the methods of terminals.

use quackd_protocol::guest_agents;
use quackd_protocol::limits::MAX_VIEWERS;
use quackd_protocol::state::TerminalProgram;
use quackd_protocol::terminal::TerminalExit;

/// Reason why a request about a terminal was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TerminalRefusal {
    /// The session has no terminal.
    None,
    /// The session has no terminal with this id.
    Unknown(String),
    /// The program has ended with an earlier daemon.
    Interrupted(TerminalProgram),
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

impl TerminalRefusal {
    /// Replaces the refusal for a missing terminal, if its program ended with an earlier daemon. `recorded`: the programs
    /// of the session, the last started one at the end.
    pub(crate) fn or_interrupted(self, recorded: &[TerminalProgram]) -> Self {
        let found = match &self {
            Self::None => recorded.last(),
            Self::Unknown(terminal) => recorded.iter().find(|it| it.terminal_id == *terminal),
            _ => None,
        };
        found.cloned().map_or(self, Self::Interrupted)
    }
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
        TerminalRefusal::Interrupted(TerminalProgram { terminal_id, command }) => {
            let again = again(command);
            format!(
                "terminal {terminal_id} of {session} ({command}) ended when the daemon ended; start it again with \
                 quack run --in {session} {again}"
            )
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

/// Returns the arguments of `quack run` that start a program again. They have no more of the command than a plain first
/// word, because the worker has chosen the text, and the user may paste it into a shell.
fn again(command: &str) -> String {
    let (program, has_arguments) = match command.split_once(' ') {
        Some((program, _)) => (program, true),
        None => (command, false),
    };
    let name = program.rsplit('/').next().unwrap_or_default();
    if let Some(agent) = guest_agents::find(name).filter(|agent| agent.resume.is_some()) {
        return format!("--resume {}", agent.name);
    }

    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._+-".contains(c);
    if program.is_empty() || program.starts_with('-') || !program.chars().all(is_plain) {
        return "-- COMMAND".to_owned();
    }
    format!("-- {program}{}", if has_arguments { " …" } else { "" })
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

    #[test]
    fn a_program_that_ended_with_the_daemon_is_named_with_the_way_to_start_it_again() {
        let program = |id: &str, command: &str| TerminalProgram {
            terminal_id: id.to_owned(),
            command: command.to_owned(),
        };
        let recorded = [program("term-1", "vim a b"), program("term-2", "/opt/bin/claude -c")];
        let last = TerminalRefusal::None.or_interrupted(&recorded);
        assert_eq!(
            text("web", &last),
            "terminal term-2 of web (/opt/bin/claude -c) ended when the daemon ended; start it again with quack run \
             --in web --resume claude"
        );
        let named = TerminalRefusal::Unknown("term-1".to_owned()).or_interrupted(&recorded);
        assert_eq!(named, TerminalRefusal::Interrupted(recorded[0].clone()));
        for other in [
            TerminalRefusal::Unknown("term-3".to_owned()),
            TerminalRefusal::Busy("term-1".to_owned()),
        ] {
            assert_eq!(other.clone().or_interrupted(&recorded), other);
        }
        assert_eq!(TerminalRefusal::None.or_interrupted(&[]), TerminalRefusal::None);

        for (command, expected) in [
            ("vim a b", "-- vim …"),
            ("htop", "-- htop"),
            ("codex", "--resume codex"),
            ("$(reboot)", "-- COMMAND"),
            ("a;b c", "-- COMMAND"),
            ("--isolated", "-- COMMAND"),
            ("", "-- COMMAND"),
        ] {
            assert_eq!(again(command), expected, "{command}");
        }
    }
}
