//! Helpers that the tests of several crates share: directories, programs, processes, servers and waits.
//!
//! Only `[dev-dependencies]` name this crate. It uses no other crate of the workspace: the unit tests of that crate would
//! then see its types twice. A helper that fails panics, which fails its test.

#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod directory;
mod fake_exa;
mod git;
mod http_reply;
mod kill_on_drop;
mod line_reader;
mod processes;
mod programs;
mod random;
mod runtime;
mod skip;
mod turn;
mod wait;

pub use directory::{TestDir, write_file};
pub use fake_exa::{Answer, FakeExa, Request, Seen, answer};
pub use git::{git, git_command};
pub use http_reply::HttpReply;
pub use kill_on_drop::KillOnDrop;
pub use line_reader::LineReader;
pub use processes::{Process, assert_gone, descendants_of, is_alive, kib, pids, runs};
pub use programs::{program, this_test};
pub use random::Random;
pub use runtime::block_on;
pub use skip::{skipped, untested};
pub use turn::{Turn, alone, alone_blocking};
pub use wait::{PATIENCE, wait_for, wait_until, wait_until_async, wait_within};
