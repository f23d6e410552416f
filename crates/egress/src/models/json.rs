//! Reads small JSON files that users write: with comments and trailing commas, and errors that repeat nothing of the file.

use serde::de::DeserializeOwned;
use serde_json::error::Category;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

/// Maximum size of a file, in bytes.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Number of attempts to read a file that ends too early, and the pause between them, because a
/// program that writes it in place leaves it incomplete until it has finished.
const LOOKS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(10);

/// Reads a file. `None` if it does not exist.
///
/// # Errors
/// One line with the reason and the position, without any value of the file, which may be a key.
pub(super) fn read_blocking<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, String> {
    #[expect(clippy::disallowed_methods, reason = "files are read on the blocking pool")]
    let pause = || std::thread::sleep(PAUSE);
    parse(path, || bytes_blocking(path), pause)
}

fn parse<T: DeserializeOwned>(
    path: &Path,
    mut read: impl FnMut() -> io::Result<Vec<u8>>,
    mut pause: impl FnMut(),
) -> Result<Option<T>, String> {
    let shown = path.display();
    let mut looks = 1;
    loop {
        let bytes = match read() {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("cannot read {shown}: {error}")),
        };

        let error = match serde_json::from_slice(&without_comments(bytes)) {
            Ok(value) => return Ok(Some(value)),
            Err(error) => error,
        };

        let problem = match error.classify() {
            Category::Eof if looks < LOOKS => {
                looks += 1;
                pause();
                continue;
            }
            Category::Data => "a value is missing or has the wrong type",
            Category::Syntax | Category::Eof | Category::Io => "it is not valid JSON",
        };
        return Err(format!("{shown}:{}:{}: {problem}", error.line(), error.column()));
    }
}

fn bytes_blocking(path: &Path) -> io::Result<Vec<u8>> {
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    // One byte more than the limit, to recognize a larger file.
    File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::other(format!("it is larger than {MAX_FILE_BYTES} bytes")));
    }
    Ok(bytes)
}

/// Replaces comments and trailing commas with spaces, so that positions stay the same.
fn without_comments(mut bytes: Vec<u8>) -> Vec<u8> {
    // A byte order mark is not part of the JSON text.
    if bytes.starts_with(b"\xef\xbb\xbf") {
        bytes.iter_mut().take(3).for_each(|byte| *byte = b' ');
    }

    let mut at = 0;
    // Position of a comma that only white space and comments have followed.
    let mut comma = None;
    while let Some(rest) = bytes.get_mut(at..) {
        let length = match rest {
            [] => break,
            [b'"', ..] => string_length(rest),
            [b'/', b'/', ..] => blank(rest, |rest| rest.iter().position(|byte| *byte == b'\n')),
            [b'/', b'*', ..] => blank(rest, |rest| {
                let end = rest.windows(2).skip(2).position(|pair| pair == b"*/")?;
                Some(end + 4)
            }),
            _ => 1,
        };

        match bytes.get(at) {
            Some(b',') => comma = Some(at),
            Some(b' ' | b'\t' | b'\r' | b'\n') => {}
            Some(b'}' | b']') => {
                if let Some(comma) = comma.take().and_then(|at: usize| bytes.get_mut(at)) {
                    *comma = b' ';
                }
            }
            _ => comma = None,
        }
        at += length;
    }
    bytes
}

/// Returns the length of the string at the start, with its quotation marks.
fn string_length(text: &[u8]) -> usize {
    let mut is_escaped = false;
    for (at, byte) in text.iter().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Overwrites a comment and returns its length. Keeps line ends.
fn blank(text: &mut [u8], end: impl Fn(&[u8]) -> Option<usize>) -> usize {
    let length = end(text).unwrap_or(text.len());
    for byte in text.iter_mut().take(length).filter(|byte| **byte != b'\n') {
        *byte = b' ';
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_file_that_is_being_written_is_read_again() {
        let read = |texts: &[&'static str]| {
            let mut texts = texts.iter().copied().cycle();
            let mut pauses = 0;
            let next = || Ok(texts.next().unwrap_or_default().into());
            let read = parse::<Value>(Path::new("m.json"), next, || pauses += 1);
            (read, pauses)
        };
        assert_eq!(read(&["", r#"{"a": [1"#, "[1]"]), (Ok(Some(json!([1]))), 2));
        let (incomplete, pauses) = read(&[r#"{"a":"#]);
        assert_eq!(
            (incomplete.unwrap_err(), pauses),
            ("m.json:1:5: it is not valid JSON".into(), 4)
        );
        let (bad, pauses) = read(&["{]"]);
        assert!(bad.is_err());
        assert_eq!(pauses, 0);
    }

    #[test]
    fn comments_and_trailing_commas_are_tolerated() {
        for (text, value) in [
            ("{\"a\": 1, // one\n}", json!({"a": 1})),
            ("/* x, } */ [1, 2, /* y */ ]", json!([1, 2])),
            (r#"["//", "/*", "a\"//,]", ]"#, json!(["//", "/*", "a\"//,]"])),
            ("\u{feff}{}", json!({})),
            ("[1] // end", json!([1])),
        ] {
            let read: Value = serde_json::from_slice(&without_comments(text.into())).unwrap();
            assert_eq!(read, value, "{text}");
        }
        for bad in ["[1,,]", "[,]x", "/* ", "\"", "{\"a\" 1}"] {
            assert!(
                serde_json::from_slice::<Value>(&without_comments(bad.into())).is_err(),
                "{bad}"
            );
        }
    }

    #[test]
    fn an_error_has_the_line_and_nothing_of_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f.json");
        let read = || read_blocking::<std::collections::BTreeMap<String, bool>>(&path);
        assert_eq!(read(), Ok(None));
        std::fs::write(&path, "{\n// c\n\"a\": \"sk-secret\"}").unwrap();
        let error = read().unwrap_err();
        assert!(error.contains("f.json:3:") && !error.contains("secret"), "{error}");
        std::fs::write(&path, "{\n\n\"a\": sk-secret}").unwrap();
        let error = read().unwrap_err();
        assert!(error.contains("f.json:3:") && !error.contains("secret"), "{error}");
        assert!(read_blocking::<Value>(directory.path()).unwrap_err().contains("regular file"));
    }
}
