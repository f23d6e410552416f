//! Messages of a worker to the supervisor when no frame can be sent: lines on stderr, the last of which the supervisor
//! keeps for its crash report.

use std::io::Write;

/// Writes one line to stderr.
pub fn complain(text: &str) {
    // A failed write cannot be reported.
    writeln!(std::io::stderr(), "{text}").ok();
}

/// Makes each panic end this process, with its text on stderr.
pub fn abort_on_panic() {
    std::panic::set_hook(Box::new(|info| {
        complain(&format!("panic: {info}").replace('\n', " "));
        std::process::abort();
    }));
}
