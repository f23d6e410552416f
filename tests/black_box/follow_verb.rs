//! `quack follow` and `quack DIR`: output for users and scripts, and exit.

use crate::harness::{Daemon, Running, Session, wait_for};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::io::BufRead;
use std::process::Stdio;

/// Follows a session by its id, and waits until the follower is registered.
#[track_caller]
fn follow(daemon: &Daemon, session: &Session<'_>) -> Running {
    let follower = Running::start(daemon.command(&["follow", "--session", &session.id]));
    let header = follower.line();
    assert!(header.starts_with("a  "), "{header}");
    follower
}

#[track_caller]
fn event(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

#[test]
fn a_person_sees_calls_as_they_happen_until_ctrl_c_which_is_no_failure() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    session.bash("true");
    wait_for("the call to be in the journal", || {
        Some(daemon.quack(&["log", "--all"]).ok()).filter(|calls| calls.contains("bash true"))
    });
    let follower = Running::start(daemon.command(&["follow", "--session", "duck-1"]));
    let header = follower.line();
    let place = format!("a  {}  [", session.path);
    assert!(header.starts_with(&place) && header.ends_with(" · workspace-write]"), "{header}");
    // Earlier calls come first, as on a terminal.
    let earlier = follower.line();
    assert!(earlier.contains("  a  bash true  ok, "), "{earlier}");
    let command = format!("echo first; {}", daemon.gated("go", "printf 'last\\a'; exit 3"));
    let call = session.begin("bash", json!({"command": command}));
    let lines = follower.lines_to("  first");
    assert!(lines[0].starts_with("[tool] bash command=echo first; until "), "{lines:?}");
    assert_eq!(lines.len(), 2, "{lines:?}");
    daemon.open_gate("go");
    let lines = follower.lines_to("failed [");
    assert_eq!(lines[0], "  last\u{fffd}");
    assert!(lines[1].starts_with("[error] bash failed [") && lines[1].ends_with("] exit code 3"));
    call.text();
    session.call("read_file", json!({"path": "README.md"}));
    assert_eq!(follower.line(), "[tool] read_file path=README.md");
    assert_eq!(follower.line(), "  # A repository");
    assert!(follower.line().ends_with(" ms]"));
    assert_eq!(follower.interrupt(), (Some(0), String::new()));
}

#[test]
fn calls_side_by_side_are_told_apart() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let follower = follow(&daemon, &session);
    let begin = |id: &str, command: &str| {
        let arguments = json!({"command": command}).to_string();
        let params = json!({"callId": id, "toolName": "bash", "arguments": arguments, "sessionId": session.id});
        wire.begin("voice_tool_call", &params)
    };
    let first = begin("1", &daemon.gated("a", "echo from the first"));
    follower.lines_to("[tool] bash");
    let second = begin("2", &daemon.gated("b", "echo from the second"));
    follower.lines_to("[tool 2] bash");
    daemon.open_gate("b");
    let lines = follower.lines_to("[bash 2] [");
    assert_eq!(lines[0], "  [bash 2] from the second", "{lines:?}");
    daemon.open_gate("a");
    assert_eq!(follower.line(), "  from the first");
    first.text();
    second.text();
}

#[test]
fn a_script_gets_the_daemons_lines_and_nothing_else() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let watching = daemon.wire();
    watching.request("follow", json!({"sessionId": session.id}));
    session.bash("echo hi");
    let args = ["follow", "--session", &session.id, "--json", "--since", "0"];
    let follower = Running::start(daemon.command(&args));
    let mut names = Vec::new();
    for seq in 1.. {
        let event = event(&follower.line());
        assert_eq!(
            (&event["sessionId"], &event["seq"], &event["data"]["type"]),
            (&json!(session.id), &json!(seq), &event["event"])
        );
        assert_eq!(event.as_object().unwrap().len(), 4, "{event}");
        names.push(event["event"].as_str().unwrap().to_owned());
        if names.last().unwrap() == "tool_execution_end" {
            break;
        }
    }
    assert_eq!(names[0], "tool_execution_start");
    assert_eq!(follower.interrupt(), (Some(0), String::new()));
}

#[test]
fn a_daemon_that_is_killed_and_comes_back_is_followed_again() {
    let mut daemon = Daemon::start();
    let repo = daemon.repo("a");
    let follower = {
        let wire = daemon.wire();
        let session = wire.attach(repo.path());
        follow(&daemon, &session)
    };
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    daemon.boot();
    let lines = follower.lines_to("--");
    assert_eq!(lines, ["-- reconnected; some events were lost --"]);
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    session.bash("echo again");
    follower.lines_to("  again");
    assert_eq!(follower.interrupt(), (Some(0), String::new()));
}

#[test]
fn a_daemon_that_stays_away_ends_it() {
    let mut daemon = Daemon::start();
    let repo = daemon.repo("a");
    let follower = {
        let wire = daemon.wire();
        let session = wire.attach(repo.path());
        follow(&daemon, &session)
    };
    daemon.signal(Signal::SIGTERM);
    daemon.wait();
    assert_eq!(follower.wait(), (Some(3), "error: Daemon disconnected.\n".to_owned()));
    assert!(!daemon.socket().exists(), "following starts no daemon");
}

#[test]
fn a_follower_that_was_stopped_for_too_long_goes_on_and_says_that_it_missed_something() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    repo.write("big.txt", "x".repeat(64 * 1024));
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let follower = follow(&daemon, &session);
    follower.signal(Signal::SIGSTOP);
    let slow = || wire.request("quack.ps", json!({}))["supervisor"]["slowClients"].as_u64();
    wait_for("the daemon to give the follower up", || {
        for _ in 0..50 {
            session.call("read_file", json!({"path": "big.txt"}));
        }
        slow().filter(|clients| 0 < *clients)
    });
    follower.signal(Signal::SIGCONT);
    follower.lines_to("-- reconnected; some events were lost --");
    session.bash("echo still here");
    follower.lines_to("  still here");
    assert_eq!(follower.interrupt(), (Some(0), String::new()));
}

#[test]
fn a_session_that_is_deleted_ends_its_followers() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let follower = follow(&daemon, &session);
    let script = Running::start(daemon.command(&[&session.path, "--json"]));
    assert_eq!(event(&script.line())["session"]["id"], session.id.as_str());
    daemon.quack(&["delete", &session.id, "--yes"]).ok();
    assert_eq!(follower.line(), "[session] deleted");
    assert_eq!(follower.wait(), (Some(0), String::new()));
    assert_eq!(event(&script.line())["event"], "session_deleted");
    assert_eq!(script.wait(), (Some(0), String::new()));
}

#[test]
fn a_reader_that_goes_away_ends_it_also_when_nothing_happens() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    daemon.wire().attach(repo.path());
    let mut child = daemon
        .command(&["follow", "-C", repo.path().to_str().unwrap()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut reader = std::io::BufReader::new(child.stdout.take().unwrap());
    reader.read_line(&mut String::new()).unwrap();
    drop(reader);
    let status = wait_for("the follower to end", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
}

#[test]
fn what_cannot_be_followed_is_refused() {
    let daemon = Daemon::start();
    let unknown = daemon.quack(&["follow", "--session", "nobody"]);
    assert_eq!((unknown.code(), unknown.stdout()), (Some(1), String::new()), "{unknown:?}");
    assert!(unknown.stderr().contains("Session not found: nobody"), "{unknown:?}");
    for (args, part) in [
        (&["follow", "-C", "/"][..], "name a directory"),
        (&["follow", "--session", "a", "-C", "."], "--dir"),
        (&["follow", "--since", "x"], "--since"),
    ] {
        let refused = daemon.quack(args);
        assert_eq!(refused.code(), Some(2), "{refused:?}");
        assert!(refused.stderr().contains(part), "{refused:?}");
    }
}

#[test]
fn attaching_goes_on_as_following() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let dir = repo.path().to_str().unwrap();
    // The header shows what its worker is at once: starting, or as here ready.
    daemon.wire().attach(repo.path()).bash("true");
    let person = Running::start(daemon.command(&[dir]));
    let header = person.line();
    let place = format!("a  {dir}  [");
    assert!(header.starts_with(&place) && header.ends_with(" · workspace-write]"), "{header}");
    let script = Running::start(daemon.command(&[dir, "--json"]));
    let document = event(&script.line());
    assert_eq!(document["workspace"]["path"], dir);
    assert!(document["isRunning"].is_boolean(), "{document}");
    let wire = daemon.wire();
    let sessions = wire.request("sessions", json!({}));
    assert_eq!(sessions["sessions"][0]["isActive"], true);
    let session = wire.attach(repo.path());
    session.bash("echo hi");
    person.lines_to("  hi");
    assert_eq!(event(&script.line())["event"], "tool_execution_start");
    for follower in [person, script] {
        assert_eq!(follower.interrupt(), (Some(0), String::new()));
    }
    let once = daemon.quack(&[dir, "--no-follow", "--json"]).json();
    assert_eq!(once["session"], document["session"]);
}
