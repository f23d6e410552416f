//! Renders a patch: unchanged in a pipe, so that `git apply` and `patch -p1` accept it, colored and sanitized on a
//! terminal. Used by `quack replace --dry-run`, `quack diff`, `quack changes --diff` and `quack mcp install`.

use super::{fit, push};
use crate::output::{BOLD, CYAN, GREEN, RED, StdoutProperties};
use anstyle::Style;

/// Returns the patch for this stdout.
pub(crate) fn render_patch(patch: &str, audience: StdoutProperties) -> String {
    if !audience.is_terminal && !audience.is_colored {
        return patch.to_owned();
    }
    let mut out = String::with_capacity(patch.len());
    // Remaining old and new lines of the hunk. Inside of a hunk, `--- a` may be a removed line.
    let (mut n_old, mut n_new) = (0_u64, 0_u64);

    for line in patch.split_inclusive('\n') {
        let (text, end) = line.strip_suffix('\n').map_or((line, ""), |text| (text, "\n"));
        let style = if n_old == 0 && n_new == 0 {
            match hunk(text) {
                Some(lengths) => {
                    (n_old, n_new) = lengths;
                    CYAN
                }
                None if text.starts_with('\\') => Style::new(),
                None => BOLD,
            }
        } else {
            match text.as_bytes().first() {
                Some(b'+') => {
                    n_new = n_new.saturating_sub(1);
                    GREEN
                }
                Some(b'-') => {
                    n_old = n_old.saturating_sub(1);
                    RED
                }
                Some(b'\\') => Style::new(),
                _ => {
                    n_old = n_old.saturating_sub(1);
                    n_new = n_new.saturating_sub(1);
                    Style::new()
                }
            }
        };

        let shown =
            // A terminal would move to the start of the line.
            if audience.is_terminal { text.strip_suffix('\r').unwrap_or(text) } else { text };
        push(&mut out, &fit(shown, audience), style, audience);
        out.push_str(end);
    }
    out
}

/// Returns the number of old and new lines after a line such as `@@ -1,3 +1,4 @@`.
fn hunk(line: &str) -> Option<(u64, u64)> {
    let ranges = line.strip_prefix("@@ -")?.split_once(" @@")?.0;
    let (old, new) = ranges.split_once(" +")?;
    let length = |range: &str| range.split_once(',').map_or(Some(1), |(_, n)| n.parse().ok());
    Some((length(old)?, length(new)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n--- a\n+++ b\x1b[2J\r\n same\n\\ No newline at end of file\n\
                         --- a/y\n+++ b/y\n@@ -3 +3 @@\n-old\n+new\n";

    #[test]
    fn in_a_pipe_it_is_what_it_is() {
        assert_eq!(
            render_patch(PATCH, StdoutProperties { is_terminal: false, is_colored: false }),
            PATCH
        );
    }

    #[test]
    fn on_a_terminal_it_has_colours_and_steers_nothing() {
        let text = render_patch(PATCH, StdoutProperties { is_terminal: true, is_colored: true });
        for part in [
            format!("{BOLD}--- a/x{BOLD:#}\n"),
            format!("{CYAN}@@ -1,2 +1,2 @@{CYAN:#}\n"),
            format!("{RED}--- a{RED:#}\n"),
            format!("{GREEN}+++ b{GREEN:#}\n"),
            " same\n\\ No newline at end of file\n".to_owned(),
            format!("{BOLD}+++ b/y{BOLD:#}\n"),
            format!("{RED}-old{RED:#}\n{GREEN}+new{GREEN:#}\n"),
        ] {
            assert!(text.contains(&part), "{part:?} is missing in {text:?}");
        }
        assert!(!text.contains("\x1b[2J"), "{text:?}");
    }
}
