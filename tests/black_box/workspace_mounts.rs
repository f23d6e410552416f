//! File systems that a user mounts in a workspace while a worker runs, and the mode of new files.

use crate::harness::{Daemon, untested, wait_for};
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Runs a shell command in the mount namespace of the daemon. True if it succeeds.
fn in_namespace(daemon: &Daemon, script: &str) -> bool {
    let mut command = daemon.program_for_tests("nsenter");
    command.args(["-t", &daemon.pid().to_string(), "-m", "/bin/sh", "-c", script]);
    command.output().is_ok_and(|done| done.status.success())
}

#[test]
fn a_session_sees_what_is_mounted_in_its_workspace_while_its_worker_runs() {
    let mut daemon = Daemon::absent();
    let mut trial = daemon.program_for_tests("unshare");
    if !trial
        .args(["-m", "mount", "-t", "tmpfs", "none", "/mnt"])
        .status()
        .is_ok_and(|it| it.success())
    {
        return untested("only root mounts file systems");
    }
    let repo = daemon.repo("a repo");
    let at = |name: &str| repo.path().join(name);
    for name in ["early", "late", "bound", "source"] {
        std::fs::create_dir(at(name)).unwrap();
    }
    let mount =
        |at: &Path| format!("mount -t tmpfs none '{0}' && echo outside > '{0}/x'", at.display());
    let script = format!("{} && exec {} daemon", mount(&at("early")), env!("CARGO_BIN_EXE_quack"));
    daemon.boot_with("unshare", &["-m", "/bin/sh", "-c", &script]);
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    assert_eq!(session.bash("cat early/x; ls late"), "outside\n\n[Exit code: 0]");
    let first = session.pid("pid");
    assert!(in_namespace(&daemon, &mount(&at("late"))));
    // The daemon looks at the mounts again at the first call after a second.
    wait_for("a worker with the new mount", || {
        session.bash("cat late/x").starts_with("outside").then_some(())
    });
    assert_ne!(session.pid("pid"), first);
    assert_eq!(session.bash("echo session > late/y"), "\n[Exit code: 0]");
    assert!(in_namespace(&daemon, &format!("grep session '{}'", at("late/y").display())));
    assert!(!at("late/y").exists(), "written under the mount");
    let bind = format!("mount --bind '{}' '{}'", at("source").display(), at("bound").display());
    std::fs::write(at("source/z"), "bound").unwrap();
    assert!(in_namespace(&daemon, &bind));
    wait_for("a worker with the bind mount", || {
        session.bash("cat bound/z").starts_with("bound").then_some(())
    });
    // A device on such a file system cannot be opened in a session.
    assert!(in_namespace(&daemon, &format!("mknod -m 666 '{}' c 1 5", at("late/zero").display())));
    let read = session.bash("head -c1 late/zero 2>&1");
    assert!(read.contains("Permission denied"), "{read}");
    let unmount = format!("umount '{}'", at("late").display());
    assert!(in_namespace(&daemon, &unmount));
    wait_for("a worker without the mount", || {
        session.bash("ls late").starts_with("\n[").then_some(())
    });
}

#[test]
fn files_of_a_session_have_the_usual_mode_whatever_umask_the_daemon_got() {
    for umask in ["077", "000"] {
        let mut daemon = Daemon::absent();
        let script = format!("umask {umask}; exec {} daemon", env!("CARGO_BIN_EXE_quack"));
        daemon.boot_with("/bin/sh", &["-c", &script]);
        let wire = daemon.wire();
        let repo = daemon.repo("repo");
        let session = wire.attach(repo.path());
        session.bash("umask; touch by-command; mkdir directory");
        session.call("write_file", json!({"path": "by-tool", "content": "x"}));
        let mode = |name| repo.path().join(name).metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(
            (mode("by-command"), mode("directory"), mode("by-tool")),
            (0o644, 0o755, 0o644),
            "{umask}"
        );
    }
}
