//! Safe mode of bash: a command line is split into words and run without a shell, if its first words
//! are on a list.
//!
//! The list keeps honest callers honest; what a command may really do is decided by the read-only
//! profile of the session's sandbox. Options that make a listed program run another one, or write,
//! are refused here all the same, so that the caller is told early.

mod git;

/// Commands that are allowed, by their first word or words.
const ALLOWED: &[&[&str]] = &[
    &["git"],
    &["grep"],
    &["rg"],
    &["find"],
    &["ls"],
    &["cat"],
    &["head"],
    &["tail"],
    &["wc"],
    &["swift", "test"],
    &["xcodebuild", "test"],
    &["npm", "test"],
    &["pytest"],
];

/// Words that are refused after a program's name, alone or followed by `=`.
const REFUSED: &[(&str, &[&str])] = &[
    (
        "find",
        &[
            "-exec", "-execdir", "-ok", "-okdir", "-delete", "-fls", "-fprint", "-fprint0",
            "-fprintf",
        ],
    ),
    ("rg", &["--pre", "--hostname-bin"]),
];

/// Why a command line is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SafeModeError {
    #[error("Invalid command syntax in safe mode")]
    Syntax,
    #[error("Command not allowed in safe mode")]
    NotAllowed,
}

/// Splits a command line and checks it: the program's name, which has no slash in it, and its
/// arguments, for git with options that keep it from running other programs.
pub(crate) fn parse(line: &str) -> Result<(String, Vec<String>), SafeModeError> {
    let words = split(line).ok_or(SafeModeError::Syntax)?;
    if !is_allowed(&words) {
        return Err(SafeModeError::NotAllowed);
    }
    let is_git = words.first().is_some_and(|word| word == "git");
    let words = if is_git { git::hardened(words) } else { words };
    let mut words = words.into_iter();
    let program = words.next().ok_or(SafeModeError::Syntax)?;
    Ok((program, words.collect()))
}

fn is_allowed(words: &[String]) -> bool {
    let is_listed = ALLOWED.iter().any(|prefix| {
        words.len() >= prefix.len()
            && words.iter().zip(*prefix).all(|(word, listed)| word == listed)
    });
    let refused =
        REFUSED.iter().find(|(program, _)| words.first().is_some_and(|word| word == program));
    let is_git = words.first().is_some_and(|word| word == "git");
    is_listed
        && !(is_git && git::is_refused(words))
        && refused.is_none_or(|(_, refused)| {
            !words.iter().any(|word| {
                let name = word.split_once('=').map_or(word.as_str(), |(name, _)| name);
                refused.contains(&name)
            })
        })
}

/// Words are separated by spaces and tabs. `'` and `"` quote, a backslash takes the next character as
/// it is except between `'`, and everything else is ordinary: there are no pipes, lists, redirections,
/// variables or comments. `None` for an unfinished quote or escape, and for no words at all.
pub(crate) fn split(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    // `None` between words: an empty pair of quotes is a word too.
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        match (quote, c) {
            (None | Some('"'), '\\') => word.get_or_insert_default().push(rest.next()?),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (Some(open), _) if c == open => quote = None,
            (None, ' ' | '\t') => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    (quote.is_none() && !words.is_empty()).then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_split_as_the_wire_says() {
        let cases: [(&str, Option<&[&str]>); 17] = [
            ("ls -l", Some(&["ls", "-l"])),
            ("  ls\t\t-l  ", Some(&["ls", "-l"])),
            ("ls 'a b' \"c d\"", Some(&["ls", "a b", "c d"])),
            ("ls a' 'b", Some(&["ls", "a b"])),
            (r"ls a\ b \'", Some(&["ls", "a b", "'"])),
            (r#"ls "a\"b" 'a\b'"#, Some(&["ls", "a\"b", r"a\b"])),
            (r#"ls "a\nb""#, Some(&["ls", "anb"])),
            ("ls '' \"\"", Some(&["ls", "", ""])),
            ("ls\n-l", Some(&["ls\n-l"])),
            (
                "ls && id | cat > f; $(id) # x",
                Some(&["ls", "&&", "id", "|", "cat", ">", "f;", "$(id)", "#", "x"]),
            ),
            ("ls $HOME *", Some(&["ls", "$HOME", "*"])),
            ("", None),
            (" \t ", None),
            ("ls 'a", None),
            ("ls \"a", None),
            ("ls \"a'", None),
            ("ls a\\", None),
        ];
        for (line, expected) in cases {
            let expected =
                expected.map(|words| words.iter().map(|word| (*word).to_owned()).collect());
            assert_eq!(split(line), expected, "{line}");
        }
    }

    #[test]
    fn only_listed_commands_without_refused_options_are_allowed() {
        let allowed = [
            "git",
            "git log -p",
            "grep x f",
            "rg x",
            "find . -name x",
            "ls",
            "cat f",
            "head f",
            "tail f",
            "wc f",
            "swift test",
            "xcodebuild test -scheme x",
            "npm test",
            "pytest -q",
            "ls && id",
            "'l's",
            "git diff --stat",
            "grep -c x",
        ];
        for line in allowed {
            assert!(parse(line).is_ok(), "{line}");
        }
        let refused = [
            "rm f",
            "/bin/ls",
            "./git",
            "ls;",
            "swift",
            "swift build",
            "npm run test",
            "bash -c ls",
            "sudo ls",
            "lsof",
            "find . -delete",
            "find . -exec rm {} ;",
            "git -c alias.x=!id x",
            "git log --output=f",
            "git --exec-path=. x",
            "rg --pre=id x",
            "rg --pre id x",
            "LS",
            "''",
        ];
        for line in refused {
            assert_eq!(parse(line), Err(SafeModeError::NotAllowed), "{line}");
        }
        assert_eq!(parse("ls '"), Err(SafeModeError::Syntax));
    }
}
