//! Variables of a program on a terminal.

/// Name of a terminal with the sequences that the screen has, in the database of all systems.
const TERM: &str = "xterm-256color";

/// Returns the session's variables without those that keep programs from using a terminal, then `own`, which win.
/// `label` is that of the session.
pub(crate) fn environment(
    session: &[(String, String)],
    label: &str,
    own: &[(String, String)],
) -> Vec<(String, String)> {
    let is_for_pipes = |name: &str, value: &str| match name {
        "NO_COLOR" | "TERM" => true,
        "PAGER" | "GIT_PAGER" => value == "cat",
        _ => false,
    };
    let kept = session.iter().filter(|(name, value)| !is_for_pipes(name, value)).cloned();
    let term = [("TERM".to_owned(), TERM.to_owned())];
    let of_session = (!label.is_empty()).then(|| ("QUACKD_SESSION".to_owned(), label.to_owned()));
    kept.chain(term).chain(of_session).chain(own.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_gets_a_terminal_and_no_variable_for_pipes() {
        let pairs = |all: &[(&str, &str)]| -> Vec<(String, String)> {
            all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let session = pairs(&[
            ("PATH", "/bin"),
            ("NO_COLOR", "1"),
            ("TERM", "dumb"),
            ("PAGER", "cat"),
            ("GIT_PAGER", "delta"),
        ]);
        let own = pairs(&[("COLORTERM", "truecolor"), ("PATH", "/opt")]);
        let expected = pairs(&[
            ("PATH", "/bin"),
            ("GIT_PAGER", "delta"),
            ("TERM", "xterm-256color"),
            ("QUACKD_SESSION", "web"),
            ("COLORTERM", "truecolor"),
            ("PATH", "/opt"),
        ]);
        assert_eq!(environment(&session, "web", &own), expected);
        assert_eq!(environment(&[], "", &[]), pairs(&[("TERM", "xterm-256color")]));
    }
}
