//! The daemon is stopped, once or twice, while it attaches, starts workers and saves.

use super::kills::attach_for;
use super::strace::Strace;
use super::{Client, Ledger, fresh_directory, in_memory, moment, seeded, skipped};
use crate::harness::{Daemon, wait_for};
use nix::sys::signal::Signal;
use std::time::Duration;

const ROUNDS: usize = 20;

/// Asserts a clean shutdown, after which both files contain the acknowledged sessions.
#[track_caller]
fn assert_clean_stop(daemon: &mut Daemon, ledger: &Ledger) {
    assert_eq!(daemon.wait(), Some(0));
    for left in ["daemon.sock", "duck-daemon.pid", "metadata.json.tmp", "quackd-state.json.tmp"] {
        assert!(!daemon.app().join(left).exists(), "{left} is left");
    }
    ledger.assert_on_disk(&daemon.app());
}

#[test]
fn a_stop_at_any_moment_keeps_what_was_acknowledged_and_refuses_the_rest() {
    let mut random = seeded();
    let (mut daemon, _guard) = in_memory();
    let (mut ledger, mut longest) = (Ledger::default(), Duration::from_millis(20));
    for round in 0..ROUNDS {
        daemon.boot();
        ledger.assert_kept(&daemon);
        let stop = || {
            daemon.signal(Signal::SIGTERM);
            if round % 2 == 1 {
                daemon.signal(Signal::SIGTERM);
            }
        };
        let heard = attach_for(moment(&mut random, longest), &daemon, round, stop);
        // On a slow machine, stops that come too early prove nothing.
        if heard.iter().all(Result::is_err) {
            longest = (2 * longest).min(Duration::from_millis(500));
        }
        for answer in heard {
            match answer {
                Ok(kept) => ledger.0.push(kept),
                Err(text) => assert_eq!(text, "Daemon is shutting down"),
            }
        }
        assert_clean_stop(&mut daemon, &ledger);
    }
    assert!(!daemon.log().contains("recovered"), "{}", daemon.log());
    assert!(ROUNDS / 4 < ledger.0.len(), "only {} were acknowledged", ledger.0.len());
}

#[test]
fn a_stop_in_the_middle_of_a_save_waits_for_it_and_a_second_one_breaks_nothing() {
    for n_signals in [1, 2] {
        let mut daemon = Daemon::absent();
        daemon.boot();
        let mut ledger = Ledger::default();
        let path = fresh_directory(&daemon, "first");
        let first = Client::connect(&daemon).attach(&path, true);
        ledger.0.push(first.expect("an answer").expect("a session"));
        let syncs = "fsync,fdatasync";
        let delay = format!("{syncs}:delay_enter=200000");
        let strace = match Strace::attach(&daemon, &format!("openat,{syncs}"), &delay) {
            Ok(strace) => strace,
            Err(why) => {
                let test =
                    "a_stop_in_the_middle_of_a_save_waits_for_it_and_a_second_one_breaks_nothing";
                return skipped(test, &why);
            }
        };
        let path = fresh_directory(&daemon, "second");
        let mut client = Client::connect(&daemon);
        let answer = std::thread::scope(|scope| {
            let attaching = scope.spawn(|| client.attach(&path, true));
            wait_for("the save", || strace.log().contains("openat(").then_some(()));
            for _ in 0..n_signals {
                daemon.signal(Signal::SIGTERM);
                wait_for("the signal to be taken", || {
                    daemon.log().contains("shutting down").then_some(())
                });
            }
            attaching.join().expect("an answer, or the end")
        });
        match answer {
            Some(Ok(kept)) => ledger.0.push(kept),
            // A second signal waits for no calls.
            Some(Err(text)) if n_signals == 2 => assert_eq!(text, "Daemon is shutting down"),
            None if n_signals == 2 => {}
            other => panic!("the save was under way: {other:?}"),
        }
        if n_signals == 1 {
            assert_clean_stop(&mut daemon, &ledger);
        } else {
            // The shutdown does not wait for a slow disk either: the next save may have to remove
            // an unfinished file.
            assert_eq!(daemon.wait(), Some(0));
            ledger.assert_on_disk(&daemon.app());
        }
        drop(strace);
        daemon.boot();
        ledger.assert_kept(&daemon);
        assert!(!daemon.log().contains("recovered"), "{}", daemon.log());
    }
}
