//! The daemon under a fake service manager, which owns the socket, enforces the watchdog and
//! restarts the daemon.

use crate::harness::init::{Init, Unit};
use crate::harness::{Wire, descendants_of, is_alive, wait_for};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

#[test]
fn a_service_says_that_it_is_ready_when_it_answers_and_keeps_the_managers_things_to_itself() {
    let mut init = Init::new();
    init.start();
    // A client that connects before the daemon accepts waits in the manager's socket.
    let wire = Wire::connect(&init.world.socket());
    init.until("it to be ready", |init| (init.unit == Unit::Ready).then_some(()));
    let ping = wire.request("ping", Value::Null);
    assert_eq!(ping["pid"], init.pid());
    let data = wire.request("quack.daemon", Value::Null);
    assert_eq!((&data["managedBy"], &data["socketActivated"]), (&json!("systemd"), &json!(true)));

    let repo = init.world.repo("repo");
    let seen = wire.request(
        "quack.tool",
        json!({"path": repo.path(), "tool": "bash", "arguments": {"command": "env; ls -l /proc/self/fd"}}),
    );
    let seen = seen["text"].as_str().unwrap_or_default().to_owned();
    for name in ["LISTEN_", "NOTIFY_SOCKET", "WATCHDOG", "daemon.sock"] {
        assert!(!seen.contains(name), "{name}: {seen}");
    }
    init.until("its status", |init| init.status.starts_with("1 sessions, 1 workers").then_some(()));
    // Several watchdog intervals pass without a restart.
    let begun = std::time::Instant::now();
    init.until("the watchdog's time", |_| {
        (Duration::from_secs(25) < begun.elapsed()).then_some(())
    });
    assert_eq!((init.starts, init.hung), (1, 0));
    assert_eq!(init.stop(Duration::from_secs(30)).code(), Some(0));
    assert!(init.stopping && init.world.socket().exists());
}

#[test]
fn a_service_that_is_killed_is_there_again_with_its_sessions_and_its_socket() {
    let mut init = Init::ready();
    let repo = init.world.repo("repo");
    let attached = init.world.wire().request("attach", json!({"path": repo.path()}));
    let below = descendants_of(init.pid());
    init.signal(Signal::SIGKILL);
    init.until("its end", |init| (init.unit == Unit::Pausing).then_some(()));
    // No daemon runs now, but a new client is still served.
    let wire = Wire::connect(&init.world.socket());
    init.until("the next one", |init| (init.unit == Unit::Ready).then_some(()));
    let sessions = wire.request("sessions", json!({"all": true}));
    assert_eq!(sessions["sessions"][0]["id"], attached["session"]["id"]);
    assert_eq!((init.starts, init.ends[0].signal()), (2, Some(9)));
    wait_for("what was below it to end", || {
        below.iter().all(|process| !is_alive(process)).then_some(())
    });
}

#[test]
fn a_service_that_hangs_is_noticed_by_the_watchdog_and_started_again() {
    let mut init = Init::ready();
    let repo = init.world.repo("repo");
    init.world.wire().request("attach", json!({"path": repo.path()}));
    init.signal(Signal::SIGSTOP);
    init.until("the watchdog", |init| (init.hung == 1).then_some(()));
    init.until("the next one", |init| (init.starts == 2 && init.unit == Unit::Ready).then_some(()));
    let sessions = init.world.wire().request("sessions", json!({"all": true}));
    assert_eq!(sessions["sessions"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_stop_of_the_service_lets_calls_finish_and_one_that_does_not_end_is_killed() {
    let mut init = Init::ready();
    let repo = init.world.repo("repo");
    let wire = init.world.wire();
    let call = wire.begin(
        "quack.tool",
        &json!({"path": repo.path(), "tool": "bash", "arguments": {"command": "echo begun > f; sleep 1; echo done"}}),
    );
    init.until("the call to run", |_| repo.read("f").starts_with("begun").then_some(()));
    assert_eq!(init.stop(Duration::from_secs(30)).code(), Some(0));
    assert!(call.reply()["data"]["text"].as_str().unwrap_or_default().contains("done"));

    init.start();
    init.until("the next one", |init| (init.unit == Unit::Ready).then_some(()));
    let below = descendants_of(init.pid());
    init.signal(Signal::SIGSTOP);
    assert_eq!(init.stop(Duration::from_millis(500)).signal(), Some(9));
    wait_for("what was below it to end", || {
        below.iter().all(|process| !is_alive(process)).then_some(())
    });
}

#[test]
fn a_cause_that_only_a_person_can_change_is_not_tried_again_and_another_one_is() {
    let mut init = Init::new();
    init.world.configure("nonsense = 1\n");
    init.start();
    init.until("its end", |init| (init.unit == Unit::Ended).then_some(()));
    assert_eq!((init.starts, init.ends[0].code()), (1, Some(78)));

    // Another process holds the lock and serves, so this is not a failure.
    std::fs::remove_file(init.world.app().join("quackd.toml")).unwrap();
    let lock = std::fs::File::create(init.world.app().join("quackd.lock")).unwrap();
    lock.lock().unwrap();
    init.start();
    init.until("its end", |init| (init.unit == Unit::Ended).then_some(()));
    assert_eq!((init.starts, init.ends[1].code()), (2, Some(0)));
    drop(lock);

    // A system error may be temporary, so the manager retries.
    std::fs::remove_file(init.world.app().join("quackd.lock")).unwrap();
    std::fs::create_dir(init.world.app().join("quackd.lock")).unwrap();
    init.start();
    init.until("its end", |init| (init.unit == Unit::Pausing).then_some(()));
    assert_eq!(init.ends[2].code(), Some(3));
    std::fs::remove_dir(init.world.app().join("quackd.lock")).unwrap();
    init.until("the next one", |init| (init.unit == Unit::Ready).then_some(()));
}
