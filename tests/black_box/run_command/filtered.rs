//! The filter of the client: sequences that the user's terminal must not get.

use super::{end, is_detached, opened, run};
use crate::harness::{Daemon, Terminal};

/// Prints sequences that a terminal must not get, in several forms, with harmless text between them.
const HOSTILE: &str = r#"stty -echo; read -r x
for it in '\033]52;c;aGFjaw==\007' '\033]52;c;aGFjaw==\033\\' '\033]4;1;#ff0000\007' '\033]10;?\007' \
    '\033]7;file:///etc\007' '\033]9;note\007' '\033]777;notify;a;b\007' '\033]1337;File=:AA==\007' \
    '\033]50;font\007' '\033]8;;file:///etc/passwd\007link\033]8;;\007' '\033P+q544e\033\\' '\033Pq#0\033\\' \
    '\033_Ga=T;AAAA\033\\' '\033^private\033\\' '\033Xstring\033\\' '\033[6n' '\033[5n' '\033[c' '\033[>c' \
    '\033[>q' '\033[?u' '\033[21t' '\033[8;1;1t' '\033[5i' '\033[4i' '\033c' '\033Z' '\005' \
    '\302\23352;c;YQ==\302\234' '\302\2336n' '\302\220q\302\234' '\033[?2026$p' '\033[?996n' '\033[x'; do
    printf 'a'; printf "$it"; printf 'b '
done; echo; echo shown; exec cat
"#;

/// Beginnings of sequences that are in none of the output.
const NEVER: &[&str] = &[
    "\u{1b}]52",
    "\u{1b}]4;",
    "\u{1b}]10",
    "\u{1b}]7;",
    "\u{1b}]9;",
    "\u{1b}]777",
    "\u{1b}]1337",
    "\u{1b}]50",
    "file:///",
    "\u{1b}P",
    "\u{1b}_",
    "\u{1b}^",
    "\u{1b}X",
    "\u{1b}[6n",
    "\u{1b}[5n",
    "\u{1b}[c",
    "\u{1b}[>c",
    "\u{1b}[>q",
    "\u{1b}[?u",
    "\u{1b}[21t",
    "\u{1b}[8;1;1t",
    "\u{1b}[5i",
    "\u{1b}[4i",
    "\u{1b}c",
    "\u{1b}Z",
    "\u{5}",
    "\u{9b}",
    "\u{9d}",
    "\u{90}",
    "$p",
    "996n",
    "\u{1b}[x",
];

/// The client's own queries.
const QUERIES: &str = "\u{1b}]12;?\u{1b}\\\u{1b}]10;?\u{1b}\\\u{1b}]11;?\u{1b}\\\u{1b}[c";

#[track_caller]
fn is_clean(window: &Terminal) {
    // The client itself asks for colors first.
    let raw = window.raw().replacen(QUERIES, "", 1);
    for never in NEVER {
        assert!(!raw.contains(never), "{never:?} in {raw:?}");
    }
}

#[test]
fn dropped_sequences_never_reach_the_window() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    // The shell reads a file: the script has every kind of quote.
    repo.write("hostile.sh", HOSTILE);
    let first = opened(&daemon, &repo, &["run", "--name", "web", "--", "bash", "hostile.sh"]);
    first.press("\r");
    first.shows("shown");
    assert!(first.picture().contains("ab ab "), "{}", first.picture());
    is_clean(&first);
    first.press("\u{1c}");
    is_detached(first);
    let second = opened(&daemon, &repo, &["attach", "web"]);
    second.shows("shown");
    is_clean(&second);
    second.press("\u{1c}");
    is_detached(second);
}

#[test]
fn a_title_is_text_with_a_prefix_and_is_taken_back() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    // A title that was set before is not part of the screen.
    let script = "read -r x; printf '\\033]0;my title\\007'; echo ready; read -r x";
    let window = run(&daemon, &repo, script);
    window.press("\r");
    window.shows("ready");
    let raw = window.raw();
    let title = raw.split("\u{1b}]").find(|it| it.contains("my title"));
    let title = title.unwrap_or_else(|| panic!("no title in {raw:?}"));
    assert!(title.starts_with("0;") || title.starts_with("2;"), "{title:?}");
    assert!(!title[2..].starts_with("my title"), "no prefix: {title:?}");
    window.press("\r");
    assert_eq!(end(window).1, Some(0));
}

#[test]
fn a_query_of_the_program_is_answered_once_with_two_windows() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let script = "stty raw -echo; read -r -d g x
                  ask() { printf '\\033[6n\\033[5n'; IFS= read -r -d n all; printf %s \"$all\" >\"$1\"; }
                  printf '\\033[4;2H'; ask first; ask second; printf done; exec cat";
    let first = run(&daemon, &repo, script);
    let second = opened(&daemon, &repo, &["attach", "web"]);
    first.press("g");
    first.shows("done");
    second.shows("done");
    for name in ["first", "second"] {
        assert_eq!(repo.read(name), "\u{1b}[4;2R\u{1b}[0", "{name}");
    }
    is_clean(&first);
    is_clean(&second);
    for window in [first, second] {
        window.press("\u{1c}");
        is_detached(window);
    }
}
