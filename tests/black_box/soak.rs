//! Many sessions in use by many clients at once: no call fails, and all resources are released at
//! the end.
//!
//! The default run is short. The long run is `QUACKD_SOAK_SESSIONS=1000 QUACKD_SOAK_CLIENTS=200
//! QUACKD_SOAK_SECONDS=600 cargo test --release -p quackd --test black_box soak -- --nocapture`.
//! The test prints the durations of calls and sets no limit for them.

use crate::harness::long::{n_descriptors, number_from, proportional_kib, resident_kib, strays};
use crate::harness::{Daemon, Random, Wire, wait_for, wait_within};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Timeout for the cleanup after commands in a thousand sessions.
const CALM: Duration = Duration::from_secs(60);

/// Allowed growth of the number of descriptors, for connections that are just closing.
const SPARE_DESCRIPTORS: usize = 2;

/// Allowed growth of memory, plus 4 KiB per session, whose tables fill gradually. The kept events of all sessions fill
/// 16 MiB, sooner on a fast machine, and take up to twice as much memory.
const SPARE_KIB: u64 = 40 * 1024;

fn tell(line: &str) {
    drop(writeln!(std::io::stderr(), "soak: {line}"));
}

/// Durations of calls in microseconds, by kind.
type Times = BTreeMap<&'static str, Vec<u128>>;

/// One client, which uses every session.
struct Client<'a> {
    name: String,
    wire: Wire,
    sessions: &'a [String],
    chance: Random,
    times: Times,
}

impl Client<'_> {
    fn call(
        &mut self,
        kind: &'static str,
        session: usize,
        tool: &str,
        arguments: &Value,
    ) -> String {
        let params = json!({
            "callId": "c", "toolName": tool, "arguments": arguments.to_string(),
            "sessionId": self.sessions[session],
        });
        let begin = Instant::now();
        let text = self.wire.begin("voice_tool_call", &params).text();
        self.times.entry(kind).or_default().push(begin.elapsed().as_micros());
        text
    }

    fn bash(&mut self, kind: &'static str, session: usize, command: &str, expected: &str) {
        let text = self.call(kind, session, "bash", &json!({"command": command}));
        assert!(text.ends_with(expected), "{command}: {text}");
    }

    /// Makes one random request.
    fn step(&mut self, n: usize) {
        let many = u64::try_from(self.sessions.len()).unwrap();
        let session = usize::try_from(self.chance.below(many)).unwrap();
        match self.chance.below(10) {
            0 | 1 => {
                let expected = format!("{}\n\n[Exit code: 0]", n + 1);
                self.bash("bash", session, &format!("echo $(({n} + 1))"), &expected);
            }
            2 => {
                let expected = "[1 background process was ended]\n[Exit code: 0]";
                self.bash("bash, leaves a process", session, "sleep 60 & echo here", expected);
            }
            3 => {
                let expected = "[Output truncated at 100KB]\n[Exit code: 0]";
                self.bash("bash, 0.2 MB", session, "seq 40000", expected);
            }
            4 | 5 => {
                let text =
                    self.call("read_file", session, "read_file", &json!({"path": "README.md"}));
                assert!(text.contains("A repository"), "{text}");
            }
            6 => self.write_and_edit(session, n),
            7 => {
                let arguments = json!({"pattern": "needle", "path": "src"});
                let text = self.call("grep_search", session, "grep_search", &arguments);
                assert!(text.contains("main.rs"), "{text}");
            }
            8 => {
                let text =
                    self.call("find_files", session, "find_files", &json!({"pattern": "*.md"}));
                assert!(text.contains("README.md"), "{text}");
            }
            _ => self.look(session),
        }
    }

    /// Each client has its own file, so no other client interferes.
    fn write_and_edit(&mut self, session: usize, n: usize) {
        let path = format!("{}.txt", self.name);
        let arguments = json!({"path": path, "content": format!("first {n}\n")});
        let text = self.call("write_file", session, "write_file", &arguments);
        assert!(text.starts_with("Successfully wrote "), "{text}");
        let arguments = json!({"path": path, "old_text": "first", "new_text": "second"});
        let text = self.call("edit_file", session, "edit_file", &arguments);
        assert!(text.starts_with("Successfully edited "), "{text}");
        let text = self.call("read_file", session, "read_file", &json!({"path": path}));
        assert!(text.contains(&format!("second {n}")), "{text}");
    }

    fn look(&mut self, session: usize) {
        let session = json!({"sessionId": self.sessions[session]});
        let begin = Instant::now();
        self.wire.request("follow", session.clone());
        self.wire.request("get_state", session);
        self.wire.request("unfollow", json!({}));
        self.times
            .entry("follow, get_state, unfollow")
            .or_default()
            .push(begin.elapsed().as_micros());
    }
}

/// Runs all clients until the deadline.
fn use_all(
    daemon: &Daemon,
    sessions: &[String],
    clients: usize,
    seed: u64,
    time: Duration,
) -> Times {
    let until = Instant::now() + time;
    let mut times = Times::new();
    thread::scope(|scope| {
        let running: Vec<_> = (0..clients)
            .map(|c| {
                let seed = seed.wrapping_mul(u64::try_from(c + 2).unwrap());
                scope.spawn(move || {
                    let (wire, chance) = (daemon.wire(), Random::from_seed(seed));
                    let name = format!("client{c}");
                    let mut client = Client { name, wire, sessions, chance, times: Times::new() };
                    for n in 0.. {
                        client.step(n);
                        if until <= Instant::now() {
                            break;
                        }
                    }
                    client.times
                })
            })
            .collect();
        for client in running {
            for (kind, mut of_client) in client.join().unwrap() {
                times.entry(kind).or_default().append(&mut of_client);
            }
        }
    });
    times
}

fn print(times: &mut Times, time: Duration) {
    let all: usize = times.values().map(Vec::len).sum();
    tell(&format!("{all} calls in {} s", time.as_secs()));
    for (kind, times) in times {
        times.sort_unstable();
        let at = |permille: usize| times[(times.len() * permille / 1000).min(times.len() - 1)];
        tell(&format!(
            "  {kind}: {} calls, p50 {} us, p99 {} us, longest {} us",
            times.len(),
            at(500),
            at(990),
            at(1000),
        ));
    }
}

/// Prints the median and the largest memory of workers and of their monitors, where the test may
/// read them.
fn tell_memory(wire: &Wire, sessions: usize) {
    let ps = wire.request("quack.ps", json!({}));
    let workers = ps["workers"].as_array().unwrap();
    assert_eq!(workers.len(), sessions, "workers");
    let of =
        |worker: &Value, key: &str| proportional_kib(i32::try_from(worker[key].as_i64()?).ok()?);
    let both = |worker: &Value| Some(of(worker, "pid")? + of(worker, "monitorPid")?);
    let mut each: Vec<u64> = workers.iter().filter_map(both).collect();
    each.sort_unstable();
    if let (Some(median), Some(most)) = (each.get(each.len() / 2), each.last()) {
        tell(&format!("worker and monitor: median {median} KiB, most {most} KiB"));
    }
}

/// Creates a session in its own directory, and waits until its worker has answered.
fn open(daemon: &Daemon, wire: &Wire, n: usize) -> String {
    let repo = daemon.repo(&format!("r{n}"));
    let session = wire.attach(repo.path());
    let ready = "ready\n\n[Exit code: 0]";
    wait_within(CALM, "a worker", || (session.bash("echo ready") == ready).then_some(()));
    session.id
}

fn workers(wire: &Wire) -> BTreeSet<i64> {
    let ps = wire.request("quack.ps", json!({}));
    ps["workers"].as_array().unwrap().iter().filter_map(|worker| worker["pid"].as_i64()).collect()
}

fn spills(directory: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    let size = |entry: std::fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => spills(&entry.path()),
        _ => entry.metadata().map_or(0, |about| about.len()),
    };
    entries.filter_map(Result::ok).map(size).sum()
}

#[test]
fn many_sessions_in_use_by_many_clients_cost_no_call_and_leave_nothing() {
    let asked = |name: &str, usual: u64| number_from(name).unwrap_or(usual);
    let sessions = usize::try_from(asked("QUACKD_SOAK_SESSIONS", 24)).unwrap();
    let clients = usize::try_from(asked("QUACKD_SOAK_CLIENTS", 12)).unwrap();
    let time = Duration::from_secs(asked("QUACKD_SOAK_SECONDS", 6));
    let now = u64::from(std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos());
    let seed = asked("QUACKD_SOAK_SEED", now).max(1);
    tell(&format!("{sessions} sessions, {clients} clients, {} s, seed {seed}", time.as_secs()));
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let begin = Instant::now();
    let ids: Vec<String> = (0..sessions).map(|n| open(&daemon, &wire, n)).collect();
    tell(&format!("all sessions there after {} ms, one by one", begin.elapsed().as_millis()));
    // As many connections and kinds of calls as later, so that the measurement excludes first uses.
    use_all(&daemon, &ids, clients, seed ^ 1, time / 5);
    wait_within(CALM, "the warm-up to be over", || strays(&daemon).is_empty().then_some(()));
    let descriptors = n_descriptors(&daemon);
    let resident = resident_kib(daemon.pid());
    let alive = workers(&wire);

    let mut times = use_all(&daemon, &ids, clients, seed, time);
    print(&mut times, time);
    wait_within(CALM, "nothing to be left of any command", || {
        strays(&daemon).is_empty().then_some(())
    });
    wait_for("the descriptors to be closed", || {
        (n_descriptors(&daemon) <= descriptors + SPARE_DESCRIPTORS).then_some(())
    });
    tell_memory(&wire, sessions);
    let after = resident_kib(daemon.pid());
    let written = spills(&daemon.app().join("run"));
    tell(&format!("supervisor {resident} to {after} KiB, {written} bytes in run directories"));
    assert_eq!(workers(&wire), alive, "a worker was replaced");
    let allowed = resident + SPARE_KIB + 4 * u64::try_from(sessions).unwrap();
    assert!(after < allowed, "grew from {resident} to {after} KiB");
}
