//! Faults in each system call of a save: the call fails, or the daemon is killed at it, or the call
//! is slow.

use super::strace::Strace;
use super::{Client, Kept, Ledger, OnDisk, bytes, fresh_directory, skipped};
use crate::harness::Daemon;
use serde_json::json;
use std::time::{Duration, Instant};

/// A system call of a save under all its names, and its number of occurrences in a save with
/// previous generations. strace counts each name separately.
struct Call {
    names: &'static str,
    /// Calls before the change is durable in the state: a fault refuses the change.
    n_refusing: usize,
    /// Later calls: after a fault the backup is one generation older, or the metadata follows with
    /// the next save, which is not a failure.
    n_keeping: usize,
}

const CALLS: [Call; 5] = [
    // The directory and the new state, then the new metadata.
    Call { names: "openat,?openat2", n_refusing: 2, n_keeping: 1 },
    Call { names: "write,pwrite64,writev", n_refusing: 1, n_keeping: 1 },
    // The new state and the directory, then the new metadata.
    Call { names: "fsync,fdatasync", n_refusing: 2, n_keeping: 1 },
    // The new metadata file exchanges its name with the old one, which remains for inspection.
    Call { names: "renameat2", n_refusing: 0, n_keeping: 1 },
    // The new state, then the old files to their backups.
    Call { names: "?rename,?renameat", n_refusing: 1, n_keeping: 2 },
];

impl Call {
    fn n(&self) -> usize {
        self.n_refusing + self.n_keeping
    }
}

const FAULTS: [(&str, &str); 4] = [
    ("signal=KILL", ""),
    ("error=EIO", "Cannot write"),
    ("error=ENOSPC", "Disk is full"),
    ("error=EACCES", "No permission to write"),
];

/// Outcome of a save.
#[derive(Debug, PartialEq, Clone, Copy)]
enum Fate {
    /// The fault occurred before the change was durable.
    Refused,
    /// The fault occurred after the change was durable.
    Kept,
    /// The save has no such call, so the fault never occurred.
    Untouched,
}

fn fate(call: &Call, k: usize) -> Fate {
    if k <= call.n_refusing {
        Fate::Refused
    } else if k <= call.n() {
        Fate::Kept
    } else {
        Fate::Untouched
    }
}

/// A daemon whose two files each have a previous generation, and the acknowledged sessions.
struct World {
    daemon: Daemon,
    ledger: Ledger,
    n_directories: usize,
    /// Creates sessions in safe mode, which only the state has.
    safe: bool,
}

impl World {
    fn new(safe: bool) -> Self {
        let mut daemon = Daemon::absent();
        daemon.boot();
        let mut world = Self { daemon, ledger: Ledger::default(), n_directories: 0, safe };
        world.attach(true).expect("an answer").expect("a session");
        world.attach(true).expect("an answer").expect("a session");
        world
    }

    fn attach(&mut self, safe: bool) -> Option<Result<(), String>> {
        self.n_directories += 1;
        let path = fresh_directory(&self.daemon, &format!("d{}", self.n_directories));
        let answer = Client::connect(&self.daemon).attach(&path, safe)?;
        Some(answer.map(|kept| self.ledger.0.push(kept)))
    }

    /// Injects one fault into the save of one attach. Returns whether the fault occurred.
    fn suffer(&mut self, call: &Call, k: usize, (fault, text): (&str, &str)) -> bool {
        let cell = format!("{fault} at {} number {k}, safe mode {}", call.names, self.safe);
        let before = (bytes(&self.daemon.app()), OnDisk::read(&self.daemon.app()));
        let faults = format!("{}:{fault}:when={k}", call.names);
        let strace = Strace::attach(&self.daemon, call.names, &faults).expect("a second strace");
        let answer = self.attach(self.safe);
        let fate = fate(call, k);
        if fault == "signal=KILL" && fate != Fate::Untouched {
            assert_eq!(answer, None, "{cell}");
            self.rise_again(&cell);
            return true;
        }
        let log = strace.detach();
        assert_eq!(log.contains("(INJECTED)"), fate != Fate::Untouched, "{cell}: {log}");
        let answer = answer.unwrap_or_else(|| panic!("{cell}: no answer"));
        if fate == Fate::Refused {
            let error = answer.expect_err(&format!("{cell}: {log}"));
            assert!(error.contains(text), "{cell}: {error}");
            // Memory and both files are unchanged.
            let after = (bytes(&self.daemon.app()), OnDisk::read(&self.daemon.app()));
            assert!(after == before, "{cell}: the files have changed: {:?}", after.1);
            let sessions = self.daemon.wire().request("sessions", json!({"all": true}));
            let n_listed = super::array(&sessions["sessions"]).len();
            assert_eq!(n_listed, before.1.sessions.len(), "{cell}");
        } else {
            answer.expect(&cell);
        }
        self.assert_nothing_is_left(&cell);
        self.attach(self.safe).expect(&cell).expect("the first save after it");
        self.ledger.assert_on_disk(&self.daemon.app());
        fate != Fate::Untouched
    }

    /// Restarts a killed daemon. Asserts that it loads every acknowledged session and repairs
    /// nothing.
    fn rise_again(&mut self, cell: &str) {
        assert_eq!(self.daemon.wait(), None, "{cell}");
        let on_disk = OnDisk::read(&self.daemon.app());
        self.daemon.boot();
        self.ledger.assert_kept(&self.daemon);
        assert!(!self.daemon.log().contains("recovered"), "{cell}: {}", self.daemon.log());
        for (id, safe) in on_disk.sessions {
            let kept = Kept { id, safe };
            if !self.ledger.0.contains(&kept) {
                // A session that exists without an acknowledgment has the requested mode.
                assert_eq!(kept.safe, self.safe, "{cell}");
                self.ledger.0.push(kept);
            }
        }
        // The first save of a daemon always writes both files.
        self.attach(true).expect(cell).expect("the first save after it");
        self.assert_nothing_is_left(cell);
    }

    fn assert_nothing_is_left(&self, cell: &str) {
        let names = std::fs::read_dir(self.daemon.app()).expect("the state directory");
        let names: Vec<_> = names.map(|entry| entry.expect("an entry").file_name()).collect();
        let left = names.iter().find(|name| name.to_string_lossy().ends_with(".tmp"));
        assert_eq!(left, None, "{cell}");
    }
}

/// Tests every call, first to fifth occurrence, with every fault.
fn every_cell(test: &str, safe: bool) {
    let mut world = World::new(safe);
    if let Err(why) = Strace::attach(&world.daemon, "fsync", "fsync:error=EIO:when=100") {
        return skipped(test, &why);
    }
    let mut n_came = 0;
    for call in &CALLS {
        for k in 1..=5 {
            for fault in FAULTS {
                n_came += usize::from(world.suffer(call, k, fault));
            }
        }
    }
    let n_calls: usize = CALLS.iter().map(Call::n).sum();
    // The other cells of the 100 are calls that a save does not make.
    assert_eq!(n_came, n_calls * FAULTS.len());
}

#[test]
fn each_system_call_of_a_save_of_both_files_may_fail_or_be_the_last() {
    every_cell("each_system_call_of_a_save_of_both_files_may_fail_or_be_the_last", true);
}

#[test]
fn each_system_call_of_a_save_of_one_file_may_fail_or_be_the_last() {
    every_cell("each_system_call_of_a_save_of_one_file_may_fail_or_be_the_last", false);
}

#[test]
fn a_slow_disk_delays_those_who_wait_for_it_and_nobody_else() {
    let mut daemon = Daemon::absent();
    daemon.boot();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    session.bash("true");
    let syncs = "fsync,fdatasync";
    let strace = match Strace::attach(&daemon, syncs, &format!("{syncs}:delay_enter=300000")) {
        Ok(strace) => strace,
        Err(why) => {
            return skipped("a_slow_disk_delays_those_who_wait_for_it_and_nobody_else", &why);
        }
    };
    const N_ATTACHES: usize = 20;
    let slow = daemon.wire();
    let attaches: Vec<_> = (0..N_ATTACHES)
        .map(|n| {
            let path = fresh_directory(&daemon, &format!("d{n}"));
            slow.begin("attach", &json!({"path": path, "safeMode": true}))
        })
        .collect();
    let start = Instant::now();
    let mut n_pings = 0;
    while !attaches.iter().any(|attach| attach.is_there()) {
        wire.request("ping", json!({}));
        n_pings += 1;
    }
    // One may be answered before the save, and one after it.
    assert!(5 < n_pings, "{n_pings} pings were answered during the first save");
    assert_eq!(session.bash("echo meanwhile"), "meanwhile\n\n[Exit code: 0]");
    for attach in attaches {
        assert_eq!(attach.reply()["ok"], true);
    }
    let took = start.elapsed();
    let log = strace.detach();
    let n_syncs = log.matches("(DELAYED)").count();
    // Two syncs per file. The first save contains the first attaches; attaches during that save
    // share the next one.
    assert!((2..N_ATTACHES).contains(&n_syncs), "{n_syncs} syncs: {log}");
    assert!(Duration::from_millis(600) < took, "took {took:?}: nothing was slow");
}
