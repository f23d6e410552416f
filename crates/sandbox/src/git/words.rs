//! Words of a command line in git's configuration that may be files. Pure and bounded.
//!
//! This is no shell: it splits more than a shell does, because a word too many is only a path that does not exist.

use std::path::Path;

/// Maximum number of words of one value.
const MAX_WORDS: usize = 64;

/// Characters that end a word outside of quotes.
const BREAKS: &str = ";|&()<>{}=,`\n";

/// A word of a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    /// True for the first word of a command.
    pub(super) is_first: bool,
    /// True if a variable or another command makes the beginning, as in `$(git rev-parse --show-toplevel)/x`.
    pub(super) follows_value: bool,
}

/// Returns the words of a command line, with the words inside of its quoted words.
pub(super) fn words(line: &str) -> Vec<Word> {
    let mut all = Vec::new();
    // Git gives what follows `!` to the shell.
    let line = line.trim_start_matches(['!', ' ', '\t']);
    split(line, &mut all);

    // The words that this adds are not split again.
    for n in 0..all.len() {
        let Some(text) = all.get(n).map(|word| word.text.clone()) else { break };
        // The argument of `sh -c '…'`.
        if text.contains([' ', ';', '|', '&', '$', '`', '=', '\n']) {
            split(&text, &mut all);
        }
    }
    all.truncate(MAX_WORDS);
    all
}

/// Replaces `$HOME` and `${HOME}` in a command line by the home, unless a shell could split or expand the home.
pub(super) fn with_home(line: &str, home: &Path) -> String {
    let is_plain = |home: &&str| {
        home.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-@+".contains(&byte))
    };
    let Some(home) = home.to_str().filter(is_plain) else { return line.to_owned() };

    let line = line.replace("${HOME}", home);
    let mut pieces = line.split("$HOME");
    let mut whole = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let is_longer = piece.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        whole.push_str(if is_longer { "$HOME" } else { home });
        whole.push_str(piece);
    }
    whole
}

/// Whether [`words`] returns every path in a command line that a shell runs in the root directory. False if a variable,
/// another command, a pattern or the name of a user makes a part of a path, and if the command changes its directory.
pub(super) fn is_clear(line: &str) -> bool {
    let all = words(line);
    let is_unclear = |word: &Word| {
        let text = word.text.as_str();
        let is_made =
            word.follows_value || text.contains(['*', '?', '[', char::REPLACEMENT_CHARACTER]);
        let is_of_user = text.starts_with('~') && !text.starts_with("~/");
        text.contains('/') && is_made || is_of_user || matches!(text, "cd" | "pushd")
    };

    // A value may also make the end of a path.
    let unquoted = line.replace(['"', '\'', '\\'], "");
    let mut pieces = unquoted.split(|c: char| c.is_whitespace() || ";|&()<>{}=,".contains(c));
    let ends_in_value = |piece: &str| piece.contains('/') && piece.contains(['$', '`']);
    all.len() < MAX_WORDS && !all.iter().any(is_unclear) && !pieces.any(ends_in_value)
}

fn split(line: &str, all: &mut Vec<Word>) {
    let mut word = Word { text: String::new(), is_first: true, follows_value: false };
    let mut quote = None;
    let mut chars = line.chars().peekable();
    while let Some(one) = chars.next() {
        match (one, quote) {
            ('\\', None | Some('"')) => word.text.extend(chars.next()),
            ('\'' | '"', None) => quote = Some(one),
            (one, Some(open)) if one == open => quote = None,
            ('$', None | Some('"')) => {
                let is_command = chars.peek() == Some(&'(');
                end(&mut word, all, is_command, true);
                if !is_command {
                    // The name of a variable ends at the first slash.
                    while chars
                        .next_if(|c| c.is_ascii_alphanumeric() || "_{}".contains(*c))
                        .is_some()
                    {}
                }
            }
            (')' | '`', None | Some('"')) => end(&mut word, all, false, true),
            (one, None) if one.is_whitespace() => {
                let is_first = word.text.is_empty() && word.is_first;
                end(&mut word, all, is_first, false);
            }
            (one, None) if BREAKS.contains(one) => {
                end(&mut word, all, !"=,<>".contains(one), false);
            }
            (one, _) => word.text.push(one),
        }

        if MAX_WORDS <= all.len() {
            return;
        }
    }
    end(&mut word, all, false, false);
}

/// Ends a word and begins the next one.
fn end(word: &mut Word, all: &mut Vec<Word>, is_first: bool, follows_value: bool) {
    let next = Word { text: String::new(), is_first, follows_value };
    let done = std::mem::replace(word, next);
    if !done.text.is_empty() && !done.text.starts_with('-') {
        all.push(done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(line: &str) -> Vec<String> {
        words(line).into_iter().map(|word| word.text).collect()
    }

    #[test]
    fn files_of_a_command_line_are_found() {
        for (line, expected) in [
            ("./tools/fmt.sh", "./tools/fmt.sh"),
            ("sh ./tools/x", "./tools/x"),
            ("python3 tools/x.py %f", "tools/x.py"),
            ("\"./my tools/x\" -a", "./my tools/x"),
            ("!f() { sh './a b/x' \"$@\"; }; f", "./a b/x"),
            ("sh -c 'exec ./tools/x \"$1\"'", "./tools/x"),
            ("\"$(git rev-parse --show-toplevel)/tools/x\"", "/tools/x"),
            ("`git rev-parse --show-toplevel`/tools/x", "/tools/x"),
            ("${PWD}/tools/x", "/tools/x"),
            ("env A=./x true", "./x"),
            ("a|./x&&./y", "./y"),
            ("./my\\ tools/x", "./my tools/x"),
        ] {
            assert!(texts(line).iter().any(|word| word == expected), "{line}: {:?}", texts(line));
        }
    }

    #[test]
    fn a_command_line_is_clear_if_its_paths_are_in_it() {
        let is_clear_at = |line: &str, home: &str| is_clear(&with_home(line, Path::new(home)));
        for line in [
            "store --file ~/.tokens",
            "!/usr/bin/gh auth git-credential",
            "!$HOME/bin/helper",
            "!\"${HOME}/bin/helper\" get",
            "!f() { echo \"username=$USER\"; echo password=$(cat /run/token); }; f",
            "!f() { test -x /bin/a && [ -n \"$X\" ] && /bin/a $@; }; f",
        ] {
            assert!(is_clear_at(line, "/home/me"), "{line}");
        }
        for line in [
            "!$X/helper",
            "!/ws$X",
            "!'/ws'$X",
            "!/ws/`x`",
            "!$(x)/helper",
            "!`x`/helper",
            "!\"$X\"/helper",
            "!sh -c '/bin/$X'",
            "!/tmp/w?/helper",
            "!/tmp/w*/helper",
            "!/tmp/[w]s/helper",
            "!~me/helper",
            "!cd /tmp && ./helper",
            "!$HOMES/helper",
        ] {
            assert!(!is_clear_at(line, "/home/me"), "{line}");
        }
        assert!(!is_clear_at("!$HOME/helper", "/home/my own"));
        assert!(!is_clear(&"a ".repeat(MAX_WORDS)));
        assert_eq!(with_home("$HOME/a:${HOME}b$HOMES", Path::new("/h")), "/h/a:/hb$HOMES");
    }

    #[test]
    fn first_words_are_known_and_values_are_marked() {
        let all = words("cat a | ./b $X/c");
        let firsts: Vec<_> = all.iter().filter(|w| w.is_first).map(|w| w.text.as_str()).collect();
        assert_eq!(firsts, ["cat", "./b"]);
        let valued: Vec<_> =
            all.iter().filter(|w| w.follows_value).map(|w| w.text.as_str()).collect();
        assert_eq!(valued, ["/c"]);
        assert!(words(&"a ".repeat(1000)).len() <= MAX_WORDS);
    }
}
