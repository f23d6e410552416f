//! Kill matrix: regardless of the command's processes and of the end of its call, no process
//! remains. Tests every way to escape from a shell against every way to end.

use crate::harness::stand_in::{VARIABLE, sandbox_exec};
use crate::harness::tier::{self, needs};
use crate::harness::{Daemon, Session, program, skipped, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use std::io::Write;
use std::time::{Duration, Instant};

/// Script of each row and its number of processes. Each process that must not survive has `MARK` in
/// its arguments.
const WAYS: &[(&str, usize, &str)] = &[
    ("background", 1, "(exec -a MARK sleep 1000) &"),
    ("own session", 1, "setsid bash -c 'exec -a MARK sleep 1000' &"),
    ("double fork", 1, "( ( exec -a MARK sleep 1000 & ) & )"),
    ("daemon", 1, "setsid bash -c '(exec -a MARK sleep 1000 </dev/null >/dev/null 2>&1) & exit' &"),
    ("nohup", 1, "nohup bash -c 'exec -a MARK sleep 1000' >/dev/null 2>&1 &"),
    ("disowned", 1, "bash -c 'exec -a MARK sleep 1000' & disown"),
    ("ignores TERM", 1, "bash -c 'trap \"\" TERM INT HUP; while :; do sleep 0.05; done' MARK &"),
    ("stopped", 1, "bash -c 'kill -STOP $$; sleep 1000' MARK &"),
    ("stopped, own session", 1, "setsid bash -c 'kill -STOP $$; sleep 1000' MARK &"),
    ("no environment", 1, "env -i setsid bash -c 'exec -a MARK sleep 1000' &"),
    ("holds the pipes", 1, "setsid bash -c 'exec -a MARK sleep 1000' 0<&0 &"),
    (
        "nohup, disowned",
        1,
        "nohup setsid bash -c 'exec -a MARK sleep 1000' >/dev/null 2>&1 & disown -a",
    ),
    (
        "tree of 200",
        200,
        "for i in {1..20}; do (for j in {1..10}; do (exec -a MARK sleep 1000) & done; wait) & done",
    ),
];

/// A fork bomb, which ignores SIGTERM. A limit per user stops it, which applies only to ordinary
/// users.
const BOMB: (&str, usize, &str) = (
    "fork bomb",
    60,
    "bash -c 'ulimit -u 150; trap \"\" TERM; b() { b | b & wait; }; b' MARK 2>/dev/null &",
);

/// End of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Normally,
    ByDeadline,
    ByAbort,
    WithWorker,
    WithSupervisor,
}

/// Number of running processes with `mark` in their arguments. A zombie has no arguments.
pub(crate) fn marked(mark: &str) -> usize {
    let processes = std::fs::read_dir("/proc").expect("list processes");
    let is_marked = |entry: std::io::Result<std::fs::DirEntry>| {
        let arguments = std::fs::read(entry.ok()?.path().join("cmdline")).ok()?;
        // The arguments of the call's shell contain the mark too, but inside a longer argument.
        arguments.split(|byte| *byte == 0).any(|word| word == mark.as_bytes()).then_some(())
    };
    processes.filter_map(is_marked).count()
}

/// Runs one cell. Returns the time until no process was left.
fn cell(daemon: &mut Daemon, way: &(&str, usize, &str), end: End, mark: &str) -> Duration {
    let (name, n, script) = way;
    let script = script.replace("MARK", mark);
    let wire = daemon.wire();
    // A separate session per cell: the daemon gives up a session whose workers keep crashing.
    let repo = daemon.repo(mark);
    let session: Session<'_> = wire.attach(repo.path());
    let started = format!(
        "until [ $(grep -lszx -- {mark} /proc/[0-9]*/cmdline | wc -l) -ge {n} ]; do sleep 0.02; done"
    );
    let rest = if end == End::Normally { "true" } else { "sleep 1000" };
    let command = format!("{script}\n{started}\n{rest}");
    let timeout_ms = if end == End::ByDeadline { 1500 } else { 30_000 };
    let call = session.begin("bash", json!({"command": command, "timeout_ms": timeout_ms}));
    if !matches!(end, End::Normally | End::ByDeadline) {
        wait_for("everything to run", || (*n <= marked(mark)).then_some(()));
    }
    let begin = Instant::now();
    let text = match end {
        End::Normally | End::ByDeadline => call.text(),
        End::ByAbort => {
            wire.request("abort", json!({"sessionId": session.id}));
            call.text()
        }
        End::WithWorker => {
            kill(Pid::from_raw(session.pid("pid")), Signal::SIGKILL).expect("kill the worker");
            call.text()
        }
        End::WithSupervisor => {
            daemon.signal(Signal::SIGKILL);
            daemon.wait();
            String::new()
        }
    };
    let begin = if matches!(end, End::Normally | End::ByDeadline) { Instant::now() } else { begin };
    let what = format!("nothing to be left of '{name}' ({end:?}): {text}");
    wait_for(&what, || (marked(mark) == 0).then_some(()));
    begin.elapsed()
}

fn column(end: End) {
    let mut daemon = Daemon::start();
    let mut slowest = Duration::ZERO;
    for (n, way) in WAYS.iter().enumerate() {
        let mark = format!("quackd-mark-{}-{end:?}-{n}", std::process::id());
        slowest = slowest.max(cell(&mut daemon, way, end, &mark));
        if end == End::WithSupervisor {
            daemon.boot();
        }
    }
    // Visible with `--nocapture`.
    drop(writeln!(std::io::stderr(), "{end:?}: empty after {slowest:?} at most"));
}

/// Runs one test of this file again as a user other than root. No other process uses this user id,
/// so the limit counts only processes of the test. `setpriv` is part of every Linux system.
fn run_unprivileged(test: &str) {
    let id = 40_000 + std::process::id() % 20_000;
    let tests = std::env::current_exe().expect("the path of the tests");
    let as_user = |args: &[&str]| {
        let mut command = program("setpriv");
        command.args([&format!("--reuid={id}"), &format!("--regid={id}")]);
        if tier::is_macos() {
            command.env(VARIABLE, sandbox_exec());
        }
        command.args(["--clear-groups", "--"]).args(args).output().expect("run setpriv")
    };
    let path = tests.to_str().expect("a path");
    let may_run = [path, env!("CARGO_BIN_EXE_quack")].map(|path| as_user(&["test", "-x", path]));
    if !may_run.iter().all(|output| output.status.success()) {
        return skipped(&format!("{test}: other users may not run {path}"));
    }
    let output = as_user(&[path, "--exact", test, "--nocapture"]);
    drop(std::io::stderr().write_all(&output.stderr));
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}");
}

#[test]
fn nothing_survives_of_a_fork_bomb_however_its_call_ends() {
    if nix::unistd::geteuid().is_root() {
        return run_unprivileged(
            "kill_matrix::nothing_survives_of_a_fork_bomb_however_its_call_ends",
        );
    }
    let mut daemon = Daemon::start();
    let ends = [End::Normally, End::ByDeadline, End::ByAbort, End::WithWorker, End::WithSupervisor];
    for end in ends {
        let mark = format!("quackd-mark-{}-{end:?}-bomb", std::process::id());
        let took = cell(&mut daemon, &BOMB, end, &mark);
        drop(writeln!(std::io::stderr(), "fork bomb, {end:?}: empty after {took:?}"));
    }
}

/// If the kernel counts the processes of a session, it refuses those above the limit. Otherwise the
/// worker kills a command with too many processes.
#[test]
fn a_command_with_more_processes_than_it_may_have_is_told_so_and_leaves_none() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let mark = format!("quackd-mark-{}-many", std::process::id());
    let command = format!("for i in {{1..700}}; do (exec -a {mark} sleep 1000) & done; wait");
    let call = session.begin("bash", json!({"command": command, "timeout_ms": 20_000}));
    let text = call.text();
    let is_ended = text.ends_with(
        "\n[Process limit of 512 exceeded; the command was ended]\n[Exit code: unknown]",
    );
    assert!(is_ended || text.contains("Resource temporarily unavailable"), "{text}");
    assert_eq!(marked(&mark), 0);
    assert_eq!(session.bash("echo back"), "back\n\n[Exit code: 0]");
}

#[test]
fn nothing_survives_a_call_that_ends_normally() {
    needs!(Procfs);
    column(End::Normally);
}

#[test]
fn nothing_survives_a_call_that_ends_by_its_deadline() {
    column(End::ByDeadline);
}

#[test]
fn nothing_survives_a_call_that_is_aborted() {
    column(End::ByAbort);
}

#[test]
fn nothing_survives_a_worker_that_is_killed() {
    column(End::WithWorker);
}

#[test]
fn nothing_survives_a_supervisor_that_is_killed() {
    column(End::WithSupervisor);
}
