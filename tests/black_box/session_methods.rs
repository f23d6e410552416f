//! Reading and changing sessions over the wire: `workspaces`, `activate_session`, `get_state`,
//! `quack.session_new`, `quack.session_delete`, `doctor`, `quack.config`.

use crate::harness::Daemon;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn workspaces_lists_every_workspace_with_its_sessions() {
    let daemon = Daemon::start();
    let (repo_a, repo_b) = (daemon.repo("a"), daemon.repo("b"));
    let wire = daemon.wire();
    assert_eq!(wire.request("workspaces", json!({})), json!({"workspaces": []}));
    let a = wire.attach(repo_a.path());
    let b = wire.attach(repo_b.path());
    a.bash("true");
    let second =
        wire.request("quack.session_new", json!({"path": repo_a.path(), "name": "review"}));
    // The params are optional.
    let line = wire.exchange(r#"{"id":"x","method":"workspaces"}"#);
    let reply: Value = serde_json::from_str(&line).unwrap();
    let workspaces = reply["data"]["workspaces"].as_array().unwrap();
    assert_eq!(workspaces.len(), 2);
    let first = &workspaces[0];
    assert_eq!(keys(first), ["id", "lastActiveSessionId", "path", "sessionCount", "sessions"]);
    assert_eq!(first["path"], a.path);
    assert_eq!((&first["lastActiveSessionId"], &first["sessionCount"]), (&json!(a.id), &json!(2)));
    assert_eq!(
        keys(&first["sessions"][0]),
        ["id", "isActive", "isRunning", "lastActiveAt", "name"]
    );
    assert_eq!(first["sessions"][0]["isRunning"], true);
    assert_eq!(first["sessions"][1]["id"], second["session"]["id"]);
    assert_eq!(first["sessions"][1]["name"], "review");
    assert_eq!(first["sessions"][1]["isRunning"], false);
    assert_eq!(workspaces[1]["sessions"][0]["id"], b.id);
    assert_eq!(workspaces[1]["sessions"][0]["isActive"], true);
}

#[test]
fn a_session_is_activated_by_any_reference_and_stays_so() {
    let mut daemon = Daemon::start();
    let (repo_a, repo_b) = (daemon.repo("a"), daemon.repo("b"));
    let wire = daemon.wire();
    let a = wire.attach(repo_a.path());
    wire.attach(repo_b.path());
    assert_eq!(wire.refused("activate_session", json!({"sessionId": "x"})), "Session not found: x");
    assert_eq!(wire.refused("activate_session", json!({})), "Session not found: ");
    let data = wire.request("activate_session", json!({"sessionId": a.id}));
    assert_eq!(keys(&data), ["session", "workspace"]);
    assert_eq!(keys(&data["session"]), ["id", "name", "workspaceId"]);
    assert_eq!(
        (&data["session"]["id"], &data["workspace"]["path"]),
        (&json!(a.id), &json!(a.path))
    );
    assert_eq!(data["session"]["workspaceId"], data["workspace"]["id"]);
    // The change was on disk before the reply.
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    daemon.boot();
    let state = daemon.wire().request("get_state", json!({}));
    assert_eq!(state["sessionId"], a.id);
}

#[test]
fn the_state_of_a_session_names_its_worker() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    assert_eq!(wire.refused("get_state", json!({})), "No active session");
    assert_eq!(wire.refused("get_state", json!({"sessionId": "x"})), "Session not found: x");
    let made = wire.request("quack.session_new", json!({"path": repo.path(), "safeMode": true}));
    let id = &made["session"]["id"];
    assert_eq!(
        wire.request("get_state", json!({"sessionId": id})),
        json!({
            "sessionId": id, "sessionName": "duck-1", "isRunning": false, "safeMode": true,
            "worker": {"state": "absent", "pid": null, "restarts": 0, "tier": null, "policy": null},
            "status": "stopped", "statusWhy": "nobody has asked for it",
        })
    );
    let session = wire.attach(repo.path());
    session.bash("true");
    let mut state = wire.request("get_state", json!({}));
    assert!(0 < state["worker"]["pid"].take().as_i64().unwrap());
    assert_eq!(state["isRunning"], true);
    let tier = state["worker"]["tier"].take();
    assert!(["A", "B", "D", "M"].contains(&tier.as_str().unwrap()), "{tier}");
    assert_eq!(
        state["worker"],
        json!({
            "state": "ready", "pid": null, "restarts": 0, "tier": null, "policy": "read-only",
            "network": false,
        })
    );
}

#[test]
fn a_workspace_has_as_many_sessions_as_are_wanted_and_each_has_a_name_of_its_own() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let first = wire.attach(repo.path());
    let new = |params: Value| {
        let mut all = json!({"path": repo.path()});
        all.as_object_mut().unwrap().extend(params.as_object().unwrap().clone());
        wire.reply("quack.session_new", all)
    };
    let second = new(json!({}));
    assert_eq!(second["data"]["session"]["name"], "duck-2");
    assert_eq!(second["data"]["workspace"]["path"], first.path);
    assert_eq!(
        new(json!({"name": "DUCK-2"}))["error"],
        "A session of this name exists already in the workspace: DUCK-2"
    );
    for name in ["", "  ", " a", &"x".repeat(101)] {
        let error = "Session name must be 1 to 100 printable characters";
        assert_eq!(new(json!({"name": name}))["error"], error, "{name:?}");
    }
    // Both sessions run concurrently, each in its own worker.
    let id = second["data"]["session"]["id"].as_str().unwrap();
    let call = first.begin("bash", json!(daemon.gated("go", "echo first")));
    let data = wire.request(
        "quack.tool",
        json!({"tool": "bash", "arguments": "echo second", "sessionId": id}),
    );
    assert_eq!(data["text"], "second\n\n[Exit code: 0]");
    daemon.open_gate("go");
    assert_eq!(call.text(), "first\n\n[Exit code: 0]");
    // Creating a session does not change the active session, unless requested.
    assert_eq!(wire.request("get_state", json!({}))["sessionId"], first.id);
    let third = new(json!({"name": "three", "activate": true}));
    assert_eq!(wire.request("get_state", json!({}))["sessionId"], third["data"]["session"]["id"]);
    assert_eq!(wire.attach(repo.path()).name, "three", "the one that was last active");
}

#[test]
fn a_deleted_session_is_gone_for_good_and_leaves_the_others_alone() {
    let mut daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    assert_eq!(wire.refused("quack.session_delete", json!({})), "Session reference is required");
    let refused = wire.refused("quack.session_delete", json!({"sessionId": "x"}));
    assert_eq!(refused, "Session not found: x");
    let first = wire.attach(repo.path());
    let second = wire.request("quack.session_new", json!({"path": repo.path(), "safeMode": true}));
    first.bash("true");
    let worker = first.pid("monitorPid");
    let data = wire.request("quack.session_delete", json!({"sessionId": first.id}));
    let session = json!({"id": first.id, "name": "duck-1"});
    assert_eq!(data, json!({"session": session, "label": "a", "callsEnded": 0}));
    assert!(nix::sys::signal::kill(nix::unistd::Pid::from_raw(worker), None).is_err(), "it ended");
    // The other session became active.
    let state = wire.request("get_state", json!({}));
    assert_eq!(state["sessionId"], second["session"]["id"]);
    let id = second["session"]["id"].as_str().unwrap();
    wire.request("quack.session_delete", json!({"sessionId": id}));
    assert_eq!(wire.refused("get_state", json!({})), "No active session");
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    daemon.boot();
    let wire = daemon.wire();
    assert_eq!(wire.request("sessions", json!({"all": true})), json!({"sessions": []}));
    assert_eq!(wire.request("workspaces", json!({}))["workspaces"][0]["sessionCount"], 0);
    assert_eq!(wire.attach(repo.path()).name, "duck-1");
}

#[test]
fn safe_mode_and_the_count_of_deaths_outlive_the_daemon() {
    let mut daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let data = wire.request("attach", json!({"path": repo.path(), "safeMode": true}));
    let id = data["session"]["id"].as_str().unwrap().to_owned();
    let session = wire.attach(repo.path());
    let refused = "Error: write_file is disabled in safe mode";
    assert_eq!(session.call("write_file", json!({"path": "x", "content": ""})), refused);
    let worker = nix::unistd::Pid::from_raw(session.pid("pid"));
    nix::sys::signal::kill(worker, Signal::SIGKILL).unwrap();
    crate::harness::wait_for("the death to be counted", || {
        let state = wire.request("get_state", json!({}));
        (state["worker"]["restarts"] == 1).then_some(())
    });
    daemon.signal(Signal::SIGTERM);
    daemon.wait();
    daemon.boot();
    let wire = daemon.wire();
    let state = wire.request("get_state", json!({"sessionId": id}));
    assert_eq!((&state["safeMode"], &state["worker"]["restarts"]), (&json!(true), &json!(1)));
    let session = wire.attach(repo.path());
    assert_eq!(session.call("write_file", json!({"path": "x", "content": ""})), refused);
    wire.request("attach", json!({"path": repo.path(), "safeMode": false}));
    let written = session.call("write_file", json!({"path": "x", "content": ""}));
    assert_eq!(written, "Successfully wrote 0 bytes to x");
}

#[test]
fn doctor_says_what_is_wrong_and_what_to_do() {
    let mut daemon = Daemon::absent();
    std::fs::create_dir(daemon.app()).unwrap();
    std::fs::write(daemon.app().join("metadata.json"), "{broken").unwrap();
    daemon.boot();
    let wire = daemon.wire();
    let check = |name: &str| {
        let data = wire.request("doctor", json!({}));
        let checks = data["checks"].as_array().unwrap();
        checks.iter().find(|check| check["name"] == name).unwrap().clone()
    };
    let data = wire.request("doctor", json!({}));
    let names: Vec<&str> =
        data["checks"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "daemon",
            "pi",
            "pi_model",
            "socket",
            "config",
            "log",
            "disk",
            "metadata",
            "sandbox",
            "processes",
            "environment",
            "obeyed",
            "providers",
            "model",
            "web_search",
            "sessions",
            "supervision",
            "remote",
            "executable"
        ]
    );
    for check in data["checks"].as_array().unwrap() {
        let has_hint = check.get("hint").is_some();
        assert_eq!(has_hint, check["status"] != "ok", "what is not well says what to do: {check}");
    }
    assert_eq!(check("metadata")["status"], "fail");
    assert!(check("metadata")["hint"].as_str().unwrap().contains("metadata.json.corrupt-1"));
    assert_eq!(check("daemon")["status"], "ok");
    assert_eq!(check("web_search")["message"], "key found, asks api.exa.ai");
    assert_eq!(check("sandbox")["status"], "ok");
    assert_eq!(check("processes")["status"], "ok");

    daemon.configure("[log]\nlevel = \"debug\"\n");
    assert_eq!(check("config")["status"], "warn");
    // The daemon makes it again.
    crate::harness::wait_for("the missing socket to be told", || {
        std::fs::remove_file(daemon.socket()).ok();
        (check("socket")["status"] == "fail").then_some(())
    });
}

#[test]
fn the_configuration_in_force_is_told_with_its_origin() {
    let mut daemon = Daemon::absent();
    daemon.configure("[tools]\ndefault_timeout_s = 1\n");
    let file = daemon.app().join("quackd.toml");
    daemon.boot();
    let wire = daemon.wire();
    let data = wire.request("quack.config", json!({}));
    assert_eq!((&data["path"], &data["exists"]), (&json!(file), &json!(true)));
    let setting = |key: &str| {
        data["settings"].as_array().unwrap().iter().find(|s| s["key"] == key).unwrap().clone()
    };
    let origin = format!("{}:2", file.display());
    assert_eq!(
        setting("tools.default_timeout_s"),
        json!({"key": "tools.default_timeout_s", "value": 1, "origin": origin})
    );
    assert_eq!(setting("worker.idle_minutes")["origin"], "default");
    let session = wire.attach(daemon.repo("a").path());
    // The wait for a worker counts toward the deadline.
    session.bash("true");
    let text = session.bash("sleep 30");
    assert!(text.contains("[Process timed out after 1s and was terminated]"), "{text}");
}

#[test]
fn ignore_files_are_respected_if_the_configuration_says_so() {
    let daemon = Daemon::start_with("tools.respect_ignore_files = true\n");
    let repo = daemon.repo("a");
    repo.write(".gitignore", "out/\n");
    repo.write("out/made.rs", "needle\n");
    let wire = daemon.wire();
    let found = wire.attach(repo.path()).call("grep_search", json!("needle"));
    assert!(found.contains("src/main.rs") && !found.contains("out/"), "{found}");
}

#[test]
fn a_configuration_that_cannot_be_used_stops_the_start_and_names_its_line() {
    let daemon = Daemon::absent();
    daemon.configure("[worker]\nidle_minuts = 5\n");
    let run = daemon.quack(&["daemon"]);
    assert_eq!(run.code(), Some(3));
    let told = run.stderr();
    assert!(told.contains("quackd.toml:2"), "{told}");
    assert!(told.contains("did you mean `worker.idle_minutes`"), "{told}");
}
