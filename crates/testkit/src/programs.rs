//! Programs that a test starts itself, as a shell would, and not as a command of quackd.

use std::ffi::OsStr;
use std::process::Command;

/// Prepares a program.
#[expect(clippy::disallowed_methods, reason = "a test starts programs as a shell would")]
pub fn program(name: impl AsRef<OsStr>) -> Command {
    Command::new(name)
}

/// Prepares another process of this test program that runs one test, such as `tests::child`, with its output.
#[track_caller]
pub fn this_test(name: &str) -> Command {
    let mut command = program(std::env::current_exe().expect("the path of the tests"));
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]);
    command
}
