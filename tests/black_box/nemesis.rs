//! Many commands in many sessions while another thread kills and stops workers. Every call is
//! answered once, no call runs twice, and all resources are released at the end.
//!
//! Runs for 10 s, or `QUACKD_NEMESIS_SECONDS`. The seed is printed. `QUACKD_NEMESIS_SEED` repeats
//! it, except for the scheduling of threads.

use crate::harness::long::{n_descriptors, number_from, resident_kib, strays};
use crate::harness::{Daemon, PATIENCE, Process, Random, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

const SESSIONS: usize = 8;

/// Concurrent commands of one session.
const SIDE_BY_SIDE: usize = 8;

/// Allowed growth of the number of descriptors, for connections that are just closing.
const SPARE_DESCRIPTORS: usize = 2;

/// Allowed growth of memory, for the process table and buffers, whose sizes vary between runs.
const SPARE_KIB: u64 = 16 * 1024;

fn say(line: &str) {
    drop(writeln!(std::io::stderr(), "nemesis: {line}"));
}

/// Calls of one caller, by their reply.
#[derive(Default)]
struct Told {
    /// Calls that ran.
    done: BTreeSet<String>,
    /// Calls that may have run.
    unknown: BTreeSet<String>,
    /// Calls that did not run.
    refused: BTreeSet<String>,
}

/// Makes calls one after the other until the deadline, and until one has run: on a busy machine the workers may start
/// later than the deadline.
fn call_on(daemon: &Daemon, repo: &Path, caller: &str, until: Instant, mut chance: Random) -> Told {
    let wire = daemon.wire();
    let session = wire.attach(repo);
    let mut told = Told::default();
    for n in 0_u64.. {
        let now = Instant::now();
        if until <= now && !told.done.is_empty() {
            break;
        }
        assert!(now < until + PATIENCE, "no call of {caller} was done");
        let line = format!("{caller}-{n}");
        let pause = chance.below(150);
        let command = match chance.below(4) {
            0 => format!("echo {line} >> ran; setsid sleep 300 & sleep 0.{pause:03}; echo done"),
            1 => format!("echo {line} >> ran; head -c 300000 /dev/zero >&2; echo done"),
            _ => format!("echo {line} >> ran; sleep 0.{pause:03}; echo done"),
        };
        // `Wire` fails the test if a call is answered twice.
        let text = session.bash(&command);
        if text.starts_with("done\n") {
            assert!(text.ends_with("\n[Exit code: 0]"), "{command}: {text}");
            told.done.insert(line);
        } else if text.starts_with("Error: Worker died during bash (") {
            told.unknown.insert(line);
        } else if text.starts_with("Error: Session worker failed ") {
            told.refused.insert(line);
            // The daemon gave up the session. An attach resets that.
            wire.attach(repo);
        } else if text.starts_with("Error: Session worker ")
            || text == "Error: Worker not responding"
        {
            told.refused.insert(line);
        } else {
            panic!("{command}: {text}");
        }
    }
    // Checks the lines after the last reply.
    assert!(wire.early_events().is_empty());
    told
}

/// Kills and stops workers until the end of the run. Returns both counts.
fn strike(daemon: &Daemon, over: &Receiver<()>, mut chance: Random) -> (u32, u32) {
    let wire = daemon.wire();
    let (mut killed, mut stopped) = (0, 0);
    let mut asleep: Option<Pid> = None;
    loop {
        let pause = Duration::from_millis(50 + chance.below(350));
        if over.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
            break;
        }
        if let Some(pid) = asleep.take() {
            // The worker may have died.
            let _gone = kill(pid, Signal::SIGCONT);
        }
        let workers = wire.request("quack.ps", json!({}))["workers"].take();
        let pids: Vec<i32> = workers.as_array().unwrap().iter().filter_map(pid_of).collect();
        let Ok(n) = u64::try_from(pids.len()) else { continue };
        if n == 0 {
            continue;
        }
        let pid = pids[usize::try_from(chance.below(n)).unwrap()];
        // The id may belong to another process by now.
        if Process::find(pid).is_none_or(|process| process.name != "quack-worker") {
            continue;
        }
        let pid = Pid::from_raw(pid);
        if chance.below(2) == 0 {
            killed += u32::from(kill(pid, Signal::SIGKILL).is_ok());
        } else if kill(pid, Signal::SIGSTOP).is_ok() {
            stopped += 1;
            asleep = Some(pid);
        }
    }
    if let Some(pid) = asleep {
        let _gone = kill(pid, Signal::SIGCONT);
    }
    (killed, stopped)
}

fn pid_of(worker: &Value) -> Option<i32> {
    i32::try_from(worker["pid"].as_i64()?).ok()
}

/// Asserts that the daemon becomes idle: one worker per session and no connection.
fn calm(daemon: &Daemon, repos: &[PathBuf]) {
    for repo in repos {
        let wire = daemon.wire();
        let session = wire.attach(repo);
        wait_for("the session to answer", || {
            (session.bash("echo back") == "back\n\n[Exit code: 0]").then_some(())
        });
    }
}

#[test]
fn under_a_nemesis_every_call_is_answered_once_and_no_command_runs_twice() {
    let seconds = number_from("QUACKD_NEMESIS_SECONDS").unwrap_or(10);
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos();
    let seed = number_from("QUACKD_NEMESIS_SEED").unwrap_or_else(|| u64::from(now)).max(1);
    say(&format!("{seconds} s, seed {seed}"));
    let daemon = Daemon::start();
    let repos = (0..SESSIONS).map(|n| daemon.repo(&format!("r{n}")).path().to_owned());
    let repos: Vec<PathBuf> = repos.collect();
    // As many connections and calls as later, so that the measurement excludes first uses.
    run(&daemon, &repos, Duration::from_secs(1), seed, false);
    calm(&daemon, &repos);
    wait_for("the warm-up to be over", || strays(&daemon).is_empty().then_some(()));
    let before = (n_descriptors(&daemon), resident_kib(daemon.pid()));

    run(&daemon, &repos, Duration::from_secs(seconds), seed, true);
    calm(&daemon, &repos);
    wait_for("nothing to be left of any command", || strays(&daemon).is_empty().then_some(()));
    wait_for("the descriptors to be closed", || {
        (n_descriptors(&daemon) <= before.0 + SPARE_DESCRIPTORS).then_some(())
    });
    let after = (n_descriptors(&daemon), resident_kib(daemon.pid()));
    say(&format!(
        "descriptors {} to {}, resident {} to {} KiB",
        before.0, after.0, before.1, after.1
    ));
    assert!(after.1 < before.1 + SPARE_KIB, "grew from {} to {} KiB", before.1, after.1);
}

/// Makes calls from all callers, with or without kills, and checks which calls ran.
fn run(daemon: &Daemon, repos: &[PathBuf], time: Duration, seed: u64, with_nemesis: bool) {
    for repo in repos {
        std::fs::write(repo.join("ran"), "").unwrap();
    }
    let until = Instant::now() + time;
    let (end, over) = channel();
    let (told, struck) = thread::scope(|scope| {
        let nemesis = with_nemesis.then(|| {
            let chance = Random::from_seed(seed);
            scope.spawn(move || strike(daemon, &over, chance))
        });
        let mut callers = Vec::new();
        for (s, repo) in repos.iter().enumerate() {
            for c in 0..SIDE_BY_SIDE {
                let name = format!("s{s}c{c}");
                let n = u64::try_from(s * SIDE_BY_SIDE + c + 2).unwrap();
                let chance = Random::from_seed(seed.wrapping_mul(n));
                let calls = move || call_on(daemon, repo, &name, until, chance);
                callers.push((s, scope.spawn(calls)));
            }
        }
        let mut told: BTreeMap<usize, Vec<Told>> = BTreeMap::new();
        for (s, caller) in callers {
            told.entry(s).or_default().push(caller.join().unwrap());
        }
        drop(end);
        (told, nemesis.map(|nemesis| nemesis.join().unwrap()))
    });
    let (mut done, mut unknown, mut refused) = (0, 0, 0);
    for (s, repo) in repos.iter().enumerate() {
        let ran = std::fs::read_to_string(repo.join("ran")).unwrap();
        let lines: Vec<&str> = ran.lines().collect();
        let once: BTreeSet<&str> = lines.iter().copied().collect();
        assert_eq!(once.len(), lines.len(), "a command of session {s} has run twice");
        for told in &told[&s] {
            let not_run = told.done.iter().find(|line| !once.contains(line.as_str()));
            assert_eq!(not_run, None, "reported as run, but did not run");
            let has_run = told.refused.iter().find(|line| once.contains(line.as_str()));
            assert_eq!(has_run, None, "reported as not run, but ran");
            done += told.done.len();
            unknown += told.unknown.len();
            refused += told.refused.len();
        }
    }
    say(&format!(
        "{done} calls done, {unknown} lost with a worker, {refused} refused; {struck:?} killed and stopped"
    ));
    assert!(SESSIONS * SIDE_BY_SIDE <= done, "{done} calls done");
    assert!(!with_nemesis || 0 < unknown, "the nemesis has hit nothing");
}
