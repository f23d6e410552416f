//! How a process ended. Used by every caller of this crate.

use rustix::process::WaitIdStatus;
use std::fmt;

/// How a process ended. Displays as `exit code 3` or `signal 9`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Exit {
    /// It ended itself with this code, 0 to 255.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

impl Exit {
    /// Reads the answer of a wait that asked for ended processes only.
    pub(crate) fn from_wait(status: &WaitIdStatus) -> Self {
        match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Self::Code(code),
            (None, Some(signal)) => Self::Signal(signal),
            // Neither cannot be: stops and continues are not waited for.
            (None, None) => Self::Signal(0),
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
