//! Roles of the executable that only Linux has. Called by `main`, before the process does anything else.

use quackd_session_worker::one_shot;
use quackd_session_worker::read_only::{self, GivesUp};
use std::process::ExitCode;

/// Runs the role that a first argument selects. `None` if it selects none.
pub(crate) fn run(verb: &str) -> Option<ExitCode> {
    let rest = std::env::args_os().skip(2);
    Some(match verb {
        "clean-repositories" => one_shot::clean_repositories(),
        "probe" => one_shot::probe(),
        "read-only" => read_only::main(GivesUp::Writing, rest),
        "limited" => read_only::main(GivesUp::Processes, rest),
        "login-shell" => quackd_environment_worker::become_shell(rest),
        _ => return None,
    })
}
