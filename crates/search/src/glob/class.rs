//! Parses bracket expressions: `[a-z]`, `[!a]`, `[[:alpha:]]`.

/// A set of characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Class {
    is_negated: bool,
    items: Vec<ClassItem>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClassItem {
    Range(char, char),
    Named(&'static str),
}

const NAMES: &[&str] = &[
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
    "space", "upper", "word", "xdigit",
];

impl Class {
    /// Parses the expression at the start of `text`, and returns its length in characters. `None` if it is not
    /// closed: then the bracket is text.
    ///
    /// An empty class, such as `[z-a]`, matches no character.
    pub(super) fn parse(text: &[char]) -> Option<(Self, usize)> {
        let mut class = Self { is_negated: false, items: Vec::new() };
        let mut at = 1;
        if matches!(text.get(at), Some('!' | '^')) {
            class.is_negated = true;
            at += 1;
        }

        // A bracket at this position is a member, not the end.
        let first = at;

        loop {
            let c = *text.get(at)?;
            if c == ']' && at != first {
                // An empty class matches nothing, even if it is negated.
                class.is_negated &= !class.items.is_empty();
                return Some((class, at + 1));
            }

            if let Some((name, len)) = named(text.get(at..)?) {
                class.items.push(ClassItem::Named(name));
                at += len;
            } else if text.get(at + 1) == Some(&'-') && *text.get(at + 2)? != ']' {
                let last = *text.get(at + 2)?;
                if c <= last {
                    class.items.push(ClassItem::Range(c, last));
                }
                at += 3;
            } else {
                class.items.push(ClassItem::Range(c, c));
                at += 1;
            }
        }
    }

    /// Whether the set contains `c`, ignoring case.
    pub(super) fn contains(&self, c: char) -> bool {
        let is_in = |c: char| self.items.iter().any(|item| item.contains(c));
        let is_member = is_in(c) || c.to_lowercase().any(is_in) || c.to_uppercase().any(is_in);
        is_member != self.is_negated && (self.is_negated || !self.items.is_empty())
    }
}

impl ClassItem {
    fn contains(self, c: char) -> bool {
        match self {
            Self::Range(first, last) => (first..=last).contains(&c),
            Self::Named("alnum") => c.is_alphanumeric(),
            Self::Named("alpha") => c.is_alphabetic(),
            Self::Named("ascii") => c.is_ascii(),
            Self::Named("blank") => c == ' ' || c == '\t' || c == '\u{a0}',
            Self::Named("cntrl") => c.is_control(),
            Self::Named("digit") => c.is_numeric(),
            Self::Named("graph") => !c.is_control() && !c.is_whitespace(),
            Self::Named("lower") => c.is_lowercase(),
            Self::Named("print") => !c.is_control(),
            Self::Named("punct") => c.is_ascii_punctuation() && !"$+<=>^`|~".contains(c),
            Self::Named("space") => c.is_whitespace(),
            Self::Named("upper") => c.is_uppercase(),
            Self::Named("word") => c.is_alphanumeric() || c == '_',
            Self::Named("xdigit") => c.is_ascii_hexdigit(),
            Self::Named(_) => false,
        }
    }
}

/// Parses `[:name:]` at the start of `text`. Returns the name and the length.
fn named(text: &[char]) -> Option<(&'static str, usize)> {
    let ['[', ':', rest @ ..] = text else { return None };
    NAMES.iter().find_map(|name| {
        let after = rest.get(name.len()..)?;
        let is_it = rest.iter().zip(name.chars()).all(|(a, b)| *a == b);
        (is_it && after.starts_with(&[':', ']'])).then(|| (*name, name.len() + 4))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(text: &str) -> Option<(String, usize)> {
        let (class, len) = Class::parse(&text.chars().collect::<Vec<_>>())?;
        Some(("abzAB09-]!^[é_ .".chars().filter(|c| class.contains(*c)).collect(), len))
    }

    #[test]
    fn a_class_holds_what_minimatch_says() {
        let cases = [
            ("[ab]", Some(("abAB", 4))),
            ("[a-z]x", Some(("abzAB", 5))),
            ("[!a]", Some(("bzB09-]!^[é_ .", 4))),
            ("[^a-z]", Some(("09-]!^[é_ .", 6))),
            ("[]a]", Some(("aA]", 4))),
            ("[!]]", Some(("abzAB09-!^[é_ .", 4))),
            ("[a-]", Some(("aA-", 4))),
            ("[-a]", Some(("aA-", 4))),
            ("[a!^]", Some(("aA!^", 5))),
            ("[[]", Some(("[", 3))),
            ("[[:alpha:]]", Some(("abzABé", 11))),
            ("[[:digit:]_]", Some(("09_", 12))),
            ("[![:alnum:]]", Some(("-]!^[_ .", 12))),
            ("[z-a]", Some(("", 5))),
            ("[!z-a]", Some(("", 6))),
            ("[z-a9]", Some(("9", 6))),
            ("[:alpha:]", Some(("aA", 9))),
            ("[a", None),
            ("[", None),
            ("[!", None),
            ("[]", None),
            ("[a-", None),
        ];
        for (text, expected) in cases {
            assert_eq!(members(text), expected.map(|(m, n)| (m.to_owned(), n)), "{text}");
        }
    }
}
