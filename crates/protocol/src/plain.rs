//! Error texts without the numbers of the system. Used wherever a text reaches a user or a client.

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
            Some(rest) if rest.len() + 1 < piece.len() => plain.push_str(rest),
            _ => plain.extend([NUMBER, piece]),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

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
