//! Input of terminals: its order, a program that does not read, and keys that the terminal itself handles.

use super::{Viewer, run_script, run_with};
use crate::harness::{Daemon, wait_for};
use serde_json::json;

/// Most bytes of one request.
const PIECE: usize = 32 * 1024;

/// Pieces that a terminal surely does not hold.
const TOO_MANY: usize = 200;

fn piece(number: usize) -> Vec<u8> {
    format!("{number:07}\n").repeat(PIECE / 8).into_bytes()
}

#[test]
fn input_without_a_reader_is_refused_for_a_while_and_arrives_whole_and_in_order() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let script = format!("stty raw -echo; echo up; {}", daemon.gated("read", "exec cat >got"));
    let terminal = run_script(&session, &script);
    let viewer = Viewer::attach(&daemon, &session, &terminal);
    viewer.shows("up");

    let taken = (0..TOO_MANY).take_while(|number| viewer.input(&piece(*number))).count();
    assert!(0 < taken && taken < TOO_MANY / 2, "{taken} pieces for a program that does not read");
    // The supervisor, the worker and other viewers go on.
    assert_eq!(session.bash("echo beside"), "beside\n\n[Exit code: 0]");
    let other = Viewer::attach(&daemon, &session, &terminal);
    other.shows("up");

    daemon.open_gate("read");
    wait_for("more input to be taken", || viewer.input(&piece(taken)).then_some(()));
    for number in taken + 1..TOO_MANY {
        wait_for("more input to be taken", || viewer.input(&piece(number)).then_some(()));
    }
    let all: Vec<u8> = (0..TOO_MANY).flat_map(piece).collect();
    let got = || std::fs::read(repo.path().join("got")).unwrap_or_default();
    wait_for("all input to arrive", || (got().len() == all.len()).then_some(()));
    assert!(got() == all, "the input differs");
    viewer.request("quack.term_kill", &json!({}));
    viewer.news("term_exit");
}

#[test]
fn a_terminal_without_a_reader_can_be_ended() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let terminal = run_script(&session, "stty raw -echo; echo up; exec sleep 1001");
    let viewer = Viewer::attach(&daemon, &session, &terminal);
    viewer.shows("up");
    let taken = (0..TOO_MANY).take_while(|number| viewer.input(&piece(*number))).count();
    assert!(taken < TOO_MANY, "all input was taken");
    viewer.request("quack.term_kill", &json!({}));
    viewer.news("term_exit");
}

#[test]
fn ctrl_c_and_ctrl_z_go_to_the_program_in_the_foreground() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let script = "trap 'echo caught; exit 9' INT; echo up; while :; do sleep 0.05; done";
    let terminal = run_script(&session, script);
    let viewer = Viewer::attach(&daemon, &session, &terminal);
    viewer.shows("up");
    viewer.types("\u{3}");
    viewer.shows("caught");
    assert_eq!(viewer.news("term_exit")["exitCode"], 9);

    let more = json!({"env": {"PS1": "p\\#> "}});
    let terminal = run_with(&session, &["bash", "--norc", "-i"], &more);
    let viewer = Viewer::attach(&daemon, &session, &terminal);
    viewer.shows("p1>");
    viewer.starts_cat(&session, "cat");
    viewer.echoes("to cat");
    viewer.types("\u{1a}");
    viewer.shows("Stopped");
    viewer.shows("p2>");
    viewer.starts_cat(&session, "fg");
    viewer.echoes("again");
    viewer.types("\u{3}");
    viewer.shows("p3>");
    viewer.types("exit 6\r");
    assert_eq!(viewer.news("term_exit")["exitCode"], 6);
}

#[test]
fn a_password_is_not_echoed_and_every_byte_reaches_a_raw_program() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let script = "stty -echo; echo up; read -r x; stty raw; echo raw; head -c 256 >bytes; exit 0";
    let terminal = run_script(&session, script);
    let viewer = Viewer::attach(&daemon, &session, &terminal);
    viewer.shows("up");
    viewer.types("secret word\r");
    viewer.shows("raw");
    assert!(!viewer.text().contains("secret"), "{}", viewer.text());
    let all: Vec<u8> = (0..=255).collect();
    wait_for("the input to be taken", || viewer.input(&all).then_some(()));
    assert_eq!(viewer.news("term_exit")["exitCode"], 0);
    assert_eq!(std::fs::read(repo.path().join("bytes")).unwrap(), all);
}
