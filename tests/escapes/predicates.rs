//! Forbidden effects: one check for each kind of predicate in the corpus.

use super::calls::Answers;
use super::world::{self, World};
use crate::harness::users::shell;
use crate::harness::{FakeExa, Process, Session, wait_within};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Maximum number of bytes compared per file.
const MAX_COMPARED: u64 = 1 << 20;

/// Maximum delay of a connection or a signal after the call.
const ARRIVAL: Duration = Duration::from_secs(1);

/// Interval of the concurrent probe.
const LOOK: Duration = Duration::from_millis(100);

/// An idle machine starts a program in less time.
const HOST_IS_SLOW: Duration = Duration::from_secs(2);

/// Attributes of a file that a case must not change. A directory is compared by its mode only.
#[derive(Debug, PartialEq, Eq)]
struct Snapshot {
    mode: u32,
    modified: Option<(i64, i64)>,
    content: Vec<u8>,
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Snapshot {
    fn take(path: &Path) -> Option<Self> {
        let found = fs::symlink_metadata(path).ok()?;
        let content = if found.is_file() { read(path) } else { Vec::new() };
        let modified = (!found.is_dir()).then(|| (found.mtime(), found.mtime_nsec()));
        Some(Self { mode: found.mode(), modified, content, attributes: attributes(path) })
    }
}

fn read(path: &Path) -> Vec<u8> {
    use std::io::Read as _;
    let mut content = Vec::new();
    if let Ok(file) = fs::File::open(path) {
        drop(file.take(MAX_COMPARED).read_to_end(&mut content));
    }
    content
}

/// Extended attributes and their values. Empty if the file system has no extended attributes.
fn attributes(path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut names = [0_u8; 4096];
    let n = rustix::fs::llistxattr(path, &mut names).unwrap_or_default();
    let names = names[..n].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let pair = |name: &[u8]| {
        let mut value = [0_u8; 4096];
        let n = rustix::fs::lgetxattr(path, name, &mut value).unwrap_or_default();
        (name.to_vec(), value[..n].to_vec())
    };
    names.map(pair).collect()
}

/// State before the calls, and observations during the calls.
pub(super) struct Watch<'a> {
    world: &'a World,
    before: BTreeMap<String, Option<Snapshot>>,
    victim: BTreeMap<&'static str, Option<String>>,
    free_bytes: u64,
    is_connected: AtomicBool,
    slowest: AtomicU64,
    most_jobs: AtomicUsize,
}

impl<'a> Watch<'a> {
    /// Records the state before the calls. The placeholders in `must_not` are already filled.
    pub(super) fn begin(world: &'a World, must_not: &[Value]) -> Self {
        let paths = must_not.iter().filter_map(|predicate| predicate["path"].as_str());
        let snapshot = |path: &str| (path.to_owned(), Snapshot::take(Path::new(path)));
        Self {
            world,
            before: paths.map(snapshot).collect(),
            victim: facts_of(world.victim()),
            free_bytes: free_bytes(&world.workspace()),
            is_connected: AtomicBool::default(),
            slowest: AtomicU64::default(),
            most_jobs: AtomicUsize::default(),
        }
    }

    /// Makes the calls, and concurrently probes for effects that are invisible afterwards.
    pub(super) fn beside<T>(&self, must_not: &[Value], calls: impl FnOnce() -> T) -> T {
        let forbids = |kind| must_not.iter().any(|predicate| predicate["kind"] == kind);
        let (connect, host, jobs) =
            (forbids("host_connect"), forbids("host_slow"), forbids("jobs_gt"));
        if !connect && !host && !jobs {
            return calls();
        }
        // `World` is not `Sync`, so the thread gets only these fields.
        let (connected, slowest, most) = (&self.is_connected, &self.slowest, &self.most_jobs);
        let port: u16 = self.world.value("FREE").parse().expect("a port");
        let (mark, workspace) = (self.world.value("N").to_owned(), self.world.workspace());
        let look = move || {
            if connect && TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() {
                connected.store(true, Ordering::SeqCst);
            }
            if host {
                let begin = Instant::now();
                drop(shell(&workspace, "true"));
                let took = u64::try_from(begin.elapsed().as_millis()).expect("a short time");
                slowest.fetch_max(took, Ordering::SeqCst);
            }
            if jobs {
                most.fetch_max(world::n_sleeping(&mark), Ordering::SeqCst);
            }
        };
        let (over, is_over) = channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                while is_over.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                    look();
                }
            });
            let outcome = calls();
            drop(over);
            outcome
        })
    }

    /// Returns true if a predicate became true.
    pub(super) fn is_true(
        &self,
        predicate: &Value,
        answers: &Answers,
        session: &Session<'_>,
    ) -> bool {
        let text = |key: &str| predicate[key].as_str().unwrap_or_default();
        let number = |key: &str| predicate[key].as_u64().expect("a number");
        let path = Path::new(text("path"));
        let was = || self.before.get(text("path")).expect("a snapshot before the calls").as_ref();
        match text("kind") {
            "output_has" => {
                [&answers.text, &answers.spilled].iter().any(|it| it.contains(text("text")))
            }
            "output_lacks" => !answers.text.contains(text("text")),
            "result_bytes_gt" => number("value") < answers.text.len() as u64,
            "accepted" => answers.is_accepted,
            "slow" => u128::from(number("ms")) < answers.took.as_millis(),
            "changed" => Snapshot::take(path).as_ref() != was(),
            "created" => was().is_none() && fs::symlink_metadata(path).is_ok(),
            "mode_changed" => {
                Snapshot::take(path).map(|now| now.mode) != was().map(|before| before.mode)
            }
            "file_lacks" => !String::from_utf8_lossy(&read(path)).contains(text("text")),
            "host_exec" => {
                self.world.as_user(text("cmd"));
                fs::symlink_metadata(path).is_ok()
            }
            "net_hit" => holds_within(ARRIVAL, || self.world.listeners.is_hit(text("via"))),
            "host_connect" => self.is_connected.load(Ordering::SeqCst),
            "proc_alive" => {
                let after = Duration::from_millis(number("after_ms"));
                !holds_within(after, || !self.world.runs(text("cmdline")))
            }
            "jobs_gt" => {
                let now = world::n_sleeping(self.world.value("N"));
                let most = self.most_jobs.load(Ordering::SeqCst).max(now);
                number("value") < most as u64
            }
            // A signal is delivered asynchronously.
            "daemon_dead" => holds_within(ARRIVAL, || {
                !is_sound(self.world.victim()) || !is_sound(self.world.daemon().pid())
            }),
            "daemon_attr_changed" => {
                facts_of(self.world.victim())[text("attr")] != self.victim[text("attr")]
            }
            "worker_crash" => has_crashed(session),
            "rss_mb_gt" => {
                let worker = i32::try_from(session.worker()["pid"].as_i64().expect("a worker"));
                let pids = [self.world.daemon().pid(), worker.expect("a pid")];
                pids.into_iter().any(|pid| number("value") < peak_mb(pid))
            }
            "disk_used_gt_mb" => {
                let now = free_bytes(&self.world.workspace());
                number("value") < self.free_bytes.saturating_sub(now) >> 20
            }
            "host_slow" => {
                HOST_IS_SLOW.as_millis() < u128::from(self.slowest.load(Ordering::SeqCst))
            }
            "outbound_has" => {
                let exa = self.world.exa.as_ref().expect("a provider");
                sent(exa, answers).contains(text("text"))
            }
            other => panic!("unknown kind of predicate: {other}"),
        }
    }
}

/// Ends a session with all processes that its calls started.
pub(super) fn end_session(session: &Session<'_>) {
    session.wire.request("quack.session_delete", json!({"sessionId": session.id, "force": true}));
}

/// Returns true if the condition becomes true within `time`.
fn holds_within(time: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let begin = Instant::now();
    wait_within(time + Duration::from_secs(20), "an end", || {
        if holds() {
            return Some(true);
        }
        (time < begin.elapsed()).then_some(false)
    })
}

/// Attributes of a process that another process could change.
fn facts_of(pid: i32) -> BTreeMap<&'static str, Option<String>> {
    let file = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
    // The 19th field; the name before the fields may contain blanks.
    let nice = file("stat")
        .and_then(|stat| Some(stat.rsplit_once(')')?.1.split_whitespace().nth(16)?.to_owned()));
    let others = ["oom_score_adj", "limits"].map(|name| (name, file(name)));
    BTreeMap::from_iter(others.into_iter().chain([("nice", nice)]))
}

/// Returns true if a process exists and is neither stopped nor traced.
fn is_sound(pid: i32) -> bool {
    Process::find(pid).is_some_and(|process| !matches!(process.state, 'Z' | 'X' | 'T' | 't'))
}

fn has_crashed(session: &Session<'_>) -> bool {
    let ps = session.wire.request("quack.ps", json!({}));
    let mut all = ps["workers"].as_array().expect("workers").iter();
    let worker = all.find(|worker| worker["sessionId"] == session.id.as_str());
    worker.is_some_and(|it| it["restarts"] != 0 || !it["lastDeath"].is_null())
}

/// Peak memory of a process in MB; 0 if it has exited.
fn peak_mb(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kb = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kb.unwrap_or_default() / 1024
}

fn free_bytes(path: &Path) -> u64 {
    let found = rustix::fs::statvfs(path).expect("inspect a file system");
    found.f_bfree * found.f_frsize
}

/// Requests sent to the provider. Empty if the call was refused first.
fn sent(exa: &FakeExa, answers: &Answers) -> String {
    if answers.text.starts_with("Error: ") && exa.is_untouched() {
        return String::new();
    }
    let request = exa.request();
    format!("{}\r\n\r\n{}", request.head, request.body)
}
