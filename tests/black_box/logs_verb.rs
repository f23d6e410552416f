//! `quack logs`: reads the daemon's log, also without a daemon and across rotation.

use crate::harness::tier::needs;
use crate::harness::{Daemon, Running, wait_for};
use serde_json::{Value, json};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

/// Returns a world with its own log and no daemon.
fn world() -> (Daemon, PathBuf) {
    let world = Daemon::absent();
    fs::create_dir(world.app()).unwrap();
    let log = world.app().join("duck-daemon.log");
    (world, log)
}

fn entry(message: &str) -> String {
    format!(
        r#"{{"timestamp":"2026-03-10T12:34:56.5Z","level":"INFO","message":"{message}","n":7}}"#
    )
}

fn append(log: &PathBuf, text: impl AsRef<[u8]>) {
    let mut file = OpenOptions::new().create(true).append(true).open(log).unwrap();
    file.write_all(text.as_ref()).unwrap();
}

#[expect(clippy::disallowed_methods, reason = "the test rotates a log as the daemon does")]
fn rotate(log: &PathBuf) {
    fs::rename(log, log.with_added_extension("1")).unwrap();
}

#[test]
fn a_daemons_log_is_readable_and_for_a_script_it_is_json() {
    let daemon = Daemon::start();
    // The daemon answers before a thread has written the lines about its start.
    daemon.wait_for_log("\n");
    let text = daemon.quack(&["logs"]).ok();
    let line = text.lines().last().unwrap();
    let (time, rest) = line.split_at(8);
    assert!(time.chars().all(|c| c.is_ascii_digit() || c == ':'), "{line}");
    assert!(rest.starts_with(" INFO  "), "{line}");
    // Another line may come between the two looks.
    let lines = wait_for("the log as it is", || {
        let lines = daemon.quack(&["logs", "--json"]).ok();
        (lines == daemon.log()).then_some(lines)
    });
    for line in lines.lines() {
        serde_json::from_str::<Value>(line).unwrap();
    }
}

#[test]
fn the_last_lines_come_from_the_file_before_if_need_be() {
    let (world, log) = world();
    for n in 1..=3 {
        append(&log, format!("{}\n", entry(&format!("old {n}"))));
    }
    rotate(&log);
    append(&log, format!("{}\nnot json \x1b[2J\n", entry("new")));
    let command = |args: &[&str]| {
        let output = world.command(args).env("TZ", "UTC").output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(
        command(&["logs", "-n", "3"]),
        "2026-03-10\n12:34:56 INFO  old 3 n=7\n12:34:56 INFO  new n=7\nnot json \u{fffd}[2J\n"
    );
    let lines = command(&["logs", "-n", "2", "--json"]);
    assert_eq!(lines, format!("{}\n{}\n", entry("new"), r#"{"raw":"not json \u001b[2J"}"#));
    assert_eq!(command(&["logs", "-n", "0"]), "");
    assert!(!world.socket().exists());
}

#[test]
fn following_goes_over_a_file_that_is_not_there_yet_and_a_rotation() {
    let (world, log) = world();
    let follower = Running::start(world.command(&["logs", "-f", "--json"]));
    append(&log, format!("{}\n", entry("one")));
    assert_eq!(follower.line(), entry("one"));
    append(&log, format!("{}\n", entry("two")));
    rotate(&log);
    append(&log, entry("three"));
    assert_eq!(follower.line(), entry("two"));
    append(&log, "\n");
    assert_eq!(follower.line(), entry("three"));
    assert_eq!(follower.interrupt(), (Some(0), String::new()));
}

#[test]
fn no_log_is_no_failure_and_something_else_in_its_place_is_one() {
    let (world, log) = world();
    let run = world.quack(&["logs"]);
    assert_eq!((run.ok(), run.stderr()), (String::new(), String::new()));
    fs::create_dir(&log).unwrap();
    let run = world.quack(&["logs"]);
    assert_eq!(run.code(), Some(1), "{run:?}");
    assert!(run.stderr().contains("duck-daemon.log"), "{run:?}");
}

#[test]
fn the_log_of_one_session_is_what_happened_to_it_and_not_to_others() {
    needs!(Signals);
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let (one, other) = (wire.attach(daemon.repo("a").path()), wire.attach(daemon.repo("b").path()));
    for session in [&one, &other] {
        session.begin("bash", json!({"command": "kill -9 $PPID"})).text();
    }
    wait_for("both deaths to be in the log", || {
        (2 <= daemon.log().matches("worker died").count()).then_some(())
    });
    let lines = |args: &[&str]| {
        let text = daemon.quack(&[&["logs", "--json"], args].concat()).ok();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    };
    let own = lines(&["--session", &one.id]);
    assert!(own.iter().all(|line| line["session"] == one.id.as_str()), "{own:?}");
    let deaths = |lines: &[Value]| lines.iter().filter(|l| l["message"] == "worker died").count();
    assert_eq!((deaths(&own), deaths(&lines(&["-n", "1000"]))), (1, 2));
    // Every line about a session's process names the session.
    let all = lines(&["-n", "1000"]);
    let of_sessions: Vec<&Value> =
        all.iter().filter(|line| line["session"].is_string()).map(|line| &line["pid"]).collect();
    assert!(of_sessions.iter().filter(|pid| pid.is_number()).count() >= 4, "{all:?}");
    for line in all.iter().filter(|line| line["pid"].is_number()) {
        assert!(!of_sessions.contains(&&line["pid"]) || line["session"].is_string(), "{line}");
    }
    let warned = lines(&["--session", &one.id, "--level", "warn", "--since", "1h"]);
    assert!(
        deaths(&warned) == 1 && warned.iter().all(|line| line["level"] != "INFO"),
        "{warned:?}"
    );
    assert_eq!(lines(&["--since", "2999-01-01T00:00:00Z"]), [] as [Value; 0]);
    assert_eq!(lines(&["--session", &one.id, "-n", "1"]).len(), 1);
    assert_eq!(daemon.quack(&["logs", "--since", "soon"]).code(), Some(2));
}

#[test]
fn a_session_that_neither_the_daemon_nor_the_log_knows_is_an_error() {
    let mut daemon = Daemon::start();
    let repo = daemon.repo("a");
    let id = {
        let wire = daemon.wire();
        let session = wire.attach(repo.path());
        session.bash("true");
        wait_for("the log to name it", || daemon.log().contains(&session.id).then_some(()));
        session.id.clone()
    };
    let failed = |args: &[&str], part: &str| {
        let run = daemon.quack(args);
        assert_eq!((run.code(), run.stdout()), (Some(1), String::new()), "{run:?}");
        assert!(run.stderr().contains(part), "{run:?}");
    };
    let near = "Session not found: duk-1; did you mean `a`?";
    failed(&["logs", "--session", "duk-1"], near);
    failed(&["logs", "--session", "duk-1", "-f"], near);
    let by_name = daemon.quack(&["logs", "--session", "duck-1", "--json"]).ok();
    assert!(by_name.contains(&id), "{by_name}");
    daemon.quack(&["delete", "duck-1", "--yes", "--force"]).ok();
    let deleted = daemon.quack(&["logs", "--session", &id, "--json"]).ok();
    assert!(deleted.starts_with(&by_name), "what is in the log stays: {deleted}");
    failed(&["logs", "--session", "duck-1"], "Session not found: duck-1; ");
    daemon.quack(&["stop"]).ok();
    daemon.wait();
    let without = daemon.quack(&["logs", "--session", &id, "--json"]).ok();
    assert!(without.starts_with(&deleted), "{without}");
    let run = daemon.quack(&["logs", "--session", "nobody"]);
    assert_eq!((run.code(), run.stdout()), (Some(1), String::new()), "{run:?}");
    for part in ["the daemon is not running", "no line about a session with the id nobody"] {
        assert!(run.stderr().contains(part), "{run:?}");
    }
}
