//! Tests of the filter: bytes that pass and bytes that do not, at any split and with any end, and the bytes that undo
//! them.

#![cfg(test)]

use proptest::prelude::*;
use quackd_terminal::{ClipboardRule, Filter, FilterOptions};

fn options(clipboard: ClipboardRule) -> FilterOptions {
    FilterOptions { clipboard, title_prefix: "web: ".to_owned() }
}

fn filter() -> Filter {
    Filter::new(options(ClipboardRule::Off))
}

/// Passes `bytes` through a filter, split at every position and into single bytes.
fn passed(options: &FilterOptions, bytes: &[u8]) -> String {
    let whole = Filter::new(options.clone()).feed(bytes);
    for split in 0..bytes.len() {
        let mut filter = Filter::new(options.clone());
        let mut halves = filter.feed(&bytes[..split]);
        halves.extend(filter.feed(&bytes[split..]));
        assert_eq!(halves, whole, "split at {split}: {}", bytes.escape_ascii());
    }
    let mut filter = Filter::new(options.clone());
    let single: Vec<u8> = bytes.iter().flat_map(|byte| filter.feed(&[*byte])).collect();
    assert_eq!(single, whole);
    String::from_utf8(whole).unwrap()
}

fn checked(bytes: impl AsRef<[u8]>) -> String {
    passed(&options(ClipboardRule::Off), bytes.as_ref())
}

#[test]
fn what_draws_passes_in_its_canonical_form() {
    for same in [
        "text, Ünï, 漢字, 👩\u{200d}💻",
        "\x07\x08\t\n\x0b\x0c\r\x0e\x0f",
        "\x1b[1;31m",
        "\x1b[38;2;1;2;3m",
        "\x1b[4:3m",
        "\x1b[38:2::1:2:3m".replace("::", ":0:").as_str(),
        "\x1b[5A\x1b[5B\x1b[5C\x1b[5D\x1b[5E\x1b[5F\x1b[5G\x1b[5d",
        "\x1b[5;6H",
        "\x1b[0J\x1b[1J\x1b[2J\x1b[0K\x1b[1K\x1b[2K\x1b[5X",
        "\x1b[5S\x1b[5T\x1b[5L\x1b[5M\x1b[5@\x1b[5P\x1b[5I\x1b[5Z\x1b[5b",
        "\x1b[2;10r\x1b[r",
        "\x1b7\x1b8\x1bD\x1bE\x1bM",
        "\x1b[?1h\x1b[?7l\x1b[?12h\x1b[?25l\x1b[?47h\x1b[?47l\x1b[?1000h\x1b[?1002h\x1b[?1003h\x1b[?1004h",
        "\x1b[?1006h\x1b[?1047h\x1b[?1047l\x1b[?1048h\x1b[?1049h\x1b[?1049l\x1b[?2004h\x1b[?2026h",
        "\x1b[0 q\x1b[6 q",
        "\x1b=\x1b>",
        "\x1b(0\x1b(B\x1b)0\x1b)B",
        "\x1b[>5u\x1b[=1;1u",
        "\x1b]8;id=a-1;https://example.org/;x?a=b\x1b\\",
        "\x1b]133;A\x1b\\\x1b]133;B\x1b\\\x1b]133;C\x1b\\\x1b]133;D;1\x1b\\",
    ] {
        assert_eq!(checked(same), same);
    }
    for (given, shown) in [
        ("\x1b[0m\x1b[m", "\x1b[m\x1b[m"),
        ("\x1b[H", "\x1b[1;1H"),
        ("\x1b[3;f", "\x1b[3;1H"),
        ("\x1b[99999A", "\x1b[1000A"),
        ("\x1b[?1;9999;25h", "\x1b[?1h\x1b[?25h"),
        ("\x1b[?2J", "\x1b[2J"),
        ("\x1b[\n2\x07J", "\n\x07\x1b[2J"),
        ("\x1b[s\x1b[u", "\x1b7\x1b8"),
        ("\x1b[>1u\x1b[>3u\x1b[<u\x1b[<9u", "\x1b[>1u\x1b[=3;1u\x1b[=1;1u\x1b[=0;1u"),
        ("\x1b[=5u\x1b[=1;3u", "\x1b[>5u\x1b[=4;1u"),
        ("\x1b[<5u\x1b[=0u", ""),
        (
            "\x1b]0;one\x07\x1b]2;two;2\x1b\\",
            "\x1b[22;2t\x1b]2;web: one\x1b\\\x1b]2;web: two;2\x1b\\",
        ),
        ("\x1b]2;a\u{202e}\u{9c}\tb\x07", "\x1b[22;2t\x1b]2;web: ab\x1b\\"),
        (
            "\x1b]8;evil=1:id=x y;HTTP://a.b\x07c\x1b]8;;\x07",
            "\x1b]8;;HTTP://a.b\x1b\\c\x1b]8;;\x1b\\",
        ),
        ("\x1b]8;;http://a\x07b\x1b]8;;file:///etc\x07c", "\x1b]8;;http://a\x1b\\b\x1b]8;;\x1b\\c"),
        ("\x1b]133;C;cmdline=x\x07\x1b]133;D;x\x07", "\x1b]133;C\x1b\\\x1b]133;D\x1b\\"),
        ("\x1b[!p", "\x1b7\x1b[r\x1b8\x1b[m\x1b[?1l\x1b[?7h\x1b[?25h\x1b>\x1b(B\x1b)B\x0f"),
        ("\x1b[?1003h\x1b[31mx\x1bcy", "\x1b[?1003h\x1b[31mx\x1b[?1003l\x1b[m\x1b[1;1H\x1b[2Jy"),
    ] {
        assert_eq!(checked(given), shown, "{given:?}");
    }
}

/// Sequences and characters that never pass.
#[rustfmt::skip]
const DROPPED: &[&str] = &[
    // Queries and reports.
    "\x05", "\x1b[c", "\x1b[0c", "\x1b[>c", "\x1b[=c", "\x1bZ", "\x1b[5n", "\x1b[6n", "\x1b[?6n",
    "\x1b[?996n", "\x1b[x", "\x1b[?2004$p", "\x1b[4$p", "\x1b[>q", "\x1b[?u", "\x1b[?4m", "\x1b[1$w",
    "\x1b[1;2;3;4;5;6*y", "\x1b[?1;1S",
    // Windows, printer, keyboard, margins, rectangles, other modes, tabulators, lines above the screen.
    "\x1b[t", "\x1b[21t", "\x1b[8;10;10t", "\x1b[22;0t", "\x1b[23t", "\x1b[i", "\x1b[5i", "\x1b[?5i",
    "\x1b[>4;2m", "\x1b[3;40s", "\x1b[4h", "\x1b[20h", "\x1b[12l", "\x1b[?3h", "\x1b[?5h", "\x1b[?9h",
    "\x1b[?6h", "\x1b[?40h", "\x1b[?69h", "\x1b[?1005h", "\x1b[?1015h", "\x1b[?1016h", "\x1b[?2031h",
    "\x1b[?5522h", "\x1b[3J", "\x1b[22J", "\x1b[3g", "\x1bH", "\x1b[1;1;2;2$z", "\x1b[1'}", "\x1b[7 q",
    "\x1b[1\"p", "\x1b[1\"q", "\x1b[1;2;3;4;5T", "\x1b#8", "\x1b%G", "\x1b N", "\x1bn", "\x1bo", "\x1b~",
    "\x1bl", "\x1b6", "\x1b(A", "\x1b*0", "\x1b\\", "\x1b[?1049s", "\x1b[20;10r", "\x1b[1:2:3\x7f \x20!!p",
    "\x1b[<>1u", "\x1b[12345!!!p", "\x1b[?1007h",
    // C0 without an effect, DEL, C1, and invisible characters.
    "\0\x01\x02\x10\x11\x13\x17\x19\x1c\x1f", "\x7f", "\u{80}\u{84}\u{8d}\u{90}\u{9a}\u{9c}\u{9f}",
    "\u{202e}\u{2066}\u{200b}\u{feff}\u{e0041}\u{ad}\u{200d}",
];

#[test]
fn everything_else_is_dropped() {
    for dropped in DROPPED {
        assert_eq!(checked(dropped), "", "{dropped:?}");
    }
    assert_eq!(checked(b"a\x9b31mb\x9d0;t\x9c\x90q\x85"), "a31mb0;tq");
    assert_eq!(checked("a\u{9b}31m"), "a31m");
    assert_eq!(checked(b"a\xff\xc3(\xe2\x82b\xf0\x9f"), "a\u{fffd}\u{fffd}(\u{fffd}b");
    // More parameters than are read.
    assert_eq!(checked(format!("a\x1b[{}1mb", "1;".repeat(40))), "ab");
    assert_eq!(checked(format!("a\x1b[{}mb", "1:".repeat(40))), "ab");
}

/// Strings that never pass, without their ESC.
#[rustfmt::skip]
const STRINGS: &[&str] = &[
    "]1;icon", "]3;x=y", "]4;1;?", "]4;1;#fff", "]5;0;?", "]6;x", "]7;file://h/etc", "]9;hello", "]9;4;1;50",
    "]10;?", "]11;#fff", "]12;?", "]13;?", "]17;?", "]19;?", "]22;pointer", "]50;font", "]51;A", "]52;c;aGk=",
    "]52;c;?", "]52;;", "]60", "]99;;hello", "]104", "]110", "]112", "]133;X", "]133", "]555", "]633;A",
    "]697;x", "]701;C", "]720;1", "]777;notify;a;b", "]1337;File=:AAAA", "]1337;SetMark", "]8",
    "]8;;javascript:alert(1)", "]8;;file:///etc/passwd", "]8;;HTTPS:", "]8;;http://a b", "]8;;http://ä",
    "]8;;ssh://h", "]", "];", "]x", "]0", "]2\x01", "P1$r0m", "P+q544e", "Pq#0;2;0;0;0#0~~", "P1000p", "P$qm",
    "P=1s", "P>|x", "_Ga=T;AAAA", "_x", "^x", "Xx", "X\x07", "k",
];

#[test]
fn strings_that_are_not_in_the_list_are_dropped_with_any_end() {
    for begin in STRINGS {
        for end in
            ["\x07", "\x1b\\", "\x18", "\x1a", "\x1b[0;0m", "\u{9c}\x1b\\", "\x1b]52;c;aGk=\x07"]
        {
            let bytes = format!("a\x1b{begin}{end}\x1b\\b");
            let shown = checked(&bytes).replace("\x1b[0;0m", "").replace("\x07", "");
            assert!(
                ["ab", "a\x1b\\b", "aGkb"].contains(&shown.as_str()) || !shown.contains('\x1b'),
                "{bytes:?}: {shown:?}"
            );
            assert!(!shown.contains("52;") && !shown.contains("Ga"), "{bytes:?}: {shown:?}");
        }
    }
    // CAN, SUB and another sequence cancel a string that would pass.
    for end in ["\x18", "\x1a", "\x1b7"] {
        for begin in ["]0;t", "]8;;http://a", "]133;A"] {
            assert_eq!(checked(format!("a\x1b{begin}{end}b")).replace("\x1b7", ""), "ab");
        }
    }
}

#[test]
fn long_strings_are_dropped() {
    for (name, most) in [("2;", 8180), ("8;;http://", 2041), ("133;A;", 8000)] {
        for (size, passes) in [(most, true), (8192, false), (200_000, false)] {
            let mut filter = filter();
            let out = filter.feed(format!("\x1b]{name}{}\x07b", "x".repeat(size)).as_bytes());
            assert_eq!(1 < out.len(), passes, "{name} {size}");
            assert_eq!(out.last(), Some(&b'b'));
            assert!(out.len() < 4096);
        }
    }
    assert_eq!(checked(format!("\x1b]2;{}\x07b", ";".repeat(20))), "b");
}

#[test]
fn a_text_for_the_clipboard_passes_only_if_the_user_allows_it() {
    let write = options(ClipboardRule::Write);
    for (given, shown) in [
        ("\x1b]52;c;aGkKCWhv\x07", "\x1b]52;c;aGkKCWhv\x1b\\"),
        ("\x1b]52;;aGk=\x1b\\", "\x1b]52;c;aGk=\x1b\\"),
        ("\x1b]52;p;aGk=\x1b\\", "\x1b]52;p;aGk=\x1b\\"),
        // Query; no base64; escape, carriage return and C1 in the text; no UTF-8; unknown targets; cancelled.
        ("\x1b]52;c;?\x07", ""),
        ("\x1b]52;c;aGk\x07", ""),
        ("\x1b]52;c;GwA=\x07", ""),
        ("\x1b]52;c;DQ==\x07", ""),
        ("\x1b]52;c;wpw=\x07", ""),
        ("\x1b]52;c;/w==\x07", ""),
        ("\x1b]52;x\x01;aGk=;\x07", ""),
        ("\x1b]52;c;aGk=\x18", ""),
    ] {
        assert_eq!(passed(&write, given.as_bytes()), shown, "{given:?}");
        assert_eq!(checked(given), "");
    }
    for (size, passes) in [(64 * 1024, true), (64 * 1024 + 3, false), (1_000_000, false)] {
        let mut filter = Filter::new(write.clone());
        let text = "YWFh".repeat(size / 3);
        let text = if size % 3 == 1 { format!("{text}YQ==") } else { text };
        let out = filter.feed(format!("\x1b]52;c;{text}\x07").as_bytes());
        assert_eq!(!out.is_empty(), passes, "{size}");
    }
}

#[test]
fn restore_undoes_what_is_changed_and_nothing_else() {
    for (bytes, undone) in [
        ("text\r\n\x1b[2J\x1b[5;5H\x07", ""),
        ("\x1b[?1049h\x1b[?1003;1006h\x1b[>5u", "\x1b[<1u\x1b[?1049l\x1b[?1003l\x1b[?1006l"),
        ("\x1b[>1u\x1b[?1049h\x1b[>5u\x1b[=7u", "\x1b[<1u\x1b[?1049l\x1b[<1u"),
        ("\x1b[?1049h\x1b[>5u\x1b[?1049l", ""),
        ("\x1b[?47h", "\x1b[?47l"),
        ("\x1b[?1049h\x1b[2;5r", "\x1b7\x1b[r\x1b8\x1b[?1049l\x1b7\x1b[r\x1b8"),
        ("\x1b[2;5r\x1b[r", ""),
        (
            "\x1b[?1;25;1004;2004;2026h\x1b[?7;25l",
            "\x1b[?1l\x1b[?7h\x1b[?25h\x1b[?1004l\x1b[?2004l\x1b[?2026l",
        ),
        ("\x1b[31m", "\x1b[m"),
        ("\x1b[31m\x1b7\x1b[m\x1b8", "\x1b[m"),
        ("\x1b=\x1b[4 q\x1b(0", "\x1b[0 q\x1b>\x1b(B\x1b)B\x0f"),
        ("\x1b=\x1b>\x1b[4 q\x1b[0 q", ""),
        ("\x1b(0\x1b7\x1b(B\x1b8", "\x1b(B\x1b)B\x0f"),
        ("\x1b]0;x\x07\x1b]2;y\x07", "\x1b[23;2t"),
        ("\x1b]8;;http://a\x07", "\x1b]8;;\x1b\\"),
        ("\x1b]8;;http://a\x07b\x1b]8;;\x07", ""),
        ("\x1b[?1003h\x1b[>1u\x1bc", ""),
        ("\x1b[?1003h\x1b[?25l\x1b[!p", "\x1b[?1003l"),
        // Some terminals keep each kind of mouse tracking until it is switched off by its own number.
        ("\x1b[?1000;1002;1003h", "\x1b[?1003l\x1b[?1002l\x1b[?1000l"),
        ("\x1b[?1003h\x1b[?1000h\x1b[?1000l", "\x1b[?1003l"),
        ("\x1b[?1002h\x1b[?1003h\x1b[?1003l\x1b[?1002l", ""),
    ] {
        let mut filter = filter();
        filter.feed(bytes.as_bytes());
        assert_eq!(String::from_utf8(filter.restore()).unwrap(), undone, "{bytes:?}");
        // The undoing bytes leave nothing to undo, except state that the terminal has saved.
        filter.feed(undone.as_bytes());
        let mut rest = String::from_utf8(filter.restore()).unwrap();
        for saved in ["\x1b[<1u", "\x1b[23;2t", "\x1b[m", "\x1b(B\x1b)B\x0f"] {
            rest = rest.replace(saved, "");
        }
        assert_eq!(rest, "", "{bytes:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_give_valid_text_that_a_second_filter_does_not_change(
        pieces in proptest::collection::vec(prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..12),
            "\u{1b}[\\[\\]PX^_()#][<=>?]?[0-9;:]{0,6}[ !$]?[a-zA-Z@`~]".prop_map(String::into_bytes),
            "\u{1b}\\](0|2|8;|52;c|133);[ -~]{0,9}(\u{7}|\u{1b}\\\\|\u{18})".prop_map(String::into_bytes),
        ], 0..30),
        cut in any::<usize>(),
    ) {
        let bytes = pieces.concat();
        let options = FilterOptions::default();
        let whole = Filter::new(options.clone()).feed(&bytes);
        let (left, right) = bytes.split_at(cut % (bytes.len() + 1));
        let mut filter = Filter::new(options.clone());
        let mut halves = filter.feed(left);
        halves.extend(filter.feed(right));
        prop_assert_eq!(halves.escape_ascii().to_string(), whole.escape_ascii().to_string());

        let text = String::from_utf8(whole).unwrap();
        let is_bad = |c: char| c == '\x05' || (0x7f..0xa0).contains(&u32::from(c));
        prop_assert!(!text.contains(is_bad));
        // The filter's own stack of titles, which no program may use.
        let text = text.replace("\x1b[22;2t", "");
        let again = String::from_utf8(Filter::new(options).feed(text.as_bytes())).unwrap();
        prop_assert_eq!(again.replace("\x1b[22;2t", ""), text);
    }
}
