//! Cutting output at characters, by the length of the text that is shown.
//!
//! Output is bytes. What is not UTF-8 is shown as U+FFFD, three bytes for as little as one, so the
//! cut is measured after decoding and told in bytes of the original.

/// The line that follows output which was cut.
pub(crate) const TRUNCATED: &str = "[Output truncated at 100KB]";

/// A decoded part of some output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) text: String,
    /// Bytes of the original that it stands for.
    pub(crate) n_bytes: usize,
}

/// As much of the beginning as fits into `max_text` bytes of text.
pub(crate) fn head(bytes: &[u8], max_text: usize) -> Part {
    let mut part = Part { text: String::new(), n_bytes: 0 };
    for chunk in bytes.utf8_chunks() {
        let room = max_text - part.text.len();
        let valid = chunk.valid();
        let (kept, left_out) = valid.split_at(valid.floor_char_boundary(room));
        part.text.push_str(kept);
        part.n_bytes += kept.len();
        let is_full = max_text - part.text.len() < char::REPLACEMENT_CHARACTER.len_utf8();
        if !left_out.is_empty() || (is_full && !chunk.invalid().is_empty()) {
            break;
        }
        if !chunk.invalid().is_empty() {
            part.text.push(char::REPLACEMENT_CHARACTER);
            part.n_bytes += chunk.invalid().len();
        }
    }
    part
}

/// As much of the end as fits into `max_text` bytes of text.
pub(crate) fn tail(bytes: &[u8], max_text: usize) -> Part {
    let decoded = String::from_utf8_lossy(bytes);
    let mut skip = decoded.len().saturating_sub(max_text);
    let mut part = Part { text: String::new(), n_bytes: 0 };
    for chunk in bytes.utf8_chunks() {
        let valid = chunk.valid();
        let (_, kept) = valid.split_at(valid.ceil_char_boundary(skip));
        part.text.push_str(kept);
        part.n_bytes += kept.len();
        skip = skip.saturating_sub(valid.len());
        if chunk.invalid().is_empty() {
            continue;
        }
        if skip == 0 {
            part.text.push(char::REPLACEMENT_CHARACTER);
            part.n_bytes += chunk.invalid().len();
        }
        skip = skip.saturating_sub(char::REPLACEMENT_CHARACTER.len_utf8());
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(text: &str, n_bytes: usize) -> Part {
        Part { text: text.into(), n_bytes }
    }

    #[test]
    fn both_ends_are_cut_between_characters() {
        let cases: [(&[u8], usize, Part, Part); 9] = [
            (b"", 3, part("", 0), part("", 0)),
            (b"abc", 3, part("abc", 3), part("abc", 3)),
            (b"abcd", 3, part("abc", 3), part("bcd", 3)),
            (b"abcd", 0, part("", 0), part("", 0)),
            ("äöü".as_bytes(), 3, part("ä", 2), part("ü", 2)),
            ("a€b".as_bytes(), 3, part("a", 1), part("b", 1)),
            (b"\xff\xff", 5, part("\u{fffd}", 1), part("\u{fffd}", 1)),
            (b"a\xffb\xffc", 5, part("a\u{fffd}b", 3), part("b\u{fffd}c", 3)),
            (b"ab\xe2\x82", 5, part("ab\u{fffd}", 4), part("ab\u{fffd}", 4)),
        ];
        for (bytes, max, first, last) in cases {
            assert_eq!((head(bytes, max), tail(bytes, max)), (first, last), "{bytes:?} to {max}");
        }
    }

    #[test]
    fn whatever_is_cut_fits_and_is_as_long_as_it_can_be() {
        let alphabet: [&[u8]; 6] =
            [b"a", "ä".as_bytes(), "€".as_bytes(), "🦆".as_bytes(), b"\xff", b"\xe2\x82"];
        for seed in 0..alphabet.len().pow(4) {
            let bytes: Vec<u8> = (0..4)
                .flat_map(|n| alphabet[seed / alphabet.len().pow(n) % alphabet.len()])
                .copied()
                .collect();
            let whole = String::from_utf8_lossy(&bytes);
            for max in 0..=whole.len() {
                let (first, last) = (head(&bytes, max), tail(&bytes, max));
                assert_eq!(first.text, whole[..whole.floor_char_boundary(max)], "{bytes:?} {max}");
                assert_eq!(
                    last.text,
                    whole[whole.ceil_char_boundary(whole.len() - max)..],
                    "{bytes:?} {max}"
                );
            }
        }
    }
}
