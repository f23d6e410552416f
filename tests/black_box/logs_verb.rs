//! `quack logs`: the daemon's log, also without a daemon and across its rotation.

use crate::harness::{Daemon, Running};
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

/// A world with a log of its own and no daemon.
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
    let text = daemon.quack(&["logs"]).ok();
    let line = text.lines().last().unwrap();
    let (time, rest) = line.split_at(8);
    assert!(time.chars().all(|c| c.is_ascii_digit() || c == ':'), "{line}");
    assert!(rest.starts_with(" INFO  "), "{line}");
    let lines = daemon.quack(&["logs", "--json"]).ok();
    assert_eq!(lines, daemon.log(), "as it is");
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
