//! `quack restart`, and replaced programs of a running daemon: with a service manager and without.

use crate::harness::init::{Init, Unit};
use crate::harness::{Daemon, copy_program, wait_for};
use serde_json::{Value, json};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

fn inode(path: impl AsRef<Path>) -> u64 {
    std::fs::metadata(path).unwrap().ino()
}

/// The `executable` check of `doctor`.
fn executable(daemon: &Daemon) -> Value {
    let doctor = daemon.wire().request("doctor", Value::Null);
    let checks = doctor["checks"].as_array().unwrap();
    checks.iter().find(|check| check["name"] == "executable").unwrap().clone()
}

#[test]
fn an_upgrade_is_noticed_and_a_restart_of_the_service_starts_the_new_program() {
    let mut init = Init::new();
    let bin = init.world.home().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let original = std::mem::replace(&mut init.program, bin.join("quack"));
    copy_program(&original, &init.program, b"");
    init.start();
    init.until("it to be ready", |init| (init.unit == Unit::Ready).then_some(()));
    assert_eq!(executable(&init.world)["status"], "ok");
    let (_, told, _) = init.quack(&["version"]);
    assert!(!told.contains("quack restart"), "{told}");

    // An identical program is not an upgrade.
    let replace = |more: &[u8]| {
        let new = bin.join("new");
        copy_program(&original, &new, more);
        #[expect(clippy::disallowed_methods, reason = "an installer would")]
        std::fs::rename(new, bin.join("quack")).unwrap();
    };
    replace(b"");
    assert_eq!(executable(&init.world)["status"], "ok");
    replace(b"x");
    let check = executable(&init.world);
    assert_eq!(check["status"], "warn", "{check}");
    assert!(check["hint"].as_str().unwrap().contains("quack restart"), "{check}");
    let (_, told, _) = init.quack(&["version"]);
    assert!(told.contains("contains another program now"), "{told}");

    let old = init.pid();
    let (code, out, err) = init.quack(&["restart", "--json"]);
    assert_eq!(code, Some(0), "{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["before"]["pid"], old);
    assert_eq!(report["after"]["pid"], init.pid());
    assert_eq!((init.starts, init.ends[0].code()), (2, Some(75)));
    assert_eq!(inode(format!("/proc/{}/exe", init.pid())), inode(bin.join("quack")));
    assert_eq!(executable(&init.world)["status"], "ok");
}

#[test]
fn a_restart_waits_for_what_is_at_work_and_marks_what_it_was_forced_to_cut_short() {
    let daemon = Daemon::absent();
    let repo = daemon.repo("repo");
    let attached = daemon.quack(&["--no-follow", "--json", repo.path().to_str().unwrap()]).json();
    let session = attached["session"]["id"].as_str().unwrap().to_owned();
    let wire = daemon.wire();
    let call = wire.begin(
        "quack.tool",
        &json!({"sessionId": session, "tool": "bash", "timeoutMs": 120_000,
               "arguments": {"command": daemon.gated("go", "echo went")}}),
    );
    wait_for("the call", || {
        let ps = daemon.wire().request("quack.ps", Value::Null);
        (ps["workers"][0]["calls"].as_array()?.len() == 1).then_some(())
    });

    let refused = daemon.quack(&["restart"]);
    assert_eq!(refused.code(), Some(4), "{refused:?}");
    for part in ["the daemon is busy", ": bash, for ", "--force", "--wait"] {
        assert!(refused.stderr().contains(part), "{refused:?}");
    }
    let refused = daemon.quack(&["restart", "--json", "--wait", "700ms"]);
    assert_eq!(refused.code(), Some(4));
    let data = refused.json();
    assert_eq!(data["restarting"], false);
    assert_eq!(data["waitsFor"][0]["what"], "bash");
    assert_eq!(data["waitsFor"][0]["kind"], "call");

    // The restart happens once the awaited call ends.
    let waiting = daemon.command(&["restart", "--wait", "1m"]).spawn().unwrap();
    daemon.open_gate("go");
    assert!(call.reply()["data"]["text"].as_str().unwrap().contains("went"));
    let waited = waiting.wait_with_output().unwrap();
    assert_eq!(waited.status.code(), Some(0));
    let state = daemon.wire().request("get_state", json!({"sessionId": session}));
    assert_eq!(state["interrupted"], Value::Null, "{state}");

    // The next daemon reports an interrupted call until the session's next activity.
    let wire = daemon.wire();
    let call = wire.begin(
        "quack.tool",
        &json!({"sessionId": session, "tool": "bash", "timeoutMs": 120_000,
               "arguments": {"command": "touch started; sleep 100"}}),
    );
    wait_for("the call", || repo.path().join("started").exists().then_some(()));
    let forced = daemon.quack(&["restart", "--force"]);
    assert_eq!(forced.code(), Some(0), "{forced:?}");
    assert!(forced.stdout().contains("Interrupted in repo: bash."), "{forced:?}");
    let text = call.reply()["data"]["text"].as_str().unwrap().to_owned();
    assert!(text.contains("daemon is shutting down") && text.contains("may have run"), "{text}");
    let wire = daemon.wire();
    let state = wire.request("get_state", json!({"sessionId": session}));
    assert_eq!(state["interrupted"]["by"], "restart", "{state}");
    assert_eq!(state["interrupted"]["work"], json!(["bash"]));
    let ps = wire.request("quack.ps", Value::Null);
    assert_eq!(ps["interrupted"][0]["sessionId"], json!(session), "{ps}");
    wire.request(
        "quack.tool",
        json!({"sessionId": session, "tool": "bash", "arguments": {"command": "true"}}),
    );
    let state = wire.request("get_state", json!({"sessionId": session}));
    assert_eq!(state["interrupted"], Value::Null, "{state}");
    let _ended = daemon.quack(&["stop"]).ok();
    assert!(!daemon.app().join("interrupted.json").exists());
}

#[test]
fn a_restart_of_no_daemon_says_so() {
    let daemon = Daemon::absent();
    let run = daemon.quack(&["restart"]);
    assert_eq!(run.code(), Some(3), "{run:?}");
    assert!(run.stderr().contains("not running"), "{run:?}");
}
