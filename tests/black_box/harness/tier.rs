//! The tier in which the suite runs. With `QUACKD_TEST_TIER=M` every daemon has the confinement of macOS, with the
//! stand-in for `sandbox-exec`, and finds the processes of commands as on macOS. Without the variable daemons have the
//! tier of the machine.
//!
//! A test that cannot hold in tier M begins with `needs!(Reason)`. There it does nothing but report the reason. The
//! rule `exemptions` of `tests/tidy` counts these lines and compares the numbers with docs/security.md.

use super::stand_in::{VARIABLE, sandbox_exec};
use std::env::VarError;
use std::io::Write;

/// Variable of the tests with the tier: `M`, or not set.
const TIER: &str = "QUACKD_TEST_TIER";

/// Variable of the tests: `run` runs also the tests that cannot hold, to see which of them do.
const EXEMPT: &str = "QUACKD_TEST_EXEMPT";

/// Returns true if the suite runs in tier M.
#[track_caller]
pub(crate) fn is_macos() -> bool {
    match std::env::var(TIER).as_deref() {
        Err(VarError::NotPresent) => false,
        Ok("M") => true,
        other => panic!("{TIER} is {other:?}; the only tier to choose is M"),
    }
}

/// Variables of a daemon, for the tier of the suite.
#[track_caller]
pub(crate) fn variables() -> Vec<(&'static str, String)> {
    if !is_macos() {
        return Vec::new();
    }
    vec![("QUACKD_SANDBOX_TIER", "M".to_owned()), (VARIABLE, sandbox_exec().display().to_string())]
}

/// Reason why a test cannot hold in tier M on Linux.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reason {
    /// It shows private mounts: the home, `/tmp`, caches, files of `/etc`, hidden and protected names.
    Namespaces,
    /// It shows that no link can be made in a git directory.
    Links,
    /// It shows the monitor of a worker.
    Monitor,
    /// It swaps directories while workers start.
    Race,
    /// It shows ignored directories in a copy of the repository.
    Isolated,
    /// The test chooses the tiers of its daemons itself.
    OwnTier,
    /// It shows connections that do not use the proxy, refused connections without a proxy, or servers of a session.
    Network,
    /// The commands of the test read `/proc`.
    Procfs,
    /// The documents that the test compares have answers of tiers A and B.
    Answers,
    /// A command of the test kills its worker.
    Signals,
    /// It shows which process the kernel kills when memory runs out.
    KillOrder,
}

impl Reason {
    fn text(self) -> &'static str {
        match self {
            Self::Namespaces => "shows private mounts and namespaces",
            Self::Links => "the stand-in cannot refuse links in git directories",
            Self::Monitor => "workers have no monitor on macOS",
            Self::Race => "the stand-in fails if a directory changes while it reads the tree",
            Self::Isolated => "ignored directories of a copy need overlays",
            Self::OwnTier => "chooses the tiers of its daemons itself",
            Self::Network => "a session has no network of its own on macOS",
            Self::Procfs => "its commands read /proc, which macOS does not have",
            Self::Answers => "its documents have answers of tiers A and B",
            Self::Signals => "a command cannot signal its worker",
            Self::KillOrder => "macOS has no order in which processes are killed for memory",
        }
    }
}

/// Returns true in tier M, and reports that the running test was left out.
#[track_caller]
pub(crate) fn is_left_out(reason: Reason) -> bool {
    let is_forced = std::env::var_os(EXEMPT).is_some_and(|value| value == "run");
    if !is_macos() || is_forced {
        return false;
    }
    // Each test has a thread with its name.
    let thread = std::thread::current();
    let test = thread.name().unwrap_or_default();
    let line = format!("NOT IN TIER M: {test}: {}\n", reason.text());
    // `eprintln!` is captured in tests that pass.
    std::io::stderr().write_all(line.as_bytes()).expect("stderr");
    true
}

/// Ends a test that cannot hold in tier M, with a report of the reason. The first line of the test.
macro_rules! needs {
    ($reason:ident) => {
        if $crate::harness::tier::is_left_out($crate::harness::tier::Reason::$reason) {
            return;
        }
    };
}
pub(crate) use needs;
