//! One value and where it comes from. [`crate::Config`] is made of these.

use crate::error::one_line;
use std::fmt;
use std::path::PathBuf;

/// One value and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting<T> {
    /// The value, checked.
    pub value: T,
    /// Where it comes from.
    pub origin: Origin,
}

impl<T> Setting<T> {
    /// The value that holds when nobody says otherwise.
    pub(crate) fn default_of(value: T) -> Self {
        Self { value, origin: Origin::Default }
    }
}

/// Where a value comes from, the weakest first. Shown as `default`, `/path:7`, `QUACKD_LOG` or `--flag`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody says otherwise.
    Default,
    /// The configuration file.
    File {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
    },
    /// The environment.
    Environment {
        /// The variable's name.
        variable: &'static str,
    },
    /// The command line. Set by the verb that has the flag.
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
