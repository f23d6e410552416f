//! docs/switching.md: quackd uses the data of the Rubber Duck daemon, writes all data that the
//! other daemon reads, and the documented file makes `duck` start quackd.

use crate::harness::{Daemon, program, skipped, wait_for};
use crate::schema::succeeds;
use serde_json::{Value, json};
use std::path::Path;

/// Keys that upstream's daemon writes for a session, for a workspace, and at the top level.
const SESSION: [&str; 7] =
    ["id", "workspaceId", "name", "piSessionFile", "createdAt", "lastActiveAt", "isVoiceActive"];
const WORKSPACE: [&str; 4] = ["id", "path", "createdAt", "lastActiveSessionId"];
const WHOLE: [&str; 4] = ["version", "workspaces", "sessions", "activeVoiceSessionId"];

fn read(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn what_the_rubber_duck_daemon_has_left_is_taken_over_and_left_whole() {
    let mut daemon = Daemon::absent();
    let repo = daemon.repo("repo");
    let app = daemon.app();
    std::fs::create_dir_all(app.join("sessions")).unwrap();
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/metadata");
    let mut before = read(&Path::new(fixtures).join("upstream-0.1.24.metadata.json"));
    before["workspaces"][0]["path"] = json!(repo.path());
    before["sessions"][0]["ofANewerApp"] = json!({"kept": true});
    std::fs::write(app.join("metadata.json"), before.to_string()).unwrap();
    let config = json!({
        "version": 2, "logToStderr": false, "another": 1,
        "remote": {"enabled": false, "host": "0.0.0.0", "port": 43111, "authTokenHash": "ab", "authTokenSalt": "cd",
            "authTokenUpdatedAt": "2026-03-16T18:02:44.093Z", "tlsCertPath": null, "tlsKeyPath": null},
    });
    std::fs::write(app.join("config.json"), config.to_string()).unwrap();
    let history = app.join("sessions/0b9e6a34-5d2c-4f7b-8a11-c0ffee123456.jsonl");
    std::fs::write(&history, "{}\n").unwrap();

    daemon.boot();
    let wire = daemon.wire();
    let listed = wire.request("sessions", json!({"all": true}));
    assert_eq!(listed["sessions"].as_array().unwrap().len(), 2);
    // The last active session of the workspace, with its original id.
    let session = wire.attach(repo.path());
    assert_eq!(session.id, before["workspaces"][0]["lastActiveSessionId"].as_str().unwrap());
    let followed = wire.request("follow", json!({}));
    assert_eq!(
        (&followed["appHistoryExists"], &followed["appHistorySizeBytes"]),
        (&json!(true), &json!(3))
    );
    let made = wire.request("quack.session_new", json!({"path": repo.path(), "name": "new"}));
    let changed = wire.request("remote_configure", json!({"port": 43112}));
    assert_eq!(changed["status"]["host"], "0.0.0.0");
    assert_eq!(daemon.quack(&["stop"]).code(), Some(0));
    daemon.wait();

    let after = read(&app.join("metadata.json"));
    has_all(&after, &WHOLE);
    after["workspaces"].as_array().unwrap().iter().for_each(|it| has_all(it, &WORKSPACE));
    after["sessions"].as_array().unwrap().iter().for_each(|it| has_all(it, &SESSION));
    for (old, new) in
        before["sessions"].as_array().unwrap().iter().zip(after["sessions"].as_array().unwrap())
    {
        for (key, value) in
            old.as_object().unwrap().iter().filter(|(key, _)| *key != "lastActiveAt")
        {
            assert_eq!(&new[key], value, "{key} of {}", old["id"]);
        }
    }
    assert_eq!(after["sessions"][2]["id"], made["session"]["id"]);
    assert_eq!(after["sessions"][2]["isVoiceActive"], false);
    let mut expected = config;
    expected["remote"]["port"] = json!(43112);
    assert_eq!(read(&app.join("config.json")), expected);
    assert_eq!(std::fs::read_to_string(history).unwrap(), "{}\n");
}

#[track_caller]
fn has_all(value: &Value, keys: &[&str]) {
    let missing: Vec<_> = keys.iter().filter(|key| value.get(**key).is_none()).collect();
    assert!(missing.is_empty(), "no {missing:?} in {value}");
}

#[test]
fn the_file_that_is_put_beside_cli_js_starts_quackd() {
    if !succeeds("node", &["--version"]) {
        skipped("no node");
        return;
    }
    let document = crate::transcripts::read("docs/switching.md");
    let (_, code) = document.split_once("```js\n").expect("the file");
    let (code, _) = code.split_once("```").expect("its end");
    assert!(code.contains("\"/usr/local/bin/quack\""));
    let code = code.replace("/usr/local/bin/quack", env!("CARGO_BIN_EXE_quack"));
    // A package may have either type.
    for kind in ["module", "commonjs"] {
        let daemon = Daemon::absent();
        let package = daemon.home().join("package");
        std::fs::create_dir(&package).unwrap();
        std::fs::write(package.join("package.json"), json!({"type": kind}).to_string()).unwrap();
        std::fs::write(package.join("daemon.js"), &code).unwrap();
        let started = run_node(&daemon, &package.join("daemon.js"));
        assert!(started.status.success(), "{kind}: {}", String::from_utf8_lossy(&started.stderr));
        wait_for("the daemon to listen", || {
            std::os::unix::net::UnixStream::connect(daemon.socket()).ok()
        });
        assert_eq!(daemon.wire().request("ping", json!({}))["protocol"], 1);
        assert_eq!(daemon.quack(&["stop"]).code(), Some(0));
    }
}

/// Runs the file like `duck`.
fn run_node(daemon: &Daemon, file: &Path) -> std::process::Output {
    let like = daemon.command(&[]);
    let mut command = program("node");
    command.arg(file).arg("--verbose").env_clear();
    command.envs(like.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.output().unwrap()
}

#[test]
fn in_a_fresh_home_duck_finds_the_daemon_that_it_starts() {
    let daemon = Daemon::absent();
    let like = daemon.command(&["--daemon"]);
    let mut command = program(like.get_program());
    command.args(like.get_args()).env_clear().envs(
        like.get_envs()
            .filter(|(name, _)| *name != "RUBBER_DUCK_APP_SUPPORT")
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let mut child = command.stdin(std::process::Stdio::null()).spawn().unwrap();
    let app = daemon.home().join("Library/Application Support/RubberDuck");
    let stream = wait_for("the daemon to listen where `duck` looks", || {
        std::os::unix::net::UnixStream::connect(app.join("daemon.sock")).ok()
    });
    let wire = crate::harness::Wire::over(stream);
    assert_eq!(wire.request("ping", json!({}))["pid"], child.id());
    wire.request("quack.shutdown", json!({}));
    assert!(child.wait().unwrap().success());
}
