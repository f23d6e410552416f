//! Differential tests: random trees and requests are given to the library and to ripgrep, GNU grep, git and
//! perl, and the answers must be the same.
//!
//! A run is repeatable: `QUACKD_DIFF_SEED` (a number, or `new` for one of the clock) chooses the cases,
//! `QUACKD_DIFF_CASES` how many there are in percent of the usual number. `QUACKD_DIFF_RG` names another
//! ripgrep than the first on PATH. A program that is missing skips its part and says so, or fails it if
//! `QUACKD_REQUIRE` is `all`.
//!
//! A difference is shrunk to the smallest tree and request that still show it. What is meant to be
//! different stands in [`known`], one by one, each matched exactly.
//!
//! Reading order: [`random`], [`tree`] and [`content`] make cases; [`programs`] asks the others, [`ours`]
//! asks the library; [`answer`] is the form in which they are compared; [`run`] counts and [`shrink`]s.

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

mod answer;
mod ours;

mod known;
mod run;
mod shrink;

mod basic;
mod globs;
mod lines;
mod modes;
mod pages;
mod regressions;
mod replace;
mod repository;
mod selection;
mod situations;
