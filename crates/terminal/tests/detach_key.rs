//! The detach key under every protocol of keyboards, at any split of the input.

#![cfg(test)]

use proptest::prelude::*;
use quackd_terminal::{DetachAction, DetachKey, DetachKeyError, Typed};

/// Returns the bytes for the program, and true if the user detached. The time runs out after the last read.
fn typed(keys: &str, reads: &[&[u8]]) -> (String, bool) {
    let mut key = DetachKey::parse(keys).unwrap();
    let mut for_program = Vec::new();
    for read in reads {
        let Typed { for_program: bytes, action, .. } = key.feed(read);
        for_program.extend(bytes);
        if action == DetachAction::Detach {
            return (String::from_utf8(for_program).unwrap(), true);
        }
        assert_eq!(action == DetachAction::Maybe, key.pending());
    }
    let Typed { for_program: bytes, action, .. } = key.timeout();
    for_program.extend(bytes);
    // A paste ends one pause later than a sequence in it.
    drop(key.timeout());
    assert!(!key.pending());
    (String::from_utf8(for_program).unwrap(), action == DetachAction::Detach)
}

#[test]
fn texts_of_keys_are_parsed() {
    for good in ["ctrl-\\", "Ctrl-]", "ctrl-a d", "ctrl-p ctrl-q", "ctrl-@", "ctrl-a ~", "ctrl-a D"]
    {
        assert!(DetachKey::parse(good).is_ok(), "{good}");
    }
    for (bad, error) in [
        ("", DetachKeyError::Count),
        ("ctrl-a b c d e", DetachKeyError::Count),
        ("d", DetachKeyError::Plain),
        ("d ctrl-a", DetachKeyError::Plain),
        ("ctrl-", DetachKeyError::Unknown("ctrl-".to_owned())),
        ("ctrl-[", DetachKeyError::Unknown("ctrl-[".to_owned())),
        ("ctrl-ä", DetachKeyError::Unknown("ctrl-ä".to_owned())),
        ("alt-x", DetachKeyError::Unknown("alt-x".to_owned())),
        ("ctrl-a é", DetachKeyError::Unknown("é".to_owned())),
    ] {
        assert_eq!(DetachKey::parse(bad).unwrap_err(), error, "{bad}");
    }
    assert_eq!(DetachKeyError::Plain.to_string(), "the first key must be one with ctrl-");
}

/// Ctrl-\ as terminals send it: without a protocol; kitty with caps lock, num lock, both, kinds of events, other
/// codes of the key and text; modifyOtherKeys.
const PRESSES: [&str; 12] = [
    "\x1c",
    "\x1b[92;5u",
    "\x1b[92;69u",
    "\x1b[92;133u",
    "\x1b[92;197u",
    "\x1b[92;5:1u",
    "\x1b[92;5:2u",
    "\x1b[92:124;5u",
    "\x1b[45::92;5u",
    "\x1b[92;5;28u",
    "\x1b[27;5;92~",
    "\x1b[27;69;92~",
];

#[test]
fn one_key_detaches_and_two_send_it_at_any_split() {
    for press in PRESSES {
        let twice = format!("ab{press}{press}c");
        let bytes = format!("ab{press}");
        for split in 0..=bytes.len() {
            let (left, right) = bytes.as_bytes().split_at(split);
            assert_eq!(typed("ctrl-\\", &[left, right]), ("ab".to_owned(), true), "{press:?}");
            let rest = [right, b"x dropped"].concat();
            assert_eq!(typed("ctrl-\\", &[left, &rest]), ("ab".to_owned(), true), "{press:?}");
        }
        for split in 0..=twice.len() {
            let (left, right) = twice.as_bytes().split_at(split);
            assert_eq!(
                typed("ctrl-\\", &[left, right]),
                (format!("ab{press}c"), false),
                "{press:?}"
            );
        }
    }
}

#[test]
fn other_keys_reach_the_program_as_typed() {
    for other in [
        "\\",
        "|",
        "\x1b",
        "\x1bx",
        "\x1b\x1c",
        "\x1b[A",
        "\x1bOA",
        "\x1b[1;5A",
        "\x1b[92u",
        "\x1b[92;1u",
        "\x1b[92;3u",
        "\x1b[92;7u",
        "\x1b[92;6u",
        "\x1b[92;5:3u",
        "\x1b[93;5u",
        "\x1b[5u",
        "\x1b[27;5;93~",
        "\x1b[27;2;92~",
        "\x1b[3;5~",
        "\x1b[57442;5u",
        "\x1b[<0;92;5M",
        "\x1b[99999999999999999999;5u",
        "\x1b[;u",
        "\x1b[~",
        "\x1b[200~\x1c\x1b[92;5u\x1b[201~",
        "é漢👩",
        "\x1b[\x1b[",
        "\x1b\x1b",
        "\x1b[92;5",
    ] {
        for split in 0..=other.len() {
            let (left, right) = other.as_bytes().split_at(split);
            assert_eq!(
                typed("ctrl-\\", &[left, right]),
                (other.to_owned(), false),
                "{other:?} {split}"
            );
        }
    }
    let long = format!("\x1b[{}", "1;".repeat(500));
    assert_eq!(typed("ctrl-\\", &[long.as_bytes()]), (long.clone(), false));
    assert_eq!(
        typed("ctrl-\\", &[b"\x1b[200~\x1c\x1b[201~a\x1c"]),
        ("\x1b[200~\x1c\x1b[201~a".to_owned(), true)
    );
    assert_eq!(typed("ctrl-\\", &[b"\x1b\x1b[92;5u"]), ("\x1b".to_owned(), true));
}

#[test]
fn the_end_of_the_press_and_of_ctrl_do_not_count_as_other_keys() {
    let (press, ends) = ("\x1b[92;5u", "\x1b[92;5:3u\x1b[57442;1:3u\x1b[57442;5u");
    let twice = format!("{press}{ends}{press}");
    assert_eq!(typed("ctrl-\\", &[twice.as_bytes()]), (format!("{press}{ends}"), false));
    assert_eq!(typed("ctrl-\\", &[press.as_bytes(), ends.as_bytes()]), (String::new(), true));
}

#[test]
fn a_lone_escape_is_held_only_until_the_time_is_over() {
    let mut key = DetachKey::parse("ctrl-\\").unwrap();
    let held = key.feed(b"a\x1b");
    assert_eq!(
        held,
        Typed {
            for_program: b"a".to_vec(),
            action: DetachAction::Maybe,
            holds: true,
            is_paste: false
        }
    );
    let passed = key.timeout();
    assert_eq!(
        passed,
        Typed {
            for_program: b"\x1b".to_vec(),
            action: DetachAction::None,
            holds: false,
            is_paste: false
        }
    );
    let pressed = key.feed(b"\x1c");
    assert_eq!(
        pressed,
        Typed {
            for_program: Vec::new(),
            action: DetachAction::Maybe,
            holds: false,
            is_paste: false
        }
    );
}

#[test]
fn a_paste_without_an_end_ends_with_a_pause() {
    let mut key = DetachKey::parse("ctrl-\\").unwrap();
    let paste = key.feed(b"\x1b[200~\x1c");
    assert_eq!((paste.action, paste.holds, paste.is_paste), (DetachAction::Maybe, false, true));
    // The pause of a sequence does not end it.
    let sequence = key.feed(b"\x1b[");
    assert!(sequence.holds && sequence.is_paste);
    let passed = key.timeout();
    assert_eq!((passed.for_program.as_slice(), passed.is_paste), (b"\x1b[".as_slice(), true));
    assert_eq!(key.feed(b"\x1c").for_program, b"\x1c");

    assert!(!key.timeout().is_paste && !key.pending());
    assert_eq!(key.feed(b"\x1c").for_program, b"");
    assert_eq!(key.timeout().action, DetachAction::Detach);
}

#[test]
fn a_prefix_twice_sends_it_once_and_with_another_key_both() {
    for (prefix, d) in [
        ("\x01", "d"),
        ("\x1b[97;5u", "\x1b[100u"),
        ("\x1b[97;69u", "\x1b[100;65u"),
        ("\x1b[27;5;65~", "d"),
    ] {
        for (bytes, program, detaches) in [
            (format!("x{prefix}{d}y"), "x".to_owned(), true),
            (format!("{prefix}{prefix}{d}"), format!("{prefix}{d}"), false),
            (format!("{prefix}q{d}"), format!("{prefix}q{d}"), false),
            (format!("{prefix}\x1b[A{d}"), format!("{prefix}\x1b[A{d}"), false),
            (format!("{prefix}{prefix}{prefix}{d}"), prefix.to_owned(), true),
        ] {
            for split in 0..=bytes.len() {
                let (left, right) = bytes.as_bytes().split_at(split);
                assert_eq!(
                    typed("ctrl-a d", &[left, right]),
                    (program.clone(), detaches),
                    "{bytes:?} {split}"
                );
            }
        }
    }
    // The prefix waits for any time.
    let mut key = DetachKey::parse("ctrl-p ctrl-q").unwrap();
    assert_eq!(key.feed(b"\x10").action, DetachAction::None);
    assert_eq!(key.timeout().action, DetachAction::None);
    assert_eq!(key.feed(b"\x11").action, DetachAction::Detach);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_without_the_key(
        pieces in proptest::collection::vec("\u{1b}|\u{1b}\\[|[ -~]|\u{1b}\\[[0-9;:]{0,6}[a-z~]", 0..20),
        cuts in proptest::collection::vec(any::<usize>(), 0..4),
    ) {
        let bytes = pieces.concat().into_bytes();
        let mut key = DetachKey::parse("ctrl-g").unwrap();
        let (mut rest, mut seen) = (bytes.as_slice(), Vec::new());
        for cut in cuts {
            let (left, right) = rest.split_at(cut % (rest.len() + 1));
            let result = key.feed(left);
            prop_assume!(result.action != DetachAction::Detach);
            seen.extend(result.for_program);
            rest = right;
        }
        seen.extend(key.feed(rest).for_program);
        seen.extend(key.timeout().for_program);
        prop_assert_eq!(seen.escape_ascii().to_string(), bytes.escape_ascii().to_string());
    }
}
