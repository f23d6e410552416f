//! A worker that crashes, hangs or is stopped affects only its own session's calls.

use crate::harness::tier::needs;
use crate::harness::{Daemon, Process, is_alive, program, untested, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn signal(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).expect("signal a process");
}

/// The text for a bash call whose worker died of `cause`.
fn died(cause: &str) -> String {
    format!("Error: Worker died during bash ({cause}). It may have run; it was not retried.")
}

#[test]
fn kill_9_on_a_worker_fails_only_its_own_calls_and_the_next_call_works() {
    let daemon = Daemon::start();
    let (repo_a, repo_b) = (daemon.repo("a"), daemon.repo("b"));
    let wire = daemon.wire();
    let (a, b) = (wire.attach(repo_a.path()), wire.attach(repo_b.path()));
    let other = b.begin("bash", json!("sleep 2; echo undisturbed"));
    let slow = [
        a.begin(
            "bash",
            json!("echo run >> marker; setsid sleep 61 & sleep 60; echo late >> marker"),
        ),
        a.begin("bash", json!("sleep 60")),
    ];
    let worker = wait_for("both calls to run", || {
        // Read the marker first: the reply of `ps` may be outdated when it is read.
        let has_run = repo_a.read("marker") == "run\n";
        let worker = a.worker();
        (has_run && worker["calls"].as_array()?.len() == 2).then_some(worker)
    });
    let (old, undisturbed) = (a.pid("pid"), b.pid("pid"));
    assert_eq!(worker["pid"], old);
    let below = crate::harness::descendants_of(a.pid("monitorPid"));
    assert!(4 <= below.len(), "worker, shells and sleeps: {below:?}");

    signal(old, Signal::SIGKILL);
    for call in slow {
        assert_eq!(call.text(), died("signal 9"));
    }
    wait_for("everything of the dead worker to be gone", || {
        (!below.iter().any(is_alive)).then_some(())
    });

    assert_eq!(a.bash("echo back"), "back\n\n[Exit code: 0]");
    assert_ne!(a.pid("pid"), old);
    let worker = a.worker();
    assert_eq!((&worker["restarts"], &worker["lastDeath"]), (&json!(1), &json!("signal 9")));
    assert_eq!(other.text(), "undisturbed\n\n[Exit code: 0]");
    assert_eq!(b.pid("pid"), undisturbed, "the other session kept its worker");
    assert_eq!(repo_a.read("marker"), "run\n", "the call ran once and did not go on");
    daemon.wait_for_log("worker died");
}

#[test]
fn kill_9_on_a_monitor_is_the_same_as_on_its_worker() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let slow = session.begin("bash", json!("setsid sleep 61 & trap '' TERM; sleep 60"));
    wait_for("the call to run", || (session.worker()["state"] == "busy").then_some(()));
    let monitor = session.pid("monitorPid");
    let below = wait_for("the command's processes", || {
        let below = crate::harness::descendants_of(monitor);
        (below.iter().filter(|process| process.name == "sleep").count() == 2).then_some(below)
    });
    signal(monitor, Signal::SIGKILL);
    assert_eq!(slow.text(), died("signal 9"));
    wait_for("everything below the monitor to be gone", || {
        (!below.iter().any(is_alive)).then_some(())
    });
    assert_eq!(session.bash("echo back"), "back\n\n[Exit code: 0]");
}

#[test]
fn an_idle_worker_that_dies_is_replaced_by_the_next_call() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    for round in 1..=3 {
        session.bash("true");
        let old = session.pid("pid");
        signal(old, Signal::SIGKILL);
        wait_for("the death to be noticed", || {
            (session.worker()["restarts"] == round).then_some(())
        });
        assert_eq!(session.bash("echo back"), "back\n\n[Exit code: 0]");
        assert_ne!(session.pid("pid"), old);
    }
}

#[test]
fn a_worker_that_dies_again_and_again_fails_visibly_until_somebody_asks() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let failed = wait_for("the worker to fail", || {
        let worker = session.worker();
        if worker["state"] == "failed" {
            return Some(worker);
        }
        if let Some(pid) = worker["pid"].as_i64() {
            // The process may already have exited.
            kill(Pid::from_raw(i32::try_from(pid).unwrap()), Signal::SIGKILL).ok();
        } else {
            // Requests the next worker without waiting for it.
            drop(session.begin("bash", json!("sleep 5")));
        }
        None
    });
    assert_eq!(failed["restarts"], 6);
    assert_eq!(
        session.bash("echo hi"),
        "Error: Session worker failed 5 times in 60 s (last: signal 9)"
    );
    // An attach allows another start.
    wire.attach(std::path::Path::new(&session.path));
    assert_eq!(session.bash("echo back"), "back\n\n[Exit code: 0]");
}

#[test]
fn a_stopped_worker_is_killed_after_the_heartbeat_limit_and_said_to_be_so() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let (a, b) = (wire.attach(daemon.repo("a").path()), wire.attach(daemon.repo("b").path()));
    let slow = a.begin("bash", json!("sleep 120"));
    wait_for("the call to run", || (a.worker()["state"] == "busy").then_some(()));
    let pid = a.pid("pid");
    let stopped = Process::find(pid).unwrap();
    signal(pid, Signal::SIGSTOP);
    wait_for("the silence to be noticed", || (a.worker()["state"] == "unresponsive").then_some(()));
    assert_eq!(a.bash("echo hi"), "Error: Worker not responding");
    assert_eq!(b.bash("echo fine"), "fine\n\n[Exit code: 0]");
    assert_eq!(slow.text(), died("not responding"));
    assert!(!is_alive(&stopped));
    assert_eq!(a.bash("echo back"), "back\n\n[Exit code: 0]");
}

#[test]
fn a_worker_that_is_stopped_for_a_moment_is_not_harmed() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let slow = session.begin("bash", json!("sleep 3; echo done"));
    wait_for("the call to run", || (session.worker()["state"] == "busy").then_some(()));
    let pid = session.pid("pid");
    signal(pid, Signal::SIGSTOP);
    let started = Instant::now();
    wait_for("a second to pass", || (Duration::from_secs(1) < started.elapsed()).then_some(()));
    signal(pid, Signal::SIGCONT);
    assert_eq!(slow.text(), "done\n\n[Exit code: 0]");
    assert_eq!(session.pid("pid"), pid);
}

#[test]
fn a_stopped_supervisor_kills_nobody_when_it_goes_on() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let slow = session.begin("bash", json!("sleep 20; echo done"));
    wait_for("the call to run", || (session.worker()["state"] == "busy").then_some(()));
    let pid = session.pid("pid");
    daemon.signal(Signal::SIGSTOP);
    let started = Instant::now();
    wait_for("the heartbeat limit to pass", || {
        (Duration::from_secs(17) < started.elapsed()).then_some(())
    });
    daemon.signal(Signal::SIGCONT);
    assert_eq!(slow.text(), "done\n\n[Exit code: 0]");
    assert_eq!(session.pid("pid"), pid);
}

#[test]
fn a_workspace_that_is_gone_fails_calls_and_not_the_worker() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    session.bash("true");
    let pid = session.pid("pid");
    std::fs::remove_dir_all(repo.path()).unwrap();
    let gone = format!("Error: Workspace not accessible: '{}'", session.path);
    assert_eq!(session.bash("true"), gone);
    assert_eq!(session.call("read_file", json!({"path": "README.md"})), gone);
    assert_eq!(session.call("grep_search", json!({"pattern": "x"})), gone);
    assert_eq!(session.worker()["restarts"], 0);
    // A new directory has the same path: the worker with the old directory was replaced.
    daemon.repo("a");
    assert_eq!(session.call("read_file", json!("README.md")), "# A repository\n");
    assert_ne!(session.pid("pid"), pid);
    assert_eq!(session.worker()["restarts"], 0);
}

#[test]
fn what_a_session_has_read_is_known_to_its_next_worker() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    assert_eq!(session.call("read_file", json!("README.md")), "# A repository\n");
    signal(session.pid("pid"), Signal::SIGKILL);
    wait_for("the death to be noticed", || (session.worker()["restarts"] == 1).then_some(()));
    repo.write("README.md", "# Changed by somebody\n");
    assert_eq!(
        session.call("write_file", json!({"path": "README.md", "content": "x"})),
        "Error: File changed since it was last read: 'README.md'. Read it again before writing."
    );
    assert_eq!(repo.read("README.md"), "# Changed by somebody\n");
}

/// Control group with a memory limit.
struct MemoryGroup {
    directory: PathBuf,
    version: &'static GroupVersion,
}

/// Files of a version of control groups.
struct GroupVersion {
    /// Start of the line in `/proc/self/cgroup`, after the number.
    line: &'static str,
    mounted: &'static str,
    usage: &'static str,
    limit: &'static str,
    no_limit: &'static str,
}

const GROUP_VERSIONS: [GroupVersion; 2] = [
    GroupVersion {
        line: ":memory:/",
        mounted: "/sys/fs/cgroup/memory",
        usage: "memory.usage_in_bytes",
        limit: "memory.limit_in_bytes",
        no_limit: "-1",
    },
    GroupVersion {
        line: "::/",
        mounted: "/sys/fs/cgroup",
        usage: "memory.current",
        limit: "memory.max",
        no_limit: "max",
    },
];

impl MemoryGroup {
    /// `None` if this machine has no such groups, or the test may not create one.
    fn create() -> Option<Self> {
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        GROUP_VERSIONS.iter().find_map(|version| {
            let name = groups.lines().find_map(|line| line.split_once(version.line))?.1;
            let name = Path::new(name).join(format!("quackd-test-{}", std::process::id()));
            let group = Self { directory: Path::new(version.mounted).join(name), version };
            fs::create_dir(&group.directory).ok()?;
            if !group.directory.join(version.usage).exists() {
                fs::remove_dir(&group.directory).unwrap();
                return None;
            }
            // As a service manager does: the daemon shares out the memory of its group. Version 1 has no such attribute.
            let delegated = rustix::fs::setxattr(
                &group.directory,
                "trusted.delegate",
                b"1",
                rustix::fs::XattrFlags::empty(),
            );
            assert!(delegated.is_ok() || version.mounted.ends_with("memory"), "{delegated:?}");
            Some(group)
        })
    }

    /// Script that enters the group and becomes the program of its arguments.
    fn enter(&self) -> String {
        format!("echo 0 > {}/cgroup.procs; exec \"$0\" \"$@\"", self.directory.display())
    }

    fn run(&self, args: &[&str]) {
        let mut command = program("sh");
        assert!(command.args(["-c", &self.enter()]).args(args).status().unwrap().success());
    }

    /// Memory of the group, in bytes.
    fn usage(&self) -> u64 {
        let text = fs::read_to_string(self.directory.join(self.version.usage)).unwrap();
        text.trim().parse().unwrap()
    }

    /// Sets the limit in bytes. `None` removes it.
    fn limit(&self, bytes: Option<u64>) {
        let none = || self.version.no_limit.to_owned();
        let text = bytes.map_or_else(none, |bytes| bytes.to_string());
        fs::write(self.directory.join(self.version.limit), text).unwrap();
    }

    /// Removes the group with those of a daemon that was killed.
    fn remove(&self) -> std::io::Result<()> {
        remove_groups(&self.directory)
    }
}

fn remove_groups(directory: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_groups(&entry.path())?;
        }
    }
    fs::remove_dir(directory)
}

#[test]
fn what_the_kernel_kills_because_memory_ran_out_is_said_to_be_so() {
    needs!(KillOrder);
    let Some(group) = MemoryGroup::create() else {
        return untested("no control group for memory");
    };
    // The kernel adds a share of the limit to the score of a worker, so a small group would not show the order.
    let held = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    group.run(&["sh", "-c", "head -c 512M /dev/zero > \"$0\"", held.path().to_str().unwrap()]);
    let mut daemon = Daemon::absent();
    daemon.boot_in(&["sh", "-c", &group.enter()]);
    let repo = daemon.repo("a");
    fs::write(repo.path().join("large"), "x\n".repeat(4 << 20)).unwrap();
    let wire = daemon.wire();
    let a = wire.attach(repo.path());
    a.bash("true");

    // Not the limit of the session. The first check of a command is after 0.1 s.
    let hoard = "sleep 1; perl -e '$x = \"x\" x (64 << 20); print length $x'";
    let arguments = json!({"command": hoard});
    let request = json!({"sessionId": a.id, "tool": "bash", "arguments": arguments});
    group.limit(Some(group.usage() + (24 << 20)));
    let reply = wire.request("quack.tool", request);
    group.limit(None);
    assert!(reply["ceiling"].is_string() && reply["workerDied"] == false, "{reply}");

    // The worker reads the whole file. The limit does not hold while it starts again.
    let arguments = json!({"path": "large", "old_text": "y", "new_text": "z"});
    let request = json!({"sessionId": a.id, "tool": "edit_file", "arguments": arguments});
    let text = wait_for("a kill by the kernel", || {
        group.limit(Some(group.usage() + (6 << 20)));
        let reply = wire.request("quack.tool", request.clone());
        group.limit(None);
        (reply["workerDied"] == true).then(|| reply["text"].as_str().unwrap().to_owned())
    });
    let cause = "signal 9, probably out of memory";
    assert_eq!(text, died(cause).replace("during bash", "during edit_file"));
    assert_eq!(a.bash("echo back"), "back\n\n[Exit code: 0]");
    assert_eq!(a.worker()["lastDeath"], cause);

    drop(daemon);
    drop(held);
    wait_for("the group to be empty", || group.remove().ok());
}
