//! Ends of terminals: the last event says why, and no process stays.

use super::{Viewer, all_gone, below, run, run_script, run_with, with_sleeps};
use crate::harness::{Daemon, Session, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

/// A program that ignores requests to end, with a child in a separate session.
const STUBBORN: &str = "trap '' HUP TERM INT; setsid sleep 1001 & sleep 1002 & echo up; \
                        while :; do sleep 1003; done";

/// Starts [`STUBBORN`] and attaches to it.
#[track_caller]
fn stubborn(daemon: &Daemon, session: &Session<'_>) -> Viewer {
    let viewer = Viewer::attach(daemon, session, &run_script(session, STUBBORN));
    viewer.shows("up");
    viewer
}

#[test]
fn the_last_event_has_the_exit_code_or_the_signal() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let end = |script: &str| {
        let viewer = Viewer::attach(&daemon, &session, &run_script(&session, script));
        viewer.types("\r");
        let exit = viewer.news("term_exit");
        assert!(viewer.text().contains("last words"), "the output comes before: {exit}");
        exit
    };
    for code in [0, 1, 7, 255] {
        let exit = end(&format!("read -r x; echo last words; exit {code}"));
        assert_eq!((&exit["exitCode"], exit.get("signal")), (&json!(code), None), "{exit}");
    }
    for (name, signal) in [("TERM", 15), ("KILL", 9), ("HUP", 1)] {
        let exit = end(&format!("read -r x; echo last words; kill -{name} $$"));
        assert_eq!((&exit["signal"], exit.get("exitCode")), (&json!(signal), None), "{exit}");
    }
    // A process that the program leaves behind does not keep the terminal open.
    let exit = end("read -r x; setsid sleep 1001 & echo last words; exit 3");
    assert_eq!(exit["exitCode"], 3, "{exit}");
    wait_for("the rest to be gone", || {
        (!below(&session).iter().any(|process| process.name == "sleep")).then_some(())
    });
}

#[test]
fn a_terminal_that_ignores_every_request_is_killed_with_all_below_it() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let viewer = stubborn(&daemon, &session);
    let processes = with_sleeps(&session, 3);
    let data = viewer.request("quack.term_kill", &json!({}));
    assert_eq!(data, json!({"sessionId": session.id, "terminalId": "term-1"}));
    let exit = viewer.news("term_exit");
    assert_eq!(exit.get("exitCode"), None, "{exit}");
    all_gone(&processes);
    assert!(session.call("jobs", json!({})).contains("ended on request"));
    // An interactive shell too.
    let more = json!({"env": {"PS1": "p\\#> "}});
    let terminal = run_with(&session, &["bash", "--norc", "-i"], &more);
    let viewer = Viewer::attach(&daemon, &session, &terminal);
    viewer.shows("p1>");
    viewer.types("trap '' HUP; sleep 1004\r");
    let processes = with_sleeps(&session, 1);
    viewer.request("quack.term_kill", &json!({}));
    viewer.news("term_exit");
    all_gone(&processes);
}

#[test]
fn a_program_gets_hup_before_it_is_killed() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let script = "trap 'echo bye >left; exit 0' HUP; echo up; while :; do sleep 0.05; done";
    // On a busy machine the two seconds may be over before the program runs.
    wait_for("a program that ends by itself", || {
        let viewer = Viewer::attach(&daemon, &session, &run_script(&session, script));
        viewer.shows("up");
        viewer.request("quack.term_kill", &json!({}));
        viewer.news("term_exit");
        (repo.read("left") == "bye\n").then_some(())
    });
}

#[test]
fn a_signal_reaches_the_program_in_the_foreground_only() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let more = json!({"env": {"PS1": "p\\#> "}});
    let terminal = run_with(&session, &["bash", "--norc", "-i"], &more);
    let viewer = Viewer::attach(&daemon, &session, &terminal);
    viewer.shows("p1>");
    for (before, signal) in (1..).zip(["INT", "TERM", "HUP", "QUIT", "KILL"]) {
        viewer.starts_cat(&session, "cat");
        viewer.echoes(&format!("before {signal}"));
        let data = viewer.request("quack.term_kill", &json!({"signal": signal}));
        assert_eq!(data["terminalId"], "term-1");
        viewer.shows(&format!("p{}>", before + 1));
    }
    let wrong = json!({"sessionId": session.id, "signal": "STOP"});
    wire.refused("quack.term_kill", wrong);
    viewer.types("exit 5\r");
    assert_eq!(viewer.news("term_exit")["exitCode"], 5);
}

#[test]
fn the_death_of_the_worker_ends_its_terminals_with_a_reason() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let follower = daemon.wire();
    follower.request("follow", json!({"sessionId": session.id}));
    let viewer = stubborn(&daemon, &session);
    let second = Viewer::attach(&daemon, &session, "term-1");
    let processes = with_sleeps(&session, 3);
    kill(Pid::from_raw(session.pid("pid")), Signal::SIGKILL).unwrap();
    for viewer in [&viewer, &second] {
        let exit = viewer.news("term_exit");
        assert_eq!(exit.get("exitCode"), None, "{exit}");
        assert!(exit["reason"].as_str().is_some_and(|it| it.contains("signal 9")), "{exit}");
    }
    let ended = follower.events_until("terminal_ended").pop().unwrap();
    assert_eq!(ended["data"]["terminalId"], "term-1");
    all_gone(&processes);

    viewer.is_refused_input();
    assert_eq!(session.bash("echo back"), "back\n\n[Exit code: 0]");
    assert_eq!(session.worker().get("jobs"), None);
    // A number means one terminal of the session.
    assert_eq!(run_script(&session, "exec cat"), "term-2");
}

#[test]
fn nothing_of_a_terminal_outlives_the_daemon_or_its_session() {
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let mut daemon = Daemon::start();
        let wire = daemon.wire();
        let session = wire.attach(daemon.repo("a").path());
        let viewer = stubborn(&daemon, &session);
        let processes = with_sleeps(&session, 3);
        daemon.signal(signal);
        let code = daemon.wait();
        assert_eq!(code, (signal == Signal::SIGTERM).then_some(0));
        all_gone(&processes);
        // The connection ends, and does not hang.
        viewer.wire.drain();
    }
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let viewer = stubborn(&daemon, &session);
    let processes = with_sleeps(&session, 3);
    wire.request("quack.session_delete", json!({"sessionId": session.id, "force": true}));
    viewer.news("term_exit");
    all_gone(&processes);
}

#[test]
fn the_next_daemon_names_the_program_that_ended_with_the_one_before() {
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let mut daemon = Daemon::start();
        let repo = daemon.repo("a");
        let file = daemon.app().join("quackd-state.json");
        let has_recorded = |part: &str| std::fs::read_to_string(&file).unwrap().contains(part);
        let wire = daemon.wire();
        let session = wire.attach(repo.path());
        let id = session.id.clone();
        let ended = run_script(&session, "exit 0");
        wait_for("the first to end", || session.worker().get("jobs").is_none().then_some(()));
        let left = run(&session, &["cat"]);
        wait_for("the record", || has_recorded(&format!("\"{left}\"")).then_some(()));
        assert!(!has_recorded(&format!("\"{ended}\"")), "it ended before");
        daemon.signal(signal);
        daemon.wait();

        daemon.boot();
        let wire = daemon.wire();
        let attach = |terminal: Option<&str>| {
            let params = json!({"sessionId": id, "terminalId": terminal});
            wire.refused("quack.term_attach", params)
        };
        let expected = format!(
            "terminal {left} of a (cat) ended when the daemon ended; start it again with quack run --in a -- cat"
        );
        assert_eq!(attach(None), expected);
        assert_eq!(attach(Some(&left)), expected);
        assert_eq!(attach(Some(&ended)), format!("session a has no terminal {ended}"));

        let session = wire.attach(repo.path());
        run_script(&session, "exit 0");
        wait_for("the next to end", || session.worker().get("jobs").is_none().then_some(()));
        assert!(attach(None).contains(" of a exited with code 0"), "{}", attach(None));
        wait_for("no record", || (!has_recorded("\"programs\"")).then_some(()));
    }
}

#[test]
fn the_abort_of_a_sessions_calls_leaves_its_terminals() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let viewer = Viewer::attach(&daemon, &session, &run_script(&session, "exec cat"));
    viewer.echoes("before");
    let slow = session.begin("bash", json!("echo begun > marker; sleep 1005"));
    wait_for("the call to run", || (repo.read("marker") == "begun\n").then_some(()));
    wire.request("abort", json!({}));
    assert!(slow.text().contains("[Process aborted]"));
    viewer.echoes("after");
}
