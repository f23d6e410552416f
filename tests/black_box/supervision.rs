//! Visible supervision: status and reason of each session, eviction of idle workers, pins, and
//! reports about deaths and pauses. `worker_faults` tests the replacement of crashed and hung
//! workers.

use crate::harness::{Daemon, Session, Wire, wait_for, wait_within, write_program};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const BACK: &str = "back\n\n[Exit code: 0]";

fn state_of(session: &Session<'_>, wire: &Wire) -> Value {
    wire.request("get_state", json!({"sessionId": session.id}))
}

/// One row of `quack.tree`.
fn row(tree: &Value, name: &str) -> Value {
    let children = tree["children"].as_array().unwrap();
    children.iter().find(|child| child["spec"]["name"] == name).unwrap().clone()
}

#[test]
fn one_worker_more_than_may_live_takes_the_place_of_the_one_that_was_idle_for_longest() {
    let daemon = Daemon::start_with("[worker]\nmax_live = 2\n");
    let wire = daemon.wire();
    let session = |name: &str| {
        let session = wire.attach(daemon.repo(name).path());
        assert_eq!(session.bash("echo back"), BACK);
        session
    };
    let (a, b) = (session("a"), session("b"));
    let b_pid = b.pid("pid");
    let c = session("c");
    let gone = wait_for("the first one to be seen as ended", || {
        let worker = a.worker();
        (worker["state"] == "absent").then_some(worker)
    });
    assert_eq!(gone["status"], "stopped");
    assert_eq!(gone["why"], "another session needed its place; the next call starts it");
    assert_eq!((&gone["restarts"], gone.get("lastDeath")), (&json!(0), None), "it is no crash");
    assert_eq!(b.pid("pid"), b_pid);
    // The worker starts on demand, and the longest idle worker is evicted now.
    assert_eq!(a.bash("echo back"), BACK);
    wait_for("the second one to go", || (b.worker()["status"] == "stopped").then_some(()));
    assert_eq!(c.worker()["status"], "idle");
    assert_eq!(wire.request("quack.ps", json!({}))["supervisor"]["evictions"], 2);
}

#[test]
fn who_is_pinned_or_at_work_keeps_its_place_and_a_pin_outlives_the_daemon() {
    let mut daemon = Daemon::start_with("[worker]\nmax_live = 2\n");
    let (pinned, busy, more) = (daemon.repo("pinned"), daemon.repo("busy"), daemon.repo("more"));
    {
        let wire = daemon.wire();
        let (pinned, busy) = (wire.attach(pinned.path()), wire.attach(busy.path()));
        assert_eq!(pinned.bash("echo back"), BACK);
        let shown = daemon.quack(&["pin", &pinned.id]).ok();
        assert!(shown.contains("stays until `quack unpin`"), "{shown}");
        let slow = busy.begin("bash", json!(daemon.gated("go", "echo done")));
        wait_for("the call to run", || (busy.worker()["state"] == "busy").then_some(()));
        let third = wire.attach(more.path());
        let refused = third.bash("true");
        assert!(refused.contains("too many live workers (2)"), "{refused}");
        assert!(pinned.worker()["monitorPid"].is_number() && pinned.worker()["pinned"] == true);
        daemon.open_gate("go");
        assert_eq!(slow.text(), "done\n\n[Exit code: 0]");
        wait_for("the third one to have a place", || {
            (third.bash("echo back") == BACK).then_some(())
        });
        assert!(pinned.worker()["why"].as_str().unwrap().ends_with("; pinned"));
        wait_for("the second one to be seen as ended", || {
            (busy.worker()["status"] == "stopped").then_some(())
        });
    }
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    daemon.boot();
    let wire = daemon.wire();
    let session = wire.attach(pinned.path());
    assert_eq!(state_of(&session, &wire)["pinned"], true);
    daemon.quack(&["unpin", &session.id]).ok();
    assert_eq!(state_of(&session, &wire).get("pinned"), None);
}

#[test]
fn while_memory_is_short_idle_workers_are_ended_and_come_back_when_they_are_wanted() {
    // More than any machine has, so memory is always low.
    let daemon = Daemon::start_with("[worker]\nevict_below_mb = 1048576\n");
    let wire = daemon.wire();
    let [idle, pinned, at_work, with_job] =
        ["a", "b", "c", "d"].map(|name| wire.attach(daemon.repo(name).path()));
    daemon.quack(&["pin", &pinned.id]).ok();
    assert_eq!(pinned.bash("echo back"), BACK);
    let slow = at_work.begin("bash", json!(daemon.gated("go", "echo done")));
    with_job.call("bash", json!({"command": "sleep 60", "background": true}));
    let kept = [pinned.pid("pid"), at_work.pid("pid"), with_job.pid("pid")];
    assert_eq!(idle.bash("echo back"), BACK);
    wait_for("the idle process to be stopped", || {
        let worker = idle.worker();
        let why = "memory was short; the next call starts it";
        (worker["status"] == "stopped" && worker["why"] == why).then_some(())
    });
    let supervisor = wire.request("quack.ps", json!({}))["supervisor"].clone();
    let pressure = supervisor["memoryPressure"].as_str().unwrap();
    assert!(pressure.ends_with("MiB of memory are available"), "{pressure}");
    assert_eq!([pinned.pid("pid"), at_work.pid("pid"), with_job.pid("pid")], kept);
    assert_eq!(idle.bash("echo back"), BACK);
    daemon.open_gate("go");
    assert_eq!(slow.text(), "done\n\n[Exit code: 0]");
    daemon.wait_for_log("memory is short");
}

#[test]
fn a_worker_that_nobody_used_for_so_long_is_ended_and_comes_back_and_one_that_is_pinned_stays() {
    let daemon = Daemon::start_with("[worker]\nidle_minutes = 0.1\n");
    let wire = daemon.wire();
    let (idle, pinned) =
        (wire.attach(daemon.repo("a").path()), wire.attach(daemon.repo("b").path()));
    daemon.quack(&["pin", &pinned.id]).ok();
    assert_eq!(pinned.bash("echo back"), BACK);
    let pid = pinned.pid("pid");
    // On a busy machine the time may have passed before the look.
    let used = wait_for("the end to be announced", || {
        let used = Instant::now();
        assert_eq!(idle.bash("echo back"), BACK);
        idle.worker()["why"].as_str()?.contains("ended in").then_some(used)
    });
    wait_within(Duration::from_secs(60), "the idle process to be stopped", || {
        (idle.worker()["status"] == "stopped").then_some(())
    });
    assert!(Duration::from_secs(5) < used.elapsed(), "after {:?}", used.elapsed());
    assert_eq!(idle.worker()["why"], "it was idle for long; the next call starts it");
    assert_eq!(idle.bash("echo back"), BACK);
    assert_eq!(pinned.pid("pid"), pid);
}

#[test]
fn ps_sessions_and_state_say_what_a_session_does_since_when_and_why() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let is = |status: &str| {
        let worker = session.worker();
        (worker["status"] == status).then_some(worker)
    };
    let is_ready = |worker: &Value| worker["state"] == "ready";
    let idle = wait_for("the worker to be there", || is("idle").filter(is_ready));
    assert!(idle["statusSince"].is_string() && idle["idleMs"].is_number());
    let slow = session.begin("bash", json!(daemon.gated("go", "true")));
    let working = wait_for("the call to run", || is("working"));
    assert_eq!((&working["statusWhy"], &working["why"]), (&json!("1 call"), &json!("1 call")));
    assert_eq!(state_of(&session, &wire)["status"], "working");
    let sessions = wire.request("sessions", json!({"all": true}));
    assert_eq!(sessions["sessions"][0]["status"], "working");
    assert!(daemon.quack(&["sessions", "--all"]).ok().contains("working"));
    assert!(daemon.quack(&["state", "--session", &session.id]).ok().contains(": 1 call\n"));
    daemon.open_gate("go");
    slow.text();
    assert!(is("idle").is_some());
    session.call("bash", json!({"command": "sleep 60", "background": true}));
    assert_eq!(wait_for("the job", || is("working"))["statusWhy"], "1 background job");
    kill(Pid::from_raw(session.pid("pid")), Signal::SIGKILL).unwrap();
    assert_eq!(wait_for("the death", || is("stopped"))["statusWhy"], "it died: signal 9");
}

#[test]
fn the_tree_says_what_each_child_is_promised_how_it_is_and_how_the_last_ones_died() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    assert_eq!(session.bash("echo back"), BACK);
    let tree = wire.request("quack.tree", json!({}));
    let names: Vec<&str> = tree["children"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|c| c["spec"]["name"].as_str())
        .collect();
    assert_eq!(
        names,
        [
            "store",
            "egress",
            "actors",
            "remote",
            "metrics",
            "probe",
            "login-environment",
            "tool-registries",
            "credentials",
            "isolate",
            "record-states",
            "far-errand",
            "clean-repositories",
            "session-worker",
            "proxy",
            "router",
            "pi-worker"
        ]
    );
    let workers = row(&tree, "session-worker");
    assert_eq!(
        (&workers["spec"]["intensity"], &workers["spec"]["periodMs"]),
        (&json!(5), &json!(60_000))
    );
    let worker = &workers["workers"][0];
    assert_eq!(
        (&worker["life"]["state"], &worker["pid"]),
        (&json!("ready"), &json!(session.pid("pid")))
    );
    assert!(worker["rssKb"].is_number() && worker["life"]["heartbeatAgeMs"].is_number());

    kill(Pid::from_raw(session.pid("pid")), Signal::SIGKILL).unwrap();
    let tree = wait_for("the death to be reported", || {
        let tree = wire.request("quack.tree", json!({}));
        (tree["deathsTotal"] == 1).then_some(tree)
    });
    let death = &tree["deaths"][0];
    assert_eq!((&death["child"], &death["cause"]), (&json!("session-worker"), &json!("signal 9")));
    assert_eq!((&death["signal"], &death["sessionName"]), (&json!(9), &json!("duck-1")));
    assert_eq!(session.bash("echo back"), BACK);
    let tree = wire.request("quack.tree", json!({}));
    let life = row(&tree, "session-worker")["workers"][0]["life"].clone();
    assert_eq!((&life["crashes"], &life["restartsInWindow"]), (&json!(1), &json!(1)));

    let shown = daemon.quack(&["doctor", "--tree"]).ok();
    for part in ["session-worker", "at most 5 restarts in 1m 0s", "1 of 5 restarts", "signal 9"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(daemon.quack(&["doctor", "--tree", "--json"]).json()["deathsTotal"], 1);
}

#[test]
fn a_daemon_that_was_stopped_says_so_and_harms_nobody() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let slow = session.begin("bash", json!("sleep 8; echo done"));
    wait_for("the call to run", || (session.worker()["state"] == "busy").then_some(()));
    let pid = session.pid("pid");
    daemon.signal(Signal::SIGSTOP);
    let stopped = Instant::now();
    wait_for("some seconds to pass", || (Duration::from_secs(5) < stopped.elapsed()).then_some(()));
    daemon.signal(Signal::SIGCONT);
    let pause = wait_for("the pause to be noticed", || {
        let tree = wire.request("quack.tree", json!({}));
        tree["pauses"].as_array()?.last().cloned()
    });
    assert_eq!(pause["kind"], "stopped");
    assert!(pause["ms"].as_i64().is_some_and(|ms| (2_500..60_000).contains(&ms)), "{pause}");
    let supervision = wire.request("doctor", json!({}))["checks"].as_array().unwrap().clone();
    let check = supervision.iter().find(|check| check["name"] == "supervision").unwrap();
    assert!(check["message"].as_str().unwrap().contains("the daemon was stopped for"), "{check}");
    assert_eq!(slow.text(), "done\n\n[Exit code: 0]");
    assert_eq!((session.pid("pid"), &session.worker()["restarts"]), (pid, &json!(0)));
    daemon.wait_for_log("resumed after a stop");
}

#[test]
fn a_daemon_that_was_stopped_beyond_a_deadline_takes_the_answer_that_came_meanwhile() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    // The start of a worker counts toward the deadline.
    session.bash("true");
    let late = session.begin("bash", json!({"command": "sleep 60", "timeout_ms": 5000}));
    wait_for("the call to run", || (session.worker()["state"] == "busy").then_some(()));
    let pid = session.pid("pid");
    daemon.signal(Signal::SIGSTOP);
    let stopped = Instant::now();
    // Two times pass: the deadline, and the time after which a worker with an unfinished call is
    // killed.
    wait_for("both to pass", || (Duration::from_secs(12) < stopped.elapsed()).then_some(()));
    daemon.signal(Signal::SIGCONT);
    let late = late.text();
    assert!(late.contains("[Process timed out after "), "{late}");
    assert_eq!((session.pid("pid"), &session.worker()["restarts"]), (pid, &json!(0)));
}

#[test]
fn a_cause_that_another_start_cannot_change_fails_at_once_and_is_not_tried_again() {
    let mut daemon = Daemon::absent();
    let (program, starts) = (daemon.home().join("launcher"), daemon.home().join("starts"));
    // Code 100: another start cannot help.
    let script =
        |words: &str| format!("#!/bin/sh\necho \"$*\" >> '{}'\n{words}\n", starts.display());
    write_program(&program, script("case \"$*\" in *' worker'*) exit 100;; esac; exec \"$@\""));
    let config = format!("[worker]\nlauncher = [\"{}\"]\n", program.display());
    daemon.configure(config);
    daemon.boot();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let started = || {
        let starts = std::fs::read_to_string(&starts).unwrap_or_default();
        starts.lines().filter(|line| line.ends_with(" worker")).count()
    };
    let failed = wait_for("the worker to fail", || {
        let worker = session.worker();
        (worker["state"] == "failed").then_some(worker)
    });
    assert_eq!(
        (&failed["status"], &failed["statusWhy"]),
        (&json!("failed"), &json!("exit code 100"))
    );
    for _ in 0..5 {
        assert_eq!(session.bash("true"), "Error: Session worker exit code 100");
    }
    assert_eq!(started(), 1, "calls start nothing");
    // An attach allows one more start.
    wire.attach(std::path::Path::new(&session.path));
    wait_for("another start", || (started() == 2).then_some(()));
    // The cause is gone, and a client attaches again.
    write_program(&program, script("exec \"$@\""));
    wait_for("a worker", || {
        wire.attach(std::path::Path::new(&session.path));
        (session.bash("echo back") == BACK).then_some(())
    });
}
