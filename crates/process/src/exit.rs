//! Exit status of a process. Used by all callers of this crate.

use nix::libc;
use std::fmt;

/// Exit status of a process. Displays as `exit code 3` or `signal 9`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Exit {
    /// The process exited with this code, 0 to 255.
    Code(i32),
    /// This signal killed the process.
    Signal(i32),
}

impl Exit {
    /// Converts a raw wait status of a process that has ended.
    pub(crate) fn of_status(status: i32) -> Self {
        if libc::WIFEXITED(status) {
            Self::Code(libc::WEXITSTATUS(status))
        } else {
            // wait4 without WUNTRACED and WCONTINUED reports no stops and continues.
            Self::Signal(libc::WTERMSIG(status))
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_reads_as_the_death_texts_need_it() {
        assert_eq!(Exit::Code(3).to_string(), "exit code 3");
        assert_eq!(Exit::Signal(9).to_string(), "signal 9");
    }
}
