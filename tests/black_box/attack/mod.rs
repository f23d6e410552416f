//! Attacks that succeeded against an earlier version. Each test fails without its fix. The table
//! "Attacks and their tests" in docs/security.md names the tests.

mod clients;
mod git;
mod launch;
mod limits;
mod named;
mod new_repositories;
mod obeyed;
mod programs;
