//! `quack doctor`: with and without a daemon, for a person and for a script.

use crate::harness::Daemon;
use serde_json::{Value, json};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

#[track_caller]
fn check<'a>(document: &'a Value, name: &str) -> &'a Value {
    let checks = document["checks"].as_array().unwrap();
    checks
        .iter()
        .find(|check| check["name"] == name)
        .unwrap_or_else(|| panic!("{name}: {document}"))
}

#[test]
fn without_a_daemon_it_says_so_and_starts_none() {
    let world = Daemon::absent();
    let run = world.quack(&["doctor"]);
    let text = run.ok();
    let first = "warn  daemon    Not running. Run `quack` to start.\n                → ";
    assert!(text.starts_with(first), "{text}");
    assert!(text.ends_with("\n\nReady with warnings.\n"), "{text}");
    let document = world.quack(&["doctor", "--json"]).json();
    assert_eq!(document.as_object().unwrap().len(), 1);
    assert_eq!(check(&document, "daemon")["status"], "warn");
    assert_eq!(check(&document, "config")["status"], "ok");
    assert!(!world.app().exists(), "looking changes nothing");
}

#[test]
fn with_a_daemon_its_checks_come_in_the_one_order() {
    let daemon = Daemon::start();
    let document = daemon.quack(&["doctor", "--json"]).json();
    let names: Vec<&str> = document["checks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|check| check["name"].as_str().unwrap())
        .collect();
    let first = [
        "daemon",
        "socket",
        "config",
        "log",
        "metadata",
        "state",
        "sandbox",
        "processes",
        "environment",
        "providers",
        "web_search",
        "sessions",
        "supervision",
        "remote",
    ];
    assert_eq!(names[..first.len()], first);
    let running = check(&document, "daemon");
    let pid = format!("Running (pid {}, uptime ", daemon.pid());
    assert_eq!(running["status"], "ok");
    assert!(running["message"].as_str().unwrap().starts_with(&pid), "{running}");
    for check in document["checks"].as_array().unwrap() {
        assert_ne!(check["status"], "fail", "{check}");
        assert_eq!(check.get("hint").is_some(), check["status"] != "ok", "{check}");
    }
    assert!(daemon.quack(&["doctor"]).ok().starts_with("ok    daemon"));
}

#[test]
fn a_failed_check_is_exit_code_1_and_names_the_place() {
    let daemon = Daemon::start();
    let file = daemon.app().join("quackd.toml");
    fs::write(&file, "\n[worker]\nidle_minuts = 3\n").unwrap();
    let run = daemon.quack(&["doctor", "--json"]);
    assert_eq!(run.code(), Some(1), "{run:?}");
    let document = run.json();
    let config = check(&document, "config");
    assert_eq!(config["status"], "fail", "the daemon runs on with what it read");
    let message = config["message"].as_str().unwrap();
    assert!(message.contains("quackd.toml:3: unknown key"), "{message}");
    let run = daemon.quack(&["doctor"]);
    assert_eq!(run.code(), Some(1));
    assert!(run.stdout().ends_with("\n\nSome checks failed.\n"), "{run:?}");
}

#[test]
fn an_open_state_directory_is_a_warning() {
    let world = Daemon::absent();
    fs::create_dir(world.app()).unwrap();
    fs::set_permissions(world.app(), Permissions::from_mode(0o755)).unwrap();
    let document = world.quack(&["doctor", "--json"]).json();
    let state = check(&document, "state");
    assert_eq!(state["status"], "warn");
    assert!(state["message"].as_str().unwrap().contains("0755"), "{state}");
}

#[test]
fn a_daemon_that_does_not_answer_is_a_failure_and_no_wait_without_end() {
    let world = Daemon::absent();
    fs::create_dir(world.app()).unwrap();
    let listener = std::os::unix::net::UnixListener::bind(world.socket()).unwrap();
    std::thread::spawn(move || {
        // Takes connections and hangs up.
        for stream in listener.incoming() {
            drop(stream);
        }
    });
    let run = world.quack(&["doctor", "--json"]);
    assert_eq!(run.code(), Some(1), "{run:?}");
    let document = run.json();
    assert_eq!(check(&document, "daemon")["status"], json!("fail"));
    // The harness would ask it to stop.
    fs::remove_file(world.socket()).unwrap();
}
