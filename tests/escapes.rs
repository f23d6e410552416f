//! The escape corpus: `cargo test -p quackd --test escapes` runs every case of `tests/escapes/corpus.jsonl` through the
//! real binary in every tier that this machine has, and compares the verdicts with the table of docs/escapes.md.

// The harness follows processes in `/proc`.
#![cfg(target_os = "linux")]
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    clippy::tests_outside_test_module,
    reason = "a test fails by panicking"
)]

#[path = "black_box/harness/mod.rs"]
#[allow(dead_code, unused_imports, reason = "other tests use the rest")]
mod harness;

#[path = "escapes/mod.rs"]
mod escapes;
