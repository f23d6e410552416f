//! Support for all black-box tests: a separate daemon per test, the raw wire, and waiting for
//! conditions.

mod daemon;
#[expect(dead_code, reason = "the tests of crates/egress use the rest")]
mod fake_exa;
mod fake_model;
pub(crate) mod init;
pub(crate) mod long;
mod processes;
mod programs;
mod running;
mod screen;
pub(crate) mod stand_in;
mod terminal;
pub(crate) mod tier;
mod wire;

pub(crate) use daemon::{Cli, Daemon, Repo};
pub(crate) use fake_exa::{Answer, FakeExa, answer};
pub(crate) use fake_model::FakeModel;
pub(crate) use processes::{Process, descendants_of, is_alive};
pub(crate) use programs::{copy_program, write_program};
pub(crate) use running::Running;
pub(crate) use terminal::Terminal;
pub(crate) use wire::{Session, Wire};

use std::io::Write;
use std::time::{Duration, Instant};

/// Timeout for a condition. It is much longer than every promised time, so that a busy machine
/// fails no test, and shorter than `sleep 60`, so that a wait for the wrong thing fails one.
pub(crate) const PATIENCE: Duration = Duration::from_secs(45);

/// Polls `probe` until it yields a value. Fails the test with `what` after [`PATIENCE`].
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, probe: impl FnMut() -> Option<T>) -> T {
    wait_within(PATIENCE, what, probe)
}

/// Like [`wait_for`], with an explicit deadline, for conditions that take longer.
#[track_caller]
pub(crate) fn wait_within<T>(
    deadline: Duration,
    what: &str,
    mut probe: impl FnMut() -> Option<T>,
) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(start.elapsed() < deadline, "timed out after {deadline:?} waiting for {what}");
        #[expect(clippy::disallowed_methods, reason = "the one poll interval of all tests")]
        std::thread::sleep(Duration::from_millis(10));
    }
}

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

/// Reports that a test shows nothing on this machine. Writes to the descriptor, because `eprintln!` is captured in tests
/// that pass.
pub(crate) fn skipped(why: &str) {
    std::io::stderr().write_all(format!("SKIPPED: {why}\n").as_bytes()).expect("stderr");
}

/// Like [`skipped`], for tests of security and durability. Fails if `QUACKD_REQUIRE` is `all`, as in CI.
pub(crate) fn untested(why: &str) {
    let required = std::env::var_os("QUACKD_REQUIRE").is_some_and(|value| value == "all");
    assert!(!required, "not tested although QUACKD_REQUIRE is \"all\": {why}");
    skipped(why);
}
