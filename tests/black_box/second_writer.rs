//! P-12: an external writer rewrites `metadata.json` while the daemon runs, like the macOS app.

use crate::harness::{Daemon, KillOnDrop, one_takes_less_than, program, wait_for};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// The external writer, until [`App::end`].
struct App(KillOnDrop);

impl App {
    fn start(daemon: &Daemon, pause_ms: u32, held_ms: u32) -> Self {
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/second_writer.py");
        let child = program("python3")
            .arg(script)
            .arg(daemon.app().join("metadata.json"))
            .args([&pause_ms.to_string(), &held_ms.to_string(), "rename"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        Self(child.expect("start python3").into())
    }

    /// Stops the writer. Returns the ids of the sessions that it created, and of those that it renamed then.
    fn end(mut self) -> (Vec<String>, Vec<String>) {
        drop(self.0.stdin.take());
        let stdout = self.0.stdout.take().expect("a pipe");
        let (mut made, mut renamed) = (Vec::new(), Vec::new());
        for line in BufReader::new(stdout).lines() {
            for word in line.expect("ids").split(' ') {
                match word.strip_suffix("=renamed") {
                    Some(id) => renamed.push(id.to_owned()),
                    None => made.push(word.to_owned()),
                }
            }
        }
        assert!(self.0.wait().expect("wait").success());
        (made, renamed)
    }
}

fn on_disk(daemon: &Daemon) -> Value {
    let bytes = std::fs::read(daemon.app().join("metadata.json")).unwrap_or_default();
    serde_json::from_slice(&bytes).expect("a whole file")
}

fn ids(sessions: &Value) -> BTreeSet<String> {
    let sessions = sessions["sessions"].as_array().expect("sessions");
    sessions.iter().map(|it| it["id"].as_str().expect("an id").to_owned()).collect()
}

/// Changes the file once, like the app.
fn edit(daemon: &Daemon, change: impl FnOnce(&mut Value)) {
    let mut file = on_disk(daemon);
    change(&mut file);
    put(daemon, &file.to_string());
}

#[expect(clippy::disallowed_methods, reason = "it is the other program that renames here")]
fn put(daemon: &Daemon, text: &str) {
    let new = daemon.app().join("metadata.json.app");
    std::fs::write(&new, text).expect("a file");
    std::fs::rename(new, daemon.app().join("metadata.json")).expect("rename");
}

fn add(file: &mut Value, id: &str) {
    let workspace = file["workspaces"][0]["id"].clone();
    let session = json!({"id": id, "workspaceId": workspace, "name": format!("name of {id}")});
    file["sessions"].as_array_mut().expect("sessions").push(session);
}

fn remove(file: &mut Value, id: &str) {
    file["sessions"].as_array_mut().expect("sessions").retain(|session| session["id"] != id);
}

/// Starts the daemon again, as after an orderly end long after the last change.
fn start_settled(daemon: &mut Daemon) {
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    let path = daemon.app().join("quackd-state.json");
    let mut state: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    state["settled"] = json!(true);
    state.as_object_mut().unwrap().remove("earlier");
    std::fs::write(path, state.to_string()).unwrap();
    daemon.boot();
}

fn listed(daemon: &Daemon) -> BTreeSet<String> {
    ids(&daemon.wire().request("sessions", json!({"all": true})))
}

/// The ids of the sessions whose name the writer has changed.
fn listed_as_renamed(daemon: &Daemon) -> BTreeSet<String> {
    let mut sessions = daemon.wire().request("sessions", json!({"all": true}));
    let all = sessions["sessions"].as_array_mut().expect("sessions");
    all.retain(|it| it["name"].as_str().expect("a name").ends_with(" again"));
    ids(&sessions)
}

#[test]
fn a_session_that_the_app_has_made_can_be_used_at_once() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let repo = daemon.repo("a");
    let first = wire.attach(repo.path());
    // No file notification can arrive in time: the unknown reference itself makes the daemon read
    // the file.
    edit(&daemon, |file| add(file, "APP-1"));
    let followed = wire.request("follow", json!({"sessionId": "APP-1"}));
    assert_eq!(followed["sessionName"], "name of APP-1");
    edit(&daemon, |file| add(file, "APP-2"));
    let params = json!({"sessionId": "APP-2"});
    assert_eq!(wire.request("activate_session", params)["session"]["id"], "APP-2");
    edit(&daemon, |file| add(file, "APP-3"));
    let params = json!({
        "callId": "c", "toolName": "bash", "arguments": json!({"command": "pwd"}).to_string(),
        "sessionId": "APP-3",
    });
    let answer = wire.request("voice_tool_call", params);
    assert!(answer["result"].as_str().unwrap().contains(&first.path), "{answer}");
    let wanted = BTreeSet::from([first.id.clone(), "APP-1".into(), "APP-2".into(), "APP-3".into()]);
    assert_eq!(ids(&on_disk(&daemon)), wanted);
}

#[test]
fn what_the_app_changes_is_listed_within_two_seconds() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let first = wire.attach(daemon.repo("a").path());
    let mut n = 0;
    one_takes_less_than(Duration::from_secs(2), || {
        n += 1;
        let (app, renamed) = (format!("app-{n}"), json!(format!("renamed-{n}")));
        let begin = Instant::now();
        edit(&daemon, |file| {
            add(file, &app);
            file["sessions"][0]["name"] = renamed.clone();
            file["activeVoiceSessionId"] = json!(app);
        });
        wait_for("what the app has written", || {
            let sessions = wire.request("sessions", json!({"all": true}));
            let name = |id: &str| {
                let found =
                    sessions["sessions"].as_array().unwrap().iter().find(|it| it["id"] == id);
                found.map(|it| (it["name"].clone(), it["isActive"].clone()))
            };
            let is_there = name(&first.id) == Some((renamed.clone(), json!(false)))
                && name(&app) == Some((json!(format!("name of {app}")), json!(true)));
            is_there.then_some(())
        });
        begin.elapsed()
    });
    let checks = wire.request("doctor", json!({}));
    let metadata =
        checks["checks"].as_array().unwrap().iter().find(|check| check["name"] == "metadata");
    assert_eq!(
        metadata.unwrap()["message"],
        format!("{} sessions", n + 1),
        "a watch, and no polling"
    );
}

#[test]
fn a_session_that_the_app_deletes_is_gone_unless_something_runs_in_it() {
    let mut daemon = Daemon::start();
    let workspace = daemon.repo("a");
    for name in ["idle", "busy", "other"] {
        daemon.wire().request("quack.session_new", json!({"path": workspace.path(), "name": name}));
    }
    // Simulates a session from before this run, which the app must have read.
    start_settled(&mut daemon);
    let wire = daemon.wire();
    let sessions = on_disk(&daemon)["sessions"].clone();
    let id = |name: &str| {
        let found = sessions.as_array().unwrap().iter().find(|it| it["name"] == name);
        found.unwrap()["id"].as_str().unwrap().to_owned()
    };
    let (idle, busy, other) = (id("idle"), id("busy"), id("other"));
    let params = json!({
        "callId": "c", "toolName": "bash", "sessionId": busy,
        "arguments": json!({"command": daemon.gated("go", "echo done")}).to_string(),
    });
    let running = wire.begin("voice_tool_call", &params);
    wait_for("the command to run", || {
        let ps = daemon.wire().request("quack.ps", json!({}));
        ps.to_string().contains("\"state\":\"busy\"").then_some(())
    });
    edit(&daemon, |file| {
        remove(file, &idle);
        remove(file, &busy);
    });
    let log = "kept, because something runs in it";
    wait_for("the deletion", || {
        let is_done = !listed(&daemon).contains(&idle) && ids(&on_disk(&daemon)).contains(&busy);
        is_done.then_some(())
    });
    daemon.open_gate("go");
    assert!(running.text().contains("done"));
    assert_eq!(listed(&daemon), BTreeSet::from([busy, other]));
    wait_for("the reason in the log", || {
        let text = daemon.log();
        (text.contains(log) || text.contains("changed here; kept")).then_some(())
    });
}

#[test]
fn a_file_that_the_app_has_spoilt_is_kept_aside_and_ours_is_there_again() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let first = wire.attach(daemon.repo("a").path());
    put(&daemon, "{\"version\": 1, \"sess");
    let aside = daemon.app().join("metadata.json.corrupt-1");
    let kept = wait_for("the file to be moved", || std::fs::read_to_string(&aside).ok());
    assert_eq!(kept, "{\"version\": 1, \"sess");
    wait_for("ours", || daemon.app().join("metadata.json").exists().then_some(()));
    assert_eq!(ids(&on_disk(&daemon)), BTreeSet::from([first.id]));
    let data = wait_for("the doctor to say so", || {
        let data = wire.request("doctor", json!({}));
        data.to_string().contains("made metadata.json unusable").then_some(data)
    });
    assert!(data.to_string().contains("metadata.json.corrupt-1"), "{data}");
}

/// Writes only half of the file, in place, like a program that was killed during the write.
fn tear(daemon: &Daemon) -> Vec<u8> {
    let path = daemon.app().join("metadata.json");
    let torn = std::fs::read(&path).expect("the file");
    let torn = torn[..torn.len() / 2].to_vec();
    std::fs::write(&path, &torn).expect("write into it");
    torn
}

#[test]
fn what_another_program_has_half_written_into_the_file_loses_nothing_of_ours() {
    let mut daemon = Daemon::start();
    let mut made = BTreeSet::from([daemon.wire().attach(daemon.repo("a").path()).id]);
    for round in 1..=3 {
        made.insert(daemon.wire().attach(daemon.repo(&format!("b{round}")).path()).id);
        daemon.signal(Signal::SIGKILL);
        daemon.wait();
        let torn = tear(&daemon);
        daemon.boot();
        assert_eq!(listed(&daemon), made, "round {round}");
        let aside = daemon.app().join(format!("metadata.json.corrupt-{round}"));
        assert_eq!(std::fs::read(aside).unwrap(), torn, "round {round}");
    }
    // The same change while the daemon runs.
    made.insert(daemon.wire().attach(daemon.repo("c").path()).id);
    tear(&daemon);
    let aside = daemon.app().join("metadata.json.corrupt-4");
    wait_for("the file to be moved", || aside.exists().then_some(()));
    wait_for("ours", || daemon.app().join("metadata.json").exists().then_some(()));
    assert_eq!(ids(&on_disk(&daemon)), made);
}

/// Creates, renames and deletes sessions for `time`. Returns the ids of those that must remain.
fn work(daemon: &Daemon, round: usize, time: Duration) -> Vec<String> {
    let wire = daemon.wire();
    let repo = daemon.repo("a");
    let mut kept = vec![wire.attach(repo.path()).id];
    let end = Instant::now() + time;
    let mut n = 0;
    while Instant::now() < end {
        n += 1;
        let made = |name: &str| {
            let params = json!({"path": repo.path(), "name": format!("{name} {round} {n}")});
            wire.request("quack.session_new", params)["session"]["id"].as_str().unwrap().to_owned()
        };
        kept.push(made("kept"));
        let gone = made("gone");
        wire.request("quack.session_delete", json!({"sessionId": gone}));
        wire.request("activate_session", json!({"sessionId": kept.last()}));
    }
    kept
}

#[test]
fn nothing_of_either_is_lost_while_both_write_every_few_milliseconds() {
    let daemon = Daemon::start();
    daemon.wire().attach(daemon.repo("a").path());
    let apps = [(0, 2, 0), (1, 5, 8)].map(|(round, pause, held)| {
        let app = App::start(&daemon, pause, held);
        let kept = work(&daemon, round, Duration::from_secs(4));
        (app.end(), kept)
    });
    let (mut made, mut renamed) = (BTreeSet::new(), BTreeSet::new());
    for ((app, again), kept) in apps {
        assert!(app.len() > 5 && kept.len() > 5, "{} and {}", app.len(), kept.len());
        made.extend(app.into_iter().chain(kept));
        renamed.extend(again);
    }
    let there = wait_for("both to be the same", || {
        let (there, file) = (listed(&daemon), ids(&on_disk(&daemon)));
        (there == file && there.is_superset(&made)).then_some(there)
    });
    // No deleted session has come back either.
    assert_eq!(there, made, "{}", daemon.log());
    assert_eq!(listed_as_renamed(&daemon), renamed, "{}", daemon.log());
}

#[test]
fn a_daemon_that_is_killed_between_two_writers_loses_nothing_that_was_acknowledged() {
    let mut daemon = Daemon::start();
    daemon.wire().attach(daemon.repo("a").path());
    let (mut made, mut renamed) = (BTreeSet::new(), BTreeSet::new());
    for round in 0..8 {
        let app = App::start(&daemon, 2, 4);
        made.extend(work(&daemon, round, Duration::from_millis(300)));
        daemon.signal(Signal::SIGKILL);
        daemon.wait();
        let (app, again) = app.end();
        made.extend(app);
        renamed.extend(again);
        daemon.boot();
        let there = listed(&daemon);
        let lost: Vec<_> = made.difference(&there).collect();
        assert!(lost.is_empty(), "round {round}: {lost:?} of {there:?}\n{}", daemon.log());
        assert_eq!(listed_as_renamed(&daemon), renamed, "round {round}: {}", daemon.log());
    }
}

#[test]
fn a_deleted_session_that_the_app_puts_back_is_as_safe_as_it_was() {
    let mut daemon = Daemon::start();
    let repo = daemon.repo("a");
    let params =
        |name: &str, safe: bool| json!({"path": repo.path(), "name": name, "safeMode": safe});
    daemon.wire().request("quack.session_new", params("keep", false));
    let made = daemon.wire().request("quack.session_new", params("safe", true));
    let safe = made["session"]["id"].as_str().unwrap().to_owned();
    let old = on_disk(&daemon);
    daemon.wire().request("quack.session_delete", json!({"sessionId": safe}));
    // Rewrites quackd's own copy of the file, without the session.
    daemon.wire().request("quack.session_new", params("another", true));
    start_settled(&mut daemon);
    edit(&daemon, |file| *file = old);
    wait_for("the session to be back", || listed(&daemon).contains(&safe).then_some(()));
    let arguments = json!({"path": "new", "content": "x"}).to_string();
    let call = json!({
        "callId": "c", "toolName": "write_file", "arguments": arguments, "sessionId": safe,
    });
    let text = daemon.wire().begin("voice_tool_call", &call).text();
    assert!(text.starts_with("Error: ") && !repo.path().join("new").exists(), "{text}");
}

#[test]
fn a_deleted_workspace_that_the_app_puts_back_has_the_limits_of_its_policy() {
    let mut daemon = Daemon::start();
    let (repo, other) = (daemon.repo("a"), daemon.repo("b"));
    let session = daemon.wire().attach(repo.path()).id;
    daemon.wire().attach(other.path());
    let params = json!({
        "sessionId": session, "action": "set", "scope": "workspace", "profile": "read-only",
        "network": true,
    });
    daemon.wire().request("quack.sandbox", params);
    let old = on_disk(&daemon);
    // Simulates a session from before this run, which the app must have read.
    start_settled(&mut daemon);
    let path = repo.path().to_str().unwrap().to_owned();
    let has_it = |file: &Value| {
        file["workspaces"].as_array().unwrap().iter().any(|it| it["path"] == path.as_str())
    };
    edit(&daemon, |file| {
        remove(file, &session);
        file["workspaces"].as_array_mut().unwrap().retain(|it| it["path"] != path.as_str());
    });
    wait_for("the deletion", || (!listed(&daemon).contains(&session)).then_some(()));
    // A write without the session, so the next daemon does not know the session.
    daemon.wire().attach(daemon.repo("c").path());
    assert!(!has_it(&on_disk(&daemon)));
    start_settled(&mut daemon);
    edit(&daemon, |file| *file = old);
    wait_for("the session to be back", || listed(&daemon).contains(&session).then_some(()));
    let shown = daemon.wire().request("quack.sandbox", json!({"sessionId": session}));
    // A restored session does not restore permissions.
    assert_eq!(shown["layers"]["workspace"], json!({"profile": "read-only"}), "{shown}");
    assert_eq!(shown["policy"]["profile"], "read-only", "{shown}");
}
