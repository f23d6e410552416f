//! Parses git's configuration format, as git does (git-config(1), "Syntax"). Pure and bounded. Used for a user's name
//! and email address, for the files that a repository's configuration names, and by `crates/tools` for the upstreams
//! of branches.

mod text;

pub use text::to_text;

/// Maximum number of settings of one file.
pub(crate) const MAX_ENTRIES: usize = 4096;

/// One git setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Section in lower case.
    pub section: String,
    /// Subsection as written. Empty without one.
    pub subsection: String,
    /// Key in lower case.
    pub key: String,
    /// Value without quotes. `None` for a key without a value, which means true.
    pub value: Option<String>,
}

impl Entry {
    /// Returns true for `section.key` with any subsection.
    #[must_use]
    pub fn is(&self, section: &str, key: &str) -> bool {
        self.section == section && self.key == key
    }
}

/// Parses the text of a file. Skips a line that git would reject. Git rejects the whole file then, so it is safe to
/// read more settings than git.
#[must_use]
pub fn parse(text: &str) -> Vec<Entry> {
    let mut entries = Vec::new();
    let (mut section, mut subsection) = (String::new(), String::new());
    // Git skips a byte order mark.
    let mut rest = text.strip_prefix('\u{feff}').unwrap_or(text);
    while entries.len() < MAX_ENTRIES {
        rest = rest.trim_start();
        if rest.is_empty() {
            break;
        }

        if let Some(after) = rest.strip_prefix('[') {
            match header(after) {
                Some((name, sub, after)) => {
                    // Settings may follow in the same line.
                    (section, subsection) = (name, sub);
                    rest = after;
                }
                None => rest = next_line(rest),
            }
        } else if rest.starts_with(['#', ';']) {
            rest = next_line(rest);
        } else {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '-');
            let (key, after) = rest.split_at(end.unwrap_or(rest.len()));
            if key.is_empty() {
                rest = next_line(rest);
                continue;
            }

            let (value, after) = value(after);
            entries.push(Entry {
                section: section.clone(),
                subsection: subsection.clone(),
                key: key.to_ascii_lowercase(),
                value,
            });
            rest = after;
        }
    }
    entries
}

fn next_line(text: &str) -> &str {
    text.split_once('\n').map_or("", |(_, rest)| rest)
}

/// Parses the text after a `[`. Returns the section, its subsection and the text after `]`.
fn header(text: &str) -> Option<(String, String, &str)> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '.')?;
    let (name, rest) = text.split_at(end);
    let after_blank = rest.trim_start_matches([' ', '\t']);

    if let Some(quoted) = after_blank.strip_prefix('"') {
        let mut sub = String::new();
        let mut chars = quoted.char_indices();
        while let Some((at, one)) = chars.next() {
            match one {
                '"' => {
                    let after = quoted.get(at + 1..)?.strip_prefix(']')?;
                    return Some((name.to_ascii_lowercase(), sub, after));
                }
                '\n' => return None,
                '\\' => sub.push(chars.next()?.1),
                other => sub.push(other),
            }
        }
        return None;
    }
    let after = after_blank.strip_prefix(']')?;
    // The old form `[section.sub]`.
    let (section, sub) = name.split_once('.').unwrap_or((name, ""));
    Some((section.to_ascii_lowercase(), sub.to_ascii_lowercase(), after))
}

/// Parses the text after a key. Returns its value and the text after it.
fn value(text: &str) -> (Option<String>, &str) {
    let after_blank = text.trim_start_matches([' ', '\t']);
    let Some(text) = after_blank.strip_prefix('=') else { return (None, next_line(text)) };
    let text = text.trim_start_matches([' ', '\t']);
    let (mut value, mut kept) = (String::new(), 0);
    let (mut is_quoted, mut is_comment) = (false, false);

    let mut chars = text.char_indices();
    while let Some((at, one)) = chars.next() {
        match one {
            '\n' => {
                value.truncate(kept);
                return (Some(value), text.get(at + 1..).unwrap_or_default());
            }
            _ if is_comment => {}
            '"' => {
                is_quoted = !is_quoted;
                kept = value.len();
            }
            '#' | ';' if !is_quoted => is_comment = true,
            '\\' => match chars.next().map(|(_, next)| next) {
                Some('\n') => {}
                Some('n') => push(&mut value, '\n', &mut kept),
                Some('t') => push(&mut value, '\t', &mut kept),
                Some('b') => push(&mut value, '\u{8}', &mut kept),
                Some(other) => push(&mut value, other, &mut kept),
                None => break,
            },
            other => {
                value.push(other);
                // Trailing blanks are dropped unless they are quoted.
                if is_quoted || !other.is_whitespace() {
                    kept = value.len();
                }
            }
        }
    }
    value.truncate(kept);
    (Some(value), "")
}

fn push(value: &mut String, one: char, kept: &mut usize) {
    value.push(one);
    *kept = value.len();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str, section: &str, key: &str) -> Vec<String> {
        let entries = parse(text).into_iter().filter(|entry| entry.is(section, key));
        entries.map(|entry| entry.value.unwrap_or_else(|| "(true)".into())).collect()
    }

    #[test]
    fn values_are_read_as_git_reads_them() {
        let text = "# c\n[user]\n\tname = A \"B  \" C  ; x\nemail=a@b.c # mail\n[Core] bare\n\
                    hooksPath = \"a b\\\\c\" \\\n  d\n[include]\r\n path = x\r\n";
        assert_eq!(values(text, "user", "name"), ["A B   C"]);
        assert_eq!(values(text, "user", "email"), ["a@b.c"]);
        assert_eq!(values(text, "core", "bare"), ["(true)"]);
        assert_eq!(values(text, "core", "hookspath"), ["a b\\c   d"]);
        assert_eq!(values(text, "include", "path"), ["x"]);
    }

    #[test]
    fn subsections_keep_their_spelling() {
        let text = "[includeIf \"gitdir:~/A \\\"q\\\"\"]path=../p\n[branch.Main]\nmerge=x";
        let entries = parse(text);
        assert_eq!(entries[0].section, "includeif");
        assert_eq!(entries[0].subsection, "gitdir:~/A \"q\"");
        assert_eq!(entries[0].value.as_deref(), Some("../p"));
        assert_eq!(
            (entries[1].section.as_str(), entries[1].subsection.as_str()),
            ("branch", "main")
        );
    }

    #[test]
    fn rubbish_ends() {
        for text in
            ["[", "[a", "[a \"", "=", "\"", "a=\\", "[a]\\", "\u{0}\u{1}", "[a]b=\"\n", "[]x=1"]
        {
            let _entries = parse(text);
        }
        assert!(parse(&"[a]\nb=1\n".repeat(10_000)).len() <= MAX_ENTRIES);
    }
}
