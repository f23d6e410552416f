//! Black-box tests: the real binary, the real socket, real tools. Nothing here knows the inside.
//!
//! Each test has its own daemon, state directory, home and repositories. The harness fails a test that
//! leaves a process behind.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    clippy::tests_outside_test_module,
    reason = "a test fails by panicking"
)]

mod harness;

mod cli;
mod clients;
mod daemon_life;
mod demo;
mod file_tools;
mod methods;
mod tools;
mod worker_faults;
