//! Notes to the user, on stderr.

use std::io::Write;

/// Writes a note to stderr: stdout is for the protocol alone.
pub(super) fn note(text: &str) {
    // A failed write cannot be reported.
    drop(writeln!(std::io::stderr(), "note: {text}"));
}
