//! Tests that show nothing on this machine.

use std::io::Write as _;

/// Reports that a test shows nothing on this machine. Writes to the descriptor, because `eprintln!` is captured in tests
/// that pass.
pub fn skipped(why: &str) {
    std::io::stderr().write_all(format!("SKIPPED: {why}\n").as_bytes()).expect("stderr");
}

/// Like [`skipped`], for tests of security and durability. Fails if `QUACKD_REQUIRE` is `all`, as in CI.
#[track_caller]
pub fn untested(why: &str) {
    let required = std::env::var_os("QUACKD_REQUIRE").is_some_and(|value| value == "all");
    assert!(!required, "not tested although QUACKD_REQUIRE is \"all\": {why}");
    skipped(why);
}
