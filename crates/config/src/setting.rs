//! One value and its origin. [`crate::Config`] consists of these.

use crate::error::one_line;
use std::fmt;
use std::path::PathBuf;

/// One value and its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting<T> {
    /// The validated value.
    pub value: T,
    /// Origin of the value.
    pub origin: Origin,
}

impl<T> Setting<T> {
    /// Creates a setting with the built-in default.
    pub(crate) fn default_of(value: T) -> Self {
        Self { value, origin: Origin::Default }
    }
}

/// Origin of a value, the weakest first. Shown as `default`, `/path:7`, `QUACKD_LOG` or `--flag`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Built-in default.
    Default,
    /// The configuration file.
    File {
        /// Path of the file.
        path: PathBuf,
        /// Line of the value, from 1.
        line: usize,
    },
    /// The environment.
    Environment {
        /// The variable's name.
        variable: &'static str,
    },
    /// The command line. Set by the subcommand that has the flag.
    Flag {
        /// The flag with its dashes.
        flag: &'static str,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", one_line(&path.to_string_lossy())),
            Self::Environment { variable } => f.write_str(variable),
            Self::Flag { flag } => f.write_str(flag),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_shown_as_one_line() {
        let shown = [
            Origin::Default,
            Origin::File { path: "/a\nb/quackd.toml".into(), line: 7 },
            Origin::Environment { variable: "QUACKD_LOG" },
            Origin::Flag { flag: "--verbose" },
        ]
        .map(|origin| origin.to_string());
        assert_eq!(shown, ["default", "/a\u{fffd}b/quackd.toml:7", "QUACKD_LOG", "--verbose"]);
    }
}
