//! Voice clients: their events, their permission to run tools, and the cleanup after they
//! disconnect.

use crate::harness::{Daemon, Wire, wait_for};
use serde_json::{Value, json};
use std::net::Shutdown;
use std::time::{Duration, Instant};

/// A voice client of the macOS app.
fn app(daemon: &Daemon) -> Wire {
    voice(daemon, &json!({"clientVersion": "1.0"}))
}

fn voice(daemon: &Daemon, params: &Value) -> Wire {
    let wire = daemon.wire();
    let data = wire.request("voice_connect", params.clone());
    assert_eq!(data["connected"], true);
    wire
}

fn state(wire: &Wire, state: &str, session: &str) {
    wire.request("voice_state", json!({"state": state, "sessionId": session}));
}

/// The next voice status that a session's follower receives.
#[track_caller]
fn status(follower: &Wire) -> String {
    let event = follower.event();
    assert_eq!(event["event"], "extension_ui_request", "{event}");
    assert_eq!(event["data"]["method"], "setStatus", "{event}");
    event["data"]["message"].as_str().expect("a message").to_owned()
}

/// All events that a client has received so far. Its own requests must have been answered.
fn told(wire: &Wire) -> Vec<Value> {
    let before = wire.early_events().len();
    wire.request("ping", json!({}));
    wire.early_events()[before..].to_vec()
}

fn files(daemon: &Daemon) -> u64 {
    supervisor(daemon, "openFiles")
}

fn supervisor(daemon: &Daemon, key: &str) -> u64 {
    daemon.wire().request("quack.ps", json!({}))["supervisor"][key].as_u64().expect("a number")
}

#[test]
fn a_voice_client_is_bound_to_the_active_session_and_told_of_the_next_one() {
    let daemon = Daemon::start();
    let (a, b) = (daemon.repo("a"), daemon.repo("b"));
    let app = daemon.wire();
    assert_eq!(
        app.request("voice_connect", json!({"clientVersion": "1"})),
        json!({"connected": true, "sessionId": null, "sessionName": null, "workspacePath": null})
    );
    let wire = daemon.wire();
    let first = wire.attach(a.path());
    assert_eq!(
        app.event(),
        json!({"event": "voice_session_changed", "sessionId": first.id, "data": {
            "type": "voice_session_changed", "sessionId": first.id, "sessionName": first.name,
            "workspacePath": first.path,
        }})
    );
    assert_eq!(
        app.request("voice_connect", json!({})),
        json!({"connected": true, "sessionId": first.id, "sessionName": first.name, "workspacePath": first.path})
    );
    let second = wire.attach(b.path());
    assert_eq!(app.event()["sessionId"], second.id.as_str());
    wire.request("activate_session", json!({"sessionId": first.id}));
    assert_eq!(app.event()["sessionId"], first.id.as_str());
    let new = json!({"path": b.path(), "activate": true});
    let third = wire.request("quack.session_new", new)["session"]["id"].clone();
    assert_eq!(app.event()["sessionId"], third);
    // An attach that does not change the active session sends no event.
    wire.request("attach", json!({"path": a.path(), "activate": false}));
    wire.request("quack.session_new", json!({"path": a.path()}));
    wire.request(
        "quack.tool",
        json!({"path": a.path(), "tool": "read_file", "arguments": "README.md"}),
    );
    assert_eq!(told(&app), Vec::<Value>::new());
    assert_eq!(wire.early_events(), Vec::<Value>::new(), "only voice clients get events");
}

#[test]
fn what_an_attach_tells_its_own_client_comes_before_the_reply() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = app(&daemon);
    wire.write(
        format!("{}\n", json!({"id": 1, "method": "attach", "params": {"path": repo.path()}}))
            .as_bytes(),
    );
    let first = wire.line().unwrap();
    assert!(first.starts_with(r#"{"event":"voice_session_changed","sessionId":""#), "{first}");
    assert!(wire.line().unwrap().starts_with(r#"{"id":1,"ok":true,"data":{"workspace":"#));
}

#[test]
fn voice_start_asks_one_idle_client_and_says_why_not_otherwise() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    assert_eq!(wire.refused("voice_start", json!({})), "No active session for voice start");
    let session = wire.attach(repo.path());
    assert_eq!(wire.refused("voice_start", json!({"sessionId": "x"})), "Session not found: x");
    assert_eq!(
        wire.request("voice_start", json!({})),
        json!({"started": false, "reason": "voice_not_connected"})
    );
    let (first, second) = (app(&daemon), app(&daemon));
    let id = session.id.as_str();
    assert_eq!(wire.request("voice_start", json!({})), json!({"started": true, "sessionId": id}));
    assert_eq!(
        first.event(),
        json!({"event": "voice_start", "sessionId": id, "data": {"type": "voice_start", "sessionId": id}})
    );
    assert_eq!(told(&second), Vec::<Value>::new());
    state(&first, "listening", id);
    assert_eq!(
        wire.request("voice_start", json!({"sessionId": session.name})),
        json!({"started": false, "reason": "voice_already_active", "state": "listening"})
    );
}

#[test]
fn followers_see_what_the_owner_does_and_nothing_else() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let follower = daemon.wire();
    let session = follower.attach(repo.path());
    follower.request("follow", json!({}));
    let id = session.id.as_str();
    assert_eq!(
        follower.refused("voice_state", json!({"state": "idle"})),
        "Voice client is not connected"
    );
    let (owner, other) = (app(&daemon), app(&daemon));
    owner.request("voice_state", json!({"state": "connecting"}));
    let event = follower.event();
    let at = event["data"]["id"].as_str().unwrap().strip_prefix("voice-state-").unwrap();
    assert!(1_700_000_000_000 < at.parse::<u64>().unwrap(), "{at}");
    assert_eq!(
        event,
        json!({"event": "extension_ui_request", "sessionId": id, "seq": 1, "data": {
            "type": "extension_ui_request", "id": format!("voice-state-{at}"),
            "method": "setStatus", "message": "voice:connecting"}})
    );
    for state in ["listening", "thinking", "speaking", "toolRunning"] {
        owner.request("voice_state", json!({"state": state, "sessionId": id}));
        assert_eq!(status(&follower), format!("voice:{state}"));
    }
    let taken = "Voice session is already owned by another client";
    assert_eq!(other.refused("voice_state", json!({"state": "listening"})), taken);
    let known = "idle, connecting, listening, thinking, speaking, toolRunning";
    for (state, shown) in [(json!("dancing"), "dancing"), (json!(5), "5"), (Value::Null, "none")] {
        let error = owner.refused("voice_state", json!({"state": state}));
        assert_eq!(error, format!("Unknown voice state: {shown}; known are {known}"));
    }
    let error = owner.refused("voice_state", json!({"state": "idle", "sessionId": "x"}));
    assert_eq!(error, "Session not found: x");
    // An idle state from a client that owns nothing does not change this session's status.
    other.request("voice_state", json!({"state": "idle", "sessionId": id}));
    owner.request("voice_state", json!({"state": "idle"}));
    assert_eq!(status(&follower), "voice:idle");
    assert_eq!(told(&follower), Vec::<Value>::new());
    other.request("voice_state", json!({"state": "listening"}));
    assert_eq!(status(&follower), "voice:listening");
    drop(other);
    assert_eq!(status(&follower), "voice:idle");
}

#[test]
fn a_client_without_a_session_has_no_state() {
    let daemon = Daemon::start();
    let app = app(&daemon);
    let error = app.refused("voice_state", json!({"state": "idle"}));
    assert_eq!(error, "No active session for voice state update");
}

#[test]
fn the_tools_of_an_owned_session_are_its_owners() {
    let daemon = Daemon::start();
    let (a, b) = (daemon.repo("a"), daemon.repo("b"));
    a.write("which", "a");
    b.write("which", "b");
    let wire = daemon.wire();
    let first = wire.attach(a.path());
    let owner = app(&daemon);
    let read = |params: Value| {
        let mut all = json!({"toolName": "read_file", "arguments": "{\"path\":\"which\"}"});
        all.as_object_mut().unwrap().extend(params.as_object().unwrap().clone());
        all
    };
    let call = |wire: &Wire, params: Value| {
        wire.request("voice_tool_call", read(params))["result"].clone()
    };
    // Without an owner any client may run tools.
    assert_eq!(call(&wire, json!({})), "a");
    state(&owner, "listening", &first.id);
    let owned = "Voice session is owned by another client";
    for params in [
        json!({}),
        json!({"sessionId": first.id}),
        json!({"sessionId": first.name, "workspacePath": "/"}),
    ] {
        assert_eq!(wire.refused("voice_tool_call", read(params)), owned);
    }
    assert_eq!(call(&owner, json!({"workspacePath": first.path})), "a");
    // A busy client stays in its session, regardless of the active session.
    let second = wire.attach(b.path());
    assert_eq!(call(&owner, json!({})), "a");
    assert_eq!(call(&owner, json!({"sessionId": second.id})), "b");
    assert_eq!(call(&wire, json!({})), "b");
    let mismatch = "Voice tool call workspace does not match the active session";
    assert_eq!(
        owner.refused("voice_tool_call", read(json!({"workspacePath": second.path}))),
        mismatch
    );
    assert_eq!(
        owner.refused("voice_tool_call", read(json!({"sessionId": "x"}))),
        "Session not found: x"
    );
    // quackd's own method requires no ownership.
    wire.request(
        "quack.tool",
        json!({"sessionId": first.id, "tool": "read_file", "arguments": "which"}),
    );
    state(&owner, "idle", &first.id);
    assert_eq!(call(&owner, json!({})), "b", "free again, it is in the active session");
    assert_eq!(call(&wire, json!({"sessionId": first.id})), "a");
}

#[test]
fn takeover_is_among_clients_of_one_type() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let follower = daemon.wire();
    let session = follower.attach(repo.path());
    follower.request("follow", json!({}));
    let phone = voice(&daemon, &json!({"clientType": "remote-ios"}));
    let old = app(&daemon);
    state(&old, "speaking", &session.id);
    assert_eq!(status(&follower), "voice:speaking");
    let new = voice(&daemon, &json!({"takeover": true}));
    assert_eq!(status(&follower), "voice:idle");
    let gone = "Voice client is not connected";
    assert_eq!(old.refused("voice_state", json!({"state": "listening"})), gone);
    assert_eq!(told(&old), Vec::<Value>::new(), "the old client gets no event");
    state(&new, "listening", &session.id);
    assert_eq!(status(&follower), "voice:listening");
    let taken = "Voice session is already owned by another client";
    assert_eq!(phone.refused("voice_state", json!({"state": "listening"})), taken);
    // A new connection resets the state.
    new.request("voice_connect", json!({}));
    assert_eq!(status(&follower), "voice:idle");
    state(&phone, "listening", &session.id);
    assert_eq!(status(&follower), "voice:listening");
}

#[test]
fn voice_ends_with_the_follower_that_had_it_begin_and_with_no_other() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let app = app(&daemon);
    let follow = |wire: &Wire| drop(wire.request("follow", json!({"sessionId": session.id})));
    // The app started this with its own key: another client that attaches and leaves does not end
    // it.
    state(&app, "listening", &session.id);
    let passing = daemon.wire();
    follow(&passing);
    passing.request("unfollow", json!({}));
    follow(&passing);
    drop(passing);
    wait_for("the client to be gone", || (supervisor(&daemon, "clients") == 3).then_some(()));
    assert_eq!(told(&app), Vec::<Value>::new());
    state(&app, "idle", &session.id);

    let cli = daemon.wire();
    cli.request("voice_start", json!({}));
    assert_eq!(app.event()["event"], "voice_start");
    follow(&cli);
    follow(&wire);
    state(&app, "connecting", &session.id);
    cli.request("unfollow", json!({}));
    assert_eq!(told(&app), Vec::<Value>::new(), "a client still follows");
    drop(cli);
    drop(wire);
    assert_eq!(
        app.event(),
        json!({"event": "voice_stop", "sessionId": session_id(&daemon), "data": {
            "type": "voice_stop", "reason": "cli_exit", "sessionId": session_id(&daemon)}})
    );
}

fn session_id(daemon: &Daemon) -> Value {
    daemon.wire().request("sessions", json!({"all": true}))["sessions"][0]["id"].clone()
}

#[test]
fn unfollow_ends_being_a_voice_client() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let follower = daemon.wire();
    let session = follower.attach(repo.path());
    follower.request("follow", json!({}));
    let app = app(&daemon);
    state(&app, "listening", &session.id);
    assert_eq!(status(&follower), "voice:listening");
    app.request("unfollow", json!({}));
    assert_eq!(status(&follower), "voice:idle");
    let gone = "Voice client is not connected";
    assert_eq!(app.refused("voice_state", json!({"state": "listening"})), gone);
    assert_eq!(
        follower.request("voice_start", json!({})),
        json!({"started": false, "reason": "voice_not_connected"})
    );
}

#[test]
fn a_client_that_sends_no_more_is_no_voice_client_while_its_call_still_runs() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let follower = daemon.wire();
    let session = follower.attach(repo.path());
    follower.request("follow", json!({}));
    let app = voice(&daemon, &json!({"clientType": "remote-web"}));
    state(&app, "toolRunning", &session.id);
    assert_eq!(status(&follower), "voice:toolRunning");
    let command = daemon.gated("go", "echo done");
    let call = json!({"id": "c", "method": "voice_tool_call", "params": {
        "toolName": "bash", "arguments": json!({"command": command}).to_string()}});
    app.write(format!("{call}\n").as_bytes());
    follower.events_until("tool_execution_start");
    app.stream().shutdown(Shutdown::Write).unwrap();
    assert_eq!(status(&follower), "voice:idle");
    daemon.open_gate("go");
    assert!(app.line().unwrap().starts_with(r#"{"id":"c","ok":true,"data":{"result":"done\n"#));
    assert_eq!(app.line(), None);
}

#[test]
fn the_app_gets_its_answers_before_it_gives_up() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    session.bash("true");
    let apps = [app(&daemon), app(&daemon), app(&daemon)];
    let phone = voice(&daemon, &json!({"clientType": "remote-ios"}));
    let asked = |arguments: Value| json!({"toolName": "bash", "arguments": arguments.to_string(), "sessionId": session.id});
    let begun = Instant::now();
    let slow = asked(json!({"command": "echo begun; sleep 60"}));
    let long = asked(json!({"command": "echo begun; sleep 60", "timeout_ms": 20_000}));
    let deaf = asked(json!({"command": "trap '' TERM; echo begun; while :; do sleep 0.1; done"}));
    let other = asked(json!({"command": "echo begun; sleep 10.5; echo ended"}));
    let calls: Vec<_> = apps
        .iter()
        .zip([slow, long, deaf])
        .map(|(app, params)| app.begin("voice_tool_call", &params))
        .collect();
    let other = phone.begin("voice_tool_call", &other);
    let texts: Vec<String> = calls.into_iter().map(|call| call.text()).collect();
    let took = begun.elapsed();
    assert!(Duration::from_secs(9) <= took, "{took:?}");
    for text in &texts[..2] {
        assert!(text.starts_with("begun\n") && text.contains("9"), "{text}");
    }
    let killed = "Error: bash did not end within 9s and is being killed. It may have run; it was not retried.";
    assert_eq!(texts[2], killed);
    assert!(other.text().contains("ended"), "a waiting call is not interrupted");
}

#[test]
fn what_is_said_goes_to_the_owner_and_is_seen_by_followers() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let follower = daemon.wire();
    follower.request("follow", json!({}));
    let app = app(&daemon);
    state(&app, "listening", &session.id);
    assert_eq!(status(&follower), "voice:listening");
    assert_eq!(
        wire.request("say", json!({"message": "hello"})),
        json!({"sessionId": session.id, "sessionName": session.name})
    );
    assert_eq!(
        app.event(),
        json!({"event": "voice_say", "sessionId": session.id, "data": {"text": "hello"}})
    );
    let mut event = follower.event();
    let at = event["data"]["message"]["timestamp"].take();
    let form = "0000-00-00T00:00:00.000Z";
    let at = at.as_str().unwrap();
    let shape = at.replace(|c: char| c.is_ascii_digit(), "0");
    assert_eq!(shape, form, "{at}");
    assert_eq!(
        event,
        json!({"event": "message_start", "sessionId": session.id, "seq": 2, "data": {
            "type": "message_start",
            "message": {"role": "user", "content": "hello", "timestamp": null}}})
    );
    assert_eq!(told(&app), Vec::<Value>::new());
}

#[test]
fn a_deleted_session_stops_its_voice() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let app = app(&daemon);
    state(&app, "listening", &session.id);
    wire.request("quack.session_delete", json!({"sessionId": session.id}));
    let told = app.event();
    assert_eq!(told["event"], "voice_stop");
    assert_eq!(told["data"]["reason"], "session_deleted");
    let error = app.refused("voice_state", json!({"state": "speaking"}));
    assert_eq!(error, "No active session for voice state update");
}

#[test]
fn a_voice_client_that_does_not_read_is_disconnected_and_delays_nobody() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let deaf = app(&daemon);
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let follower = daemon.wire();
    follower.request("follow", json!({"sessionId": session.id}));
    state(&deaf, "speaking", &session.id);
    assert_eq!(status(&follower), "voice:speaking");
    // Each attach notifies every voice client. Nothing changes, so the daemon writes nothing to
    // disk.
    let mut rounds = 0;
    while supervisor(&daemon, "slowClients") == 0 {
        rounds += 1;
        assert!(rounds < 200, "never given up");
        for _ in 0..50 {
            wire.attach(repo.path());
        }
    }
    assert_eq!(status(&follower), "voice:idle");
    daemon.wait_for_log("slow_client");
    assert_eq!(
        wire.request("voice_start", json!({})),
        json!({"started": false, "reason": "voice_not_connected"})
    );
}

/// Moments at which a client of the next test disconnects.
fn leave_at(n: usize, wire: &Wire, session: &str) {
    let line = |method: &str, params: Value| {
        format!("{}\n", json!({"id": n, "method": method, "params": params}))
    };
    let connect = line("voice_connect", json!({"takeover": n.is_multiple_of(5)}));
    let speak = line("voice_state", json!({"state": "speaking", "sessionId": session}));
    let call = line(
        "voice_tool_call",
        json!({
        "toolName": "read_file", "arguments": "\"README.md\"", "sessionId": session}),
    );
    match n % 8 {
        0 => wire.write(connect.as_bytes()),
        1 => wire.write(&connect.as_bytes()[..n % connect.len()]),
        2 => {
            wire.write(connect.as_bytes());
            wire.line().expect("an answer");
        }
        3 => wire.write(format!("{connect}{speak}").as_bytes()),
        4 => {
            wire.write(format!("{connect}{speak}").as_bytes());
            wire.stream().shutdown(Shutdown::Write).expect("half a close");
        }
        5 => wire.write(format!("{}{connect}", line("follow", json!({}))).as_bytes()),
        6 => wire.write(format!("{connect}{call}").as_bytes()),
        _ => wire.write(format!("{connect}{}{call}", line("unfollow", json!({}))).as_bytes()),
    }
}

#[test]
fn a_thousand_voice_clients_that_leave_in_the_middle_leave_nothing() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    session.call("read_file", json!({"path": "README.md"}));
    let round = |from: usize| {
        for n in from..from + 500 {
            leave_at(n, &daemon.wire(), &session.id);
        }
        wait_for("the clients to be gone", || {
            (wire.request("ping", json!({}))["clients"] == 1).then_some(())
        });
    };
    // The first round fills buffers and tables, so compare the second round with the state after
    // the first.
    let before = files(&daemon);
    round(0);
    let resident = supervisor(&daemon, "rssKb");
    round(500);
    // A descriptor for each client of one kind would be 62. The daemon may have opened a few of its own, such as the journal.
    wait_for("the descriptors to come back", || (files(&daemon) < before + 31).then_some(()));
    let grown = supervisor(&daemon, "rssKb").saturating_sub(resident);
    assert!(grown < 8 * 1024, "the daemon grew by {grown} KiB");
    assert_eq!(
        wire.request("voice_start", json!({})),
        json!({"started": false, "reason": "voice_not_connected"})
    );
    // The session has no owner, but its last calls may still be running.
    wait_for("room for a call", || {
        let text = session.bash("true");
        assert!(text == "\n[Exit code: 0]" || text.starts_with("Error: Session is busy"), "{text}");
        (!text.starts_with("Error")).then_some(())
    });
}
