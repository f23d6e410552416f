//! Undo of what write_file and edit_file changed, over deaths of the worker and restarts of the daemon.

use crate::harness::{Daemon, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

#[test]
fn changes_outlive_the_daemon_and_end_with_their_session() {
    let mut daemon = Daemon::start();
    let repo = daemon.repo("a");
    repo.write("kept.txt", "old\n");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    session.call("write_file", json!({"path": "kept.txt", "content": "new\n"}));
    session.call("edit_file", json!({"path": "kept.txt", "old_text": "new", "new_text": "newer"}));
    session.call("write_file", json!({"path": "made.txt", "content": "x"}));
    let session_id = session.id.clone();
    let run = daemon.app().join("run").join(&session_id);
    drop(wire);
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        daemon.signal(signal);
        daemon.wait();
        daemon.boot();
    }

    let at = repo.path().to_str().unwrap();
    let listed = daemon.quack(&["changes", "--diff", "-C", at]).ok();
    let rows: Vec<_> = listed.lines().filter(|line| line.contains("_file  ")).collect();
    assert!(rows[0].contains("  write_file  created made.txt  "), "{listed}");
    assert!(rows[1].contains("  edit_file  changed kept.txt  "), "{listed}");
    assert!(listed.contains("\n-new\n+newer\n"), "{listed}");
    daemon.quack(&["undo", "-C", at]).ok();
    assert!(!repo.path().join("made.txt").exists());
    daemon.quack(&["undo", "-C", at]).ok();
    assert_eq!(repo.read("kept.txt"), "new\n");
    // Undo leaves the user's own text.
    repo.write("kept.txt", "mine\n");
    let refused = daemon.quack(&["undo", "-C", at]);
    assert_eq!((refused.code(), repo.read("kept.txt").as_str()), (Some(1), "mine\n"));
    assert!(refused.stderr().contains("could be restored"), "{}", refused.stderr());

    daemon.quack(&["delete", "--force", &session_id]).ok();
    wait_for("the run directory to be deleted", || (!run.exists()).then_some(()));
}

/// Between the record of a change and the change itself the worker may die: the file is old or new, and an undo restores
/// the old content or has nothing to do.
#[test]
fn a_worker_that_is_killed_while_it_writes_leaves_changes_that_can_be_taken_back() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    for round in 0..4 {
        let old = format!("person {round}\n");
        repo.write("a.txt", &old);
        let session = wire.attach(repo.path());
        let worker = session.pid("pid");
        let pending: Vec<_> = (0..40)
            .map(|n| {
                let content = format!("agent {round} {n}\n");
                session.begin(
                    "edit_file",
                    json!({"path": "a.txt", "old_text": repo_text(n, round), "new_text": content}),
                )
            })
            .collect();
        wait_for("the first change", || (repo.read("a.txt") != old).then_some(()));
        kill(Pid::from_raw(worker), Signal::SIGKILL).unwrap();
        drop(pending.into_iter().map(|call| call.text()).collect::<Vec<_>>());

        let now = repo.read("a.txt");
        assert!(now.starts_with(&format!("agent {round} ")), "{now}");
        assert_eq!(now.lines().count(), 1, "{now}");
        // Every undo goes one change back, and the last one ends at the person's text.
        let mut n_undone = 0;
        while repo.read("a.txt") != old {
            // The daemon may notice the death only now, and after several deaths the next worker starts some seconds later.
            let text = wait_for("the next worker", || {
                let text = wire.attach(repo.path()).call("undo", json!({}));
                let is_late = ["Error: Session worker", "Error: Worker died during undo"]
                    .iter()
                    .any(|begin| text.starts_with(begin));
                (!is_late).then_some(text)
            });
            assert!(text.starts_with("Undid "), "round {round}: {text}: {}", repo.read("a.txt"));
            n_undone += 1;
            assert!(n_undone <= 41, "{text}");
        }
    }
}

/// The text that edit number `n` of a round replaces.
fn repo_text(n: usize, round: usize) -> String {
    match n {
        0 => format!("person {round}\n"),
        n => format!("agent {round} {}\n", n - 1),
    }
}
