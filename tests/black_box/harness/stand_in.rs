//! The program that tests of tier M run in place of `sandbox-exec`.

use super::program;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;

/// Variable that names the program to a daemon.
pub(crate) const VARIABLE: &str = "QUACKD_TEST_SANDBOX_EXEC";

/// Begin of the text of the program if it cannot apply a profile.
pub(crate) const REFUSAL: &str = "stand-in for sandbox-exec: ";

/// Builds the program, which is an example of `crates/sandbox`, and returns its path. A test that starts itself again as
/// another user, who cannot build, names it in [`VARIABLE`].
#[track_caller]
pub(crate) fn sandbox_exec() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        if let Some(path) = std::env::var_os(VARIABLE) {
            return path.into();
        }
        let mut cargo = program(env!("CARGO"));
        cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
        cargo.args(["build", "--quiet", "--locked", "--offline", "-p", "quackd"]);
        cargo.args(["-p", "quackd-sandbox", "--example", "sandbox_exec_stand_in"]);
        let built = cargo.stdin(Stdio::null()).output().expect("run cargo");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let quack = Path::new(env!("CARGO_BIN_EXE_quack"));
        quack.with_file_name("examples").join("sandbox_exec_stand_in")
    })
}
