//! Windows that are smaller than the screen, and the terminal that is meant without a name.

use super::{SIZES, command, end, is_detached, opened, quack, run, window};
use crate::harness::{Daemon, Repo, Terminal, wait_for};
use serde_json::json;

/// Draws in all corners, and later in the last rows.
const CORNERS: &str = "stty -echo; printf '\\033[31mtop left\\033[0m\\033[1;80Hfar right\\033[24;1Hbottom'; \
                       printf '\\033[2;5Hready'; read -r x; printf '\\033[24;3Hdeep'; read -r x; exit 4";

/// Note in a window of 60 columns and 15 rows about a screen of the usual size.
const NOTE: &str = "a/web: screen is 90×25, window 60×15";

/// Attaches in a window of 60 columns and 15 rows, and waits until the client reads keys.
#[track_caller]
fn small(daemon: &Daemon, repo: &Repo, args: &[&str]) -> Terminal {
    let window = Terminal::sized(command(daemon, repo, args), Some((60, 15)));
    wait_for("the client to read keys", || window.is_raw().then_some(()));
    window
}

#[test]
fn a_small_window_shows_a_part_of_the_screen_and_a_note() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let first = run(&daemon, &repo, CORNERS);
    first.shows("ready");

    let small = small(&daemon, &repo, &["attach", "web", "--read-only"]);
    small.shows(NOTE);
    small.until("the cursor", |screen| {
        let cursor = screen.cursor();
        (cursor.row, cursor.col, cursor.visible) == (1, 9, true)
    });
    let picture = small.picture();
    let lines: Vec<&str> = picture.lines().map(str::trim_end).collect();
    assert_eq!((lines[0], lines[1], lines[14]), ("top left", "    ready", NOTE), "{picture}");
    assert!(lines[2..14].iter().all(|line| line.is_empty()), "{picture}");
    let red = Some(quackd_terminal::Color::Palette(1));
    assert_eq!(small.emulated(|screen| screen.rows()[0].runs[0].style.fg), red);

    // The row of the cursor stays visible.
    first.press("\r");
    small.shows("deep");
    let picture = small.picture();
    let lines: Vec<&str> = picture.lines().map(str::trim_end).collect();
    assert!(lines[13].contains("deep") && !picture.contains("top left"), "{picture}");

    // A larger window gets the program's own bytes, and a smaller one the part again.
    small.resize(90, 25);
    small.until("the whole screen", |screen| {
        let text = screen.text();
        !screen.is_alternate() && text.contains("far right") && text.contains("deep")
    });
    small.resize(60, 15);
    small.shows(NOTE);
    small.press("\u{1c}");
    is_detached(small);
    first.press("\r");
    assert_eq!(end(first).1, Some(4));
}

#[test]
fn the_end_of_the_program_gives_a_small_window_back() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let first = run(&daemon, &repo, "printf '\\033[?1049h\\033[?1000hready'; read -r x; exit 5");
    first.shows("ready");
    let small = small(&daemon, &repo, &["attach", "web", "--read-only"]);
    small.shows(NOTE);
    first.press("\r");
    for window in [first, small] {
        assert_eq!(end(window).1, Some(5));
    }
}

#[test]
fn typing_in_a_small_window_makes_the_screen_as_small() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let first = run(&daemon, &repo, SIZES);
    first.shows("at 25 90");
    let small = small(&daemon, &repo, &["attach", "web"]);
    small.shows(NOTE);

    small.press("x");
    small.until("the program's own bytes", |screen| {
        let text = screen.text();
        !screen.is_alternate() && text.contains("now 15 60") && !text.contains("screen is")
    });
    first.press("y");
    first.shows("now 25 90");
    small.shows(NOTE);
    // The window of the one that typed last sets the size at once, and that of another one does not.
    first.resize(88, 24);
    first.shows("now 24 88");
    small.shows("a/web: screen is 88×24, window 60×15");
    small.resize(50, 10);
    small.shows("a/web: screen is 88×24, window 50×10");

    repo.write("end", "");
    for window in [first, small] {
        assert_eq!(end(window).1, Some(0));
    }
}

#[test]
fn without_a_name_the_last_started_terminal_of_the_directory_is_meant() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    quack(&daemon, &repo, &["tool", "bash", "true"]).ok();
    let none = window(&daemon, &repo, &["attach"]);
    none.see("session a has no terminal: start one with quack run --in a");
    assert_ne!(end(none).1, Some(0));
    let start = |place: &[&str], name: &str| {
        let script = format!("echo this is {name}; exec cat");
        let program = ["--", "bash", "-c", script.as_str()];
        quack(&daemon, &repo, &[&["run", "-d"][..], place, &program[..]].concat()).ok();
    };

    start(&["--name", "one"], "one");
    let only = opened(&daemon, &repo, &["attach"]);
    only.shows("this is one");
    let detached = quack(&daemon, &repo, &["detach", "--json"]).json();
    assert_eq!((&detached["sessionName"], &detached["detached"]), (&json!("one"), &json!(1)));
    is_detached(only);

    start(&["--name", "two"], "two");
    let last = opened(&daemon, &repo, &["attach"]);
    last.shows("this is two");
    let detached = quack(&daemon, &repo, &["detach", "--json"]).json();
    assert_eq!((&detached["sessionName"], &detached["detached"]), (&json!("two"), &json!(1)));
    is_detached(last);

    start(&["--in", "one"], "again one");
    let again = opened(&daemon, &repo, &["attach"]);
    again.shows("this is again one");
    again.press("\u{1c}");
    again.see("[detached from a/one; quack attach a/one]");
    assert_eq!(end(again).1, Some(0));
}
