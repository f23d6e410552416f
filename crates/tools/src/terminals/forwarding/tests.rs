//! Tests with their own screen and clock.

use super::*;
use quackd_terminal::TerminalSize;

const LATER: Duration = Duration::from_secs(1);

/// A terminal with a clock.
struct Bench {
    screen: Screen,
    forwarding: Forwarding,
    now: Instant,
}

impl Bench {
    fn new(has_raw: bool, has_rows: bool) -> Self {
        let mut forwarding = Forwarding::default();
        forwarding.watch(has_raw, has_rows, false);
        let screen = Screen::new(TerminalSize::new(20, 5), 1000);
        let mut bench = Self { screen, forwarding, now: Instant::now() };
        if has_rows {
            assert_eq!(bench.next(), "rows");
        }
        bench
    }

    fn print(&mut self, bytes: &[u8]) {
        self.screen.feed(bytes);
        self.forwarding.output(bytes);
    }

    fn refresh(&mut self, viewer: u32, as_rows: bool) {
        self.forwarding.refresh(Refresh { viewer, has_scrollback: true, as_rows });
    }

    /// Returns the next message in short.
    fn next(&mut self) -> String {
        match self.forwarding.next(&self.screen, self.now) {
            Due::Now(FromTerminal::Output { bytes }) => {
                String::from_utf8_lossy(&frames::decoded(&bytes).unwrap()).into_owned()
            }
            Due::Now(FromTerminal::Redraw { viewer: None, .. }) => "redraw".to_owned(),
            Due::Now(FromTerminal::Redraw { viewer: Some(n), .. }) => format!("redraw {n}"),
            Due::Now(FromTerminal::Rows { viewer: None, screen }) => {
                let rows: ScreenRows = serde_json::from_str(screen.get()).unwrap();
                if rows.whole { "rows".to_owned() } else { format!("{} rows", rows.lines.len()) }
            }
            Due::Now(FromTerminal::Rows { viewer: Some(n), .. }) => format!("rows {n}"),
            Due::Now(FromTerminal::Title { title }) => format!("title {title}"),
            Due::Now(FromTerminal::Open { address }) => format!("open {address}"),
            Due::Now(FromTerminal::InputTaken {}) => "taken".to_owned(),
            Due::Now(FromTerminal::Exited(exit)) => format!("exit {:?}", exit.exit_code),
            Due::At(_) => "later".to_owned(),
            Due::Change => "nothing".to_owned(),
            Due::Over => "over".to_owned(),
        }
    }

    fn after(&mut self, time: Duration) -> String {
        self.now += time;
        self.next()
    }
}

#[test]
fn output_is_sent_at_once_after_a_pause_and_collected_then() {
    let mut bench = Bench::new(true, false);
    assert_eq!(bench.next(), "nothing");
    bench.print(b"a");
    assert_eq!(bench.next(), "a");
    bench.print(b"b");
    bench.print(b"c");
    assert_eq!(bench.next(), "later");
    assert_eq!(bench.after(TERMINAL_FRAME_INTERVAL), "bc");
    assert_eq!(bench.next(), "nothing");
    let mut quiet = Bench::new(false, false);
    quiet.print(b"a");
    assert_eq!(quiet.next(), "nothing", "without viewers");
}

#[test]
fn without_credits_output_is_dropped_and_the_screen_is_sent_with_the_next_one() {
    let mut bench = Bench::new(true, false);
    for _ in 0..TERMINAL_CREDITS {
        bench.print(b"x");
        assert_eq!(bench.after(LATER), "x");
    }
    bench.print(b"kept");
    assert_eq!(bench.after(LATER), "nothing");
    bench.forwarding.add_credit();
    assert_eq!(bench.next(), "kept");
    bench.print(&vec![b'x'; MAX_PIECE_BYTES + 1]);
    assert!(bench.forwarding.pending.is_empty());
    bench.print(b"more");
    assert_eq!(bench.after(LATER), "nothing");
    bench.forwarding.add_credit();
    assert_eq!(bench.next(), "redraw");
    assert_eq!(bench.after(LATER), "nothing");
    (0..100).for_each(|_| bench.forwarding.add_credit());
    assert_eq!(bench.forwarding.spent, 0);
}

#[test]
fn a_refresh_is_answered_without_a_credit_and_after_the_output_before_it() {
    let mut bench = Bench::new(true, false);
    bench.print(b"a");
    bench.refresh(7, false);
    bench.print(b"b");
    assert_eq!([bench.next(), bench.next(), bench.next()], ["ab", "redraw 7", "nothing"]);
    bench.forwarding.spent = TERMINAL_CREDITS;
    bench.print(b"c");
    bench.refresh(8, false);
    assert_eq!(bench.next(), "redraw 8");
    assert_eq!(bench.after(LATER), "nothing");
    bench.forwarding.add_credit();
    assert_eq!(bench.next(), "redraw", "the others lack the output");
    (0..1000).for_each(|viewer| bench.refresh(viewer, false));
    assert_eq!(bench.forwarding.refreshes.len(), MAX_REFRESHES);
}

#[test]
fn a_refresh_shows_the_newest_screen() {
    let mut bench = Bench::new(false, false);
    let drawn = |bench: &mut Bench| {
        bench.refresh(1, false);
        match bench.forwarding.next(&bench.screen, bench.now) {
            Due::Now(FromTerminal::Redraw { bytes, .. }) => {
                String::from_utf8(frames::decoded(&bytes).unwrap()).unwrap()
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(drawn(&mut bench), drawn(&mut bench));
    bench.print(b"new");
    assert!(drawn(&mut bench).contains("new"));
    bench.screen.resize(TerminalSize::new(2, 2));
    bench.forwarding.resized();
    assert!(!drawn(&mut bench).contains("new"));
}

#[test]
fn rows_are_sent_as_changes_unless_a_viewer_has_newer_ones() {
    let mut bench = Bench::new(false, true);
    bench.print(b"one");
    assert_eq!(bench.next(), "later");
    assert_eq!(bench.after(TERMINAL_ROWS_INTERVAL), "1 rows");
    bench.print(b"\x07");
    assert_eq!(bench.after(LATER), "nothing", "nothing can be seen");
    bench.print(b"\r\ntwo");
    bench.refresh(3, true);
    assert_eq!([bench.next(), bench.next()], ["rows 3", "rows"]);
    bench.refresh(4, true);
    assert_eq!([bench.next(), bench.after(LATER)], ["rows 4", "nothing"]);
    bench.screen.resize(TerminalSize::new(30, 6));
    bench.forwarding.resized();
    assert_eq!(bench.after(LATER), "rows");
}

#[test]
fn titles_are_sent_without_viewers_and_at_most_one_per_second() {
    let mut bench = Bench::new(false, false);
    for title in ["a", "b", "c"] {
        bench.print(format!("\x1b]0;{title}\x07").as_bytes());
    }
    assert_eq!([bench.next(), bench.next()], ["title c", "nothing"]);
    bench.print(b"\x1b]2;d\x07");
    assert_eq!(bench.next(), "later");
    assert_eq!(bench.after(TITLE_INTERVAL), "title d");
}

#[test]
fn the_end_follows_the_last_output_and_waits_for_a_credit_only_shortly() {
    let end = |bench: &mut Bench| {
        let exit = TerminalExit { exit_code: Some(3), ..TerminalExit::default() };
        bench.forwarding.end(exit, bench.now);
    };
    let mut bench = Bench::new(true, false);
    bench.forwarding.input_taken();
    bench.print(b"a");
    assert_eq!([bench.next(), bench.next()], ["taken", "a"]);
    bench.print(b"b");
    end(&mut bench);
    assert_eq!([bench.next(), bench.next(), bench.next()], ["b", "exit Some(3)", "over"]);

    let mut bench = Bench::new(true, false);
    bench.forwarding.spent = TERMINAL_CREDITS;
    bench.print(b"a");
    end(&mut bench);
    assert_eq!(bench.next(), "later");
    assert_eq!([bench.after(LAST_OUTPUT_LIMIT), bench.next()], ["exit Some(3)", "over"]);

    let mut bench = Bench::new(true, false);
    bench.forwarding.spent = TERMINAL_CREDITS;
    bench.print(b"a");
    end(&mut bench);
    assert_eq!(bench.next(), "later");
    bench.forwarding.add_credit();
    assert_eq!([bench.next(), bench.next(), bench.next()], ["a", "exit Some(3)", "over"]);
}

#[test]
fn the_last_address_is_sent_once_a_second_and_waits_for_a_viewer_for_a_while() {
    let mut bench = Bench::new(true, false);
    for n in 0..1000 {
        bench.forwarding.open(format!("http://{n}"), bench.now);
    }
    assert_eq!([bench.next(), bench.next()], ["open http://999", "nothing"]);
    bench.forwarding.open("http://b".to_owned(), bench.now);
    assert_eq!([bench.next(), bench.after(ADDRESS_INTERVAL)], ["later", "open http://b"]);
    assert_eq!(bench.forwarding.spent, 2);

    bench.forwarding.watch(false, false, false);
    for (wait, expected) in [(ADDRESS_LIMIT, "open http://c"), (ADDRESS_LIMIT + LATER, "nothing")] {
        bench.forwarding.open("http://c".to_owned(), bench.now);
        assert_eq!(bench.after(wait), "nothing");
        bench.forwarding.watch(true, false, false);
        assert_eq!([bench.next(), bench.next()], [expected, "nothing"]);
        bench.forwarding.watch(false, false, false);
    }
}

#[test]
fn the_end_waits_for_a_viewer_that_lags_but_only_shortly() {
    let lags = || {
        let mut bench = Bench::new(true, false);
        bench.forwarding.watch(false, false, true);
        bench.print(b"last");
        bench.forwarding.end(TerminalExit::default(), bench.now);
        assert_eq!(bench.next(), "later");
        bench
    };
    let mut bench = lags();
    bench.forwarding.watch(true, false, false);
    bench.refresh(1, false);
    assert_eq!([bench.next(), bench.next(), bench.next()], ["redraw 1", "exit None", "over"]);
    assert_eq!(lags().after(LAST_OUTPUT_LIMIT), "exit None");
}
