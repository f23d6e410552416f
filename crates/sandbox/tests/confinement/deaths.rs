//! Tests that the death of any of the three processes, at any time, kills all others.

use crate::world::World;
use quackd_testkit::{runs, wait_until};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

type Case = fn(&World);

pub(crate) const ALL: &[(&str, Case)] = &[
    ("the_workers_end_is_told_and_ends_all", worker),
    ("the_end_of_process_1_ends_all", init),
    ("the_monitors_end_ends_all", monitor),
    ("a_stopped_process_1_is_ended_too", stopped),
    ("a_kill_during_the_start_leaves_nothing", during_the_start),
];

/// A worker whose command has left its group, its session and its parent.
struct Running {
    monitor: Child,
    init: u32,
    worker: u32,
    marker: String,
}

impl Running {
    fn start(world: &World, case: u32) -> Self {
        let marker = format!("1000.{case}{}{}", std::process::id(), world.user.id);
        let script = format!("(setsid sleep {marker} &) ; (trap '' TERM; sleep {marker}) & wait");
        let mut command = world.command(&script);
        world.become_user(&mut command);
        command.stdin(Stdio::null());
        let monitor = command.spawn().unwrap();
        wait_until("the commands run", || count(&marker) >= 2);
        let init = child_of(monitor.id());
        let worker = child_of(init);
        Self { monitor, init, worker, marker }
    }

    /// Asserts that no process is left. By themselves they would stay for a long time.
    fn is_over(&self) {
        wait_until("everything ended", || {
            count(&self.marker) == 0 && !runs(self.init) && !runs(self.worker)
        });
    }

    fn signal(pid: u32, signal: &str) {
        let status =
            std::process::Command::new("/bin/kill").args([signal, &pid.to_string()]).status();
        assert!(status.unwrap().success());
    }
}

fn child_of(pid: u32) -> u32 {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.split_whitespace().next().unwrap().parse().unwrap()
}

fn count(marker: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| line.starts_with(format!("sleep\0{marker}\0").as_bytes())).count()
}

fn worker(world: &World) {
    let mut running = Running::start(world, 1);
    Running::signal(running.worker, "-9");
    assert_eq!(running.monitor.wait().unwrap().code(), Some(128 + 9));
    running.is_over();
}

fn init(world: &World) {
    let mut running = Running::start(world, 2);
    // From outside, process 1 heeds a kill; nothing else.
    Running::signal(running.init, "-TERM");
    assert!(running.monitor.try_wait().unwrap().is_none());
    Running::signal(running.init, "-9");
    assert_eq!(running.monitor.wait().unwrap().code(), Some(98), "there is no status to tell");
    running.is_over();
}

fn monitor(world: &World) {
    let mut running = Running::start(world, 3);
    running.monitor.kill().unwrap();
    running.monitor.wait().unwrap();
    running.is_over();
}

fn stopped(world: &World) {
    let mut running = Running::start(world, 4);
    Running::signal(running.init, "-STOP");
    Running::signal(running.worker, "-STOP");
    running.monitor.kill().unwrap();
    running.monitor.wait().unwrap();
    running.is_over();
}

fn during_the_start(world: &World) {
    let marker = format!("1000.5{}{}", std::process::id(), world.user.id);
    for step in 0..60 {
        let mut command = world.command(&format!("exec sleep {marker}"));
        world.become_user(&mut command);
        let mut monitor = command.stdin(Stdio::null()).spawn().unwrap();
        // A different moment each time; the last ones are after the start.
        let until = Instant::now() + Duration::from_micros(200 * step);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        monitor.kill().unwrap();
        monitor.wait().unwrap();
    }
    wait_until("no worker is left", || count(&marker) == 0 && copies() == 0);
}

/// Returns the copies of this program, except this process and exiting ones.
fn copies() -> usize {
    let own = std::fs::metadata("/proc/self/exe")
        .map(|m| std::os::unix::fs::MetadataExt::ino(&m))
        .unwrap();
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let same = processes.filter(|entry| {
        let number = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        // `self` and its like are names of this one.
        let is_this = number.is_none_or(|number| number == std::process::id());
        let program = std::fs::metadata(entry.path().join("exe"));
        !is_this && program.is_ok_and(|m| std::os::unix::fs::MetadataExt::ino(&m) == own)
    });
    same.count()
}
