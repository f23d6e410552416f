//! Names of sessions: labels in every view, references in every subcommand and method, and the one
//! rule that selects the session of a subcommand.

use crate::harness::{Daemon, wait_for};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;

/// Runs a subcommand in a directory. Returns the exit code, stdout and stderr.
fn ran(daemon: &Daemon, dir: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = daemon.command(args);
    let output = command.current_dir(dir).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Starts a daemon with the sessions `api`, `web`, `web/review`, `lib` (in `work/lib`) and `home/lib`. `api` is the
/// active one. Returns the ids in this order.
fn world() -> (Daemon, Vec<String>) {
    let daemon = Daemon::start();
    let mut ids = Vec::new();
    let wire = daemon.wire();
    for name in ["api", "web", "", "work/lib", "home/lib"] {
        let (method, params) = match name {
            "" => {
                ("quack.session_new", json!({"path": daemon.repo("web").path(), "name": "review"}))
            }
            name => ("attach", json!({"path": daemon.repo(name).path(), "activate": false})),
        };
        let made = wire.request(method, params);
        ids.push(made["session"]["id"].as_str().unwrap().to_owned());
    }
    wire.request("activate_session", json!({"sessionId": ids[0]}));
    (daemon, ids)
}

const LABELS: [&str; 5] = ["api", "web", "web/review", "lib", "home/lib"];

#[test]
fn every_view_shows_labels_and_every_verb_accepts_them() {
    let (daemon, ids) = world();
    let dir = daemon.home();
    std::fs::create_dir_all(&dir).unwrap();
    let sessions = ran(&daemon, &dir, &["sessions"]).1;
    assert!(sessions.starts_with("SESSION") && sessions.contains("DIRECTORY"), "{sessions}");
    assert_eq!(sessions.lines().count(), 1 + LABELS.len(), "{sessions}");
    for label in LABELS {
        let is_row = |line: &str| line.split_whitespace().next() == Some(label);
        assert!(sessions.lines().any(is_row), "{label}: {sessions}");
    }
    assert_eq!(ran(&daemon, &dir, &["sessions", "--all"]).1, sessions);
    for (label, id) in LABELS.iter().zip(&ids) {
        let ok = |args: &[&str]| {
            let (code, stdout, stderr) = ran(&daemon, &dir, args);
            assert_eq!(code, Some(0), "{args:?}: {stderr}");
            (stdout, stderr)
        };
        let (state, _) = ok(&["state", "--session", label]);
        assert!(state.starts_with(&format!("{label}  {id}")), "{state}");
        let (shown, _) = ok(&["sandbox", "show", "--session", label]);
        assert!(shown.starts_with(&format!("{label}  ")), "{shown}");
        // The start of the id works, too.
        let (begun, _) = ok(&["sandbox", "show", "--session", &id[..id.len() - 1]]);
        assert_eq!(begun, shown);
        let (text, stderr) = ok(&["tool", "bash", "pwd", "--session", label]);
        let directory = label.split("/review").next().unwrap();
        assert!(
            text.lines().next().unwrap().ends_with(&format!("/{directory}")),
            "{label}: {text}"
        );
        assert_eq!(stderr, "", "the session was named");
        assert!(ok(&["pin", label]).0.starts_with(&format!("{label} stays")));
        assert!(ok(&["unpin", label]).0.starts_with(&format!("{label} ")));
        assert!(ok(&["activate", label]).0.starts_with(&format!("{label}  ")));
        ok(&["grep", "needle", "--session", label]);
        let ps = ok(&["ps"]).0;
        assert!(ps.contains(&format!("─ {label}  ")), "{ps}");
    }
    let log = ran(&daemon, &dir, &["logs", "--session", "api"]).1;
    assert!(log.contains(" session=api ") && !log.contains(&ids[0]), "{log}");
    let (_, made, _) = ran(&daemon, daemon.repo("api").path(), &["new", "--name", "fix"]);
    assert!(made.starts_with("api/fix  "), "{made}");
    let (_, deleted, _) = ran(&daemon, &dir, &["delete", "-y", "api/FIX"]);
    assert_eq!(deleted, "Deleted api/fix.\n");
    let (_, header, _) = ran(&daemon, daemon.repo("web").path(), &["--no-follow"]);
    assert!(header.starts_with("web/review  "), "the one that was activated last: {header}");
}

#[test]
fn an_ambiguous_or_wrong_reference_acts_nowhere_and_lists_what_can_be_said() {
    let (daemon, ids) = world();
    let dir = daemon.repo("elsewhere");
    for (reference, expected) in
        [("lib/duck-1", vec!["lib", "home/lib"]), ("duck-1", vec!["api", "web", "lib", "home/lib"])]
    {
        for verb in [
            &["tool", "bash", "touch acted", "--session"][..],
            &["replace", "needle", "thread", "--session"],
            &["delete", "-y"],
            &["activate"],
            &["pin"],
            &["abort", "--session"],
            &["say", "hello", "--session"],
            &["sandbox", "set", "--network", "on", "--session"],
            &["state", "--session"],
        ] {
            let (code, stdout, stderr) = ran(&daemon, dir.path(), &[verb, &[reference]].concat());
            assert_eq!((code, stdout.as_str()), (Some(1), ""), "{verb:?} {reference}: {stderr}");
            for label in &expected {
                assert!(stderr.contains(label), "{verb:?} {reference}: {stderr}");
            }
        }
    }
    for (wrong, hint) in [("ap", "did you mean `api`?"), ("revew", "did you mean `web/review`?")] {
        let (code, _, stderr) =
            ran(&daemon, dir.path(), &["tool", "bash", "touch acted", "--session", wrong]);
        assert_eq!(code, Some(1), "{stderr}");
        assert!(stderr.contains("Session not found: ") && stderr.contains(hint), "{stderr}");
    }
    for name in ["api", "web", "work/lib", "home/lib", "elsewhere"] {
        let repo = daemon.repo(name);
        assert!(!repo.path().join("acted").exists(), "{name}");
    }
    assert_eq!(
        daemon.wire().request("sessions", json!({"all": true}))["sessions"][0]["id"],
        ids[0]
    );
    // In the directory of a matching session, the name means that session.
    let (_, text, _) = ran(
        &daemon,
        daemon.repo("work/lib").path(),
        &["tool", "bash", "pwd", "--session", "duck-1"],
    );
    assert!(text.lines().next().unwrap().ends_with("/work/lib"), "{text}");
}

#[test]
fn methods_accept_labels_and_the_old_ones_keep_their_lookup_and_their_text() {
    let (daemon, ids) = world();
    let wire = daemon.wire();
    for (label, id) in LABELS.iter().zip(&ids) {
        for method in ["get_state", "follow", "quack.sandbox", "quack.pin"] {
            let data = wire.request(method, json!({"sessionId": label}));
            assert_eq!(data["sessionId"], id.as_str(), "{method} {label}");
        }
        let data = wire.request("activate_session", json!({"sessionId": label}));
        assert_eq!(data["session"]["id"], id.as_str(), "{label}");
        let found = wire.request("quack.find", json!({"sessionId": label}))["session"].clone();
        assert_eq!((&found["label"], &found["by"]), (&json!(label), &json!("reference")));
    }
    let names: Vec<Value> = wire.request("quack.ps", json!({}))["workers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|worker| json!([worker["sessionName"], worker["label"]]))
        .collect();
    assert!(names.contains(&json!(["duck-1", "web"])), "{names:?}");
    // The wire keeps the plain name, and upstream's text for an ambiguous name.
    assert_eq!(wire.request("get_state", json!({"sessionId": "api"}))["sessionName"], "duck-1");
    for method in ["get_state", "follow", "abort", "activate_session"] {
        let why = wire.refused(method, json!({"sessionId": "duck-1"}));
        assert_eq!(why, "Session not found: duck-1", "{method}");
    }
    let call = json!({"tool": "bash", "arguments": {"command": "true"}, "sessionId": "lib/duck-1"});
    let why = wire.refused("quack.tool", call);
    assert!(why.contains("lib, home/lib"), "{why}");
    // A directory has the same name as a session elsewhere: upstream's methods mean the session, quackd's the label.
    let other = wire.attach(daemon.repo("review").path()).id;
    assert_eq!(wire.request("get_state", json!({"sessionId": "review"}))["sessionId"], ids[2]);
    for reference in ["review", "review/duck-1"] {
        let found = wire.request("quack.find", json!({"sessionId": reference}));
        assert_eq!(found["session"]["sessionId"], other.as_str(), "{reference}");
    }
    // No session that is made later changes a label.
    let shown = |id: &str| {
        let sessions = wire.request("sessions", json!({"all": true}))["sessions"].take();
        let sessions = sessions.as_array().unwrap().clone();
        sessions.into_iter().find(|it| it["id"] == id).unwrap()["label"].take()
    };
    for (label, id) in LABELS.iter().zip(&ids) {
        assert_eq!(shown(id), *label);
    }
    assert_eq!(shown(&other), "review");
}

#[test]
fn a_verb_means_the_named_session_else_the_users_own_of_the_directory_and_never_another() {
    let (daemon, ids) = world();
    let plain = daemon.home().join("plain");
    std::fs::create_dir_all(plain.join("deep/er")).unwrap();
    let wire = daemon.wire();
    let made = wire.request("attach", json!({"path": plain, "activate": false}));
    let plain_id = made["session"]["id"].as_str().unwrap();
    // A directory without a session whose parents have none either.
    let bare = tempfile::tempdir().unwrap();
    let web = daemon.repo("web").path().join("src");
    let id_of = |dir: &Path| {
        let (code, text, stderr) = ran(&daemon, dir, &["state", "--json"]);
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{}", dir.display());
        let state: Value = serde_json::from_str(&text).unwrap();
        state["sessionId"].as_str().unwrap().to_owned()
    };
    assert_eq!(id_of(&web), ids[1]);
    assert_eq!(id_of(&plain.join("deep/er")), plain_id);
    for (dir, label) in [(web.as_path(), "web"), (&plain.join("deep/er"), "plain")] {
        for verb in [
            &["tool", "bash", "true"][..],
            &["pin"],
            &["unpin"],
            &["sandbox", "set", "--network", "off"],
            &["replace", "no such text", "x"],
            &["undo"],
            &["abort"],
            &["say", "hello"],
        ] {
            let (_, _, stderr) = ran(&daemon, dir, verb);
            let first = stderr.lines().next().unwrap_or_default();
            assert!(first.starts_with(&format!("session {label}  ")), "{verb:?}: {stderr}");
            let (_, _, stderr) = ran(&daemon, dir, &[verb, &["--json"]].concat());
            assert!(!stderr.contains("session "), "{verb:?} --json: {stderr}");
        }
    }
    refuses_without_a_session(&daemon, bare.path());
    let (code, text, _) = ran(&daemon, &plain.join("deep/er"), &["tool", "bash", "pwd"]);
    assert_eq!(
        (code, text.lines().next().unwrap()),
        (Some(0), plain.join("deep/er").canonicalize().unwrap().to_str().unwrap())
    );
    // A tool creates the session of its directory and does not change the active session.
    let (code, text, stderr) = ran(&daemon, bare.path(), &["tool", "bash", "pwd"]);
    let real = bare.path().canonicalize().unwrap();
    assert_eq!((code, text.lines().next().unwrap()), (Some(0), real.to_str().unwrap()), "{stderr}");
    let active = wire.request("quack.find", json!({}))["session"].take();
    assert_eq!((&active["sessionId"], &active["by"]), (&json!(ids[0]), &json!("active")));
}

/// Verbs that neither run nor say something.
const READING: &[&[&str]] = &[
    &["state"],
    &["pin"],
    &["unpin"],
    &["abort"],
    &["history"],
    &["export"],
    &["follow"],
    &["fork"],
    &["sandbox", "show"],
    &["sandbox", "denials"],
    &["sandbox", "network"],
    &["forward", "3000"],
];

/// Asserts that the verbs refuse in a directory without a session, which none of them creates, and that all verbs refuse
/// in directories that may have none, although another session is active.
#[track_caller]
fn refuses_without_a_session(daemon: &Daemon, bare: &Path) {
    for verb in READING {
        let (code, _, stderr) = ran(daemon, bare, verb);
        assert_eq!(code, Some(2), "{verb:?}: {stderr}");
        let names_both = stderr.contains("-C DIR") && stderr.contains("--session REF");
        assert!(names_both, "{verb:?}: {stderr}");
    }
    let running: &[&[&str]] =
        &[&["tool", "bash", "true"], &["replace", "needle", "x"], &["undo"], &["say", "hello"]];
    for dir in [Path::new("/"), Path::new("/usr/share"), &daemon.home()] {
        for verb in [READING, running].concat() {
            let (code, _, stderr) = ran(daemon, dir, verb);
            assert_eq!(code, Some(2), "{verb:?} in {}: {stderr}", dir.display());
            assert!(stderr.contains("-C DIR"), "{verb:?} in {}: {stderr}", dir.display());
        }
    }
}

#[test]
fn a_session_that_a_client_claimed_is_never_the_users_own_also_after_a_restart() {
    let mut daemon = Daemon::start();
    let repo = daemon.repo("proj");
    let agent = {
        let wire = daemon.wire();
        wire.request("quack.hello", json!({"name": "claude-code"}));
        let path = repo.path();
        wire.request("quack.claim", json!({"path": path}))["session"]["id"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let state = |daemon: &Daemon| {
        let (code, text, _) = ran(daemon, repo.path(), &["state", "--json"]);
        let state: Value = serde_json::from_str(&text).unwrap();
        (code, state["sessionId"].as_str().map(str::to_owned))
    };
    assert_eq!(state(&daemon), (Some(2), None), "the agent's is not the user's");
    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    daemon.wait();
    daemon.boot();
    assert_eq!(state(&daemon), (Some(2), None), "also after a restart");
    assert_eq!(ran(&daemon, repo.path(), &["tool", "bash", "true"]).0, Some(0));
    let own = state(&daemon).1.expect("a session of the user");
    assert_ne!(own, agent);
    // `quack` follows the user's own too.
    let (_, header, _) = ran(&daemon, repo.path(), &["--no-follow", "--json"]);
    let header: Value = serde_json::from_str(&header).unwrap();
    assert_eq!(header["session"]["id"], own.as_str());
    // The agent's session is reached by its name, as a word and as an option.
    for verb in [&["state", "proj/claude-code"][..], &["state", "--session", "claude-code"]] {
        let (code, text, stderr) = ran(&daemon, repo.path(), &[verb, &["--json"]].concat());
        assert_eq!(code, Some(0), "{stderr}");
        let state: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(state["sessionId"], agent.as_str(), "{verb:?}");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "nothing durable")]
fn a_label_stays_with_its_session_when_others_are_deleted_or_renamed_also_after_a_restart() {
    let mut daemon = Daemon::start();
    let made = |daemon: &Daemon, name: &str| {
        let params = json!({"path": daemon.repo(name).path(), "activate": false});
        let made = daemon.wire().request("attach", params);
        made["session"]["id"].as_str().unwrap().to_owned()
    };
    let labels = |daemon: &Daemon| {
        let sessions = daemon.wire().request("sessions", json!({"all": true}));
        let of = |it: &Value| (it["id"].as_str().unwrap().to_owned(), it["label"].clone());
        sessions["sessions"].as_array().unwrap().iter().map(of).collect::<BTreeMap<_, _>>()
    };
    let ids = ["shop", "c/shop", "d/shop"].map(|name| made(&daemon, name));
    assert_eq!(ran(&daemon, &daemon.home(), &["delete", "shop", "--yes"]).0, Some(0));
    let expected = |more: &[(&String, &str)]| {
        let all =
            [(&ids[1], "c/shop"), (&ids[2], "d/shop")].into_iter().chain(more.iter().copied());
        all.map(|(id, label)| (id.clone(), json!(label))).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(labels(&daemon), expected(&[]));
    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    daemon.wait();
    daemon.boot();
    assert_eq!(labels(&daemon), expected(&[]), "also after a restart");
    // The label is free for a session that is made now.
    let new = made(&daemon, "e/shop");
    assert_eq!(labels(&daemon), expected(&[(&new, "shop")]));
    // Another program, to which quackd's own state is unknown, renames a session.
    let path = daemon.app().join("metadata.json");
    let mut metadata: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let sessions = metadata["sessions"].as_array_mut().unwrap();
    sessions.iter_mut().find(|it| it["id"] == new.as_str()).unwrap()["name"] = json!("fix");
    let aside = path.with_extension("new");
    std::fs::write(&aside, metadata.to_string()).unwrap();
    std::fs::rename(&aside, &path).unwrap();
    // A reference that does not exist yet lets the daemon read the file.
    wait_for("the new name", || {
        let found = ran(&daemon, &daemon.home(), &["state", "--session", "e/shop/fix"]).0;
        (found == Some(0)).then_some(())
    });
    assert_eq!(labels(&daemon), expected(&[(&new, "shop/fix")]));
}
