//! Tests of processes that run this program: workers with their monitor, and a daemon in the background. The tests
//! re-execute this program in the tested role.
//!
//! It has its own small harness, because a worker must be single-threaded from its first line. The tests run one at a
//! time, because all of them adopt orphans.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "this file is a test target")]
#![expect(clippy::indexing_slicing, reason = "this file is a test target")]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::exit,
    reason = "this program is its own test harness"
)]

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use quackd_process::{
    CgroupBase, Command, Exit, Group, Limits, ProcessHandle, Role, SelfExe, SessionPaths,
    become_session_leader, harden, redirect_stderr_to_null, set_process_name,
    spawn_detached_blocking, spawn_worker_blocking, split_off_monitor, split_off_monitor_of,
    sweep_strays_blocking,
};
use quackd_testkit::wait_until;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::panic::catch_unwind;
use std::process::{Stdio, exit};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Limit for everything that must happen, also for sweeps. A wait for the wrong thing takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

const TESTS: &[(&str, fn())] = &[
    ("the_workers_exit_code_is_the_monitors", the_workers_exit_code_is_the_monitors),
    ("the_workers_abort_is_the_monitors", the_workers_abort_is_the_monitors),
    ("a_killed_worker_takes_its_descendants_along", a_killed_worker_takes_its_descendants_along),
    ("a_closed_channel_ends_everything", a_closed_channel_ends_everything),
    ("a_half_closed_channel_ends_everything", a_half_closed_channel_ends_everything),
    ("a_stopped_worker_ends_with_its_channel", a_stopped_worker_ends_with_its_channel),
    ("term_at_the_monitor_ends_everything", term_at_the_monitor_ends_everything),
    ("the_terminals_signals_end_nothing", the_terminals_signals_end_nothing),
    ("a_killed_monitor_leaves_orphans_to_the_sweep", a_killed_monitor_leaves_orphans_to_the_sweep),
    ("a_killed_supervisor_leaves_nothing", a_killed_supervisor_leaves_nothing),
    ("a_sweep_of_nothing_is_verified_at_once", a_sweep_of_nothing_is_verified_at_once),
    ("a_process_without_its_first_thread_is_swept", a_process_without_its_first_thread_is_swept),
    ("a_process_with_threads_is_not_split", a_process_with_threads_is_not_split),
    ("a_monitor_is_small", a_monitor_is_small),
    ("a_worker_starts_with_nothing_but_its_channel", a_worker_starts_with_nothing_but_its_channel),
    ("a_worker_leads_a_session_without_a_terminal", a_worker_leads_a_session_without_a_terminal),
    ("a_worker_keeps_its_limits", a_worker_keeps_its_limits),
    (
        "a_killed_worker_takes_its_control_group_along",
        a_killed_worker_takes_its_control_group_along,
    ),
    ("a_daemon_is_started_in_a_session_of_its_own", a_daemon_is_started_in_a_session_of_its_own),
];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["worker", behaviour] => worker(behaviour),
        ["grouped", paths] => grouped(paths),
        ["supervisor"] => supervisor(),
        ["daemon"] => daemon(),
        ["headless"] => headless(),
        _ => run_tests(&args),
    }
}

/// The part of the usual harness's interface that cargo and nextest use.
fn run_tests(args: &[&str]) {
    let is_exact = args.contains(&"--exact");
    let filters: Vec<_> = args.iter().filter(|arg| !arg.starts_with("--")).collect();
    let is_chosen = |name: &str| {
        let fits = |filter: &&&str| name == **filter || !is_exact && name.contains(**filter);
        !args.contains(&"--ignored") && (filters.is_empty() || filters.iter().any(&fits))
    };
    let chosen = TESTS.iter().filter(|(name, _)| is_chosen(name) || args.contains(&"--list"));
    if args.contains(&"--list") {
        let none = args.contains(&"--ignored");
        chosen.filter(|_| !none).for_each(|(name, _)| println!("{name}: test"));
        return;
    }
    if !cfg!(target_os = "linux") {
        return;
    }
    harden(Role::Supervisor).unwrap();
    let mut n_failed = 0;
    for (name, test) in chosen {
        let passed = catch_unwind(test).is_ok();
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        n_failed += i32::from(!passed);
        let _swept = sweep_strays_blocking(&BTreeSet::new(), PATIENCE);
    }
    exit(n_failed.min(1));
}

// --- the roles --------------------------------------------------------------------------------

/// A worker with three descendants that try to survive. Reports its own pid and theirs on the control channel, then
/// follows its instructions.
fn worker(behaviour: &str) {
    match behaviour {
        "bare" => bare(),
        "limited" => limited(),
        _ => (),
    }
    split_off_monitor().unwrap();
    harden(Role::Worker).unwrap();
    set_process_name("quack-worker");
    let script = "setsid sleep 600 & echo $!; sleep 600 & echo $!; \
        (setsid bash -c 'trap \"\" TERM HUP INT; echo $$; while :; do sleep 600; done' &); \
        exec sleep 600";
    #[expect(
        clippy::disallowed_methods,
        clippy::zombie_processes,
        reason = "descendants to be found"
    )]
    let mut child = std::process::Command::new("/bin/bash")
        .args(["-c", script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().take(3);
    let mut pids: Vec<String> = lines.map(Result::unwrap).collect();
    pids.extend([child.id().to_string(), std::process::id().to_string()]);
    report(&pids.join(" "));
    match behaviour {
        "exit" => exit(7),
        "abort" => std::process::abort(),
        _ => wait_for_ever(),
    }
}

/// Reports what it was started with.
fn bare() {
    let env: Vec<_> = std::env::vars_os().collect();
    let cwd = std::env::current_dir().unwrap();
    let arg0 = std::env::args_os().next().unwrap();
    let mut fds: Vec<_> =
        fs::read_dir("/proc/self/fd").unwrap().map(|fd| fd.unwrap().file_name()).collect();
    fds.sort();
    report(&format!("{env:?} {cwd:?} {arg0:?} {fds:?}"));
    exit(0);
}

/// Reports what limits it has, and what a write beyond them does.
fn limited() {
    harden(Role::Worker).unwrap();
    let limits = Limits { open_files: Some(3), file_size: Some(1_000_000), ..Limits::default() };
    limits.impose().unwrap();
    // It cannot be undone by less strict ones.
    Limits { file_size: Some(2_000_000), ..Limits::default() }.impose().unwrap();
    let text = fs::read_to_string("/proc/self/limits").unwrap();
    let values = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().skip(3).take(2).collect::<Vec<_>>().join(" ")
    };
    let mut file = tempfile::tempfile().unwrap();
    let refused = file.write_all(&vec![0; 1_000_001]).unwrap_err().kind();
    report(&format!("{} {} {refused:?}", values("Max open files"), values("Max file size")));
    exit(0);
}

/// A worker with a command in a control group that tries to survive. Reports like the others, with its own number
/// first.
fn grouped(paths: &str) {
    let paths: SessionPaths = serde_json::from_str(paths).unwrap();
    split_off_monitor_of(Some(&paths)).unwrap();
    harden(Role::Worker).unwrap();
    let group = Group::open(&paths).unwrap();
    hide_control_groups();
    assert!(!paths.directory.exists());
    let script = "trap '' TERM; f() { while :; do (env -i setsid sleep 600 &); done; }; f & f & f";
    let command = Command {
        program: "/bin/bash".into(),
        args: vec!["-c".into(), script.into()],
        cwd: "/".into(),
        env: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
        deadline: Duration::from_secs(600),
        grace: Duration::ZERO,
        abort_grace: Duration::ZERO,
        leave: Duration::ZERO,
        cancel: CancellationToken::new(),
        tag: "grouped".to_owned(),
        spill: None,
        live: None,
        flow: None,
        input: None,
        terminal: None,
        limits: Limits::default(),
        group: Some(Arc::new(group)),
        spawn_thread: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    report(&std::process::id().to_string());
    drop(runtime.block_on(quackd_process::run(command)));
}

/// Does what confinement does: from now on no path leads to control groups.
#[cfg(target_os = "linux")]
fn hide_control_groups() {
    use nix::mount::{MntFlags, MsFlags, mount, umount2};
    use nix::sched::{CloneFlags, unshare};

    if !rustix::process::getuid().is_root() {
        unshare(CloneFlags::CLONE_NEWUSER).unwrap();
    }
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
    mount(Some("none"), "/sys", Some("tmpfs"), MsFlags::empty(), none)
        .or_else(|_| umount2("/sys/fs/cgroup", MntFlags::MNT_DETACH))
        .unwrap();
}

#[cfg(not(target_os = "linux"))]
fn hide_control_groups() {}

/// A supervisor with one worker, whose report it hands on.
fn supervisor() {
    harden(Role::Supervisor).unwrap();
    let mut worker = Worker::start("wait");
    report(&worker.line());
    wait_for_ever();
}

fn daemon() {
    become_session_leader();
    let session = rustix::process::getsid(None).unwrap();
    eprintln!("session {session}");
    redirect_stderr_to_null().unwrap();
    eprintln!("not seen");
    exit(3);
}

#[cfg(not(target_os = "linux"))]
fn headless() {}

/// A process whose first thread has ended while another one lives on.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "nothing safe ends only the first thread")]
fn headless() {
    std::thread::spawn(|| {
        let is_headless = || state(std::process::id()) == Some('Z');
        wait_until("the end of the first thread", is_headless);
        report("headless");
        wait_for_ever();
    });
    // SAFETY: nothing on this thread's stack is used by the other one.
    unsafe { nix::libc::syscall(nix::libc::SYS_exit, 0) };
}

fn report(line: &str) {
    let mut channel = UnixStream::from(rustix::io::dup(rustix::stdio::stdin()).unwrap());
    channel.write_all(format!("{line}\n").as_bytes()).unwrap();
}

fn wait_for_ever() -> ! {
    loop {
        std::thread::park();
    }
}

// --- the supervisor's side --------------------------------------------------------------------

struct Worker {
    process: ProcessHandle,
    stderr: OwnedFd,
    channel: BufReader<UnixStream>,
}

impl Worker {
    fn start(behaviour: &str) -> Self {
        Self::start_as(&["worker", behaviour])
    }

    fn start_as(args: &[&str]) -> Self {
        let (channel, theirs) = UnixStream::pair().unwrap();
        let started =
            spawn_worker_blocking(&SelfExe::open().unwrap(), args, theirs.into()).unwrap();
        channel.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { process: started.process, stderr: started.stderr, channel: BufReader::new(channel) }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.channel.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// The worker's descendants, and the worker as the last.
    fn pids(&mut self) -> Vec<u32> {
        let line = self.line();
        let pids: Vec<_> = line.split(' ').map(|pid| pid.parse().unwrap()).collect();
        assert_eq!(pids.len(), 5, "{line}");
        pids
    }

    /// Waits for the end, and returns how it ended.
    fn end(&self) -> Exit {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            tokio::time::timeout(PATIENCE, self.process.exited()).await.expect("it ends").unwrap();
        });
        let exit = self.process.try_reap().unwrap().unwrap();
        // The answer stays, and a signal to what is gone is no error.
        assert_eq!(self.process.clone().try_reap().unwrap(), Some(exit));
        self.process.signal(Signal::SIGKILL).unwrap();
        exit
    }
}

fn send(pid: u32, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
}

fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.trim_start().chars().next()
}

fn alive(pids: &[u32]) -> Vec<u32> {
    let lives = |pid: &u32| state(*pid).is_some_and(|state| state != 'Z');
    pids.iter().copied().filter(lives).collect()
}

/// Everything is gone when the monitor is: not later, and not even a zombie is left.
#[track_caller]
fn assert_ended(worker: &Worker, pids: &[u32], expected: Exit) {
    let exit = worker.end();
    let left: Vec<_> = pids.iter().filter(|pid| state(**pid).is_some()).collect();
    assert_eq!(left, Vec::<&u32>::new());
    assert_eq!(exit, expected);
}

// --- the tests --------------------------------------------------------------------------------

fn the_workers_exit_code_is_the_monitors() {
    let mut worker = Worker::start("exit");
    let pids = worker.pids();
    assert_ended(&worker, &pids, Exit::Code(7));
}

fn the_workers_abort_is_the_monitors() {
    let mut worker = Worker::start("abort");
    let pids = worker.pids();
    assert_ended(&worker, &pids, Exit::Signal(6));
}

fn a_killed_worker_takes_its_descendants_along() {
    let mut worker = Worker::start("wait");
    let pids = worker.pids();
    assert_eq!(alive(&pids), pids);
    send(pids[4], Signal::SIGKILL);
    assert_ended(&worker, &pids, Exit::Signal(9));
}

fn a_closed_channel_ends_everything() {
    let mut worker = Worker::start("wait");
    let pids = worker.pids();
    let Worker { process, stderr, channel } = worker;
    drop(channel);
    let (channel, _) = UnixStream::pair().unwrap();
    let worker = Worker { process, stderr, channel: BufReader::new(channel) };
    assert_ended(&worker, &pids, Exit::Signal(9));
}

fn a_half_closed_channel_ends_everything() {
    let mut worker = Worker::start("wait");
    let pids = worker.pids();
    worker.channel.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
    assert_ended(&worker, &pids, Exit::Signal(9));
}

fn a_stopped_worker_ends_with_its_channel() {
    let mut worker = Worker::start("wait");
    let pids = worker.pids();
    send(pids[4], Signal::SIGSTOP);
    wait_until("the stop", || state(pids[4]) == Some('T'));
    worker.channel.get_ref().shutdown(std::net::Shutdown::Both).unwrap();
    assert_ended(&worker, &pids, Exit::Signal(9));
}

fn term_at_the_monitor_ends_everything() {
    let mut worker = Worker::start("wait");
    let pids = worker.pids();
    worker.process.signal(Signal::SIGTERM).unwrap();
    assert_ended(&worker, &pids, Exit::Signal(9));
}

fn the_terminals_signals_end_nothing() {
    let mut worker = Worker::start("wait");
    let pids = worker.pids();
    for signal in [Signal::SIGINT, Signal::SIGHUP] {
        worker.process.signal(signal).unwrap();
        send(pids[4], signal);
    }
    // A signal that did end the worker would do so before the one that is sent after it.
    worker.process.signal(Signal::SIGUSR1).unwrap();
    assert_eq!(worker.process.try_reap().unwrap(), None);
    assert_eq!(alive(&pids), pids);
    send(pids[4], Signal::SIGUSR1);
    assert_ended(&worker, &pids, Exit::Signal(Signal::SIGUSR1 as i32));
}

fn a_killed_monitor_leaves_orphans_to_the_sweep() {
    let (mut worker, mut other) = (Worker::start("wait"), Worker::start("wait"));
    let (pids, others) = (worker.pids(), other.pids());
    worker.process.signal(Signal::SIGKILL).unwrap();
    assert_eq!(worker.end(), Exit::Signal(9));
    wait_until("the worker's end", || alive(&pids[4..]).is_empty());
    assert_eq!(alive(&pids), pids[..4]);

    let keep = BTreeSet::from([other.process.pid()]);
    let sweep = sweep_strays_blocking(&keep, PATIENCE);

    assert!(sweep.verified_empty);
    // Four, and the one that the loop waits for, if it came that far.
    assert!((4..=5).contains(&sweep.killed), "{sweep:?}");
    assert!(pids.iter().all(|pid| state(*pid).is_none()));
    assert_eq!(alive(&others), others);
    assert_eq!(other.process.try_reap().unwrap(), None);
    other.process.signal(Signal::SIGTERM).unwrap();
    assert_ended(&other, &others, Exit::Signal(9));
}

fn a_killed_supervisor_leaves_nothing() {
    let mut supervisor = Worker::start_as(&["supervisor"]);
    let pids = supervisor.pids();
    supervisor.process.signal(Signal::SIGKILL).unwrap();
    assert_eq!(supervisor.end(), Exit::Signal(9));
    wait_until("the end of its processes", || alive(&pids).is_empty());
}

fn a_sweep_of_nothing_is_verified_at_once() {
    let sweep = sweep_strays_blocking(&BTreeSet::new(), Duration::ZERO);
    assert_eq!((sweep.killed, sweep.verified_empty), (0, true));
}

fn a_process_without_its_first_thread_is_swept() {
    let mut worker = Worker::start_as(&["headless"]);
    assert_eq!(worker.line(), "headless");
    let sweep = sweep_strays_blocking(&BTreeSet::new(), PATIENCE);
    assert_eq!((sweep.killed, sweep.verified_empty), (1, true));
}

fn a_process_with_threads_is_not_split() {
    let refused = std::thread::spawn(|| split_off_monitor().is_err()).join().unwrap();
    assert!(refused);
}

fn a_monitor_is_small() {
    let mut worker = Worker::start("wait");
    let pids = worker.pids();
    let monitor = worker.process.pid();
    let smaps = fs::read_to_string(format!("/proc/{monitor}/smaps_rollup")).unwrap();
    let value = |name: &str| -> u64 {
        let line = smaps.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let own = value("Private_Dirty:");
    println!("    {} KiB PSS, {own} KiB of its own", value("Pss:"));
    assert!(own < 1024);
    // Its three, and those that tell of the worker's end and of signals.
    assert_eq!(fs::read_dir(format!("/proc/{monitor}/fd")).unwrap().count(), 5);
    assert_eq!(fs::read_to_string(format!("/proc/{monitor}/comm")).unwrap(), "quack-monitor\n");
    worker.process.signal(Signal::SIGTERM).unwrap();
    assert_ended(&worker, &pids, Exit::Signal(9));
}

fn a_worker_starts_with_nothing_but_its_channel() {
    let mut worker = Worker::start("bare");
    // Four of them: the last one is the directory that is being read.
    assert_eq!(worker.line(), r#"[] "/" "quack" ["0", "1", "2", "3"]"#);
    assert_eq!(worker.end(), Exit::Code(0));
    let mut text = String::new();
    fs::File::from(worker.stderr).read_to_string(&mut text).unwrap();
    assert_eq!(text, "");
}

fn a_worker_leads_a_session_without_a_terminal() {
    let mut worker = Worker::start("wait");
    let pids = worker.pids();
    let stat = fs::read_to_string(format!("/proc/{}/stat", pids[4])).unwrap();
    let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    // Group, session, terminal.
    let own = pids[4].to_string();
    assert_eq!(fields[2..5], [own.as_str(), own.as_str(), "0"]);
    worker.process.signal(Signal::SIGTERM).unwrap();
    assert_ended(&worker, &pids, Exit::Signal(9));
}

fn a_worker_keeps_its_limits() {
    let mut worker = Worker::start("limited");
    assert_eq!(worker.line(), "1024 1024 1000000 1000000 FileTooLarge");
    assert_eq!(worker.end(), Exit::Code(0));
}

fn a_killed_worker_takes_its_control_group_along() {
    let base = match CgroupBase::open_blocking(1000) {
        Ok(base) => base,
        Err(error) => return println!("    not run: {error}"),
    };
    let limits = Limits { processes: 100, ..Limits::default() };
    let paths = base.session_blocking("first", &limits).unwrap();
    let mut worker = Worker::start_as(&["grouped", &serde_json::to_string(&paths).unwrap()]);
    let pid = worker.line().parse().unwrap();
    // The kind without a number of processes has a list of them.
    let list = paths.directory.join("c-0");
    let n_threads = || {
        let read = |name| fs::read_to_string(list.join(name));
        read("tasks").or_else(|_| read("cgroup.threads")).map_or(0, |list| list.lines().count())
    };
    wait_until("many processes", || 50 < n_threads());
    send(pid, Signal::SIGKILL);
    assert_eq!(worker.end(), Exit::Signal(9));
    assert!(!paths.directory.exists());
    // Again: there is nothing to end.
    assert!(paths.end_blocking(Duration::ZERO).unwrap().removed);
}

fn a_daemon_is_started_in_a_session_of_its_own() {
    let mut child = spawn_detached_blocking(&SelfExe::open().unwrap(), &["daemon"]).unwrap();
    let mut exit = None;
    wait_until("the daemon's end", || {
        exit = child.try_wait().unwrap();
        exit.is_some()
    });
    assert_eq!(exit, Some(Exit::Code(3)));
    assert_eq!(child.stderr_so_far(), format!("session {}\n", child.pid()));
}
