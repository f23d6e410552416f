//! `quack doctor`: with and without a daemon, for users and for scripts.

use crate::harness::{Daemon, program, skipped, wait_for, write_program};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
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
    assert!(!world.app().exists(), "reading changes nothing");
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
        "model",
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
fn sessions_without_a_memory_limit_are_reported() {
    let daemon = Daemon::start_with("[limits]\nsession_memory_mb = 0\n");
    let document = daemon.quack(&["doctor", "--json"]).json();
    let told = check(&document, "processes")["message"].as_str().unwrap();
    let is_told = told.ends_with("the memory of sessions has no limit");
    assert!(is_told || told.contains("no control groups"), "{told}");
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
        // Accepts connections and closes them.
        for stream in listener.incoming() {
            drop(stream);
        }
    });
    let run = world.quack(&["doctor", "--json"]);
    assert_eq!(run.code(), Some(1), "{run:?}");
    let document = run.json();
    assert_eq!(check(&document, "daemon")["status"], json!("fail"));
    // Without the socket the harness does not ask the stopped daemon to shut down.
    fs::remove_file(world.socket()).unwrap();
}

#[test]
fn a_daemon_that_lives_without_its_socket_is_named_and_can_be_stopped_when_it_has_made_it_again() {
    let daemon = Daemon::start();
    // A stopped daemon creates no new socket.
    daemon.signal(Signal::SIGSTOP);
    fs::remove_file(daemon.socket()).unwrap();
    let pid = daemon.pid();
    for place in ["does not exist", "is something else"] {
        let run = daemon.quack(&["doctor", "--json"]);
        assert_eq!(run.code(), Some(1), "{run:?}");
        let document = run.json();
        let found = check(&document, "daemon");
        assert_eq!(found["status"], "fail");
        let message = found["message"].as_str().unwrap();
        let begin = format!("Runs (pid {pid}), but cannot be reached: ");
        assert!(message.starts_with(&begin) && message.ends_with(place), "{message}");
        let hint = found["hint"].as_str().unwrap();
        assert!(hint.contains(&format!("`kill -KILL {pid}` ends it")), "{hint}");
        fs::write(daemon.socket(), "").unwrap();
    }
    fs::remove_file(daemon.socket()).unwrap();
    daemon.signal(Signal::SIGCONT);
    let stopped = daemon.quack(&["stop", "--json"]).json();
    assert_eq!(stopped["wasRunning"], true, "{stopped}");
}

#[test]
fn a_stop_of_a_daemon_that_does_not_answer_names_its_process() {
    let daemon = Daemon::start();
    daemon.signal(Signal::SIGSTOP);
    let run = daemon.quack(&["stop"]);
    daemon.signal(Signal::SIGCONT);
    assert_eq!(run.code(), Some(4), "{run:?}");
    let pid = daemon.pid();
    let expected = format!(
        "the daemon does not answer (process {pid} is stopped: `kill -CONT {pid}` continues it, \
         `kill -KILL {pid}` ends it): no answer to ping"
    );
    assert!(run.stderr().contains(&expected), "{run:?}");
}

#[test]
fn a_stop_of_a_daemon_that_knows_no_stop_says_how_it_is_ended_and_names_no_stranger() {
    let world = Daemon::absent();
    fs::create_dir(world.app()).unwrap();
    // A stale pid: this process is not a daemon. The arguments of the tests' own process may be named like one.
    let mut stranger = program("sleep").arg("600").spawn().unwrap();
    fs::write(world.app().join("duck-daemon.pid"), stranger.id().to_string()).unwrap();
    let listener = std::os::unix::net::UnixListener::bind(world.socket()).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            for line in lines.map_while(Result::ok) {
                let request: Value = serde_json::from_str(&line).unwrap();
                let (id, method) = (&request["id"], request["method"].as_str().unwrap());
                let reply = match method {
                    "ping" => json!({"id": id, "ok": true, "data": {"version": "0.0.1"}}),
                    _ => {
                        json!({"id": id, "ok": false, "error": format!("Unknown method: {method}"), "code": "unknown_method"})
                    }
                };
                writeln!(stream, "{reply}").unwrap();
            }
        }
    });
    let run = world.quack(&["stop"]);
    let doctor = world.quack(&["doctor", "--json"]).json();
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    assert_eq!(run.code(), Some(1), "{run:?}");
    let expected =
        "the daemon cannot be asked to stop (its process is unknown: find it with `lsof '";
    assert!(run.stderr().contains(expected), "{run:?}");
    assert!(run.stderr().contains("Unknown method: quack.shutdown"), "{run:?}");
    assert_eq!(check(&doctor, "daemon")["status"], "fail");
    fs::remove_file(world.socket()).unwrap();
}

#[test]
fn the_path_that_tools_see_is_whole_in_json_and_on_a_line_of_its_own_in_text() {
    let daemon = Daemon::start();
    let shown = || {
        let document = daemon.quack(&["doctor", "--json"]).json();
        let message = check(&document, "environment")["message"].as_str().unwrap().to_owned();
        let path = message.split_once("; they are ").unwrap().1.to_owned();
        path.split(':').all(|entry| entry.starts_with('/')).then_some(path)
    };
    // The text may change once, when the login shell has answered.
    wait_for("a text with the same path", || {
        let start = shown()?.chars().take(40).collect::<String>();
        let text = daemon.quack(&["doctor"]).ok();
        text.lines().any(|line| line.trim_start().starts_with(&start)).then_some(())
    });
}

#[test]
fn a_service_has_a_line_where_it_is_installed_and_never_fails_the_doctor() {
    let world = Daemon::absent();
    let programs = world.home().join("programs");
    fs::create_dir(&programs).unwrap();
    let program = |name: &str, script: &str| {
        let path = programs.join(name);
        write_program(&path, format!("#!/bin/sh\n{script}\n"));
    };
    let doctor = || {
        let path = format!("{}:/usr/bin:/bin", programs.display());
        let output = world.command(&["doctor", "--json"]).env("PATH", path).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    program("systemctl", "echo UnitFileState=enabled");
    program("loginctl", "echo no");
    let without = doctor();
    let checks = without["checks"].as_array().unwrap();
    assert!(checks.iter().all(|check| check["name"] != "service"), "{without}");
    let _written = world.quack(&["service", "install", "--no-start"]).ok();
    let document = doctor();
    let service = check(&document, "service");
    assert_eq!(service["status"], "ok", "{service}");
    assert!(service["message"].as_str().unwrap().contains("`loginctl enable-linger`"), "{service}");
    program("systemctl", "echo UnitFileState=disabled");
    let document = doctor();
    assert_eq!(check(&document, "service")["status"], "warn");
    program("systemctl", "exec sleep 600");
    let document = doctor();
    let service = check(&document, "service");
    assert!(service["message"].as_str().unwrap().contains("does not say"), "{service}");
}

#[test]
fn a_state_directory_that_cannot_be_written_fails_and_a_start_names_no_log() {
    if nix::unistd::geteuid().is_root() {
        return skipped("root may write everywhere");
    }
    let world = Daemon::absent();
    let closed = world.home().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, Permissions::from_mode(0o555)).unwrap();
    for dir in [closed.clone(), closed.join("state")] {
        let run = |args: &[&str]| {
            let mut command = world.command(args);
            command.env("RUBBER_DUCK_APP_SUPPORT", &dir).output().unwrap()
        };
        let doctor = run(&["doctor", "--json"]);
        assert_eq!(doctor.status.code(), Some(1), "{doctor:?}");
        let document: Value = serde_json::from_slice(&doctor.stdout).unwrap();
        let state = check(&document, "state");
        assert_eq!(state["status"], "fail");
        assert!(state["hint"].as_str().unwrap().starts_with("chmod u+rwx '"), "{state}");
        let start = run(&["new", "."]);
        let said = String::from_utf8_lossy(&start.stderr).into_owned();
        assert_eq!(start.status.code(), Some(3), "{start:?}");
        assert!(said.contains("before it listened") && !said.contains("log: "), "{said}");
    }
    fs::set_permissions(&closed, Permissions::from_mode(0o755)).unwrap();
}
