//! Differential tests: the library, ripgrep, GNU grep, git and perl process the same random trees and requests,
//! and their answers must be equal.
//!
//! A run is repeatable. `QUACKD_DIFF_SEED` (a number, or `new` for one from the clock) selects the cases, and
//! `QUACKD_DIFF_CASES` their number in percent of the default. `QUACKD_DIFF_RG` names another ripgrep than the
//! first on PATH. If a program is missing, its part is skipped with a message, or fails if
//! `QUACKD_REQUIRE` is `all`.
//!
//! A difference is shrunk to the smallest tree and request that still show it. [`known_differences`] lists the
//! intended differences, each matched exactly.
//!
//! Reading order: [`random`], [`tree`] and [`content`] make cases; [`programs`] runs the other programs,
//! [`engine_under_test`] the library; [`normalized_output`] is the form in which they are compared; [`run`]
//! counts and [`shrink`]s.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    clippy::tests_outside_test_module,
    reason = "a test fails by panicking"
)]

mod random;

mod content;
mod tree;

mod programs;

mod query;

mod engine_under_test;
mod normalized_output;

mod known_differences;
mod run;
mod shrink;

mod basic;
mod globs;
mod large;
mod lines;
mod modes;
mod pages;
mod regressions;
mod replace;
mod repository;
mod selection;
mod situations;
