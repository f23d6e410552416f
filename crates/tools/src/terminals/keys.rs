//! Names of keys, and the bytes that a terminal sends for them.

/// Longest name that an error repeats, in characters.
const SHOWN_CHARS: usize = 40;

/// Unknown name of a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Unknown key '{0}'; keys are such as Enter, Tab, Escape, Up, PageDown, F5, C-c, M-x")]
pub(crate) struct KeyError(String);

/// Returns the bytes of a key. `is_application`: the program has asked for the application codes of cursor keys.
///
/// Names ignore case: `Enter`, `PageUp`, `F1`. `C-` is Ctrl with one character, `M-` is Alt with any key, `S-Tab` is the
/// tabulator backwards. One character is itself.
pub(crate) fn key_bytes(name: &str, is_application: bool) -> Result<Vec<u8>, KeyError> {
    bytes_of(name, is_application).ok_or_else(|| {
        KeyError(name.chars().take(SHOWN_CHARS).filter(|c| !c.is_control()).collect())
    })
}

fn bytes_of(name: &str, is_application: bool) -> Option<Vec<u8>> {
    match name.strip_prefix("M-") {
        Some(key) => Some([b"\x1b".as_slice(), &without_alt(key, is_application)?].concat()),
        None => without_alt(name, is_application),
    }
}

fn without_alt(name: &str, is_application: bool) -> Option<Vec<u8>> {
    if let Some(key) = name.strip_prefix("C-") {
        return control(key).map(|byte| vec![byte]);
    }

    let mut characters = name.chars();
    if let (Some(c), None) = (characters.next(), characters.next()) {
        return Some(c.to_string().into_bytes());
    }

    let name = name.to_ascii_lowercase();
    let cursor = match name.as_str() {
        "up" => Some('A'),
        "down" => Some('B'),
        "right" => Some('C'),
        "left" => Some('D'),
        "home" => Some('H'),
        "end" => Some('F'),
        _ => None,
    };
    if let Some(cursor) = cursor {
        let introducer = if is_application { 'O' } else { '[' };
        return Some(format!("\x1b{introducer}{cursor}").into_bytes());
    }
    named(&name).map(|bytes| bytes.as_bytes().to_vec())
}

/// Returns the byte of Ctrl with one character.
fn control(key: &str) -> Option<u8> {
    let key = if key.eq_ignore_ascii_case("space") { "@" } else { key };
    match key.as_bytes() {
        [b'?'] => Some(0x7f),
        [byte @ (b'@'..=b'_' | b'a'..=b'z')] => Some(byte & 0x1f),
        _ => None,
    }
}

/// Returns the bytes of a key whose name is in lower case.
fn named(name: &str) -> Option<&'static str> {
    Some(match name {
        "enter" | "return" => "\r",
        "tab" => "\t",
        "s-tab" | "backtab" => "\x1b[Z",
        "escape" | "esc" => "\x1b",
        "space" => " ",
        "backspace" => "\x7f",
        "pageup" => "\x1b[5~",
        "pagedown" => "\x1b[6~",
        "insert" => "\x1b[2~",
        "delete" => "\x1b[3~",
        "f1" => "\x1bOP",
        "f2" => "\x1bOQ",
        "f3" => "\x1bOR",
        "f4" => "\x1bOS",
        "f5" => "\x1b[15~",
        "f6" => "\x1b[17~",
        "f7" => "\x1b[18~",
        "f8" => "\x1b[19~",
        "f9" => "\x1b[20~",
        "f10" => "\x1b[21~",
        "f11" => "\x1b[23~",
        "f12" => "\x1b[24~",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_send_the_bytes_of_xterm() {
        for (name, usual, application) in [
            ("Enter", "\r", "\r"),
            ("ESC", "\x1b", "\x1b"),
            ("Up", "\x1b[A", "\x1bOA"),
            ("end", "\x1b[F", "\x1bOF"),
            ("PageDown", "\x1b[6~", "\x1b[6~"),
            ("F12", "\x1b[24~", "\x1b[24~"),
            ("C-c", "\x03", "\x03"),
            ("C-\\", "\x1c", "\x1c"),
            ("C-Space", "\0", "\0"),
            ("C-?", "\x7f", "\x7f"),
            ("M-x", "\x1bx", "\x1bx"),
            ("M-Left", "\x1b\x1b[D", "\x1b\x1bOD"),
            ("M-C-c", "\x1b\x03", "\x1b\x03"),
            ("S-Tab", "\x1b[Z", "\x1b[Z"),
            ("q", "q", "q"),
            ("é", "é", "é"),
        ] {
            assert_eq!(key_bytes(name, false).unwrap(), usual.as_bytes(), "{name}");
            assert_eq!(key_bytes(name, true).unwrap(), application.as_bytes(), "{name}");
        }
        for name in ["", "F13", "C-", "C-é", "C-cc", "M-", "Enterr"] {
            assert_eq!(key_bytes(name, false), Err(KeyError(name.to_owned())));
        }
        let hostile = format!("\x1b{}", "M-".repeat(1000));
        assert!(key_bytes(&hostile, false).unwrap_err().to_string().len() < 200);
    }
}
