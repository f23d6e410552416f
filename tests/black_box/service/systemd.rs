//! The daemon under a real `systemd --user`, in separate namespaces. Needs root, systemd and cgroup
//! v2. On other machines the fake service manager covers the same behavior.

use crate::harness::tier::needs;
use crate::harness::{Daemon, copy_program, skipped};
use std::path::Path;
use std::process::Stdio;

/// Programs that must exist: for the namespaces, the manager and the client of the bus.
const NEEDED: [&str; 3] = ["/usr/bin/unshare", "/lib/systemd/systemd", "/usr/bin/systemctl"];

#[test]
fn the_installed_units_are_started_killed_hung_upgraded_and_removed_below_systemd() {
    needs!(Procfs);
    let is_root = rustix::process::geteuid().is_root();
    if !is_root || NEEDED.iter().any(|path| !Path::new(path).exists()) {
        skipped("a systemd of one's own needs root, unshare and systemd");
        return;
    }
    let world = Daemon::absent();
    let bin = world.home().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let program = world.command(&[]).get_program().to_owned();
    copy_program(Path::new(&program), &bin.join("quack"), b"");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/systemd_user.sh");
    let mut command = world.program_for_tests("/usr/bin/unshare");
    command.args(["--mount", "--cgroup", "--pid", "--fork", "--kill-child", "/bin/bash"]);
    command.arg(script).env("QUACK", bin.join("quack"));
    let output = command.stdin(Stdio::null()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.code() == Some(77) {
        skipped(told.trim());
        return;
    }
    assert!(output.status.success(), "{told}\n{errors}");
    let steps: Vec<&str> = told.lines().filter_map(|line| line.strip_prefix("ok ")).collect();
    let expected = [
        "installed",
        "repeated",
        "ready",
        "groups",
        "killed",
        "hung",
        "upgraded",
        "busy",
        "stopped",
        "activated",
        "terminal",
        "removed",
    ];
    assert_eq!(steps, expected, "{told}\n{errors}");
}
