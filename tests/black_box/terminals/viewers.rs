//! Several viewers of one terminal: the same screen, the size, read-only ones, slow ones, and how they leave.

use super::{Viewer, run_script, run_with};
use crate::harness::long::resident_kib;
use crate::harness::{Daemon, wait_for};
use quackd_terminal::TerminalSize;
use serde_json::json;

/// Answers each line with the size of the terminal.
const SIZES: &str = "stty -echo; echo up; while read -r x; do echo \"$x: $(stty size).\"; done";

/// Maximum growth of the supervisor next to a viewer that reads nothing.
const SUPERVISOR_KIB: u64 = 32 * 1024;

/// Types a line to a program of [`SIZES`] until it answers with this size. A size may be applied after the next line.
#[track_caller]
fn has_size(viewer: &Viewer, cols: u16, rows: u16) {
    let mut n = 0;
    wait_for("the size inside", || {
        n += 1;
        viewer.types(&format!("try{n}\r"));
        viewer.shows(&format!("try{n}: "));
        viewer.until("a whole line", |viewer| {
            viewer
                .text()
                .lines()
                .any(|line| line.starts_with(&format!("try{n}: ")) && line.contains('.'))
        });
        viewer.text().contains(&format!("try{n}: {rows} {cols}.")).then_some(())
    });
}

#[test]
fn viewers_that_come_early_and_late_see_the_same_screen() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let script = "stty -echo; for n in 1 2 3 4 5 6 7 8 9; do echo line $n; done
                  printf '\\033[2;4H\\033[7;34mblue\\033[0m\\033[5;10Hfive ten\\033[12;1Hwaiting'
                  read -r x; printf '\\033[?1049h\\033[3;3H\\033[4mother screen'; read -r x
                  printf '\\033[?1049l\\033[0m\\033[13;1Hback'; read -r x";
    let terminal = run_script(&session, script);
    let early = Viewer::attach(&daemon, &session, &terminal);
    let is_same = |part: &str| {
        early.shows(part);
        let late = Viewer::attach(&daemon, &session, &terminal);
        let rows = Viewer::attach_with(&daemon, &session, &terminal, &json!({"asRows": true}));
        late.event();
        assert_eq!(late.text(), early.text());
        assert!(late.styled() == early.styled(), "styles differ with {part:?}");
        rows.event();
        assert_eq!(without_ends(&rows.text()), without_ends(&early.text()));
    };
    is_same("waiting");
    early.types("\r");
    is_same("other screen");
    early.types("\r");
    is_same("back");
    assert!(early.text().contains("line 9") && early.text().contains("five ten"));
    assert!(!early.text().contains("other"), "{}", early.text());
}

/// Text without blanks at the ends of lines and without empty lines.
fn without_ends(text: &str) -> String {
    let lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
    lines.map(|line| line.to_owned() + "\n").collect()
}

#[test]
fn what_one_viewer_types_all_of_them_see() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let terminal = run_script(&session, "echo up; exec cat");
    let viewers: Vec<Viewer> =
        (0..3).map(|_| Viewer::attach(&daemon, &session, &terminal)).collect();
    let known: Vec<u64> = viewers.iter().map(|it| it.data["viewers"].as_u64().unwrap()).collect();
    assert_eq!(known, [1, 2, 3]);
    for (number, typist) in viewers.iter().enumerate() {
        typist.echoes(&format!("typed by {number}"));
    }
    for viewer in &viewers {
        viewer.until("every line twice", |viewer| {
            viewer.text().lines().filter(|line| line.starts_with("typed by ")).count() == 6
        });
    }
}

#[test]
fn the_terminal_has_the_size_of_the_client_that_typed_last() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let terminal = run_script(&session, SIZES);
    let with = |more| Viewer::attach_with(&daemon, &session, &terminal, &more);

    // Before any input, the first client that may type sets the size. A read-only client does not.
    let reader = with(json!({"cols": 33, "rows": 11, "readOnly": true}));
    reader.shows("up");
    assert_eq!(reader.size(), TerminalSize::new(80, 24));
    let first = with(json!({"cols": 100, "rows": 40}));
    has_size(&first, 100, 40);
    let told = reader.news("term_size");
    assert_eq!((&told["cols"], &told["rows"]), (&json!(100), &json!(40)));
    reader.until("the size", |viewer| viewer.size() == TerminalSize::new(100, 40));

    // A second one gives its size when it types.
    let second = with(json!({"cols": 60, "rows": 20}));
    assert_eq!((&second.data["cols"], &second.data["rows"]), (&json!(100), &json!(40)));
    has_size(&first, 100, 40);
    has_size(&second, 60, 20);
    let told = first.news("term_size");
    assert_eq!((&told["cols"], &told["rows"]), (&json!(60), &json!(20)));
    first.until("the size", |viewer| viewer.size() == TerminalSize::new(60, 20));

    // A window of the first one that changes counts when it types again.
    assert_eq!(first.resize(90, 30), json!({"cols": 60, "rows": 20}));
    for n in 0..10 {
        second.types(&format!("kept{n}\r"));
        second.shows(&format!("kept{n}: 20 60."));
    }
    has_size(&first, 90, 30);
    // The one that typed last changes it at once, and it stays after this client has left.
    assert_eq!(first.resize(91, 31), json!({"cols": 91, "rows": 31}));
    second.until("the size", |viewer| viewer.size() == TerminalSize::new(91, 31));
    first.request("quack.term_detach", &json!({}));
    let third = with(json!({}));
    assert_eq!((&third.data["cols"], &third.data["rows"]), (&json!(91), &json!(31)));
    // A client may also set it without typing.
    let fourth = with(json!({"cols": 70, "rows": 25, "setSize": true}));
    third.until("the size", |viewer| viewer.size() == TerminalSize::new(70, 25));
    has_size(&fourth, 70, 25);
}

#[test]
fn a_storm_of_sizes_ends_with_the_last_one() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let terminal = run_script(&session, SIZES);
    let viewer =
        Viewer::attach_with(&daemon, &session, &terminal, &json!({"cols": 80, "rows": 24}));
    viewer.shows("up");
    for n in 0..300 {
        viewer.resize(20 + n, 10 + n / 3);
    }
    viewer.resize(65_535, 65_535);
    viewer.resize(77, 22);
    has_size(&viewer, 77, 22);
    viewer.until("the size", |viewer| viewer.size() == TerminalSize::new(77, 22));
}

#[test]
fn a_client_that_only_reads_or_is_not_attached_cannot_type() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let terminal = run_script(&session, "echo up; exec cat");
    let reader = Viewer::attach_with(&daemon, &session, &terminal, &json!({"readOnly": true}));
    assert_eq!(reader.data["readOnly"], true);
    reader.shows("up");
    assert!(reader.is_refused_input().contains("read"), "{}", reader.is_refused_input());

    let writer = Viewer::attach(&daemon, &session, &terminal);
    writer.echoes("yes");
    let params = json!({"sessionId": session.id, "terminalId": terminal, "bytes": "bm8N"});
    let size = json!({"sessionId": session.id, "terminalId": terminal, "cols": 50, "rows": 20});
    assert!(wire.refused("quack.term_input", params).contains("attach"));
    wire.refused("quack.term_resize", size);
    // Input with another form is refused, and the connection works on.
    for bytes in [json!("no base64!"), json!(7), json!("QUFB".repeat(20_000))] {
        let params = json!({"bytes": bytes});
        writer.refused("quack.term_input", &params);
    }
    writer.echoes("still");
    reader.shows("still");
    assert!(!reader.text().contains("no"), "{}", reader.text());
    assert_eq!(reader.size(), TerminalSize::new(80, 24));
}

#[test]
fn one_viewer_is_detached_or_all_and_the_program_goes_on() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let terminal = run_script(&session, "echo up; exec cat");
    let a = Viewer::attach(&daemon, &session, &terminal);
    let b = Viewer::attach(&daemon, &session, &terminal);
    let c = Viewer::attach(&daemon, &session, &terminal);
    assert_eq!(a.request("quack.term_detach", &json!({}))["detached"], 1);
    a.is_refused_input();
    b.echoes("without a");

    let all = json!({"sessionId": session.id, "all": true});
    let data = wire.request("quack.term_detach", all.clone());
    assert_eq!((&data["detached"], &data["sessionName"]), (&json!(2), &json!(session.name)));
    for viewer in [&b, &c] {
        viewer.news("term_detached");
        viewer.is_refused_input();
    }
    assert_eq!(wire.request("quack.term_detach", all)["detached"], 0);

    // The same connection attaches again, also without a detachment before.
    let params = json!({"sessionId": session.id, "terminalId": terminal});
    for _ in 0..3 {
        let again = b.wire.request("quack.term_attach", params.clone());
        assert_eq!(again["viewers"], 1, "{again}");
    }
    b.shows("without a");
    b.echoes("once more");
}

#[test]
fn a_closed_connection_leaves_no_viewer() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let terminal = run_script(&session, "exec cat");
    let kept = Viewer::attach(&daemon, &session, &terminal);
    let others: Vec<Viewer> =
        (0..15).map(|_| Viewer::attach(&daemon, &session, &terminal)).collect();
    let attach = json!({"sessionId": session.id, "terminalId": terminal});
    assert_eq!(
        wire.refused("quack.term_attach", attach.clone()),
        "16 viewers are attached to term-1, the maximum"
    );
    drop(others);
    wait_for("the viewers to be gone", || {
        let reply = wire.reply("quack.term_attach", attach.clone());
        wire.reply("quack.term_detach", attach.clone());
        (reply["data"]["viewers"] == 2).then_some(())
    });
    kept.echoes("alone");
}

#[test]
fn a_viewer_that_never_reads_slows_neither_the_program_nor_other_viewers() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let script = "read -r x; head -c 50M /dev/zero | tr '\\0' x; echo; : > finished; echo all done; \
                  read -r x; exit 4";
    let terminal = run_script(&session, script);
    let silent = Viewer::attach(&daemon, &session, &terminal);
    let rows = Viewer::attach_with(&daemon, &session, &terminal, &json!({"asRows": true}));
    let reader = Viewer::attach(&daemon, &session, &terminal);
    let before = resident_kib(daemon.pid());
    reader.types("\r");
    reader.shows("all done");
    wait_for("the program to have printed", || repo.path().join("finished").exists().then_some(()));
    let after = resident_kib(daemon.pid());
    assert!(after < before + SUPERVISOR_KIB, "the supervisor grew from {before} to {after} KiB");
    reader.types("\r");
    assert_eq!(reader.news("term_exit")["exitCode"], 4);
    drop((silent, rows));
}

#[test]
fn a_viewer_that_reads_late_gets_the_screen_and_then_what_follows() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    // More than the buffers of a connection hold.
    let script =
        "read -r x; head -c 3M /dev/zero | tr '\\0' x; echo; echo all done; : > finished; exec cat";
    let terminal = run_script(&session, script);
    let late = Viewer::attach(&daemon, &session, &terminal);
    let late_rows = Viewer::attach_with(&daemon, &session, &terminal, &json!({"asRows": true}));
    let other = Viewer::attach(&daemon, &session, &terminal);
    other.types("\r");
    wait_for("the program to have printed", || repo.path().join("finished").exists().then_some(()));
    other.shows("all done");
    for viewer in [&late, &late_rows] {
        viewer.shows("all done");
    }
    late.echoes("after it");
    late_rows.until("the line twice", |viewer| viewer.text().matches("after it").count() == 2);
    assert_eq!(without_ends(&late_rows.text()), without_ends(&late.text()));
}

#[test]
fn a_new_viewer_gets_the_lines_above_the_screen_first() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let script = "for n in $(seq 1 200); do echo row number $n; done; exec cat";
    let terminal = run_with(&session, &["bash", "-c", script], &json!({"rows": 10}));
    let first = Viewer::attach(&daemon, &session, &terminal);
    first.shows("row number 200");
    let second = Viewer::attach(&daemon, &session, &terminal);
    let event = second.event();
    let bytes = String::from_utf8_lossy(&super::bytes_of(&event["data"])).into_owned();
    assert!(bytes.contains("row number 50") && bytes.contains("row number 200"), "{bytes:?}");
    assert!(!second.text().contains("row number 50"), "{}", second.text());
    assert_eq!(second.text(), first.text());
}
