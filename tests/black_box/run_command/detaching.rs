//! Leaving a terminal and coming back: the key, other clients, signals, and clients that are killed.

use super::{end, is_detached, jobs, opened, quack, run, viewer};
use crate::harness::{Daemon, wait_for};
use nix::sys::signal::Signal;
use serde_json::json;

/// A full screen with every mode that an editor uses.
const EDITOR: &str = "stty -echo; printf '\\033[?1049h\\033[2J\\033[3;5H\\033[1;35mfull screen\\033[0m'; \
                      printf '\\033[?1000h\\033[?1006h\\033[?1004h\\033[?2004h\\033[?1h\\033=\\033[>1u'; \
                      printf '\\033[5;10r\\033[?25l\\033[8;1Hready'; read -r x; echo \"got $x\"; exit 6";

/// Whether a sequence `CSI ? … l` in the output switches off a mode.
fn is_off(raw: &str, mode: &str) -> bool {
    raw.split("\u{1b}[?").skip(1).any(|rest| {
        let end = rest.find(|c: char| c != ';' && !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[end..].starts_with('l') && rest[..end].split(';').any(|it| it == mode)
    })
}

#[test]
fn the_key_detaches_and_another_window_shows_the_same_screen() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let first = run(&daemon, &repo, EDITOR);
    first.shows("ready");
    assert!(first.emulated(|screen| screen.is_alternate() && screen.wants_bracketed_paste()));
    let before = first.picture();
    assert!(before.contains("    full screen"), "{before}");

    first.press("\u{1c}");
    first.see("[detached from ");
    // A redraw switches modes off too, before it shows the screen.
    let all = first.raw();
    let raw = all.rsplit_once("ready").unwrap().1;
    for mode in ["1049", "1000", "1006", "1004", "2004", "1"] {
        assert!(is_off(raw, mode), "mode {mode} stays on: {all:?}");
    }
    assert!(!first.emulated(|screen| {
        screen.is_alternate()
            || screen.wants_bracketed_paste()
            || screen.application_cursor()
            || !screen.cursor().visible
    }));
    assert_eq!(end(first).1, Some(0));
    assert_eq!(jobs(&daemon).len(), 1, "the program continues");

    let second = opened(&daemon, &repo, &["attach", "web"]);
    second.shows("ready");
    assert_eq!(second.picture(), before);
    second.until("the modes", |screen| screen.is_alternate() && screen.application_cursor());
    second.press("back\r");
    second.see("got back");
    let (rest, code) = end(second);
    assert_eq!(code, Some(6), "{rest}");
}

#[test]
fn a_title_that_was_set_before_is_shown_and_taken_back() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let first = run(&daemon, &repo, "printf '\\033]2;of the program\\007'; echo ready; exec cat");
    first.shows("ready");
    let watcher = viewer(&daemon);
    wait_for("the title", || {
        let data = watcher.request("quack.term_attach", &json!({}));
        (data["title"] == "of the program").then_some(())
    });

    let second = opened(&daemon, &repo, &["attach", "web", "--read-only"]);
    let title = Some("a/web/term-1: of the program");
    second.until("the title", |screen| screen.title() == title);
    second.press("\u{1c}");
    second.see("[detached from ");
    let raw = second.raw();
    assert!(raw.contains("\u{1b}[22;2t") && raw.contains("\u{1b}[23;2t"), "{raw:?}");
    assert_eq!(end(second).1, Some(0));
    first.press("\u{4}");
    assert_eq!(end(first).1, Some(0));
}

#[test]
fn the_note_after_detaching_is_below_the_picture_of_the_main_screen() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let script = "stty -echo; printf 'one\\ntwo\\nthree\\033[1;1Hready'; exec cat";
    let window = run(&daemon, &repo, script);
    window.shows("ready");
    window.press("\u{1c}");
    window.shows("; quack attach a/web]");
    let picture = window.picture();
    let lines: Vec<&str> = picture.lines().map(str::trim_end).collect();
    assert!(lines.contains(&"two") && lines.contains(&"three"), "{picture}");
    assert_eq!(end(window).1, Some(0));
}

#[test]
fn a_pager_on_the_whole_screen_survives_its_window() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    if !quack(&daemon, &repo, &["tool", "bash", "command -v less"]).stdout().contains("/less") {
        return crate::harness::skipped("no less in a session");
    }
    let first = run(&daemon, &repo, "seq 1000 2000 | LESS= less");
    first.shows("1023");
    first.press(" ");
    first.shows("1047");
    let before = numbers(&first.picture());
    assert!(20 < before.len(), "{before:?}");
    first.press("\u{1c}");
    is_detached(first);
    let second = opened(&daemon, &repo, &["attach", "web"]);
    second.shows("1047");
    assert_eq!(numbers(&second.picture()), before);
    second.press("q");
    assert_eq!(end(second).1, Some(0));
}

/// Lines of the screen with a number.
fn numbers(picture: &str) -> Vec<String> {
    let lines = picture.lines().map(str::trim_end);
    lines.filter(|line| line.starts_with("10")).map(str::to_owned).collect()
}

#[test]
fn two_presses_of_the_key_reach_the_program() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let script = "trap 'echo got quit; exit 5' QUIT; echo ready; while :; do sleep 0.05; done";
    let window = run(&daemon, &repo, script);
    window.shows("ready");
    window.press("\u{1c}\u{1c}");
    window.see("got quit");
    assert_eq!(end(window).1, Some(5));
}

#[test]
fn a_paste_that_the_program_does_not_read_does_not_hide_the_key() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let window = run(&daemon, &repo, "stty raw -echo; echo ready; while :; do sleep 1; done");
    window.shows("ready");
    // More than the terminal, the worker and the client keep.
    window.press(&"x".repeat(4 * 1024 * 1024));
    window.press("\u{1c}");
    is_detached(window);
}

#[test]
fn the_key_is_found_in_the_encoding_of_the_kitty_protocol() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    for key in ["\u{1b}[92;5u", "\u{1b}[92;133u", "\u{1b}[27;5;92~"] {
        let window = opened(&daemon, &repo, &["run", "--", "bash", "-c", "echo ready; exec cat"]);
        window.shows("ready");
        window.press(key);
        is_detached(window);
    }
}

#[test]
fn the_window_can_be_detached_from_outside() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let first = run(&daemon, &repo, EDITOR);
    first.shows("ready");
    let second = opened(&daemon, &repo, &["attach", "web", "--read-only"]);
    second.shows("ready");
    quack(&daemon, &repo, &["detach", "web"]).ok();
    is_detached(first);
    is_detached(second);
    assert_eq!(jobs(&daemon).len(), 1, "the program continues");
}

#[test]
fn a_client_that_is_killed_or_hung_up_leaves_the_program_running() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let first = run(&daemon, &repo, "echo ready; exec cat");
    first.shows("ready");
    first.signal(Signal::SIGKILL);
    assert_eq!(end(first).1, None);
    wait_for("the viewer to be gone", || (viewer(&daemon).data["viewers"] == 1).then_some(()));

    let ends = [Signal::SIGHUP, Signal::SIGTERM, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2];
    for signal in ends {
        let next = opened(&daemon, &repo, &["attach", "web"]);
        next.shows("ready");
        assert!(!next.is_cooked());
        next.signal(signal);
        end(next);
    }
    let viewer = viewer(&daemon);
    viewer.shows("ready");
    viewer.echoes("it goes on");
}

#[test]
fn a_killed_client_leaves_no_mode_in_its_window() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let window = run(&daemon, &repo, EDITOR);
    window.shows("ready");
    assert!(window.emulated(|screen| screen.is_alternate() && screen.application_cursor()));
    window.signal(Signal::SIGKILL);
    window.until("the main screen", |screen| {
        !screen.is_alternate()
            && !screen.wants_bracketed_paste()
            && !screen.application_cursor()
            && screen.cursor().visible
    });
    let (all, code) = end(window);
    assert_eq!(code, None, "{all}");
    let (_, raw) = all.rsplit_once("ready").unwrap();
    for mode in ["1049", "1000", "1006", "1004", "2004", "1"] {
        assert!(is_off(raw, mode), "mode {mode} stays on: {all:?}");
    }
    assert!(raw.contains("\u{1b}[<1u") && raw.contains("\u{1b}>"), "keys stay changed: {all:?}");
    assert_eq!(jobs(&daemon).len(), 1, "the program continues");
}

#[test]
fn a_client_that_is_stopped_gives_the_window_back_until_it_continues() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let window = run(&daemon, &repo, EDITOR);
    window.shows("ready");
    window.signal(Signal::SIGTSTP);
    wait_for("the client to be stopped", || window.is_stopped().then_some(()));
    assert!(window.is_cooked());
    window.until("the main screen", |screen| !screen.is_alternate());
    // The program does not notice.
    viewer(&daemon).shows("full screen");
    window.signal(Signal::SIGCONT);
    window.until("the program's screen", quackd_terminal::Screen::is_alternate);
    window.shows("full screen");
    wait_for("the keys to be read again", || (!window.is_cooked()).then_some(()));
    window.press("after a stop\r");
    window.see("got after a stop");
    assert_eq!(end(window).1, Some(6));
}

#[test]
fn a_window_that_only_reads_types_nothing_and_detaches() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let first = run(&daemon, &repo, "echo ready; exec cat");
    first.shows("ready");
    let reader = opened(&daemon, &repo, &["attach", "web", "--read-only"]);
    reader.shows("ready");
    reader.press("intruder\r");
    reader.press("\u{1c}");
    is_detached(reader);
    first.press("typed\r");
    first.until("the line twice", |screen| screen.text().matches("typed").count() == 2);
    assert!(!first.picture().contains("intruder"), "{}", first.picture());
    first.press("\u{4}");
    assert_eq!(end(first).1, Some(0));
}
