//! Tests every method of the client wire against the specification.

use crate::harness::tier::needs;
use crate::harness::{Daemon, wait_for};
use serde_json::{Value, json};
use std::collections::BTreeSet;

#[test]
fn ping_tells_which_daemon_this_is() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    // The daemon may notice the end of an earlier client after it accepts this one.
    let data = wait_for("the earlier client to end", || {
        let data = wire.request("ping", json!({}));
        (data["clients"] == 1).then_some(data)
    });
    assert_eq!(data["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(data["pid"], daemon.pid());
    assert_eq!(data["protocol"], 1);
    assert!(data["uptime"].is_u64() && data["startedAt"].is_string() && data["build"].is_string());
}

#[test]
fn attach_gives_the_same_session_for_every_spelling_of_a_directory() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    std::os::unix::fs::symlink(repo.path(), daemon.home().join("link")).unwrap();
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    assert_eq!(session.path, repo.path().to_str().unwrap());
    assert_eq!(session.name, "duck-1");
    assert_eq!(session.id.len(), 22);
    for spelling in
        [repo.path().join("src"), repo.path().join("src/.."), daemon.home().join("link")]
    {
        assert_eq!(wire.attach(&spelling).id, session.id, "{}", spelling.display());
    }
    // `~` is the daemon's home.
    let data = wire.request("attach", json!({"path": "~/link/src"}));
    assert_eq!(data["session"]["id"], session.id.as_str());
    // The keys and their order are upstream's.
    let reply = wire.exchange(
        &json!({"id": 1, "method": "attach", "params": {"path": repo.path()}}).to_string(),
    );
    let workspace = data["workspace"]["id"].as_str().unwrap();
    assert_eq!(workspace.len(), 16);
    assert_eq!(
        reply,
        format!(
            r#"{{"id":1,"ok":true,"data":{{"workspace":{{"id":"{workspace}","path":"{}"}},"session":{{"id":"{}","name":"duck-1"}}}}}}"#,
            session.path, session.id
        )
    );
}

#[test]
fn attach_refuses_what_is_no_directory() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let repo = daemon.repo("a");
    let missing = repo.path().join("missing");
    let text = wire.refused("attach", json!({"path": missing}));
    assert_eq!(text, format!("Not a directory: {}", missing.display()));
    let file = repo.path().join("README.md");
    let text = wire.refused("attach", json!({"path": file}));
    assert_eq!(text, format!("Not a directory: {}", file.display()));
    assert!(!wire.refused("attach", json!({"path": 5})).is_empty());
    assert!(wire.refused("attach", json!({"path": "x\0y"})).starts_with("Not a directory: "));
    assert_eq!(wire.request("sessions", json!({"all": true})), json!({"sessions": []}));
}

#[test]
fn attach_without_activation_does_not_move_the_active_session() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let first = wire.attach(daemon.repo("a").path());
    let quiet = wire.request("attach", json!({"path": daemon.repo("b").path(), "activate": false}));
    assert_ne!(quiet["session"]["id"], first.id.as_str());
    let sessions = wire.request("sessions", json!({"all": true}));
    let active: Vec<&Value> =
        sessions["sessions"].as_array().unwrap().iter().filter(|s| s["isActive"] == true).collect();
    assert_eq!(active.len(), 1);
    assert_eq!(active[0]["id"], first.id.as_str());
    // A call without a session uses the active session.
    let call = json!({"callId": "1", "toolName": "bash", "arguments": "\"pwd\""});
    let data = wire.request("voice_tool_call", call);
    assert_eq!(data["result"], format!("{}\n\n[Exit code: 0]", first.path));
}

#[test]
fn sessions_are_listed_as_selected() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    assert_eq!(wire.request("sessions", json!({})), json!({"sessions": []}));
    let b = wire.attach(daemon.repo("b").path());
    let a = wire.attach(daemon.repo("a").path());
    let ids = |params: Value| -> Vec<String> {
        let data = wire.request("sessions", params);
        let sessions = data["sessions"].as_array().unwrap();
        sessions.iter().map(|s| s["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(json!({"all": true})), [b.id.as_str(), a.id.as_str()]);
    assert_eq!(ids(json!({"all": 1})), [b.id.as_str(), a.id.as_str()]);
    assert_eq!(ids(json!({"all": false})), [a.id.as_str()]);
    assert_eq!(ids(json!({})), [a.id.as_str()]);
    let workspace = wire.request("attach", json!({"path": b.path, "activate": false}));
    let workspace = workspace["workspace"]["id"].clone();
    assert_eq!(ids(json!({"workspaceId": workspace})), [b.id.as_str()]);
    assert!(ids(json!({"workspaceId": "unknown"})).is_empty());
    assert!(ids(json!({"workspaceId": b.path})).is_empty());
    // The row has upstream's keys and the session's status. A session runs while its worker runs.
    a.bash("true");
    let data = wire.request("sessions", json!({}));
    let row = data["sessions"][0].as_object().unwrap();
    let keys: BTreeSet<&str> = row.keys().map(String::as_str).collect();
    let expected = [
        "id",
        "isActive",
        "isRunning",
        "label",
        "lastActiveAt",
        "name",
        "status",
        "statusSince",
        "statusWhy",
        "workspacePath",
    ];
    assert_eq!(keys, expected.into());
    assert_eq!((&row["isRunning"], &row["workspacePath"]), (&json!(true), &json!(a.path)));
}

#[test]
fn a_tool_call_echoes_its_id_and_nothing_else_beside_the_result() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let no_session = json!({"callId": "1", "toolName": "bash", "arguments": "\"true\""});
    assert_eq!(
        wire.refused("voice_tool_call", no_session.clone()),
        "No active voice session for tool execution"
    );
    let session = wire.attach(daemon.repo("a").path());
    let line = json!({"id": "r", "method": "voice_tool_call", "params": no_session}).to_string();
    assert_eq!(
        wire.exchange(&line),
        r#"{"id":"r","ok":true,"data":{"callId":"1","result":"\n[Exit code: 0]"}}"#
    );
    let data =
        wire.request("voice_tool_call", json!({"toolName": "bash", "arguments": "\"true\""}));
    assert_eq!(data, json!({"result": "\n[Exit code: 0]"}));
    // A wrong reference never runs the tool in another session.
    for (reference, expected) in [("nobody", "nobody"), ("DUCK-9", "DUCK-9")] {
        let call =
            json!({"toolName": "bash", "arguments": "\"touch ran\"", "sessionId": reference});
        assert_eq!(wire.refused("voice_tool_call", call), format!("Session not found: {expected}"));
    }
    assert!(!std::path::Path::new(&session.path).join("ran").exists());
    // Names are references too.
    for reference in [session.id.as_str(), "duck-1", "DUCK-1", "du"] {
        let call = json!({"toolName": "bash", "arguments": "\"true\"", "sessionId": reference});
        assert_eq!(wire.request("voice_tool_call", call), json!({"result": "\n[Exit code: 0]"}));
    }
}

#[test]
fn a_call_for_another_workspace_is_refused() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let repo = daemon.repo("a");
    let session = wire.attach(repo.path());
    let call = |path: &std::path::Path| json!({"toolName": "bash", "arguments": "\"true\"", "sessionId": session.id, "workspacePath": path});
    wire.request("voice_tool_call", call(&repo.path().join("src/..")));
    assert_eq!(
        wire.refused("voice_tool_call", call(daemon.repo("b").path())),
        "Voice tool call workspace does not match the active session"
    );
}

#[test]
fn a_directory_of_the_users_in_the_state_directory_is_a_workspace_and_shows_nothing_beside_it() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let workspace = daemon.app().join("workspace-a");
    std::fs::create_dir(&workspace).unwrap();
    std::fs::write(workspace.join("note.txt"), "in a").unwrap();
    let session = wire.attach(&workspace);
    let call = |tool: &str, arguments: Value| {
        let params = json!({"toolName": tool, "arguments": arguments.to_string(), "sessionId": session.id, "workspacePath": workspace});
        wire.request("voice_tool_call", params)["result"].take()
    };
    assert_eq!(call("read_file", json!({"path": "note.txt"})), "in a");
    let written = call("write_file", json!({"path": "new.txt", "content": "x"}));
    assert_eq!(written, "Successfully wrote 1 bytes to new.txt");
    let look = "ls -A .. 2>&1 | grep -c -e json -e sock -e toml; cat ../metadata.json 2>&1 | grep -c sessions";
    assert_eq!(call("bash", json!({"command": look})), "0\n0\n\n[Exit code: 1]");

    // The daemon's state directory cannot be a workspace.
    std::fs::create_dir_all(daemon.app().join("sessions/mine")).unwrap();
    let at = json!({"tool": "bash", "arguments": "true", "path": daemon.app()});
    let refused = wire.refused("quack.tool", at);
    assert!(refused.contains("holds the daemon's state directory"), "{refused}");
    for (kept, reason) in [
        ("run", "holds the daemon's own files"),
        ("sessions/mine", "lies among the daemon's own files"),
    ] {
        let params = json!({"tool": "bash", "arguments": "true", "path": daemon.app().join(kept)});
        let text = wire.request("quack.tool", params)["text"].take();
        assert!(text.as_str().is_some_and(|text| text.contains(reason)), "{text}");
    }
}

#[test]
fn quack_tool_gives_the_same_text_with_structure() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let repo = daemon.repo("a");
    let params =
        json!({"tool": "bash", "arguments": {"command": "echo out; exit 3"}, "path": repo.path()});
    let data = wire.request("quack.tool", params);
    assert_eq!(data["text"], "out\n\n[Exit code: 3]");
    assert_eq!((&data["isError"], &data["exitCode"]), (&json!(true), &json!(3)));
    assert_eq!(data["timedOut"], false);
    let session = data["sessionId"].as_str().unwrap().to_owned();
    // The call did not make its session the active one.
    assert_eq!(wire.refused("abort", json!({})), "No active session to abort");

    let params = json!({"tool": "bash", "arguments": "kill -9 $$", "sessionId": session});
    let data = wire.request("quack.tool", params);
    assert_eq!((&data["signal"], data.get("exitCode")), (&json!(9), None));
    assert_eq!(data["text"], "\n[Exit code: unknown]");

    let params =
        json!({"tool": "read_file", "arguments": {"path": "README.md"}, "sessionId": session});
    let data = wire.request("quack.tool", params);
    assert_eq!((&data["text"], &data["isError"]), (&json!("# A repository\n"), &json!(false)));

    let params = json!({"tool": "bash", "arguments": {"command": "sleep 60"}, "sessionId": session, "timeoutMs": 300});
    let data = wire.request("quack.tool", params);
    assert_eq!(data["timedOut"], true, "{data}");

    let error = wire.refused("quack.tool", json!({"tool": 5}));
    assert!(error.starts_with("Invalid parameters for quack.tool: "), "{error}");
    assert_eq!(
        wire.refused("quack.tool", json!({"tool": "bash", "sessionId": "nobody"})),
        "Session not found: nobody"
    );
}

#[test]
fn abort_ends_every_call_of_the_session_and_only_there() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    assert_eq!(wire.refused("abort", json!({})), "No active session to abort");
    let other = wire.attach(daemon.repo("b").path());
    let session = wire.attach(daemon.repo("a").path());
    assert_eq!(wire.refused("abort", json!({})), "No running operation to abort");
    assert_eq!(wire.refused("abort", json!({"sessionId": "x"})), "Session not found: x");

    let second_wire = daemon.wire();
    let undisturbed =
        json!({"toolName": "bash", "arguments": "\"sleep 1; echo done\"", "sessionId": other.id});
    let undisturbed = second_wire.begin("voice_tool_call", &undisturbed);
    let calls = [
        session.begin("bash", json!("echo begun; sleep 60")),
        session.begin("bash", json!("trap '' TERM; sleep 60")),
    ];
    wait_for("both shells to have started their sleeps", || {
        let below = crate::harness::descendants_of(session.pid("pid"));
        (below.iter().filter(|process| process.name == "sleep").count() == 2).then_some(())
    });
    let mut data = wire.request("abort", json!({"sessionId": session.id}));
    let ended = data.as_object_mut().unwrap().remove("ended").unwrap();
    assert_eq!((&ended[0]["tool"], &ended[1]["tool"]), (&json!("bash"), &json!("bash")));
    assert_eq!(
        data,
        json!({"sessionId": session.id, "sessionName": "duck-1", "calls": 2, "turn": false})
    );
    for call in calls {
        let text = call.text();
        assert!(text.contains("[Process aborted]"), "{text}");
        assert!(text.ends_with("[Exit code: unknown]"), "{text}");
    }
    assert_eq!(undisturbed.text(), "done\n\n[Exit code: 0]");
    assert_eq!(
        wire.refused("abort", json!({"sessionId": session.id})),
        "No running operation to abort"
    );
    assert_eq!(session.bash("echo next"), "next\n\n[Exit code: 0]");
}

#[test]
fn ps_shows_the_tree_as_it_is() {
    needs!(Monitor);
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let slow = session.begin("bash", json!("sleep 60"));
    let worker = wait_for("the call to be in flight", || {
        let worker = session.worker();
        (worker["state"] == "busy").then_some(worker)
    });
    assert_eq!(worker["calls"][0]["tool"], "bash");
    assert_eq!(worker["calls"][0]["deadlineMs"], 30_000);
    assert_eq!((&worker["policy"], &worker["restarts"]), (&json!("workspace-write"), &json!(0)));
    let tier = worker["tier"].as_str().unwrap();
    assert!(["A", "B", "D", "M"].contains(&tier), "{tier}");
    let (pid, monitor) = (session.pid("pid"), session.pid("monitorPid"));
    let found = crate::harness::Process::find(pid).expect("the worker");
    let above = crate::harness::Process::find(found.parent).expect("the process above the worker");
    let is_below = found.parent == monitor || above.parent == monitor;
    assert!(is_below, "the worker is the child of the monitor, or of process 1 below it");
    let found = crate::harness::Process::find(monitor).expect("the monitor");
    assert_eq!(found.parent, daemon.pid(), "the monitor is the daemon's child");

    let ps = wire.request("quack.ps", json!({}));
    assert_eq!(ps["supervisor"]["pid"], daemon.pid());
    assert_eq!(ps["supervisor"]["sessions"], 1);
    assert_eq!(ps["supervisor"]["socket"], daemon.socket().to_str().unwrap());
    assert!(ps["supervisor"]["rssKb"].as_u64().unwrap() < 64 * 1024, "{ps}");
    wire.request("abort", json!({}));
    slow.text();
}

#[test]
fn shutdown_is_answered_and_ends_the_daemon_cleanly() {
    let mut daemon = Daemon::start();
    let wire = daemon.wire();
    assert_eq!(wire.exchange(r#"{"id":"s","method":"quack.shutdown"}"#), r#"{"id":"s","ok":true}"#);
    assert_eq!(daemon.wait(), Some(0));
    assert!(!daemon.socket().exists());
    assert!(!daemon.app().join("duck-daemon.pid").exists());
}

#[test]
fn unknown_methods_are_named() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    assert_eq!(
        wire.exchange(r#"{"id":"u","method":"fly"}"#),
        r#"{"id":"u","ok":false,"error":"Unknown method: fly","code":"unknown_method"}"#
    );
    assert_eq!(wire.refused("quack.nothing", json!({})), "Unknown method: quack.nothing");
}

#[test]
fn pipelined_requests_that_do_not_wait_are_answered_in_order() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let mut lines = String::new();
    for n in 0..2000 {
        let method = ["ping", "sessions", "nonsense"][n % 3];
        lines.push_str(&format!("{{\"id\":{n},\"method\":\"{method}\"}}\r\n"));
    }
    let mut sender = wire.sender();
    std::thread::scope(|scope| {
        scope.spawn(|| sender.write(lines.as_bytes()));
        for n in 0..2000 {
            let reply: Value = serde_json::from_str(&wire.line().unwrap()).unwrap();
            assert_eq!(reply["id"], n);
        }
    });
}
