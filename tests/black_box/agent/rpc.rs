//! `quack rpc`: Pi's RPC protocol on stdin and stdout.

use super::{World, text};
use crate::harness::{KillOnDrop, LineReader, wait_for};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::io::Write;
use std::process::{ChildStdin, Stdio};

/// The running subcommand; killed at the end of its test.
pub(super) struct Rpc {
    child: KillOnDrop,
    stdin: RefCell<Option<ChildStdin>>,
    lines: LineReader,
}

impl Rpc {
    #[track_caller]
    pub(super) fn start(world: &World, args: &[&str]) -> Self {
        let mut command = world.daemon.command(&[&["rpc"], args].concat());
        command.current_dir(&world.repo).env("PI_CODING_AGENT_DIR", &world.agent);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("start quack rpc");
        let lines = LineReader::new(child.stdout.take().expect("a pipe"));
        let stdin = RefCell::new(child.stdin.take());
        Self { child: child.into(), stdin, lines }
    }

    #[track_caller]
    pub(super) fn write(&self, line: &str) {
        let mut stdin = self.stdin.borrow_mut();
        stdin.as_mut().expect("stdin").write_all(format!("{line}\n").as_bytes()).expect("write");
    }

    #[track_caller]
    pub(super) fn send(&self, command: &Value) {
        self.write(&command.to_string());
    }

    #[track_caller]
    pub(super) fn line(&self) -> Value {
        parsed(&self.lines.line())
    }

    /// Returns the lines up to the first with this type, without it.
    #[track_caller]
    pub(super) fn until(&self, kind: &str) -> (Vec<Value>, Value) {
        let mut before = Vec::new();
        loop {
            let line = self.line();
            if line["type"] == kind {
                return (before, line);
            }
            before.push(line);
        }
    }

    /// Sends a command. Returns its response.
    #[track_caller]
    pub(super) fn call(&self, command: Value) -> Value {
        self.send(&command);
        self.until("response").1
    }

    /// Sends a prompt. Returns the lines up to the end of its turn.
    #[track_caller]
    pub(super) fn turn(&self, message: &str) -> Vec<Value> {
        self.send(&json!({"id": message, "type": "prompt", "message": message}));
        let (mut lines, last) = self.until("agent_settled");
        lines.push(last);
        lines
    }

    /// Closes stdin. Returns the exit code.
    #[track_caller]
    pub(super) fn end(mut self) -> Option<i32> {
        self.stdin.take();
        wait_for("quack rpc to end", || self.child.try_wait().expect("wait")).code()
    }

    /// Closes stdin. Returns the remaining lines.
    #[track_caller]
    pub(super) fn rest(self) -> Vec<Value> {
        self.stdin.borrow_mut().take();
        let rest =
            std::iter::from_fn(|| self.lines.next_line()).map(|line| parsed(&line)).collect();
        assert_eq!(self.end(), Some(0));
        rest
    }
}

/// A line of stdout, which has JSON only.
#[track_caller]
fn parsed(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))
}

fn types(lines: &[Value]) -> Vec<&str> {
    let mut types: Vec<&str> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
    types.dedup_by(|one, other| one == other && *one == "message_update");
    types
}

pub(super) fn echo() -> World {
    World::new(&json!({"on_exhausted": "echo"}))
}

#[test]
fn a_prompt_is_answered_before_its_events() {
    let world = echo();
    let rpc = Rpc::start(&world, &["--mode", "rpc", "--model", "fake/fake-1", "--thinking", "off"]);
    let lines = rpc.turn("hello");
    let expected = [
        "response",
        "agent_start",
        "turn_start",
        "message_start",
        "message_end",
        "message_start",
        "message_update",
        "message_end",
        "turn_end",
        "agent_end",
        "agent_settled",
    ];
    assert_eq!(types(&lines), expected);
    let response = json!({"id": "hello", "type": "response", "command": "prompt", "success": true,
        "data": {"disposition": "started"}});
    assert_eq!(lines[0], response);
    let state = rpc.call(json!({"type": "get_state"}))["data"].take();
    assert_eq!((&state["engine"], &state["isStreaming"]), (&"native".into(), &false.into()));
    assert_eq!(rpc.end(), Some(0));
}

#[test]
fn every_command_has_exactly_one_response_with_its_id() {
    let world = echo();
    let rpc = Rpc::start(&world, &["--no-session"]);
    for line in ["this is not json", "", "[]", "{}"] {
        rpc.write(line);
        let response = rpc.line();
        assert_eq!((&response["command"], &response["success"]), (&"parse".into(), &false.into()));
        assert_eq!(response.get("id"), None, "{response}");
    }
    // Pi 0.55 loses the ids of these.
    for (command, id) in [
        (json!({"id": "u", "type": "no_such_command"}), json!("u")),
        (json!({"id": 7, "type": "compact"}), json!(7)),
        (json!({"id": "f", "type": "fork", "entryId": "deadbeef"}), json!("f")),
        (json!({"id": "s", "type": "switch_session", "sessionPath": "/etc/passwd"}), json!("s")),
        (json!({"id": "n", "type": "set_session_name", "name": " "}), json!("n")),
    ] {
        let response = rpc.call(command.clone());
        assert_eq!((&response["id"], &response["success"]), (&id, &false.into()), "{response}");
        assert_eq!(response["command"], command["type"]);
        assert!(response["error"].is_string(), "{response}");
    }
    // A refused command has not ended the session.
    assert_eq!(rpc.call(json!({"id": 9, "type": "get_state"}))["id"], 9);
    assert_eq!(rpc.call(json!({"type": "get_state"})).get("id"), None);
    rpc.send(&json!({"type": "extension_ui_response", "id": "unknown", "confirmed": true}));
    assert_eq!(types(&rpc.turn("after"))[..2], ["response", "agent_start"]);
    // Half of a character, as a JavaScript program writes it.
    rpc.write(r#"{"id":"half","type":"prompt","message":"cut \ud83d here"}"#);
    let (lines, _) = rpc.until("agent_settled");
    let mut ends = lines.iter().filter(|line| line["type"] == "message_end");
    assert_eq!(text(&ends.next_back().unwrap()["message"]), "echo: cut \u{fffd} here");
    assert_eq!(rpc.end(), Some(0));
}

#[test]
fn a_prompt_while_busy_is_refused_once_and_a_queued_one_says_so() {
    let world = World::new(
        &json!({"replies": [{"text": "one two", "chunk_chars": 4, "hang_after": 1, "hang_ms": 600_000}],
        "on_exhausted": "echo"}),
    );
    let rpc = Rpc::start(&world, &["--no-session"]);
    rpc.send(&json!({"id": 1, "type": "prompt", "message": "start"}));
    rpc.until("message_update");
    let refused = rpc.call(json!({"id": 2, "type": "prompt", "message": "busy"}));
    assert_eq!((&refused["id"], &refused["success"]), (&2.into(), &false.into()), "{refused}");
    let queued = rpc.call(
        json!({"id": 3, "type": "prompt", "message": "later", "streamingBehavior": "followUp"}),
    );
    assert_eq!((&queued["id"], &queued["data"]), (&3.into(), &json!({"disposition": "queued"})));
    rpc.send(&json!({"id": 4, "type": "abort"}));
    let (before, response) = rpc.until("response");
    assert_eq!(response["id"], 4, "no second response to the others");
    assert!(types(&before).contains(&"agent_end"), "{before:?}");
    assert_eq!(rpc.end(), Some(0));
}

#[test]
fn fork_and_switch_select_sessions_by_their_files() {
    let world = echo();
    let rpc = Rpc::start(&world, &[]);
    rpc.turn("first");
    rpc.turn("second");
    let file = rpc.call(json!({"type": "get_state"}))["data"]["sessionFile"].take();
    let points = rpc.call(json!({"type": "get_fork_messages"}))["data"]["messages"].take();
    let forked = rpc.call(json!({"type": "fork", "entryId": points[1]["entryId"]}));
    assert_eq!(forked["data"], json!({"text": "second", "cancelled": false}));
    let state = rpc.call(json!({"type": "get_state"}))["data"].take();
    assert_eq!(state["messageCount"], 2);
    assert_ne!(state["sessionFile"], file);
    let lines = rpc.turn("third");
    assert_eq!(types(&lines)[0], "response", "the events of the fork arrive");
    let back = rpc.call(json!({"type": "switch_session", "sessionPath": file}));
    assert_eq!(
        (&back["success"], &back["data"]),
        (&true.into(), &json!({"cancelled": false})),
        "{back}"
    );
    let state = rpc.call(json!({"type": "get_state"}))["data"].take();
    assert_eq!((&state["sessionFile"], &state["messageCount"]), (&file, &4.into()));
    let new = rpc.call(json!({"type": "new_session"}));
    assert_eq!(new["success"], true, "{new}");
    assert_eq!(rpc.call(json!({"type": "get_state"}))["data"]["messageCount"], 0);
    assert_eq!(rpc.end(), Some(0));
    let rpc = Rpc::start(&world, &["--session", file.as_str().unwrap()]);
    assert_eq!(rpc.call(json!({"type": "get_state"}))["data"]["messageCount"], 4);
}

#[test]
fn the_end_of_stdin_aborts_the_turn() {
    let call = json!({"name": "bash", "arguments": {"command": "echo begun; sleep 300"}});
    let world = World::new(&json!({"replies": [{"tool_calls": [call]}]}));
    let rpc = Rpc::start(&world, &["--no-session"]);
    rpc.send(&json!({"type": "prompt", "message": "go"}));
    rpc.until("tool_execution_update");
    assert_eq!(rpc.end(), Some(0));
    wait_for("the command to end", || {
        let below = world.daemon.descendants();
        (!below.iter().any(|process| process.name == "sleep")).then_some(())
    });
    assert_eq!(world.model.count("requests"), 1);
}

/// The ids of the responses, sorted. Each response must be a success.
#[track_caller]
#[test]
fn a_temporary_session_ends_with_its_client_at_once() {
    let world = echo();
    for _ in 0..30 {
        let rpc = Rpc::start(&world, &["--no-session"]);
        rpc.turn("hello");
        assert_eq!(rpc.end(), Some(0));
    }
    let sessions = world.daemon.wire().request("sessions", json!({}));
    assert_eq!(sessions["sessions"], json!([]), "{sessions}");
    assert!(!world.daemon.log().contains("did not arrive"), "{}", world.daemon.log());
}

#[test]
fn only_sessions_that_the_client_created_are_temporary() {
    let world = echo();
    let kept = Rpc::start(&world, &[]);
    kept.turn("hello");
    let file = kept.call(json!({"type": "get_state"}))["data"]["sessionFile"].clone();
    assert_eq!(kept.end(), Some(0));
    let count = || {
        let all = world.daemon.wire().request("sessions", json!({}));
        all["sessions"].as_array().unwrap().len()
    };
    let rpc = Rpc::start(&world, &["--no-session"]);
    let refused = rpc.call(json!({"type": "switch_session"}));
    assert_eq!(refused["error"], "sessionPath is missing", "{refused}");
    assert_eq!(count(), 2);
    rpc.call(json!({"type": "switch_session", "sessionPath": file}));
    assert_eq!(count(), 1, "the client's own session is gone");
    assert_eq!(rpc.end(), Some(0));
    let rpc = Rpc::start(&world, &["--no-session", "--session", file.as_str().unwrap()]);
    for prompt in [json!({"type": "prompt"}), json!({"type": "prompt", "message": ""})] {
        assert_eq!(rpc.call(prompt)["error"], "The message is missing or empty");
    }
    assert_eq!(rpc.end(), Some(0));
    assert_eq!(count(), 1);
}

#[test]
fn a_signal_ends_the_turn_and_the_temporary_session() {
    let world = World::new(&json!({"replies": [{"text": "slow ", "repeat": 400, "delay_ms": 50}]}));
    let mut rpc = Rpc::start(&world, &["--no-session"]);
    rpc.send(&json!({"type": "prompt", "message": "hello"}));
    rpc.until("message_update");
    let pid = nix::unistd::Pid::from_raw(i32::try_from(rpc.child.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    let exit = wait_for("quack rpc to end", || rpc.child.try_wait().expect("wait"));
    assert_eq!(exit.code(), Some(130));
    let all = world.daemon.wire().request("sessions", json!({}));
    assert_eq!(all["sessions"], json!([]), "{all}");
}

fn answered(lines: &[Value]) -> Vec<u64> {
    let responses = lines.iter().filter(|line| line["type"] == "response");
    let ids = responses.map(|response| {
        assert_eq!(response["success"], true, "{response}");
        response["id"].as_u64().expect("an id")
    });
    let mut ids: Vec<_> = ids.collect();
    ids.sort_unstable();
    ids
}

#[test]
fn commands_of_one_pipe_are_answered_after_the_end_of_stdin() {
    let world = echo();
    let rpc = Rpc::start(&world, &["--no-session"]);
    for (id, name) in ["get_state", "get_available_models", "get_messages"].iter().enumerate() {
        rpc.send(&json!({"id": id, "type": name}));
    }
    rpc.send(&json!({"id": 3, "type": "new_session"}));
    rpc.send(&json!({"id": 4, "type": "get_state"}));
    assert_eq!(answered(&rpc.rest()), [0, 1, 2, 3, 4]);
    let sessions = world.daemon.wire().request("sessions", json!({"all": true}));
    assert_eq!(sessions["sessions"], json!([]), "deleted");
}

#[test]
fn the_end_of_stdin_ends_the_turn_and_leaves_no_command_without_a_response() {
    let call = json!({"name": "bash", "arguments": {"command": "echo begun; sleep 300"}});
    let world = World::new(&json!({"replies": [{"tool_calls": [call]}], "on_exhausted": "echo"}));
    let rpc = Rpc::start(&world, &["--no-session"]);
    rpc.send(&json!({"id": 1, "type": "prompt", "message": "go"}));
    rpc.until("tool_execution_update");
    rpc.send(&json!({"id": 2, "type": "get_state"}));
    rpc.send(&json!({"id": 3, "type": "abort"}));
    rpc.send(&json!({"id": 4, "type": "bash", "command": "sleep 300"}));
    let rest = rpc.rest();
    assert_eq!(answered(&rest), [2, 3, 4]);
    let at = |wanted: &dyn Fn(&Value) -> bool| rest.iter().position(wanted).expect("a line");
    let end = at(&|line| line["type"] == "agent_end");
    assert!(end < at(&|line| line["id"] == 3), "{rest:?}");
    // A prompt before the end is sent, and its turn aborted.
    let rpc = Rpc::start(&world, &["--no-session"]);
    rpc.send(&json!({"id": 5, "type": "get_state"}));
    rpc.send(&json!({"id": 6, "type": "prompt", "message": "late"}));
    assert_eq!(answered(&rpc.rest()), [5, 6]);
}

#[test]
fn a_continued_session_gets_the_model_and_the_thinking_level() {
    let world = echo();
    let rpc = Rpc::start(&world, &["--thinking", "high"]);
    let state = rpc.call(json!({"type": "get_state"}))["data"].take();
    assert_eq!(
        (&state["model"]["id"], &state["thinkingLevel"]),
        (&"fake-1".into(), &"high".into())
    );
    rpc.turn("hello");
    assert_eq!(rpc.end(), Some(0));
    let rpc = Rpc::start(&world, &["--continue", "--thinking", "off"]);
    let state = rpc.call(json!({"type": "get_state"}))["data"].take();
    assert_eq!((&state["messageCount"], &state["thinkingLevel"]), (&2.into(), &"off".into()));
    assert_eq!(rpc.end(), Some(0));
    for (name, id) in [("fake/fake-2", "fake-2"), ("fake-1", "fake-1")] {
        let rpc = Rpc::start(&world, &["--continue", "--model", name]);
        assert_eq!(rpc.call(json!({"type": "get_state"}))["data"]["model"]["id"], id);
        assert_eq!(rpc.end(), Some(0));
    }
    // A session whose options are refused is not left behind.
    let rpc = Rpc::start(&world, &["--no-session", "--tools", "read,+bash"]);
    assert_eq!(rpc.end(), Some(1));
    let sessions = world.daemon.wire().request("sessions", json!({"all": true}));
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 1, "{sessions}");
}

#[test]
fn a_client_that_only_asks_ends_no_turn_of_another_one() {
    let world = super::queues::gated();
    let wire = world.follower();
    super::say(&wire, "start");
    wire.events_until("tool_execution_start");
    let rpc = Rpc::start(&world, &["--continue"]);
    assert_eq!(rpc.call(json!({"type": "get_state"}))["data"]["isStreaming"], true);
    assert_eq!(rpc.end(), Some(0));
    world.daemon.open_gate("go");
    let events = wire.events_until("agent_settled");
    let ends = super::all(&events, "tool_execution_end");
    assert!(ends.len() == 2 && ends.iter().all(|end| end["isError"] == false), "{ends:?}");
}
