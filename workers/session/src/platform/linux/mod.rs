//! The names of [`super`] for Linux.

mod confinement;
mod one_shot;
mod read_only;

pub(crate) use confinement::enter;

use read_only::GivesUp;
use std::process::ExitCode;

/// Runs the role that a first argument selects. `None` if it selects none. Called before the process does anything else.
#[must_use]
pub fn run_role(verb: &str) -> Option<ExitCode> {
    let rest = std::env::args_os().skip(2);
    Some(match verb {
        "clean-repositories" => one_shot::clean_repositories(),
        "probe" => one_shot::probe(),
        "read-only" => read_only::main(GivesUp::Writing, rest),
        "limited" => read_only::main(GivesUp::Processes, rest),
        _ => return None,
    })
}
