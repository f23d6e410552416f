//! Support for all black-box tests: a separate daemon per test, the raw wire, and waiting for
//! conditions.

mod daemon;
mod fake_model;
pub(crate) mod init;
pub(crate) mod long;
mod programs;
mod running;
mod screen;
pub(crate) mod stand_in;
mod terminal;
pub(crate) mod tier;
pub(crate) mod users;
mod wire;

pub(crate) use daemon::{Cli, Daemon, Repo};
pub(crate) use fake_model::FakeModel;
pub(crate) use programs::{copy_program, write_program};
pub(crate) use quackd_testkit::{
    Answer, FakeExa, KillOnDrop, LineReader, PATIENCE, Process, Random, answer, descendants_of,
    git, git_command, is_alive, program, skipped, this_test, untested, wait_for, wait_within,
    write_file,
};
pub(crate) use running::Running;
pub(crate) use terminal::Terminal;
pub(crate) use wire::{Session, Wire};

use std::time::Duration;

/// Repeats `attempt`, which returns its duration, until that is less than `promised`. A busy machine may need several
/// attempts; a wait for the wrong thing makes each of them too long.
#[track_caller]
pub(crate) fn one_takes_less_than(promised: Duration, mut attempt: impl FnMut() -> Duration) {
    let mut too_long = Vec::new();
    while too_long.len() < 8 {
        let took = attempt();
        if took < promised {
            return;
        }
        too_long.push(took);
    }
    panic!("no attempt took less than {promised:?}: {too_long:?}");
}
