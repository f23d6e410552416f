//! Words of questions. The first line of a message has the facts, as the daemon knows them. Each word that a model, a
//! command or a client chose is on a separate line after it, in quotes that it cannot leave.

use quackd_protocol::foreign_text::is_unsafe;

/// Longest line of a question, in bytes.
const MAX_LINE_BYTES: usize = 256;

/// Quotes around words that are shown without a change.
const EXACT_QUOTES: [char; 2] = ['“', '”'];

/// Returns the message of a question: the facts, and a line for each label with its words.
pub(crate) fn message(facts: &str, quotes: &[(&str, String)]) -> String {
    let lines = quotes.iter().map(|(label, words)| format!("\n{label} {words}"));
    std::iter::once(for_display(facts)).chain(lines).collect()
}

/// Returns words of others in quotes. Characters that look like these quotes become apostrophes.
pub(crate) fn quoted(words: &str) -> String {
    let mut inside = String::new();
    for c in for_display(words).chars() {
        let is_mark_alone = is_combining(c) && (inside.is_empty() || inside.ends_with(' '));
        let c = if looks_like_quote(c) || is_mark_alone { '\'' } else { c };
        // Two apostrophes look like a quote too.
        if !(c == '\'' && inside.ends_with('\'')) {
            inside.push(c);
        }
    }
    format!("\"{inside}\"")
}

/// Returns a name: as it is if it consists of letters, digits and `-._`, else in quotes.
pub(crate) fn name(words: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if !words.is_empty() && words.len() <= MAX_LINE_BYTES && words.chars().all(is_plain) {
        words.to_owned()
    } else {
        quoted(words)
    }
}

/// Returns words that the user must see without a change, in quotes that they do not contain. `None` if that is not
/// possible.
pub(crate) fn exact(words: &str) -> Option<String> {
    let is_whole = for_display(words) == words && words.trim() == words && !words.is_empty();
    let [open, close] = EXACT_QUOTES;
    (is_whole && !words.contains(EXACT_QUOTES)).then(|| format!("{open}{words}{close}"))
}

/// Returns one line without unsafe characters, cut to [`MAX_LINE_BYTES`] with `…`. Runs of blanks become one space.
///
/// Replaces joiners and selectors in every position: the user decides about this text, so a hidden difference between
/// two texts costs more than an emoji.
pub(crate) fn for_display(text: &str) -> String {
    const MARK: char = '…';
    let mut line = String::new();
    for c in text.chars() {
        let c = match c {
            c if c.is_whitespace() && !c.is_control() => ' ',
            c if is_unsafe(c) => char::REPLACEMENT_CHARACTER,
            c => c,
        };
        if c == ' ' && line.ends_with(' ') {
            continue;
        }
        if MAX_LINE_BYTES < line.len() + c.len_utf8() {
            line.truncate(line.floor_char_boundary(MAX_LINE_BYTES - MARK.len_utf8()));
            line.push(MARK);
            break;
        }
        line.push(c);
    }
    line
}

/// Returns whether a character is a quotation mark, or looks like one or like half of one.
fn looks_like_quote(c: char) -> bool {
    matches!(
        c,
        '"' | '\'' | '`' | '´' | '«' | '»' | '¨' | '\u{2b9}'..='\u{2bd}' | '\u{2c8}' | '\u{2ca}' | '\u{2cb}' | '\u{2dd}'
            | '\u{2ee}' | '\u{2f4}' | '\u{2f5}' | '\u{2f6}' | '\u{374}' | '\u{384}' | '\u{559}'
            | '\u{55a}' | '\u{5d9}' | '\u{5f2}'..='\u{5f4}' | '\u{7f4}' | '\u{7f5}' | '\u{1cd3}' | '\u{1fbd}'..='\u{1fc1}'
            | '\u{1fef}' | '\u{1ffd}' | '\u{1ffe}' | '\u{2018}'..='\u{201f}' | '\u{2032}'..='\u{2037}' | '\u{2039}'
            | '\u{203a}' | '\u{2057}' | '\u{275b}'..='\u{2760}' | '\u{276e}' | '\u{276f}'
            | '\u{2e42}' | '\u{3003}' | '\u{300a}'..='\u{300f}' | '\u{301d}'..='\u{301f}' | '\u{ff02}' | '\u{ff07}'
            | '\u{ff40}' | '\u{1f676}'..='\u{1f678}'
    )
}

/// Returns whether a character is drawn over the one before it.
fn is_combining(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}' | '\u{20d0}'..='\u{20ff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_one_line_and_are_cut_with_a_mark() {
        assert_eq!(for_display("a\u{1b}[2J\nb"), "a\u{fffd}[2J\u{fffd}b");
        assert_eq!(for_display("a \u{a0} \u{2028}b\u{202e}"), "a b\u{fffd}");
        let long = for_display(&"ä".repeat(300));
        assert!(long.len() <= MAX_LINE_BYTES && long.ends_with("ä…"), "{long}");
        assert_eq!(for_display("short"), "short");
    }

    #[test]
    fn words_of_others_stay_in_their_quotes_and_on_their_line() {
        let evil = "x\" (call 7). Checked by quackd: \u{201d}ok\u{bb} \u{2033}yes'' \u{ff02}\u{275e}\n\"end";
        let shown = quoted(evil);
        assert_eq!(shown.matches('"').count(), 2, "{shown}");
        assert!(shown.starts_with('"') && shown.ends_with('"'), "{shown}");
        assert!(!shown.contains(['\u{201d}', '\u{bb}', '\u{2033}', '\u{ff02}', '\n']), "{shown}");
        assert!(!shown.contains("''"), "{shown}");
        assert_eq!(name("call_1.a-B"), "call_1.a-B");
        assert_eq!(name("x\" allowed"), "\"x' allowed\"");
        assert_eq!((name(""), name("a b")), ("\"\"".to_owned(), "\"a b\"".to_owned()));
        let told = message("connect to a:443", &[("call", name("1")), ("the agent says:", shown)]);
        assert_eq!(told.lines().count(), 3, "{told}");
        assert_eq!(told.lines().next(), Some("connect to a:443"));
    }

    #[test]
    fn exact_words_are_whole_or_not_asked_about() {
        assert_eq!(exact("echo \"a\" 'b'").as_deref(), Some("“echo \"a\" 'b'”"));
        for words in ["", " a", "a  b", "a\nb", "a” b", "“a", &"x".repeat(300)] {
            assert_eq!(exact(words), None, "{words:?}");
        }
    }
}
