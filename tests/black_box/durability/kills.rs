//! Kills the daemon two hundred times while it saves.

use super::{Client, Kept, Ledger, fresh_directory, in_memory, moment, seeded};
use crate::harness::{Daemon, Random};
use nix::sys::signal::Signal;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Kills per world. Two worlds run side by side.
const ROUNDS: usize = 100;

/// Concurrent clients: their changes share saves.
const CLIENTS: usize = 3;

/// Lets clients attach for some time, runs `then`, and returns the acknowledged sessions.
pub(super) fn attach_for(
    time: Duration,
    daemon: &Daemon,
    round: usize,
    then: impl FnOnce(),
) -> Vec<Result<Kept, String>> {
    std::thread::scope(|scope| {
        let (heard, hearing) = channel();
        for client in 0..CLIENTS {
            let directories = daemon.home().join(format!("round-{round}/client-{client}"));
            let (mut connection, heard) = (Client::connect(daemon), heard.clone());
            // Every second attach uses safe mode, which changes both files.
            scope.spawn(move || {
                for n in 0.. {
                    let path = directories.join(n.to_string());
                    std::fs::create_dir_all(&path).expect("a fresh directory");
                    let Some(answer) = connection.attach(&path, n % 2 == 0) else { break };
                    heard.send(answer).expect("tell the test");
                }
            });
        }
        drop(heard);
        let moment = Instant::now() + time;
        let mut all = Vec::new();
        while let Ok(it) = hearing.recv_timeout(moment.saturating_duration_since(Instant::now())) {
            all.push(it);
        }
        then();
        all.extend(hearing);
        all
    })
}

fn kill_again_and_again(mut daemon: Daemon, mut random: Random, longest: Duration) -> usize {
    let (mut ledger, shortest) = (Ledger::default(), longest);
    let mut longest = longest;
    daemon.boot();
    // A kill in the very first save leaves one file of two. The next start cannot distinguish it from a deleted file,
    // and reports a recovery.
    let first = fresh_directory(&daemon, "first");
    let first = Client::connect(&daemon).attach(&first, false).expect("a reply");
    ledger.0.push(first.expect("no refusal"));
    for round in 0..ROUNDS {
        if round != 0 {
            daemon.boot();
        }
        ledger.assert_kept(&daemon);
        let kill = || daemon.signal(Signal::SIGKILL);
        let heard = attach_for(moment(&mut random, longest), &daemon, round, kill);
        assert_eq!(daemon.wait(), None);
        // On a slow machine, kills that come too early prove nothing.
        longest = match heard.len() {
            0 => (2 * longest).min(Duration::from_millis(500)),
            1..=CLIENTS => longest,
            _ => shortest.max(longest / 2),
        };
        ledger.0.extend(heard.into_iter().map(|answer| answer.expect("no refusal")));
        // The next start had nothing to repair either.
        ledger.assert_on_disk(&daemon.app());
    }
    daemon.boot();
    ledger.assert_kept(&daemon);
    assert!(!daemon.log().contains("recovered"), "{}", daemon.log());
    ledger.0.len()
}

#[test]
fn two_hundred_kills_while_saving_lose_nothing_that_was_acknowledged() {
    let mut random = seeded();
    let seeds = [(); 2].map(|()| Random::from_seed(random.number()));
    let n_kept = std::thread::scope(|scope| {
        let [on_disk, in_memory_seed] = seeds;
        let on_disk = scope.spawn(move || {
            kill_again_and_again(Daemon::absent(), on_disk, Duration::from_millis(80))
        });
        let in_memory = scope.spawn(move || {
            let (daemon, _guard) = in_memory();
            kill_again_and_again(daemon, in_memory_seed, Duration::from_millis(20))
        });
        [on_disk, in_memory].map(|world| world.join().expect("no loss"))
    });
    // Kills before the first save would prove nothing.
    assert!(n_kept.iter().all(|n| ROUNDS / 4 < *n), "{n_kept:?} attaches were acknowledged");
}
