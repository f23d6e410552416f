//! Durability: an acknowledged change is on disk, whatever happens to the daemon, its files and its
//! disk. Tests P-05, P-06, P-07, P-10 and P-11 with real failures.
//!
//! strace, mounts and limits inject system faults. Where a machine does not allow that, the test prints a
//! note and passes; with `QUACKD_REQUIRE=all` it fails.

mod bad_files;
mod descriptors;
mod full_disk;
mod kills;
mod low_disk;
mod panics;
mod state_directory;
mod stop_races;
mod strace;
mod system_calls;

use crate::harness::{Daemon, Random, untested};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

const METADATA: &str = "metadata.json";
const STATE: &str = "quackd-state.json";
const FILES: [&str; 2] = [METADATA, STATE];

/// Reports that a test shows nothing here.
fn skipped(test: &str, why: &str) {
    untested(&format!("{test}: {why}"));
}

/// An acknowledged session and its mode.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Kept {
    id: String,
    safe: bool,
}

/// All acknowledged sessions.
#[derive(Debug, Default)]
struct Ledger(Vec<Kept>);

impl Ledger {
    /// Asserts that the next start finds the sessions: in both files, or in the files loaded
    /// instead of them.
    #[track_caller]
    fn assert_kept(&self, daemon: &Daemon) {
        let sessions = daemon.wire().request("sessions", json!({"all": true}));
        let listed: Vec<&str> =
            array(&sessions["sessions"]).iter().filter_map(|it| it["id"].as_str()).collect();
        for Kept { id, .. } in &self.0 {
            assert!(listed.contains(&id.as_str()), "{id} was acknowledged and is gone: {listed:?}");
        }
        self.assert_on_disk(&daemon.app());
    }

    /// Asserts that both files are complete and contain the sessions.
    #[track_caller]
    fn assert_on_disk(&self, app: &Path) {
        let on_disk = OnDisk::read(app);
        for kept in &self.0 {
            let found = on_disk.sessions.get(&kept.id);
            assert_eq!(found, Some(&kept.safe), "{kept:?} was acknowledged");
        }
    }
}

/// Parsed content of the two files.
#[derive(Debug, PartialEq)]
struct OnDisk {
    /// Every session id, and whether the session is in safe mode.
    sessions: BTreeMap<String, bool>,
}

impl OnDisk {
    /// Parses the files. A missing file counts as empty.
    #[track_caller]
    fn read(app: &Path) -> Self {
        let parsed = |name: &str| match std::fs::read(app.join(name)) {
            Ok(bytes) => serde_json::from_slice::<Value>(&bytes).expect("a whole file"),
            Err(_) => json!({"sessions": []}),
        };
        let (metadata, state) = (parsed(METADATA), parsed(STATE));
        let session = |it: &Value| {
            let id = it["id"].as_str().expect("an id").to_owned();
            let safe = state["sessions"][&id]["safeMode"] == true;
            (id, safe)
        };
        Self { sessions: array(&metadata["sessions"]).iter().map(session).collect() }
    }
}

fn array(value: &Value) -> &Vec<Value> {
    value.as_array().expect("an array")
}

/// Returns a world whose state directory is in memory, if the machine has such a directory. Its
/// fsyncs are cheap, so a test reaches more of them.
fn in_memory() -> (Daemon, TempDir) {
    let daemon = Daemon::absent();
    let guard = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let guard = guard.expect("a directory");
    std::os::unix::fs::symlink(guard.path(), daemon.app()).expect("link the state directory");
    (daemon, guard)
}

/// Raw bytes of both files.
fn bytes(app: &Path) -> [Vec<u8>; 2] {
    FILES.map(|name| std::fs::read(app.join(name)).unwrap_or_default())
}

/// Creates a directory without sessions.
#[track_caller]
fn fresh_directory(daemon: &Daemon, name: &str) -> PathBuf {
    let path = daemon.home().join(name);
    std::fs::create_dir(&path).expect("a fresh directory");
    path
}

/// A client that survives its daemon.
struct Client {
    stream: UnixStream,
    lines: Lines<BufReader<UnixStream>>,
}

impl Client {
    #[track_caller]
    fn connect(daemon: &Daemon) -> Self {
        Self::over(UnixStream::connect(daemon.socket()).expect("connect to the daemon"))
    }

    fn over(stream: UnixStream) -> Self {
        let lines = BufReader::new(stream.try_clone().expect("clone a socket")).lines();
        Self { stream, lines }
    }

    /// Attaches, in safe mode or without the parameter. Returns `None` if the daemon closed the
    /// connection without a reply. The error is the text of a refusal.
    fn attach(&mut self, path: &Path, safe: bool) -> Option<Result<Kept, String>> {
        let mut params = json!({"path": path});
        if safe {
            params["safeMode"] = json!(true);
        }
        let line = json!({"id": "a", "method": "attach", "params": params}).to_string() + "\n";
        self.stream.write_all(line.as_bytes()).ok()?;
        // Events may precede the reply, and a reply cut off by a kill counts as none.
        let mut replies = self.lines.by_ref().map_while(Result::ok);
        let reply = replies.find(|line| line.contains(r#""id":"a""#))?;
        let reply: Value = serde_json::from_str(&reply).ok()?;
        Some(match reply["data"]["session"]["id"].as_str() {
            Some(id) => Ok(Kept { id: id.to_owned(), safe }),
            None => Err(reply["error"].as_str().expect("an error text").to_owned()),
        })
    }
}

/// Random numbers. The seed is printed, and `QUACKD_TEST_SEED` repeats it.
#[expect(clippy::print_stderr, reason = "a failed test shows its seed")]
fn seeded() -> Random {
    let given = std::env::var("QUACKD_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let now = SystemTime::UNIX_EPOCH.elapsed().expect("a clock").as_micros();
    let seed = given.unwrap_or_else(|| u64::try_from(now).expect("a small number"));
    eprintln!("QUACKD_TEST_SEED={seed}");
    Random::from_seed(seed)
}

/// Returns a duration between 0.5 ms, which is before the first save, and `longest`.
fn moment(random: &mut Random, longest: Duration) -> Duration {
    let longest = u64::try_from(longest.as_micros()).expect("a small number");
    Duration::from_micros(500 + random.below(longest))
}
