//! Quoting for a POSIX shell. Also correct for csh and fish if the word has no line end, `\` and `!`.

/// Returns a word that a shell reads as exactly this text. The text has no NUL byte, which no argument can have.
#[must_use]
pub fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    /// Returns what a shell makes of the quoted words, each with a NUL byte after it.
    #[expect(clippy::disallowed_methods, reason = "a test of what a shell reads")]
    fn read_by_a_shell(words: &[String]) -> Vec<u8> {
        let words: Vec<_> = words.iter().map(|word| quote(word)).collect();
        let line = format!(r"printf '%s\0' {}", words.join(" "));
        Command::new("sh").args(["-c", &line]).output().unwrap().stdout
    }

    fn with_nul(words: &[String]) -> Vec<u8> {
        words.iter().flat_map(|word| word.bytes().chain([0])).collect()
    }

    #[test]
    fn a_shell_reads_every_ascii_character_as_it_is() {
        let words: Vec<String> = (1..128_u8)
            .flat_map(|n| [char::from(n).to_string(), format!("a{}'b", char::from(n))])
            .collect();
        assert_eq!(read_by_a_shell(&words), with_nul(&words));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_shell_reads_the_words_that_were_quoted(
            words in prop::collection::vec("[^\0]{0,40}|['\"\\\\ \n$`!*~]{0,20}", 1..8)
        ) {
            prop_assert_eq!(read_by_a_shell(&words), with_nul(&words));
        }
    }
}
