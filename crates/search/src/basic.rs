//! Basic regular expressions, as grep without options reads them, in the syntax of the regex crate.
//!
//! In that dialect `\|`, `\(`, `\{`, `\+` and `\?` are operators and the bare characters are text.
//! Models know it from shells and write it often.

use std::iter::Peekable;
use std::str::Chars;

/// Whether a pattern uses an operator that only the basic dialect spells with a backslash.
pub(crate) fn has_idioms(pattern: &str) -> bool {
    let mut rest = pattern.chars();
    while let Some(c) = rest.next() {
        if c == '\\' && rest.next().is_some_and(|next| "|(){}+?".contains(next)) {
            return true;
        }
    }
    false
}

/// Translates one pattern without newlines. An invalid pattern stays invalid, so that the regex parser reports
/// it.
pub(crate) fn translate(pattern: &str) -> String {
    let mut rust = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern.chars().peekable();

    // At the beginning of an expression `^` is an anchor; there and behind the anchor `*` is text.
    let (mut at_start, mut after_anchor) = (true, false);
    // A count with nothing to repeat is text.
    let mut counts_as_text = false;

    while let Some(c) = rest.next() {
        let was_at_start = std::mem::replace(&mut at_start, false);
        let was_after_anchor = std::mem::replace(&mut after_anchor, false);
        match c {
            '\\' if (was_at_start || was_after_anchor) && repeats(rest.peek()) => {
                counts_as_text = rest.peek() == Some(&'{');
                push_literal(&mut rust, rest.next().unwrap_or('\\'));
            }
            '\\' if counts_as_text && rest.next_if_eq(&'}').is_some() => {
                counts_as_text = false;
                push_literal(&mut rust, '}');
            }
            '\\' => {
                let is_count = rest.peek() == Some(&'{');
                at_start = escape(&mut rust, rest.next());
                // A count without its lower bound begins at zero.
                if is_count && rest.peek() == Some(&',') {
                    rust.push('0');
                }
            }
            '[' => bracket(&mut rust, &mut rest),
            '^' if was_at_start => {
                rust.push('^');
                after_anchor = true;
            }
            '$' if ends_here(&rest) => rust.push('$'),
            '*' if !was_at_start && !was_after_anchor => rust.push('*'),
            '.' => rust.push('.'),
            _ => push_literal(&mut rust, c),
        }
    }
    rust
}

/// Writes the translation of a backslash and `next`. Returns true if an expression begins after it.
fn escape(rust: &mut String, next: Option<char>) -> bool {
    match next {
        Some('(') => {
            rust.push('(');
            return true;
        }
        Some('|') => {
            rust.push('|');
            return true;
        }
        Some(operator @ (')' | '{' | '}' | '+' | '?')) => rust.push(operator),
        Some('`') => rust.push_str(r"\A"),
        Some('\'') => rust.push_str(r"\z"),
        // Letters keep their meaning in the regex crate, even if grep gives them none: `\d` is never meant as a
        // plain `d`. Digits are back-references, which the parser rejects.
        Some(class) if class.is_ascii_alphanumeric() || "<>".contains(class) => {
            rust.push('\\');
            rust.push(class);
        }
        Some(literal) => push_literal(rust, literal),
        None => rust.push('\\'),
    }
    false
}

fn repeats(operator: Option<&char>) -> bool {
    matches!(operator, Some('{' | '+' | '?'))
}

/// A `$` is an anchor only where an expression ends.
fn ends_here(rest: &Peekable<Chars<'_>>) -> bool {
    let mut ahead = rest.clone();
    match ahead.next() {
        None => true,
        Some('\\') => matches!(ahead.next(), Some(')' | '|')),
        Some(_) => false,
    }
}

/// Translates a bracket expression up to its end. Inside it a backslash is text, and so is everything that the
/// regex crate would read as a nested class or a set operation.
fn bracket(rust: &mut String, rest: &mut Peekable<Chars<'_>>) {
    rust.push('[');
    if rest.next_if_eq(&'^').is_some() {
        rust.push('^');
    }
    // A bracket at the beginning is a member, not the end.
    if rest.next_if_eq(&']').is_some() {
        rust.push_str(r"\]");
    }

    let mut previous = '[';
    while let Some(c) = rest.next() {
        match c {
            ']' => {
                rust.push(']');
                return;
            }
            '[' if rest.peek() == Some(&':') => {
                rust.push('[');
                // `[:name:]` is the same in both; copied up to its own end.
                for inner in rest.by_ref() {
                    rust.push(inner);
                    if inner == ']' {
                        break;
                    }
                }
            }
            '-' if previous != '-' => rust.push('-'),
            '[' | '\\' | '&' | '~' | '-' | '^' => {
                rust.push('\\');
                rust.push(c);
            }
            _ => rust.push(c),
        }
        previous = c;
    }
}

fn push_literal(rust: &mut String, c: char) {
    if r"\.+*?()|[]{}^$".contains(c) {
        rust.push('\\');
    }
    rust.push(c);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_and_text_change_places() {
        let cases = [
            (r"foo\|bar", "foo|bar"),
            (r"\(a\|b\)\{2,3\}", "(a|b){2,3}"),
            (r"a\+b\?", "a+b?"),
            (r"a\{,2\}b\{3,\}", "a{0,2}b{3,}"),
            (r"\+a\|\?b\(\{1\}\)c\{1\}", r"\+a|\?b(\{1\})c{1}"),
            (r"^\{1\}", r"^\{1\}"),
            (r"a\\\{,2\}b", r"a\\{0,2}b"),
            ("a+b?(c){2}|d", r"a\+b\?\(c\)\{2\}\|d"),
            ("*a*", r"\*a*"),
            (r"\(*a\)\|*b", r"(\*a)|\*b"),
            ("^*a", r"^\*a"),
            ("^^*a", r"^\^*a"),
            ("a^b$c$", r"a\^b\$c$"),
            (r"\(^a$\)", "(^a$)"),
            (r"a\.b\*c\[d\]\\", r"a\.b\*c\[d\]\\"),
            (r"\<word\>\w\b", r"\<word\>\w\b"),
            ("[]a]", r"[\]a]"),
            ("[^]a]", r"[^\]a]"),
            (r"[\n[&&]", r"[\\n\[\&\&]"),
            ("[[:alpha:]_-]", "[[:alpha:]_-]"),
            ("[+--]", r"[+-\-]"),
            (r"\/\-\ ", "/- "),
            ("a.c", "a.c"),
            ("trailing\\", "trailing\\"),
        ];
        for (basic, expected) in cases {
            assert_eq!(translate(basic), expected, "{basic}");
        }
    }

    #[test]
    fn idioms_are_seen_only_when_the_backslash_is_not_itself_escaped() {
        for pattern in [r"a\|b", r"\(a\)", r"a\{2\}", r"a\+", r"a\?", r"\\\|"] {
            assert!(has_idioms(pattern), "{pattern}");
        }
        for pattern in ["a|b", r"\.", r"a\\|b", r"\w+", "a\\", ""] {
            assert!(!has_idioms(pattern), "{pattern}");
        }
    }
}
