//! `quack new`, `activate`, `delete`, `state` and `workspaces`.

use crate::harness::{Daemon, wait_for};
use nix::pty::openpty;
use serde_json::json;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Stdio;

#[test]
fn a_session_is_made_chosen_looked_at_and_deleted() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let dir = repo.path().to_str().unwrap();
    daemon.wire().attach(repo.path());

    let made = daemon.quack(&["new", dir, "--name", "review", "--safe", "--json"]).json();
    let id = made["session"]["id"].as_str().unwrap().to_owned();
    assert_eq!(
        (&made["session"]["name"], &made["workspace"]["path"]),
        (&json!("review"), &json!(dir))
    );
    let sessions = || daemon.wire().request("sessions", json!({"all": true}));
    let active = |name: &str| {
        let all = sessions();
        let mut rows = all["sessions"].as_array().unwrap().iter();
        rows.find(|row| row["name"] == name).unwrap()["isActive"] == true
    };
    assert!(active("duck-1") && !active("review"), "new ones are not active");
    let shown = daemon.quack(&["activate", "review"]).ok();
    assert_eq!(shown, format!("a/review  {dir}  is the active session.\n"));
    assert!(active("review") && !active("duck-1"));
    let made = daemon.quack(&["new", dir, "--activate"]).ok();
    assert!(made.starts_with(&format!("a/3  {dir}  ")), "{made}");
    assert!(active("duck-3"));

    let state = daemon.quack(&["state", "--session", "review", "--json"]).json();
    assert_eq!(
        (&state["sessionId"], &state["safeMode"], &state["worker"]["state"]),
        (&json!(id), &json!(true), &json!("absent"))
    );
    let shown = daemon.quack(&["state", "-C", dir]).ok();
    assert!(shown.starts_with("a/3  ") && shown.contains("\nworker      "), "{shown}");

    let deleted = daemon.quack(&["delete", "review", "--yes"]).ok();
    assert_eq!(deleted, "Deleted a/review.\n");
    assert_eq!(sessions()["sessions"].as_array().unwrap().len(), 2);
    let gone = daemon.quack(&["delete", &id, "--yes"]);
    assert_eq!(gone.code(), Some(1), "{gone:?}");
    assert!(gone.stderr().contains("Session not found"), "{gone:?}");
}

#[test]
fn workspaces_are_listed_with_their_sessions() {
    let daemon = Daemon::start();
    assert!(daemon.quack(&["workspaces"]).ok().starts_with("No workspaces yet."));
    assert_eq!(daemon.quack(&["workspaces", "--json"]).json(), json!([]));
    let (a, b) = (daemon.repo("a"), daemon.repo("b"));
    let wire = daemon.wire();
    wire.attach(a.path());
    wire.attach(b.path()).bash("true");
    daemon.quack(&["new", a.path().to_str().unwrap()]).ok();
    let rows = daemon.quack(&["workspaces", "--json"]).json();
    assert_eq!((&rows[0]["sessionCount"], &rows[1]["path"]), (&json!(2), &json!(b.path())));
    let table = daemon.quack(&["workspaces"]).ok();
    let cells: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(cells[0], ["WORKSPACE", "SESSIONS", "RUNNING", "LAST", "ACTIVE"], "{table}");
    assert_eq!(cells[1][..2], [a.path().to_str().unwrap(), "2"], "{table}");
    assert_eq!(cells[2][..4], [b.path().to_str().unwrap(), "◇", "1", "1"], "{table}");
}

#[test]
fn who_looks_at_a_directory_makes_no_session_in_it() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let run = daemon.quack(&["state", "-C", repo.path().to_str().unwrap()]);
    assert_eq!(run.code(), Some(2), "{run:?}");
    assert!(run.stderr().contains("has no session of yours"), "{run:?}");
    assert_eq!(daemon.wire().request("sessions", json!({"all": true}))["sessions"], json!([]));
}

#[test]
fn a_script_must_say_that_it_means_it_and_running_calls_need_force() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let refused = daemon.quack(&["delete", "duck-1"]);
    assert_eq!((refused.code(), refused.stdout()), (Some(2), String::new()), "{refused:?}");
    assert!(refused.stderr().contains("--yes"), "{refused:?}");
    let call = session.begin("bash", json!({"command": "sleep 60"}));
    wait_for("the call to run", || (session.worker()["state"] == "busy").then_some(()));
    let refused = daemon.quack(&["delete", "duck-1", "--yes"]);
    assert_eq!(refused.code(), Some(4), "{refused:?}");
    let deleted = daemon.quack(&["delete", "duck-1", "--force", "--json"]).json();
    assert_eq!(
        (&deleted["session"]["name"], &deleted["callsEnded"]),
        (&json!("duck-1"), &json!(1))
    );
    assert!(!call.text().is_empty());
}

#[test]
fn a_person_is_asked_and_may_say_no() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let repo = daemon.repo("a");
    wire.attach(repo.path());
    let answered = |answer: &str| {
        let pty = openpty(None, None).unwrap();
        let mut child = daemon
            .command(&["delete", "duck-1", "--color", "never"])
            .stdin(pty.slave.try_clone().unwrap())
            .stderr(pty.slave)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut terminal = File::from(pty.master);
        let mut asked = Vec::new();
        while !asked.ends_with(b"[y/N] ") {
            let mut byte = [0];
            assert_eq!(terminal.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&asked));
            asked.push(byte[0]);
        }
        writeln!(terminal, "{answer}").unwrap();
        let mut stdout = String::new();
        child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
        (String::from_utf8(asked).unwrap(), child.wait().unwrap().code(), stdout)
    };
    let question =
        format!("Delete session a of {}? The files there stay. [y/N] ", repo.path().display());
    assert_eq!(answered(""), (question.clone(), Some(1), String::new()));
    assert_eq!(answered("no"), (question.clone(), Some(1), String::new()));
    assert_eq!(wire.request("sessions", json!({}))["sessions"].as_array().unwrap().len(), 1);
    assert_eq!(answered("y"), (question, Some(0), "Deleted a.\n".to_owned()));
    assert_eq!(wire.request("sessions", json!({"all": true}))["sessions"], json!([]));
}

#[test]
fn long_and_strange_names_leave_a_table_a_table_and_scripts_have_all_of_them() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    daemon.wire().attach(repo.path());
    // The app may choose such a name; the daemon refuses it from a client.
    let name = format!("du\u{200e}ck\u{2028}\n{}", "漢字".repeat(500));
    let path = daemon.app().join("metadata.json");
    let metadata = std::fs::read_to_string(&path).unwrap();
    let named = serde_json::to_string(&name).unwrap();
    let changed = metadata.replace("\"duck-1\"", &named);
    assert_ne!(changed, metadata);
    std::fs::write(&path, changed).unwrap();
    let all = wait_for("the name to be known", || {
        let all = daemon.quack(&["sessions", "--json"]).json();
        (all[0]["name"] != "duck-1").then_some(all)
    });
    assert_eq!((&all[0]["name"], &all[0]["label"]), (&json!(name), &json!("a")));
    let table = daemon.quack(&["sessions"]).ok();
    assert!(table.lines().nth(1).unwrap().starts_with("a ◇  "), "{table}");
    // A second session in the workspace does not change the label.
    daemon.quack(&["new", repo.path().to_str().unwrap()]).ok();
    let all = daemon.quack(&["sessions", "--json"]).json();
    assert_eq!(all[0]["label"], "a", "{all}");
    assert_ne!(all[1]["label"], "a", "{all}");
    let table = daemon.quack(&["sessions"]).ok();
    assert_eq!(table.lines().count(), 3, "{table:?}");
    let state = daemon.quack(&["state", "--session", all[0]["id"].as_str().unwrap()]).ok();
    let first = state.lines().next().unwrap();
    assert!(first.starts_with("a  "), "{state}");
    assert!(first.chars().count() < 130, "{state}");
}

/// Runs `quack` in a directory. Returns its exit code, stdout and stderr.
fn quack_in(daemon: &Daemon, dir: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = daemon.command(args);
    let output = command.current_dir(dir).stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// The first session has the same name in every repository.
#[test]
fn a_name_that_several_sessions_have_means_the_one_of_the_directory_or_they_are_listed() {
    let daemon = Daemon::start();
    let (a, b) = (daemon.repo("a"), daemon.repo("b"));
    let wire = daemon.wire();
    let (first, second) = (wire.attach(a.path()), wire.attach(b.path()));
    let elsewhere = daemon.home();
    for args in [
        &["state", "--session", "duck-1"][..],
        &["activate", "duck-1"],
        &["follow", "--session", "duck-1"],
        &["tool", "bash", "true", "--session", "duck-1"],
        &["grep", "x", "--session", "duck-1"],
        &["say", "x", "--session", "duck-1"],
        &["abort", "--session", "duck-1"],
        &["pin", "duck-1"],
        &["unpin", "duck-1"],
        &["delete", "duck-1", "--yes"],
        &["sandbox", "show", "--session", "duck-1"],
        &["logs", "--session", "duck-1"],
    ] {
        let (code, stdout, stderr) = quack_in(&daemon, &elsewhere, args);
        // 1 of `grep` means that nothing was found.
        let expected = if args[0] == "grep" { 2 } else { 1 };
        assert_eq!((code, stdout.as_str()), (Some(expected), ""), "{args:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
        assert!(stderr.contains("means several sessions; use one of: a, b"), "{args:?}: {stderr}");
    }
    let state = |repo: &Path, name: &str| {
        let (code, stdout, stderr) =
            quack_in(&daemon, repo, &["state", "--session", name, "--json"]);
        assert_eq!(code, Some(0), "{stderr}");
        serde_json::from_str::<serde_json::Value>(&stdout).unwrap()["sessionId"].clone()
    };
    assert_eq!(state(a.path(), "duck-1"), first.id.as_str());
    assert_eq!(state(&b.path().join("src"), "DUCK-1"), second.id.as_str());
    assert_eq!(state(&elsewhere, &first.id), first.id.as_str());
    let (code, stdout, stderr) =
        quack_in(&daemon, a.path(), &["tool", "bash", "pwd", "--session", "duck-1"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(stdout.lines().next(), a.path().to_str());
    let (code, stdout, stderr) = quack_in(&daemon, b.path(), &["delete", "duck-1", "--yes"]);
    assert_eq!((code, stdout.as_str()), (Some(0), "Deleted b.\n"), "{stderr}");
    let left = wire.request("sessions", json!({"all": true}));
    assert_eq!(left["sessions"].as_array().unwrap().len(), 1, "{left}");
    assert_eq!(left["sessions"][0]["id"], first.id.as_str());
}

#[test]
fn without_a_reference_abort_and_pin_mean_the_session_of_the_directory_and_no_other() {
    let daemon = Daemon::start();
    let (a, b) = (daemon.repo("a"), daemon.repo("b"));
    let wire = daemon.wire();
    let (first, active) = (wire.attach(a.path()), wire.attach(b.path()));
    for (dir, verb, session) in [
        (a.path().join("src"), "pin", &first),
        (a.path().to_owned(), "unpin", &first),
        (b.path().join("src"), "pin", &active),
        (b.path().to_owned(), "unpin", &active),
    ] {
        let (code, stdout, stderr) = quack_in(&daemon, &dir, &[verb, "--json"]);
        assert_eq!(code, Some(0), "{verb} in {dir:?}: {stderr}");
        let pinned: serde_json::Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(
            (&pinned["sessionId"], &pinned["pinned"]),
            (&json!(session.id), &json!(verb == "pin")),
            "in {dir:?}"
        );
    }
    let call = first.begin("bash", json!({"command": "sleep 60"}));
    wait_for("the command to run", || {
        daemon.descendants().iter().any(|process| process.name == "sleep").then_some(())
    });
    let (code, _, stderr) = quack_in(&daemon, &daemon.home(), &["abort"]);
    assert_eq!(code, Some(2), "the active session is not meant: {stderr}");
    let (code, stdout, stderr) = quack_in(&daemon, a.path(), &["abort"]);
    let is_named = stdout.starts_with("Ended 1 call (bash, ") && stdout.ends_with(") of a.\n");
    assert!(code == Some(0) && is_named, "{stdout}{stderr}");
    let text = call.text();
    assert!(text.contains("[Process aborted]"), "{text}");
}

#[test]
fn what_the_last_stop_cut_short_is_shown_to_a_person_too() {
    let mut daemon = Daemon::start();
    let repo = daemon.repo("a");
    let id = {
        let wire = daemon.wire();
        let session = wire.attach(repo.path());
        let _cut = session.begin("bash", json!({"command": "sleep 60"}));
        wait_for("the call to run", || (session.worker()["state"] == "busy").then_some(()));
        daemon.quack(&["stop"]).ok();
        session.id.clone()
    };
    daemon.wait();
    daemon.boot();
    let shown = daemon.quack(&["state", "--session", &id]).ok();
    let cut = shown.lines().find(|line| line.starts_with("interrupted ")).unwrap_or(&shown);
    assert!(cut.starts_with("interrupted bash  by a stop of the daemon at "), "{shown}");
    daemon.quack(&["tool", "bash", "true", "--session", &id]).ok();
    let shown = daemon.quack(&["state", "--session", &id]).ok();
    assert!(!shown.contains("interrupted"), "{shown}");
}
