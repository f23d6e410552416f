//! Start of a program on a terminal: its size, environment and directory, its place among the jobs, limits and refusals.

use super::{Viewer, merged, run, run_script, run_with};
use crate::harness::{Daemon, wait_for};
use serde_json::{Value, json};

/// The last line of the environment's output shows that all of it was printed.
const SHOW: &str = "stty size; tty >/dev/null && echo on $TERM; echo \"pager [$PAGER] [$NO_COLOR]\"; \
                    echo \"${PWD##*/} [$A_NAME] [$COLORTERM] ${QUACKD_SESSION:+named}\"; exec cat";

#[test]
fn a_program_runs_on_a_terminal_and_the_first_event_is_its_screen() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let more = json!({"cols": 100, "rows": 30, "cwd": "src",
                      "env": {"A_NAME": "a value", "COLORTERM": "truecolor"}});
    let terminal = run_with(&session, &["sh", "-c", SHOW], &more);
    assert_eq!(terminal, "term-1");

    let viewer = Viewer::attach(&daemon, &session, &terminal);
    let data = &viewer.data;
    assert_eq!(
        (&data["sessionId"], &data["terminalId"], &data["cols"], &data["rows"]),
        (&json!(session.id), &json!("term-1"), &json!(100), &json!(30))
    );
    assert_eq!(
        (&data["sessionName"], &data["viewers"], &data["readOnly"]),
        (&json!(session.name), &json!(1), &json!(false))
    );
    assert!(data["command"].as_str().unwrap().contains("stty size"), "{data}");

    let first = viewer.event();
    assert_eq!(first["event"], "term_redraw");
    assert_eq!((&first["data"]["cols"], &first["data"]["rows"]), (&json!(100), &json!(30)));
    viewer.shows("30 100");
    viewer.shows("on xterm-256color");
    viewer.shows("pager [] []");
    viewer.shows("src [a value] [truecolor] named");

    viewer.echoes("hello");
    viewer.types("\u{4}");
    assert_eq!(viewer.news("term_exit")["exitCode"], 0);
}

#[test]
fn rows_come_in_place_of_bytes_with_their_styles_and_then_those_that_change() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let script = "printf '\\033[1;31mred\\033[0m plain\\r\\n\\033[38;2;1;2;3mtrue'; read -r x; \
                  printf '\\033[?1049h\\033[2;3Hother'; read -r x";
    let terminal = run_script(&session, script);
    let bytes = Viewer::attach(&daemon, &session, &terminal);
    bytes.shows("true");

    let viewer = Viewer::attach_with(&daemon, &session, &terminal, &json!({"asRows": true}));
    let first = viewer.event();
    let screen = &first["data"]["screen"];
    assert_eq!(first["event"], "term_rows");
    assert_eq!(
        (&screen["whole"], &screen["cols"], &screen["rows"], &screen["alternate"]),
        (&json!(true), &json!(80), &json!(24), &json!(false))
    );
    assert_eq!((&screen["cursor"]["row"], &screen["cursor"]["col"]), (&json!(1), &json!(4)));
    let runs = |row: u64| -> Value {
        let mut lines = screen["lines"].as_array().unwrap().iter();
        lines.find(|line| line["row"] == row).unwrap()["runs"].clone()
    };
    let red = &runs(0)[0];
    assert_eq!((&red["text"], &red["fg"], &red["bold"]), (&json!("red"), &json!(1), &json!(true)));
    let plain = &runs(0)[1];
    assert_eq!(
        (plain["text"].as_str().map(str::trim_end), plain.get("fg")),
        (Some(" plain"), None)
    );
    assert_eq!(runs(1)[0]["fg"], "#010203");

    viewer.types("\r");
    let shown = loop {
        let event = viewer.event();
        let screen = &event["data"]["screen"];
        if screen["alternate"] == true && viewer.text().contains("  other") {
            break screen.clone();
        }
    };
    assert_eq!((&shown["cursor"]["row"], &shown["cursor"]["col"]), (&json!(1), &json!(7)));
    assert!(!viewer.text().contains("red"), "{}", viewer.text());
    viewer.types("\r");
    assert_eq!(viewer.news("term_exit")["exitCode"], 0);
}

#[test]
fn without_a_command_the_users_shell_runs_with_job_control() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let terminal = run(&session, &[]);
    let viewer = Viewer::attach(&daemon, &session, &terminal);
    viewer.types("echo $((6*7)) $-\r");
    viewer.until("an interactive shell", |viewer| {
        viewer.text().lines().any(|line| line.starts_with("42 ") && line.contains('m'))
    });
    assert!(!viewer.text().contains("no job control"), "{}", viewer.text());
    viewer.types("exit 3\r");
    assert_eq!(viewer.news("term_exit")["exitCode"], 3);
}

#[test]
fn a_terminal_is_a_job_in_every_list_and_ends_like_one() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let terminal = run_script(&session, "echo ready; exec cat");
    let viewer = Viewer::attach(&daemon, &session, &terminal);
    viewer.shows("ready");
    let jobs = session.worker()["jobs"].take();
    assert_eq!((&jobs[0]["jobId"], &jobs[0]["terminal"]), (&json!("term-1"), &json!(true)));
    assert!(jobs[0]["command"].as_str().unwrap().contains("echo ready"), "{jobs}");
    assert!(session.call("jobs", json!({})).contains("term-1"));
    assert!(session.call("job_output", json!("term-1")).contains("ready"));
    let ps = daemon.quack(&["ps"]).ok();
    assert!(ps.contains("└─ term-1  "), "{ps}");
    assert_eq!(
        wire.refused("quack.session_delete", json!({"sessionId": session.id})),
        "Session is busy: 1 background job is running; end with force"
    );

    // The numbers of jobs and terminals are one series.
    session.call("bash", json!({"command": "true", "background": true}));
    let second = run_script(&session, "exec cat");
    assert_eq!(second, "term-3");

    let killed = session.call("job_kill", json!("term-1"));
    assert!(killed.contains("term-1") && !killed.starts_with("Error"), "{killed}");
    assert_ne!(viewer.news("term_exit")["exitCode"], 0);
    wait_for("the ends to be reported", || {
        (session.worker()["jobs"].as_array()?.len() == 1).then_some(())
    });
    let deleted = json!({"sessionId": session.id, "force": true});
    assert_eq!(wire.request("quack.session_delete", deleted)["jobsEnded"], 1);
}

#[test]
fn followers_of_the_session_get_start_title_and_end() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let follower = daemon.wire();
    follower.request("follow", json!({"sessionId": session.id}));
    let terminal = run_script(&session, "printf '\\033]0;A title\\007'; read -r x; exit 5");
    let last = |name: &str| follower.events_until(name).pop().unwrap();

    let mut begin = follower.events_until("terminal_started");
    let is_of_call =
        |event: &Value| event["event"].as_str().unwrap().starts_with("tool_execution_");
    assert!(!begin.iter().any(is_of_call), "the call of the daemon itself: {begin:?}");
    let started = begin.pop().unwrap();
    assert_eq!((&started["sessionId"], started["seq"].is_u64()), (&json!(session.id), true));
    assert_eq!(started["data"]["terminalId"], "term-1");
    assert!(started["data"]["command"].as_str().unwrap().contains("A title"), "{started}");
    let titled = last("terminal_title");
    assert_eq!(
        (&titled["data"]["terminalId"], &titled["data"]["title"]),
        (&json!("term-1"), &json!("A title"))
    );
    let viewer = Viewer::attach(&daemon, &session, &terminal);
    assert_eq!(viewer.data["title"], "A title");
    viewer.types("\r");
    let events = follower.events_until("terminal_ended");
    assert!(!events.iter().any(is_of_call), "{events:?}");
    let ended = events.last().unwrap();
    assert_eq!(
        (&ended["data"]["terminalId"], &ended["data"]["exitCode"]),
        (&json!("term-1"), &json!(5))
    );
}

#[test]
fn a_session_has_at_most_four_running_terminals() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let terminals: Vec<String> = (0..4).map(|_| run_script(&session, "exec cat")).collect();
    let refused = wire.refused("quack.run", json!({"sessionId": session.id, "argv": ["cat"]}));
    assert!(refused.contains('4') && refused.contains("terminal"), "{refused}");
    assert_eq!(session.worker()["jobs"].as_array().map(Vec::len), Some(4));

    let viewer = Viewer::attach(&daemon, &session, &terminals[1]);
    viewer.request("quack.term_kill", &json!({}));
    viewer.news("term_exit");
    wait_for("another terminal to be allowed", || {
        let reply = wire.reply("quack.run", json!({"sessionId": session.id, "argv": ["cat"]}));
        (reply["ok"] == true).then_some(())
    });
    // Another session has its own four.
    let other = wire.attach(daemon.repo("b").path());
    assert_eq!(run_script(&other, "exec cat"), "term-1");
}

#[test]
fn what_cannot_be_run_is_refused_with_its_reason_and_starts_nothing() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    session.bash("true");
    let many: serde_json::Map<String, Value> =
        (0..65).map(|n| (format!("V{n}"), json!("x"))).collect();
    for wrong in [
        json!({"argv": "x ".repeat(1025).split_whitespace().collect::<Vec<_>>()}),
        json!({"argv": ["echo", "x".repeat(128 * 1024)]}),
        json!({"argv": ["echo", "a\u{0}b"]}),
        json!({"env": many}),
        json!({"env": {"A B": "x"}}),
        json!({"env": {"1A": "x"}}),
        json!({"env": {"": "x"}}),
        json!({"env": {"A": "x\u{0}"}}),
        json!({"env": {"QUACKD_SESSION": "x"}}),
        json!({"cwd": "../.."}),
        json!({"cwd": "missing"}),
    ] {
        let params = merged(json!({"sessionId": session.id, "argv": ["cat"]}), &wrong);
        let refused = wire.refused("quack.run", params);
        assert!(!refused.is_empty());
    }
    let refused =
        wire.refused("quack.run", json!({"sessionId": session.id, "argv": ["no-such-program"]}));
    assert!(refused.contains("no-such-program not found in PATH"), "{refused}");
    assert_eq!(session.worker().get("jobs"), None);

    let attach = json!({"sessionId": session.id});
    let refused = wire.refused("quack.term_attach", attach.clone());
    assert_eq!(refused, "session a has no terminal: start one with quack run --in a");
    let terminal = run_script(&session, "exit 0");
    wait_for("the program to have exited", || session.worker().get("jobs").is_none().then_some(()));
    let attach = merged(attach, &json!({"terminalId": terminal}));
    let refused = wire.refused("quack.term_attach", attach);
    assert_eq!(refused, "term-1 of a exited with code 0; quack jobs -f term-1 --session a");
    let params = json!({"sessionId": session.id, "terminalId": "term-7", "bytes": ""});
    let refused = wire.refused("quack.term_input", params);
    assert_eq!(refused, "session a has no terminal term-7");
    let refuse = |method: &str, more: Value| {
        let params = json!({"sessionId": session.id, "terminalId": "term-7"});
        wire.refused(method, merged(params, &more))
    };
    assert_eq!(
        refuse("quack.term_input", json!({"sessionId": "a", "bytes": ""})),
        "Session not found: a; these methods take the id in the reply of quack.term_attach"
    );
    assert_eq!(
        refuse("quack.term_input", json!({"bytes": "no base64"})),
        "Invalid parameters for quack.term_input: bytes must be base64 of at most 32768 bytes"
    );
    assert_eq!(
        refuse("quack.term_resize", json!({"cols": 80, "rows": 0})),
        "Invalid parameters for quack.term_resize: cols and rows must be at least 1"
    );
    let refused = refuse("quack.term_resize", json!({"cols": 80}));
    assert!(refused.contains("missing field `rows`"), "{refused}");
}

#[test]
fn safe_mode_runs_no_terminal() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    wire.request("attach", json!({"path": repo.path(), "safeMode": true}));
    let params = json!({"sessionId": session.id, "argv": ["sh", "-c", ": > made"]});
    let refused = wire.refused("quack.run", params.clone());
    assert!(refused.starts_with("session a is in safe mode"), "{refused}");
    wire.request("attach", json!({"path": repo.path(), "safeMode": false}));
    assert!(!repo.path().join("made").exists());
    wire.request("quack.run", params);
    wait_for("the program to run", || repo.path().join("made").exists().then_some(()));
}
