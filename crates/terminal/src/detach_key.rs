//! Finds the key that detaches in the user's input: under every protocol of keyboards, also if reads split it.

/// Maximum number of keys.
const MAX_KEYS: usize = 4;

/// Maximum size of an escape sequence that is held, in bytes.
const MAX_SEQUENCE: usize = 64;

/// Maximum number of bytes that are held after the first key, which are events of other kinds than presses.
const MAX_HELD: usize = 1024;

/// Bits of caps lock and num lock among the modifiers.
const LOCKS: u32 = 64 | 128;

const SHIFT: u32 = 1;
const CTRL: u32 = 4;

/// Reason for rejecting a text as detach keys.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DetachKeyError {
    /// The text has no key or too many.
    #[error("1 to {MAX_KEYS} keys with spaces between them, such as ctrl-\\ or ctrl-a d")]
    Count,
    /// A key is neither a character nor one with Ctrl.
    #[error(
        "unknown key {0:?}: a key is ctrl- and a letter or one of @ \\ ] ^ _, or a printable ASCII character"
    )]
    Unknown(String),
    /// The first key is one that the user types as text.
    #[error("the first key must be one with ctrl-")]
    Plain,
}

/// Next step of the client after [`DetachKey::feed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DetachAction {
    /// Nothing.
    None,
    /// Waits 300 ms for input, or 1 s in a paste, then calls [`DetachKey::timeout`].
    Maybe,
    /// Detaches.
    Detach,
}

/// The result of typed bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Typed {
    /// Bytes for the program.
    pub for_program: Vec<u8>,
    /// Next step of the client.
    pub action: DetachAction,
    /// The end of an escape sequence is missing, which may also be the key Escape. The client calls
    /// [`DetachKey::timeout`] if no input follows within about 30 ms.
    pub holds: bool,
    /// A paste has begun and not ended. The client calls [`DetachKey::timeout`] if no input follows within about 1 s.
    pub is_paste: bool,
}

/// Finds the detach key in typed bytes.
///
/// One key, such as `ctrl-\`: one press detaches, two in a row send it to the program once. Several, such as
/// `ctrl-a d`: the first key twice sends it once, and with another key both are sent. Nothing in a paste is a key, until the
/// paste ends or pauses for too long.
#[derive(Debug)]
pub struct DetachKey {
    keys: Vec<Key>,
    /// Number of keys that were pressed in order.
    n_matched: usize,
    /// Bytes of these keys, and events that came after them.
    held: Vec<u8>,
    /// Beginning of an escape sequence.
    partial: Vec<u8>,
    is_paste: bool,
}

/// A key, as a user names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    /// Lowercase letter or other character.
    c: u8,
    is_ctrl: bool,
}

/// Meaning of typed bytes for one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// The press of the key.
    Press,
    /// Other input.
    Other,
    /// The end of a press of any key, or a modifier.
    Silent,
}

impl DetachKey {
    /// Parses `ctrl-\`, or keys with spaces between them, such as `ctrl-a d`.
    ///
    /// # Errors
    /// See [`DetachKeyError`].
    pub fn parse(text: &str) -> Result<Self, DetachKeyError> {
        let keys: Vec<Key> = text.split_whitespace().map(Key::parse).collect::<Result<_, _>>()?;
        if keys.is_empty() || MAX_KEYS < keys.len() {
            return Err(DetachKeyError::Count);
        }
        if keys.first().is_some_and(|key| !key.is_ctrl) {
            return Err(DetachKeyError::Plain);
        }
        let (held, partial) = (Vec::new(), Vec::new());
        Ok(Self { keys, n_matched: 0, held, partial, is_paste: false })
    }

    /// Splits typed bytes into those for the program and the detach key. Bytes after the key are dropped.
    pub fn feed(&mut self, typed: &[u8]) -> Typed {
        let mut for_program = Vec::new();
        for byte in typed {
            // The key Escape, before another one.
            if self.partial == [0x1b] && *byte == 0x1b {
                self.partial.clear();
                if self.take(&[0x1b], &mut for_program) {
                    return self.detach(for_program);
                }
            }

            self.partial.push(*byte);
            if is_partial(&self.partial) && self.partial.len() < MAX_SEQUENCE {
                continue;
            }

            let token = std::mem::take(&mut self.partial);
            if self.take(&token, &mut for_program) {
                return self.detach(for_program);
            }
        }
        self.typed(for_program)
    }

    /// Ends the wait for more input: one press of a single key detaches, the beginning of an escape sequence goes to the
    /// program, and a paste ends, because its end may never come.
    pub fn timeout(&mut self) -> Typed {
        let mut for_program = Vec::new();
        let token = std::mem::take(&mut self.partial);
        // The pause for a sequence is too short for the end of a paste.
        self.is_paste &= !token.is_empty();
        let is_pressed = self.keys.len() == 1 && self.n_matched == 1;
        if is_pressed || (!token.is_empty() && self.take(&token, &mut for_program)) {
            return self.detach(for_program);
        }
        self.typed(for_program)
    }

    /// Returns true if [`DetachKey::timeout`] decides about bytes that are held, or about a paste.
    #[must_use]
    pub fn pending(&self) -> bool {
        !self.partial.is_empty() || self.is_paste || (self.keys.len() == 1 && self.n_matched == 1)
    }

    fn detach(&mut self, for_program: Vec<u8>) -> Typed {
        self.n_matched = 0;
        self.held.clear();
        self.partial.clear();
        Typed { for_program, action: DetachAction::Detach, holds: false, is_paste: false }
    }

    fn typed(&self, for_program: Vec<u8>) -> Typed {
        let action = if self.pending() { DetachAction::Maybe } else { DetachAction::None };
        Typed { for_program, action, holds: !self.partial.is_empty(), is_paste: self.is_paste }
    }

    /// Takes one key or sequence. Returns true if the user detaches.
    fn take(&mut self, token: &[u8], for_program: &mut Vec<u8>) -> bool {
        match token {
            b"\x1b[200~" => self.is_paste = true,
            b"\x1b[201~" => self.is_paste = false,
            _ => {}
        }
        let expected = self.keys.get(self.n_matched).copied();
        let event = |key: Option<Key>| key.map_or(Event::Other, |key| key.event(token));
        let (next, first) = if self.is_paste {
            (Event::Other, Event::Other)
        } else {
            (event(expected), event(self.keys.first().copied()))
        };

        if self.n_matched == 0 {
            if next == Event::Press {
                self.n_matched = 1;
                self.held = token.to_vec();
            } else {
                for_program.extend_from_slice(token);
            }
            return false;
        }

        if first == Event::Silent && self.held.len() < MAX_HELD {
            self.held.extend_from_slice(token);
            return false;
        }
        if next == Event::Press {
            self.n_matched += 1;
            self.held.extend_from_slice(token);
            return self.n_matched == self.keys.len();
        }
        if self.keys.len() == 1 && first != Event::Press {
            return true;
        }
        // The first key again goes to the program once, with events that came between.
        for_program.append(&mut self.held);
        if first != Event::Press || self.n_matched != 1 {
            for_program.extend_from_slice(token);
        }
        self.n_matched = 0;
        false
    }
}

impl Key {
    fn parse(text: &str) -> Result<Self, DetachKeyError> {
        let unknown = || DetachKeyError::Unknown(text.chars().take(20).collect());
        let lower = text.to_ascii_lowercase();
        let (c, is_ctrl) = match (lower.strip_prefix("ctrl-").map(str::as_bytes), text.as_bytes()) {
            // Ctrl with `[` is Escape.
            (Some([c @ (b'a'..=b'z' | b'@' | b'\\' | b']' | b'^' | b'_')]), _) => (*c, true),
            (None, [c]) if c.is_ascii_graphic() => (*c, false),
            _ => return Err(unknown()),
        };
        Ok(Self { c, is_ctrl })
    }

    /// Returns the meaning of a key or sequence for this key.
    fn event(self, token: &[u8]) -> Event {
        let press = |is_it: bool| if is_it { Event::Press } else { Event::Other };
        if let [byte] = token {
            return press(*byte == if self.is_ctrl { self.c & 0x1f } else { self.c });
        }
        let Some(body) = token.strip_prefix(b"\x1b[") else { return Event::Other };
        let Some((last, params)) = body.split_last() else { return Event::Other };
        let params: Vec<Vec<u32>> = params
            .split(|byte| *byte == b';')
            .map(|group| group.split(|byte| *byte == b':').map(number).collect())
            .collect();

        let wanted = if self.is_ctrl { CTRL } else { 0 };
        let first = |at: usize| params.get(at).and_then(|it| it.first()).copied();
        let modifiers = first(1).unwrap_or(1).saturating_sub(1) & !LOCKS;
        let with_shift = modifiers == wanted | SHIFT;

        match (last, params.as_slice()) {
            // Code of the key, with Shift, and in the usual layout; modifiers and kind of event.
            (b'u', [codes, rest @ ..]) => {
                let kind = rest.first().and_then(|it| it.get(1)).copied();
                let is_modifier = codes.first().is_some_and(|it| (57_441..=57_454).contains(it));
                if kind == Some(3) || is_modifier {
                    return Event::Silent;
                }
                let is_it = [0, 2].iter().any(|at| codes.get(*at).is_some_and(|it| self.is(*it)));
                let is_shifted = codes.get(1) == Some(&u32::from(self.c));
                press((is_it && modifiers == wanted) || (is_shifted && with_shift))
            }
            // Code of the character that the key gives.
            (b'~', [_, _, code]) if first(0) == Some(27) => {
                let is_it = code.first().is_some_and(|code| self.is(*code));
                let may_shift = !self.c.is_ascii_lowercase();
                press(is_it && (modifiers == wanted || (may_shift && with_shift)))
            }
            _ => Event::Other,
        }
    }

    /// Compares with the code of a character. With caps lock, it may be that of a capital letter.
    fn is(self, code: u32) -> bool {
        u8::try_from(code).is_ok_and(|code| {
            code == self.c || (self.is_ctrl && code.to_ascii_lowercase() == self.c)
        })
    }
}

/// Returns a decimal number, or 0.
fn number(digits: &[u8]) -> u32 {
    str::from_utf8(digits).ok().and_then(|it| it.parse().ok()).unwrap_or(0)
}

/// Returns true for the beginning of an escape sequence, without its end.
fn is_partial(bytes: &[u8]) -> bool {
    match bytes {
        [0x1b] | [0x1b, b'['] => true,
        [0x1b, b'[', .., last] => (0x20..0x40).contains(last),
        _ => false,
    }
}
