//! Commands whose processes are found in the list of all processes, as on macOS. This process adopts no orphans, so they
//! become children of process 1 or of another one above, as there.

#![cfg(target_os = "linux")]
#![allow(
    clippy::tests_outside_test_module,
    clippy::unwrap_used,
    reason = "this file is a test target"
)]

mod commands;

use commands::{PATIENCE, stdout};
use quackd_process::{Command, EndedBy, Finished, find_processes_by_list};
use quackd_testkit::{runs, wait_until_async};
use std::fs;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

fn bash(script: &str) -> Command {
    find_processes_by_list();
    commands::bash("same", script)
}

async fn run(command: Command) -> Finished {
    commands::run(command).await.unwrap()
}

/// Returns the numbers that the command printed, one per line.
fn pids(finished: &Finished) -> Vec<u32> {
    stdout(finished).lines().map(|line| line.trim().parse().unwrap()).collect()
}

#[tokio::test]
async fn what_left_its_group_and_its_parent_is_ended_with_the_command() {
    // It is in another session, and its parent has exited.
    let finished = run(bash("(setsid sleep 600 >&- 2>&- & echo $!)")).await;
    let [orphan] = pids(&finished)[..] else { panic!("{finished:?}") };
    assert!(!runs(orphan));
    assert_eq!((finished.ended_by, finished.background_ended), (EndedBy::Itself, 1));
    assert!(!finished.is_gone, "one that hides may be left");
}

#[tokio::test]
async fn what_ignores_term_or_forks_again_is_ended_with_the_command() {
    let script = "setsid bash -c \"trap '' TERM; echo \\$BASHPID; \
                  while :; do (sleep 0.01; :) & wait; done\" & wait $!";
    let mut command = bash(script);
    command.deadline = Duration::from_millis(300);
    loop {
        let finished = run(command.clone()).await;
        assert_eq!(finished.ended_by, EndedBy::Deadline);
        let Some(&looping) = pids(&finished).first() else {
            // A busy machine has not started it in that time.
            command.deadline *= 4;
            assert!(command.deadline < PATIENCE);
            continue;
        };
        assert!(!runs(looping) && 2 <= finished.stopped, "{finished:?}");
        return;
    }
}

#[tokio::test]
async fn what_removed_the_mark_is_found_while_its_parent_runs_and_known_from_then_on() {
    let script = "env -i setsid sleep 600 >&- 2>&- & echo $!; wait";
    let mut command = bash(script);
    let cancel = CancellationToken::new();
    command.cancel = cancel.clone();
    command.deadline = Duration::from_millis(300);
    loop {
        let finished = run(command.clone()).await;
        let Some(&hidden) = pids(&finished).first() else {
            command.deadline *= 4;
            assert!(command.deadline < PATIENCE);
            continue;
        };
        assert!(!runs(hidden), "{finished:?}");
        return;
    }
}

#[tokio::test]
async fn a_command_with_the_same_tag_keeps_its_processes_until_its_own_end() {
    let cancel = CancellationToken::new();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pid");
    let script = format!(
        "(setsid sleep 600 >&- 2>&- & echo $! > {0}.new; mv {0}.new {0}); sleep 600",
        file.display()
    );
    let mut first = bash(&script);
    first.cancel = cancel.clone();
    let first = tokio::spawn(run(first));
    wait_until_async("the orphan", || file.exists()).await;
    let orphan: u32 = fs::read_to_string(&file).unwrap().trim().parse().unwrap();

    let second = run(bash("(setsid sleep 600 >&- 2>&- & echo $!)")).await;
    assert_eq!(second.background_ended, 1);
    assert!(runs(orphan));
    cancel.cancel();
    assert_eq!(first.await.unwrap().ended_by, EndedBy::Abort);
    assert!(!runs(orphan));
}

#[tokio::test]
async fn a_dropped_command_and_one_with_too_many_processes_leave_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pid");
    let script = format!(
        "(setsid sleep 600 & echo $! > {0}.new; mv {0}.new {0}); sleep 600",
        file.display()
    );
    let dropped = tokio::spawn(run(bash(&script)));
    wait_until_async("the orphan", || file.exists()).await;
    let orphan: u32 = fs::read_to_string(&file).unwrap().trim().parse().unwrap();
    dropped.abort();
    wait_until_async("the end of the orphan", || !runs(orphan)).await;

    let mut many = bash("for i in {1..40}; do (setsid sleep 600 & echo $!); done; sleep 600");
    many.limits.processes = 20;
    let finished = run(many).await;
    assert_eq!(finished.ended_by, EndedBy::Processes);
    assert!(pids(&finished).into_iter().all(|pid| !runs(pid)));
}
