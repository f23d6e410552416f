//! Leaks after a kill: kills one of four processes at many moments. Afterwards a next worker has
//! exited, or a next daemon. No process, mount, control group or placeholder in a repository may
//! remain.

use crate::harness::tier::needs;
use crate::harness::users::{Program, User, become_user, best_tier, shell};
use crate::harness::{Daemon, Process, Session, descendants_of, is_alive, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Returns a user id that no other test uses, so that everything it owns belongs to this test.
fn ours_alone(number: u32) -> u32 {
    61_000 + std::process::id() % 2_000 * 2 + number
}

/// Number of kills during a start.
const N_MOMENTS: u64 = 20;

/// Time between two kill moments. A start takes about twenty times as long in a debug build.
const MOMENT: Duration = Duration::from_millis(2);

/// Maximum time that a leftover may exist after the kill.
const LIMIT: Duration = Duration::from_secs(30);

/// The process to kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Worker,
    Init,
    Monitor,
    Supervisor,
}

const VICTIMS: [Victim; 4] = [Victim::Worker, Victim::Init, Victim::Monitor, Victim::Supervisor];

/// A daemon that is killed and restarted, and everything that it may leave.
struct Site<'a> {
    daemon: Daemon,
    quack: &'a Path,
    /// User id of the daemon, if the daemon owns everything of this user.
    alone: Option<u32>,
    /// Every process that was a descendant of a daemon.
    seen: BTreeSet<Process>,
    /// Process ids of the daemons.
    daemons: Vec<i32>,
    repositories: Vec<(PathBuf, BTreeSet<PathBuf>)>,
}

impl<'a> Site<'a> {
    fn new(quack: &'a Path) -> Self {
        let (seen, daemons, repositories) = (BTreeSet::new(), Vec::new(), Vec::new());
        let alone = Some(rustix::process::geteuid().as_raw()).filter(|id| *id >= ours_alone(0));
        let daemon = Daemon::absent();
        let mut site = Self { daemon, quack, alone, seen, daemons, repositories };
        site.boot();
        site
    }

    fn boot(&mut self) {
        self.daemon.boot_with(self.quack.to_str().expect("text"), &["daemon"]);
        self.daemons.push(self.daemon.pid());
    }

    /// Creates a real repository that no worker has used.
    fn repository(&mut self, name: &str) -> PathBuf {
        let path = self.root().join(name);
        fs::create_dir(&path).expect("a directory");
        shell(&path, "git init -q . && echo x > notes.txt").expect("a repository");
        self.repositories.push((path.clone(), tree(&path.join(".git"))));
        path
    }

    fn root(&self) -> PathBuf {
        self.daemon.home().parent().expect("a directory").to_owned()
    }

    /// Records the descendants of the daemon. Returns the pid of the victim if it is running.
    fn find(&mut self, victim: Victim) -> Option<i32> {
        let below = self.daemon.descendants();
        let named = |name: &str| below.iter().find(|it| it.name == name).map(|it| it.pid);
        let found = match victim {
            Victim::Worker => named("quack-worker"),
            Victim::Init => named("quack-init"),
            Victim::Monitor => named("quack-monitor"),
            Victim::Supervisor => Some(self.daemon.pid()),
        };
        self.seen.extend(below);
        found
    }

    fn kill(&mut self, victim: Victim, pid: i32) {
        // The process may have exited in this moment, which is fine.
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap_or_default();
        if victim == Victim::Supervisor {
            self.daemon.wait();
            self.assert_no_process();
            self.boot();
        }
    }

    #[track_caller]
    fn assert_no_process(&self) {
        let begin = Instant::now();
        let left = wait_for("a look", || {
            let left = self.left();
            (left.is_empty() || LIMIT < begin.elapsed()).then_some(left)
        });
        assert_eq!(left, Vec::<String>::new());
    }

    fn left(&self) -> Vec<String> {
        let is_ours = |pid: i32| {
            let directory = PathBuf::from(format!("/proc/{pid}"));
            let owner = fs::metadata(&directory).map(|it| it.uid());
            let place = fs::read_link(directory.join("cwd"));
            owner.is_ok_and(|id| Some(id) == self.alone)
                || place.is_ok_and(|place| place.starts_with(self.root()))
        };
        let pids = fs::read_dir("/proc").expect("list processes");
        let pids = pids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let left = pids.filter(|pid| is_ours(*pid)).filter_map(Process::find);
        let seen = self.seen.iter().filter(|it| is_alive(it)).cloned();
        left.filter(|it| it.state != 'Z').chain(seen).map(|it| format!("{it:?}")).collect()
    }

    /// Starts and ends one more worker in each repository, and one more daemon, then asserts that
    /// nothing is left.
    #[track_caller]
    fn finish(mut self) {
        for (path, before) in self.repositories.clone() {
            let wire = self.daemon.wire();
            let session = wire.attach(&path);
            look(&session);
            wire.request("quack.session_delete", json!({"sessionId": session.id, "force": true}));
            assert_eq!(leftovers(&path, &before), BTreeSet::new(), "{}", session.id);
        }
        self.daemon.signal(Signal::SIGKILL);
        self.daemon.wait();
        self.boot();
        self.daemon.signal(Signal::SIGTERM);
        assert_eq!(self.daemon.wait(), Some(0));
        self.assert_no_process();
        let root = self.root();
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        let name = root.to_str().expect("text");
        let left: Vec<_> = mounts.lines().filter(|line| line.contains(name)).collect();
        assert_eq!(left, Vec::<&str>::new(), "mounts");
        assert_eq!(self.groups(), Vec::<PathBuf>::new(), "control groups");
        let records = fs::read_dir(self.daemon.app().join("placeholders"));
        assert_eq!(records.map_or(0, Iterator::count), 0, "records of placeholders");
        for (path, before) in &self.repositories {
            assert_eq!(&tree(&path.join(".git")), before, "{}", path.display());
        }
    }

    /// Control groups of the test's daemons.
    fn groups(&self) -> Vec<PathBuf> {
        let names: Vec<_> = self.daemons.iter().map(|pid| format!("quackd-{pid}-")).collect();
        let mut all = BTreeSet::new();
        list(Path::new("/sys/fs/cgroup"), &mut all);
        let is_ours = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            names.iter().any(|prefix| name.starts_with(prefix))
        };
        all.into_iter().filter(is_ours).collect()
    }
}

/// Difference between the current and the earlier entries of a repository, after the maximum time
/// of a cleanup.
fn leftovers(path: &Path, before: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    let begin = Instant::now();
    wait_for("a look", || {
        let now = tree(&path.join(".git"));
        let left: BTreeSet<_> = now.symmetric_difference(before).cloned().collect();
        (left.is_empty() || LIMIT < begin.elapsed()).then_some(left)
    })
}

/// Every entry in a directory, recursively.
fn tree(directory: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    list(directory, &mut found);
    found
}

fn list(directory: &Path, found: &mut BTreeSet<PathBuf>) {
    // Other tests remove their groups concurrently.
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.filter_map(Result::ok) {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            list(&entry.path(), found);
        }
        found.insert(entry.path());
    }
}

/// Makes a call that needs a worker, and repeats it until a worker has started: the previous worker
/// may just have been killed.
fn look(session: &Session<'_>) {
    let params = json!({"tool": "find_files", "sessionId": session.id,
                        "arguments": {"pattern": "notes.txt"}});
    wait_for("a worker", || {
        let reply = session.wire.reply("quack.tool", params.clone());
        (reply["data"]["isError"] == false).then_some(())
    });
}

fn each_in_turn(quack: &Path) {
    let mut site = Site::new(quack);
    for victim in VICTIMS {
        let path = site.repository(&format!("{victim:?}"));
        let wire = site.daemon.wire();
        let session = wire.attach(&path);
        session.call("bash", json!({"command": "sleep 1000", "background": true}));
        let pid = site.find(victim).unwrap_or_else(|| panic!("no {victim:?}"));
        let has_groups = session.worker()["tier"] == "A";
        assert_eq!(has_groups, !site.groups().is_empty(), "control groups");
        let below: Vec<_> = descendants_of(pid).into_iter().collect();
        assert!(victim == Victim::Worker || 1 < below.len(), "{victim:?} has {below:?} below it");
        site.kill(victim, pid);
        wait_for("what was below to end", || (!below.iter().any(is_alive)).then_some(()));
    }
    site.finish();
}

fn in_the_middle_of_a_start(quack: &Path) {
    let mut site = Site::new(quack);
    let mut n_killed = 0;
    for n in 0..N_MOMENTS {
        let victim = VICTIMS[usize::try_from(n).expect("a small number") % VICTIMS.len()];
        let path = site.repository(&format!("{n}"));
        let wire = site.daemon.wire();
        let reply = wire.begin("attach", &json!({"path": path}));
        // No message is ever sent: this is a sleep that need not be exact.
        let (_sender, never) = channel::<()>();
        let moment = MOMENT * u32::try_from(n).expect("a small number");
        assert_eq!(never.recv_timeout(moment), Err(RecvTimeoutError::Timeout));
        // Early in a start no process has its name yet: then kill the youngest.
        let pid = site.find(victim).or_else(|| {
            let below = site.daemon.descendants();
            below.into_iter().max_by_key(|it| it.started).map(|it| it.pid)
        });
        if let Some(pid) = pid {
            n_killed += 1;
            site.kill(victim, pid);
        }
        drop(reply);
    }
    assert!(N_MOMENTS / 2 < n_killed, "{n_killed} kills");
    site.finish();
}

fn as_both(number: u32, work: fn(&Path)) {
    let run = move |user| {
        if best_tier(user).is_err() {
            return;
        }
        let program = Program::new(user);
        if user == User::Ordinary {
            become_user(ours_alone(number));
        }
        work(&program.path);
    };
    std::thread::scope(|scope| {
        let both = [User::Root, User::Ordinary].map(|user| scope.spawn(move || run(user)));
        for one in both {
            one.join().expect("nothing left");
        }
    });
}

#[test]
fn nothing_is_left_of_a_confined_worker_whichever_process_is_killed() {
    needs!(OwnTier);
    as_both(0, each_in_turn);
}

#[test]
fn nothing_is_left_of_a_start_that_is_cut_short_at_any_moment() {
    needs!(OwnTier);
    as_both(1, in_the_middle_of_a_start);
}
