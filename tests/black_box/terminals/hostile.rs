//! Output that attacks viewers, the worker or the supervisor.

use super::{Viewer, bytes_of, run_script, run_with};
use crate::harness::{Daemon, Repo, wait_for};
use quackd_terminal::TerminalSize;
use serde_json::json;
use std::time::Instant;

/// Most bytes of a redraw, and of the JSON of rows.
const MAX_SCREEN_BYTES: usize = 1024 * 1024;

/// Asks three questions, and writes the answers to a file.
const ASK: &str = "stty raw -echo; ask() { printf '\\033[6n\\033[c\\033[5n'; IFS= read -r -d n all; \
                   printf %s \"$all\" >new; mv new \"$1\"; }; ask first; ask second; ";

/// Each question has exactly one answer, in the order of the questions.
#[track_caller]
fn is_answered_once(repo: &Repo, name: &str) {
    wait_for("the answers", || repo.path().join(name).exists().then_some(()));
    let answers = repo.read(name);
    let attributes = answers.strip_prefix("\u{1b}[1;1R").and_then(|it| it.strip_suffix("\u{1b}[0"));
    let attributes = attributes.unwrap_or_else(|| panic!("{name}: {answers:?}"));
    assert!(attributes.starts_with("\u{1b}[?") && attributes.ends_with('c'), "{answers:?}");
    assert_eq!(attributes.matches('\u{1b}').count(), 1, "{answers:?}");
}

#[test]
fn queries_are_answered_exactly_once_with_and_without_viewers() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let script = format!("{ASK}{}", daemon.gated("watched", "ask third; ask fourth; exec cat"));
    let terminal = run_script(&session, &script);
    // A second answer to the first questions would be among the answers to the second ones.
    is_answered_once(&repo, "first");
    is_answered_once(&repo, "second");
    let viewers = [0, 1].map(|_| Viewer::attach(&daemon, &session, &terminal));
    let rows = Viewer::attach_with(&daemon, &session, &terminal, &json!({"asRows": true}));
    daemon.open_gate("watched");
    is_answered_once(&repo, "third");
    is_answered_once(&repo, "fourth");
    viewers[0].types("done");
    viewers[1].shows("done");
    rows.shows("done");
}

#[test]
fn invalid_text_and_control_bytes_reach_rows_as_text_only() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let script = "read -r x; printf 'a\\377\\376\\300b\\355\\240\\200c\\n\\302\\205d\\001\\002\\005\\016\\017e\\n'
                  printf 'wide \\346\\274\\242\\345\\255\\227 e\\314\\201 \\342\\200\\256turned\\n'
                  printf '\\033[999999999;999999999H\\033[99999999999999999999A\\033[;;;;;;;;;;;;;;;;;;;;m'
                  printf '\\033[1;1Hhome\\033[10;1H'; echo end; exec cat";
    let terminal = run_script(&session, script);
    let rows = Viewer::attach_with(&daemon, &session, &terminal, &json!({"asRows": true}));
    let viewer = Viewer::attach(&daemon, &session, &terminal);
    viewer.types("\r");
    // The viewer with rows checks that they have no control character.
    rows.shows("end");
    viewer.shows("end");
    assert!(rows.text().contains("home") && rows.text().contains("wide 漢字"), "{}", rows.text());
    viewer.echoes("alive");
    rows.shows("alive");
}

#[test]
fn the_largest_screen_full_of_colors_is_shown_within_its_bounds() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    // Half of the lines are twice the limit.
    let script = "stty -echo; stty size; read -r x
                  for ((n = 0; n < 999; n++)); do line+=$'\\e'\"[38;5;$((n % 256))mx\"; done
                  for ((n = 0; n < 250; n++)); do echo \"$line\"; done
                  printf '\\033[0m\\033[500;1Hlast'; exec cat";
    let more = json!({"cols": 5000, "rows": 5000});
    let terminal = run_with(&session, &["bash", "-c", script], &more);
    let first = Viewer::attach(&daemon, &session, &terminal);
    assert_eq!((&first.data["cols"], &first.data["rows"]), (&json!(1000), &json!(500)));
    first.shows("500 1000");
    first.types("\r");
    first.shows("last");
    let rows = Viewer::attach_with(&daemon, &session, &terminal, &json!({"asRows": true}));
    let late = Viewer::attach(&daemon, &session, &terminal);
    let event = late.event();
    assert!(bytes_of(&event["data"]).len() <= MAX_SCREEN_BYTES);
    assert_eq!(late.size(), TerminalSize::new(1000, 500));
    let event = rows.event();
    assert!(event["data"]["screen"].to_string().len() <= MAX_SCREEN_BYTES);
    for viewer in [&late, &rows] {
        assert!(viewer.text().contains("xxxxxxxxxx"), "{}", viewer.text().len());
    }
    late.types("more\r");
    late.shows("more");
}

#[test]
fn a_flood_of_titles_becomes_a_few_and_the_last_one_counts() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let follower = daemon.wire();
    follower.request("follow", json!({"sessionId": session.id}));
    let script = "for ((n = 0; n < 20000; n++)); do printf '\\033]0;title %d\\007' $n; done; \
                  printf '\\033]2;last %0300d\\007' 7; echo end; exec cat";
    let begun = Instant::now();
    let terminal = run_script(&session, script);
    let viewer = Viewer::attach(&daemon, &session, &terminal);
    viewer.shows("end");
    let mut n_titles = 0;
    loop {
        let event = follower.event();
        if event["event"] == "terminal_title" {
            n_titles += 1;
            let title = event["data"]["title"].as_str().unwrap();
            assert!(!title.contains(char::is_control) && title.chars().count() <= 200, "{title:?}");
            if title.starts_with("last ") {
                break;
            }
        }
    }
    // One per second at most.
    let most = begun.elapsed().as_secs() + 2;
    assert!(n_titles <= most, "{n_titles} titles, at most {most}");
    viewer.echoes("alive");
}

#[test]
fn a_string_of_a_megabyte_is_dropped_and_what_follows_is_shown() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let long = "head -c 1M /dev/zero | tr '\\0' y";
    let script = format!(
        "read -r x; for start in ']0;' ']52;c;' ']8;;' 'P' '_' '^' 'X'; do printf '\\033%s' \"$start\"; \
         {long}; printf '\\033\\\\after %s.\\n' \"$start\"; done; \
         printf '\\033]0;'; {long}; printf '\\030cancelled\\n'; exec cat"
    );
    let terminal = run_script(&session, &script);
    let viewer = Viewer::attach(&daemon, &session, &terminal);
    let rows = Viewer::attach_with(&daemon, &session, &terminal, &json!({"asRows": true}));
    viewer.types("\r");
    viewer.shows("cancelled");
    rows.shows("cancelled");
    for start in ["]0;", "]52;c;", "]8;;", "P", "_", "^", "X"] {
        assert!(viewer.text().contains(&format!("after {start}.")), "{}", viewer.text());
    }
    assert!(!rows.text().contains("yyy"), "{}", rows.text());
    viewer.echoes("alive");
}

#[test]
fn an_endless_program_leaves_its_session_and_the_daemon_usable_and_can_be_ended() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let other = wire.attach(daemon.repo("b").path());
    let script =
        "while :; do printf '\\033[H\\033[2J\\033]0;t\\007%5000d\\033[?1049h\\033[?1049l' 7; done";
    let terminal = run_script(&session, script);
    let viewer = Viewer::attach(&daemon, &session, &terminal);
    let silent = Viewer::attach(&daemon, &session, &terminal);
    for _ in 0..20 {
        viewer.event();
    }
    assert_eq!(session.bash("echo beside"), "beside\n\n[Exit code: 0]");
    assert_eq!(other.bash("echo other"), "other\n\n[Exit code: 0]");
    viewer.request("quack.term_kill", &json!({}));
    viewer.news("term_exit");
    drop(silent);
}
