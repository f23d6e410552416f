//! Workers are forks of a template. A template that was killed or stopped fails no call.

use crate::harness::tier::needs;
use crate::harness::{Daemon, Process, is_alive, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const NAME: &str = "quack-template";

fn template(daemon: &Daemon) -> Option<Process> {
    let mut children = daemon.descendants().into_iter();
    children.find(|child| child.name == NAME && child.parent == daemon.pid())
}

/// Waits for a template other than `old`.
fn next_template(daemon: &Daemon, old: Option<&Process>) -> Process {
    wait_for("a template", || {
        template(daemon).filter(|now| old.is_none_or(|old| old.pid != now.pid))
    })
}

fn address_layout(pid: i32) -> String {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("read the layout");
    let first = maps.lines().next().expect("a mapping");
    first.split('-').next().expect("an address").to_owned()
}

#[test]
fn workers_after_the_first_are_forks_of_the_template_and_children_of_the_daemon() {
    needs!(Monitor);
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let first = wire.attach(daemon.repo("a").path());
    assert_eq!(first.bash("echo a"), "a\n\n[Exit code: 0]");
    let template = next_template(&daemon, None);
    let forks = ["b", "c"].map(|name| wire.attach(daemon.repo(name).path()));
    for session in &forks {
        // Workers share no channel: the output of one session never reaches another.
        assert_eq!(session.bash("echo b; echo b >&2"), "b\n\nb\n\n[Exit code: 0]");
        let monitor = Process::find(session.pid("monitorPid")).expect("a monitor");
        assert_eq!((monitor.parent, &*monitor.name), (daemon.pid(), "quack-monitor"));
        let layout = address_layout(session.pid("pid"));
        assert_eq!(layout, address_layout(template.pid), "not a fork of the template");
    }
    let before = [&first, &forks[1]].map(|session| session.pid("pid"));
    kill(Pid::from_raw(forks[0].pid("pid")), Signal::SIGKILL).expect("kill a worker");
    wait_for("the next worker", || (forks[0].worker()["restarts"] == 1).then_some(()));
    assert_eq!(forks[0].bash("echo again"), "again\n\n[Exit code: 0]");
    assert_eq!([&first, &forks[1]].map(|session| session.pid("pid")), before);
}

#[test]
fn a_killed_template_is_replaced_and_no_call_notices() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    wire.attach(daemon.repo("a").path()).bash("true");
    let old = next_template(&daemon, None);
    kill(Pid::from_raw(old.pid), Signal::SIGKILL).expect("kill the template");
    wait_for("the template to end", || (!is_alive(&old)).then_some(()));

    let second = wire.attach(daemon.repo("b").path());
    assert_eq!(second.bash("echo b"), "b\n\n[Exit code: 0]");
    let new = next_template(&daemon, Some(&old));
    let third = wire.attach(daemon.repo("c").path());
    assert_eq!(third.bash("echo c"), "c\n\n[Exit code: 0]");
    assert_eq!(address_layout(third.pid("pid")), address_layout(new.pid));
    assert!(Process::find(old.pid).is_none_or(|now| now.started != old.started), "not reaped");
}

#[test]
fn a_stopped_template_delays_one_start_and_is_replaced() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    wire.attach(daemon.repo("a").path()).bash("true");
    let old = next_template(&daemon, None);
    kill(Pid::from_raw(old.pid), Signal::SIGSTOP).expect("stop the template");
    // On a busy machine a call may give up before the second attempt.
    let session = wire.attach(daemon.repo("b").path());
    wait_for("an answer", || (session.bash("echo b") == "b\n\n[Exit code: 0]").then_some(()));
    next_template(&daemon, Some(&old));
    wait_for("the stopped one to end", || (!is_alive(&old)).then_some(()));
}

#[test]
fn a_worker_that_aborted_is_followed_by_another_address_layout() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    wire.attach(daemon.repo("a").path()).bash("true");
    let old = next_template(&daemon, None);
    let session = wire.attach(daemon.repo("b").path());
    assert_eq!(session.bash("echo b"), "b\n\n[Exit code: 0]");
    kill(Pid::from_raw(session.pid("pid")), Signal::SIGABRT).expect("abort a worker");
    wait_for("the template to end", || (!is_alive(&old)).then_some(()));
    assert_eq!(session.bash("echo again"), "again\n\n[Exit code: 0]");
    let new = next_template(&daemon, Some(&old));
    assert_ne!(address_layout(new.pid), address_layout(session.pid("pid")));
}
