//! `quack jobs`, `quack tools`, `quack tool NAME --help`, and commands without a deadline.

use crate::harness::tier::needs;
use crate::harness::{Daemon, Terminal, wait_for};
use serde_json::{Value, json};
use std::process::Command;

fn at(daemon: &Daemon, repo: &crate::harness::Repo, args: &[&str]) -> Command {
    let mut command = daemon.command(args);
    command.current_dir(repo.path()).stdin(std::process::Stdio::null());
    command
}

fn ran(daemon: &Daemon, repo: &crate::harness::Repo, args: &[&str]) -> (Option<i32>, String) {
    let output = at(daemon, repo, args).output().unwrap();
    let texts = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    (output.status.code(), texts.concat())
}

#[test]
fn jobs_are_listed_followed_to_their_end_and_killed() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let (code, text) = ran(&daemon, &repo, &["jobs"]);
    assert!(code == Some(2) && text.contains("-C") && text.contains("--session"), "{text}");
    ran(&daemon, &repo, &["tool", "bash", "true"]);
    assert_eq!(ran(&daemon, &repo, &["jobs"]), (Some(0), "No background jobs\n".to_owned()));

    let script = daemon.gated("go", "printf 'two [Cursor: 3]'; exit 3");
    let script = format!("echo one; {script}");
    ran(&daemon, &repo, &["tool", "bash", "--detach", &script]);
    let (_, text) = ran(&daemon, &repo, &["jobs"]);
    assert!(text.starts_with("job-1  running for "), "{text}");
    let follower = crate::harness::Running::start(at(&daemon, &repo, &["jobs", "-f", "job-1"]));
    assert_eq!(follower.line(), "one");
    daemon.open_gate("go");
    assert_eq!(follower.line(), "two [Cursor: 3]");
    assert_eq!(follower.line(), "[Exit code: 3]");
    assert_eq!(follower.wait().0, Some(3));
    let (code, text) = ran(&daemon, &repo, &["jobs", "-f", "job-1"]);
    assert_eq!((code, text.as_str()), (Some(3), "one\ntwo [Cursor: 3]\n[Exit code: 3]\n"));

    ran(&daemon, &repo, &["tool", "bash", "--detach", "sleep 1000"]);
    let (code, text) = ran(&daemon, &repo, &["jobs", "kill", "job-2"]);
    assert!(code == Some(0) && text.contains("Ended background job job-2"), "{text}");
    let listed: Value = serde_json::from_str(&ran(&daemon, &repo, &["jobs", "--json"]).1).unwrap();
    assert_eq!(listed["jobs"][1]["running"], false);
    assert_eq!(ran(&daemon, &repo, &["jobs", "-f", "job-2"]).0, Some(143));
    let (code, text) = ran(&daemon, &repo, &["jobs", "-f", "job-9"]);
    assert!(code == Some(1) && text.contains("No background job 'job-9'"), "{text}");
    // Another directory has another session.
    let other = daemon.repo("b");
    assert_eq!(ran(&daemon, &other, &["jobs"]).0, Some(2));
}

#[test]
fn a_change_that_waits_is_shown_with_the_way_to_end_what_it_waits_for() {
    needs!(Namespaces);
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    session.bash("true");
    if !["A", "B"].contains(&session.worker()["tier"].as_str().unwrap()) {
        return;
    }
    assert_eq!(session.worker()["pending"], Value::Null);
    let set = |network: bool| {
        let params = json!({"action": "set", "sessionId": session.id, "profile": if network { "workspace-write" } else { "read-only" }});
        daemon.wire().request("quack.sandbox", params);
    };
    let running = daemon.wire();
    let call = json!({"sessionId": session.id, "tool": "bash", "arguments": "sleep 1000", "timeoutMs": 600_000});
    let call = running.begin("quack.tool", &call);
    wait_for("the call", || (session.worker()["state"] == "busy").then_some(()));
    set(false);
    let state = || wire.request("get_state", json!({"sessionId": session.id}))["worker"].clone();
    let remedy = "quack abort --session a";
    let pending =
        json!({"why": "its sandbox policy was changed", "calls": 1, "jobs": [], "remedy": remedy});
    assert_eq!((&state()["pending"], &session.worker()["pending"]), (&pending, &pending));
    for verb in ["state", "ps"] {
        let (_, text) = ran(&daemon, &repo, &[verb]);
        assert!(
            text.contains(
                "its sandbox policy was changed; a new worker starts when this has ended: 1 call."
            ),
            "{text}"
        );
        assert!(text.contains(remedy), "{text}");
    }
    let refused = session.call("bash", json!({"command": "true", "timeout_ms": 2000}));
    assert!(refused.contains("bash (for ") && refused.contains(remedy), "{refused}");
    let (code, text) = ran(&daemon, &repo, &["abort"]);
    assert!(code == Some(0) && text.starts_with("Ended 1 call (bash, "), "{text}");
    assert_eq!(call.reply()["data"]["aborted"], true);
    wait_for("the change", || state()["pending"].is_null().then_some(()));

    set(true);
    session.call("bash", json!({"command": "sleep 1000", "background": true}));
    set(false);
    let remedy = "quack jobs kill job-1 --session a";
    assert_eq!(
        (&state()["pending"]["jobs"], &state()["pending"]["remedy"]),
        (&json!(["job-1"]), &json!(remedy))
    );
    let refused = session.call("bash", json!({"command": "true", "timeout_ms": 2000}));
    assert!(refused.contains("job-1 still runs in it") && refused.contains(remedy), "{refused}");
    let (code, text) = ran(&daemon, &repo, &["abort"]);
    let named = "No running operation to abort; in the background: job-1 (sleep 1000), which `quack jobs kill job-1 --session a` ends";
    assert!(code == Some(1) && text.contains(named), "{text}");
    let (code, _) = ran(&daemon, &repo, &["jobs", "kill", "job-1"]);
    assert_eq!(code, Some(0));
    wait_for("the change", || state()["pending"].is_null().then_some(()));
    assert!(session.bash("echo now").starts_with("now"));
}

#[test]
fn a_command_at_a_terminal_has_no_deadline_unless_one_is_given() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let deadline = |args: &[&str]| {
        let mut command = daemon.command(args);
        command.current_dir(repo.path());
        let person = Terminal::start(command);
        let deadline = wait_for("the call to run", || {
            let ps = daemon.wire().request("quack.ps", json!({}));
            ps["workers"][0]["calls"][0]["deadlineMs"].as_u64()
        });
        person.interrupt();
        person.end();
        deadline
    };
    assert!(80_000_000 < deadline(&["tool", "bash", "sleep 1000"]));
    assert!(deadline(&["tool", "bash", "sleep 1000", "--timeout", "5m"]) <= 300_000);
    let own = r#"{"command":"sleep 1000","timeout_ms":200000}"#;
    assert!(deadline(&["tool", "bash", own]) <= 200_000);
    // A remote client and a call that is not streamed have the usual one.
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let call = json!({"sessionId": session.id, "tool": "bash", "arguments": "sleep 1000",
        "callId": "c", "noDeadline": true});
    let running = wire.begin("quack.tool", &call);
    let asked = wait_for("the call to run", || session.worker()["calls"][0]["deadlineMs"].as_u64());
    assert!(asked <= 30_000, "{asked}");
    daemon.wire().request("abort", json!({"sessionId": session.id}));
    running.reply();
    // The default of a client has the same bound as a deadline.
    let call = json!({"sessionId": session.id, "tool": "bash", "arguments": "sleep 1000",
        "callId": "d", "defaultTimeoutMs": 1_000_000_000_000_u64});
    let running = wire.begin("quack.tool", &call);
    let asked = wait_for("the call to run", || session.worker()["calls"][0]["deadlineMs"].as_u64());
    assert!(asked <= 600_000, "{asked}");
    daemon.wire().request("abort", json!({"sessionId": session.id}));
    running.reply();
}

#[test]
fn tools_are_listed_and_each_has_a_help() {
    let world = Daemon::absent();
    let text = world.quack(&["tools"]).ok();
    let listed = world.quack(&["tools", "--json"]).json();
    let names: Vec<&str> =
        listed["tools"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"bash") && names.contains(&"job_output"), "{names:?}");
    for name in names {
        assert!(text.contains(name), "{name}: {text}");
        let help = world.quack(&["tool", name, "--help"]).ok();
        assert!(help.contains(&format!("Usage: quack tool {name}")), "{help}");
    }
    let help = world.quack(&["tool", "job_output", "-h"]).ok();
    assert!(help.contains("wait_ms") && help.contains("required"), "{help}");
    assert!(world.quack(&["tool", "--help"]).ok().contains("quack tools"), "the way to the list");
}

#[test]
fn the_first_screen_of_help_has_at_most_forty_lines() {
    let world = Daemon::absent();
    for args in [&["--help"][..], &["-h"], &["help"]] {
        let help = world.quack(args).ok();
        assert!(help.lines().count() <= 40, "{}: {help}", help.lines().count());
        for group in ["Run", "Sessions", "Permissions", "Agents", "Daemon"] {
            assert!(help.lines().any(|line| line == group), "{group}: {help}");
        }
        assert!(!help.contains('\u{1b}'), "no colors in a pipe");
    }
}

#[test]
fn a_grant_without_effect_and_denied_requests_are_shown_as_such() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    ran(&daemon, &repo, &["tool", "bash", "true"]);
    ran(&daemon, &repo, &["sandbox", "allow", "example.com"]);
    let (_, shown) = ran(&daemon, &repo, &["sandbox", "show"]);
    assert!(shown.contains("example.com") && !shown.contains("not in force"), "{shown}");
    ran(&daemon, &repo, &["sandbox", "set", "--network", "off"]);
    let (_, shown) = ran(&daemon, &repo, &["sandbox", "show"]);
    assert!(shown.contains("not in force: the network is off"), "{shown}");
    let (_, shown) = ran(&daemon, &repo, &["sandbox", "network"]);
    assert!(shown.contains("`quack sandbox denials --session a`"), "{shown}");
}
