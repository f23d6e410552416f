//! The git of a user, outside of sessions.

use crate::programs::program;
use std::path::Path;
use std::process::Command;

/// Prepares git in a directory, with a name for commits, and with the settings of the user in `home` but not those of the
/// system.
pub fn git_command(home: &Path, at: &Path, args: &[&str]) -> Command {
    let mut command = program("git");
    command.args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "maintenance.auto=false"]);
    command.args(args).current_dir(at).env("HOME", home).env("GIT_EDITOR", "true");
    command.env("GIT_CONFIG_NOSYSTEM", "1").env_remove("GIT_CONFIG_GLOBAL");
    command.env_remove("XDG_CONFIG_HOME");
    command
}

/// Runs git, which must succeed, and returns its output.
#[track_caller]
pub fn git(home: &Path, at: &Path, args: &[&str]) -> String {
    let output = git_command(home, at, args).output().expect("run git");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {args:?}: {errors}");
    String::from_utf8(output.stdout).expect("text of git")
}
