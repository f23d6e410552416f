//! Escapes of lone surrogates in JSON, which parsers refuse. JavaScript writes them for a text that was cut between two
//! UTF-16 units.

/// Replaces `\ud800` to `\udfff` that are not halves of a pair. Returns `None` if there is no such escape.
pub(crate) fn without_lone_surrogates(text: &str, replacement: &str) -> Option<String> {
    let (mut kept, mut rest, mut is_changed) = (String::new(), text, false);
    while let Some(at) = rest.find('\\') {
        let (plain, escape) = rest.split_at(at);
        kept.push_str(plain);
        let len = match (unit(escape), escape.get(6..).and_then(unit)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                is_changed = true;
                kept.push_str(replacement);
                rest = escape.get(6..)?;
                continue;
            }
            _ => 1 + escape.chars().nth(1).map_or(0, char::len_utf8),
        };
        let (escape, after) = escape.split_at(len);
        kept.push_str(escape);
        rest = after;
    }
    kept.push_str(rest);
    is_changed.then_some(kept)
}

/// Returns the UTF-16 unit of the escape at the start of the text.
fn unit(text: &str) -> Option<u16> {
    u16::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::without_lone_surrogates;

    #[test]
    fn only_lone_surrogates_are_replaced() {
        for (text, replaced) in [
            (r"a\ud83eb", Some(r"a?b")),
            (r"\udd86\ud83e", Some("??")),
            (r"\ud83e\ud83e\udd86", Some(r"?\ud83e\udd86")),
            (r"\ud83e\udd86", None),
            (r"\\ud83e", None),
            (r"\é\ud83e", Some(r"\é?")),
            (r"\", None),
            (r"\ud83", None),
            ("", None),
        ] {
            assert_eq!(without_lone_surrogates(text, "?").as_deref(), replaced, "{text}");
        }
    }
}
