//! Attacks that an earlier version did not withstand, each as a test that fails without its fix.
//! The table "Attacks and their tests" in docs/security.md names them.

mod clients;
mod git;
mod launch;
mod limits;
mod programs;
