//! Safe mode of bash: splits a command line into words and runs it, if the first words of its commands are on a
//! list. Uses a shell only for pipes.
//!
//! The list is a guard for cooperative callers. The read-only profile of the sandbox limits what a command can
//! really do. Options that make a listed program run another program, or write, are still rejected here, so
//! that the caller gets an early error.

mod git;

/// Commands that bash runs in safe mode, by their first word or words.
const SAFE_COMMANDS: &[&[&str]] = &[
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

/// Text for a command that safe mode does not run. The protocol fixes it.
const NOT_SAFE: &str = "Command not allowed in safe mode";

/// Returns the rule of safe mode with its list. The protocol fixes the error text of the tool, which cannot include them.
pub(crate) fn safe_mode_rule() -> String {
    let listed: Vec<String> = SAFE_COMMANDS.iter().map(|words| words.join(" ")).collect();
    format!(
        "safe mode runs only commands that begin with {}, with ` | ` between them; options that write or run another \
         program are refused; `quack tool --help` says more",
        listed.join(", ")
    )
}

/// Words that are rejected after a program's name, alone or followed by `=`.
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

/// Reason for rejecting a command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SafeModeError {
    #[error("Invalid command syntax in safe mode")]
    Syntax,
    #[error("{NOT_SAFE}")]
    NotAllowed,
}

/// Piece of a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Word(String),
    /// A `|` between spaces and outside of quotes. Any other `|` is a character of a word.
    Pipe,
}

/// Splits and checks a command line. Returns the program's name, which contains no slash, and its arguments.
/// git gets options that keep it from running other programs. Commands with pipes are run by a shell that gets
/// every word quoted.
pub(crate) fn parse(line: &str) -> Result<(String, Vec<String>), SafeModeError> {
    let pieces = pieces(line).ok_or(SafeModeError::Syntax)?;
    let mut commands = Vec::new();
    for pieces in pieces.split(|piece| *piece == Piece::Pipe) {
        let words: Vec<String> = pieces.iter().filter_map(Piece::word).collect();
        if words.is_empty() {
            return Err(SafeModeError::Syntax);
        }
        if !is_allowed(&words) {
            return Err(SafeModeError::NotAllowed);
        }
        let is_git = words.first().is_some_and(|word| word == "git");
        commands.push(if is_git { git::hardened(words) } else { words });
    }

    if 1 < commands.len() {
        let commands: Vec<String> = commands.iter().map(|words| quoted(words)).collect();
        return Ok(("sh".to_owned(), vec!["-c".to_owned(), commands.join(" | ")]));
    }

    let mut words = commands.into_iter().flatten();
    let program = words.next().ok_or(SafeModeError::Syntax)?;
    Ok((program, words.collect()))
}

impl Piece {
    fn word(&self) -> Option<String> {
        match self {
            Self::Word(word) => Some(word.clone()),
            Self::Pipe => None,
        }
    }
}

/// Quotes the words for a shell.
fn quoted(words: &[String]) -> String {
    let quote = |word: &String| format!("'{}'", word.replace('\'', r"'\''"));
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}

fn is_allowed(words: &[String]) -> bool {
    let is_listed = SAFE_COMMANDS.iter().any(|prefix| {
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

/// Splits a command line at spaces and tabs. `'` and `"` quote, and a backslash escapes the next character,
/// except between `'`. Everything except a `|` between spaces is ordinary: lists, redirections, variables and
/// comments are not supported. `None` for an unfinished quote or escape, and for an empty line.
fn pieces(line: &str) -> Option<Vec<Piece>> {
    let mut pieces = Vec::new();
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
            (None, ' ' | '\t') => pieces.extend(word.take().map(Piece::Word)),
            (None, '|') if word.is_none() && is_end(rest.as_str()) => pieces.push(Piece::Pipe),
            _ => word.get_or_insert_default().push(c),
        }
    }

    pieces.extend(word.map(Piece::Word));
    (quote.is_none() && !pieces.is_empty()).then_some(pieces)
}

/// Whether a word ends before `rest`.
fn is_end(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with([' ', '\t'])
}

/// Returns the words of a command line, including pipes.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn split(line: &str) -> Option<Vec<String>> {
    let word = |piece: &Piece| piece.word().unwrap_or_else(|| "|".to_owned());
    Some(pieces(line)?.iter().map(word).collect())
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
        for line in ["ls '", "ls | ", "| ls", "ls | | wc"] {
            assert_eq!(parse(line), Err(SafeModeError::Syntax), "{line}");
        }
    }

    #[test]
    fn pipes_between_allowed_commands_keep_every_word() {
        let (program, args) = parse("cat \"it's $(id)\" | grep -c a|b | wc ';' '|'").unwrap();
        let line = r"'cat' 'it'\''s $(id)' | 'grep' '-c' 'a|b' | 'wc' ';' '|'";
        assert_eq!((program.as_str(), args), ("sh", vec!["-c".to_owned(), line.to_owned()]));
        let (_, args) = parse("git log | head -1").unwrap();
        assert!(args[1].starts_with("'git' '-c' 'core.pager=cat' "), "{args:?}");
        assert!(args[1].ends_with(" | 'head' '-1'"), "{args:?}");
        for line in ["cat f | id", "id | cat", "cat f | find . -delete", "ls | sh", "ls | ls;"] {
            assert_eq!(parse(line), Err(SafeModeError::NotAllowed), "{line}");
        }
        // Without a space it is a character of a word.
        assert_eq!(parse("grep a|b f").unwrap().1, ["a|b", "f"]);
        assert_eq!(parse("ls || ls").unwrap().1, ["||", "ls"]);
    }
}
