//! Files of the system that the user or a package manager replaces while a worker runs. For user 0 each file of `/etc` is a
//! separate mount, which keeps the old file.

#![expect(clippy::disallowed_methods, reason = "the tests replace files as other programs do")]

use crate::harness::tier::needs;
use crate::harness::{Daemon, Session, untested, wait_for};
use serde_json::json;
use std::path::{Path, PathBuf};

const NAME: &str = "quackd-test";

/// Starts a daemon that sees a copy of `/etc`. Returns the copy. `None` if that is not possible here.
fn boot_with_copy(daemon: &mut Daemon, base: &Path) -> Option<PathBuf> {
    let mut trial = daemon.program_for_tests("unshare");
    let trial = trial.args(["-m", "mount", "-t", "tmpfs", "none", "/mnt"]).status();
    if !trial.is_ok_and(|it| it.success()) {
        untested("only root mounts file systems");
        return None;
    }
    let etc = base.join("etc");
    let copied = daemon.program_for_tests("cp").arg("-a").args([Path::new("/etc"), &etc]).status();
    assert!(copied.unwrap().success());
    std::fs::write(etc.join(NAME), "one\n").unwrap();
    let mount = format!("mount --bind '{}' /etc", etc.display());
    let script = format!("{mount} && exec {} daemon", env!("CARGO_BIN_EXE_quack"));
    daemon.boot_with("unshare", &["-m", "/bin/sh", "-c", &script]);
    Some(etc)
}

/// Replaces the file as a package manager does.
fn replace(etc: &Path, content: &str) {
    std::fs::write(etc.join("new"), content).unwrap();
    std::fs::rename(etc.join("new"), etc.join(NAME)).unwrap();
}

fn shown(session: &Session<'_>) -> String {
    let text = session.bash(&format!("cat /etc/{NAME}"));
    text.lines().next().unwrap_or_default().to_owned()
}

fn wait_until_shown(session: &Session<'_>, content: &str) {
    wait_for("a worker with the new file", || (shown(session) == content).then_some(()));
}

#[test]
fn a_session_sees_a_file_of_etc_that_was_replaced_while_its_worker_runs() {
    needs!(Namespaces);
    let mut daemon = Daemon::absent();
    let repo = daemon.repo("repo");
    let base = repo.path().parent().unwrap().to_owned();
    let Some(etc) = boot_with_copy(&mut daemon, &base) else { return };
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    assert_eq!(shown(&session), "one");
    let first = session.pid("pid");
    // The time of a check passes, and nothing changes.
    session.bash("sleep 1.2");
    assert_eq!(shown(&session), "one");
    assert_eq!(session.pid("pid"), first, "without a change the worker stays");

    replace(&etc, "two\n");
    wait_until_shown(&session, "two");
    let second = session.pid("pid");
    assert_ne!(second, first);

    // As dpkg keeps an old configuration: the old file still has a name.
    std::fs::hard_link(etc.join(NAME), etc.join("quackd-test.dpkg-old")).unwrap();
    replace(&etc, "three\n");
    wait_until_shown(&session, "three");

    // As editors that move the old file away.
    std::fs::rename(etc.join(NAME), etc.join("quackd-test~")).unwrap();
    std::fs::write(etc.join(NAME), "four\n").unwrap();
    wait_until_shown(&session, "four");
}

#[test]
fn a_replaced_file_of_etc_makes_no_call_wait_for_calls_and_jobs_of_the_old_worker() {
    needs!(Namespaces);
    let mut daemon = Daemon::absent();
    let repo = daemon.repo("repo");
    let base = repo.path().parent().unwrap().to_owned();
    let Some(etc) = boot_with_copy(&mut daemon, &base) else { return };
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    assert_eq!(shown(&session), "one");
    let first = session.pid("pid");

    let long = json!({"command": "until [ -e go ]; do sleep 0.02; done; echo done"});
    let long = session.begin("bash", long);
    replace(&etc, "two\n");
    session.bash("sleep 1.2");
    for _ in 0..2 {
        // It runs at once, in the old worker.
        assert_eq!(shown(&session), "one");
    }
    assert_eq!(session.pid("pid"), first);
    repo.write("go", "");
    assert_eq!(long.text(), "done\n\n[Exit code: 0]");
    wait_until_shown(&session, "two");
    let second = session.pid("pid");

    session.call("bash", json!({"command": "sleep 1000", "background": true}));
    replace(&etc, "three\n");
    session.bash("sleep 1.2");
    for _ in 0..2 {
        assert_eq!(shown(&session), "two");
    }
    assert_eq!(session.pid("pid"), second);
    session.call("job_kill", json!("job-1"));
    wait_until_shown(&session, "three");
    assert_ne!(session.pid("pid"), second);
}
