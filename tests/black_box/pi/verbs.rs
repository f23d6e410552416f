//! `quack say`, and the parts of Pi that users see and type in `quack [DIR]` and `quack follow`.

use super::World;
use crate::harness::{Running, Terminal, wait_for};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

impl World {
    /// A subcommand in the repository.
    fn verb(&self, args: &[&str]) -> Command {
        let mut command = self.daemon.command(args);
        command.current_dir(&self.repo);
        command
    }

    /// Runs a subcommand in the repository to its end. Returns the exit code, stdout and stderr.
    #[track_caller]
    fn ran(&self, args: &[&str]) -> (Option<i32>, String, String) {
        ended(self.verb(args).stdin(Stdio::null()))
    }

    /// Waits until Pi has received this.
    #[track_caller]
    fn told(&self, part: &str) {
        wait_for(part, || self.read("lines").contains(part).then_some(()));
    }
}

#[track_caller]
fn ended(command: &mut Command) -> (Option<i32>, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn what_is_said_is_answered_once_and_without_an_active_session_too() {
    for mode in ["", "new"] {
        let world = World::new(mode);
        let (code, stdout, stderr) = world.ran(&["say", "hello", "there"]);
        assert_eq!((code, stdout.as_str()), (Some(0), "You said: hello there\n"), "{stderr}");
        let (code, stdout, _) = world.ran(&["say", "tool", "--session", "duck-1"]);
        let shown = "[tool] bash command=false\n  no\n[error] bash failed";
        assert!(stdout.starts_with(shown) && stdout.ends_with("You said: tool\n"), "{stdout}");
        assert_eq!(code, Some(0));
        let sessions = world.daemon.wire().request("sessions", json!({"all": true}));
        assert_eq!(sessions["sessions"].as_array().unwrap().len(), 1, "{sessions}");
    }
}

#[test]
fn a_message_comes_from_a_pipe_too() {
    let world = World::new("");
    for args in [&["say"][..], &["say", "-"]] {
        let mut command = world.verb(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"piped in\n").unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "You said: piped in\n", "{args:?}");
    }
    let (code, stdout, stderr) = world.ran(&["say"]);
    assert_eq!((code, stdout.as_str()), (Some(2), ""), "{stderr}");
}

#[test]
fn another_directory_has_its_own_session_and_can_be_named() {
    let world = World::new("");
    world.ran(&["say", "hello"]);
    let other = world.daemon.repo("other");
    let mut command = world.daemon.command(&["say", "cwd"]);
    let (code, _, stderr) = ended(command.current_dir(other.path()).stdin(Stdio::null()));
    assert_eq!(code, Some(0), "{stderr}");
    let told = format!("session other  {}\n", other.path().display());
    assert_eq!(stderr, told);
    assert_eq!(world.read("cwd"), other.path().display().to_string());
    let (code, _, stderr) = world.ran(&["say", "cwd", "-C", world.repo.to_str().unwrap()]);
    let told = format!("session repo  {}\n", world.repo.display());
    assert_eq!((code, stderr), (Some(0), told));
}

#[test]
fn a_script_gets_what_came_over_the_wire_and_nothing_else() {
    let world = World::new("new");
    let (code, stdout, stderr) = world.ran(&["say", "tool", "--json"]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    let events: Vec<Value> =
        stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for event in &events {
        let keys: Vec<&String> = event.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["data", "event", "seq", "sessionId", "turn"], "{event}");
        assert_eq!(event["data"]["type"], event["event"]);
    }
    assert_eq!(super::text(&events), "You said: tool");
    assert_eq!(super::names(&events).first(), Some(&"agent_start"));
    assert_eq!(super::names(&events).last(), Some(&"agent_end"));
}

#[test]
fn a_question_is_asked_at_a_terminal() {
    let world = World::new("");
    let person = Terminal::start(world.verb(&["say", "confirm"]));
    person.see("[ui] Sure? Really?\n");
    person.see("[y/n, Ctrl-D cancels] ");
    person.type_line("perhaps");
    person.see("-- answer y or n --");
    person.type_line("y");
    person.see("Answer: {\"confirmed\": true}");
    assert_eq!(person.end().1, Some(0));
    let person = Terminal::start(world.verb(&["say", "select"]));
    person.see("[ui] Which?\n  1) a\n  2) b\n");
    person.type_line("2");
    person.see("Answer: {\"value\": \"b\"}");
    assert_eq!(person.end().1, Some(0));
    let person = Terminal::start(world.verb(&["say", "confirm"]));
    person.see("Ctrl-D cancels] ");
    person.ctrl_d();
    person.see("Answer: {\"cancelled\": true}");
    assert_eq!(person.end().1, Some(0));
}

#[test]
fn a_question_is_left_to_others_where_nobody_can_be_asked() {
    let world = World::new("");
    world.ran(&["say", "hello"]);
    let script = Running::start(world.verb(&["say", "confirm", "--session", "duck-1"]));
    assert_eq!(script.line(), "[ui] Sure?  Really?");
    let person = Terminal::start(world.verb(&["follow", "--session", "duck-1"]));
    person.see("[ui] Sure? Really?\n");
    assert!(!world.read("lines").contains("extension_ui_response"), "no client has answered");
    person.type_line("n");
    person.see("Answer: ");
    assert_eq!(script.line(), "[ui] answered");
    assert_eq!(script.line(), "Answer: {\"confirmed\": false}");
    assert_eq!(script.wait(), (Some(0), String::new()));
    assert_eq!(world.read("lines").matches("extension_ui_response").count(), 1);
    person.interrupt();
    assert_eq!(person.end().1, Some(0));
}

#[test]
fn of_two_who_are_asked_the_second_is_told_that_it_is_over() {
    let world = World::new("");
    world.ran(&["say", "hello"]);
    let first = Terminal::start(world.verb(&["follow", "--session", "duck-1"]));
    first.see("repo");
    let second = Terminal::start(world.verb(&["say", "confirm", "--session", "duck-1"]));
    second.see("Ctrl-D cancels] ");
    first.see("Ctrl-D cancels] ");
    first.type_line("yes");
    second.see("-- another client has answered --");
    second.see("Answer: {\"confirmed\": true}");
    assert_eq!(second.end().1, Some(0));
}

#[test]
fn a_pi_that_dies_or_refuses_ends_what_was_said_as_a_failure() {
    let world = World::new("");
    let (code, stdout, _) = world.ran(&["say", "die"]);
    let lines: Vec<&str> = stdout.lines().collect();
    let name = "[error] Pi process for session \"duck-1\" died unexpectedly (exit code: 3)";
    let expected = [
        "half an ans",
        name,
        "  something broke",
        "[error] Prompt failed: Pi process exited with code 3",
    ];
    assert_eq!((code, lines), (Some(1), expected.to_vec()));
    let (code, stdout, stderr) = world.ran(&["say", "refuse"]);
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert!(stderr.contains("error: No model selected"), "{stderr}");
    let (code, stdout, _) = world.ran(&["say", "late-refuse"]);
    assert_eq!((code, stdout.as_str()), (Some(1), "[error] Prompt failed: Out of credit\n"));
    let (code, _, stderr) = world.ran(&["say", "hello", "--session", "nobody"]);
    assert!(stderr.contains("Session not found: nobody"), "{code:?} {stderr}");
}

#[test]
fn a_session_that_is_at_work_is_named_and_so_is_the_way_to_end_it() {
    let world = World::new("");
    let wire = world.follower();
    super::say(&wire, "hang");
    wire.events_until("message_update");
    let (code, stdout, stderr) = world.ran(&["say", "hello"]);
    assert_eq!((code, stdout.as_str()), (Some(4), ""));
    assert!(
        stderr.contains("the agent is busy") && stderr.contains("`quack abort --session "),
        "{stderr}"
    );
    let ps = world.ran(&["ps"]).1;
    assert!(ps.contains("Pi ready, at work  monitor "), "{ps}");
}

#[test]
fn a_turn_that_takes_too_long_is_left_to_itself() {
    let world = World::new("");
    world.ran(&["say", "hello"]);
    let (code, stdout, stderr) = world.ran(&["say", "hang", "--timeout", "5s"]);
    assert_eq!((code, stdout.as_str()), (Some(4), "working\n"), "{stderr}");
    assert!(stderr.contains("the turn is not over yet and continues"), "{stderr}");
    let ps = world.daemon.wire().request("quack.ps", json!({}));
    assert_eq!(ps["workers"][0]["pi"]["busy"], true);
}

#[test]
fn ctrl_c_ends_the_turn_of_its_own_session_only() {
    let world = World::new("");
    let wire = world.follower();
    let other = wire.request("quack.session_new", json!({"path": world.repo, "name": "other"}));
    let other = other["session"]["id"].clone();
    let script = Running::start(world.verb(&["say", "hang", "--session", "other"]));
    wire.request("follow", json!({"sessionId": other}));
    world.told("\"hang\"");
    assert_eq!(script.interrupt(), (Some(130), String::new()));
    let state = wait_for("Pi to be idle", || {
        let ps = wire.request("quack.ps", json!({}));
        let workers = ps["workers"].as_array()?;
        let found = workers.iter().find(|worker| worker["sessionId"] == other)?;
        (found["pi"]["busy"] == false).then(|| found["pi"].clone())
    });
    assert_eq!(state["restarts"], 0, "it goes on: {state}");
    world.told("\"abort\"");
}

#[test]
fn a_daemon_that_dies_is_told_at_once() {
    let mut world = World::new("");
    let script = Running::start(world.verb(&["say", "hang"]));
    world.told("\"hang\"");
    world.daemon.signal(Signal::SIGKILL);
    world.daemon.wait();
    let told = format!("session repo  {}\nerror: Daemon disconnected.\n", world.repo.display());
    assert_eq!(script.wait(), (Some(3), told));
}

#[test]
fn a_person_in_a_session_types_and_sees_everything_once() {
    let world = World::new("");
    let person = Terminal::start(world.verb(&["."]));
    person.see("repo  ");
    person.see("Enter=send  Ctrl+C=stop the turn  Ctrl+D=leave");
    person.see("> ");
    person.type_line("hello");
    let shown = person.see("You said: hello");
    assert_eq!(shown.matches("hello").count(), 2, "as it was typed, and as the answer: {shown:?}");
    person.see("> ");
    person.type_line("confirm");
    person.see("Ctrl-D cancels] ");
    person.type_line("no");
    person.see("Answer: {\"confirmed\": false}");
    // Prompts of other clients are displayed.
    let wire = world.daemon.wire();
    wire.request("follow", json!({}));
    super::say(&wire, "from elsewhere");
    person.see("> from elsewhere\n");
    person.see("You said: from elsewhere");
    super::say(&wire, "die");
    person.see("  something broke");
    person.type_line("refuse");
    person.see("[error] No model selected");
    person.ctrl_d();
    assert_eq!(person.end().1, Some(0));
}

#[test]
fn what_the_app_writes_is_shown_by_who_follows() {
    let world = World::new("");
    let wire = world.daemon.wire();
    let session = wire.attach(&world.repo);
    let dir = world.daemon.app().join("sessions");
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join(format!("{}.jsonl", session.id));
    let entry = |kind: &str, text: &str| {
        let entry = json!({"timestamp": "2026-03-10T12:00:00Z", "sessionID": session.id,
            "type": kind, "text": text});
        format!("{entry}\n")
    };
    std::fs::write(&file, entry("user_text", "before")).unwrap();
    let follower = Running::start(world.verb(&["follow", "--session", "duck-1"]));
    follower.lines_to("repo");
    let script = Running::start(world.verb(&["follow", "--session", "duck-1", "--json"]));
    let append = |text: String| {
        let file = std::fs::OpenOptions::new().append(true).open(&file);
        file.unwrap().write_all(text.as_bytes()).unwrap();
    };
    append(entry("user_text", "spoken\u{1b}[2J") + &entry("assistant_text", "An answer."));
    assert_eq!(follower.line(), "> spoken");
    assert_eq!(follower.line(), "An answer.");
    std::fs::write(&file, entry("user_text", "anew")).unwrap();
    assert_eq!(follower.line(), "> anew");
    let first = wait_for("the script to follow", || {
        session.bash("true");
        script.line_within(Duration::from_millis(200))
    });
    assert!(first.starts_with("{\"event\":\"tool_execution_"), "no line of the app's: {first}");
    for running in [follower, script] {
        assert_eq!(running.interrupt(), (Some(0), String::new()));
    }
}
