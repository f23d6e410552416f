//! States of a session's files are recorded after calls, listed and restored, also what commands changed.

use crate::harness::{Daemon, Repo, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs;

/// A daemon that records the states of every session, and a workspace without git.
fn daemon_for_all() -> (Daemon, Repo) {
    let mut daemon = Daemon::absent();
    daemon.configure("[keep]\ncheckpoints = \"all\"\n");
    let repo = daemon.repo("project");
    daemon.boot();
    (daemon, repo)
}

fn bash(daemon: &Daemon, session: &str, command: &str) {
    daemon.quack(&["tool", "bash", "--raw", command, "--session", session]).ok();
}

fn listed(daemon: &Daemon, session: &str) -> Vec<Value> {
    let listed = daemon.quack(&["checkpoints", session, "--json"]);
    assert_eq!(listed.code(), Some(0), "{}", listed.stderr());
    listed.json()["checkpoints"].as_array().unwrap().clone()
}

/// Waits until all changes of the call whose name contains `call` are recorded, of `n_files`. A state may be recorded while
/// it runs. Returns the number of the last state.
#[track_caller]
fn recorded(daemon: &Daemon, session: &str, call: &str, n_files: u64) -> u64 {
    wait_for(&format!("the states after {call}"), || {
        let all = listed(daemon, session);
        let mut of_call = all.iter().filter(|one| one["calls"].to_string().contains(call));
        let n: u64 = of_call.clone().map(|one| one["files"].as_u64().unwrap()).sum();
        (n_files <= n).then_some(of_call.next_back()?["number"].as_u64()?)
    })
}

#[test]
fn what_a_command_did_in_a_copy_is_listed_and_taken_back() {
    let daemon = Daemon::start();
    let repo = daemon.repo("project");
    let at = repo.path().to_str().unwrap();
    daemon.quack(&["new", "--isolated", "--name", "one", at]).ok();
    bash(&daemon, "one", "echo first > README.md; mkdir new; echo made > new/file; rm -r src");
    let first = recorded(&daemon, "one", "echo first", 3);
    assert_eq!(first, 1);
    bash(&daemon, "one", "cat README.md; rm -rf new; echo second > README.md");
    let second = recorded(&daemon, "one", "rm -rf new", 2);

    let shown = daemon.quack(&["checkpoints", "one", "--files"]).ok();
    assert!(shown.starts_with("   0  the state before\n"), "{shown}");
    assert!(shown.contains("3 files  bash: echo first > README.md;"), "{shown}");
    assert!(shown.contains("      D  new/file\n"), "{shown}");

    let changes = daemon.quack(&["changes", "one"]).ok();
    assert!(changes.contains("3 files  checkpoint 1\n    M  README.md\n"), "{changes}");
    let dry = daemon.quack(&["restore", "1", "--dry-run", "--session", "one"]).ok();
    assert_eq!(dry, "M  README.md\nA  new/file\nWould restore 2 files.\n");
    let done = daemon.quack(&["restore", "1", "--session", "one"]).ok();
    assert!(done.contains("Restored 2 files. The state before is in: quack checkpoints"), "{done}");
    let cat = ["tool", "bash", "--raw", "cat README.md new/file; ls", "--session", "one"];
    assert_eq!(daemon.quack(&cat).ok(), "first\nmade\nREADME.md\nnew\n");

    // The first state is the copy as it was made, and a restore can be taken back too.
    daemon.quack(&["restore", "0", "--session", "one"]).ok();
    let stat = daemon.quack(&["diff", "--session", "one", "--stat"]).ok();
    assert_eq!(stat, "");
    daemon.quack(&["restore", &second.to_string(), "--session", "one"]).ok();
    assert_eq!(daemon.quack(&cat).ok(), "second\nREADME.md\n");
    assert_eq!(repo.read("README.md"), daemon.repo("other").read("README.md"));

    let wrong = daemon.quack(&["restore", "99", "--session", "one"]);
    assert_eq!(wrong.code(), Some(1));
    assert!(wrong.stderr().contains("There is no checkpoint 99"), "{}", wrong.stderr());
}

#[test]
fn without_the_setting_nothing_is_recorded_and_the_error_says_how() {
    let daemon = Daemon::start();
    let repo = daemon.repo("project");
    daemon.quack(&["new", "--name", "plain", repo.path().to_str().unwrap()]).ok();
    bash(&daemon, "plain", "echo x > x");
    for words in [["checkpoints", "plain"].as_slice(), &["restore", "1", "--session", "plain"]] {
        let refused = daemon.quack(words);
        assert_eq!(refused.code(), Some(1));
        let error = refused.stderr();
        assert!(error.contains("quack config set keep.checkpoints all"), "{error}");
    }
    assert!(!daemon.app().join("checkpoints").exists());
}

#[test]
fn a_command_in_the_workspace_itself_is_taken_back_and_protected_names_are_left() {
    let (daemon, repo) = daemon_for_all();
    daemon.quack(&["new", "--name", "plain", repo.path().to_str().unwrap()]).ok();
    let readme = repo.read("README.md");
    // Also lists before any call: the first state is recorded then.
    let before = listed(&daemon, "plain")[0]["number"].to_string();
    bash(&daemon, "plain", "rm -r src; echo x > README.md; echo evil > Makefile.am; : > .envrc");
    let evil = recorded(&daemon, "plain", "rm -r src", 4);
    fs::remove_file(repo.path().join(".envrc")).unwrap();

    let events = daemon.wire();
    let restored = daemon.quack(&["restore", &before, "--session", "plain"]);
    assert_eq!(repo.read("README.md"), readme, "{}", restored.stdout());
    assert!(repo.path().join("src/main.rs").exists());
    assert!(!repo.path().join("Makefile.am").exists());
    drop(events);

    // The state with a name that other programs obey is not brought back without a word of the user.
    let left = daemon.quack(&["restore", &evil.to_string(), "--session", "plain"]);
    assert_eq!(left.code(), Some(1), "{}", left.stdout());
    assert!(left.stdout().contains("A  .envrc  left out"), "{}", left.stdout());
    assert!(!repo.path().join(".envrc").exists());
    assert!(repo.path().join("Makefile.am").exists());

    let kept = daemon.app().join("checkpoints");
    assert_eq!(fs::read_dir(&kept).unwrap().count(), 1);
    daemon.quack(&["delete", "plain", "--yes"]).ok();
    wait_for("the states to be deleted", || {
        (fs::read_dir(&kept).unwrap().count() == 0).then_some(())
    });
}

#[test]
fn file_tools_and_jobs_are_recorded_and_reading_is_not() {
    let daemon = Daemon::start();
    let repo = daemon.repo("project");
    daemon.quack(&["new", "--isolated", "--name", "one", repo.path().to_str().unwrap()]).ok();
    let write = json!({"path": "a.txt", "content": "a\n"}).to_string();
    daemon.quack(&["tool", "write_file", &write, "--session", "one"]).ok();
    recorded(&daemon, "one", "write_file", 1);
    daemon.quack(&["tool", "read_file", r#"{"path":"a.txt"}"#, "--session", "one"]).ok();
    daemon.quack(&["tool", "bash", "--detach", "echo late > late.txt", "--session", "one"]).ok();
    let number = wait_for("the state after the job", || {
        let all = listed(&daemon, "one");
        let found = all.iter().find(|one| one["changes"].to_string().contains("late.txt"))?;
        found["number"].as_u64()
    });
    assert_eq!(number, 2);
    assert!(!listed(&daemon, "one").iter().any(|one| one["calls"].to_string().contains("read_")));
}

#[test]
fn a_restore_that_is_killed_leaves_all_or_nothing() {
    let (daemon, repo) = daemon_for_all();
    daemon.quack(&["new", "--name", "plain", repo.path().to_str().unwrap()]).ok();
    let before = listed(&daemon, "plain")[0]["number"].to_string();
    bash(&daemon, "plain", "for n in $(seq 200); do echo new > file-$n; done; rm README.md");
    let after = recorded(&daemon, "plain", "seq 200", 201).to_string();
    let n_files = || (1..=200).filter(|n| repo.path().join(format!("file-{n}")).exists()).count();
    for _ in 0..5 {
        let mut restore = daemon.command(&["restore", &before, "--session", "plain", "--json"]);
        let mut restore = restore.spawn().unwrap();
        wait_for("a restore to begin", || {
            let begun = n_files() < 200 || restore.try_wait().unwrap().is_some();
            begun.then_some(())
        });
        for process in daemon.descendants() {
            if process.name == "quack-isolate" {
                kill(Pid::from_raw(process.pid), Signal::SIGKILL).ok();
            }
        }
        restore.wait().unwrap();
        // The next command takes back what an interrupted one wrote.
        listed(&daemon, "plain");
        let (n, has_readme) = (n_files(), repo.path().join("README.md").exists());
        assert!((n, has_readme) == (200, false) || (n, has_readme) == (0, true), "{n}");
        let staged = fs::read_dir(repo.path()).unwrap().flatten();
        let staged = staged.filter(|it| it.file_name().to_string_lossy().starts_with(".quackd-"));
        assert_eq!(staged.count(), 0);
        daemon.quack(&["restore", &after, "--session", "plain"]).ok();
        assert_eq!(n_files(), 200);
    }
}

#[test]
fn a_workspace_with_too_many_files_is_told_when_states_are_listed() {
    let (daemon, repo) = daemon_for_all();
    for directory in 0..21 {
        let directory = repo.path().join(format!("d{directory}"));
        fs::create_dir(&directory).unwrap();
        for file in 0..1000 {
            fs::write(directory.join(file.to_string()), "").unwrap();
        }
    }
    daemon.quack(&["new", "--name", "plain", repo.path().to_str().unwrap()]).ok();
    let refused = daemon.quack(&["checkpoints", "plain"]);
    assert_eq!(refused.code(), Some(1));
    assert!(refused.stderr().contains("more than 20000 files"), "{}", refused.stderr());
    // Calls work as usual.
    bash(&daemon, "plain", "true");
}

#[test]
fn the_very_first_command_can_be_taken_back() {
    let (daemon, repo) = daemon_for_all();
    for n in 0..2_000 {
        repo.write(&format!("many/{n}"), format!("{n}\n"));
    }
    daemon.quack(&["new", "--name", "plain", repo.path().to_str().unwrap()]).ok();
    bash(&daemon, "plain", "rm -rf many src");
    recorded(&daemon, "plain", "rm -rf many", 2_001);
    let before = listed(&daemon, "plain")[0]["number"].to_string();
    daemon.quack(&["restore", &before, "--session", "plain"]).ok();
    assert_eq!(fs::read_dir(repo.path().join("many")).unwrap().count(), 2_000);
    assert!(repo.path().join("src/main.rs").exists());
}
