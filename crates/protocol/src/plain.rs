//! Error texts for users and clients: without the numbers of the system, and out of the output of a program that died.

/// Start of the error number that the standard library appends to the text of a system error.
const NUMBER: &str = " (os error ";

/// Returns the text without every ` (os error N)`.
#[must_use]
pub fn without_numbers(text: &str) -> String {
    let mut pieces = text.split(NUMBER);
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let rest = piece.trim_start_matches(|c: char| c.is_ascii_digit());
        match rest.strip_prefix(')') {
            // At least one digit is before the bracket.
            Some(rest) if rest.len() + 1 < piece.len() => plain.push_str(rest),
            _ => plain.extend([NUMBER, piece]),
        }
    }
    plain
}

/// Returns the line of a program's last output that names its error: the last one such as `SyntaxError: …`, else the last
/// line with a text. `None` without output.
#[must_use]
pub fn error_line(output: &str) -> Option<&str> {
    let names_error = |line: &&str| {
        let word: &str = line.split([':', ' ', '[', '(']).next().unwrap_or_default();
        let is_word =
            !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || "._".contains(c));
        let ends = ["error", "exception", "fatal", "panic"];
        is_word && line.len() != word.len() && {
            let word = word.to_ascii_lowercase();
            ends.iter().any(|end| word.ends_with(end))
        }
    };

    let mut lines = output.lines().map(str::trim).filter(|line| !line.is_empty()).rev();
    lines.clone().find(names_error).or_else(|| lines.next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_program_is_found_before_its_stack() {
        let node = "file:///pi/cli.js:2\nimport { x } from \"node:module\";\n         ^\n\
            SyntaxError: The requested module 'node:module' does not provide an export named 'x'\n    \
            at ModuleJob._instantiate (node:internal:213:21)\n\nNode.js v20.20.2\n";
        let expected =
            "SyntaxError: The requested module 'node:module' does not provide an export named 'x'";
        assert_eq!(error_line(node), Some(expected));
        assert_eq!(error_line("TypeError [ERR_X]: no\n at y\n"), Some("TypeError [ERR_X]: no"));
        assert_eq!(error_line("Error: one\nlast\n"), Some("Error: one"));
        assert_eq!(error_line("Errors are fine\n\nlast words\n"), Some("last words"));
        assert_eq!(error_line("\n \n"), None);
    }

    #[test]
    fn numbers_of_the_system_go_and_nothing_else_does() {
        for (text, plain) in [
            ("", ""),
            ("a: No such file or directory (os error 2)", "a: No such file or directory"),
            ("x (os error 2): y (os error 13), z", "x: y, z"),
            ("x (os error ) (os error 2", "x (os error ) (os error 2"),
            ("ü (os error 2)ü", "üü"),
        ] {
            assert_eq!(without_numbers(text), plain);
        }
    }
}
