//! Limits of the private copies of isolated sessions: the size of a new copy, and the disk space of one and of all.

use crate::harness::{Cli, Daemon, Repo, wait_for};
use crate::isolated::{isolated, repository};
use serde_json::json;
use std::fs;

/// Creates a daemon with these limits, and a repository.
fn limited(limits: &str) -> (Daemon, Repo) {
    let daemon = Daemon::start_with(format!("[isolated]\n{limits}\n"));
    let repo = repository(&daemon);
    (daemon, repo)
}

fn bash(daemon: &Daemon, session: &str, command: &str) -> String {
    daemon.quack(&["tool", "bash", command, "--session", session]).ok()
}

fn write(daemon: &Daemon, session: &str) -> Cli {
    let arguments = json!({"path": "small.txt", "content": "small\n"}).to_string();
    daemon.quack(&["tool", "write_file", &arguments, "--session", session])
}

/// Waits until a file tool is refused. Returns its output.
#[track_caller]
fn refusal(daemon: &Daemon, session: &str) -> String {
    wait_for("a file tool to be refused", || {
        let written = write(daemon, session);
        (written.code() != Some(0)).then(|| format!("{}{}", written.stdout(), written.stderr()))
    })
}

/// Command that writes a file of 4.5 MB, which are 4.3 MiB.
const FILL: &str = "head -c 4500000 /dev/zero | tr '\\0' x > big.txt";

#[test]
fn a_full_copy_takes_no_more_until_a_command_frees_space() {
    let (daemon, repo) = limited("max_mb = 1");
    isolated(&daemon, &repo, "one");
    assert_eq!(write(&daemon, "one").code(), Some(0));
    bash(&daemon, "one", FILL);
    let refused = refusal(&daemon, "one");
    let expected = "Error: the session's copy is full: 1 MiB (isolated.max_mb). It was not run; \
                    delete files or raise the limit";
    assert!(refused.contains(expected), "{refused}");
    let state = daemon.quack(&["state", "one"]).ok();
    assert!(state.contains("a private copy of the workspace, 5 MiB; see quack diff"), "{state}");

    // A dry run writes nothing into the copy.
    let replaced = |dry_run: bool| {
        let arguments = json!({"pattern": "small", "replacement": "tiny", "dry_run": dry_run});
        daemon.quack(&["tool", "replace", &arguments.to_string(), "--session", "one"])
    };
    assert_eq!(replaced(true).code(), Some(0));
    assert_ne!(replaced(false).code(), Some(0));

    // A quarter above the limit, commands of agents and background jobs are refused. The user's commands run.
    let id = daemon.quack(&["state", "one", "--json"]).json()["sessionId"].clone();
    let wire = daemon.wire();
    wire.request("quack.hello", json!({"name": "agent"}));
    let call =
        json!({"sessionId": id, "tool": "bash", "arguments": {"command": "touch agent.txt"}});
    let refused = wire.request("quack.tool", call.clone());
    assert_eq!(refused["text"], expected);
    let job = daemon.quack(&["tool", "bash", "--detach", "sleep 600", "--session", "one"]);
    assert_ne!(job.code(), Some(0), "{}", job.stdout());
    let noted = bash(&daemon, "one", "ls");
    let line = "[Disk: the session's copy has 5 MiB, more than isolated.max_mb (1): delete files, or raise the limit]";
    assert!(noted.contains(line), "{noted}");
    assert!(!noted.contains("agent.txt"), "{noted}");

    // The answer of the command that frees space has no such line, and calls run at once.
    let freed = bash(&daemon, "one", "rm big.txt");
    assert!(!freed.contains("[Disk:"), "{freed}");
    assert_eq!(write(&daemon, "one").code(), Some(0));
    wire.request("quack.tool", call);
    assert!(bash(&daemon, "one", "ls").contains("agent.txt"));

    // The workspace itself is as before.
    for name in ["big.txt", "small.txt", "agent.txt"] {
        assert!(!repo.path().join(name).exists(), "{name}");
    }
    let stat = daemon.quack(&["diff", "--session", "one", "--stat"]).ok();
    assert_eq!(stat, "A  agent.txt\nA  small.txt\n");
}

#[test]
fn a_copy_that_cannot_be_measured_is_full_for_agents_until_the_user_removes_what_is_too_deep() {
    let (daemon, repo) = limited("max_mb = 100");
    isolated(&daemon, &repo, "one");
    bash(&daemon, "one", "for i in {1..300}; do mkdir deep && cd deep || exit 1; done");
    let refused = refusal(&daemon, "one");
    assert!(refused.contains("Error: the session's copy cannot be measured: "), "{refused}");

    let id = daemon.quack(&["state", "one", "--json"]).json()["sessionId"].clone();
    let wire = daemon.wire();
    wire.request("quack.hello", json!({"name": "agent"}));
    let call = json!({"sessionId": id, "tool": "bash", "arguments": {"command": "true"}});
    let refused = wire.request("quack.tool", call);
    assert!(refused["text"].as_str().unwrap().contains("cannot be measured"), "{refused}");
    let noted = bash(&daemon, "one", "ls");
    assert!(noted.contains("[Disk: the session's copy cannot be measured: "), "{noted}");

    let freed = bash(&daemon, "one", "rm -r deep");
    assert!(!freed.contains("[Disk:"), "{freed}");
    assert_eq!(write(&daemon, "one").code(), Some(0));
}

#[test]
fn copies_that_are_too_large_together_leave_no_room_for_another_one() {
    let (daemon, repo) = limited("total_mb = 2");
    let at = repo.path().to_str().unwrap();
    isolated(&daemon, &repo, "one");
    bash(&daemon, "one", FILL);
    let refused = refusal(&daemon, "one");
    let expected = "the copies of all isolated sessions are full: 2 MiB (isolated.total_mb)";
    assert!(refused.contains(expected), "{refused}");
    let another = daemon.quack(&["new", "--isolated", "--name", "two", at]);
    assert_eq!(another.code(), Some(1), "{}", another.stdout());
    assert!(another.stderr().contains("more than isolated.total_mb (2)"), "{}", another.stderr());
    // Sessions without a copy are not limited.
    daemon.quack(&["new", "--name", "plain", at]).ok();
    let written = write(&daemon, "plain");
    assert_eq!(written.code(), Some(0), "{written:?}");

    daemon.quack(&["discard", "one", "--yes"]).ok();
    isolated(&daemon, &repo, "two");
    for session in ["two", "one"] {
        let arguments = json!({"path": "other.txt", "content": "small\n"}).to_string();
        let written = daemon.quack(&["tool", "write_file", &arguments, "--session", session]);
        assert_eq!(written.code(), Some(0), "{session}: {written:?}");
    }
}

#[test]
fn a_workspace_that_is_too_large_is_refused_with_its_size_and_the_key() {
    let (daemon, repo) = limited("copy_files = 2");
    let at = repo.path().to_str().unwrap();
    let refused = daemon.quack(&["new", "--isolated", "--name", "one", at]);
    assert_eq!(refused.code(), Some(1), "{}", refused.stdout());
    let expected = "the workspace has 5 files, more than isolated.copy_files (2)";
    assert!(refused.stderr().contains(expected), "{}", refused.stderr());
    let left = fs::read_dir(daemon.app().join("isolated")).unwrap().count();
    assert_eq!(left, 0);
}

#[test]
fn a_discard_keeps_the_copy_if_the_workspace_has_become_too_large() {
    let (daemon, repo) = limited("copy_files = 5");
    isolated(&daemon, &repo, "one");
    assert_eq!(write(&daemon, "one").code(), Some(0));
    repo.write("extra.txt", "extra\n");
    let refused = daemon.quack(&["discard", "one", "--yes"]);
    assert_eq!(refused.code(), Some(1), "{}", refused.stdout());
    let expected = "the workspace has 6 files, more than isolated.copy_files (5)";
    assert!(refused.stderr().contains(expected), "{}", refused.stderr());
    assert_eq!(bash(&daemon, "one", "cat small.txt").lines().next(), Some("small"));
    let stat = || daemon.quack(&["diff", "--session", "one", "--stat"]).ok();
    assert_eq!(stat(), "A  small.txt\n");

    fs::remove_file(repo.path().join("extra.txt")).unwrap();
    daemon.quack(&["discard", "one", "--yes"]).ok();
    assert!(!stat().contains("small.txt"), "{}", stat());
    // The new copy does not have the file that the tool wrote into the old one.
    assert_eq!(write(&daemon, "one").code(), Some(0));
    let left = fs::read_dir(daemon.app().join("isolated")).unwrap().count();
    assert_eq!(left, 1);
}
