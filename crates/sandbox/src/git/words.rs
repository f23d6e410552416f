//! Words of a command line in git's configuration that may be files. Pure and bounded.
//!
//! This is no shell: it splits more than a shell does, because a word too many is only a path that does not exist.

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
