//! Irregular time: the daemon's clock is set, or the machine sleeps. A library that is preloaded
//! into the daemon adds the test's offset to two of its clocks (`tests/fixtures/set_clock.c`).
//! Workers and the test use the machine's clocks.

use crate::harness::tier::needs;
use crate::harness::{
    Daemon, Process, Repo, descendants_of, skipped, wait_for, wait_within, write_file,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

const SHIM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/set_clock.c");

const HOUR: i64 = 60 * 60;
const DAY: i64 = 24 * HOUR;
const TEN_YEARS: i64 = 3652 * DAY;

/// The clocks of a daemon started with [`Clock::boot`].
struct Clock {
    offsets: File,
    words: [String; 2],
}

impl Clock {
    /// Equal to the machine's clocks until they are set. `None` without a C compiler.
    fn new(daemon: &Daemon) -> Option<Self> {
        let (library, file) = (daemon.home().join("clock.so"), daemon.home().join("offsets"));
        let mut compiler = daemon.program_for_tests("cc");
        let compiler = compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(SHIM);
        let Ok(output) = compiler.output() else {
            skipped("there is no C compiler to make a clock that can be set");
            return None;
        };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::fs::write(&file, [0; 16]).unwrap();
        let offsets = File::options().write(true).open(&file).unwrap();
        let word = |name: &str, path: &Path| format!("{name}={}", path.display());
        Some(Self { offsets, words: [word("LD_PRELOAD", &library), word("CLOCK_OFFSETS", &file)] })
    }

    /// Starts a daemon with these clocks.
    #[track_caller]
    fn boot(&self, daemon: &mut Daemon) {
        let [preload, offsets] = &self.words;
        daemon.boot_in(&[preload, offsets]);
    }

    /// Sets the clock to `seconds` after the machine's.
    fn set(&self, seconds: i64) {
        let nanoseconds = seconds * 1_000_000_000;
        self.offsets.write_all_at(&nanoseconds.to_ne_bytes(), 0).unwrap();
    }

    /// Simulates a suspend of `seconds`: both clocks advance.
    fn slept(&self, seconds: i64) {
        let nanoseconds = seconds * 1_000_000_000;
        self.offsets.write_all_at(&nanoseconds.to_ne_bytes(), 8).unwrap();
        self.set(seconds);
    }
}

/// Returns the last pause of this kind, once the daemon has noticed one of about `seconds`.
#[track_caller]
fn pause(wire: &crate::harness::Wire, kind: &str, seconds: i64) -> Value {
    let around = (seconds * 1000 - 30_000)..=(seconds * 1000 + 30_000);
    wait_for("the pause to be noticed", || {
        let tree = wire.request("quack.tree", json!({}));
        let last = tree["pauses"].as_array()?.last()?.clone();
        (last["kind"] == kind && around.contains(&last["ms"].as_i64()?)).then_some(last)
    })
}

/// The supervision check of `doctor`.
fn supervision(wire: &crate::harness::Wire) -> String {
    let checks = wire.request("doctor", json!({}))["checks"].take();
    let mut checks = checks.as_array().unwrap().iter();
    let check = checks.find(|check| check["name"] == "supervision").unwrap();
    check["message"].as_str().unwrap().to_owned()
}

fn year(text: &Value) -> i64 {
    text.as_str().and_then(|text| text.get(..4)?.parse().ok()).unwrap_or_else(|| panic!("{text}"))
}

#[test]
fn a_clock_that_is_set_moves_no_deadline_and_ends_nobody() {
    let mut daemon = Daemon::absent();
    let Some(clock) = Clock::new(&daemon) else { return };
    clock.boot(&mut daemon);
    let wire = daemon.wire();
    let (a, b) = (wire.attach(daemon.repo("a").path()), wire.attach(daemon.repo("b").path()));
    let follower = daemon.wire();
    let begun = follower.request("follow", json!({"sessionId": b.id}));
    b.bash("true");
    a.bash("true");
    kill(Pid::from_raw(a.pid("pid")), Signal::SIGKILL).unwrap();
    let killed = Instant::now();
    wait_for("the death to be noticed", || (a.worker()["restarts"] == 1).then_some(()));
    assert_eq!(a.bash("echo back"), "back\n\n[Exit code: 0]");
    let kept = [a.pid("pid"), b.pid("pid")];
    let this_year = year(&wire.request("quack.ps", json!({}))["supervisor"]["startedAt"]);

    let mut before = 0;
    for offset in [-DAY, DAY, TEN_YEARS, 0] {
        // One running call, and one whose deadline comes after the step.
        let slow = b.begin("bash", json!(daemon.gated(&format!("{offset}"), "echo done")));
        let late = json!({"command": "sleep 60", "timeout_ms": 2000});
        let (late, asked) = (b.begin("bash", late), Instant::now());
        wait_for("both to run", || (b.worker()["calls"].as_array()?.len() == 2).then_some(()));
        clock.set(offset);
        let noticed = pause(&wire, "clock", offset - before);
        before = offset;
        let expected = this_year + if offset == TEN_YEARS { 10 } else { 0 };
        assert!((year(&noticed["at"]) - expected).abs() <= 1, "{noticed}");
        assert!(supervision(&wire).contains("the clock was set by"), "{}", supervision(&wire));
        let late = late.text();
        assert!(late.contains("[Process timed out after "), "{late}");
        let took = asked.elapsed();
        assert!(Duration::from_millis(1900) < took, "{took:?}");
        daemon.open_gate(&format!("{offset}"));
        assert_eq!(slow.text(), "done\n\n[Exit code: 0]");
        // No worker was evicted as idle for a day, and no restart count was reset.
        assert_eq!([a.pid("pid"), b.pid("pid")], kept);
        let worker = a.worker();
        assert_eq!((&worker["status"], &worker["restarts"]), (&json!("idle"), &json!(1)));
        if killed.elapsed() < Duration::from_secs(50) {
            assert_eq!(worker["life"]["restartsInWindow"], 1, "{worker}");
        }
        if offset == TEN_YEARS {
            // Created ten years in the future, and used after that.
            wire.attach(daemon.repo("future").path());
            let shown = daemon.quack(&["sessions"]).ok();
            assert!(shown.contains("future ◇  "), "{shown}");
        }
    }
    // One event number for the first call and two for each other call: start and end.
    let first = begun["seq"].as_u64().unwrap() + 1;
    for expected in first..first + 2 + 4 * 4 {
        assert_eq!(follower.event()["seq"], expected, "in order, and none missing");
    }
    let ended = wire.request("quack.ps", json!({}))["supervisor"]["evictions"].clone();
    assert_eq!(ended, 0, "no worker was evicted as idle");

    // The next daemon loads the state written in all these years.
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait(), Some(0));
    daemon.boot();
    let wire = daemon.wire();
    let sessions = wire.request("sessions", json!({"all": true}));
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 3, "{sessions}");
    let future = wire.attach(daemon.repo("future").path());
    assert_eq!(future.bash("echo fine"), "fine\n\n[Exit code: 0]");
}

#[test]
fn a_clock_that_is_years_ahead_deletes_nothing() {
    let mut daemon = Daemon::absent();
    let Some(clock) = Clock::new(&daemon) else { return };
    let (repo, app) = (daemon.repo("a"), daemon.app());
    daemon.boot();
    let id = daemon.wire().attach(repo.path()).id;
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait(), Some(0));
    let histories =
        ["sessions/nobody.jsonl", "pi-sessions/nobody.jsonl", "metadata.json.corrupt-1"];
    let histories = histories.map(|name| app.join(name));
    for history in &histories {
        write_file(history, "{}\n");
    }
    // Shows that garbage collection ran: it empties this file first.
    let witness = app.join("launchd.log");
    std::fs::write(&witness, vec![b'x'; 2 << 20]).unwrap();

    clock.set(TEN_YEARS);
    clock.boot(&mut daemon);
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    assert_eq!(session.id, id);
    let text = session.bash("head -c 200000 /dev/zero | tr '\\0' x");
    assert!(text.contains("[Exit code: 0]"), "{text:.200}");
    session.call("replace", json!({"pattern": "needle", "replacement": "thread"}));
    assert!(repo.read("src/main.rs").contains("thread"));
    let run = app.join("run").join(&id);
    let outputs = || {
        let entries = std::fs::read_dir(&run).into_iter().flatten().flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(".log")).count()
    };
    assert_eq!(outputs(), 1);
    wait_for("the garbage collection", || (witness.metadata().unwrap().len() == 0).then_some(()));
    // Garbage collections do not overlap, so this answer comes after the first one. By this clock
    // every file is ten years old, so an explicit request may delete it.
    let could_go = wire.request("quack.gc", json!({"dryRun": true}));
    let kinds: BTreeSet<&str> = could_go["kinds"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|kind| kind["kind"].as_str())
        .collect();
    assert_eq!(kinds, BTreeSet::from(["outputs", "quarantined", "undo"]), "{could_go}");
    assert_eq!(outputs(), 1);
    assert!(histories.iter().all(|history| history.exists()));
    let undone = session.call("undo", json!({}));
    assert!(repo.read("src/main.rs").contains("needle"), "{undone}");
}

/// Stops the daemon and all its descendants, like a machine that suspends.
fn freeze(daemon: &Daemon) -> BTreeSet<Process> {
    daemon.signal(Signal::SIGSTOP);
    let mut frozen = BTreeSet::new();
    loop {
        let new: Vec<_> = descendants_of(daemon.pid())
            .into_iter()
            .filter(|found| !frozen.iter().any(|known: &Process| known.pid == found.pid))
            .collect();
        if new.is_empty() {
            return frozen;
        }
        for process in new {
            // The process may have exited.
            kill(Pid::from_raw(process.pid), Signal::SIGSTOP).ok();
            frozen.insert(process);
        }
    }
}

#[test]
fn a_machine_that_slept_harms_nobody_and_doctor_names_it() {
    needs!(Monitor);
    let mut daemon = Daemon::absent();
    let Some(clock) = Clock::new(&daemon) else { return };
    clock.boot(&mut daemon);
    let wire = daemon.wire();
    let repos = ["a", "b", "c"].map(|name| daemon.repo(name));
    let [a, b, c] = [0, 1, 2].map(|n: usize| wire.attach(repos[n].path()));
    c.call("bash", json!({"command": "sleep 600", "background": true}));
    // The start of a worker counts toward the deadline.
    for session in [&a, &b] {
        session.bash("true");
    }
    let slow = format!("touch runs; {}", daemon.gated("go", "echo done"));
    let slow = a.begin("bash", json!({"command": slow, "timeout_ms": 120_000}));
    // While all processes are stopped, two times pass: the deadline, and the time after which a
    // worker with an unfinished call is killed.
    let late = b.begin("bash", json!({"command": "touch runs; sleep 600", "timeout_ms": 8000}));
    wait_for("all to run", || {
        let is_busy = [&a, &b].iter().all(|session| session.worker()["state"] == "busy");
        let is_there = |repo: &Repo| repo.path().join("runs").exists();
        let has_job = c.worker()["status"] == "working";
        (is_busy && has_job && is_there(&repos[0]) && is_there(&repos[1])).then_some(())
    });
    let kept = [a.pid("pid"), b.pid("pid"), c.pid("pid")];
    let frozen = freeze(&daemon);
    assert!(9 <= frozen.len(), "monitors, workers and commands: {frozen:?}");
    let stopped = Instant::now();
    // Longer than the heartbeat timeout of a worker.
    wait_within(Duration::from_secs(30), "the machine to sleep", || {
        (Duration::from_secs(17) < stopped.elapsed()).then_some(())
    });
    clock.slept(HOUR);
    daemon.signal(Signal::SIGCONT);
    for process in &frozen {
        kill(Pid::from_raw(process.pid), Signal::SIGCONT).ok();
    }
    pause(&wire, "suspended", HOUR);
    let said = supervision(&wire);
    assert!(said.contains("the machine slept for 3"), "{said}");
    daemon.open_gate("go");
    assert_eq!(slow.text(), "done\n\n[Exit code: 0]");
    let late = late.text();
    assert!(late.contains("[Process timed out after "), "{late}");
    for (session, pid) in [&a, &b, &c].into_iter().zip(kept) {
        assert_eq!((session.pid("pid"), &session.worker()["restarts"]), (pid, &json!(0)));
        assert_eq!(session.bash("echo fine"), "fine\n\n[Exit code: 0]");
    }
    assert_eq!(c.worker()["statusWhy"], "1 background job");
    daemon.wait_for_log("resumed from suspend");
}
