//! Programs that a test writes and then runs, or has the daemon run.
//!
//! A child writes them. The kernel refuses to run a file that is open for writing ("Text file busy"), and between its
//! fork and its exec each child of another test has every file open that this process has open.

use super::program;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

/// Writes an executable file.
#[track_caller]
pub(crate) fn write_program(path: &Path, text: impl AsRef<[u8]>) {
    shell("cat >\"$1\" && chmod 755 \"$1\"", &[path], text.as_ref());
}

/// Copies an executable file, and appends to the copy.
#[track_caller]
pub(crate) fn copy_program(from: &Path, to: &Path, more: &[u8]) {
    shell("cp \"$1\" \"$2\" && cat >>\"$2\"", &[from, to], more);
}

#[track_caller]
fn shell(script: &str, paths: &[&Path], input: &[u8]) {
    let mut command = program("/bin/sh");
    command.args(["-c", script, "sh"]).args(paths).stdin(Stdio::piped());
    let mut child = command.spawn().expect("start a shell");
    child.stdin.take().expect("a pipe").write_all(input).expect("write to a shell");
    assert!(child.wait().expect("wait for a shell").success(), "{script} {paths:?}");
}
