//! Resources shared by all sessions: command slots, background jobs, and disk space for long
//! outputs. A refusal states the reason. Sessions with few requests do not wait for sessions with
//! many.

use crate::harness::{Daemon, Session, wait_for};
use serde_json::{Value, json};
use std::path::Path;

/// Number of calls of a session that run in its worker or wait.
fn calls(session: &Session<'_>) -> usize {
    session.worker()["calls"].as_array().map_or(0, Vec::len)
}

/// Names in a directory.
/// Names in a directory, without the one for temporary files that some tiers have there.
fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name != "tmp").collect()
}

#[test]
fn who_asks_for_little_does_not_wait_for_who_asks_for_much() {
    let daemon = Daemon::start_with("[limits]\ncommands = 16\n");
    let (wire, other) = (daemon.wire(), daemon.wire());
    let (a, b) = (daemon.repo("a"), daemon.repo("b"));
    let (greedy, modest) = (wire.attach(a.path()), other.attach(b.path()));
    // One session gets at most twelve of the sixteen command slots; its other calls wait.
    let command = format!("echo x >> ran; {}", daemon.gated("go", "echo done"));
    let many: Vec<_> = (0..20).map(|_| greedy.begin("bash", json!({"command": command}))).collect();
    let ran = || std::fs::read_to_string(a.path().join("ran")).unwrap_or_default().len() / 2;
    wait_for("twelve of them to run", || (ran() == 12).then_some(()));
    assert_eq!(calls(&greedy), 20);
    assert_eq!(modest.bash("echo mine"), "mine\n\n[Exit code: 0]");
    assert_eq!(ran(), 12);
    // File tools need no command slot.
    assert_eq!(greedy.call("read_file", json!("ran")).len(), 24);
    daemon.open_gate("go");
    for call in many {
        assert_eq!(call.text(), "done\n\n[Exit code: 0]");
    }
    assert_eq!(ran(), 20);
}

#[test]
fn a_command_without_a_place_says_so_in_time_and_does_not_run() {
    let daemon = Daemon::start_with("[limits]\ncommands = 16\n");
    let (wire, other) = (daemon.wire(), daemon.wire());
    let (repo, second) = (daemon.repo("a"), daemon.repo("b"));
    let (session, free) = (wire.attach(repo.path()), other.attach(second.path()));
    let command = format!("echo x >> ran; {}", daemon.gated("go", "true"));
    let many: Vec<_> =
        (0..12).map(|_| session.begin("bash", json!({"command": command}))).collect();
    let ran = || std::fs::read_to_string(repo.path().join("ran")).unwrap_or_default().len() / 2;
    wait_for("twelve of them to run", || (ran() == 12).then_some(()));

    let params = |command: &str| {
        json!({
            "sessionId": session.id, "tool": "bash", "timeoutMs": 400,
            "arguments": {"command": command},
        })
    };
    let refused: Value = wire.request("quack.tool", params("touch never"));
    assert_eq!(
        refused["text"],
        "Error: Too many commands are running: 12 in all, 12 of them in this session \
         (limits.commands is 16). It was not run, try again"
    );
    assert_eq!((&refused["isError"], &refused["busy"]), (&json!(true), &json!(true)));
    // A waiting call can be aborted, and leaves no entry in the queue.
    let waiting = session.begin("bash", json!({"command": "touch never"}));
    wait_for("it to wait", || (calls(&session) == 13).then_some(()));
    other.request("abort", json!({"sessionId": session.id}));
    assert_eq!(waiting.text(), "Error: bash was aborted");
    for call in many {
        assert!(call.text().contains("[Process aborted]"));
    }
    assert_eq!(free.bash("echo free"), "free\n\n[Exit code: 0]");
    assert_eq!(session.bash("echo free"), "free\n\n[Exit code: 0]");
    assert!(!repo.path().join("never").exists());
}

#[test]
fn safe_mode_holds_for_a_command_that_waited_before() {
    // The profile is the same in safe mode: the running worker gets the command.
    let config = "[limits]\ncommands = 16\n[sandbox]\nprofile = \"read-only\"\n";
    let daemon = Daemon::start_with(config);
    let (wire, other) = (daemon.wire(), daemon.wire());
    let repo = daemon.repo("a");
    let session = wire.attach(repo.path());
    let slots = || other.request("quack.ps", json!({}))["supervisor"]["places"].clone();

    let command = json!({"command": daemon.gated("go", "echo done")});
    let many: Vec<_> = (0..12).map(|_| session.begin("bash", command.clone())).collect();
    wait_for("twelve of them to run", || (slots()["running"] == 12).then_some(()));
    let waiting = session.begin("bash", json!({"command": "echo unrestricted"}));
    wait_for("the last one to wait", || (slots()["waiting"] == 1).then_some(()));

    other.request("attach", json!({"path": repo.path(), "safeMode": true}));
    daemon.open_gate("go");
    assert_eq!(waiting.text(), "Error: Command not allowed in safe mode");
    for call in many {
        assert_eq!(call.text(), "done\n\n[Exit code: 0]");
    }
}

#[test]
fn background_jobs_are_counted_over_all_sessions() {
    let daemon = Daemon::start_with("[limits]\njobs = 2\n");
    let wire = daemon.wire();
    let (a, b) = (daemon.repo("a"), daemon.repo("b"));
    let (a, b) = (wire.attach(a.path()), wire.attach(b.path()));
    let job = json!({"command": "sleep 1004", "background": true});
    for session in [&a, &b] {
        assert!(session.call("bash", job.clone()).starts_with("Started background job job-1"));
    }
    assert_eq!(
        a.call("bash", job.clone()),
        "Error: 2 background jobs are running in all sessions, and there may be no more \
         (limits.jobs). It was not run; end one first"
    );
    assert_eq!(a.bash("echo foreground"), "foreground\n\n[Exit code: 0]");
    b.call("job_kill", json!("job-1"));
    wait_for("a job's place", || a.call("bash", job.clone()).starts_with("Started").then_some(()));
}

#[test]
fn old_outputs_are_deleted_when_all_of_them_are_too_long() {
    let daemon = Daemon::start_with("[limits]\nspill_mb = 64\n");
    let wire = daemon.wire();
    let repos = ["a", "b", "c"].map(|name| daemon.repo(name));
    let sessions = repos.each_ref().map(|repo| wire.attach(repo.path()));
    let run = |session: &Session<'_>| daemon.app().join("run").join(&session.id);
    // 30 MiB each: the third output exceeds the limit.
    for session in &sessions {
        let text = session.bash("head -c 31457280 /dev/zero | tr '\\0' x");
        assert!(text.contains("; full output: "), "{}", &text[text.len() - 200..]);
    }
    wait_for("the oldest output to be deleted", || {
        names(&run(&sessions[0])).is_empty().then_some(())
    });
    for session in &sessions[1..] {
        assert_eq!(names(&run(session)).len(), 1);
    }
}
