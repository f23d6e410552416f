//! Cuts output between characters, by the length of the resulting text.
//!
//! Output is bytes. Invalid UTF-8 becomes U+FFFD, which replaces as little as one byte by three. So the cut is
//! measured after decoding, and reported in bytes of the original.

/// Line after a cut output.
pub const TRUNCATED: &str = "[Output truncated at 100KB]";

/// Decoded part of an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DecodedPart {
    pub(crate) text: String,
    /// Number of original bytes.
    pub(crate) n_bytes: usize,
}

/// Visible bytes of an output, and their position. The bytes between two ranges are hidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShownRange<'a> {
    pub(crate) at: usize,
    pub(crate) bytes: &'a [u8],
}

/// Returns as much of the start as fits into `max_text` bytes of text.
pub(crate) fn head(bytes: &[u8], max_text: usize) -> DecodedPart {
    head_of([ShownRange { at: 0, bytes }], bytes.len(), max_text)
}

/// Like [`head`], for the visible ranges of `n_bytes` bytes. Hidden bytes before the cut count as shown.
pub(crate) fn head_of<'a>(
    runs: impl IntoIterator<Item = ShownRange<'a>>,
    n_bytes: usize,
    max_text: usize,
) -> DecodedPart {
    let mut text = String::new();

    for ShownRange { at, bytes } in runs {
        let mut n_shown = at;
        for chunk in bytes.utf8_chunks() {
            let room = max_text - text.len();
            let valid = chunk.valid();
            let (kept, left_out) = valid.split_at(valid.floor_char_boundary(room));
            text.push_str(kept);
            n_shown += kept.len();

            let is_full = max_text - text.len() < char::REPLACEMENT_CHARACTER.len_utf8();
            if !left_out.is_empty() || (is_full && !chunk.invalid().is_empty()) {
                return DecodedPart { text, n_bytes: n_shown };
            }
            if !chunk.invalid().is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
                n_shown += chunk.invalid().len();
            }
        }
    }

    DecodedPart { text, n_bytes }
}

/// Like [`tail`], for the visible ranges of `n_bytes` bytes. Hidden bytes after the cut count as shown.
pub(crate) fn tail_of(runs: &[ShownRange<'_>], n_bytes: usize, max_text: usize) -> DecodedPart {
    // The length of the decoded text decides where its end begins.
    let text_bytes: usize = runs.iter().map(|run| text_bytes(run.bytes)).sum();
    let mut skip = text_bytes.saturating_sub(max_text);
    let mut text = String::new();
    let mut begin = if skip == 0 { runs.first().map(|run| run.at) } else { None };

    for ShownRange { at, bytes } in runs {
        let mut next = *at;
        for chunk in bytes.utf8_chunks() {
            let valid = chunk.valid();
            let (left_out, kept) = valid.split_at(valid.ceil_char_boundary(skip));
            if !kept.is_empty() {
                begin.get_or_insert(next + left_out.len());
                text.push_str(kept);
            }

            skip = skip.saturating_sub(valid.len());
            next += valid.len();
            if chunk.invalid().is_empty() {
                continue;
            }
            if skip == 0 {
                begin.get_or_insert(next);
                text.push(char::REPLACEMENT_CHARACTER);
            }
            skip = skip.saturating_sub(char::REPLACEMENT_CHARACTER.len_utf8());
            next += chunk.invalid().len();
        }
    }

    DecodedPart { text, n_bytes: begin.map_or(0, |begin| n_bytes - begin) }
}

/// Returns the length of the decoded text in bytes.
fn text_bytes(bytes: &[u8]) -> usize {
    let of_chunk = |chunk: std::str::Utf8Chunk<'_>| {
        let replaced =
            if chunk.invalid().is_empty() { 0 } else { char::REPLACEMENT_CHARACTER.len_utf8() };
        chunk.valid().len() + replaced
    };
    bytes.utf8_chunks().map(of_chunk).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(text: &str, n_bytes: usize) -> DecodedPart {
        DecodedPart { text: text.into(), n_bytes }
    }

    fn tail(bytes: &[u8], max_text: usize) -> DecodedPart {
        tail_of(&[ShownRange { at: 0, bytes }], bytes.len(), max_text)
    }

    #[test]
    fn both_ends_are_cut_between_characters() {
        let cases: [(&[u8], usize, DecodedPart, DecodedPart); 9] = [
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
