//! File systems that a user mounts in a workspace while a worker runs, and the mode of new files.

use crate::harness::tier::needs;
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

fn can_mount(daemon: &Daemon) -> bool {
    let mut trial = daemon.program_for_tests("unshare");
    let trial = trial.args(["-m", "mount", "-t", "tmpfs", "none", "/mnt"]).status();
    trial.is_ok_and(|it| it.success())
}

#[test]
fn a_session_sees_what_is_mounted_in_its_workspace_while_its_worker_runs() {
    needs!(Namespaces);
    let mut daemon = Daemon::absent();
    if !can_mount(&daemon) {
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
fn file_tools_write_into_a_file_that_is_a_mount_point_and_name_a_read_only_file_system() {
    needs!(Namespaces);
    let mut daemon = Daemon::absent();
    if !can_mount(&daemon) {
        return untested("only root mounts file systems");
    }
    let repo = daemon.repo("repo");
    let at = |name: &str| repo.path().join(name);
    for name in ["vendor", "source"] {
        std::fs::create_dir(at(name)).unwrap();
    }
    for name in ["file", "edited", "replaced", "closed"] {
        std::fs::write(at(name), "under the mount\n").unwrap();
        std::fs::write(at("source").join(name), "one\n").unwrap();
    }
    std::fs::write(at("source/late"), "one\n").unwrap();
    std::fs::write(at("late"), "under the mount\n").unwrap();
    let bind = |name: &str| {
        format!("mount --bind '{}' '{}'", at("source").join(name).display(), at(name).display())
    };
    let script = [
        format!("mount -t tmpfs none '{}'", at("vendor").display()),
        format!("mount -o remount,ro '{}'", at("vendor").display()),
        bind("file"),
        bind("edited"),
        bind("replaced"),
        bind("closed"),
        format!("mount -o remount,bind,ro '{}'", at("closed").display()),
        format!("exec {} daemon", env!("CARGO_BIN_EXE_quack")),
    ];
    daemon.boot_with("unshare", &["-m", "/bin/sh", "-c", &script.join(" && ")]);
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let call = |tool: &str, arguments| session.call(tool, arguments);
    let written = call("write_file", json!({"path": "file", "content": "two\n"}));
    assert_eq!(written, "Successfully wrote 4 bytes to file");
    let edited = call("edit_file", json!({"path": "edited", "old_text": "one", "new_text": "two"}));
    assert_eq!(edited, "Successfully edited edited");
    let replaced =
        call("replace", json!({"path": "replaced", "pattern": "one", "replacement": "two"}));
    assert!(!replaced.starts_with("Error"), "{replaced}");
    for name in ["file", "edited", "replaced"] {
        // Through the mount, and nothing is left next to it.
        assert_eq!(repo.read(&format!("source/{name}")), "two\n", "{name}");
        assert_eq!(repo.read(name), "under the mount\n", "{name}");
    }
    assert!(!session.bash("ls -a").contains(".quackd-"));

    // The reason is the file system of the user, and no command of quackd's changes that.
    for (tool, arguments) in [
        ("write_file", json!({"path": "vendor/new", "content": "x"})),
        ("write_file", json!({"path": "vendor/deep/new", "content": "x"})),
        ("write_file", json!({"path": "closed", "content": "x"})),
        ("edit_file", json!({"path": "closed", "old_text": "one", "new_text": "two"})),
        ("bash", json!({"command": "echo x > vendor/new"})),
        ("bash", json!({"command": "echo x > closed"})),
    ] {
        let params = json!({"sessionId": session.id, "tool": tool, "arguments": arguments});
        let data = wire.request("quack.tool", params);
        let text = data["text"].as_str().unwrap();
        assert!(text.to_lowercase().contains("read-only file system"), "{arguments}: {text}");
        assert!(!text.contains("[Sandbox"), "{arguments}: {text}");
        if tool != "bash" {
            let hint = data["hint"].as_str().unwrap();
            assert!(hint.contains("mounted read-only outside of the session"), "{hint}");
        }
    }
    // Protected names are still denials.
    assert!(session.bash("echo x >> .git/config").contains("[Sandbox"));

    // A mount that appears while the worker runs.
    assert!(in_namespace(&daemon, &bind("late")));
    let late = call("write_file", json!({"path": "late", "content": "two\n"}));
    assert!(late.starts_with("Successfully wrote"), "{late}");
    let seen = format!("cat '{}'", at("late").display());
    assert!(in_namespace(&daemon, &format!("[ \"$({seen})\" = two ]")));
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
