//! Parses what a terminal sends: keys, pastes, and answers to questions of programs. Used by [`super`].
//!
//! An answer is no key: device attributes, modes, positions, colors, names and states may arrive at any time, because an
//! earlier program asked, or a terminal was attached. They have the form of ECMA-48 sequences and are skipped as a
//! whole, also if they arrive in pieces. crossterm, whose events are used, types parts of them.

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::time::Duration;

/// Time after which Esc alone is a key. The rest of a sequence follows at once.
const ESC_DELAY: Duration = Duration::from_millis(25);

/// Time after which an unfinished sequence is given up.
const SEQUENCE_LIMIT: Duration = Duration::from_millis(500);

/// Maximum length of a control sequence, in bytes. The rest of a longer one is skipped.
const MAX_SEQUENCE: usize = 256;

/// Maximum size of a paste, in bytes. No prompt is as long; the rest is dropped.
const MAX_PASTE: usize = 2 * 1024 * 1024;

const ESC: u8 = 0x1b;

/// End of a marked paste.
const PASTE_END: &[u8] = b"\x1b[201~";

/// State between the bytes of a terminal.
#[derive(Debug, Default)]
pub(super) struct InputParser {
    state: State,
    /// Bytes of an unfinished key or sequence.
    pending: Vec<u8>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Keys,
    /// Within a marked paste.
    Paste(Vec<u8>),
    /// Within the string of an answer.
    Answer,
}

/// The first item of some bytes, with its length.
#[derive(Debug, PartialEq)]
enum Item {
    Key(KeyEvent, usize),
    /// Nothing for the user.
    Skipped(usize),
    PasteBegin(usize),
    AnswerBegin(usize),
    /// More bytes are needed.
    Unfinished,
}

impl InputParser {
    /// Parses the next bytes.
    pub(super) fn feed(&mut self, bytes: &[u8], events: &mut Vec<Event>) {
        self.pending.extend_from_slice(bytes);
        let pending = std::mem::take(&mut self.pending);

        let mut rest = &*pending;
        while !rest.is_empty() {
            let used = match &mut self.state {
                State::Keys => match item(rest) {
                    Item::Key(key, used) => {
                        events.push(Event::Key(key));
                        used
                    }
                    Item::Skipped(used) => used,
                    Item::PasteBegin(used) => {
                        self.state = State::Paste(Vec::new());
                        used
                    }
                    Item::AnswerBegin(used) => {
                        self.state = State::Answer;
                        used
                    }
                    Item::Unfinished => break,
                },
                State::Paste(text) => {
                    let (used, has_ended) = end_of_paste(rest);
                    let room = MAX_PASTE.saturating_sub(text.len()).min(used);
                    text.extend_from_slice(rest.get(..room).unwrap_or_default());
                    if !has_ended {
                        rest = rest.get(used..).unwrap_or_default();
                        break;
                    }
                    events.push(Event::Paste(String::from_utf8_lossy(text).into_owned()));
                    self.state = State::Keys;
                    used + PASTE_END.len()
                }
                State::Answer => {
                    let (used, has_ended) = end_of_answer(rest);
                    if !has_ended {
                        rest = rest.get(used..).unwrap_or_default();
                        break;
                    }
                    self.state = State::Keys;
                    used
                }
            };

            rest = rest.get(used..).unwrap_or_default();
        }

        self.pending = rest.to_vec();
    }

    /// Returns how long to wait for the rest of an unfinished sequence, before [`InputParser::give_up`].
    pub(super) fn waits(&self) -> Option<Duration> {
        match self.state {
            State::Paste(_) => None,
            State::Keys if self.pending.is_empty() => None,
            State::Keys if self.pending == [ESC] => Some(ESC_DELAY),
            State::Keys | State::Answer => Some(SEQUENCE_LIMIT),
        }
    }

    /// Ends an unfinished sequence: the user has pressed Esc, or Alt with the first character of one, or else the rest of
    /// an answer is lost.
    pub(super) fn give_up(&mut self, events: &mut Vec<Event>) {
        let pending = std::mem::take(&mut self.pending);
        match (&self.state, &*pending) {
            (State::Keys, [ESC]) => events.push(Event::Key(KeyCode::Esc.into())),
            (State::Keys, [ESC, second]) => events.push(Event::Key(with_alt(ascii(*second)))),
            _ => {}
        }
        self.state = State::Keys;
    }
}

/// Returns the first item of the bytes, with its length.
fn item(bytes: &[u8]) -> Item {
    match bytes {
        [ESC] => Item::Unfinished,
        [ESC, b'[', ..] => control_sequence(bytes),
        [ESC, b'O', ..] => function_key(bytes),
        [ESC, ESC, b'[' | b'O', ..] => match item(bytes.get(1..).unwrap_or_default()) {
            // Alt with a key, as some terminals send it.
            Item::Key(key, used) => Item::Key(with_alt(key), used + 1),
            Item::Unfinished => Item::Unfinished,
            _ => Item::Key(KeyCode::Esc.into(), 1),
        },
        [ESC, ESC] => Item::Unfinished,
        [ESC, ESC, ..] => Item::Key(KeyCode::Esc.into(), 1),
        // An answer begins with one of these. Otherwise the user has pressed Alt with a character.
        [ESC, b']' | b'P' | b'_'] => Item::Unfinished,
        [ESC, b']', b'0'..=b'9' | b'l' | b'L' | b'I', ..]
        | [ESC, b'P', b'0'..=b'9' | b'>' | b'!' | b'$' | b'+' | b'?', ..]
        | [ESC, b'_', b'G', ..] => Item::AnswerBegin(2),
        [ESC, rest @ ..] => match character(rest) {
            Item::Key(key, used) => Item::Key(with_alt(key), used + 1),
            Item::Skipped(used) => Item::Skipped(used + 1),
            other => other,
        },
        // Introducers of 8 bits, encoded as UTF-8.
        [0xc2, 0x9b, ..] => control_sequence(bytes),
        [0xc2, 0x9d | 0x90 | 0x9f, ..] => Item::AnswerBegin(2),
        _ => character(bytes),
    }
}

/// Parses a control sequence: after its introducer of two bytes, parameters, intermediate bytes and a final one.
fn control_sequence(bytes: &[u8]) -> Item {
    let body = bytes.get(2..).unwrap_or_default();
    // Function keys of the Linux console, and the mouse of X10.
    match body {
        [b'['] => return Item::Unfinished,
        [b'[', c @ b'A'..=b'E', ..] => return Item::Key(KeyCode::F(c - b'A' + 1).into(), 4),
        [b'M', _, _, _, ..] => return Item::Skipped(6),
        [b'M', ..] => return Item::Unfinished,
        _ => {}
    }

    let len = body.iter().take_while(|byte| matches!(byte, 0x20..=0x3f)).count();
    let parts = body.get(..len).unwrap_or_default();

    match body.get(len) {
        _ if MAX_SEQUENCE < len => Item::AnswerBegin(2 + len),
        None => Item::Unfinished,
        Some(b'~') if parts == b"200" => Item::PasteBegin(3 + len),
        Some(last @ 0x40..=0x7e) => match key_of_sequence(parts, *last) {
            Some(key) => Item::Key(key, 3 + len),
            None => Item::Skipped(3 + len),
        },
        // Alt with a bracket, then another key.
        Some(_) if parts.is_empty() => Item::Key(with_alt(ascii(b'[')), 2),
        Some(_) => Item::Skipped(2 + len),
    }
}

/// Returns the key that a control sequence stands for. `None`: it is an answer, or unknown.
fn key_of_sequence(parts: &[u8], last: u8) -> Option<KeyEvent> {
    // Private parameters and intermediate bytes are only in answers.
    let text = std::str::from_utf8(parts).ok()?;
    if !text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b';' | b':')) {
        return None;
    }

    let mut numbers = text.split(';').map(|part| {
        let mut numbers = part.split(':').map(|digits| digits.parse::<u32>().ok());
        [(); 3].map(|()| numbers.next().flatten())
    });

    // A key's code, that with Shift, and that of the key's place on a Latin keyboard.
    let [first, _, latin] = numbers.next()?;
    let [mask, kind, _] = numbers.next().unwrap_or_default();
    let [third, ..] = numbers.next().unwrap_or_default();

    let mut modifiers = modifiers(mask);
    let code = match last {
        // The position of the cursor. Without parameters it is F3.
        b'R' if !parts.is_empty() => return None,
        b'Z' => {
            modifiers |= KeyModifiers::SHIFT;
            KeyCode::BackTab
        }
        b'~' if first == Some(27) => code_of(third?, modifiers)?,
        b'~' => numbered_key(first?)?,
        b'u' => {
            let is_command = modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT);
            code_of(latin.filter(|_| is_command).or(first)?, modifiers)?
        }
        letter => lettered_key(letter)?,
    };

    let kind = match kind {
        Some(2) => KeyEventKind::Repeat,
        Some(3) => KeyEventKind::Release,
        _ => KeyEventKind::Press,
    };

    Some(KeyEvent::new_with_kind(code, modifiers, kind))
}

/// Returns the key of the letter at the end of a sequence, as VT100 has it.
fn lettered_key(letter: u8) -> Option<KeyCode> {
    Some(match letter {
        b'A' => KeyCode::Up,
        b'B' => KeyCode::Down,
        b'C' => KeyCode::Right,
        b'D' => KeyCode::Left,
        b'F' => KeyCode::End,
        b'H' => KeyCode::Home,
        b'P'..=b'S' => KeyCode::F(letter - b'P' + 1),
        _ => return None,
    })
}

/// Returns the key of a number before a tilde, as VT220 and rxvt have it.
fn numbered_key(number: u32) -> Option<KeyCode> {
    let function = |before: u32| u8::try_from(number - before).ok().map(KeyCode::F);
    match number {
        1 | 7 => Some(KeyCode::Home),
        2 => Some(KeyCode::Insert),
        3 => Some(KeyCode::Delete),
        4 | 8 => Some(KeyCode::End),
        5 => Some(KeyCode::PageUp),
        6 => Some(KeyCode::PageDown),
        11..=15 => function(10),
        17..=21 => function(11),
        23..=26 => function(12),
        28..=29 => function(13),
        31..=34 => function(14),
        _ => None,
    }
}

/// Returns the key of a character's number, for terminals that send keys as numbers.
fn code_of(number: u32, modifiers: KeyModifiers) -> Option<KeyCode> {
    Some(match char::from_u32(number)? {
        '\u{1b}' => KeyCode::Esc,
        '\r' | '\n' => KeyCode::Enter,
        '\t' if modifiers.contains(KeyModifiers::SHIFT) => KeyCode::BackTab,
        '\t' => KeyCode::Tab,
        '\u{7f}' => KeyCode::Backspace,
        // Keys without a character.
        '\u{e000}'..='\u{f8ff}' => return None,
        c => KeyCode::Char(c),
    })
}

/// Returns the modifiers of a parameter: 1 plus a bit for each.
fn modifiers(parameter: Option<u32>) -> KeyModifiers {
    let bits = parameter.unwrap_or_default().saturating_sub(1);
    let known = [
        (1, KeyModifiers::SHIFT),
        (2, KeyModifiers::ALT),
        (4, KeyModifiers::CONTROL),
        (8, KeyModifiers::SUPER),
        (16, KeyModifiers::HYPER),
        (32, KeyModifiers::META),
    ];

    let set = known.into_iter().filter(|(bit, _)| bits & bit != 0).map(|(_, modifier)| modifier);
    set.fold(KeyModifiers::NONE, |all, modifier| all | modifier)
}

/// Parses a key that a terminal sends with `ESC O`, in the mode of applications.
fn function_key(bytes: &[u8]) -> Item {
    let code = match bytes.get(2) {
        None => return Item::Unfinished,
        Some(b'M') => Some(KeyCode::Enter),
        Some(letter) => lettered_key(*letter),
    };

    match code {
        Some(code) => Item::Key(code.into(), 3),
        // Alt with the letter O, then another key.
        None => Item::Key(with_alt(ascii(b'O')), 2),
    }
}

/// Parses a character without an escape. Bytes that are not UTF-8 are skipped.
fn character(bytes: &[u8]) -> Item {
    let Some(first) = bytes.first() else { return Item::Unfinished };
    if first.is_ascii() {
        return Item::Key(ascii(*first), 1);
    }

    let text = bytes.get(..bytes.len().min(4)).unwrap_or_default();
    let valid = match std::str::from_utf8(text) {
        Ok(text) => text,
        Err(error) => match (error.valid_up_to(), error.error_len()) {
            (0, None) => return Item::Unfinished,
            (0, Some(len)) => return Item::Skipped(len),
            (len, _) => {
                text.get(..len).and_then(|prefix| std::str::from_utf8(prefix).ok()).unwrap_or("")
            }
        },
    };

    match valid.chars().next() {
        Some(c) => Item::Key(key_of(c), c.len_utf8()),
        None => Item::Skipped(1),
    }
}

fn key_of(c: char) -> KeyEvent {
    let modifiers = if c.is_uppercase() { KeyModifiers::SHIFT } else { KeyModifiers::NONE };
    KeyEvent::new(KeyCode::Char(c), modifiers)
}

/// Returns the key of an ASCII character, which may be a control character.
fn ascii(byte: u8) -> KeyEvent {
    let control = |c: u8| KeyEvent::new(KeyCode::Char(char::from(c)), KeyModifiers::CONTROL);
    match byte {
        // The terminal turns Return into a line feed.
        b'\r' | b'\n' => KeyCode::Enter.into(),
        b'\t' => KeyCode::Tab.into(),
        0x7f => KeyCode::Backspace.into(),
        ESC => KeyCode::Esc.into(),
        0 => control(b' '),
        0x01..=0x1a => control(byte - 1 + b'a'),
        0x1c..=0x1f => control(byte - 0x1c + b'4'),
        _ => key_of(char::from(byte)),
    }
}

fn with_alt(key: KeyEvent) -> KeyEvent {
    KeyEvent { modifiers: key.modifiers | KeyModifiers::ALT, ..key }
}

/// Returns how many bytes belong to a paste, and whether its end follows. The beginning of an end is left.
fn end_of_paste(bytes: &[u8]) -> (usize, bool) {
    if let Some(at) = bytes.windows(PASTE_END.len()).position(|window| window == PASTE_END) {
        return (at, true);
    }

    let is_beginning =
        |len: &usize| PASTE_END.get(..*len).is_some_and(|beginning| bytes.ends_with(beginning));
    let cut = (1..PASTE_END.len()).rev().find(is_beginning);
    (bytes.len() - cut.unwrap_or_default(), false)
}

/// Returns how many bytes belong to the string of an answer, and whether it has ended: at its terminator, or before a
/// control character, which no answer has.
fn end_of_answer(bytes: &[u8]) -> (usize, bool) {
    for (at, byte) in bytes.iter().enumerate() {
        match (byte, bytes.get(at + 1)) {
            (0x07, _) => return (at + 1, true),
            (&ESC, Some(b'\\')) | (0xc2, Some(0x9c)) => return (at + 2, true),
            (&ESC | 0xc2, None) => return (at, false),
            (0x00..=0x1f, _) => return (at, true),
            _ => {}
        }
    }
    (bytes.len(), false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses pieces, with a pause at the end.
    fn parsed(pieces: &[&[u8]]) -> Vec<Event> {
        let (mut parser, mut events) = (InputParser::default(), Vec::new());
        pieces.iter().for_each(|piece| parser.feed(piece, &mut events));
        if parser.waits().is_some() {
            parser.give_up(&mut events);
        }
        assert_eq!(parser.waits(), None);
        events
    }

    fn key(code: KeyCode, modifiers: KeyModifiers) -> Event {
        Event::Key(KeyEvent::new(code, modifiers))
    }

    fn letters(text: &str) -> Vec<Event> {
        text.chars().map(|c| Event::Key(key_of(c))).collect()
    }

    /// Answers of terminals, by the question.
    const ANSWERS: &[&str] = &[
        "\x1b[?62;22c", // Primary device attributes.
        "\x1b[?1;2c",
        "\x1b[>0;276;0c", // Secondary ones.
        "\x1b[=0;1c",
        "\x1bP!|00000000\x1b\\", // Tertiary ones.
        "\x1b[0n",               // State of the terminal.
        "\x1b[?13n",
        "\x1b[?997;1n", // Dark or light.
        "\x1b[24;80R",  // Position of the cursor.
        "\x1b[0;0R",
        "\x1b[?24;80;1R",
        "\x1b[?2004;1$y", // Modes: pastes, synchronized output.
        "\x1b[?2026;2$y",
        "\x1b[4;2$y",
        "\x1b[?0u", // Keyboard.
        "\x1b[?31u",
        "\x1b[>4;2m",
        "\x1b[8;24;80t", // Size.
        "\x1b[4;600;800t",
        "\x1b[48;24;80;600;800t",
        "\x1b[2;1;1;112;112;1;0x",        // Parameters.
        "\x1b[?2;0;1200;800S",            // Graphics.
        "\x1b]11;rgb:1e1e/1e1e/2e2e\x07", // Colors.
        "\x1b]10;rgb:ffff/ffff/ffff\x1b\\",
        "\x1b]4;1;rgb:cdcd/0000/0000\x1b\\",
        "\x1b]52;c;ZWNobyBoaQ==\x07",         // Clipboard.
        "\x1b]l title of the window é\x1b\\", // Title.
        "\x1bP>|XTerm(388)\x1b\\",            // Name.
        "\x1bP1$r0;1m\x1b\\",                 // Settings.
        "\x1bP1+r544e=787465726d\x1b\\",      // Capabilities.
        "\x1b_Gi=31;OK\x1b\\",                // Images.
        "\x1b[<0;10;20M",                     // Mouse.
        "\x1b[M !!",
        "\x1b[I", // Focus.
        "\x1b[O",
        "\u{9b}?1;2c", // In 8 bits.
        "\u{9d}11;rgb:0/0/0\u{9c}",
    ];

    #[test]
    fn an_answer_of_the_terminal_is_no_key_wherever_it_is_cut() {
        for answer in ANSWERS {
            let text = format!("ab{answer}cd");
            let bytes = text.as_bytes();
            for cut in 0..=bytes.len() {
                let (one, other) = bytes.split_at(cut);
                assert_eq!(parsed(&[one, other]), letters("abcd"), "{answer:?} {cut}");
            }
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            assert_eq!(parsed(&single), letters("abcd"), "{answer:?}");
        }
        let all = ANSWERS.concat();
        assert_eq!(parsed(&[all.as_bytes()]), []);
        // The rest of an answer that never comes does not swallow what the user types later.
        for answer in ANSWERS {
            let answer = answer.as_bytes();
            for cut in 4..answer.len() {
                let (mut parser, mut events) = (InputParser::default(), Vec::new());
                parser.feed(&answer[..cut], &mut events);
                parser.give_up(&mut events);
                parser.feed(b"x", &mut events);
                assert_eq!(events, letters("x"), "{answer:?} {cut}");
            }
        }
        // A key ends one.
        let ctrl_c = key(KeyCode::Char('c'), KeyModifiers::CONTROL);
        for beginning in ["\x1b]11;rgb:", "\x1b[?1"] {
            assert_eq!(parsed(&[beginning.as_bytes(), b"\x03"]), std::slice::from_ref(&ctrl_c));
        }
        // However long one is, it is not kept.
        let (mut parser, mut events) = (InputParser::default(), Vec::new());
        parser.feed(b"\x1b]52;c;", &mut events);
        for _ in 0..1000 {
            parser.feed(&[b'A'; 1000], &mut events);
            assert!(parser.pending.is_empty());
        }
        parser.feed(b"\x07x", &mut events);
        assert_eq!(events, letters("x"));
        let long = [b"\x1b[".as_slice(), &[b'1'; 9999]].concat();
        parser.feed(&long, &mut events);
        assert!(parser.pending.len() <= MAX_SEQUENCE + 2);
    }

    #[test]
    fn keys_are_those_of_usual_terminals() {
        let none = KeyModifiers::NONE;
        let cases: &[(&str, KeyCode, KeyModifiers)] = &[
            ("\x1b[A", KeyCode::Up, none),
            ("\x1bOB", KeyCode::Down, none),
            ("\x1b[1;5C", KeyCode::Right, KeyModifiers::CONTROL),
            ("\x1b[1;3D", KeyCode::Left, KeyModifiers::ALT),
            ("\x1b\x1b[D", KeyCode::Left, KeyModifiers::ALT),
            ("\x1b[3~", KeyCode::Delete, none),
            ("\x1b[3;5~", KeyCode::Delete, KeyModifiers::CONTROL),
            ("\x1b[15~", KeyCode::F(5), none),
            ("\x1b[24~", KeyCode::F(12), none),
            ("\x1bOP", KeyCode::F(1), none),
            ("\x1b[[E", KeyCode::F(5), none),
            ("\x1b[Z", KeyCode::BackTab, KeyModifiers::SHIFT),
            ("\x1b[27;5;13~", KeyCode::Enter, KeyModifiers::CONTROL),
            ("\x1b[13;2u", KeyCode::Enter, KeyModifiers::SHIFT),
            ("\x1b[27u", KeyCode::Esc, none),
            ("\x1b[99;5u", KeyCode::Char('c'), KeyModifiers::CONTROL),
            ("\x1b[99:67;69u", KeyCode::Char('c'), KeyModifiers::CONTROL), // Caps lock is on.
            ("\x1b[1089::99;5u", KeyCode::Char('c'), KeyModifiers::CONTROL), // A Cyrillic layout.
            ("\x1b[1089::99;1u", KeyCode::Char('с'), none),
            ("\x1b\r", KeyCode::Enter, KeyModifiers::ALT),
            ("\x1b\x7f", KeyCode::Backspace, KeyModifiers::ALT),
            ("\x1bb", KeyCode::Char('b'), KeyModifiers::ALT),
            ("\x1b[", KeyCode::Char('['), KeyModifiers::ALT),
            ("\x1b]", KeyCode::Char(']'), KeyModifiers::ALT),
            ("\x1b", KeyCode::Esc, none),
            ("\x01", KeyCode::Char('a'), KeyModifiers::CONTROL),
            ("\0", KeyCode::Char(' '), KeyModifiers::CONTROL),
            ("\x1f", KeyCode::Char('7'), KeyModifiers::CONTROL),
            ("A", KeyCode::Char('A'), KeyModifiers::SHIFT),
            ("é", KeyCode::Char('é'), none),
            ("🦆", KeyCode::Char('🦆'), none),
        ];
        for (bytes, code, modifiers) in cases {
            let expected = [key(*code, *modifiers)];
            assert_eq!(parsed(&[bytes.as_bytes()]), expected, "{bytes:?}");
            let single: Vec<&[u8]> = bytes.as_bytes().chunks(1).collect();
            assert_eq!(parsed(&single), expected, "{bytes:?}");
        }
        // Keys that begin as an answer does, and what follows.
        let alt = |c: char| key(KeyCode::Char(c), KeyModifiers::ALT | key_of(c).modifiers);
        for (bytes, first) in [("\x1b]x", ']'), ("\x1bPx", 'P'), ("\x1b_x", '_'), ("\x1bOx", 'O')] {
            let expected = [vec![alt(first)], letters("x")].concat();
            assert_eq!(parsed(&[bytes.as_bytes()]), expected, "{bytes:?}");
        }
        assert_eq!(parsed(&[b"a\xffb\xf0\x9f\xa6"]), letters("ab"));
    }

    #[test]
    fn a_paste_is_one_event_wherever_it_is_cut() {
        let bytes = "x\x1b[200~one\x1b[31m\x1b[20\r\x1b[?1;2c é\x1b[201~y".as_bytes();
        let paste = Event::Paste("one\x1b[31m\x1b[20\r\x1b[?1;2c é".to_owned());
        let expected = [letters("x"), vec![paste], letters("y")].concat();
        for cut in 0..=bytes.len() {
            let (one, other) = bytes.split_at(cut);
            assert_eq!(parsed(&[one, other]), expected, "{cut}");
        }
        let large = [b"\x1b[200~".as_slice(), &vec![b'x'; 3 * MAX_PASTE], PASTE_END].concat();
        let [Event::Paste(text)] = &*parsed(&[&large]) else { panic!("one paste") };
        assert_eq!(text.len(), MAX_PASTE);
    }

    #[test]
    fn random_bytes_lose_nothing_that_follows() {
        let mut seed = 7_u64;
        for _ in 0..20_000 {
            let mut bytes = Vec::new();
            for _ in 0..12 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let pick = usize::try_from(seed >> 33).unwrap();
                let known = b"\x1b\x1b[?O]P_0123;:<>~ABRMucn$\\\x07\xc2\x9b\x9d\x9c\x03";
                bytes.push(known[pick % known.len()]);
            }
            let (mut parser, mut events) = (InputParser::default(), Vec::new());
            parser.feed(&bytes, &mut events);
            if matches!(parser.state, State::Paste(_)) {
                parser.feed(PASTE_END, &mut events);
            }
            parser.give_up(&mut events);
            events.clear();
            parser.feed(b"z", &mut events);
            assert_eq!(events, letters("z"), "{bytes:?}");
        }
    }
}
