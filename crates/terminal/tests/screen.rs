//! The screen: queries have one answer, state is kept, bounds hold, and no input makes it panic.

#![cfg(test)]

use proptest::prelude::*;
use quackd_protocol::terminal::TerminalColors;
use quackd_terminal::{
    Color, Cursor, FEED_BYTES, Filter, FilterOptions, MAX_ANSWER_BYTES, RgbColor, Screen,
    TerminalSize,
};

fn screen(cols: u16, rows: u16) -> Screen {
    Screen::new(TerminalSize::new(cols, rows), 64 * 1024)
}

fn fed(cols: u16, rows: u16, bytes: &str) -> Screen {
    let mut screen = screen(cols, rows);
    screen.feed(bytes.as_bytes());
    screen
}

#[test]
fn a_size_is_clamped() {
    assert_eq!(TerminalSize::new(0, 0), TerminalSize { cols: 1, rows: 1 });
    assert_eq!(TerminalSize::new(u16::MAX, u16::MAX), TerminalSize { cols: 1000, rows: 500 });
}

#[test]
fn every_query_has_one_answer_at_any_split() {
    for (query, answer) in [
        ("\x1b[c", "\x1b[?62;22c"),
        ("\x1b[0c", "\x1b[?62;22c"),
        ("\x1b[>c", "\x1b[>1;277;0c"),
        ("\x1b[5n", "\x1b[0n"),
        ("ab\r\nabc\x1b[6n", "\x1b[2;4R"),
        ("\x1b[?6n", "\x1b[?1;1R"),
        ("\x1b[?2004$p", "\x1b[?2004;2$y"),
        ("\x1b[?2004h\x1b[?2004$p", "\x1b[?2004;1$y"),
        ("\x1b[?7$p\x1b[?1049$p\x1b[?9999$p", "\x1b[?7;1$y\x1b[?1049;2$y\x1b[?9999;0$y"),
        ("\x1b[4$p", "\x1b[4;0$y"),
        ("\x1b[>q", "\x1bP>|quackd\x1b\\"),
        ("\x1b[?u", "\x1b[?0u"),
        ("\x1b[>5u\x1b[?u", "\x1b[?5u"),
        ("\x1b[>1u\x1b[=8;2u\x1b[?u\x1b[<u\x1b[?u", "\x1b[?9u\x1b[?0u"),
        ("\x1b]10;?\x07", "\x1b]10;rgb:e5e5/e5e5/e5e5\x07"),
        ("\x1b]11;?\x1b\\", "\x1b]11;rgb:0000/0000/0000\x1b\\"),
        ("\x1b]11;?;?\x07", "\x1b]11;rgb:0000/0000/0000\x07\x1b]12;rgb:e5e5/e5e5/e5e5\x07"),
        (
            "\x1b]4;1;?;231;?\x07",
            "\x1b]4;1;rgb:cdcd/0000/0000\x07\x1b]4;231;rgb:ffff/ffff/ffff\x07",
        ),
        ("\x1b]4;232;?\x07", "\x1b]4;232;rgb:0808/0808/0808\x07"),
        ("\x1bP+q544e;666f\x1b\\", "\x1bP1+r544E=787465726D2D323536636F6C6F72\x1b\\\x1bP0+r\x1b\\"),
        // Cancelled, unknown or no queries.
        ("\x1b]10;?\x18", ""),
        ("\x1bP+q544e\x18", ""),
        ("\x1b]10;#ffffff\x07\x1b]4;1;#ffffff\x07\x1b]13;?\x07\x1b]4;256;?\x07", ""),
        ("\x1b[14t\x1b[21t\x1bP$qm\x1b\\\x05\x1b[1c", ""),
    ] {
        let query = query.as_bytes();
        for split in 0..=query.len() {
            let mut screen = screen(80, 24);
            let mut answers = screen.feed(&query[..split]);
            answers.extend(screen.feed(&query[split..]));
            assert_eq!(String::from_utf8_lossy(&answers), answer, "{split}");
            assert!(screen.feed(b"text").is_empty());
        }
    }
}

#[test]
fn an_address_to_open_is_taken_once_at_any_split() {
    let address = "https://a.example/x?y=1;z=2";
    for end in ["\x07", "\x1b\\"] {
        let bytes = format!("before\x1b]8732;open;{address}{end}after");
        for split in 0..=bytes.len() {
            let mut screen = screen(80, 24);
            screen.feed(&bytes.as_bytes()[..split]);
            assert!(screen.feed(&bytes.as_bytes()[split..]).is_empty());
            assert_eq!(screen.take_address().as_deref(), Some(address), "{split}");
            assert_eq!((screen.take_address(), screen.text()), (None, "beforeafter".to_owned()));
        }
    }

    let mut screen = screen(80, 24);
    for other in [
        "open;javascript:alert(1)\x07",
        "open;file:///etc/passwd\x07",
        "open;http://a\u{e4}\x07",
        "open;http://a\x18",
        "open\x07",
        "close;http://a\x07",
        &format!("open;http://{}\x07", "x".repeat(2042)),
    ] {
        screen.feed(format!("\x1b]8732;{other}").as_bytes());
        assert_eq!(screen.take_address(), None, "{other:?}");
    }
    screen.feed(&b"\x1b]8732;open;http://a\x07".repeat(1000));
    screen.feed(b"\x1b]8732;open;http://b\x07\x1b]8732;open;ftp://c\x07\x1bc");
    assert_eq!(screen.take_address().as_deref(), Some("http://b"));
    assert_eq!(screen.take_address(), None);
}

#[test]
fn answers_have_the_colors_that_were_set() {
    let gray = |n| RgbColor { r: n, g: n, b: n };
    let mut screen = screen(80, 24);
    screen.set_colors(TerminalColors { fg: gray(1), bg: gray(255), cursor: gray(2) });
    let answer = "\x1b]10;rgb:0101/0101/0101\x07\x1b]11;rgb:ffff/ffff/ffff\x07\x1b]12;rgb:0202/0202/0202\x07";
    assert_eq!(screen.feed(b"\x1b]10;?;?;?\x07"), answer.as_bytes());
}

#[test]
fn answers_and_titles_have_a_bound() {
    let mut screen = screen(80, 24);
    let answers = screen.feed(&b"\x1b[c".repeat(9999));
    assert!((MAX_ANSWER_BYTES - 16..=MAX_ANSWER_BYTES).contains(&answers.len()));
    assert_eq!(screen.feed(b"\x1b[5n"), b"\x1b[0n");

    screen.feed(format!("\x1b]2;{}\x07", "ab\u{202e}".repeat(500)).as_bytes());
    assert_eq!(screen.title().map(|title| title.chars().count()), Some(200));
    for too_long in [9_000, 200_000] {
        screen.feed(format!("\x1b]0;{}\x07after", "x".repeat(too_long)).as_bytes());
        assert!(screen.title().unwrap().starts_with("abab"));
    }
    assert!(screen.text().ends_with("after"));
    for (command, title) in [
        ("\x1b]2;a;b\x1b\\", Some("a;b")),
        ("\x1b]0;one\u{9b}\u{200b}\ttwo\x07", Some("onetwo")),
        ("\x1b]0;cancelled\x18", Some("onetwo")),
        ("\x1b]0;cancelled\x1b[m", Some("onetwo")),
        ("\x1b]0; \x07", None),
    ] {
        screen.feed(command.as_bytes());
        assert_eq!(screen.title(), title, "{command:?}");
    }
}

#[test]
fn text_and_rows_are_what_the_program_drew() {
    let screen = fed(
        20,
        4,
        "one\r\n\x1b[1;31mred\x1b[0m plain\r\n\x1b[48:2::1:2:3;58;5;4mx\x1b[m\x1b(0lqk\x1b(B",
    );
    assert_eq!(screen.text(), "one\nred plain\nx┌─┐");
    let rows = screen.rows();
    assert_eq!(rows.len(), 4);
    assert_eq!(rows[1].runs[0].text, "red");
    assert_eq!(rows[1].runs[0].style.fg, Some(Color::Palette(1)));
    assert!(rows[1].runs[0].style.bold && !rows[1].runs[1].style.bold);
    assert_eq!(rows[2].runs[0].style.bg, Some(Color::Rgb(RgbColor { r: 1, g: 2, b: 3 })));
    assert!(rows[3].runs.is_empty());
    assert_eq!(screen.cursor(), Cursor { row: 2, col: 4, visible: true });
}

#[test]
fn a_redraw_has_the_short_form_of_the_first_16_colors() {
    for style in ["31", "97", "40", "107", "1;36;44", "38;5;16", "48;5;255"] {
        let redraw = fed(20, 4, &format!("\x1b[{style}mx\x1b[my")).redraw(0);
        let redraw = String::from_utf8_lossy(&redraw);
        assert!(redraw.contains(&format!("\x1b[0;{style}mx")), "{style}: {redraw:?}");
    }
}

#[test]
fn what_vt100_lacks_works() {
    for (bytes, text) in [
        ("abcdefghij\x08X", "abcdefghXj"),
        ("abcdefghij\x1b[DX", "abcdefghXj"),
        ("\x1b[?7labcdefghijXYZ", "abcdefghiZ"),
        ("a\x1b[IX\x1b[ZY", "a       Y"),
        ("a\x1bDb\x1bEc", "a\n b\nc"),
        ("ab\x1b[s\r\nX\x1b[uc", "abc\nX"),
        ("ab\x1b[?1048h\r\nX\x1b[?1048lc", "abc\nX"),
        ("ab\x1b[2bc", "abbbc"),
        ("ab\x1bcX", "X"),
        ("a\x1b[31;4m\x1b[!pb\x1b[5;6q", "ab"),
        ("a\x7f\u{9b}31m\u{202e}\x00b", "a31mb"),
        ("👩\u{200d}💻", "👩💻"),
    ] {
        assert_eq!(fed(10, 5, bytes).text(), text, "{bytes:?}");
    }
    let mut raw = screen(10, 2);
    raw.feed(b"a\x9b31m\xff\xc3(b");
    assert_eq!(raw.text(), "a31m??(b");
}

#[test]
fn the_alternate_screen_leaves_the_main_one_as_it_was() {
    let mut screen = fed(10, 3, "one\r\ntwo");
    screen.feed(b"\x1b[?1049h");
    assert!(screen.is_alternate());
    assert_eq!((screen.text(), screen.cursor().col), (String::new(), 3));
    screen.feed(b"\x1b[1;1Hvi\x1b[2;3r");
    let again = reproduced(&screen);
    for mut screen in [screen, again] {
        assert_eq!(screen.text(), "vi");
        screen.feed(b"\x1b[r\x1b[?1049l!");
        assert_eq!(screen.text(), "one\ntwo!");
        assert!(!screen.is_alternate());
    }
}

#[test]
fn lines_above_the_screen_are_kept_up_to_the_bound() {
    let mut screen = Screen::new(TerminalSize::new(10, 3), 100);
    for line in 0..50 {
        screen.feed(format!("\x1b[3{}mline {line}\x1b[m\r\n", line % 8).as_bytes());
    }
    assert_eq!(screen.text(), "line 48\nline 49");
    assert_eq!(screen.scrollback_text(2), "line 46\nline 47\n");
    assert!(screen.scrollback_text(99).len() <= 100);
    let again = reproduced(&screen);
    assert_eq!(again.scrollback_text(2), "line 46\nline 47\n");
    assert_eq!(again.text(), screen.text());

    screen.resize(TerminalSize::new(10, 1));
    assert_eq!(screen.scrollback_text(1), "line 49\n");
    screen.resize(TerminalSize::new(10, 3));
    assert_eq!(screen.cursor().row, 0);
    // The alternate screen keeps no lines, and neither does a screen without space for them.
    let before = screen.scrollback_text(99);
    screen.feed(b"\x1b[?1049h1\r\n2\r\n3\r\n4\r\n5\x1b[?1049l");
    assert_eq!(screen.scrollback_text(99), before);
    screen.feed(b"\x1b[3J");
    assert_eq!(screen.scrollback_text(99), "");
    screen.feed(b"\n".repeat(500).as_slice());
    assert!(screen.redraw(50).len() <= screen.redraw(0).len() + 50 + "\n\n\x1b[H\x1b[2J".len());
    let mut none = Screen::new(TerminalSize::new(10, 1), 0);
    none.feed(b"1\r\n2\r\n3");
    assert_eq!(none.scrollback_text(9), "");
}

#[test]
fn modes_are_those_that_the_program_set() {
    let screen = fed(80, 24, "\x1b[?1;25;2004;1000;1002;1006h\x1b[?25l\x1b=\x1b[4 q");
    assert!(screen.application_cursor() && screen.wants_bracketed_paste());
    assert!(!screen.cursor().visible);
    let redraw = String::from_utf8(screen.redraw(0)).unwrap();
    for part in
        ["\x1b[?1h", "\x1b[?25l", "\x1b[?1000l", "\x1b[?1002h", "\x1b[?1006h", "\x1b=", "\x1b[4 q"]
    {
        assert!(redraw.contains(part), "{part:?} in {redraw:?}");
    }
}

#[test]
fn the_largest_screen_survives_a_flood_of_the_most_expensive_sequences() {
    let mut screen = screen(1000, 500);
    for piece in [
        "a\x1b[2J",
        "\x1b[500S",
        "\x1b[H\x1b[500L",
        "\x1b[H\x1b[1000L\x1b[@\x1b[P\x1b[1000M",
        "W\x1b[1000b",
        "\x1b[?1049h\x1b[?1049l",
        "\x1bc",
        "\n",
    ] {
        screen.feed(piece.repeat(4 * FEED_BYTES / piece.len()).as_bytes());
    }
    assert_eq!(screen.size(), TerminalSize::new(1000, 500));
}

#[test]
fn sequences_that_are_too_expensive_for_their_bytes_have_no_effect() {
    let mut screen = screen(1000, 500);
    screen.feed(format!("{}kept\x1b[2J\x1b[1000L", "\x1b[H\x1b[2J".repeat(8)).as_bytes());
    assert_eq!(screen.text(), "kept");
    screen.feed(b"\x1b[2J");
    assert_eq!(screen.text(), "");
    // The same bytes on a screen of usual size.
    let screen = fed(200, 50, &format!("{}gone\x1b[2J", "\x1b[H\x1b[2J".repeat(400)));
    assert_eq!(screen.text(), "");
}

#[test]
fn plain_output_loses_no_line_on_the_largest_screen() {
    let mut screen = Screen::new(TerminalSize::new(1000, 500), 1024 * 1024);
    let lines: String = (0..5000).map(|n| format!("{n}\x1b[K\r\n")).collect();
    screen.feed(lines.as_bytes());
    let all = screen.scrollback_text(usize::MAX) + &screen.text();
    assert!(all.lines().map(str::trim_end).eq((0..5000).map(|n| n.to_string())), "{all}");
}

/// Draws a screen on another one that is in some other state.
fn reproduced(screen: &Screen) -> Screen {
    let mut again = Screen::new(screen.size(), 1024 * 1024);
    again.feed(
        b"\x1b[?1049h\x1b[31;4mX\x1b[2;3r\x1b[?7;25l\x1b[?1003;1004h\x1b(0\x1b[>5u\x1b[3 q\x1b=",
    );
    assert!(again.feed(&screen.redraw(usize::MAX)).is_empty());
    again
}

/// Returns the answers to queries about all modes.
fn modes(screen: &mut Screen) -> String {
    let modes = [1, 7, 12, 25, 1000, 1002, 1003, 1004, 1006, 1049, 2004, 2026];
    let queries: String = modes.iter().map(|mode| format!("\x1b[?{mode}$p")).collect();
    String::from_utf8(screen.feed(format!("{queries}\x1b[?u").as_bytes())).unwrap()
}

/// Everything of a screen that a program or viewer can see.
fn state(screen: &mut Screen) -> String {
    let modes = modes(screen);
    let seen = (screen.rows(), screen.cursor(), modes);
    // Then: style, region, place behind the last column, character set.
    screen.feed(b"q");
    let after_text = screen.rows();
    screen.feed(b"\r\n\n\n\nlast");
    format!("{seen:?}\n{after_text:?}\n{:?}", screen.rows())
}

/// Output that a failure shows as text.
#[derive(Clone)]
struct Output(Vec<u8>);

impl std::fmt::Debug for Output {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "\"{}\"", self.0.escape_ascii())
    }
}

/// Output with the sequences that matter, whole and broken.
fn output() -> impl Strategy<Value = Output> {
    let piece = prop_oneof![
        4 => "[a-z ]{1,12}".prop_map(String::into_bytes),
        3 => proptest::sample::select(vec![
            "漢", "❤", "\u{fe0f}", "❤\u{fe0f}", "1\u{fe0f}\u{20e3}", "\u{301}", "👩\u{200d}💻", "ｆ", "\u{1160}", "\u{fffd}",
            "\r", "\n", "\r\n", "\t", "\x08", "\x0e", "\x0f", "\x1b", "\x1b[", "\x1b]", "\x1bP+q", "\x07", "\x1b\\", "\x18",
            "\x1b7", "\x1b8", "\x1bM", "\x1bD", "\x1bE", "\x1bc", "\x1b(0", "\x1b(B", "\x1b)0", "\x1b=", "\x1b[!p",
            "\x1b[?1049h", "\x1b[?1049l", "\x1b[?47h", "\x1b[?47l", "\x1b[?7l", "\x1b[?7h", "\x1b[?25l", "\x1b[r",
            "\x1b[?1048h", "\x1b[?1048l", "\x1b[1000;1000H", "\x1b[H", "\x1b[2J", "\x1b[K", "\x1b[1K", "\x1b[3J",
        ]).prop_map(|piece| piece.as_bytes().to_vec()),
        3 => (0_u16..12, 0_u16..12, proptest::sample::select(b"@ABCDEFGHIJKLMPSTXZ`abdefmrsu".to_vec()))
            .prop_map(|(first, second, last)| format!("\x1b[{first};{second}{}", char::from(last)).into_bytes()),
        1 => (30_u16..50, 0_u16..300).prop_map(|(a, b)| format!("\x1b[{a};5;{b};1;4;7m").into_bytes()),
        1 => (proptest::sample::select(vec![1_u16, 12, 1000, 1002, 1003, 1004, 1006, 2004, 2026]), any::<bool>())
            .prop_map(|(mode, on)| format!("\x1b[?{mode}{}", if on { 'h' } else { 'l' }).into_bytes()),
        1 => (proptest::sample::select(b"<=>".to_vec()), 0_u16..40, 0_u16..5)
            .prop_map(|(kind, a, b)| format!("\x1b[{}{a};{b}u", char::from(kind)).into_bytes()),
        1 => proptest::collection::vec(any::<u8>(), 1..8),
    ];
    proptest::collection::vec(piece, 0..80).prop_map(|pieces| Output(pieces.concat()))
}

fn size() -> impl Strategy<Value = (u16, u16)> {
    prop_oneof![
        40 => (1_u16..6, 1_u16..5),
        40 => (1_u16..30, 1_u16..12),
        1 => (1_u16..=1000, 1_u16..=500),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_output_and_no_size_makes_it_panic(
        first in size(), steps in proptest::collection::vec((output(), size()), 1..5), cut in any::<usize>(),
    ) {
        let mut screen = Screen::new(TerminalSize::new(first.0, first.1), 2000);
        for (bytes, size) in steps {
            let (left, right) = bytes.0.split_at(cut % (bytes.0.len() + 1));
            screen.feed(left);
            screen.feed(right);
            screen.resize(TerminalSize::new(size.0, size.1));
            let cursor = screen.cursor();
            prop_assert!(cursor.row < size.1 && cursor.col < size.0);
            prop_assert_eq!(screen.rows().len(), usize::from(size.1));
            for text in [screen.text(), screen.scrollback_text(50)] {
                prop_assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{:?}", text);
            }
        }
    }

    #[test]
    fn a_redraw_reproduces_the_screen(first in size(), output in output(), second in size()) {
        let mut screen = Screen::new(TerminalSize::new(first.0, first.1), 2000);
        screen.feed(&output.0);
        screen.resize(TerminalSize::new(second.0, second.1));
        // Ends a sequence that is not complete.
        screen.feed(b"\x18");
        let mut again = reproduced(&screen);
        let letters = |screen: &Screen| screen.scrollback_text(9999).replace([' ', '\n'], "");
        if first.0 <= screen.size().cols {
            prop_assert_eq!(letters(&again), letters(&screen));
        }
        // One column has no place for a wide character, so its grid has more.
        if second.0 == 1 {
            prop_assert_eq!(again.rows(), screen.rows());
            prop_assert_eq!(again.cursor(), screen.cursor());
            return Ok(());
        }
        let (again, screen) = (state(&mut again), state(&mut screen));
        prop_assert!(again == screen, "{}\n\n{}", again, screen);
    }

    #[test]
    fn a_viewer_behind_the_filter_sees_what_the_screen_has(size in size(), output in output()) {
        // The filter replaces a whole reset, which also resets the saved cursor.
        let output: Vec<&[u8]> = output.0.split(|byte| *byte == b'c').collect();
        let output = output.concat();
        let mut screen = Screen::new(TerminalSize::new(size.0, size.1), 2000);
        screen.feed(&output);
        let mut filter = Filter::new(FilterOptions::default());
        let mut viewer = Screen::new(screen.size(), 2000);
        viewer.feed(&filter.feed(&output));
        prop_assert_eq!(viewer.rows(), screen.rows());
        prop_assert_eq!(viewer.cursor(), screen.cursor());

        let redraw = screen.redraw(2000);
        viewer.feed(&filter.feed(b"\x18"));
        viewer.feed(&filter.feed(&redraw));
        prop_assert_eq!(viewer.rows(), screen.rows());
        prop_assert_eq!(viewer.cursor(), screen.cursor());
        prop_assert_eq!(viewer.is_alternate(), screen.is_alternate());
        viewer.feed(&filter.restore());
        prop_assert!(viewer.cursor().visible && !viewer.is_alternate());
        let mut fresh = Screen::new(screen.size(), 0);
        prop_assert_eq!(modes(&mut viewer), modes(&mut fresh));
    }

    #[test]
    fn the_split_of_the_output_does_not_matter(output in output(), cut in any::<usize>()) {
        let (mut whole, mut halves) = (fed(9, 4, ""), fed(9, 4, ""));
        let (left, right) = output.0.split_at(cut % (output.0.len() + 1));
        let answers = whole.feed(&output.0);
        let mut other = halves.feed(left);
        other.extend(halves.feed(right));
        prop_assert_eq!(answers, other);
        prop_assert_eq!(whole.rows(), halves.rows());
        prop_assert_eq!(whole.redraw(99), halves.redraw(99));
    }
}
